#!/usr/bin/env bash
# Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# All that is to be seen on a GPU, in one command. In two halves, as machines with a GPU have no compiler:
#
#   benchmarks/gpu_all.sh --prepare FOLDER MODEL [TEXT]    where EasyQuant is built: writes FOLDER
#   FOLDER/gpu_all.sh [PAGE.md]                            where the GPU is: under ten minutes
#
# The second needs the driver, Python with numpy and torch, and FOLDER: this script and an archive in parts of at most 60 MB. It checks
# and times the kernels, compares small models and MODEL with the CPU, and writes PAGE.md, by default docs/benchmarks/gpu-NAME.md in
# FOLDER. What fails is said on the page, and the rest goes on. The exit status is the number of steps that failed.
#
# Settings of --prepare: CHIPS (sm_90a,sm_80), SHAPES of the kernels, SCHEME (W8A8) of MODEL. Of the other half: PYTHON (python3),
# EASYQUANT_CUDA_ALL_SECONDS (570), after which no step is begun.
#
# shellcheck disable=SC2317 # functions that are called by name, in a shell that timeout starts
set -uo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
part_bytes=60000000

fail() {
  echo "error: $*" >&2
  exit 1
}

# ----------------------------------------------------------------------------------------------------------------- prepare

# The models of the tests that are compared with the CPU token by token: name, options of easyquant-compile.
small_models=(
  "w8a8 --scheme=W8A8"
  "w4a8 --scheme=W4A8 --group-size=32"
  "w4a16 --scheme=W4A16 --group-size=32"
  "int8-cache --scheme=W8A8 --kv-scheme=int8 --kv-group=16 --kv-residual=16"
)

