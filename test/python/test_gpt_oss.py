# Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""gpt-oss on CPUs against the oracle in double precision: sinks, biased experts behind a clamped gate, codes of MXFP4 that are kept, GGUF, and what
is refused."""

import gguf
import numpy as np
import pytest

from calibrating import write_tokens
from command_line import run_command_line
from easyquant import _runtime
from easyquant.evaluation.weights import read_site, read_tensor
from easyquant.runtime.artifact import Artifact
from helpers import Runner, assert_refused, compile_model, random_llama, random_tokens, run_tool, sites_of, supported_isas, write_byte_level, write_gguf, write_model, written_back
from oracles.checkpoint import read_folder
from oracles.experts import mxfp4, unstacked
from oracles.llama import Llama
from oracles.schemes import W8A8

SIZES = {"arch": "gpt_oss", "hidden": 64, "heads": 4, "kv_heads": 2, "head_dim": 16, "tied": False}
MODELS = {
    "stacks of floats": SIZES,
    "windows by name": SIZES | {"layers": 3, "layer_types": ["full_attention", "sliding_attention", "sliding_attention"], "sliding_window": 9},
    "one of five, no YaRN": SIZES | {"experts": 5, "num_experts_per_tok": 1, "rope_scaling": {"rope_type": "default"}},
    "sizes that fit nothing": {"arch": "gpt_oss", "hidden": 40, "expert_ffn": 23, "head_dim": 8, "experts": 7, "tied": False},
}
STACKS = ("gate_up_proj", "down_proj")


def in_mxfp4(config, tensors, seed=5):
    """The model with experts in codes, as OpenAI publishes it: rows of their own in blocks, not those of the floats."""
    random, result = np.random.default_rng(seed), {}
    for name, tensor in tensors.items():
        if not name.endswith(STACKS):
            result[name] = tensor
            continue
        count, columns, rows = tensor.shape
        result[name + "_blocks"] = random.integers(0, 256, (count, rows, columns // 32, 16), np.uint8)
        result[name + "_scales"] = random.integers(122 if "gate" in name else 119, 125, (count, rows, columns // 32)).astype(np.uint8)
    return config | {"quantization_config": {"quant_method": "mxfp4", "modules_to_not_convert": ["model.layers.*.self_attn", "lm_head"]}}, result


@pytest.fixture(scope="module")
def model(workspace):
    """model(name): the folder of MODELS[name], or of one in codes, made once; its tensors lie in three files."""

    def make(name):
        folder = workspace / name.replace(" ", "-").replace(",", "")
        if folder.exists():
            return folder
        if name == "codes":
            return write_model(folder, *in_mxfp4(*random_llama(17, **SIZES)), shards=3)
        return write_model(folder, *random_llama(17, **MODELS[name]), shards=3)

    return make


def check_logits(artifact, expected, tokens, bound=1e-4):
    runner = Runner(artifact)
    assert np.abs(runner.score(tokens) - expected).max() < bound
    # Token by token, behind the window.
    runner.session.reset()
    runner.session.prefill(np.asarray(tokens[:50], np.int32))
    for at in range(50, len(tokens)):
        runner.session.decode(tokens[at])
        assert np.abs(runner.session.logits - expected[at]).max() < bound


@pytest.mark.parametrize("name", MODELS)
def test_float_logits(artifact, model, name):
    tokens = random_tokens(5, 96, 97)
    expected = Llama(*read_folder(model(name)), dtype=np.float64).logits(tokens)
    assert np.abs(expected).max() > 1
    check_logits(artifact(model(name), "--scheme=none", "--isa=avx2"), expected, tokens)


def test_the_oracle_sees_all_parts(model):
    """Sinks, biases, the order of gate and up, both clamps and windows change the logits."""
    tokens = random_tokens(5, 96, 97)
    config, tensors = read_folder(model("stacks of floats"))
    oracle = Llama(config, tensors, dtype=np.float64)
    expected, seen = oracle.logits(tokens), []
    experts = oracle.layers[0]["experts"]
    activated = experts.activated
    experts.activated = lambda gate, up: seen.append((gate, up)) or activated(gate, up)
    assert np.array_equal(oracle.logits(tokens), expected)
    assert any((gate > 7).any() for gate, _ in seen) and any((np.abs(up) > 7).any() for _, up in seen)
    at = "model.layers.1."
    for name in ("self_attn.sinks", "self_attn.o_proj.bias", "mlp.router.bias", "mlp.experts.gate_up_proj_bias", "mlp.experts.down_proj_bias",
                 "mlp.experts.gate_up_proj"):
        changed = tensors | {at + name: np.ascontiguousarray(tensors[at + name][..., ::-1])}
        assert np.abs(Llama(config, changed, dtype=np.float64).logits(tokens) - expected).max() > 0.01, name
    for other in ({"layer_types": ["full_attention"] * 2}, {"rope_scaling": config["rope_scaling"] | {"truncate": True}}):
        assert np.abs(Llama(config | other, tensors, dtype=np.float64).logits(tokens) - expected).max() > 1e-3, other


@pytest.mark.parametrize("isa", supported_isas())
def test_codes_are_kept_without_a_scheme(artifact, model, isa):
    """They are no float weight that is rounded again, and nothing else of the model is rounded."""
    config, tensors = read_folder(model("codes"))
    out = artifact(model("codes"), "--kv-cache=f32", f"--isa={isa}")
    sites = sites_of(out)
    assert {name.rsplit(".", 1)[1] for name, site in sites.items() if site["weight"]} == {"gate_proj", "up_proj", "down_proj"}
    apart, made = unstacked(config, tensors), Artifact.open(out)
    for name, site in sites.items():
        if site["weight"]:
            assert site["kept"] and site["weight_error"] == 0
            prefix, part = name.rsplit(".", 1)
            assert np.array_equal(read_site(made, name), np.concatenate([apart[f"{prefix}.{expert}.{part}.weight"] for expert in range(8)]))
    tokens = random_tokens(6, 96, 97)
    check_logits(out, Llama(config, tensors, dtype=np.float64).logits(tokens), tokens, bound=2e-4)


def weights_of(out, config, tensors):
    """The tensors, experts apart, with the weights of the artifact `out`."""
    made, result = Artifact.open(out), unstacked(config, tensors)
    for site in made.manifest["sites"]:
        name, weight = site["name"], read_site(made, site["name"])
        if ".experts." in name:
            prefix, part = name.rsplit(".", 1)
            result |= {f"{prefix}.{expert}.{part}.weight": rows for expert, rows in enumerate(np.split(weight, config["num_local_experts"]))}
        else:
            result[f"{name}.weight"] = weight
    return result


@pytest.mark.parametrize("name", ["stacks of floats", "codes"])
@pytest.mark.parametrize("options", [["--scheme=W8A16"], ["--scheme=Q4", "--activations=float"], ["--scheme=MXFP4A16"]])
def test_schemes_round_the_numbers_that_codes_stand_for(artifact, model, name, options):
    """The program is the model of the weights that the artifact has, and these are near to those of the checkpoint."""
    tokens = random_tokens(6, 96, 97)
    config, tensors = read_folder(model(name))
    out = artifact(model(name), *options, "--kv-cache=f32", "--isa=avx2")
    weights, floats = weights_of(out, config, tensors), unstacked(config, tensors)
    for key, weight in weights.items():
        if ".experts." in key and key.endswith("weight"):
            assert np.linalg.norm(weight - floats[key]) <= 0.15 * np.linalg.norm(floats[key]), key
            if name == "codes" and options == ["--scheme=MXFP4A16"]:
                assert np.linalg.norm(weight - floats[key]) <= 0.05 * np.linalg.norm(floats[key]), key
    expected = Llama(config, weights, dtype=np.float64).logits(tokens)
    found = Runner(out).score(tokens)
    assert np.linalg.norm(found - expected) < 1e-5 * np.linalg.norm(expected)


def test_int8_activations(artifact, model):
    """Near to the oracle, which rounds activations behind the clamped gate, too, and far from floats."""
    tokens = random_tokens(6, 96, 97)
    config, tensors = read_folder(model("stacks of floats"))
    found = Runner(artifact(model("stacks of floats"), "--scheme=W8A8", "--kv-cache=f32", "--isa=avx2")).score(tokens)
    expected = Llama(config, tensors, W8A8, np.float64).logits(tokens)
    plain = Llama(config, tensors, dtype=np.float64).logits(tokens)
    error, distance = (np.median(np.linalg.norm(other - expected, axis=1) / np.linalg.norm(expected, axis=1)) for other in (found, plain))
    assert error < 5e-3 and distance > 3 * error


@pytest.mark.parametrize("method", ["gptq", "awq"])
def test_methods_run_the_model(model, tmp_path, method):
    """They see attention with its sinks; the program is the model of the weights that they leave."""
    config, tensors = read_folder(model("stacks of floats"))
    text = f"--tokens={write_tokens(tmp_path / 'text.safetensors', [random_tokens(seed, 48, 97) for seed in range(4)])}"
    out = compile_model(model("stacks of floats"), tmp_path / "out", "--scheme=W4A16", "--group-size=32", "--kv-cache=f32", "--isa=avx2", f"--method={method}", text)
    norms = {name: read_tensor(Artifact.open(out), name) for name in tensors if name.endswith("norm.weight")}
    tokens = random_tokens(7, 40, 97)
    expected = Llama(config, weights_of(out, config, tensors) | norms, dtype=np.float64).logits(tokens)
    assert np.linalg.norm(Runner(out).score(tokens) - expected) < 1e-5 * np.linalg.norm(expected)


def test_refused_methods(model, tmp_path):
    text = f"--tokens={write_tokens(tmp_path / 'text.safetensors', [random_tokens(seed, 48, 97) for seed in range(2)])}"
    result = run_tool("easyquant-compile", model("stacks of floats"), "-o", tmp_path / "out", "--scheme=W4A16", "--isa=avx2", "--method=lkd", text)
    assert_refused(result, "method lkd trains layers by their gradients, which sink logits of attention have none of yet; take gptq or awq")


@pytest.mark.parametrize("options", [["--kv-scheme=int8"], ["--kv-scheme=int8", "--kv-keys=pre-rope"], ["--kv-scheme=int8", "--kv-keys=hadamard"]])
def test_caches_of_codes_have_sinks_of_softmax(artifact, model, options):
    """Within the float window the logits are those of the oracle; behind it codes move them less than sinks do."""
    tokens = random_tokens(6, 96, 97)
    config, tensors = read_folder(model("stacks of floats"))
    expected = Llama(config, tensors, dtype=np.float64).logits(tokens)
    without = {name: np.full_like(value, -100) if name.endswith("sinks") else value for name, value in tensors.items()}
    distance = np.linalg.norm(Llama(config, without, dtype=np.float64).logits(tokens) - expected)
    out = artifact(model("stacks of floats"), "--scheme=none", "--kv-cache=f32", "--isa=avx2", "--kv-group=16", "--kv-residual=16", *options)
    runner = Runner(out)
    runner.session.prefill(np.asarray(tokens[:16], np.int32))
    assert np.abs(runner.session.logits - expected[15]).max() < 1e-4
    runner.session.reset()
    runner.session.prefill(np.asarray(tokens[:40], np.int32))
    found = [runner.session.logits.copy()]
    for token in tokens[40:]:
        runner.session.decode(token)
        found.append(runner.session.logits.copy())
    error = np.linalg.norm(np.array(found) - expected[39:])
    assert 0 < error < 0.5 * distance, (error, distance)


@pytest.mark.parametrize("options", [["--scheme=none"], ["--scheme=keep"]])
def test_other_sequences_change_no_bit(artifact, model, options):
    subject = _runtime.Model(str(artifact(model("codes"), *options)))
    batch = _runtime.Batch(subject, sequences=16, threads=2)
    ids, sessions = [batch.add() for _ in range(16)], [_runtime.Session(subject, context=96, threads=1) for _ in range(16)]
    random = np.random.default_rng(3)
    for _ in range(5):
        pieces = [np.asarray(random.integers(0, 97, random.integers(1, 12)), np.int32) for _ in ids]
        batch.append([(id, piece) for id, piece in zip(ids, pieces)])
        for id, piece, session in zip(ids, pieces, sessions):
            session.score(piece)
            assert np.array_equal(batch.logits(id), session.logits)


@pytest.mark.parametrize("name", ["stacks of floats", "one of five, no YaRN"])
def test_gguf_is_the_same_model(artifact, model, workspace, name):
    config, tensors = read_folder(model(name))
    path = write_gguf(workspace / f"{model(name).name}.gguf", config, tensors)
    tokens = random_tokens(5, 96, 97)
    expected = Llama(config, tensors, dtype=np.float64).logits(tokens)
    assert np.abs(Runner(artifact(path, "--scheme=none", "--isa=avx2")).score(tokens) - expected).max() < 1e-4


def test_exported_gguf_keeps_its_codes(tmp_path):
    """Gate and up apart, the codes of each in blocks of llama.cpp's; compiled again, the program has them."""
    config, tensors = in_mxfp4(*random_llama(17, **SIZES, vocab=330))
    folder = write_byte_level(write_model(tmp_path / "model", config, tensors), vocabulary=320)
    done = run_command_line("export", folder, "--format", "gguf", "-o", tmp_path / "gguf", "--scheme=keep")
    assert done.returncode == 0, done.stderr
    file = tmp_path / "gguf" / "model.gguf"
    reader = gguf.GGUFReader(file)
    stored = {tensor.name: tensor for tensor in reader.tensors}
    at = "model.layers.1.mlp.experts."
    both = mxfp4(tensors[at + "gate_up_proj_blocks"], tensors[at + "gate_up_proj_scales"])
    down = mxfp4(tensors[at + "down_proj_blocks"], tensors[at + "down_proj_scales"])
    for stack, values in (("ffn_gate_exps", both[:, ::2]), ("ffn_up_exps", both[:, 1::2]), ("ffn_down_exps", down)):
        tensor = stored[f"blk.1.{stack}.weight"]
        assert tensor.tensor_type == gguf.GGMLQuantizationType.MXFP4
        assert np.array_equal(gguf.quants.dequantize(tensor.data, tensor.tensor_type), values)
    assert np.array_equal(stored["blk.1.attn_sinks.weight"].data, tensors["model.layers.1.self_attn.sinks"])
    assert np.array_equal(stored["blk.1.ffn_up_exps.bias"].data, tensors[at + "gate_up_proj_bias"][:, 1::2])
    tokens = random_tokens(7, 60, 330)
    found = Runner(compile_model(file, tmp_path / "out", "--kv-cache=f32", "--isa=avx2")).score(tokens)
    # What is float there is in f16.
    halves = {name: value.astype(np.float16) if value.dtype == np.float32 and value.ndim == 2 and not name.endswith("_bias") else value
              for name, value in tensors.items()}
    expected = Llama(config, halves, dtype=np.float64).logits(tokens)
    assert np.linalg.norm(found - expected) < 1e-4 * np.linalg.norm(expected)


