# Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Peers of EasyQuant: llama.cpp, openvino-genai and transformers in environments of their own, and workers, which are processes in either one."""

import json
import os
import subprocess
import sys
from pathlib import Path

FOLDER = Path(__file__).resolve().parent
WORKERS = FOLDER / "workers"
# How llama.cpp is built: for the CPU that it runs on, or as for one without AVX-512.
BUILDS = {None: ("llama-cpp-python", "-DGGML_NATIVE=ON"),
          "avx2": ("llama-cpp-python-avx2", "-DGGML_NATIVE=OFF -DGGML_AVX=ON -DGGML_AVX2=ON -DGGML_FMA=ON -DGGML_F16C=ON -DGGML_BMI2=ON")}
OPENVINO_PACKAGES = ("openvino-genai==2026.4.1.0", "numpy==2.4.6")
TRANSFORMERS_PACKAGES = ("transformers==5.24.0", "torch==2.15.0", "safetensors==0.8.0", "numpy==2.4.6")
PEER_PACKAGES = ("llama-cpp-python==0.3.36", "gguf==0.19.0", "safetensors==0.8.0", "numpy==2.4.6")


def fail(message):
    sys.exit(f"error: {message}")


def cache_folder(given):
    """Where the peer's environment and models are kept: the folder that was given, else one below the user's cache."""
    home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    cache = (given or Path(home) / "easyquant" / "benchmarks").absolute()
    cache.mkdir(parents=True, exist_ok=True)
    return cache


def environment_of(cache, isa=None):
    """The interpreter of the environment with llama-cpp-python that an earlier run made; None where none did, or of other packages."""
    return made_environment(cache / BUILDS[isa][0], PEER_PACKAGES)


def made_environment(folder, packages):
    stamp = folder / "packages"
    return folder / "bin" / "python" if stamp.is_file() and stamp.read_text().split() == list(packages) else None


def make_environment(folder, packages, variables=None):
    """The interpreter of an environment in `folder` with these packages of PyPI, made if need be."""
    if (python := made_environment(folder, packages)) is not None:
        return python
    python = folder / "bin" / "python"
    subprocess.run([sys.executable, "-m", "venv", "--clear", folder], check=True)
    # pip would take a wheel that it has built with other flags.
    if subprocess.run([python, "-m", "pip", "install", "--quiet", "--no-cache-dir", *packages], env=os.environ | (variables or {})).returncode != 0:
        fail(f"{', '.join(packages)} could not be installed into {folder}")
    (folder / "packages").write_text("\n".join(packages) + "\n")
    return python


def compilers():
    """GCC 12 leaves out stores to the configuration of tiles, so that llama.cpp ends with a fault where the CPU has AMX."""
    return {"CC": "clang-22", "CXX": "clang++-22"} if "amx_tile" in Path("/proc/cpuinfo").read_text().split() else {}


def peer_environment(cache, isa=None):
    """The interpreter of an environment that holds llama-cpp-python, made if need be: one of BUILDS."""
    name, flags = BUILDS[isa]
    if environment_of(cache, isa) is None:
        print(f"installing {', '.join(PEER_PACKAGES)} into {cache / name} (builds llama.cpp, which needs a C++ compiler: some minutes)", file=sys.stderr)
    return make_environment(cache / name, PEER_PACKAGES, compilers() | {"CMAKE_ARGS": flags, "CMAKE_BUILD_PARALLEL_LEVEL": str(os.cpu_count() or 1)})


def openvino_environment(cache):
    """The interpreter of an environment that holds openvino-genai, made if need be."""
    return make_environment(cache / "openvino-genai", OPENVINO_PACKAGES)


def transformers_environment(cache):
    """The interpreter of an environment that holds transformers and torch, made if need be."""
    folder = cache / "transformers"
    if made_environment(folder, TRANSFORMERS_PACKAGES) is None:
        print(f"installing {', '.join(TRANSFORMERS_PACKAGES)} into {folder} (some GB)", file=sys.stderr)
    return make_environment(folder, TRANSFORMERS_PACKAGES)


def run_all(folder, what, *commands):
    for command in commands:
        if subprocess.run([str(part) for part in command], cwd=folder, stdout=sys.stderr).returncode != 0:
            fail(f"{what} could not be had in {folder}: {command[0]} failed")


def llama_sources(cache):
    """The folder of llama.cpp's sources, from the sdist of llama-cpp-python, fetched if need be."""
    folder = cache / PEER_PACKAGES[0].replace("==", "-")
    sources = folder / "vendor" / "llama.cpp"
    if not sources.is_dir():
        print(f"fetching the sources of llama.cpp into {folder}", file=sys.stderr)
        folder.mkdir(parents=True, exist_ok=True)
        run_all(folder, "the sources of llama.cpp",
                [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--no-binary", ":all:", "-d", folder, PEER_PACKAGES[0]],
                ["bash", "-c", "rm -rf unpacked && mkdir unpacked && tar -xzf *.tar.gz -C unpacked --strip-components=1 && mv unpacked/vendor . && rm -r unpacked"])  # fmt: skip
    return sources


def llama_server(cache):
    """llama.cpp's server, built for this CPU, if need be."""
    sources = llama_sources(cache)
    build = sources.parent.parent / "build"
    program = build / "bin" / "llama-server"
    if not program.is_file():
        print(f"building llama-server in {build} (some minutes)", file=sys.stderr)
        run_all(sources, "llama-server",
                ["cmake", "-G", "Ninja", "-S", sources, "-B", build, "-DCMAKE_BUILD_TYPE=Release", "-DGGML_NATIVE=ON", "-DLLAMA_CURL=OFF"],
                ["ninja", "-C", build, "llama-server"])  # fmt: skip
    return program


class Worker:
    """A process that holds models of one library and answers requests, one JSON line each."""

    def __init__(self, python, script):
        self.name = script
        # The peer's environment lacks the package, of which workers use what needs numpy alone.
        environment = os.environ | {"PYTHONPATH": str(FOLDER.parent / "python")}
        self.process = subprocess.Popen([python, WORKERS / script], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment)

    def ask(self, op, **request):
        """The answer. An error is the end."""
        answer = self.request(op, **request)
        if "error" in answer:
            fail(f"{self.name}, request {op!r}: {answer['error']}")
        return answer

    def request(self, op, **request):
        """The answer, or {"error": what went wrong}."""
        try:
            self.process.stdin.write(json.dumps({"op": op, **request}) + "\n")
            self.process.stdin.flush()
            line = self.process.stdout.readline()
        except BrokenPipeError:
            line = ""
        return json.loads(line) if line else {"error": f"it ended with status {self.process.wait()}; its messages are above"}

    def close(self):
        self.process.stdin.close()
        self.process.wait()
