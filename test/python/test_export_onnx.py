# Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""ONNX models that are exported, checked by onnx and run by ONNX Runtime: the weights and logits of an artifact of the same recipe."""

import json

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import TensorProto
from oracles import clients

from calibrating import write_tokens
from command_line import run_command_line as easyquant
from easyquant.evaluation.weights import read_site
from easyquant.runtime.artifact import Artifact
from exporting import Weights, read_checkpoint, unpack
from helpers import (assert_refused, compile_model, folder_contents, random_gemma4, random_gpt2, random_llama, random_tokens, run_tool, write_letters,
                     write_model)

SIZES = {"hidden": 64, "ffn": 96, "heads": 4, "kv_heads": 2, "layers": 2}
LLAMA3 = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 8192}
MODELS = {
    "llama": random_llama(3, **SIZES, tied=False, attention_bias=True, rope_scaling=LLAMA3),
    "tied": random_llama(7, **SIZES, tied=True),
    "qwen2": random_llama(4, **SIZES, arch="qwen2", tied=True),
    "qwen3": random_llama(5, **SIZES, arch="qwen3", tied=False),
    "mistral": random_llama(6, **SIZES, arch="mistral", tied=False, sliding_window=5),
    "olmo2": random_llama(8, **SIZES, arch="olmo2", tied=False),
    "smollm3": random_llama(9, **SIZES, arch="smollm3", no_rope_layers=[1, 0]),
    "gemma2": random_llama(10, **SIZES, arch="gemma2", attn_logit_softcapping=1.5, final_logit_softcapping=3.0, sliding_window=5),
    "gemma4": random_gemma4(12, hidden=64, ffn=96, head_dim=16, full_head_dim=32, layer_types=["sliding_attention", "full_attention"], layers=2,
                            attention_k_eq_v=True, num_global_key_value_heads=1, final_logit_softcapping=3.0, sliding_window=5),
    "granite": random_llama(11, **SIZES, arch="granite", residual_multiplier=0.4, embedding_multiplier=3.0, logits_scaling=2.0),
    "phi3": random_llama(10, **SIZES, arch="phi3", partial_rotary_factor=0.75),
    "gpt2": random_gpt2(5, width=64),
}
PLAIN, GROUPS = "--activation-basis=plain", "--group-size=32"
# Scheme and its options, the version of operators that it needs, and the type of its codes.
WEIGHTS = {
    "W8A16": ((), 18, TensorProto.UINT8),
    "W8A16, groups": ((GROUPS,), 21, TensorProto.INT8),
    "W8A16_ASYM": ((), 18, TensorProto.UINT8),
    "W6A16_ASYM": ((GROUPS,), 21, TensorProto.INT8),
    "W5A16": ((GROUPS,), 21, TensorProto.INT8),
    "W4A16": ((GROUPS,), 21, TensorProto.INT4),
    "W4A16, rows": (("--group-size=0",), 21, TensorProto.INT4),
    "W4A16_ASYM": ((GROUPS,), 21, TensorProto.INT4),
    "W4A16, f16 scales": ((GROUPS, "--scale-type=f16"), 21, TensorProto.INT4),
    "W4A16, two levels of scales": ((GROUPS, "--scale-type=two-level"), 21, TensorProto.INT4),
    "W3A16_ASYM": ((GROUPS,), 21, TensorProto.INT4),
    "W2A16": ((GROUPS,), 25, TensorProto.INT2),
    "W2A16_ASYM": ((GROUPS,), 25, TensorProto.INT2),
    "Q4_0": ((), 21, TensorProto.INT4),
}  # fmt: skip
STATIC = ("--activations=static", "--sinks=none")
ACTIVATIONS = {
    "W8A8, static": (("--method=absmax", *STATIC), 18),
    "W8A8, static with zero points": (("--method=zeropoint", *STATIC), 18),
    "W8A8, static, rotated": (("--method=absmax", *STATIC, "--activation-basis=hadamard"), 18),
    "W8A8": (("--method=absmax",), 21),
    "W8A8, rotated": (("--method=absmax", "--activation-basis=hadamard"), 21),
    "W8A8, groups of tokens": (("--method=absmax", "--activation-group-size=32"), 21),
    "W4A8": ((GROUPS,), 21),
    "FP8": ((), 19),
    "FP8_DYNAMIC": ((), 21),
}


