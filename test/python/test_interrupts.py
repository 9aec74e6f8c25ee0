# Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Ctrl-C at any moment of the start: status 130 and no word."""

import os
import signal
import subprocess
import sys
import time

from easyquant.support.files import scratch_folder

# Says when the entry point begins to run, as the script `easyquant` does.
START = "import easyquant.__main__ as entry; import os, sys; os.write(1, b'!'); sys.argv = ['easyquant', 'recipe', 'show', '/dev/stdin']; entry.main()"


def start(code=START):
    process = subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert process.stdout.read(1) == b"!"
    return process


def test_interrupted_while_it_starts():
    """At eight moments from the first import to the waiting command."""
    begin = time.monotonic()
    process = start()
    process.communicate(b"scheme: W8A8")
    whole, quiet = time.monotonic() - begin, 0
    for index in range(8):
        process = start()
        time.sleep(whole * index / 8)
        process.send_signal(signal.SIGINT)
        process.stdin.close()
        process.stdin = None
        _, error = process.communicate(timeout=60)
        quiet += error == b""
        # The command itself, once it runs, says one line.
        assert process.returncode == 130 and error in (b"", b"error: interrupted\n"), (index, process.returncode, error)
    assert quiet >= 3, "none came early"


def test_an_ignored_signal_stays_ignored():
    process = start("import signal; signal.signal(signal.SIGINT, signal.SIG_IGN); " + START)
    process.send_signal(signal.SIGINT)
    out, _ = process.communicate(b"scheme: W8A8", timeout=60)
    assert process.returncode == 0 and b"W8A8" in out


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


def test_a_compiler_that_outlives_its_parent_keeps_its_files(tmp_path):
    scratch, compiler = tmp_path / "scratch", tmp_path / "easyquant-compile"
    scratch.mkdir()
    compiler.write_text(f"#!{sys.executable}\nimport os, time; os.write(1, b'!' + str(os.getpid()).encode() + b'\\n'); time.sleep(60)\n")
    compiler.chmod(0o755)
    process = start(
        f"import os; os.environ['EASYQUANT_TOOLS'] = {str(tmp_path)!r}; from easyquant.compiler.driver import run_compiler; from easyquant.support.files import scratch_folder\n"
        f"with scratch_folder({str(scratch)!r}): run_compiler([])"
    )
    child = int(process.stdout.readline())
    process.kill()
    process.wait()
    with scratch_folder(scratch):
        assert len(list(scratch.iterdir())) == 2
    os.kill(child, signal.SIGKILL)
    while os.path.exists(f"/proc/{child}/fd/1"):
        time.sleep(0.01)
    with scratch_folder(scratch):
        assert len(list(scratch.iterdir())) == 1
    process.communicate()


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
