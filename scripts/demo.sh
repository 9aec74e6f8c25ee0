#!/usr/bin/env bash
# Sets up, then compiles SmolLM2 as float, W8A8 and Q4, judges each on real text and writes demo-output/report.html.
# Arguments go to `easyquant demo`.
set -euo pipefail
cd "$(dirname "$0")/.."

scripts/setup.sh
exec .venv/bin/easyquant demo "$@"