def changed(folder, out, change, **fields):
    """The model with other tensors and fields."""
    config, tensors = read_folder(folder)
    return write_model(out, config | fields, change(dict(tensors)), shards=2)


def test_refused_models(model, tmp_path):
    def refused(folder, *expected):
        assert_refused(run_tool("easyquant-compile", folder, "-o", tmp_path / "out", "--isa=avx2"), *expected)

    at = "model.layers.1.mlp.experts."

    def without(name):
        return lambda tensors: {key: value for key, value in tensors.items() if key != name}

    codes = model("codes")
    refused(changed(model("stacks of floats"), tmp_path / "limit", dict, swiglu_limit=5.0), "swiglu_limit: expected 7")
    refused(changed(model("stacks of floats"), tmp_path / "rope", dict, rope_scaling=None), "rope_parameters: missing", "gpt_oss")
    refused(changed(codes, tmp_path / "scales", without(at + "down_proj_scales")), at + "down_proj.scales", "is missing")
    refused(changed(codes, tmp_path / "blocks", lambda tensors: tensors | {at + "down_proj_blocks": tensors[at + "down_proj_blocks"][:, :-1].copy()}),
            at + "down_proj.blocks", "expected U8 of shape 512x16", "found U8 of shape 504x16")
    refused(changed(codes, tmp_path / "sinks", without("model.layers.1.self_attn.sinks")), "model.layers.1.self_attn.sinks", "is missing; expected shape [4]")
    refused(changed(codes, tmp_path / "bias", without(at + "gate_up_proj_bias")), at + "gate_up_proj_bias", "expected shape [8, 64]")
    refused(changed(model("stacks of floats"), tmp_path / "stack", without(at + "gate_up_proj")), at + "gate_up_proj", "is missing; expected shape [8, 64, 64]")
    nan = changed(codes, tmp_path / "nan", lambda tensors: tensors | {at + "down_proj_scales": np.full_like(tensors[at + "down_proj_scales"], 255)})
    refused(nan, "down_proj", "which is no number")
    refused(changed(model("stacks of floats"), tmp_path / "method", dict, quantization_config={"quant_method": "mxfp4"}), "no linear is quantized by it")