class Onnx:
    """A model in ONNX Runtime, on floats where the runtime would round activations of its own accord."""

    def __init__(self, folder):
        path = folder / "model.onnx"
        onnx.checker.check_model(path, full_check=True)
        options = ort.SessionOptions()
        options.intra_op_num_threads = 1
        options.add_session_config_entry("session.qdq_matmulnbits_accuracy_level", "1")
        self.session = ort.InferenceSession(path, options, providers=["CPUExecutionProvider"])
        self.graph = onnx.load(path, load_external_data=False)
        self.caches = [value for value in self.session.get_inputs() if value.name.startswith("past_key_values.")]

    @property
    def opset(self):
        return self.graph.opset_import[0].version

    def step(self, tokens, past=None, mask=None, positions=None):
        """Logits and the cache behind the tokens, batch x length."""
        batch, length = tokens.shape
        if past is None:
            past = {value.name: np.zeros((batch, value.shape[1], 0, value.shape[3]), np.float32) for value in self.caches}
        begin = next(iter(past.values())).shape[2]
        feeds = {"input_ids": tokens, "attention_mask": np.ones((batch, begin + length)) if mask is None else mask,
                 "position_ids": np.tile(np.arange(begin, begin + length), (batch, 1)) if positions is None else positions}  # fmt: skip
        outputs = ["logits"] + [value.name.replace("past_key_values", "present") for value in self.caches]
        logits, *present = self.session.run(outputs, {name: value.astype(np.int64) for name, value in feeds.items()} | past)
        return logits, dict(zip((value.name for value in self.caches), present))

    def score(self, tokens):
        return self.step(np.array([tokens]))[0][0]


def export(model, out, *options):
    return compile_model(model, out, "--export=onnx", *options)


def scheme_of(name):
    return f"--scheme={name.partition(',')[0]}"


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    folder = tmp_path_factory.mktemp("onnx")
    return {name: write_model(folder / name, *model) for name, model in MODELS.items()}


@pytest.fixture(scope="module")
def tokens(tmp_path_factory):
    return write_tokens(tmp_path_factory.mktemp("tokens") / "tokens.safetensors", [random_tokens(seed, 40, 97) for seed in range(3)])


def dequantized(path):
    """{site: what DequantizeLinear makes of its weight in ONNX Runtime, N x K}"""
    model = onnx.load(path)
    constants = {tensor.name for tensor in model.graph.initializer}
    nodes = [node for node in model.graph.node if node.op_type == "DequantizeLinear" and node.input[0] in constants]
    outputs = [onnx.helper.make_tensor_value_info(node.output[0], TensorProto.FLOAT, None) for node in nodes]
    used = {name for node in nodes for name in node.input}
    graph = onnx.helper.make_graph(nodes, "weights", [], outputs, [tensor for tensor in model.graph.initializer if tensor.name in used])
    alone = onnx.helper.make_model(graph, opset_imports=model.opset_import, ir_version=model.ir_version)
    values = ort.InferenceSession(alone.SerializeToString(), providers=["CPUExecutionProvider"]).run(None, {})
    transposed = {node.input[1] for node in model.graph.node if node.op_type == "Gemm" and not node.attribute[0].i}
    found = {}
    for node, value in zip(nodes, values):
        found[node.input[0].removesuffix(".weight_quantized")] = value.T if node.output[0] in transposed else value
    return found


@pytest.mark.parametrize("name", WEIGHTS)
def test_weights_and_logits_are_those_of_the_artifact(models, artifact, runner, tmp_path, name):
    options, opset, kind = WEIGHTS[name]
    options = (scheme_of(name), PLAIN, "--head=float", *options)
    model = models["qwen2"]
    out = export(model, tmp_path / "out", *options)
    expected = runner(model, *options, "--kv-cache=f32")
    found = Onnx(out)
    assert found.opset == opset
    assert {tensor.data_type for tensor in found.graph.graph.initializer if tensor.name.endswith("_quantized")} == {kind}
    weights = dequantized(out / "model.onnx")
    compiled = Artifact.open(artifact(model, *options, "--kv-cache=f32"))
    sites = [site["name"] for site in compiled.manifest["sites"] if site["weight"]]
    assert set(weights) == set(sites) and len(sites) == 14
    for site in sites:
        np.testing.assert_array_equal(weights[site], read_site(compiled, site))
    read = random_tokens(2, 24, 97)
    assert_close(found.score(read), expected.score(read), 2e-5)


