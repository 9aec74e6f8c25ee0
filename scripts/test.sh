#!/usr/bin/env bash
# Sets up, builds and runs every test. --fast leaves out the sanitizer builds and the minute of fuzzing.
set -euo pipefail
cd "$(dirname "$0")/.."

fast=no
for argument in "$@"; do
  case $argument in
  --fast) fast=yes ;;
  -h | --help) sed -n '2s/^# //p' "$0"; exit 0 ;;
  *) echo "error: unknown argument $argument; known: --fast" >&2; exit 1 ;;
  esac
done

scripts/setup.sh
cmake --build build --target test/all benchmarks/all
if [[ -e /usr/aarch64-linux-gnu/include/c++ ]]; then # as setup.sh has it
  cmake --preset aarch64 >/dev/null                    # finds GoogleTest's sources, if an earlier one did not
  cmake --build build-aarch64 --target test/all
fi
if [[ $fast == no ]]; then
  for preset in asan tsan; do
    [[ -e build-$preset/build.ninja ]] || cmake --preset "$preset" >/dev/null
  done
  cmake --build build-asan --target test/all
  cmake --build build-tsan --target CommTest EasyQuantRuntimeTests EasyQuantCApiTests # what runs threads
fi
exec .venv/bin/python scripts/run_tests.py --fast="$fast"
