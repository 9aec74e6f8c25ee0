# Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""llama.cpp beside EasyQuant: an environment of its own, and workers, which are processes in either environment."""

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
    """The interpreter of the environment that an earlier run made; None where none did, or of other packages."""
    folder = cache / BUILDS[isa][0]
    stamp = folder / "packages"
    return folder / "bin" / "python" if stamp.is_file() and stamp.read_text().split() == list(PEER_PACKAGES) else None


def peer_environment(cache, isa=None):
    """The interpreter of an environment that holds llama-cpp-python, made if need be: one of BUILDS."""
    if (python := environment_of(cache, isa)) is not None:
        return python
    name, flags = BUILDS[isa]
    folder = cache / name
    python = folder / "bin" / "python"
    print(f"installing {', '.join(PEER_PACKAGES)} into {folder} (builds llama.cpp: some minutes)", file=sys.stderr)
    subprocess.run([sys.executable, "-m", "venv", "--clear", folder], check=True)
    environment = os.environ | {"CMAKE_ARGS": flags, "CMAKE_BUILD_PARALLEL_LEVEL": str(os.cpu_count() or 1)}
    # pip would take a wheel that it has built with other flags.
    if subprocess.run([python, "-m", "pip", "install", "--quiet", "--no-cache-dir", *PEER_PACKAGES], env=environment).returncode != 0:
        fail(f"{PEER_PACKAGES[0]} could not be installed into {folder}; it needs a C++ compiler and PyPI. "
             "--peer-python names the interpreter of an environment that has it")
    (folder / "packages").write_text("\n".join(PEER_PACKAGES) + "\n")
    return python


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