@pytest.mark.parametrize("options, expected", [
    (["--scheme=W8A8", "--tensor-parallel=2"], ["experts.gate_proj", "32 output features of experts in panels of 32", "legal degrees of tensor parallelism: 1"]),
    (["--scheme=W4A16", "--export=compressed-tensors"], ["gpt_oss", "mixtures of experts, which are not exported"]),
])
def test_refused_targets(model, tmp_path, options, expected):
    isa = [] if "--scheme=W8A8" not in options else ["--isa=avx2"]
    assert_refused(run_tool("easyquant-compile", model("stacks of floats"), "-o", tmp_path / "out", *isa, *options), *expected)


@pytest.mark.parametrize("name", [*MODELS, "codes"])
def test_exported_folder_is_the_model(model, tmp_path, name):
    """Imported as IR and written back in floats, the experts of a layer in one tensor again."""
    before, weights = read_folder(model(name))
    config, tensors = read_folder(written_back(model(name), tmp_path))
    if name == "codes":
        floats = unstacked(before, weights)
        assert all(np.array_equal(values, floats[key]) for key, values in unstacked(config, tensors).items())
    else:
        assert tensors.keys() == weights.keys() and all(np.array_equal(tensors[key], weights[key]) for key in weights)
    tokens = random_tokens(5, 60, 97)
    found, expected = (Llama(*each, dtype=np.float64).logits(tokens) for each in ((config, tensors), (before, weights)))
    assert np.abs(found - expected).max() < 1e-9
