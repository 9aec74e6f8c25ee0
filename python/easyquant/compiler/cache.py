# Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Artifacts of models that are used as they are: compiled once, kept below ~/.cache/easyquant, and found again.

An artifact's folder is named after the model and a hash of all that it depends on:

- the model's files: small ones by their contents, weights by size, time of the last change and their first megabyte, which has the
  header. Weights are gigabytes, and to read them all takes longer than to load them; who changes some changes that time;
- all options, with the contents of the files that they name;
- EasyQuant's version, size and time of the compiler.

The CPU is not among them: an artifact has code for all instruction sets that EasyQuant knows.
"""

import contextlib
import fcntl
import hashlib
import json
import os
import re
import shutil
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

from easyquant import __version__
from easyquant.compiler.calibration import CalibrationText
from easyquant.compiler.compile import compile_model
from easyquant.compiler.options import MODEL_OPTIONS, CompileOptions
from easyquant.formats import hub
from easyquant.runtime.artifact import Artifact, is_artifact
from easyquant.support.errors import UserError
from easyquant.support.files import cache_folder, sha256
from easyquant.support.tools import find_tool
from easyquant.terminal import console

HEADER_BYTES = 1 << 20
# What a Hugging Face folder has that a compilation reads.
_READ = ("*.json", "*.jinja", "*.safetensors")


def artifacts_folder() -> Path:
    return cache_folder() / "artifacts"


def artifact_of(model: Path, options: CompileOptions | None = None, on_progress: Callable[[str, int, int], None] | None = None) -> Artifact:
    """The artifact at `model`, or that of the model there with these options, which is compiled where it is not in the cache.

    model: an artifact's folder, a Hugging Face folder, a GGUF file, or a name in the Hub's cache. on_progress: as of compile_model.
    Several processes may ask for the same one: the first compiles it, the others wait.
    """
    options = options or CompileOptions()
    given = [option.name for option in MODEL_OPTIONS.values() if option.arguments(getattr(options, option.field))] + ["calib"] * bool(options.calibration)
    source = hub.locate(Path(model))
    if is_artifact(source):
        if given:
            raise UserError(f"{source}: is compiled already, so that {given[0]} does not apply; give the model that it came from")
        return Artifact.open(source)
    if not source.exists():
        raise UserError(f"{source}: there is no such file or folder; expected an artifact, a Hugging Face folder or a GGUF file{hub.download_hint(source)}")
    if source.is_dir() and not (source / "config.json").is_file():
        raise UserError(f"{source}: has neither manifest.json nor config.json; expected an artifact, a Hugging Face folder or a GGUF file")
    entry = artifacts_folder() / f"{_file_name(hub.model_name(source))}-{_key(source, options)}"
    artifact = _kept(entry)
    if artifact is None:
        with _exclusively(entry):
            artifact = _kept(entry)  # if another process has made it
            if artifact is None:
                shutil.rmtree(entry, ignore_errors=True)
                console.note(f"compiling {source} once; it is kept in {entry}")
                compile_model(source, entry, options, on_progress=on_progress)
                artifact = Artifact.open(entry)
    return replace(artifact, origin=source)


def kept_artifacts() -> list[Artifact]:
    """All that is whole in the cache, the one that was used last first."""
    found = []
    for folder in filter(is_artifact, artifacts_folder().glob("*-*")):
        with contextlib.suppress(UserError):
            found.append(Artifact.open(folder))
    return sorted(found, key=lambda artifact: artifact.path.stat().st_mtime, reverse=True)


def clear() -> int:
    """Removes all artifacts of the cache, but those that a process is making; gives the bytes that they had."""
    freed = 0
    for lock in artifacts_folder().glob(".*.lock"):
        entry = lock.with_name(lock.name[1 : -len(".lock")])
        with open(lock, "w") as handle:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                continue
            for folder in (entry, *entry.parent.glob(f"{entry.name}.*")):  # what methods computed for it, too
                freed += sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())
                shutil.rmtree(folder, ignore_errors=True)
    return freed


def _kept(entry: Path) -> Artifact | None:
    """What is there, if it is whole."""
    if not entry.exists():
        return None
    try:
        artifact = Artifact.open(entry)
        for name, facts in artifact.manifest["files"].items():
            size = (entry / name).stat().st_size
            if size != int(facts["bytes"]):
                raise UserError(f"{entry / name}: has {size} bytes, expected {facts['bytes']}")
    except (OSError, UserError) as error:
        console.note(f"an artifact in the cache is damaged and is made again: {error}")
        return None
    with contextlib.suppress(OSError):  # a cache that cannot be written is of use, too
        os.utime(entry)
    return artifact


@contextlib.contextmanager
def _exclusively(entry: Path) -> Iterator[None]:
    """One process, or thread, at a time."""
    lock = entry.with_name(f".{entry.name}.lock")
    try:
        entry.parent.mkdir(parents=True, exist_ok=True)
        handle = open(lock, "w")
    except OSError as error:
        raise UserError(f"{lock}: {error.strerror}; let EASYQUANT_CACHE name a folder that can be written") from None
    with handle:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            console.note(f"waiting for another process that compiles {entry.name}")
            fcntl.flock(handle, fcntl.LOCK_EX)
        yield


def _file_name(name: str) -> str:
    return re.sub(r"[^\w.-]", "_", name).strip(".")[:80] or "model"


def _key(source: Path, options: CompileOptions) -> str:
    compiler = find_tool("easyquant-compile").stat()
    facts = {
        "version": __version__,
        "compiler": [compiler.st_size, compiler.st_mtime_ns],
        "name": hub.model_name(source),
        "model": [_identity(file) for file in _files_of(source)],
        "options": [_of_option(argument) for option in MODEL_OPTIONS.values() for argument in option.arguments(getattr(options, option.field))],
        "calibration": _of_text(options.calibration),
    }
    return hashlib.sha256(json.dumps(facts).encode()).hexdigest()[:16]


def _files_of(source: Path) -> list[Path]:
    return sorted(file for pattern in _READ for file in source.glob(pattern) if file.is_file()) if source.is_dir() else [source]


def _identity(file: Path) -> list:
    if file.suffix in (".json", ".jinja"):
        return [file.name, sha256(file)]
    with open(file, "rb") as stream:
        header = hashlib.sha256(stream.read(HEADER_BYTES)).hexdigest()
        facts = os.fstat(stream.fileno())
    return [file.name, facts.st_size, facts.st_mtime_ns, header]


def _of_option(argument: str) -> list:
    """The contents of a file, or of the files of a model, that an option names stand for its name."""
    name, _, value = argument.removeprefix("--").partition("=")
    if name == "assistant" and Path(value).exists():
        return [name, [_identity(file) for file in _files_of(Path(value))]]
    return [name, _identity(Path(value))[1:]] if name in ("recipe", "statistics") and Path(value).is_file() else [name, value]


def _of_text(text: CalibrationText | None) -> list | None:
    if text is None:
        return None
    if not text.text.is_file():
        raise UserError(f"calib {text.text}: there is no such file; expected a text in UTF-8")
    return [sha256(text.text), text.samples, text.length, text.seed, text.bos]
