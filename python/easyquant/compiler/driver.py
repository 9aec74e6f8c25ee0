# Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Running easyquant-compile: what it is given of a model, its progress, its errors and its cost."""

import contextlib
import json
import os
import resource
import shlex
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from easyquant.formats import hub
from easyquant.formats.model_files import vocabulary_of
from easyquant.runtime.artifact import is_artifact
from easyquant.runtime.ranks import ALONE, Ranks
from easyquant.support.children import ends_with_me
from easyquant.support.errors import UserError
from easyquant.support.files import scratch_folder
from easyquant.support.memory import peak_rss_bytes, rss_bytes
from easyquant.support.tools import explain, find_tool, tool_environment
from easyquant.terminal import console
from easyquant.text.tokenizer_checks import check_files

# What a Hugging Face folder may hold besides weights and config.json that running it needs.
TOKENIZER_FILES = (
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "generation_config.json",
    "chat_template.jinja",
)


@dataclass
class CompileCost:
    wall_seconds: float
    cpu_seconds: float
    peak_rss_bytes: int  # of the compiler
    total_peak_bytes: int  # of the compiler and this process together


def check_model(model: Path) -> None:
    if is_artifact(model):
        raise UserError(f"{model}: is already a compiled artifact; give the model it came from, a Hugging Face folder or a GGUF file")
    if model.is_dir() and not (model / "config.json").is_file():
        raise UserError(f"{model}: has no config.json; expected a Hugging Face folder (config.json, *.safetensors, tokenizer.json) or a GGUF file")
    if not model.exists():
        raise UserError(f"{model}: there is no such file or folder; expected a Hugging Face folder or a GGUF file{hub.download_hint(model)}")


def find_model(model: Path) -> Path:
    """The model at a path, or the download of a name at Hugging Face. UserError where it is none."""
    found = hub.locate(model)
    check_model(found)
    return found


def _files_of_gguf(model: Path, folder: Path) -> list[Path]:
    from easyquant.text.tokenizer import write_tokenizer_files

    write_tokenizer_files(model, folder)
    files = sorted(folder.iterdir())
    check_files(files, vocabulary_of(model), source=model)
    return files


def warn_without_tokenizer(model: Path, files: list[Path]) -> None:
    if any(file.name == "tokenizer.json" for file in files):
        return
    remedy = f"put it into {model} and compile again"
    if (model / "tokenizer.model").is_file():
        remedy = f"`AutoTokenizer.from_pretrained('{model}').save_pretrained('{model}')` of transformers makes it of tokenizer.model; then compile again"
    console.warn(
        f"{model}: has no tokenizer.json, so the artifact knows no text: `easyquant run` and `eval` will refuse it, "
        f"`bench`, `inspect` and easyquant-run --tokens work; {remedy}"
    )


@contextlib.contextmanager
def tokenizer_files(model: Path, keep: bool = False):
    """The tokenizer files that belong to `model`: its own, or what a GGUF's tokenizer turns into.

    The files made of a GGUF are temporary, unless a printed command is going to name them (`keep`).
    """
    if model.is_dir():
        files = [model / name for name in TOKENIZER_FILES if (model / name).is_file()]
        check_files(files, vocabulary_of(model))
        yield files
        return
    if keep:
        folder = Path(tempfile.mkdtemp(prefix="easyquant-tokenizer-"))
        console.note(f"the tokenizer files of {model.name} are in {folder}")
        yield _files_of_gguf(model, folder)
        return
    with scratch_folder() as folder:
        yield _files_of_gguf(model, folder)


@contextlib.contextmanager
def gguf_vocabulary(model: Path, keep: bool = False):
    """A GGUF file that has the tokenizer of a model: itself, or one made of a folder's tokenizer.json. It stays where a printed command names it (`keep`)."""
    if not model.is_dir():
        yield model
        return
    from easyquant.text.gguf_vocabulary import write_vocabulary

    with contextlib.ExitStack() as stack:
        folder = Path(tempfile.mkdtemp(prefix="easyquant-vocabulary-")) if keep else stack.enter_context(scratch_folder())
        file = folder / "vocabulary.gguf"
        write_vocabulary(model, file, vocabulary_of(model))
        if keep:
            console.note(f"the tokenizer of {model.name} is in {file}")
        yield file


