# Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Sites in a basis that is rotated in blocks of columns: the numpy oracle, what is reported, and what is refused."""


import numpy as np
import pytest

from calibrating import write_tokens
from easyquant.evaluation.weights import read_site
from easyquant.runtime.artifact import Artifact
from helpers import ISA, Runner, assert_refused, random_gpt2, random_llama, random_tokens, run_tool, sites_of, with_outliers, with_slow, write_model
from oracles.checkpoint import read_folder
from oracles.gpt2 import GPT2
from oracles.kv_cache import QuantizedCacheLlama
from oracles.llama import Llama
from oracles.schemes import FLOAT, Scheme, block_of, rotate
from test_kv_cache import decode
from test_llama import relative_error

ROTATED = "--activation-basis=hadamard"
F16_CACHE_BOUND = 0.025  # keys and values of GPUs are f16, which moves codes that the oracle rounds
SCHEMES = {
    "W8A8": (Scheme(8, 8, 0, 8), ("--scheme=W8A8",)),
    "W8A8 in 16s": (Scheme(8, 8, 0, 8, hadamard=16), ("--scheme=W8A8", "--hadamard-block=16")),
    "W8A16": (Scheme(8, None, 0, 8, hadamard=512), ("--scheme=W8A16",)),
    "W4A8 in 32s": (Scheme(4, 8, 32, 8), ("--scheme=W4A8", "--group-size=32")),
    "W4A16 with zero points": (
        Scheme(4, None, 32, 8, "zeropoint", hadamard=512), ("--scheme=W4A16", "--method=zeropoint", "--group-size=32")),
}  # fmt: skip


@pytest.fixture(scope="module")
def llama(tmp_path_factory):
    """Blocks of 64 columns at most of its linears, of 32 at down_proj."""
    return write_model(tmp_path_factory.mktemp("rotated") / "llama", *random_llama(21, hidden=64, ffn=96, heads=4, kv_heads=2))


@pytest.fixture(scope="module")
def tied(workspace):
    return write_model(workspace / "gpt2-rotated", *random_gpt2(width=64))


@pytest.mark.parametrize("name", SCHEMES)
def test_same_as_the_oracle(runner, llama, name):
    scheme, options = SCHEMES[name]
    tokens = random_tokens(6, 96, 97)
    config, tensors = read_folder(llama)
    expected = Llama(config, tensors, scheme, np.float64).logits(tokens)
    found = runner(llama, *options, ROTATED, "--kv-cache=f32").score(tokens)
    assert relative_error(found, expected) < (8e-3 if scheme.input_bits else 1e-5)
    plain = Llama(config, tensors, FLOAT, np.float64).logits(tokens)
    assert relative_error(expected, plain) > 3 * relative_error(found, expected), "the scheme itself must be visible"


VALUES = {
    "biases, heads of their own": (random_llama, {"heads": 4, "kv_heads": 4, "attention_bias": True}, 16),
    "biases and groups of heads": (random_llama, {"arch": "qwen2", "heads": 4, "kv_heads": 2}, 16),
    "heads of 48 columns": (random_llama, {"heads": 3, "kv_heads": 1, "head_dim": 48}, 16),
    "heads that no block divides": (random_llama, {"heads": 8, "kv_heads": 2}, None),
    "norms of heads": (random_llama, {"arch": "qwen3", "heads": 2, "kv_heads": 1}, 32),
}


@pytest.mark.parametrize("name", VALUES)
def test_values_come_rotated(artifact, runner, workspace, name):
    """The basis of o_proj is folded into v_proj, head by head; without a block it is that of any other site."""
    make, fields, block = VALUES[name]
    folder = write_model(workspace / f"values-{name.replace(' ', '-')}", *make(23, hidden=64, ffn=96, **fields))
    tokens = random_tokens(6, 60, 97)
    config, tensors = read_folder(folder)
    options = ("--scheme=W4A8", "--group-size=32", ROTATED)
    expected = Llama(config, tensors, Scheme(4, 8, 32, 8, hadamard=512), np.float64).logits(tokens)
    assert relative_error(runner(folder, *options, "--kv-cache=f32").score(tokens), expected) < 8e-3
    sites = sites_of(artifact(folder, *options, "--kv-cache=f32"))
    values, reader = sites["model.layers.0.self_attn.v_proj"], sites["model.layers.0.self_attn.o_proj"]
    assert values.get("row_hadamard") == block
    assert values["weight"]["hadamard"] == 64
    assert reader["input"]["hadamard"] == reader["weight"]["hadamard"] == (block or 64)