prepare() {
  set -e
  local folder=$1 model=$2 text=${3:-} repo chips stage tools python chip entry
  repo=$(cd "$here/.." && pwd)
  chips=${CHIPS:-sm_90a,sm_80}
  tools=${EASYQUANT_TOOLS:-$repo/build/bin}
  python=$repo/.venv/bin/python
  data=${EASYQUANT_TEST_DATA:-$repo/../shared/data}
  text=${text:-$data/wikitext2-raw-test.joined.txt}
  [[ -e $model ]] || fail "$model: there is no such model"
  [[ -e $text ]] || fail "$text: there is no such text; name one as the third argument"
  [[ -x $tools/easyquant-gpu-kernel-bench ]] || fail "$tools/easyquant-gpu-kernel-bench is missing; build it: ninja -C build easyquant-gpu-kernel-bench"
  mkdir -p "$folder"
  rm -f "$folder"/gpu-bundle.tar.gz.*
  stage=$folder/stage
  rm -rf "$stage" && mkdir "$stage" "$stage/benchmarks" "$stage/small"
  for chip in ${chips//,/ }; do
    echo "kernels of the benchmark for $chip"
    "$tools/easyquant-gpu-kernel-bench" --chip "$chip" --out "$stage/kernels/$chip" ${SHAPES:+--shapes "$SHAPES"}
  done
  if [[ -e $data/stories260K.bin ]]; then
    PYTHONPATH=$repo/test/python:$repo/python "$python" - "$data" "$stage/stories" <<'PYTHON'
import sys
from pathlib import Path

from helpers import write_model
from oracles.checkpoint import read_llama2c
from oracles.llama2c_tokenizer import read_tokenizer

data, out = map(Path, sys.argv[1:])
write_model(out, *read_llama2c(data / "stories260K.bin"))
read_tokenizer(data / "tok512.bin").save(str(out / "tokenizer.json"))
PYTHON
    for entry in "${small_models[@]}"; do
      echo "stories260K, $entry"
      # shellcheck disable=SC2086 # the options of an entry are words
      "$tools/easyquant-compile" "$stage/stories" -o "$stage/small/${entry%% *}" ${entry#* } --isa avx2 --target "$chips,cpu"
    done
    rm -r "$stage/stories"
  fi
  echo "$(basename "$model"), ${SCHEME:-W8A8}"
  PYTHONPATH=$repo/python EASYQUANT_TOOLS=$tools "$python" -m easyquant compile "$model" -o "$stage/model" --scheme "${SCHEME:-W8A8}" \
    --target "${chips%%,*},cpu"
  basename "$model" >"$stage/model.name"
  # Several windows are enough to see that perplexities agree.
  head -c 400000 "$text" >"$stage/text.txt"
  echo "runtime, Python and packages"
  PYTHONPATH=$repo/python "$python" "$here/gpu_bundle.py" "$stage"
  cp "$here"/{cuda_driver,gpu_compare,gpu_kernels,gpu_reference,gpu_static,sass,torch_peers}.py "$stage/benchmarks"
  git -C "$repo" describe --always --dirty >"$stage/version" 2>/dev/null || echo "unknown" >"$stage/version"
  tar -C "$stage" -czf - . | split -b $part_bytes -d - "$folder/gpu-bundle.tar.gz."
  rm -r "$stage"
  cp "$here/gpu_all.sh" "$folder"
  ls -l "$folder"
}

# --------------------------------------------------------------------------------------------------------------------- run

failed=0
work='' page='' # set by run_all

say() { printf '%s\n' "$@" | tee -a "$page"; }

# step TITLE FORM SECONDS COMMAND...: FORM is `text` or `markdown`, what the command prints. Its failure is said and counted.
step() {
  local title=$1 form=$2 limit=$3 status begin=$SECONDS
  shift 3
  say "" "## $title" ""
  local left=$((${EASYQUANT_CUDA_ALL_SECONDS:-570} - SECONDS))
  if ((left < 5)); then
    say "**Not done:** the time was up."
    failed=$((failed + 1))
    return
  fi
  timeout $((limit < left ? limit : left)) "$@" >"$work/out" 2>"$work/err"
  status=$?
  # Progress bars and warnings are no result; of a failure, the end of them is.
  ((status == 0)) || tail -n 15 "$work/err" >>"$work/out"
  if [[ $form == markdown && $status == 0 ]]; then
    say "$(cat "$work/out")"
  else
    say '```' "$(cat "$work/out")" '```'
  fi
  if ((status != 0)); then
    say "" "**Failed** with status $status$( ((status == 124)) && echo ', the time was up') after $((SECONDS - begin)) s."
    failed=$((failed + 1))
  fi
}

# Programs of the bundle; the machine's Python keeps its own libraries.
carried() {
  LD_LIBRARY_PATH=$bundle/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH} PYTHONHOME=$bundle/interpreter \
    PYTHONPATH=$bundle/python:$bundle/packages EASYQUANT_TOOLS=$bundle/bin COLUMNS=120 NO_COLOR=1 "$@"
}
easyquant() { carried "$bundle/interpreter/bin/python3" -m easyquant "$@"; }

# Tokens of an artifact on the GPU and on the CPU.
same_tokens() {
  local artifact=$1 tokens=$2 count=$3 device
  for device in cpu cuda; do
    carried "$bundle/bin/easyquant-run" "$artifact" --tokens "$tokens" --max-new-tokens "$count" --ignore-eos --device "$device" \
      --json "$work/$device.json" >/dev/null || return
  done
  "$python" "$bundle/benchmarks/gpu_compare.py" tokens "$work/cpu.json" "$work/cuda.json"
}

small_artifacts() {
  local artifact status=0
  for artifact in "$bundle"/small/*/; do
    printf '%s: ' "$(basename "$artifact")"
    same_tokens "$artifact" 1,403,407,261,378 24 || status=1
  done
  return "$status"
}

same_perplexity() {
  local device
  for device in cpu cuda; do
    easyquant eval "$bundle/model" --text "$bundle/text.txt" --context "${CONTEXT:-1024}" --max-windows 8 --device "$device" --json "$work/$device.json" >/dev/null || return
  done
  "$python" "$bundle/benchmarks/gpu_compare.py" perplexity "$work/cpu.json" "$work/cuda.json"
}

# The device's own kernels, and a few of the oldest chip, which every driver can assemble.
check_kernels() {
  local status=0 oldest=$bundle/kernels/sm_80/
  "$python" "$bundle/benchmarks/gpu_kernels.py" "$own_kernels" --check-only || status=1
  if [[ -e $oldest && $oldest != "$own_kernels" ]]; then
    "$python" "$bundle/benchmarks/gpu_kernels.py" "$oldest" --check-only --families w8a8,w4a16,quantize || status=1
  fi
  return "$status"
}

run_all() {
  python=${PYTHON:-python3}
  command -v "$python" >/dev/null || fail "$python: there is no such program; name a Python with numpy and torch in PYTHON"
  "$python" -c 'import ctypes; ctypes.CDLL("libcuda.so.1")' 2>/dev/null || fail "libcuda.so.1: there is no NVIDIA driver on this machine"
  work=$(mktemp -d)
  trap 'rm -rf "$work"' EXIT
  bundle=$work/bundle
  mkdir "$bundle"
  cat "$here"/gpu-bundle.tar.gz.* | tar -xzf - -C "$bundle" || fail "$here/gpu-bundle.tar.gz.*: a part is missing or damaged; make them with --prepare"

  local capability name
  name=$(nvidia-smi --query-gpu=name --format=csv,noheader 2>/dev/null | head -1 | sed 's/^NVIDIA //')
  capability=$(nvidia-smi --query-gpu=compute_cap --format=csv,noheader 2>/dev/null | head -1 | tr -d .)
  for own_kernels in "$bundle"/kernels/sm_"$capability"{a,}/ "$bundle"/kernels/sm_80/ "$bundle"/kernels/*/; do
    [[ ! -e $own_kernels ]] || break
  done
  page=${1:-$here/docs/benchmarks/gpu-$(tr 'A-Z ' 'a-z-' <<<"${name:-unknown}").md}
  mkdir -p "$(dirname "$page")"
  : >"$page"
  say "# ${name:-An unknown GPU}" "" "    benchmarks/gpu_all.sh" "" \
    "$(date -u +%Y-%m-%d), EasyQuant $(cat "$bundle/version"), model $(cat "$bundle/model.name"), $(nproc) CPUs ($(sed -n 's/^model name.*: //p' /proc/cpuinfo | head -1))."

  command -v nvidia-smi >/dev/null && step "The GPU" text 20 nvidia-smi \
    --query-gpu=name,driver_version,memory.total,clocks.max.sm,clocks.max.mem,power.limit --format=csv
  export -f carried easyquant same_tokens small_artifacts same_perplexity check_kernels
  export bundle python work own_kernels
  step "Kernels beside numpy" text 120 bash -c check_kernels
  step "Small models beside the CPU" text 60 bash -c small_artifacts
  step "$(cat "$bundle/model.name") beside the CPU" text 60 bash -c "same_tokens \$bundle/model ${TOKENS:-1,4093,338,253,2520} 32"
  step "Perplexity beside the CPU" text 150 bash -c same_perplexity
  step "Speed of the model" text 90 bash -c "easyquant bench \$bundle/model --device cuda --breakdown --prefill ${PREFILL:-512} --decode ${DECODE:-128}"
  step "Kernels" markdown 400 "$python" "$bundle/benchmarks/gpu_kernels.py" "$own_kernels" \
    --seconds 330 --json "${page%.md}.json"
  say "" "$failed steps failed; $SECONDS s."
  echo "written: $page" >&2
  return $((failed > 100 ? 100 : failed))
}

main() {
  case ${1:-} in
  --prepare)
    (($# == 3 || $# == 4)) || fail "expected: gpu_all.sh --prepare FOLDER MODEL [TEXT]"
    prepare "${@:2}"
    ;;
  -h | --help) sed -n '5,18s/^# \{0,1\}//p' "${BASH_SOURCE[0]}" ;;
  *)
    (($# <= 1)) || fail "expected: gpu_all.sh [PAGE.md]"
    run_all "$@"
    ;;
  esac
}

main "$@"
exit
