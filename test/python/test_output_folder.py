# Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""OUT of a compilation: one writer at a time, whole or not at all, and an error that says what stands."""

import os
import signal
import subprocess
import sys
import time

import pytest

from failing_calls import build_shim, failing_fsync
from helpers import ISA, assert_refused, compile_model, folder_contents, run_tool, tool

COMPILERS = {
    "easyquant-compile": lambda *arguments: [tool("easyquant-compile"), *arguments, ISA, "--progress=none"],
    "easyquant compile": lambda *arguments: [sys.executable, "-m", "easyquant", "compile", *arguments],
}


@pytest.fixture(scope="module")
def shim(tmp_path_factory):
    return build_shim(tmp_path_factory.mktemp("shim"))


def start(compiler, *arguments):
    command = COMPILERS[compiler](*arguments)
    return subprocess.Popen(list(map(str, command)), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def start_and_wait(model, out, *options):
    """A compilation that has begun to write."""
    process = start("easyquant-compile", model, "-o", out, *options)
    deadline = time.monotonic() + 60
    while not (out.with_name(out.name + ".partial") / "artifact").exists():
        assert process.poll() is None and time.monotonic() < deadline, process.communicate()
        time.sleep(0.001)
    return process


@pytest.mark.parametrize("compiler, rounds", [("easyquant-compile", 2), ("easyquant compile", 1)])
def test_one_of_several_compilations_wins(tiny_llama, tmp_path, compiler, rounds):
    for round in range(rounds):
        out = tmp_path / f"out-{round}"
        processes = [start(compiler, tiny_llama, "-o", out) for _ in range(4)]
        errors = [process.communicate(timeout=120)[1] for process in processes]
        lost = [error for process, error in zip(processes, errors, strict=True) if process.returncode != 0]
        assert len(lost) == 3, errors
        for error in lost:
            assert "is being written by " in error or "exists; give another folder" in error, error
            assert "Traceback" not in error and error.count("error: ") == 1, error
        assert run_tool("easyquant-run", out, "--tokens=1,2,3").returncode == 0
        assert sorted(path.name for path in tmp_path.iterdir()) == [f"out-{index}" for index in range(round + 1)]


def test_forced_compilations_do_not_mix(artifact, tiny_llama, tmp_path):
    out = compile_model(tiny_llama, tmp_path / "out", ISA)
    first = start_and_wait(tiny_llama, out, "--scheme=none", "--force")
    first.send_signal(signal.SIGSTOP)  # however long the second takes to start
    second = run_tool("easyquant-compile", tiny_llama, "-o", out, "--force", timeout=60)
    first.send_signal(signal.SIGCONT)
    assert_refused(second, str(out), f"is being written by process {first.pid}")
    assert first.wait(timeout=60) == 0
    assert folder_contents(out) == folder_contents(artifact(tiny_llama, "--scheme=none"))
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


def test_what_appears_meanwhile_stays(tiny_llama, tmp_path):
    """Put there by something that is no compilation."""
    out = tmp_path / "out"
    process = start_and_wait(tiny_llama, out)
    out.mkdir()
    (out / "thesis.txt").write_text("years of work")
    error = process.communicate(timeout=60)[1]
    assert process.returncode == 1 and "while this was written, another wrote there" in error and str(out) in error
    assert folder_contents(tmp_path) == {"out/thesis.txt": b"years of work"}


def test_what_a_killed_compilation_left_is_removed(tiny_llama, tmp_path):
    out = tmp_path / "out"
    process = start_and_wait(tiny_llama, out)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    assert [path.name for path in tmp_path.iterdir()] == ["out.partial"]
    (tmp_path / "out.work").mkdir()
    (tmp_path / "out.work" / "gptq.safetensors.partial-1234").touch()
    compile_model(tiny_llama, out, ISA)
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


def test_an_artifact_that_had_stepped_aside_comes_back(tiny_llama, tmp_path):
    """Where names cannot be exchanged, a process may be killed when OUT has no name."""
    aside = tmp_path / "out.partial" / "replaced"
    aside.mkdir(parents=True)
    (aside / "manifest.json").write_text("{}")
    assert_refused(run_tool("easyquant-compile", tiny_llama, "-o", tmp_path / "out"), "exists", "--force")
    assert folder_contents(tmp_path) == {"out/manifest.json": b"{}"}


def test_a_failing_disk_before_the_end(tiny_llama, tmp_path, shim):
    result = run_tool("easyquant-compile", tiny_llama, "-o", tmp_path / "out", ISA, env=os.environ | failing_fsync(shim, "/manifest.json"))
    assert_refused(result, "out.partial/artifact/manifest.json: ", "Input/output error", f"{tmp_path / 'out'} was not written")
    assert list(tmp_path.iterdir()) == []


def test_a_failing_disk_at_the_very_end(artifact, tiny_llama, tmp_path, shim):
    """The folder has its name; that the name is on the disk is what failed."""
    out, environment = tmp_path / "out", os.environ | failing_fsync(shim, tmp_path.name)
    result = run_tool("easyquant-compile", tiny_llama, "-o", out, ISA, env=environment)
    assert_refused(result, f"{tmp_path}: ", "Input/output error", f"{out} is complete", "if the power fails", "sync")
    assert folder_contents(out) == folder_contents(artifact(tiny_llama, "--scheme=W8A8")) and [path.name for path in tmp_path.iterdir()] == ["out"]
    result = run_tool("easyquant-compile", tiny_llama, "-o", out, "--scheme=none", "--force", ISA, env=environment)
    assert_refused(result, f"{out} is complete", f"the artifact before it is kept as {out}.partial/artifact")
    assert folder_contents(out) == folder_contents(artifact(tiny_llama, "--scheme=none"))
    assert folder_contents(tmp_path / "out.partial" / "artifact") == folder_contents(artifact(tiny_llama, "--scheme=W8A8"))


def test_a_folder_that_cannot_be_made(tiny_llama, tmp_path, shim):
    environment = os.environ | {"LD_PRELOAD": str(shim), "FAIL_MKDIR": "out.partial/artifact"}
    result = run_tool("easyquant-compile", tiny_llama, "-o", tmp_path / "out", ISA, env=environment, timeout=60)
    assert_refused(result, f"{tmp_path}/out.partial/artifact: cannot be created: No space left on device")
    assert list(tmp_path.iterdir()) == []


def test_a_linker_that_cannot_rename(artifact, tiny_llama, tmp_path, shim):
    """It copies then, and leaves what it has copied."""
    environment = os.environ | {"LD_PRELOAD": str(shim), "FAIL_RENAME": "model.so.tmp"}
    result = run_tool("easyquant-compile", tiny_llama, "-o", tmp_path / "out", ISA, env=environment)
    assert result.returncode == 0, result.stderr
    assert folder_contents(tmp_path / "out") == folder_contents(artifact(tiny_llama, "--scheme=W8A8"))


def test_missing_parents_are_made_and_named(tiny_llama, tmp_path):
    result = run_tool("easyquant-compile", tiny_llama, "-o", tmp_path / "a" / "b" / "out", ISA)
    assert result.returncode == 0 and f"note: {tmp_path / 'a' / 'b'}: was missing and has been made" in result.stderr, result.stderr
    assert "has been made" not in run_tool("easyquant-compile", tiny_llama, "-o", tmp_path / "a" / "b" / "out", "--force", ISA).stderr


@pytest.mark.parametrize("number, status", [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_an_ended_compilation_leaves_nothing(tiny_llama, tmp_path, number, status):
    (tmp_path / "work").mkdir()
    process = start_and_wait(tiny_llama, tmp_path / "out", f"--work={tmp_path / 'work'}")
    process.send_signal(number)
    process.communicate(timeout=5)
    assert 128 - process.returncode == status  # as a shell says it
    assert [path.name for path in tmp_path.iterdir()] == ["work"]


def test_a_symbolic_link_as_output(artifact, tiny_llama, tmp_path):
    out, link = tmp_path / "out", tmp_path / "link"
    link.symlink_to("nowhere")
    assert_refused(run_tool("easyquant-compile", tiny_llama, "-o", link), str(link), "symbolic link that leads nowhere", "remove the link")
    link.unlink()
    link.symlink_to("out")
    out.mkdir()
    (out / "manifest.json").write_text("{}")
    assert_refused(run_tool("easyquant-compile", tiny_llama, "-o", link), "exists", "--force")
    compile_model(tiny_llama, link, "--force", ISA)
    assert link.is_symlink() and folder_contents(out) == folder_contents(artifact(tiny_llama, "--scheme=W8A8"))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["link", "out"]


def test_printed_ir_needs_no_output_of_its_own(tiny_llama, tmp_path):
    """Several at once in one folder."""
    command = [tool("easyquant-compile"), tiny_llama, "--emit-ir-after=materialize"]
    processes = [subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.DEVNULL) for _ in range(3)]
    assert [process.wait(timeout=60) for process in processes] == [0, 0, 0]
    assert list(tmp_path.iterdir()) == []


def test_paths_are_one_line_of_a_message(tiny_llama, tmp_path):
    for arguments in ([tmp_path / "no\nmodel", "-o", tmp_path / "out"], [tiny_llama, "-o", tmp_path / "out", "--tokens", tmp_path / "no\nmodel", "--method=awq", "--scheme=W4A16"]):
        result = run_tool("easyquant-compile", *arguments, "--progress=none")
        assert_refused(result, f"{tmp_path}/no\\nmodel: ")
        assert len(result.stderr.splitlines()) == 1, result.stderr