@pytest.mark.parametrize("bits", [4, 8])
def test_values_of_a_cache_are_quantized_rotated(runner, workspace, bits):
    """Token by token over codes, as the oracle does it; and less is lost, where values have outliers."""
    config, tensors = random_llama(25, hidden=64, ffn=96, heads=4, kv_heads=2, context=160)
    for name, weight in tensors.items():
        if "v_proj" in name:
            weight[[3, 20]] *= 30
        if "o_proj" in name:
            weight[:, [3, 19, 36, 52]] /= 30
    folder = write_model(workspace / f"value-outliers-{bits}", config, tensors)
    tokens = random_tokens(4, 120, 97)
    kv = {"bits": bits, "group": 16, "residual": 32, "sinks": 4}
    cache = (f"--kv-scheme=int{bits}", "--kv-group=16", "--kv-residual=32", "--kv-sinks=4", "--kv-cache=f32")
    logits = lambda scheme: QuantizedCacheLlama(*read_folder(folder), scheme, np.float64, kv=kv).logits(tokens)  # noqa: E731
    expected = logits(Scheme(8, None, 0, 8, hadamard=512))
    found = decode(runner(folder, "--scheme=W8A16", ROTATED, *cache), tokens)
    # A code that rounds the other way moves a logit by more than arithmetic does.
    assert relative_error(found, expected) < (2e-3 if bits == 8 else 2e-2)
    plain = Llama(*read_folder(folder), FLOAT, np.float64).logits(tokens)
    assert bits == 8 or relative_error(expected, plain) < 0.7 * relative_error(logits(Scheme(8, None, 0, 8)), plain)


@pytest.mark.parametrize("ignored", ["none", "v_proj", "o_proj"])
def test_the_basis_alone_is_the_same_function(runner, workspace, ignored):
    """Weights that are codes of eight bits in their basis, so that nothing is lost but what rotating costs. What is ignored stays float."""
    config, tensors = random_llama(24, hidden=64, ffn=128, heads=4, kv_heads=2, attention_bias=True)
    random = np.random.default_rng(5)
    for name in (name for name in tensors if "_proj.weight" in name and ignored not in name):
        codes = random.integers(-126, 127, tensors[name].shape)
        codes[:, 0] = 127  # scales are powers of two
        folds = ignored != "o_proj"
        rotated = rotate(codes / 512, 16 if "o_proj" in name else block_of(codes.shape[1], 512))
        if "v_proj" in name and folds:
            rotated = rotate(rotated.T, 16).T
        tensors[name] = np.ascontiguousarray(rotated, np.float32)
    folder = write_model(workspace / f"basis-alone-{ignored}", config, tensors)
    tokens = random_tokens(9, 60, 97)
    plain = Llama(*read_folder(folder), FLOAT, np.float64).logits(tokens)
    ignore = () if ignored == "none" else (f"--ignore=re:.*{ignored}",)
    found = runner(folder, "--scheme=W8A16", "--head=float", ROTATED, "--kv-cache=f32", *ignore).score(tokens)
    assert relative_error(found, plain) < 1e-5


@pytest.mark.parametrize("name", ["W8A8", "W8A8 in 16s", "W8A16", "W4A8 in 32s"])
def test_gpus(artifact, llama, name):
    """Simulated, with all checks: rows are rotated by lanes and registers; where activations are floats, rounded to bf16 then."""
    scheme, options = SCHEMES[name]
    tokens = random_tokens(6, 40, 97)
    config, tensors = read_folder(llama)
    expected = Llama(config, tensors, scheme, np.float64).logits(tokens)
    found = Runner(artifact(llama, *options, ROTATED, "--target=sm_80"), device="simt", simt_checks=True).score(tokens)
    assert relative_error(found, expected) < F16_CACHE_BOUND


