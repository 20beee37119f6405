#!/usr/bin/env bash
# Makes .venv and installs the package into it:  scripts/setup.sh [EXTRA]
# EXTRA is test, eval, serve, conform, docs, lint, hub, dev, bench or wheel.
# Running it again costs nothing, and needs no network, while pyproject.toml and constraints.txt
# are unchanged. PYTHON names the interpreter to build from (3.11 or newer).
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

extra="${1:-}"
case "$extra" in
    '' | test | eval | serve | conform | docs | lint | hub | dev | bench | wheel) ;;
    *) echo "setup.sh: unknown extra '$extra'; choose test, eval, serve, conform, docs, lint, hub, dev, bench or wheel" >&2; exit 2 ;;
esac

find_python() {
    local candidate
    for candidate in ${PYTHON:+"$PYTHON"} python3.11 python3 python3.12 python3.13 python; do
        if "$candidate" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
            echo "$candidate"
            return
        fi
    done
    echo "setup.sh: no Python 3.11 or newer found; install one or set PYTHON=/path/to/python3" >&2
    exit 1
}

# A venv holds absolute paths, so its own place is part of the stamp.
stamp="$( { echo "$PWD"; cat pyproject.toml constraints.txt; } | cksum)"
venv_works() { .venv/bin/python -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; }
stamped() { [ "$(cat ".venv/.installed-$1" 2>/dev/null)" = "$stamp" ]; }

if venv_works; then
    case "$extra" in
        '') enough="base test eval serve conform docs lint hub dev bench wheel" ;;
        test) enough="test dev bench" ;;
        eval | serve | conform) enough="$extra test dev bench" ;;
        bench | wheel) enough="$extra" ;;
        *) enough="$extra dev" ;;
    esac
    for have in $enough; do
        if stamped "$have"; then exit 0; fi
    done
fi

echo "setup.sh: installing into .venv (once; takes a few minutes)" >&2
if ! venv_works || [ "$(cat .venv/.place 2>/dev/null)" != "$PWD" ]; then
    python="$(find_python)"
    rm -rf .venv
    "$python" -m venv .venv || {
        echo "setup.sh: $python cannot make a venv; install its venv module (python3-venv)" >&2
        exit 1
    }
    echo "$PWD" > .venv/.place
fi
.venv/bin/python -m pip install --quiet --disable-pip-version-check \
    -c constraints.txt -e ".${extra:+[$extra]}" >&2
echo "$stamp" > ".venv/.installed-${extra:-base}"
