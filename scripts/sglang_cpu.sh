#!/usr/bin/env bash
# Runs the plugin inside the real SGLang on a machine without a GPU:
#   scripts/sglang_cpu.sh [options of pytest]
# The first run makes .venv-sglang (2.4 GB, about two minutes); a later one needs no network. Without
# options the quick tests run; -m "slow or not slow" runs all; --install-only makes the venv and no
# more. SGLANG_VERSION names another release (0.5.20 or newer), which gets a venv of its own; PYTHON
# the interpreter (3.11 or newer).
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

default=0.5.23
version="${SGLANG_VERSION:-$default}"
venv=".venv-sglang$([ "$version" = "$default" ] || echo "-$version")"
python="$venv/bin/python"

# A venv holds absolute paths, so its own place is part of the stamp.
stamp="$( { echo "$PWD $version"; cat pyproject.toml constraints-sglang.txt "$0"; } | cksum)"

find_python() {
    local candidate
    for candidate in ${PYTHON:+"$PYTHON"} python3.11 python3; do
        if "$candidate" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
            echo "$candidate"
            return
        fi
    done
    echo "sglang_cpu.sh: no Python 3.11 or newer found; set PYTHON=/path/to/python3" >&2
    exit 1
}

install() {
    echo "sglang_cpu.sh: installing SGLang $version into $venv (once; takes a few minutes)" >&2
    if [ "$(cat "$venv/.place" 2>/dev/null)" != "$PWD" ] || ! "$python" -c '' 2>/dev/null; then
        rm -rf "$venv"
        local found
        found="$(find_python)"
        "$found" -m venv "$venv"
        echo "$PWD" > "$venv/.place"
    fi
    local constraints="$venv/constraints.txt"
    case "$version" in
        # Releases before 0.5.22 want an older transformers.
        0.5.20 | 0.5.21)
            sed -e 's/^transformers==.*/transformers==5.12.1/' \
                -e 's/^tokenizers==.*/tokenizers==0.22.2/' constraints-sglang.txt > "$constraints" ;;
        *) cp constraints-sglang.txt "$constraints" ;;
    esac
    local pip=("$python" -m pip install --quiet --disable-pip-version-check)
    "${pip[@]}" -c "$constraints" -e '.[sglang-cpu-test,test]' >&2
    # SGLang pins another torch and dozens of CUDA packages; the extra above has what a CPU needs.
    "${pip[@]}" --no-deps "sglang==$version" >&2
    echo "$stamp" > "$venv/.installed"
}

[ "$(cat "$venv/.installed" 2>/dev/null)" = "$stamp" ] || install
[ "${1:-}" != --install-only ] || exit 0

"$venv/bin/adaptivespec" models fetch ||
    echo "sglang_cpu.sh: no embedded model; the tests that need it will be skipped" >&2

export OMP_NUM_THREADS=1
exec "$python" -m pytest tests/sglang "$@"