def test_gpus_with_a_tied_head(artifact, tied):
    """Layer norms and GELU; rows of the embedding are rotated back."""
    tokens = random_tokens(6, 40, 101)
    expected = GPT2(*read_folder(tied), Scheme(8, 8, 0, 8, hadamard=512), np.float64).logits(tokens)
    found = Runner(artifact(tied, "--scheme=W8A8", ROTATED, "--target=sm_80"), device="simt", simt_checks=True).score(tokens)
    assert relative_error(found, expected) < F16_CACHE_BOUND


def test_gpt2(runner, tied):
    """Layer norms and GELU; a head that is the embedding."""
    tokens = random_tokens(6, 60, 101)
    config, tensors = read_folder(tied)
    expected = GPT2(config, tensors, Scheme(8, 8, 0, 8, hadamard=512), np.float64).logits(tokens)
    found = runner(tied, "--scheme=W8A8", ROTATED, "--kv-cache=f32").score(tokens)
    assert relative_error(found, expected) < 8e-3


@pytest.mark.parametrize("heads, block, reads", [(4, 16, 16), (2, 32, 32), (8, None, 64)])
def test_values_of_a_linear_of_queries_and_keys_too(artifact, runner, workspace, heads, block, reads):
    """The basis of c_proj is folded into the last rows of c_attn and its bias, head by head, where a block divides a head."""
    folder = write_model(workspace / f"fused-{heads}-heads", *random_gpt2(8, width=64, heads=heads))
    tokens = random_tokens(6, 60, 101)
    config, tensors = read_folder(folder)
    options = ("--scheme=W4A8", "--group-size=32", ROTATED, "--kv-cache=f32")
    expected = GPT2(config, tensors, Scheme(4, 8, 32, 8, hadamard=512), np.float64).logits(tokens)
    assert relative_error(runner(folder, *options).score(tokens), expected) < 8e-3
    made = Artifact.open(artifact(folder, *options))
    sites = sites_of(made.path)
    fused, reader = sites["h.1.attn.c_attn"], sites["h.1.attn.c_proj"]
    assert (fused.get("row_hadamard"), fused.get("row_hadamard_first")) == ((block, 128) if block else (None, None))
    assert reader["input"]["hadamard"] == reader["weight"]["hadamard"] == reads
    for name in ("h.1.attn.c_attn", "h.1.attn.c_proj"):  # in the plain basis, as the checkpoint has it
        assert relative_error(read_site(made, name), tensors[f"{name}.weight"].T) == pytest.approx(sites[name]["weight_error"], rel=1e-3)


@pytest.mark.parametrize("ignored", ["none", "c_attn", "attn.c_proj"])
def test_the_basis_alone_is_the_same_function_of_gpt2(runner, workspace, ignored):
    """As above; c_attn that is ignored makes rotated values in float."""
    config, tensors = random_gpt2(9, width=64)
    random = np.random.default_rng(5)
    for name in (name for name in tensors if ".c_" in name and name.endswith("weight") and ignored not in name):
        codes = random.integers(-126, 127, tensors[name].T.shape)
        codes[:, 0] = 127  # scales are powers of two
        rotated = rotate(codes / 512, 16 if "attn.c_proj" in name else block_of(codes.shape[1], 512))
        if "c_attn" in name and ignored == "none":
            rotated[128:] = rotate(rotated[128:].T, 16).T
        tensors[name] = np.ascontiguousarray(rotated.T, np.float32)
    folder = write_model(workspace / f"basis-alone-gpt2-{ignored}", config, tensors)
    tokens = random_tokens(9, 60, 101)
    plain = GPT2(*read_folder(folder), FLOAT, np.float64).logits(tokens)
    ignore = () if ignored == "none" else (f"--ignore=re:.*{ignored}",)
    found = runner(folder, "--scheme=W8A16", "--head=float", ROTATED, "--kv-cache=f32", *ignore).score(tokens)
    assert relative_error(found, plain) < 1e-5


def test_outliers_cost_less(runner, workspace):
    """A few columns of what linears read are a hundred times the others, as in real models."""
    folder = write_model(workspace / "outliers", *with_outliers(random_llama(22, hidden=64, ffn=128, heads=4, kv_heads=2), 60))
    tokens = random_tokens(7, 96, 97)
    plain = Llama(*read_folder(folder), FLOAT, np.float64).logits(tokens)
    errors = [relative_error(runner(folder, "--scheme=W8A8", "--head=float", *basis).score(tokens), plain) for basis in (("--activation-basis=plain",), (ROTATED,))]
    assert errors[1] < 0.5 * errors[0], errors


