#!/usr/bin/env bash
# Runs clang-tidy over the rooms without MLIR, whose headers would make it an hour. Needs a build.
set -euo pipefail
cd "$(dirname "$0")/.."
exec run-clang-tidy-22 -quiet -p build "$@" '/lib/(Numerics|Formats|Runtime|Simt)/'