def wait_and_watch(process: subprocess.Popen) -> tuple[resource.struct_rusage, int, int]:
    """Waits for `process`; gives what it used and its peak memory in bytes, alone and with this process.

    The peak is read from the running process: the kernel's ru_maxrss also counts what the child of a fork
    shares with its parent before it becomes another program.
    """
    peak = total = 0
    while True:
        pid, status, usage = os.wait4(process.pid, os.WNOHANG)
        if pid != 0:
            process.returncode = os.waitstatus_to_exitcode(status)
            return usage, peak, total
        with contextlib.suppress(OSError):
            peak = max(peak, peak_rss_bytes(process.pid))
            total = max(total, peak + rss_bytes())
        time.sleep(0.02)


def run_compiler(arguments: list[str], on_progress: Callable[[str, int, int], None] | None = None, ranks: Ranks = ALONE) -> CompileCost:
    """Runs easyquant-compile; `on_progress(phase, done, total)` follows it. Among `ranks` it joins those of the other ranks.

    What `on_progress` raises, in another thread, ends the compiler and is raised here. Raises UserError with the tool's own error text. Its warnings go to stderr as they come.
    """
    tool = find_tool("easyquant-compile")
    begin = time.monotonic()
    command = [tool, *arguments, *ranks.arguments(), "--progress=json"]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, errors="replace", env=tool_environment(), preexec_fn=ends_with_me())
    messages: list[str] = []
    failures: list[BaseException] = []  # of on_progress

    def report(phase: str, done: int, total: int) -> None:
        if on_progress is None or failures:
            return
        try:
            on_progress(phase, done, total)
        except BaseException as error:
            failures.append(error)
            process.terminate()  # it leaves nothing behind

    def follow() -> None:
        for line in process.stderr:
            if line.startswith("{"):
                with contextlib.suppress(ValueError, KeyError, TypeError):
                    event = json.loads(line)
                    facts = (str(event["phase"]), int(event["done"]), int(event["total"]))
                    report(*facts)
                    continue
            messages.append(line.rstrip("\n"))

    reader = threading.Thread(target=follow)
    reader.start()
    try:
        usage, peak, total = wait_and_watch(process)
    except BaseException:
        # By a signal: the compiler leaves nothing behind when it is asked to end.
        process.terminate()
        process.wait()
        if ranks.size > 1:  # what ends one rank ends all, and each says where it was
            reader.join()
            console.err.print("\n".join(messages), markup=False, soft_wrap=True)
        raise
    finally:
        reader.join()
        process.stderr.close()
    if failures:
        raise failures[0]
    text = "\n".join(line for line in messages if line.strip())
    if process.returncode == -signal.SIGPIPE:
        raise BrokenPipeError  # nobody reads the IR to its end: `easyquant compile ... | head`
    if process.returncode != 0:
        if process.returncode < 0:
            ended = f"{tool.name} was ended by signal {-process.returncode}: {shlex.join([str(tool), *arguments])}"
            text = "\n".join(filter(None, [text, ended]))
        raise UserError(explain(tool, process.returncode, text))
    if text:
        console.err.print(text, markup=False, soft_wrap=True)
    return CompileCost(
        wall_seconds=time.monotonic() - begin,
        cpu_seconds=usage.ru_utime + usage.ru_stime,
        peak_rss_bytes=peak,
        total_peak_bytes=total,
    )


@contextlib.contextmanager
def compiler_progress():
    """A progress bar on stderr: what run_compiler reports to."""
    with console.progress() as bar:
        task = bar.add_task("starting", total=None)

        def follow(phase: str, done: int, total: int) -> None:
            bar.update(task, description=phase, completed=done, total=total or None)

        yield follow
