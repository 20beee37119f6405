#!/usr/bin/env bash
# Sets up everything and runs the tests:  scripts/test.sh [options of pytest]
# Tests marked `network` need the embedded model. It is fetched first; where that cannot be, or when
# ADAPTIVESPEC_TEST_OFFLINE is set, they are skipped and the reason is printed.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
scripts/setup.sh test

if [ -z "${ADAPTIVESPEC_TEST_OFFLINE:-}" ]; then
    .venv/bin/adaptivespec models fetch ||
        echo "test.sh: no embedded model; the tests that need it will be skipped" >&2
fi

# Two processes of one thread each: spinning threads that outnumber the cores are many times slower.
export OMP_NUM_THREADS=1
exec .venv/bin/python -m pytest -n "${ADAPTIVESPEC_TEST_WORKERS:-2}" --dist worksteal "$@"
