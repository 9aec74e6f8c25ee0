#!/usr/bin/env bash
# Runs clang-tidy over the rooms without MLIR; --changed REV: over the files that differ from REV; --all: over all, which takes
# an hour and more. MLIR's headers are most of the time there. Needs a build.
set -euo pipefail
cd "$(dirname "$0")/.."

pattern='/lib/(Numerics|Formats|Runtime|Simt)/'
case ${1:-} in
--all)
  pattern='/(lib|tools|test|benchmarks|python)/'
  shift
  ;;
--changed)
  mapfile -t files < <(git diff --name-only --diff-filter=d "${2:?a revision is missing}" -- '*.cpp')
  ((${#files[@]})) || { echo "no C++ file differs from $2"; exit 0; }
  pattern="/($(IFS='|'; echo "${files[*]}"))\$"
  shift 2
  ;;
-h | --help)
  sed -n '2,3s/^# //p' "$0"
  exit 0
  ;;
esac
exec run-clang-tidy-22 -quiet -p build "$@" "$pattern"
