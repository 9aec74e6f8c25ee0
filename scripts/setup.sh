#!/usr/bin/env bash
# Makes a working EasyQuant of a clean clone on Debian 12: system packages, .venv, build/, Python package.
# A second run finds everything in place and is quick.
set -euo pipefail
cd "$(dirname "$0")/.."

say() { printf '\033[1m%s\033[0m\n' "$*"; }

# ---- system packages ------------------------------------------------------------------------------------------------
packages=(cmake ninja-build ccache g++ git python3 python3-dev python3-venv
  libmlir-22-dev mlir-22-tools llvm-22-dev llvm-22-tools clang-22 lld-22 libclang-rt-22-dev
  clang-format-22 clang-tidy-22
  libgtest-dev nlohmann-json3-dev libfmt-dev libexpected-dev libxxhash-dev libcli11-dev
  libopenblas-dev openmpi-bin libopenmpi-dev iproute2)
missing_of() {
  for package in "$@"; do
    dpkg-query -W -f='${db:Status-Status}' "$package" 2>/dev/null | grep -qx installed || echo "$package"
  done
}
sudo=()
[[ $(id -u) == 0 ]] || sudo=(sudo)
install=("${sudo[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install --no-install-recommends)
mapfile -t missing < <(missing_of "${packages[@]}")
# Compiled models run on LLVM's OpenMP, of any version; Debian's packages of them exclude each other.
[[ $(/sbin/ldconfig -p) == *'libomp.so.5 '* ]] || missing+=(libomp5-19)
if ((${#missing[@]})); then
  say "Installing system packages: ${missing[*]}"
  if ((${#sudo[@]})) && ! command -v sudo >/dev/null; then
    echo "error: these packages are missing and neither root nor sudo is at hand: ${missing[*]}" >&2
    exit 1
  fi
  "${sudo[@]}" apt-get update -q
  # apt must not remove what somebody else needs.
  if ! "${install[@]}" -y -q --no-remove "${missing[@]}"; then
    removed=$("${install[@]}" -s "${missing[@]}" 2>/dev/null | sed -n 's/^Remv \([^ ]*\).*/\1/p' | xargs)
    [[ -z $removed ]] || echo "error: these packages conflict with what is needed, and apt would remove them: $removed
If you can do without them, run this, and then scripts/setup.sh again:
  ${install[*]} ${missing[*]}" >&2
    exit 1
  fi
fi

# ---- Arm ------------------------------------------------------------------------------------------------------------
# Tests of code for Arm take a cross compiler and an emulator, which Debian has for x86-64. Without them these tests are skipped.
# What could not be had is not tried again at every run.
without=build-aarch64/without
without_arm() {
  mkdir -p "$(dirname "$without")"
  echo "note: tests of code for Arm are skipped: $1; to try again, rm $without" >"$without"
}
if [[ $(uname -m) == x86_64 && ! -e $without ]]; then
  mapfile -t missing < <(missing_of qemu-user g++-aarch64-linux-gnu)
  if ((${#missing[@]})); then
    say "Installing for tests of code for Arm: ${missing[*]}"
    log=$(mktemp)
    if ! { "${sudo[@]}" apt-get update -q && "${install[@]}" -y -q --no-remove "${missing[@]}"; } >"$log" 2>&1; then
      without_arm "${missing[*]} could not be installed: $(tail -1 "$log")"
    fi
    rm -f "$log"
  fi
fi
# Code for Arm runs on LLVM's OpenMP, too: Debian's of arm64, beside what is built for it. apt's own lists stay those of this machine.
arm_headers=/usr/aarch64-linux-gnu/include/c++
arm_openmp=$PWD/build-aarch64/lib/libomp.so.5
if [[ -e $arm_headers && ! -e $arm_openmp && ! -e $without ]]; then
  say "Fetching libomp.so.5 for arm64"
  fetched=$(mktemp -d)
  mkdir -p "$fetched/lists/partial" "$fetched/cache/archives/partial" "$(dirname "$arm_openmp")"
  arm_apt=(apt-get -q -o APT::Architecture=arm64 -o APT::Architectures=arm64 -o Dir::State::lists="$fetched/lists" -o Dir::Cache="$fetched/cache" -o APT::Sandbox::User="$(id -un)")
  if (cd "$fetched" && "${arm_apt[@]}" update && "${arm_apt[@]}" download libomp5-19) >"$fetched/log" 2>&1; then
    dpkg-deb -x "$fetched"/libomp5-19_*.deb "$fetched/root"
    cp -L "$fetched"/root/usr/lib/llvm-19/lib/libomp.so.5 "$arm_openmp"
  else
    without_arm "no libomp5-19 for arm64 could be fetched: $(tail -1 "$fetched/log")"
  fi
  rm -rf "$fetched"
fi
[[ ! -e $without ]] || cat "$without" >&2

# ---- Python environment ---------------------------------------------------------------------------------------------
# Installed anew only when pyproject.toml has changed since the last time.
stamp=.venv/.easyquant-$(sha256sum pyproject.toml | cut -c1-16)
if [[ ! -e $stamp ]]; then
  say "Creating .venv"
  [[ -x .venv/bin/python ]] || python3 -m venv .venv
  .venv/bin/python -m pip install -q --disable-pip-version-check -e '.[dev,gpu,serve,site]'
  rm -f .venv/.easyquant-*
  touch "$stamp"
fi

# ---- build ----------------------------------------------------------------------------------------------------------
cmake_args=(-DEASYQUANT_PYTHON="$PWD/.venv/bin/python")
[[ -e build/build.ninja ]] || { say "Configuring"; cmake --preset default "${cmake_args[@]}" >/dev/null; }
say "Building what is run; scripts/test.sh builds the tests"
cmake --build build
if [[ -e $arm_headers ]]; then
  [[ -e build-aarch64/build.ninja ]] || cmake --preset aarch64 >/dev/null
  cmake --build build-aarch64
fi
