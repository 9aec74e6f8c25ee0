# Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""`compile --context`: an artifact for shorter sequences than the model could take, whose tables of positions end there."""

import json

import numpy as np
import pytest
from safetensors import safe_open

from command_line import run_command_line as easyquant
from easyquant.compiler.options import CompileOptions
from easyquant.compiler.plans import describe_cache, plans_of
from calibrating import write_tokens
from helpers import Runner, assert_refused, random_llama, random_tokens, run_tool, write_letters, write_model

CONTEXT = 24


def tensors_of(artifact):
    with safe_open(artifact / "weights.safetensors", "np") as file:
        return {name: file.get_tensor(name) for name in file.keys()}


@pytest.mark.parametrize("name, table, bytes_of_position", [("tiny_llama", "rope.cos_sin", 8 * 4), ("tiny_gpt2", "wpe.weight", 48 * 4)])
@pytest.mark.parametrize("scheme", ["none", "W8A8"])
def test_tables_end_and_logits_stay(artifact, request, name, table, bytes_of_position, scheme):
    model = request.getfixturevalue(name)
    whole, short = artifact(model, f"--scheme={scheme}"), artifact(model, f"--scheme={scheme}", f"--context={CONTEXT}")
    before, after = tensors_of(whole), tensors_of(short)
    assert before.keys() == after.keys() and after[table].shape[0] == CONTEXT
    assert np.array_equal(before.pop(table)[:CONTEXT], after.pop(table)) and all(np.array_equal(before[key], after[key]) for key in before)
    assert json.loads((short / "manifest.json").read_text())["model"]["max_context"] == CONTEXT
    saved = (whole / "weights.safetensors").stat().st_size - (short / "weights.safetensors").stat().st_size
    positions = Runner(whole).model.max_context - CONTEXT
    assert saved >= positions * bytes_of_position - 4096, "tensors are aligned"
    tokens = random_tokens(3, CONTEXT, 97)
    assert np.array_equal(Runner(whole).score(tokens), Runner(short).score(tokens))
    with pytest.raises(Exception, match=f"{CONTEXT}"):
        Runner(short).score(random_tokens(3, CONTEXT + 1, 97))


@pytest.mark.parametrize("name", ["tiny_gpt2"])
def test_methods_run_the_model_as_it_will_be(artifact, request, workspace, name):
    """Calibration reads the tables, too: the same codes, and no sequence beyond the tables."""
    model = request.getfixturevalue(name)
    tokens = write_tokens(workspace / f"context-{name}.safetensors", [random_tokens(seed, CONTEXT, 97) for seed in range(4)])
    options = ("--scheme=W4A16", "--method=signround", "--group-size=8", "--steps=4", f"--tokens={tokens}")
    before, after = (tensors_of(artifact(model, *options, *more)) for more in ((), (f"--context={CONTEXT}",)))
    assert sum(not np.array_equal(before[key], after[key]) for key in before) == 1, "the table alone"
    refused = run_tool("easyquant-compile", model, "-o", workspace / "context-refused", *options, "--context=23")
    assert_refused(refused, "calibration sequences of 24 tokens, but the model's context is 23 tokens")


@pytest.mark.parametrize("context, words", [
    ("97", ["tiny-llama: a context of 97 tokens is asked for, but the model's is 96; give a --context up to that"]), ("0", ["context", "0"]), ("-3", ["context", "-3"]), ("many", ["context", "many"]),
])  # fmt: skip
def test_contexts_that_there_are_not(tiny_llama, tmp_path, context, words):
    for command in ((lambda *rest: run_tool("easyquant-compile", *rest)), (lambda *rest: easyquant("compile", *rest))):
        done = command(tiny_llama, "-o", tmp_path / "out", "--scheme=none", f"--context={context}")
        assert done.returncode != 0 and all(word in " ".join(done.stderr.split()) for word in words), done.stderr
        assert not (tmp_path / "out").exists()


def test_the_front_desk(tmp_path):
    """The dry run foretells what is made; the printed pipeline has it."""
    model = write_letters(write_model(tmp_path / "model", *random_llama(seed=7, context=96)))
    plans, short = plans_of(model, CompileOptions()), plans_of(model, CompileOptions(context=CONTEXT))
    assert plans.weight_bytes - short.weight_bytes == (96 - CONTEXT) * 8 * 4
    assert describe_cache(short) == f"{2 * 2 * 8 * 64 * 2 / 1000:.1f} KB for a sequence of {CONTEXT} tokens", "a page"
    done = easyquant("compile", model, "-o", tmp_path / "out", "--context", CONTEXT)
    assert done.returncode == 0, done.stderr
    inspected = easyquant("inspect", tmp_path / "out")
    assert inspected.returncode == 0 and f"context {CONTEXT}" in " ".join(inspected.stdout.split())
    ran = easyquant("run", tmp_path / "out", "--prompt", "a" * (CONTEXT + 1))
    assert ran.returncode == 1 and str(CONTEXT) in ran.stderr, ran.stderr
    printed = run_tool("easyquant-compile", model, "-o", tmp_path / "out", f"--context={CONTEXT}", "--scheme=none", "--dump-pipeline").stdout
    assert f"--import-hf '{model}' --context {CONTEXT} | easyquant-opt" in printed
