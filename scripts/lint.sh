#!/usr/bin/env bash
# Checks spelling and English (--prose: nothing else), then runs clang-tidy over the rooms without MLIR. --changed REV: clang-tidy
# over the files that differ from REV; --all: over all files, which takes minutes for each that includes MLIR. Needs a build.
set -euo pipefail
cd "$(dirname "$0")/.."

prose() {
  local failed=0
  git ls-files -z | xargs -0 .venv/bin/codespell || failed=1
  .venv/bin/python scripts/check_prose.py || failed=1
  return $failed
}

pattern='/lib/(Comm|Numerics|Formats|Runtime|Simt)/'
case ${1:-} in
--prose)
  prose
  exit
  ;;
--all)
  pattern='/(lib|tools|test|benchmarks)/'
  shift
  ;;
--changed)
  revision=${2:?give the revision to compare with: --changed REV}
  files=$(git diff --name-only --diff-filter=d "$revision" -- '*.cpp')
  [[ -n $files ]] || { echo "no C++ file differs from $revision"; exit 0; }
  pattern="/(${files//$'\n'/|})\$"
  shift 2
  ;;
-h | --help)
  sed -n '2,3s/^# //p' "$0"
  exit 0
  ;;
esac
prose
# Each file by itself, as it is compiled without the joined files and precompiled headers that make a full build short.
cmake --preset default -B build/lint -DCMAKE_UNITY_BUILD=OFF -DCMAKE_DISABLE_PRECOMPILE_HEADERS=ON \
  -DEASYQUANT_BUILD_PYTHON=OFF -DCMAKE_CXX_FLAGS="-I$PWD/build/include" >/dev/null
exec run-clang-tidy-22 -quiet -p build/lint "$@" "$pattern"