def assert_close(found, expected, bound):
    """Each token's logits, relative to their size."""
    rows = np.linalg.norm(found - expected, axis=1) / np.linalg.norm(expected, axis=1)
    assert rows.max() < bound, rows


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_quantized_activations(models, runner, tokens, tmp_path, name):
    options, opset = ACTIVATIONS[name]
    options = (scheme_of(name), "--head=float", *([] if "rotated" in name else [PLAIN]), *options)
    if "--activations=static" in options or name == "FP8":
        options += (f"--tokens={tokens}",)
    found = Onnx(export(models["llama"], tmp_path / "out", *options))
    assert found.opset == opset
    read = random_tokens(2, 24, 97)
    expected = runner(models["llama"], *options, "--kv-cache=f32").score(read)
    rows = np.linalg.norm(found.score(read) - expected, axis=1) / np.linalg.norm(expected, axis=1)
    # A code that rounds the other way, which one in some thousands does, moves the logits of its token by more than arithmetic does.
    assert np.median(rows) < 2e-5 and rows.max() < 3e-2


@pytest.mark.parametrize("name", MODELS)
def test_every_architecture_goes_out(models, runner, tmp_path, name):
    options = ("--scheme=W8A16", PLAIN, "--head=float")
    model = Onnx(export(models[name], tmp_path / "out", *options))
    read = random_tokens(2, 24, 97)
    assert_close(model.score(read), runner(models[name], *options, "--kv-cache=f32").score(read), 2e-5)
    # Step by step, after a prompt.
    whole = model.score(read)
    logits, past = model.step(np.array([read[:9]]))
    pieces = [logits[0]]
    for begin, end in [(9, 10), (10, 11), (11, 20), (20, 24)]:
        logits, past = model.step(np.array([read[begin:end]]), past)
        pieces.append(logits[0])
    assert_close(np.concatenate(pieces), whole, 1e-5)


def test_sequences_of_a_batch_have_their_own_lengths(models, tmp_path):
    """Shorter ones are padded on the left, as transformers and ONNX Runtime GenAI do."""
    model = Onnx(export(models["mistral"], tmp_path / "out", GROUPS))
    long, short = random_tokens(1, 12, 97), random_tokens(2, 7, 97)
    mask = np.array([[1] * 12, [0] * 5 + [1] * 7])
    positions = np.maximum(np.cumsum(mask, axis=1) - 1, 0)
    logits, past = model.step(np.array([long, [0] * 5 + list(short)]), mask=mask, positions=positions)
    assert np.isfinite(logits).all()
    assert_close(logits[0], model.score(long), 1e-5)
    assert_close(logits[1, 5:], model.score(short), 1e-5)
    following, _ = model.step(np.array([[3], [4]]), past, np.concatenate([mask, [[1], [1]]], axis=1), np.array([[12], [7]]))
    assert_close(following[:, 0], np.array([model.score([*long, 3])[-1], model.score([*short, 4])[-1]]), 1e-5)


@pytest.mark.parametrize("method", ["absmax", "zeropoint"])
def test_codes_of_static_activations_are_those_of_kernels(models, tokens, tmp_path, method):
    """Definition 3 of easyquant/Numerics/Quantize.h on the same inputs, those outside of the range among them."""
    out = export(models["llama"], tmp_path / "out", "--scheme=W8A8", f"--method={method}", *STATIC, f"--tokens={tokens}")
    model = onnx.load(out / "model.onnx")
    constants = {tensor.name: onnx.numpy_helper.to_array(tensor) for tensor in model.graph.initializer}
    nodes = [node for node in model.graph.node if node.op_type == "QuantizeLinear"]
    assert len(nodes) == 8  # what q, k and v read, what gate and up do, and two others of each of two layers
    x = (np.random.default_rng(1).standard_normal((64, 64)) * 3).astype(np.float32)
    for node in nodes:
        scale, zero = constants[node.input[1]], constants[node.input[2]].astype(int) - 128
        parts = [made for made in model.graph.node if made.op_type == "Max" and made.output[0] == node.input[0]] + [node]
        assert len(parts) == (2 if method == "absmax" else 1)
        value = onnx.helper.make_tensor_value_info(parts[0].input[0], TensorProto.FLOAT, None)
        codes = onnx.helper.make_tensor_value_info(node.output[0], TensorProto.UINT8, None)
        used = [tensor for tensor in model.graph.initializer if any(tensor.name in part.input for part in parts)]
        alone = onnx.helper.make_model(onnx.helper.make_graph(parts, "codes", [value], [codes], used), opset_imports=model.opset_import, ir_version=8)
        found = ort.InferenceSession(alone.SerializeToString(), providers=["CPUExecutionProvider"]).run(None, {value.name: x})[0]
        expected = np.clip(np.rint(x * (np.float32(1) / scale)) + zero, -127 if method == "absmax" else -128, 127)
        np.testing.assert_array_equal(found.astype(int) - 128, expected)


