# Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""A file of --work that has lost a bit is named and computed again: the artifact is the one of before."""

import subprocess

import pytest

from calibrating import calibrate, pipeline, write_tokens
from helpers import ISA, compile_model, folder_contents, random_tokens, run_tool, tool


def flip(path, place=-5):
    """One bit of the data, which is at the end."""
    content = bytearray(path.read_bytes())
    content[place] ^= 4
    path.write_bytes(content)


@pytest.fixture(scope="module")
def tokens(workspace):
    return write_tokens(workspace / "damaged-tokens.safetensors", [random_tokens(seed, 24, 97) for seed in range(4)])


@pytest.mark.parametrize(
    "options, files",
    [
        (["--scheme=W4A16", "--method=gptq"], ["gptq_0", "gptq_1"]),
        (["--scheme=W8A8", "--method=smoothquant"], ["smooth_layer_1", "statistics"]),
        (["--scheme=W4A16", "--method=awq"], ["awq_0", "awq_clip_1"]),
    ],
)
def test_a_flipped_bit_changes_no_weight(tiny_llama, tmp_path, tokens, options, files):
    options = [*options, f"--tokens={tokens}", f"--work={tmp_path / 'work'}", ISA]
    expected = folder_contents(compile_model(tiny_llama, tmp_path / "first", *options))
    for name in files:
        path = tmp_path / "work" / f"{name}.safetensors"
        before = path.read_bytes()
        flip(path)
        result = run_tool("easyquant-compile", tiny_llama, "-o", tmp_path / name, *options)
        assert result.returncode == 0, result.stderr
        (note,) = (line for line in result.stderr.splitlines() if "checksum" in line)
        assert note.startswith("note: ") and f"{path}: found bytes with the checksum " in note and note.endswith("computed again")
        assert folder_contents(tmp_path / name) == expected
        assert path.read_bytes() == before


@pytest.mark.parametrize("name", ["step_0", "hidden_states_1"])
def test_a_damaged_journal_begins_anew(tiny_llama, tmp_path, tokens, name):
    expected = calibrate(tiny_llama, tmp_path / "whole", tokens).read_bytes()
    folder = tmp_path / "ended"
    folder.mkdir()
    # Ended as soon as the file is there.
    process = subprocess.Popen([tool("easyquant-compile"), tiny_llama, f"--pipeline={pipeline(folder, tokens)}", "--progress=json"], stderr=subprocess.PIPE, text=True)
    path = folder / "work" / f"{name}.safetensors"
    while process.poll() is None and not (folder / "work" / "hidden_states_1.safetensors").exists():
        pass
    process.kill()
    process.communicate()
    if not path.exists():
        pytest.skip("the run was through before it could be ended")
    flip(path)
    result = run_tool("easyquant-compile", tiny_llama, f"--pipeline={pipeline(folder, tokens)}")
    assert result.returncode == 0 and f"{path}: found bytes" in result.stderr, result.stderr
    assert (folder / "statistics.safetensors").read_bytes() == expected
