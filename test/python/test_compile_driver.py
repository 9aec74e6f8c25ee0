# Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""How `easyquant compile` drives its tool: arguments, progress, errors. A script stands in for the tool."""

import json
import re
import subprocess
import sys
import time
from pathlib import Path

import pytest

from easyquant.compiler.driver import check_model, run_compiler, tokenizer_files
from easyquant.compiler.options import CompileOptions
from easyquant.support.errors import UserError
from easyquant.support.memory import age_seconds, rss_bytes
from command_line import run_command_line


@pytest.fixture
def tool(tmp_path, monkeypatch):
    """Installs a Python script as easyquant-compile."""

    def install(body: str) -> None:
        file = tmp_path / "easyquant-compile"
        file.write_text(f"#!{sys.executable}\nimport json, os, signal, sys\n{body}\n")
        file.chmod(0o755)
        monkeypatch.setenv("EASYQUANT_TOOLS", str(tmp_path))

    return install


def test_options_are_those_of_the_tool():
    options = CompileOptions(
        scheme="W4A8", group_size=64, ignore=["lm_head", "re:.*q_proj"], targets=["x"], head="float", kv_cache="f16", threads=3, force=True
    )
    assert options.arguments() == [
        "--threads=3", "--force", "--scheme=W4A8", "--group-size=64", "--head=float", "--ignore=lm_head", "--ignore=re:.*q_proj",
        "--targets=x", "--kv-cache=f16",
    ]  # fmt: skip


def test_options_that_were_not_given_are_left_to_the_tool():
    assert CompileOptions().arguments() == []


def test_progress_reaches_the_caller(tool, capfd):
    tool(
        'for i in range(3): print(json.dumps({"phase": "materialize", "done": i, "total": 3}), file=sys.stderr)\n'
        'print("{not json", file=sys.stderr); print("a warning [red]", file=sys.stderr)\n'
    )
    seen = []
    cost = run_compiler(["model"], lambda *event: seen.append(event))
    assert seen == [("materialize", 0, 3), ("materialize", 1, 3), ("materialize", 2, 3)]
    assert capfd.readouterr().err == "{not json\na warning [red]\n"
    assert 0 < cost.cpu_seconds and 0 < cost.wall_seconds < 60


def test_peak_memory_is_the_tools_own(tool):
    """Not that of this process, of which the tool begins as a copy."""
    ours = bytearray(400_000_000)
    ours[::4096] = b"x" * len(ours[::4096])
    tool("import time; held = bytearray(100_000_000); held[::4096] = b'x' * len(held[::4096]); time.sleep(0.3)")
    cost = run_compiler([])
    assert 100_000_000 < cost.peak_rss_bytes < 200_000_000
    assert cost.total_peak_bytes > 500_000_000, "of the tool and this process"
    del ours


def test_time_and_memory_that_compile_prints_are_of_the_whole_command(tiny_llama, tmp_path):
    before = age_seconds()
    done = run_command_line("compile", tiny_llama, "-o", tmp_path / "out")
    seconds, memory, unit = re.search(r"compiled in ([\d.]+) s with at most ([\d.]+) ([MG]B)", done.stdout).groups()
    assert before - 0.1 < float(seconds) < age_seconds() + 0.1, "from the start of the interpreter, which is that of the tests"
    assert (float(memory) + 0.05) * {"MB": 1e6, "GB": 1e9}[unit] > rss_bytes()  # one decimal is shown
    begin = time.monotonic()
    told = subprocess.run([sys.executable, "-c", "import time; time.sleep(0.3); from easyquant.support.memory import age_seconds; print(age_seconds())"], capture_output=True, text=True)
    assert 0.3 < float(told.stdout) < time.monotonic() - begin + 0.1


def test_arguments_arrive_as_given(tool, tmp_path):
    tool(f"json.dump(sys.argv[1:], open({str(tmp_path / 'seen')!r}, 'w'))")
    run_compiler(["a model", "--ignore=re:.*\\d $HOME"])
    assert json.loads((tmp_path / "seen").read_text()) == ["a model", "--ignore=re:.*\\d $HOME", "--progress=json"]


def test_errors_are_the_tools_own(tool):
    tool('print("error: model.safetensors: tensor x: found I8, expected F32", file=sys.stderr); sys.exit(1)')
    with pytest.raises(UserError, match="^model.safetensors: tensor x: found I8, expected F32$"):
        run_compiler([])


def test_a_silent_failure_is_named(tool):
    tool("sys.exit(3)")
    with pytest.raises(UserError, match="easyquant-compile failed with status 3"):
        run_compiler([])


def test_a_crash_is_named(tool):
    tool("os.kill(os.getpid(), signal.SIGKILL)")
    with pytest.raises(UserError, match="ended by signal 9"):
        run_compiler([])


def test_a_missing_tool(monkeypatch, tmp_path):
    monkeypatch.setenv("EASYQUANT_TOOLS", str(tmp_path))
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setitem(sys.modules, "easyquant.support._config", None)
    with pytest.raises(UserError, match="scripts/setup.sh"):
        run_compiler([])


def test_tokenizer_files_of_a_folder(tmp_path):
    for name, content in {"config.json": '{"vocab_size": 9}', "tokenizer.json": "{}", "generation_config.json": "{}", "model.safetensors": ""}.items():
        (tmp_path / name).write_text(content)
    with tokenizer_files(tmp_path) as files:
        assert [file.name for file in files] == ["tokenizer.json", "generation_config.json"]


@pytest.mark.parametrize("make, message", [
    (lambda path: None, "no such file or folder"),
    (lambda path: path.mkdir(), "has no config.json"),
    (lambda path: (path.mkdir(), (path / "manifest.json").touch()), "already a compiled artifact"),
])  # fmt: skip
def test_models_that_are_none(tmp_path, make, message):
    model = Path(tmp_path / "model")
    make(model)
    with pytest.raises(UserError, match=message):
        check_model(model)
