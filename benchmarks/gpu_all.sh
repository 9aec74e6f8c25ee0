#!/usr/bin/env bash
# Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# All that is to be seen on a GPU, in one command. In two halves, as machines with a GPU have no compiler:
#
#   benchmarks/gpu_all.sh --prepare FOLDER [MODEL [TEXT]]    where EasyQuant is built: writes FOLDER
#   FOLDER/gpu_all.sh [PAGE.md]                              where the GPU is: under ten minutes
#
# FOLDER then has this script, a bundle of a few MB and its checksum: the benchmark's kernels, small models and easyquant-run. With MODEL it
# has a second one, in parts of at most 45 MB: MODEL, a text, and the Python package with an interpreter. The second half needs the driver,
# Python with numpy and torch, and the first bundle; the other one it uses if it is there. It checks and times the kernels, compares models
# with what the CPU gave in the first half, and writes PAGE.md, by default docs/benchmarks/gpu-NAME.md in FOLDER, and PAGE.json with every
# time of a kernel. What fails is said on the page, and the rest goes on. The exit status is the number of steps that failed; 1 and no page
# if something is missing.
#
# Settings of --prepare: CHIPS (sm_90a,sm_80), SHAPES of the kernels, MOST_BYTES of the first bundle (30000000), SCHEMES of MODEL
# (W8A8,W4A16), CONTEXT (1024) and WINDOWS (8) of its perplexity, PYTHON (.venv's). Settings of the other half: PYTHON (python3),
# EASYQUANT_CUDA_ALL_SECONDS (570), after which no step is begun.
#
# shellcheck disable=SC2317 # functions that are called by name, in a shell that timeout starts
set -uo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
part_bytes=45000000
stage='' scratch='' # set by prepare, removed in the end

fail() {
  printf 'error: %s\n' "$@" >&2
  exit 1
}

# ----------------------------------------------------------------------------------------------------------------- prepare

# The models of the tests that are compared with the CPU token by token: name, model, prompt, number of tokens, options of
# easyquant-compile. gpt2's weights are random: tokens behind the first would say nothing.
small_models=(
  "w8a8 stories 1,403,407,261,378 24 --scheme=W8A8"
  "w4a8 stories 1,403,407,261,378 24 --scheme=W4A8 --group-size=32"
  "w4a16 stories 1,403,407,261,378 24 --scheme=W4A16 --group-size=32"
  "plain stories 1,403,407,261,378 24 --scheme=W8A8 --activation-basis=plain"
  "int8-cache stories 1,403,407,261,378 24 --scheme=W8A8 --kv-scheme=int8 --kv-group=16 --kv-residual=16"
  "gpt2 gpt2 1,5,92,33,71 1 --scheme=W8A16"
)
prompt_text="Once upon a time, there was a king who lived in a castle."

# Where activations are quantized, codes that move change the logits of a deep model by so much of the largest that another token may be
# the likeliest: the tokens that follow say nothing then. compared_tokens SCHEME: how many are compared; logit_bound SCHEME: by how much.
compared_tokens() { [[ $1 == *A8* ]] && echo 1 || echo 32; }
logit_bound() { [[ $1 == *A8* ]] && echo 0.25 || echo 0.02; }

