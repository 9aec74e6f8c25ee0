# Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""GGUF files against the `gguf` package: every block type, bit for bit, and SmolLM2 by both ways in."""

import json

import gguf
import numpy as np
import pytest
from gguf import GGMLQuantizationType as Type
from safetensors import safe_open

from easyquant.evaluation.weights import read_site
from easyquant.runtime.artifact import Artifact
from oracles.llama import Llama

from helpers import ISA, Runner, assert_refused, compile_model, random_tokens, run_tool, sites_of, with_slow

HIDDEN, HEADS, KV_HEADS, INNER, VOCAB = 256, 4, 2, 512, 32
SHAPES = {
    "token_embd": (VOCAB, HIDDEN), "blk.0.attn_q": (HIDDEN, HIDDEN), "blk.0.attn_k": (HIDDEN // 2, HIDDEN),
    "blk.0.attn_v": (HIDDEN // 2, HIDDEN), "blk.0.attn_output": (HIDDEN, HIDDEN), "blk.0.ffn_gate": (INNER, HIDDEN),
    "blk.0.ffn_up": (INNER, HIDDEN), "blk.0.ffn_down": (HIDDEN, INNER),
}
NAMES = {
    "token_embd": "model.embed_tokens", "blk.0.attn_q": "model.layers.0.self_attn.q_proj",
    "blk.0.attn_k": "model.layers.0.self_attn.k_proj", "blk.0.attn_v": "model.layers.0.self_attn.v_proj",
    "blk.0.attn_output": "model.layers.0.self_attn.o_proj", "blk.0.ffn_gate": "model.layers.0.mlp.gate_proj",
    "blk.0.ffn_up": "model.layers.0.mlp.up_proj", "blk.0.ffn_down": "model.layers.0.mlp.down_proj",
}
QUANTIZERS = (Type.F32, Type.F16, Type.BF16, Type.Q8_0, Type.Q4_0, Type.Q4_1, Type.Q5_0, Type.Q5_1)
FP4 = (Type.MXFP4, Type.NVFP4)
# Byte offsets of the fp16 scales in a block of a type that the package cannot write.
K_QUANTS = {Type.Q2_K: (80, 82), Type.Q3_K: (108,), Type.Q4_K: (0, 2), Type.Q5_K: (0, 2), Type.Q6_K: (208,), Type.IQ4_NL: (0,), Type.IQ4_XS: (0,)}
# And in one of a type that it can write, whose codes are then not all that there are.
BLOCKS = {Type.Q4_0: (0,), Type.Q4_1: (0, 2), Type.Q5_0: (0,), Type.Q5_1: (0, 2), Type.Q8_0: (0,)}


def random_blocks(rng, kind, shape):
    """Blocks of random codes under scales of a sane size: (rows, bytes)."""
    elements, size = gguf.constants.GGML_QUANT_SIZES[kind]
    blocks = rng.integers(0, 256, (shape[0], shape[1] // elements, size), dtype=np.uint8)
    if kind == Type.Q8_K:
        blocks[..., :4] = rng.normal(0, 0.01, blocks.shape[:2]).astype(np.float32)[..., None].view(np.uint8)
    for at in (K_QUANTS | BLOCKS).get(kind, ()):
        scales = rng.normal(0, 0.01, blocks.shape[:2]).astype(np.float16)
        blocks[..., at:at + 2] = scales[..., None].view(np.uint8)
    if kind == Type.NVFP4:
        blocks[..., :4] = rng.integers(0x08, 0x20, (*blocks.shape[:2], 4))  # FP8 from 2^-6 to 2^-3
    return blocks.reshape(shape[0], -1)


def write_model(path, kind, seed=0, scales=(), random=False, head=None):
    """A LLaMA of one layer whose matrices are of type `kind`, `random` bytes but for scales of a sane size, with `scales` beside some, and perhaps with a
    `head` of floats of its own; returns the stored data by name."""
    rng = np.random.default_rng(seed)
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_context_length(64)
    writer.add_embedding_length(HIDDEN)
    writer.add_feed_forward_length(INNER)
    writer.add_block_count(1)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(KV_HEADS)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_token_list([f"token {i}" for i in range(VOCAB)])
    stored = {}
    for name, shape in SHAPES.items():
        if random or kind not in (*QUANTIZERS, Type.MXFP4):
            data = random_blocks(rng, kind, shape)
        else:
            data = gguf.quants.quantize(rng.normal(0, 0.1, shape).astype(np.float32), kind)
        stored[name] = data
        writer.add_tensor(f"{name}.weight", data, raw_dtype=kind)
    if head is not None:
        writer.add_tensor("output.weight", head)
    for name, scale in dict(scales).items():
        writer.add_tensor(name, np.array(scale, np.float32))
    for name in ("blk.0.attn_norm", "blk.0.ffn_norm", "output_norm"):
        writer.add_tensor(f"{name}.weight", rng.normal(1, 0.1, HIDDEN).astype(np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return stored


def hugging_face_rows(w, heads):
    """llama.cpp puts the dimensions i and i + D/2 of a head side by side; Hugging Face does not."""
    return w.reshape(heads, len(w) // heads // 2, 2, -1).swapaxes(1, 2).reshape(w.shape)


def dequantized(file):
    """The model as the package `gguf` reads it, under Hugging Face's names: (config, tensors)."""
    config = {"model_type": "llama", "hidden_size": HIDDEN, "intermediate_size": INNER, "num_hidden_layers": 1, "num_attention_heads": HEADS,
              "num_key_value_heads": KV_HEADS, "rms_norm_eps": 1e-5, "rope_theta": 10000.0, "vocab_size": VOCAB, "tie_word_embeddings": True,
              "max_position_embeddings": 64}  # fmt: skip
    names = {f"{name}.weight": f"{theirs}.weight" for name, theirs in NAMES.items()} | {
        "blk.0.attn_norm.weight": "model.layers.0.input_layernorm.weight", "blk.0.ffn_norm.weight": "model.layers.0.post_attention_layernorm.weight",
        "output_norm.weight": "model.norm.weight"}  # fmt: skip
    tensors = {}
    for tensor in gguf.GGUFReader(file).tensors:
        values = gguf.quants.dequantize(tensor.data, tensor.tensor_type).astype(np.float32)
        heads = {"blk.0.attn_q.weight": HEADS, "blk.0.attn_k.weight": KV_HEADS}.get(tensor.name)
        tensors[names[tensor.name]] = values if heads is None else hugging_face_rows(values, heads)
    return config, tensors


def to_folder(model, tmp_path):
    """The model as EasyQuant reads it: imported as IR and exported as an F32 folder."""
    option = "--import-gguf" if model.suffix == ".gguf" else "--import-hf"
    imported = run_tool("easyquant-translate", option, model, "-o", tmp_path / "model.mlir")
    assert imported.returncode == 0, imported.stderr
    exported = run_tool("easyquant-translate", "--export-hf", tmp_path / "folder", tmp_path / "model.mlir")
    assert exported.returncode == 0, exported.stderr
    return tmp_path / "folder"


@pytest.mark.parametrize("kind", [Type.Q8_0, Type.Q4_0, Type.Q4_K, Type.Q6_K], ids=lambda kind: kind.name)
def test_an_embedding_of_its_own_keeps_its_codes(tmp_path, kind):
    """Whatever scheme is given, which says nothing of it: they stand for the same numbers in fewer bytes."""
    head = np.random.default_rng(5).normal(0, 0.1, (VOCAB, HIDDEN)).astype(np.float32)
    stored = write_model(tmp_path / "model.gguf", kind, head=head)
    out = compile_model(tmp_path / "model.gguf", tmp_path / "out", "--scheme=W8A8", ISA)
    site = sites_of(out)["model.embed_tokens"]
    assert site["kept"] and site["weight_error"] == 0
    expected = gguf.quants.dequantize(stored["token_embd"], kind).astype(np.float32).reshape(VOCAB, HIDDEN)
    assert np.array_equal(read_site(Artifact.open(out), "model.embed_tokens"), expected)
    floats = compile_model(tmp_path / "model.gguf", tmp_path / "floats", "--scheme=W8A8", "--ignore=model.embed_tokens", ISA)
    assert "weight" not in sites_of(floats).get("model.embed_tokens", {}) or sites_of(floats)["model.embed_tokens"]["weight"] is None
    tokens = random_tokens(4, 40, VOCAB)
    assert np.array_equal(Runner(out).score(tokens), Runner(floats).score(tokens))
    saved = (floats / "weights.safetensors").stat().st_size - (out / "weights.safetensors").stat().st_size
    assert saved > 0.7 * expected.nbytes  # rows of 256 columns, of f32 before


@pytest.mark.parametrize("options", [["--target=sm_80,cpu", "--scheme=W8A8"], ["--export=gptq_v2", "--scheme=W4A16_ASYM"]], ids=lambda options: options[0])
def test_an_embedding_is_float_where_its_codes_are_not_taken(tmp_path, options):
    """GPUs have no kernel for Q5_0, and checkpoints of GPTQ no embeddings in codes. Nobody asked for them."""
    head = np.random.default_rng(5).normal(0, 0.1, (VOCAB, HIDDEN)).astype(np.float32)
    stored = write_model(tmp_path / "model.gguf", Type.Q5_0, head=head)
    expected = gguf.quants.dequantize(stored["token_embd"], Type.Q5_0).astype(np.float32)
    out = compile_model(tmp_path / "model.gguf", tmp_path / "out", *options, *(() if "--export=gptq_v2" in options else (ISA,)))
    with safe_open(next(iter(sorted(out.glob("*.safetensors")))), framework="numpy") as file:
        (name,) = [name for name in file.keys() if name.startswith("model.embed_tokens")]
        np.testing.assert_allclose(file.get_tensor(name).astype(np.float32), expected, rtol=2**-11, atol=2**-24)


@pytest.mark.parametrize("kind", [*QUANTIZERS, *K_QUANTS], ids=lambda kind: kind.name)
def test_every_bit_as_the_gguf_package(tmp_path, kind):
    stored = write_model(tmp_path / "model.gguf", kind)
    folder = to_folder(tmp_path / "model.gguf", tmp_path)
    with safe_open(folder / "model.safetensors", framework="numpy") as file:
        assert len(file.keys()) == len(SHAPES) + 3
        for name, data in stored.items():
            expected = gguf.quants.dequantize(data, kind).astype(np.float32).reshape(SHAPES[name])
            if name.endswith("attn_q"):
                expected = hugging_face_rows(expected, HEADS)
            elif name.endswith("attn_k"):
                expected = hugging_face_rows(expected, KV_HEADS)
            found = file.get_tensor(f"{NAMES[name]}.weight")
            assert found.dtype == np.float32 and found.shape == expected.shape
            np.testing.assert_array_equal(found.view(np.uint32), expected.view(np.uint32), err_msg=f"{name} as {kind.name}")
            assert np.ptp(found) > 0.1, "values that say nothing"


@pytest.mark.parametrize("kind", FP4, ids=lambda kind: kind.name)
def test_blocks_of_fp4(tmp_path, kind):
    """All values are those of the package, times the scale that NVFP4 may have beside a tensor; codes are kept."""
    scales = {"blk.0.attn_q.scale": [0.5], "blk.0.ffn_down.scale": [1.75], "blk.0.ffn_down.input_scale": [0.01]} if kind == Type.NVFP4 else {}
    file = tmp_path / "model.gguf"
    stored = write_model(file, kind, scales=scales)
    with safe_open(to_folder(file, tmp_path) / "model.safetensors", framework="numpy") as tensors:
        for name, data in stored.items():
            expected = gguf.quants.dequantize(data, kind).reshape(SHAPES[name]) * np.float32(scales.get(f"{name}.scale", [1])[0])
            if name.endswith(("attn_q", "attn_k")):
                expected = hugging_face_rows(expected, HEADS if name.endswith("attn_q") else KV_HEADS)
            np.testing.assert_array_equal(tensors.get_tensor(f"{NAMES[name]}.weight"), expected)
            assert np.ptp(expected) > 0.1
    kept = compile_model(file, tmp_path / "kept", "--kv-cache=f32", ISA)
    floats = compile_model(file, tmp_path / "float", "--scheme=none", "--kv-cache=f32", ISA)
    assert all(site["kept"] and site["weight_error"] == 0 for site in sites_of(kept).values())
    tokens = random_tokens(1, 24, VOCAB)
    a, b = Runner(kept).score(tokens), Runner(floats).score(tokens)
    np.testing.assert_allclose(a, b, rtol=0, atol=2e-5 * np.abs(b).max())


def test_scales_of_nvfp4_are_one_number(tmp_path):
    write_model(tmp_path / "model.gguf", Type.NVFP4, scales={"blk.0.attn_q.scale": [0.5, 1]})
    assert_refused(run_tool("easyquant-translate", "--import-gguf", tmp_path / "model.gguf"),
                   "tensor 'model.layers.0.self_attn.q_proj.scale': expected F32 of shape 1", "found F32 of shape 2")  # fmt: skip


@pytest.mark.parametrize("kind", [Type.IQ3_S, Type.TQ1_0], ids=lambda kind: kind.name)
def test_types_that_are_not_supported(tmp_path, kind):
    write_model(tmp_path / "model.gguf", kind)
    assert_refused(run_tool("easyquant-translate", "--import-gguf", tmp_path / "model.gguf"), "token_embd.weight",
                   kind.name, "Q4_K", "F16")


@pytest.mark.parametrize("kind, scheme, notes", [
    (Type.Q8_0, "W8A16", 1), (Type.Q8_0, "none", 0), (Type.Q8_0, "keep", 0), (Type.BF16, "W8A16", 0),
], ids=str)  # fmt: skip
def test_who_rounds_codes_again_is_told(tmp_path, kind, scheme, notes):
    """Once, by the compiler, whose words `easyquant compile` passes on."""
    file = tmp_path / "model.gguf"
    write_model(file, kind)
    done = run_tool("easyquant-compile", file, "-o", tmp_path / "out", f"--scheme={scheme}", ISA)
    note = f"note: {file} is quantized already (Q8_0 × 8), and its values are rounded once more; --scheme keep takes its codes, and a float file of the model keeps more of it\n"
    assert done.returncode == 0 and done.stderr.count("note: ") == notes and done.stderr.count(note) == notes, done.stderr


@pytest.mark.parametrize("kind", [*BLOCKS, *K_QUANTS], ids=lambda kind: kind.name)
def test_codes_of_types_with_a_scheme_are_kept(tmp_path, kind):
    """By default, of every tensor, the embedding that the head shares included, with any bytes for codes; half of the scales are negative.
    What is packed stands for what the package `gguf` reads, to the bit, and logits are those of these weights in double precision."""
    file = tmp_path / "model.gguf"
    write_model(file, kind, random=True)
    config, tensors = dequantized(file)
    kept = compile_model(file, tmp_path / "kept", "--kv-cache=f32", ISA)
    sites = sites_of(kept)
    assert len(sites) == 8 and all(site["kept"] and site["weight_error"] == 0 for site in sites.values())
    hasMinima = kind in (Type.Q4_1, Type.Q5_1, Type.Q2_K, Type.Q4_K, Type.Q5_K)
    for name, site in sites.items():
        assert site["weight"].get("minima", False) == hasMinima
        expected = tensors["model.embed_tokens.weight" if name == "lm_head" else f"{name}.weight"]
        np.testing.assert_array_equal(read_site(Artifact.open(kept), name), expected, err_msg=name)
    expected = Llama(config, tensors, dtype=np.float64).logits(tokens := random_tokens(1, 24, VOCAB))
    np.testing.assert_allclose(Runner(kept).score(tokens), expected, rtol=0, atol=2e-5 * np.abs(expected).max())


@pytest.mark.parametrize("kind", [Type.Q4_1, Type.Q5_1, Type.Q2_K, Type.Q4_K, Type.Q5_K], ids=lambda kind: kind.name)
def test_int8_activations_beside_minima(tmp_path, kind):
    """keepA8: the minima meet the sums of the codes, of groups of 32 columns or, beside groups of 16, of the token."""
    file = tmp_path / "model.gguf"
    write_model(file, kind)
    floats = compile_model(file, tmp_path / "float", "--kv-cache=f32", ISA)
    artifact = compile_model(file, tmp_path / "int8", "--scheme=keepA8", "--kv-cache=f32", ISA)
    sites = {name: site for name, site in sites_of(artifact).items() if name != "lm_head"}
    assert all(site["kept"] and site["input"]["bits"] == 8 for site in sites.values())
    assert {site["input"].get("group_size", 0) for site in sites.values()} == {0 if kind == Type.Q2_K else 32}
    tokens = random_tokens(1, 24, VOCAB)
    a, b = Runner(artifact).score(tokens), Runner(floats).score(tokens)
    error = np.sqrt(np.mean((a - b) ** 2) / np.mean(b**2))
    assert 1e-4 < error < 0.1


@pytest.mark.parametrize("kind", with_slow(["Q2_K", "Q3_K", "Q4_1", "Q5_K", "Q6_K", "IQ4_XS"], "Q3_K", "Q4_1", "Q5_K", "IQ4_XS"))
def test_gpus_read_the_codes(tmp_path, kind):
    """Minima, groups of 16, scales of either sign: kept codes have the CPU's logits beside float activations, which GPUs round to bf16."""
    file = tmp_path / "model.gguf"
    write_model(file, Type[kind])
    artifact = compile_model(file, tmp_path / "artifact", "--target=sm_80,cpu", ISA)
    tokens = random_tokens(1, 12, VOCAB)
    cpu, gpu = (Runner(artifact, device=device).score(tokens) for device in ("cpu", "simt"))
    assert np.abs(gpu - cpu).max() <= 0.02 * np.abs(cpu).max()


def test_codes_without_a_kernel_become_float(tmp_path):
    """GPUs have none for groups of 16 beside int8: the error names the site and the remedy, which makes the very floats that scheme none reads."""
    file, options = tmp_path / "model.gguf", ["--target=sm_80,cpu"]
    write_model(file, Type.Q6_K)
    done = run_tool("easyquant-compile", file, "-o", tmp_path / "out", "--scheme=keepA8", *options)
    assert_refused(done, "site 'model.layers.0.self_attn.q_proj': weights as int6 symmetric full range, groups of 16, super-blocks: the GPU kernels on int8 activations take group sizes that are multiples of 32",
                   "compile it with --target cpu; --dequantize makes such sites float")  # fmt: skip
    assert not (tmp_path / "out").exists()
    done = run_tool("easyquant-compile", file, "-o", tmp_path / "out", "--scheme=keepA8", "--dequantize", *options)
    assert done.returncode == 0 and "site 'model.layers.0.self_attn.q_proj' and 7 more have become float: a target has no kernel for the codes" in done.stderr
    floats = compile_model(file, tmp_path / "float", "--scheme=none", *options)
    assert all(site["weight"] is None for site in sites_of(tmp_path / "out").values())
    tokens = random_tokens(1, 24, VOCAB)
    np.testing.assert_array_equal(Runner(tmp_path / "out", device="cpu").score(tokens), Runner(floats, device="cpu").score(tokens))


def test_codes_without_a_scheme_are_not_kept(tmp_path):
    file = tmp_path / "model.gguf"
    write_model(file, Type.Q8_K)
    done = run_tool("easyquant-compile", file, "-o", tmp_path / "out", "--scheme=keep", ISA)
    assert_refused(done, "and this one has floats, or codes that no scheme has; give another scheme")
    assert not (tmp_path / "out").exists()
    assert "scheme" in (recipe := json.loads((compile_model(file, tmp_path / "default", ISA) / "recipe.json").read_text())) and recipe["scheme"] == "W8A8"


def test_smollm2_from_both_containers(smollm2_gguf, smollm2, tmp_path):
    """All 134,515,008 weights and the configuration are the same, whichever way in."""
    folder = to_folder(smollm2_gguf, tmp_path)
    ours, theirs = (json.loads((path / "config.json").read_text()) for path in (folder, smollm2))
    assert {key: theirs[key] for key in ours} == ours
    with safe_open(folder / "model.safetensors", framework="numpy") as a, \
            safe_open(smollm2 / "model.safetensors", framework="numpy") as b:
        assert sorted(a.keys()) == sorted(b.keys()) and len(a.keys()) == 272
        total = 0
        for name in a.keys():
            found, expected = a.get_tensor(name), b.get_tensor(name)
            assert np.array_equal(found.view(np.uint32), expected.view(np.uint32)), name
            total += found.size
        assert total == 134_515_008
