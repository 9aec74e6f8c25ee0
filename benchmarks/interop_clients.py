# Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The clients of interop.py: an environment for each, of packages of PyPI."""

import os
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path

from peer import PEER_PACKAGES, Worker, peer_environment

TORCH = "torch==2.15.0"


class Unavailable(Exception):
    """Why a client cannot be installed or cannot do something: one line."""


@dataclass(frozen=True)
class Client:
    name: str
    worker: str
    packages: tuple[str, ...]
    """What is asked of the package index, with dependencies."""
    alone: tuple[str, ...] = ()
    """What is installed without them: they name kernels for GPUs, or versions that no longer fit one another."""
    torch: bool = True
    variables: dict[str, str] = field(default_factory=dict)

    @property
    def versions(self) -> list[str]:
        """The packages whose versions a reader wants."""
        named = [package.partition("==")[0] for package in (*self.alone, *self.packages) if "==" in package and not package.startswith(("numpy", "safetensors"))]
        return [*named, "torch"] if self.torch else named


_HUGGING_FACE = ("transformers==5.24.0", "accelerate==1.15.0")
# AutoAWQ has no other arithmetic than GPUs' where triton is there, which its metadata ask for.
CLIENTS = {client.name: client for client in (
    Client("compressed-tensors", "torch_clients.py", (*_HUGGING_FACE, "pydantic", "loguru", "psutil"), ("compressed-tensors==0.20.0",)),
    Client("gptqmodel", "torch_clients.py",
           (*_HUGGING_FACE, "setuptools>=80", "wheel", "ninja", "maturin", "threadpoolctl", "packaging", "device-smi", "protobuf", "pillow", "requests",
            "pypcre", "tokenicer", "logbar", "datasets", "dill", "defuser"),
           ("torchao", "gptqmodel==7.7.0"), variables={"BUILD_CUDA_EXT": "0"}),
    Client("autoawq", "torch_clients.py", ("transformers==4.47.1", "accelerate", "datasets", "zstandard", "setuptools>=80", "wheel"),
           ("autoawq==0.2.7.post3",)),
    Client("auto-round", "torch_clients.py", (*_HUGGING_FACE, "datasets", "py-cpuinfo", "pydantic", "requests", "gguf==0.19.0", "sentencepiece"),
           ("auto-round==0.16.1",)),
    Client("llm-compressor", "torch_clients.py",
           ("transformers==5.17.0", "accelerate==1.15.0", "loguru", "pydantic", "datasets", "pillow", "nvidia-ml-py", "py-cpuinfo", "psutil", "requests"),
           ("auto-round==0.15.1", "compressed-tensors==0.19.0", "llmcompressor==0.14.0.1")),
    Client("genai", "onnx_client.py", ("transformers==5.24.0", "onnxruntime==1.31.1", "onnx==1.23.2", "onnx-ir", "accelerate==1.15.0"),
           ("onnxruntime-genai==0.18.0",)),
    Client("llama.cpp", "llama_cpp_client.py", PEER_PACKAGES, torch=False),
    Client("iree", "iree_client.py", ("iree-base-compiler==3.13.0", "iree-base-runtime==3.13.0", "numpy", "safetensors"), torch=False),
)}  # fmt: skip


def _run(*command: object, variables: dict[str, str] | None = None) -> str:
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True, env=os.environ | (variables or {}))
    if done.returncode != 0:
        lines = [line for line in done.stderr.splitlines() if line.strip()] or [f"status {done.returncode}"]
        raise Unavailable(next((line.strip() for line in lines if line.lower().startswith("error")), lines[-1].strip()))
    return done.stdout


class Environments:
    """Makes environments in a folder, once, and starts workers in them."""

    def __init__(self, cache: Path, torch: Path | None):
        self.cache, self.torch = cache, torch
        self.workers: dict[str, Worker | Unavailable] = {}
        self.numbers: dict[str, dict[str, str]] = {}
        self.used: set[str] = set()  # whose versions a row has; the caller empties it

    def worker(self, name: str) -> Worker:
        """The one process of a client. Unavailable where it cannot be installed or started."""
        ended = isinstance(self.workers.get(name), Worker) and self.workers[name].process.poll() is not None
        if ended or name not in self.workers:
            try:
                worker = Worker(self.python(name), CLIENTS[name].worker)
                self.workers[name] = worker
                self.versions(name)
            except Unavailable as error:
                self.workers[name] = error
        self.used.add(name)
        found = self.workers[name]
        if isinstance(found, Unavailable):
            raise found
        return found

    def versions(self, name: str) -> dict[str, str]:
        if name not in self.numbers:
            self.numbers[name] = ask(self.worker(name), "describe", packages=CLIENTS[name].versions)
        return self.numbers[name]

    def stop(self, name: str) -> None:
        """Ends the process of a client. The next request starts another one."""
        if isinstance(self.workers.get(name), Worker):
            self.workers.pop(name).close()

    def close(self) -> None:
        for worker in self.workers.values():
            if isinstance(worker, Worker):
                worker.close()

    def _make(self, name: str, packages: tuple[str, ...], alone: tuple[str, ...], beside: Path | None, variables: dict[str, str]) -> Path:
        folder = self.cache / name
        python, stamp = folder / "bin" / "python", folder / "packages"
        wanted = "\n".join((*packages, "", *alone)) + "\n"
        if stamp.is_file() and stamp.read_text() == wanted:
            return python
        print(f"installing {', '.join((*alone, *packages))} into {folder}", file=sys.stderr)
        _run(sys.executable, "-m", "venv", "--clear", folder)
        if beside:
            place = "import sysconfig; print(sysconfig.get_path('purelib'))"
            (Path(_run(python, "-c", place).strip()) / "torch.pth").write_text(_run(beside, "-c", place))
        _run(python, "-m", "pip", "install", "--quiet", *packages)
        if alone:
            _run(python, "-m", "pip", "install", "--quiet", "--no-deps", "--no-build-isolation", *alone, variables=variables)
        stamp.write_text(wanted)
        return python

    def python(self, name: str) -> Path:
        """The interpreter of a client's environment. Unavailable where it cannot be made."""
        client = CLIENTS[name]
        if client.packages == PEER_PACKAGES:
            try:
                return peer_environment(self.cache)  # it is built for this CPU
            except SystemExit as error:
                raise Unavailable(str(error)) from None
        if client.torch and not self.torch:
            self.torch = self._make("torch", (TORCH, "numpy"), (), None, {})
        return self._make(client.name, client.packages, client.alone, self.torch if client.torch else None, client.variables)


def ask(worker: Worker, op: str, **request) -> dict:
    """The answer; Unavailable, with the client's own words, where it fails."""
    answer = worker.request(op, **request)
    if "error" in answer:
        raise Unavailable(" ".join(answer["error"].split())[:400])
    return answer
