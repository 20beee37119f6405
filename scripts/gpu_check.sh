#!/usr/bin/env bash
# Do our engine and the SGLang plugin work on this machine's GPU, and how fast? At most ten minutes in all:
#   scripts/gpu_check.sh [MODEL [DRAFT]] [--json FILE] [more options of benchmarks/gpu_check.py]
# Takes the Python that has SGLang and leaves it as it is; where none has, makes .venv-gpu and installs
# SGLang there (once, several minutes: the first run may have little time left for the check itself).
# With `--engines embedded`, our engine alone, a Python with what that needs will do.
# PYTHON names the interpreter. Without MODEL: ADAPTIVESPEC_GPU_MODEL and ADAPTIVESPEC_GPU_DRAFT, else
# a known pair in the hub's cache, else the embedded model. ADAPTIVESPEC_GPU_SECONDS is the limit (600).
set -euo pipefail
root="$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)"
overlay="$root/.venv-gpu-check"

recent() { "$1" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; }
has_sglang() {
    "$1" -c 'import sys; from importlib.util import find_spec; sys.exit(not find_spec("sglang"))' 2>/dev/null
}

has_ours() {
    "$1" -c 'import sys; from importlib.util import find_spec
sys.exit(not all(map(find_spec, "torch tokenizers safetensors jinja2 pydantic gguf".split())))' 2>/dev/null
}

find_python() { # find_python CONDITION: the first interpreter that is recent and fulfils it
    local candidate
    for candidate in ${PYTHON:+"$PYTHON"} python3 python "$root/.venv-gpu/bin/python" python3.12 python3.11; do
        if recent "$candidate" && "$1" "$candidate"; then
            command -v "$candidate"
            return
        fi
    done
    return 1
}

# SGLang finds plugins by the metadata of installed packages. These lines give the checkout such metadata
# in a folder of its own, so that nothing is installed into the interpreter.
make_overlay() {
    rm -rf "$overlay"
    "$1" - "$root" "$overlay" <<'PYTHON'
import pathlib, sys, tomllib
root, overlay = map(pathlib.Path, sys.argv[1:])
project = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))["project"]
sys.path.insert(0, str(root / "src"))
from adaptivespec import __version__
folder = overlay / f"adaptivespec-{__version__}.dist-info"
folder.mkdir(parents=True)
(folder / "METADATA").write_text(f"Metadata-Version: 2.1\nName: adaptivespec\nVersion: {__version__}\n")
(folder / "entry_points.txt").write_text("".join(
    f"[{group}]\n" + "".join(f"{name} = {place}\n" for name, place in points.items())
    for group, points in project["entry-points"].items()
))
PYTHON
    # Two small packages that fetching the embedded model needs and not every SGLang brings along.
    local missing
    missing="$("$1" -c 'from importlib.util import find_spec
print(*(name for name in ("platformdirs", "filelock") if not find_spec(name)))')"
    if [ -n "$missing" ]; then
        # shellcheck disable=SC2086
        "$1" -m pip install --quiet --disable-pip-version-check --no-deps --target "$overlay" $missing >&2 ||
            echo "gpu_check.sh: no $missing: set ADAPTIVESPEC_CACHE if the embedded model is to be used" >&2
    fi
}

wanted=has_sglang extra='[sglang]'
case " $* " in *' --engines embedded '* | *' --engines=embedded '*) wanted=has_ours extra='' ;; esac
if ! python="$(find_python "$wanted")"; then
    base="$(find_python true)" || {
        echo "gpu_check.sh: no Python 3.11 or newer found; install one or set PYTHON=/path/to/python3" >&2
        exit 1
    }
    echo "gpu_check.sh: no Python here has all it takes; installing it into .venv-gpu (once, several minutes)" >&2
    "$base" -m venv "$root/.venv-gpu"
    python="$root/.venv-gpu/bin/python"
    "$python" -m pip install --quiet --disable-pip-version-check "$root$extra" >&2
fi
make_overlay "$python"
echo "gpu_check.sh: $python" >&2

export PYTHONPATH="$root/src:$overlay${PYTHONPATH:+:$PYTHONPATH}"
limit="${ADAPTIVESPEC_GPU_SECONDS:-600}"
exec "$python" "$root/benchmarks/gpu_check.py" --seconds "$((limit - SECONDS))" "$@"