# --------------------------------------------------------------------------------------------------------------- folders


def test_the_command_line_writes_a_folder_that_runs(models, tmp_path):
    model = write_letters(write_model(tmp_path / "model", *random_llama(11, **SIZES, vocab=97)))
    (model / "generation_config.json").write_text('{"eos_token_id": 2}')
    done = easyquant("export", model, "--format", "onnx", "-o", tmp_path / "out")
    assert done.returncode == 0, done.stderr
    assert "checkpoint in onnx" in done.stdout
    found = Onnx(tmp_path / "out")
    nodes = [node for node in found.graph.graph.node if "block_size" in {attribute.name for attribute in node.attribute}]
    assert len(nodes) == 14 and found.opset == 21  # W4A16 in groups of 32
    config = json.loads((tmp_path / "out" / "config.json").read_text())
    assert config["torch_dtype"] == "float32" and "quantization_config" not in config
    for name in ("tokenizer.json", "tokenizer_config.json", "generation_config.json"):
        assert (tmp_path / "out" / name).read_bytes() == (model / name).read_bytes()
    assert sorted(path.name for path in (tmp_path / "out").glob("model*")) == ["model.onnx", "model.onnx.data"]


def test_names_are_those_of_optimum(models, tmp_path):
    session = Onnx(export(models["gpt2"], tmp_path / "out", "--scheme=none", "--opset=22")).session
    cache = ["batch_size", 4, "past_sequence_length", 16]
    assert {value.name: value.shape for value in session.get_inputs()} == {
        "input_ids": ["batch_size", "sequence_length"], "attention_mask": ["batch_size", "total_sequence_length"],
        "position_ids": ["batch_size", "sequence_length"],
        **{f"past_key_values.{layer}.{kind}": cache for layer in range(2) for kind in ("key", "value")}}  # fmt: skip
    assert {value.name: value.shape for value in session.get_outputs()} == {
        "logits": ["batch_size", "sequence_length", 101],
        **{f"present.{layer}.{kind}": ["batch_size", 4, "total_sequence_length", 16] for layer in range(2) for kind in ("key", "value")}}  # fmt: skip


def test_bytes_do_not_depend_on_threads(models, tmp_path):
    """Two columns of 4 bits share a byte, also where rows are an odd number."""
    model = write_model(tmp_path / "odd", *random_llama(2, hidden=64, ffn=67, heads=4, kv_heads=1, vocab=97))
    options = ("--scheme=W4A16_ASYM", "--group-size=0")
    one, two = (export(model, tmp_path / f"{threads}", *options, f"--threads={threads}") for threads in (1, 3))
    assert folder_contents(one) == folder_contents(two)
    Onnx(one).score([1, 2, 3])


