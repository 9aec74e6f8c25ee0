# Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What asks a process to end does so at any moment, with the status of the signal and without a traceback; children go with it."""

import os
import signal
import subprocess
import sys
import time

import pytest

from easyquant.support.files import scratch_folder

# Says when the entry point begins to run, as the script `easyquant` does.
START = "import easyquant.__main__ as entry; import os, sys; os.write(1, b'!'); sys.argv = ['easyquant', 'recipe', 'show', '/dev/stdin']; entry.main()"


def start(code=START):
    process = subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert process.stdout.read(1) == b"!"
    return process


# What ends a process, the status that shells give it then, and what a command says, once it runs.
SIGNALS = [(signal.SIGINT, 130, b"interrupted"), (signal.SIGTERM, 143, b"ended by SIGTERM"), (signal.SIGHUP, 129, b"ended by SIGHUP")]


@pytest.mark.parametrize("number, status, message", SIGNALS)
def test_interrupted_while_it_starts(number, status, message):
    """At six moments from the first import to the waiting command."""
    begin = time.monotonic()
    process = start()
    process.communicate(b"scheme: W8A8")
    whole, quiet = time.monotonic() - begin, 0
    for index in range(6):
        process = start()
        time.sleep(whole * index / 6)
        process.send_signal(number)
        process.stdin.close()
        process.stdin = None
        _, error = process.communicate(timeout=60)
        quiet += error == b""
        assert process.returncode == status and error in (b"", b"error: " + message + b"\n"), (index, process.returncode, error)
    assert quiet >= 2, "none came early"


@pytest.mark.parametrize("number", ["SIGINT", "SIGHUP"])
def test_an_ignored_signal_stays_ignored(number):
    process = start(f"import signal; signal.signal(signal.{number}, signal.SIG_IGN); " + START)
    process.send_signal(getattr(signal, number))
    out, _ = process.communicate(b"scheme: W8A8", timeout=60)
    assert process.returncode == 0 and b"W8A8" in out


@pytest.fixture
def compiling(tmp_path):
    """Starts `easyquant calibrate` with a compiler that does nothing but clean up when it is asked to end; gives the two process ids."""
    compiler = tmp_path / "easyquant-compile"
    compiler.write_text(
        f"#!{sys.executable}\nimport os, pathlib, signal, sys, time\npartial = pathlib.Path({str(tmp_path)!r}) / 'OUT.partial'\n"
        "def clean(number, frame):\n    time.sleep(0.3)\n    partial.unlink()\n    sys.exit(1)\n"
        "signal.signal(signal.SIGTERM, clean)\npartial.touch()\nos.write(1, b'!' + str(os.getpid()).encode() + b'\\n')\ntime.sleep(60)\n"
    )
    compiler.chmod(0o755)
    process = start(
        f"import os; os.environ['EASYQUANT_TOOLS'] = {str(tmp_path)!r}; import easyquant.__main__; from easyquant.compiler.driver import run_compiler\n"
        "from easyquant.support.files import scratch_folder; from easyquant.terminal import console; import typer\n"
        f"def compile():\n    with scratch_folder({str(tmp_path)!r}): run_compiler([])\n"
        "try: console.command(compile)()\nexcept typer.Exit as error: os._exit(error.exit_code)\n"
    )
    yield process, int(process.stdout.readline())
    process.kill()
    process.communicate()


@pytest.mark.parametrize("number, status, message", SIGNALS)
def test_a_signal_ends_the_compiler_first(compiling, tmp_path, number, status, message):
    process, child = compiling
    process.send_signal(number)
    _, error = process.communicate(timeout=30)
    assert process.returncode == status and error == b"error: " + message + b"\n"
    assert not os.path.exists(f"/proc/{child}") and [file.name for file in tmp_path.iterdir()] == ["easyquant-compile"]


def test_a_killed_process_takes_its_compiler_along(compiling, tmp_path):
    process, child = compiling
    process.kill()
    process.wait()
    deadline = time.monotonic() + 30
    while (tmp_path / "OUT.partial").exists():
        assert time.monotonic() < deadline, f"process {child} goes on"
        time.sleep(0.01)


def test_scratch_folders_of_killed_processes_are_removed(tmp_path):
    code = f"import os, time; from easyquant.support.files import scratch_folder\nwith scratch_folder({str(tmp_path)!r}): os.write(1, b'!'); time.sleep(60)"
    killed, living = start(code), start(code)
    assert len(list(tmp_path.iterdir())) == 2
    killed.kill()
    killed.wait()
    assert len(list(tmp_path.iterdir())) == 2
    try:
        with scratch_folder(tmp_path) as folder:
            assert len(list(tmp_path.iterdir())) == 2 and folder.is_dir(), "the killed one's is gone, the living one's is there"
    finally:
        living.send_signal(signal.SIGINT)
        living.communicate()
    assert list(tmp_path.iterdir()) == []


def test_scratch_folders_do_not_disturb_each_other(tmp_path):
    code = (
        "import sys, time; sys.stdout.write('!'); sys.stdout.flush(); from easyquant.support.files import scratch_folder\n"
        "for _ in range(40):\n"
        f"    with scratch_folder({str(tmp_path)!r}) as folder:\n"
        "        (folder / 'file').write_text('x'); time.sleep(0.001); assert (folder / 'file').read_text() == 'x'\n"
    )
    processes = [start(code) for _ in range(3)]
    for process in processes:
        _, error = process.communicate(timeout=60)
        assert process.returncode == 0, error
    assert list(tmp_path.iterdir()) == []
