# Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""How the command line explains itself: one line for what is wrong with it, help for a terminal of 80 columns, completion."""

import os
import re
import subprocess
import sys

import pytest

from easyquant.commands.compile import CompileCommand
from easyquant.compiler.options import METHODS, choices_of
from easyquant.terminal.usage import did_you_mean
from command_line import run_command_line as easyquant
from helpers import random_llama, run_tool, write_model

COMMANDS = (
    "compile", "export", "convert", "calibrate", "run", "chat", "serve", "eval", "bench", "inspect", "plan", "predict", "compare", "demo", "cache", "recipe", "recipe show", "recipe check",
)  # fmt: skip


def refusal(*arguments) -> str:
    done = easyquant(*arguments)
    assert done.returncode == 1 and done.stdout == "", done
    (line,) = done.stderr.splitlines()
    return line


@pytest.mark.parametrize("arguments, message", [
    (("compile", "m", "--scheme", "w8a8"), r"--scheme w8a8: expected one of none, keep, keepA8, W8A8, .*; did you mean W8A8\?"),
    (("compile", "m", "--scheme", "Q4_K_M"), r"--scheme Q4_K_M: expected one of .*; did you mean Q4_K\?"),
    (("compile", "m", "--scheme", "W7A8"), r"--scheme W7A8: expected one of .*, T2A8, Q3, Q4, Q5, Q6"),
    (("compile", "m", "--observer", "minmix"), r"--observer minmix: expected one of .*; did you mean minmax\?"),
    (("calibrate", "m", "--calib", "t", "-o", "s", "--statistic", "absmx"), r"--statistic absmx: .*; did you mean absmax\?"),
    (("compile", "m", "--nsamples", "0"), "--nsamples 0: expected a whole number of at least 1"),
    (("compile", "m", "--nsamples", "many"), "--nsamples many: expected a whole number of at least 1"),
    (("compile", "m", "--weight-percentile", "high"), "--weight-percentile high: expected a number"),
    (("eval", "m", "--kv-chunk", "999"), "--kv-chunk 999: expected a whole number from 1 to 256"),
    (("compile", "m", "--nsample", "3"), r"unknown option --nsample; did you mean --nsamples\?"),
    (("compile", "m", "--qqq"), "unknown option --qqq; see .*compile --help"),
    (("compile", "m", "--scheme"), "--scheme needs a value"),
    (("compile",), "MODEL is missing; see .*compile --help"),
    (("calibrate", "m"), "--calib FILE is missing; see .*calibrate --help"),
    (("compil", "m"), r"unknown command compil; did you mean compile\?"),
    (("recipe", "cheek"), r"unknown command cheek; did you mean check\?"),
])  # fmt: skip
def test_a_wrong_command_line_is_told_in_one_line(arguments, message):
    assert re.fullmatch(f"error: {message}", refusal(*arguments))


def test_no_suggestion_is_better_than_a_wrong_one():
    assert did_you_mean("w4a8", ["W4A8", "W4A16"]) == "; did you mean W4A8?"
    assert did_you_mean("W5A8", ["W4A8", "W8A8"]) == "" and did_you_mean("int16", ["int8", "int4"]) == ""


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return write_model(tmp_path_factory.mktemp("usage") / "model", *random_llama(layers=1))


@pytest.mark.parametrize("options, message", [
    (("--target", "sm_90"), "unknown target 'sm_90'; expected some of cpu, x86_64, aarch64, sm_80, sm_86, sm_87, sm_89, sm_90a, sm_120a, joined by commas; did you mean 'sm_90a'?"),
    (("--target", "cpu,SM_80"), "did you mean 'sm_80'?"),
    (("--method", "gtpq"), "; did you mean 'gptq'?"),
    (("--method", "smoothqant+gptq"), "; did you mean 'smoothquant'?"),
    (("--scheme", "w4a16_asym"), "; did you mean 'W4A16_ASYM'?"),
    (("--observer", "minmix"), "; did you mean 'minmax'?"),
    (("--weight-observer", "MSE"), "; did you mean 'mse'?"),
    (("--emit-ir-after", "quantise"), "; did you mean 'quantize'?"),
])  # fmt: skip
def test_the_compiler_suggests_too(model, tmp_path, options, message):
    done = run_tool("easyquant-compile", model, "-o", tmp_path / "out", "--progress=none", *options)
    assert done.returncode == 1 and done.stderr.startswith("error: ") and message in done.stderr, done.stderr


def test_what_the_front_desk_completes_is_what_the_compiler_knows(model, tmp_path):
    targets = run_tool("easyquant-compile", model, "-o", tmp_path / "out", "--target", "x").stderr
    assert f"expected some of {', '.join(choices_of('target'))}, joined" in targets
    methods = run_tool("easyquant-compile", model, "-o", tmp_path / "out", "--method", "x").stderr
    assert f"legal are {', '.join(METHODS)}, and" in methods


@pytest.mark.parametrize("command", ["", *COMMANDS])
def test_help_fits_80_columns(command):
    done = easyquant(*command.split(), "--help", COLUMNS="80")
    assert done.returncode == 0 and max(map(len, done.stdout.splitlines())) <= 80
    # A column for explanations as narrow as 15 characters is no help.
    assert not [line for line in done.stdout.splitlines() if line.startswith(" " * 29)]


def test_every_option_of_compile_has_its_place_in_the_help():
    text = easyquant("compile", "--help", COLUMNS="80").stdout
    assert text.partition("\nOptions\n")[2].split() == "-h, --help Show this message and exit.".split()
    titles = [title for title in CompileCommand.groups if f"\n{title}\n" in text]
    assert titles == list(CompileCommand.groups)
    for name in (name for names in CompileCommand.groups.values() for name in names):
        assert len(re.findall(rf"^  (?:-\w, )?{name}[ ,]", text, re.MULTILINE)) == 1, name


@pytest.fixture(scope="module")
def command(tmp_path_factory):
    """The command `easyquant` as a file, for a shell to find."""
    file = tmp_path_factory.mktemp("bin") / "easyquant"
    file.write_text(f"#!{sys.executable}\nfrom easyquant.commands.cli import main\nmain()\n")
    file.chmod(0o755)
    return file


def test_bash_completes_values(command):
    """By the script that --install-completion puts into bash's start-up files."""
    script = """eval "$(_EASYQUANT_COMPLETE=source_bash easyquant)"
        complete_words() { COMP_WORDS=(easyquant "$@"); COMP_CWORD=$#; _easyquant_completion easyquant; echo "${COMPREPLY[@]}"; }
        complete_words compile --scheme W4; complete_words compile --method smoothquant+g; complete_words compile --target cpu,sm_9; complete_words co"""
    environment = os.environ | {"PATH": f"{command.parent}:{os.environ['PATH']}"}
    done = subprocess.run(["bash", "--norc", "-c", script], capture_output=True, text=True, env=environment)
    schemes = " ".join(scheme for scheme in choices_of("scheme") if scheme.startswith("W4"))
    assert done.stdout.splitlines() == [schemes, "smoothquant+gptq", "cpu,sm_90a", "compile convert compare"], done


@pytest.mark.parametrize("shell, loads", [("zsh", "compdef"), ("fish", "complete --command easyquant")])
def test_other_shells_have_a_script(shell, loads):
    done = easyquant(_EASYQUANT_COMPLETE=f"source_{shell}")
    assert done.returncode == 0 and f"_EASYQUANT_COMPLETE=complete_{shell}" in done.stdout and loads in done.stdout, done