def test_a_dry_run_predicts_the_bytes(models, tmp_path):
    plans = json.loads(run_tool("easyquant-compile", models["llama"], "--export=onnx", "--dry-run").stdout)
    model = onnx.load(export(models["llama"], tmp_path / "out") / "model.onnx")
    bits = {TensorProto.FLOAT: 32, TensorProto.INT4: 4}
    stored = sum(int(np.prod(t.dims)) * bits[t.data_type] // 8 for t in model.graph.initializer if "." in t.name and not t.name.startswith("real"))
    assert plans["other_bytes"] + sum(site["bytes"] for site in plans["sites"]) == stored


# -------------------------------------------------------------------------------------------------- ONNX Runtime GenAI


def multiply_by_codes(linear, bits, block):
    """x = 1 times the weight, by the operator and in the layout of onnxruntime_genai.models.builder 0.18 (loaders/base.py: pack_ort_format)."""
    rows, columns = linear.codes.shape

    def packed(values):  # fields of a byte along the last dimension, the first lowest
        fields = 8 // bits
        values = np.pad(values, ((0, 0), (0, -values.shape[1] % fields))).reshape(rows, -1, fields)
        return (values << np.arange(0, 8, bits)).sum(axis=2).astype(np.uint8)

    constants = {"weight": packed(linear.codes).reshape(rows, columns // block, -1), "scales": linear.scales.astype(np.float32).reshape(-1),
                 "zero_points": packed(linear.zero_points).reshape(-1)}  # fmt: skip
    node = onnx.helper.make_node("MatMulNBits", ["x", *constants], ["y"], domain="com.microsoft", K=columns, N=rows, bits=bits, block_size=block, accuracy_level=1)
    value = lambda name, shape: onnx.helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)  # noqa: E731
    graph = onnx.helper.make_graph([node], "linear", [value("x", [columns, columns])], [value("y", [columns, rows])],
                                   [onnx.numpy_helper.from_array(array, name) for name, array in constants.items()])  # fmt: skip
    opsets = [onnx.helper.make_opsetid("", 21), onnx.helper.make_opsetid("com.microsoft", 1)]
    model = onnx.helper.make_model(graph, opset_imports=opsets, ir_version=10)
    session = ort.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    return session.run(None, {"x": np.eye(columns, dtype=np.float32)})[0].T


@pytest.mark.parametrize("format, scheme", [("gptq", "W4A16"), ("gptq", "W4A16_ASYM"), ("gptq", "W8A16"), ("gptq", "W8A16_ASYM"), ("awq", "W4A16_ASYM")])
def test_genai_multiplies_by_the_weights_of_gptq_and_awq_folders(models, tmp_path, format, scheme):
    options = (f"--scheme={scheme}", GROUPS, "--scale-type=f16")
    folder = compile_model(models["llama"], tmp_path / "out", f"--export={format}", *options)
    expected = Weights(models["llama"], tmp_path / "weights", scheme, *options[1:])
    config, tensors, _ = read_checkpoint(folder)
    for site in expected.sites[:7]:
        linear = clients.read_linear(tensors, site["name"], config)
        codes, scales, zeros, _ = unpack(expected.tensors, site)
        weight = (codes - (0 if zeros is None else np.repeat(zeros, 32, axis=1))).astype(np.float32) * np.repeat(scales, 32, axis=1)
        np.testing.assert_array_equal(multiply_by_codes(linear, int(scheme[1]), 32), weight)


# ------------------------------------------------------------------------------------------------------------ bad input


@pytest.mark.parametrize("options, expected", [
    (("--scheme=MXFP4A16",), ("site 'model.layers.0.self_attn.q_proj': onnx holds integers, and FP8 with a scale a row, found f4E2M1FN", "take an integer scheme")),
    (("--scheme=NF4A16",), ("onnx holds integers, and FP8 with a scale a row, found nf4",)),
    (("--scheme=W2A16", "--opset=21"), ("site 'model.layers.0.self_attn.q_proj': opset 21 has no operators for weights as int2", "take --opset 25")),
    (("--scheme=W8A8", "--opset=20"), ("opset 20 has no operators for weights as int8", "beside activations as int8 symmetric, per token", "--opset 21")),
    (("--opset=17",), ("opset 17: expected an integer from 18 to 25",)),
    (("--opset=26",), ("opset 26: expected an integer from 18 to 25",)),
    (("--group-size=40",), ("onnx holds whole groups: 64 columns are no multiple of 40",)),
    (("--head=int8",), ("onnx holds float embeddings; take --head float where it is tied to the head",)),
    (("--activations=static", "--sinks=keep", "--scheme=W8A8", "--dry-run", "--with-text"), ("onnx holds activations in int8 or FP8", "take --sinks none")),
    (("--kv-scheme=int8",), ("--kv-scheme is an option of artifacts",)),
    (("--activations=online-ema", "--scheme=W8A8", "--dry-run", "--with-text"), ("onnx holds no activations whose scales follow a sequence",)),
])  # fmt: skip
def test_what_onnx_does_not_say_is_refused(models, tmp_path, options, expected):
    out = tmp_path / "out"
    assert_refused(run_tool("easyquant-compile", models["tied"], "--export=onnx", "-o", out, *options), *expected)
    assert not list(tmp_path.iterdir())


def test_the_opset_is_of_onnx_alone(models, tmp_path):
    for options, expected in [(["--export=gptq"], "--opset is an option of --export onnx, and gptq has no operators"), ([], "--opset is an option of --export onnx")]:
        assert_refused(run_tool("easyquant-compile", models["tied"], "-o", tmp_path / "out", "--opset=21", *options), expected)