# prepare_model NAME PROMPT COUNT COMPILE...: NAME for the GPUs, and what a CPU makes of the prompt, a text or tokens. COMPILE is a command
# that lacks the options -o and --target.
prepare_model() {
  local name=$1 prompt=$2 count=$3
  shift 3
  echo "$name"
  "$@" -o "$stage/$name" --target "$chips"
  "$@" -o "$scratch/$name" --target cpu
  mkdir -p "$stage/cpu/$name"
  [[ $prompt == [0-9]* ]] || prompt=$("$python" -c '
import sys
from pathlib import Path
from easyquant.text.tokenizer import load_tokenizer
print(*load_tokenizer(Path(sys.argv[1])).encode(sys.argv[2], add_special_tokens=False), sep=",")' "$scratch/$name" "$prompt")
  "$tools/easyquant-run" "$scratch/$name" --tokens "$prompt" --max-new-tokens "$count" --ignore-eos --device cpu \
    --json "$stage/cpu/$name/tokens.json" >/dev/null
}

# pack NAME: what is staged becomes the bundle NAME.
pack() {
  tar -C "$stage" -czf - . | split -b $part_bytes -d - "$folder/$1.tar.gz."
  (cd "$folder" && sha256sum "$1".tar.gz.* >"$1.sha256")
  rm -rf "$stage"
}

prepare() {
  set -e
  local folder=$1 model=${2:-} text=${3:-} repo tools python chips chip data entry
  repo=$(cd "$here/.." && pwd)
  chips=${CHIPS:-sm_90a,sm_80}
  tools=${EASYQUANT_TOOLS:-$repo/build/bin}
  python=${PYTHON:-$repo/.venv/bin/python}
  data=${EASYQUANT_TEST_DATA:-$repo/../shared/data}
  if [[ -n $model ]]; then
    text=${text:-$data/wikitext2-raw-test.joined.txt}
    [[ -e $model ]] || fail "$model: there is no such model"
    [[ -e $text ]] || fail "$text: there is no such text; name one as the third argument"
  fi
  for entry in easyquant-gpu-kernel-bench easyquant-compile easyquant-run; do
    [[ -x $tools/$entry ]] || fail "$tools/$entry is missing; build it: ninja -C build $entry"
  done
  mkdir -p "$folder"
  folder=$(cd "$folder" && pwd)
  rm -f "$folder"/gpu-{bundle,model}.*
  stage=$folder/stage scratch=$folder/scratch
  trap 'rm -rf "$stage" "$scratch"' EXIT
  rm -rf "$stage" "$scratch"
  mkdir "$scratch"
  prepare_kernels
  [[ -z $model ]] || prepare_large
  cp "$here/gpu_all.sh" "$folder"
  rm -rf "$scratch"
  ls -l "$folder"
}

# The bundle that everything needs.
prepare_kernels() {
  local name model tokens count options bytes most=${MOST_BYTES:-30000000}
  mkdir -p "$stage/benchmarks" "$stage/small" "$stage/cpu" "$scratch/small"
  for chip in ${chips//,/ }; do
    echo "kernels of the benchmark for $chip"
    "$tools/easyquant-gpu-kernel-bench" --chip "$chip" --out "$stage/kernels/$chip" ${SHAPES:+--shapes "$SHAPES"}
  done
  PYTHONPATH=$repo/test/python:$repo/test/Inputs:$repo/python "$python" - "$data" "$scratch" <<'PYTHON'
import sys
from pathlib import Path

from helpers import random_gpt2, write_model
from oracles.checkpoint import read_llama2c

data, out = map(Path, sys.argv[1:])
write_model(out / "gpt2", *random_gpt2())
if (data / "stories260K.bin").exists():
    write_model(out / "stories", *read_llama2c(data / "stories260K.bin"))
PYTHON
  for entry in "${small_models[@]}"; do
    read -r name model tokens count options <<<"$entry"
    [[ -e $scratch/$model ]] || continue
    # shellcheck disable=SC2086 # the options of an entry are words
    prepare_model "small/$name" "$tokens" "$count" "$tools/easyquant-compile" "$scratch/$model" $options
  done
  sed -n 's/^model name.*: //p' /proc/cpuinfo | head -1 >"$stage/cpu/name"
  "$python" "$here/gpu_bundle.py" runtime "$stage"
  cp "$here"/{cuda_driver,gpu_compare,gpu_kernels,gpu_reference,torch_peers}.py "$stage/benchmarks"
  mkdir -p "$stage/benchmarks/easyquant/prediction" # rates of chips, where the package is not
  cp "$repo/python/easyquant/__init__.py" "$stage/benchmarks/easyquant"
  cp "$repo"/python/easyquant/prediction/{__init__,chips}.py "$stage/benchmarks/easyquant/prediction"
  git -C "$repo" describe --always --dirty >"$stage/version" 2>/dev/null || echo "unknown" >"$stage/version"
  pack gpu-bundle
  bytes=$(cat "$folder"/gpu-bundle.tar.gz.* | wc -c)
  if ((bytes > most)); then
    rm -f "$folder"/gpu-bundle.*
    fail "$folder: the bundle would have $bytes bytes, expected at most $most; name fewer CHIPS or SHAPES, or more MOST_BYTES"
  fi
}

# The second bundle: MODEL, what evaluates it, and what the CPU says.
prepare_large() {
  local scheme
  mkdir -p "$stage/cpu"
  # Several windows are enough to see that perplexities agree.
  head -c 400000 "$text" >"$stage/text.txt"
  export PYTHONPATH=$repo/python EASYQUANT_TOOLS=$tools
  for scheme in $(tr , ' ' <<<"${SCHEMES:-W8A8,W4A16}"); do
    prepare_model "$scheme" "$prompt_text" "$(compared_tokens "$scheme")" "$python" -m easyquant compile "$model" --scheme "$scheme"
    "$python" -m easyquant eval "$scratch/$scheme" --text "$stage/text.txt" --context "${CONTEXT:-1024}" --max-windows "${WINDOWS:-8}" \
      --device cpu --json "$stage/cpu/$scheme/perplexity.json" >/dev/null
    echo "$scheme" >>"$stage/schemes"
  done
  basename "$model" >"$stage/model.name"
  echo "Python and packages"
  "$python" "$here/gpu_bundle.py" python "$stage"
  pack gpu-model
}

# --------------------------------------------------------------------------------------------------------------------- run

failed=0
work='' page='' # set by run_all

say() { printf '%s\n' "$@" | tee -a "$page"; }
all_seconds=${EASYQUANT_CUDA_ALL_SECONDS:-570}
seconds_left() { echo $((all_seconds - SECONDS)); }

# step TITLE FORM SECONDS COMMAND...: FORM is `text` or `markdown`, what the command prints; SECONDS of 570. What it prints is on the page
# at once, so that it is there whatever comes. Its failure is said and counted.
step() {
  local title=$1 form=$2 limit=$(($3 * all_seconds / 570)) status begin=$SECONDS left
  shift 3
  say "" "## $title" ""
  left=$(seconds_left)
  if ((left < 5)); then
    say "**Not done:** the time was up."
    failed=$((failed + 1))
    return
  fi
  [[ $form == markdown ]] || say '```'
  timeout --kill-after=10 $((limit < left ? limit : left)) "$@" 2>"$work/err" | tee -a "$page"
  status=${PIPESTATUS[0]}
  [[ -z $(tail -c 1 "$page") ]] || say "" # it was stopped within a line
  [[ $form == markdown ]] || say '```'
  ((status != 0)) || return 0
  say "" "**Failed** with status $status$( ((status == 124 || status == 137)) && echo ', the time was up') after $((SECONDS - begin)) s."
  # Progress bars and warnings are no result, but their end is the result of a step that fails.
  [[ ! -s $work/err ]] || say "" '```' "$(tail -n 15 "$work/err")" '```'
  failed=$((failed + 1))
}

# Programs of the bundle; the machine's Python keeps its own libraries.
carried() {
  LD_LIBRARY_PATH=$bundle/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH} PYTHONHOME=$bundle/interpreter \
    PYTHONPATH=$bundle/python:$bundle/packages EASYQUANT_TOOLS=$bundle/bin COLUMNS=120 NO_COLOR=1 "$@"
}
easyquant() { carried "$bundle/interpreter/bin/python3" -m easyquant "$@"; }
compare() { "$python" "$bundle/benchmarks/gpu_compare.py" "$@"; }

# same_tokens ARTIFACT [BOUND]: tokens on the GPU and on the CPU, after the same prompt.
same_tokens() {
  local name=$1 cpu=$bundle/cpu/$1/tokens.json prompt count
  read -r prompt count < <("$python" -c 'import json, sys; d = json.load(open(sys.argv[1])); print(*map(str, d["prompt"]), sep=",", end=" "); print(len(d["generated"]))' "$cpu")
  printf '%s: ' "$name"
  carried "$bundle/bin/easyquant-run" "$bundle/$name" --tokens "$prompt" --max-new-tokens "$count" --ignore-eos --device cuda \
    --json "$work/cuda.json" >/dev/null && compare tokens "$cpu" "$work/cuda.json" ${2:+"$2"}
}

small_artifacts() {
  local artifact status=0
  for artifact in "$bundle"/small/*/; do
    # In a cache of codes, scales may move, too.
    same_tokens "small/$(basename "$artifact")" "$([[ $artifact == *-cache/ ]] && echo 0.05)" || status=1
  done
  return "$status"
}

# The window's length and their number are those of the CPU's evaluation.
same_perplexity() {
  local scheme=$1 cpu=$bundle/cpu/$1/perplexity.json context windows
  read -r context windows < <("$python" -c 'import json, sys; p = json.load(open(sys.argv[1]))["protocol"]; print(p["context"], p["windows"])' "$cpu")
  easyquant eval "$bundle/$scheme" --text "$bundle/text.txt" --context "$context" --max-windows "$windows" --device cuda --json "$work/cuda.json" >/dev/null &&
    compare perplexity "$cpu" "$work/cuda.json"
}

speed() { easyquant bench "$bundle/$1" --device cuda --breakdown --prefill "${PREFILL:-512}" --decode "${DECODE:-128}"; }

# check_family FAMILY: a family is a process, so that one that breaks the GPU's context takes no other with it.
check_family() {
  timeout --kill-after=10 "$patience" "$python" "$bundle/benchmarks/gpu_kernels.py" "$own_kernels" --check-only --families "$1" \
    >"$work/$1.checked" 2>"$work/$1.wrong"
  echo $? >"$work/$1.status"
}

# The device's own kernels, and a few of the oldest chip, whose PTX every driver can assemble. Families without a mistake are in
# $work/families: only their times mean anything. The CPU's results take the time: families are checked side by side.
check_kernels() {
  set -o pipefail
  local status=0 family oldest=$bundle/kernels/sm_80 families
  mapfile -t families < <("$python" -c 'import json, sys; print(*sorted({case["family"] for case in json.load(open(sys.argv[1]))["cases"]}), sep="\n")' "$own_kernels/cases.json")
  printf '%s\n' "${families[@]}" | OMP_NUM_THREADS=2 OPENBLAS_NUM_THREADS=2 xargs -P "$(nproc)" -I FAMILY bash -c 'check_family FAMILY'
  for family in "${families[@]}"; do
    printf '%s: ' "$family"
    grep . "$work/$family.checked" || echo "failed"
    if [[ $(cat "$work/$family.status") == 0 ]]; then
      printf '%s,' "$family" >>"$work/families"
    else
      cat "$work/$family.wrong" >&2
      status=1
    fi
  done
  if [[ -e $oldest && $oldest != "$own_kernels" ]]; then
    printf 'PTX of sm_80: '
    "$python" "$bundle/benchmarks/gpu_kernels.py" "$oldest" --check-only --families w8a8,w4a16,quantize | grep . || status=1
  fi
  return "$status"
}

time_kernels() {
  local families
  families=$(sed 's/,$//' "$work/families" 2>/dev/null)
  [[ -n $families ]] || fail "no kernel gave the right results"
  "$python" "$bundle/benchmarks/gpu_kernels.py" "$own_kernels" --time-only --families "$families" --seconds "$1" --json "${page%.md}.json"
}

# What the second half needs; all that is missing is said at once.
check_machine() {
  local missing=() checked
  if command -v "$python" >/dev/null; then
    "$python" -c 'import numpy' 2>/dev/null || missing+=("$python has no numpy: install it, or name a Python with numpy and torch in PYTHON")
    "$python" -c 'import ctypes; ctypes.CDLL("libcuda.so.1")' 2>/dev/null || missing+=("libcuda.so.1: there is no NVIDIA driver on this machine")
  else
    missing+=("$python: there is no such program; name a Python with numpy and torch in PYTHON")
  fi
  if [[ ! -e $here/gpu-bundle.sha256 ]]; then
    missing+=("$here/gpu-bundle.sha256 is missing; make this folder with --prepare")
  elif ! checked=$(cd "$here" && cat gpu-*.sha256 | sha256sum --check --quiet 2>/dev/null); then
    missing+=("$here: parts of the archives are missing or damaged ($(cut -d : -f 1 <<<"$checked" | paste -sd ' ')); copy them again, or make them with --prepare")
  fi
  ((${#missing[@]} == 0)) || fail "${missing[@]}"
}

run_all() {
  python=${PYTHON:-python3}
  check_machine
  work=$(mktemp -d)
  trap 'rm -rf "$work"' EXIT
  bundle=$work/bundle
  mkdir "$bundle"
  local name capability scheme schemes=() model='' gpu
  for name in gpu-bundle gpu-model; do
    [[ -e $here/$name.sha256 ]] || continue
    cat "$here/$name".tar.gz.* | tar -xzf - -C "$bundle" || fail "$here/$name.tar.gz.* cannot be unpacked into $work; is the disk full?"
  done
  if [[ -e $bundle/schemes ]]; then
    mapfile -t schemes <"$bundle/schemes"
    model=$(cat "$bundle/model.name")
  fi

  gpu=$(cd "$bundle/benchmarks" && "$python" -c 'from cuda_driver import Driver; d = Driver(); print(d.capability, d.name)' 2>&1) ||
    fail "the NVIDIA driver cannot be used: $(tail -n 1 <<<"$gpu")"
  read -r capability name <<<"$gpu"
  name=${name#NVIDIA }
  for own_kernels in "$bundle/kernels/sm_$capability"{a,} "$bundle/kernels/sm_80" "$bundle"/kernels/*; do
    [[ ! -e $own_kernels ]] || break
  done
  page=${1:-$here/docs/benchmarks/gpu-$(tr 'A-Z ' 'a-z-' <<<"$name").md}
  mkdir -p "$(dirname "$page")"
  : >"$page"
  say "# $name" "" "    benchmarks/gpu_all.sh" "" \
    "$(date -u +%Y-%m-%d), $name (sm_$capability), EasyQuant $(cat "$bundle/version"),${model:+ model $model,} $(nproc) CPUs ($(sed -n 's/^model name.*: //p' /proc/cpuinfo | head -1)). The CPU that results are compared with: $(cat "$bundle/cpu/name")."

  export -f carried easyquant compare same_tokens small_artifacts same_perplexity speed check_family check_kernels time_kernels fail
  export bundle python work own_kernels page patience=$((60 * all_seconds / 570))
  if command -v nvidia-smi >/dev/null; then
    step "The GPU" text 20 nvidia-smi --query-gpu=name,driver_version,memory.total,clocks.max.sm,clocks.max.mem,power.limit --format=csv
  fi
  step "Kernels beside numpy" text 180 bash -c check_kernels
  step "Small models beside the CPU" text 60 bash -c small_artifacts
  for scheme in "${schemes[@]}"; do
    step "$model, $scheme, beside the CPU" text 60 bash -c "same_tokens $scheme $(logit_bound "$scheme")"
    step "Perplexity of $scheme beside the CPU" text 120 bash -c "same_perplexity $scheme"
    step "Speed of $scheme" text 60 bash -c "speed $scheme"
  done
  step "torch's products" text 60 "$python" "$bundle/benchmarks/torch_peers.py"
  # Enough for the last shape that is begun.
  step "Kernels" markdown 450 bash -c "time_kernels $(($(seconds_left) - 40))"
  say "" "$failed steps failed; $SECONDS s."
  echo "written: $page" >&2
  return $((failed > 100 ? 100 : failed))
}

main() {
  case ${1:-} in
  --prepare)
    (($# >= 2 && $# <= 4)) || fail "expected: gpu_all.sh --prepare FOLDER [MODEL [TEXT]]"
    prepare "${@:2}"
    ;;
  -h | --help) sed -n '5,24s/^# \{0,1\}//p' "${BASH_SOURCE[0]}" ;;
  *)
    (($# <= 1)) || fail "expected: gpu_all.sh [PAGE.md]"
    run_all "$@"
    ;;
  esac
}

# In one piece: bash reads a script as it goes, and somebody may edit it meanwhile.
{
  main "$@"
  exit
}