@pytest.mark.parametrize("method", with_slow(["smoothquant", "gptq", "awq", "signround", "smoothquant+gptq", "lkd"], "smoothquant", "gptq", "lkd"))
def test_methods_work_in_it(runner, llama, tmp_path, method):
    tokens = write_tokens(tmp_path / "tokens", np.random.default_rng(3).integers(0, 97, (8, 40)))
    scheme = ("--scheme=W8A8",) if "smoothquant" in method else ("--scheme=W4A8", "--group-size=32")
    found = runner(llama, *scheme, f"--method={method}", f"--tokens={tokens}", ROTATED).score(random_tokens(8, 60, 97))
    plain = Llama(*read_folder(llama), FLOAT, np.float64).logits(random_tokens(8, 60, 97))
    assert relative_error(found, plain) < 0.37  # round to nearest in the basis has 0.38


@pytest.mark.parametrize("method", ["awq", "gptq"])
def test_methods_work_in_it_where_values_are_rows_of_more(runner, tied, tmp_path, method):
    """What a method rounds is what kernels read: rows of queries and keys as they are, rows of values rotated."""
    tokens = write_tokens(tmp_path / "tokens", np.random.default_rng(3).integers(0, 101, (8, 40)))
    options = ("--scheme=W4A8", "--group-size=32", f"--tokens={tokens}", ROTATED)
    text = random_tokens(8, 60, 101)
    plain = GPT2(*read_folder(tied), FLOAT, np.float64).logits(text)
    nearest, found = (relative_error(runner(tied, *options, f"--method={name}").score(text), plain) for name in ("absmax", method))
    assert found < 0.85 * nearest


def test_what_is_reported(artifact, llama):
    out = artifact(llama, "--scheme=W8A8", ROTATED)
    sites = sites_of(out)
    down, up = sites["model.layers.0.mlp.down_proj"], sites["model.layers.0.mlp.up_proj"]
    assert (down["weight"]["hadamard"], down["input"]["hadamard"]) == (32, 32)
    assert (up["weight"]["hadamard"], up["input"]["hadamard"]) == (64, 64)
    assert Artifact.open(out).manifest["quantization"]["activation_basis"] == "hadamard"
    # In the plain basis, as the checkpoint has it.
    for site in ("mlp.down_proj", "self_attn.v_proj", "self_attn.o_proj"):
        name = f"model.layers.0.{site}"
        weight = read_folder(llama)[1][f"{name}.weight"]
        assert relative_error(read_site(Artifact.open(out), name), weight) == pytest.approx(sites[name]["weight_error"], rel=1e-3)


def test_floats_that_make_rotated_values_are_read_back(artifact, llama):
    out, name = artifact(llama, "--scheme=W8A8", ROTATED, "--ignore=re:.*v_proj"), "model.layers.0.self_attn.v_proj"
    assert sites_of(out)[name]["row_hadamard"] == 16 and sites_of(out)[name]["weight"] is None
    assert relative_error(read_site(Artifact.open(out), name), read_folder(llama)[1][f"{name}.weight"]) < 1e-6


def test_widths_without_a_block_stay_plain(tiny_llama, tmp_path):
    result = run_tool("easyquant-compile", tiny_llama, "-o", tmp_path / "out", "--scheme=W8A8", ROTATED, ISA)
    assert result.returncode == 0
    assert "site 'model.layers.0.self_attn.q_proj' and 14 more stay in the plain basis: no block of 16 columns or more divides 40 or 52" in result.stderr


@pytest.mark.parametrize("options, message", [
    (("--activation-basis=hadamrd",), "hadamard"),
    ((ROTATED, "--hadamard-block=48"), "hadamard-block must be a power of two from 16 to 512, found 48"),
])  # fmt: skip
def test_what_is_refused(llama, tmp_path, options, message):
    result = run_tool("easyquant-compile", llama, "-o", tmp_path / "out", "--scheme=W8A8", *options, ISA)
    assert_refused(result, message)
    assert not (tmp_path / "out").exists()
