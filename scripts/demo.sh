#!/usr/bin/env bash
# Sets up everything and answers a prompt with the embedded model, AdaptiveSpec on:
#   scripts/demo.sh ["PROMPT" [more options of `adaptivespec generate`]]
set -euo pipefail
here="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
"$here/setup.sh"

prompt="${1-Explain in three sentences why the sky is blue.}"
shift || true
exec "$here/../.venv/bin/adaptivespec" generate -p "$prompt" \
    --rule margin --kappa 0.2 "$@"
