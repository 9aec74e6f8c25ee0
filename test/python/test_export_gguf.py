# Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""GGUF files that are exported: blocks as the library gguf dequantizes them are an artifact's weights, in llama.cpp's order; read back as models."""

import json

import gguf
import numpy as np
import pytest
import yaml
from oracles.checkpoint import read_folder

from command_line import run_command_line as easyquant
from easyquant.evaluation.weights import read_site, read_tensor
from easyquant.runtime.artifact import Artifact
from helpers import ISA, assert_refused, compile_model, folder_contents, random_gpt2, random_llama, run_tool, write_byte_level, write_model

SIZES = {"hidden": 64, "ffn": 96, "heads": 4, "kv_heads": 2, "layers": 2, "vocab": 330}
MODELS = {
    "llama": random_llama(seed=3, **SIZES, tied=False, attention_bias=True, rope_scaling={
        "rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 8192}),
    "qwen2": random_llama(seed=4, **SIZES, arch="qwen2", tied=True),
    "phi3": random_llama(seed=7, **SIZES, arch="phi3", partial_rotary_factor=0.75, original_max_position_embeddings=24, rope_scaling={
        "type": "longrope", "short_factor": [1.0, 1.1, 1.3, 1.6, 2.0, 2.2], "long_factor": [1.0, 1.5, 2.0, 4.0, 8.0, 16.0]}),
    "gpt2": random_gpt2(seed=5, width=64, vocab=330),
}  # fmt: skip
BLOCKS = {"Q4_0": "Q4_0", "Q4_1": "Q4_1", "Q5_0": "Q5_0", "Q5_1": "Q5_1", "Q8_0": "Q8_0", "IQ4_NL": "IQ4_NL", "MXFP4A16": "MXFP4"}
WIDE = random_llama(seed=6, hidden=256, ffn=512, heads=4, kv_heads=2, layers=2, vocab=330, tied=False)
SUPER_BLOCKS = {"Q2_K": "IQ4_NL", "Q3_K": "IQ4_NL", "Q4_K": "Q5_0", "Q5_K": "Q5_1", "Q6_K": "Q8_0", "IQ4_XS": "IQ4_NL"}  # and what other columns have
NAMES = {"q_proj": "attn_q", "k_proj": "attn_k", "v_proj": "attn_v", "o_proj": "attn_output", "gate_proj": "ffn_gate", "up_proj": "ffn_up",
         "down_proj": "ffn_down"}  # fmt: skip


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    folder = tmp_path_factory.mktemp("models")
    # Matrices that stay float lose nothing in f16.
    for _, tensors in MODELS.values():
        for name, value in tensors.items():
            tensors[name] = value.astype(np.float16).astype(np.float32) if value.ndim == 2 else value
    return {name: write_byte_level(write_model(folder / name, *model), vocabulary=320) for name, model in [*MODELS.items(), ("wide", WIDE)]}


@pytest.fixture(scope="module")
def text(tmp_path_factory):
    file = tmp_path_factory.mktemp("text") / "text.txt"
    file.write_text("Some words to learn from, and some more of them. " * 80)
    return file


def export(model, out, *options):
    done = easyquant("export", model, "--format", "gguf", "-o", out, *options)
    assert done.returncode == 0, done.stderr
    assert [file.name for file in out.iterdir()] == ["model.gguf"]
    return out / "model.gguf"


def tensors_of(file):
    """{name: (type, values in rows)}"""
    found = {}
    for tensor in gguf.GGUFReader(file).tensors:
        values = tensor.data if tensor.tensor_type.name in ("F32", "F16") else gguf.quants.dequantize(tensor.data, tensor.tensor_type)
        found[tensor.name] = tensor.tensor_type.name, np.array(values)
    return found


def in_llama_order(weight, name):
    """Rows of q and k of a llama as llama.cpp's converter puts them."""
    heads = {"q_proj": SIZES["heads"], "k_proj": SIZES["kv_heads"]}.get(name)
    return weight if heads is None else weight.reshape(heads, 2, -1, *weight.shape[1:]).swapaxes(1, 2).reshape(weight.shape)


@pytest.mark.parametrize("scheme", BLOCKS)
@pytest.mark.parametrize("name", ["llama", "qwen2"])
def test_blocks_are_the_weights_of_an_artifact(models, tmp_path, name, scheme):
    file = export(models[name], tmp_path / "out", f"--scheme={scheme}")
    tensors, whole = tensors_of(file), gguf.GGUFReader(file).fields["general.file_type"].contents()
    assert gguf.LlamaFileType(whole).name.removeprefix("MOSTLY_").removesuffix("_MOE") == BLOCKS[scheme]
    artifact = Artifact.open(compile_model(models[name], tmp_path / "artifact", f"--scheme={scheme}", "--activation-basis=plain", "--head=Q8_0", ISA))
    seen = 0
    for site in artifact.manifest["sites"]:
        *_, layer, _, module = ["", "", "", *site["name"].split(".")]
        if site["name"] == "lm_head":
            stored = "token_embd.weight" if name == "qwen2" else "output.weight"
            expected = "Q8_0"
        elif module not in NAMES:
            continue
        else:
            stored, expected = f"blk.{layer}.{NAMES[module]}.weight", BLOCKS[scheme]
        kind, values = tensors[stored]
        weight = read_site(artifact, site["name"])
        assert kind == expected
        np.testing.assert_array_equal(values, in_llama_order(weight, module) if name == "llama" else weight)
        seen += 1
    assert seen == 15


def test_what_stays_float_is_there(models, tmp_path):
    tensors = tensors_of(export(models["llama"], tmp_path / "out"))
    source = read_folder(models["llama"])[1]
    kind, embedding = tensors["token_embd.weight"]
    assert kind == "F16"
    np.testing.assert_array_equal(embedding, source["model.embed_tokens.weight"].astype(np.float16))
    for stored, name in [("blk.1.attn_norm.weight", "model.layers.1.input_layernorm.weight"), ("output_norm.weight", "model.norm.weight"),
                         ("blk.0.attn_output.bias", "model.layers.0.self_attn.o_proj.bias")]:  # fmt: skip
        kind, values = tensors[stored]
        assert kind == "F32"
        np.testing.assert_array_equal(values, source[name])
    for module in ("q_proj", "k_proj"):
        bias = source[f"model.layers.1.self_attn.{module}.bias"]
        np.testing.assert_array_equal(tensors[f"blk.1.{NAMES[module]}.bias"][1], in_llama_order(bias, module))
    # Frequencies are divided as the scaling "llama3" asks: not the fast ones, the slow ones by its factor.
    kind, divisors = tensors["rope_freqs.weight"]
    assert kind == "F32" and len(divisors) == 8 and divisors[0] == 1 and divisors[-1] == 8 and np.all(np.diff(divisors) >= 0)


@pytest.mark.parametrize("name", MODELS)
def test_the_file_is_the_model(models, tmp_path, name):
    """Compiled again without quantization it has the logits of the artifact, whose weights it has."""
    scheme = "Q8_0"
    file = export(models[name], tmp_path / "out", f"--scheme={scheme}")
    compile_model(file, tmp_path / "again", "--scheme=none", "--kv-cache=f32", ISA)
    compile_model(models[name], tmp_path / "artifact", f"--scheme={scheme}", "--activation-basis=plain", "--head=Q8_0", "--kv-cache=f32", ISA)
    logits = {}
    for folder in ("again", "artifact"):
        out = tmp_path / f"{folder}.json"
        done = run_tool("easyquant-run", tmp_path / folder, "--tokens=5,17,80,42,7,99", "--max-new-tokens=1", "--json", out)
        assert done.returncode == 0, done.stderr
        logits[folder] = np.array(json.loads(out.read_text())["logits"])
    spread = np.std(logits["artifact"])
    np.testing.assert_allclose(logits["again"], logits["artifact"], atol=1e-4 * spread)


def test_methods_and_threads(models, tmp_path, text):
    options = ("--method=awq", f"--calib={text}", "--nsamples=2", "--seqlen=24")
    one = export(models["qwen2"], tmp_path / "one", *options, "--threads=1")
    two = export(models["qwen2"], tmp_path / "two", *options, "--threads=2")
    assert folder_contents(one.parent) == folder_contents(two.parent)
    artifact_options = ("--scheme=Q4_0", "--activation-basis=plain", "--head=Q8_0", *options)
    done = easyquant("compile", models["qwen2"], "-o", tmp_path / "artifact", *artifact_options)
    assert done.returncode == 0, done.stderr
    artifact, tensors = Artifact.open(tmp_path / "artifact"), tensors_of(one)
    np.testing.assert_array_equal(tensors["blk.0.ffn_up.weight"][1], read_site(artifact, "model.layers.0.mlp.up_proj"))
    np.testing.assert_array_equal(tensors["blk.0.ffn_norm.weight"][1], read_tensor(artifact, "model.layers.0.post_attention_layernorm.weight"))


@pytest.mark.parametrize("method", ["zeropoint", "zeropoint --weight-observer=mse", "awq", "gptq", "awq+signround"])
def test_minima_by_methods(models, tmp_path, text, method):
    """The file has the weights of the artifact, and its minima are no multiples of its scales."""
    learning = [] if method.startswith("zeropoint") else [f"--calib={text}", "--nsamples=4", "--seqlen=24"]
    options = ["--scheme=Q4_1", *f"--method={method}".split(), *learning]
    file = export(models["qwen2"], tmp_path / "out", *options)
    done = easyquant("compile", models["qwen2"], "-o", tmp_path / "artifact", *options, "--activation-basis=plain", "--head=Q8_0")
    assert done.returncode == 0, done.stderr
    artifact, tensors = Artifact.open(tmp_path / "artifact"), tensors_of(file)
    for module in ("up_proj", "down_proj"):
        kind, values = tensors[f"blk.0.{NAMES[module]}.weight"]
        assert kind == "Q4_1"
        np.testing.assert_array_equal(values, read_site(artifact, f"model.layers.0.mlp.{module}"))
    [blocks] = [tensor.data for tensor in gguf.GGUFReader(file).tensors if tensor.name == "blk.0.ffn_up.weight"]
    scales, minima = (blocks.reshape(-1, 20)[:, at : at + 2].copy().view(np.float16).astype(np.float64) for at in (0, 2))
    assert scales.min() > 0 and minima.min() < 0
    steps = minima / scales
    assert np.mean(np.abs(steps - np.rint(steps)) > 0.02) > 0.8


def test_minima_are_kept_and_converted(models, tmp_path):
    file = export(models["llama"], tmp_path / "first", "--scheme=Q4_1", "--head=Q5_1")
    done = easyquant("convert", file, "--format=gguf", "-o", tmp_path / "again")
    assert done.returncode == 0, done.stderr
    first, again = ({tensor.name: (tensor.tensor_type, tensor.data.tobytes()) for tensor in gguf.GGUFReader(path).tensors}
                    for path in (file, tmp_path / "again" / "model.gguf"))  # fmt: skip
    assert first == again and {kind.name for kind, _ in first.values()} == {"F32", "F16", "Q4_1", "Q5_1"}
    assert_refused(easyquant("convert", file, "--format=gptq", "-o", tmp_path / "no"), "gptq holds zero points, which are codes, and no minima")


@pytest.mark.parametrize("scheme, method", [
    ("Q6_K", ""), ("IQ4_XS", ""), ("Q4_K", "gptq --act-order"), ("Q5_K", "zeropoint --weight-observer=mse"),
    pytest.param("Q2_K", "awq", marks=pytest.mark.slow), pytest.param("Q3_K", "awq+signround", marks=pytest.mark.slow),
])  # fmt: skip
def test_super_blocks_are_the_weights_of_an_artifact(models, tmp_path, text, scheme, method):
    learns = any(name in method for name in ("gptq", "awq", "signround"))
    options = [f"--scheme={scheme}", f"--head={scheme}", *(f"--method={method}".split() if method else []),
               *([f"--calib={text}", "--nsamples=4", "--seqlen=24"] if learns else [])]  # fmt: skip
    file = export(models["wide"], tmp_path / "out", *options)
    tensors, whole = tensors_of(file), gguf.GGUFReader(file).fields["general.file_type"].contents()
    assert gguf.LlamaFileType(whole).name.removeprefix("MOSTLY_").removesuffix("_S" if scheme in ("Q3_K", "Q4_K", "Q5_K") else "") == scheme
    done = easyquant("compile", models["wide"], "-o", tmp_path / "artifact", *options, "--activation-basis=plain")
    assert done.returncode == 0, done.stderr
    artifact = Artifact.open(tmp_path / "artifact")
    for layer in (0, 1):
        for module, name in NAMES.items():
            kind, values = tensors[f"blk.{layer}.{name}.weight"]
            part = "mlp" if module.split("_")[0] in ("gate", "up", "down") else "self_attn"
            weight = read_site(artifact, f"model.layers.{layer}.{part}.{module}")
            heads = {"q_proj": 4, "k_proj": 2}.get(module)
            ordered = weight if heads is None else weight.reshape(heads, 2, -1, 256).swapaxes(1, 2).reshape(weight.shape)
            assert kind == scheme
            np.testing.assert_array_equal(values, ordered)
    assert tensors["output.weight"][0] == scheme
    np.testing.assert_array_equal(tensors["output.weight"][1], read_site(artifact, "lm_head"))


def test_super_blocks_are_as_good_as_they_can_be(models, tmp_path):
    """No scheme is farther from the weights than a step of its codes, and each bit halves the distance."""
    source = read_folder(models["wide"])[1]["model.layers.0.mlp.up_proj.weight"]
    errors = {}
    for scheme in SUPER_BLOCKS:
        _, values = tensors_of(export(models["wide"], tmp_path / scheme, f"--scheme={scheme}", "--weight-observer=mse"))["blk.0.ffn_up.weight"]
        errors[scheme] = np.sqrt(np.mean((values - source) ** 2) / np.mean(source**2))
    assert errors["Q6_K"] < 0.02 < errors["Q5_K"] < 0.04 < errors["Q4_K"] < 0.08 < errors["Q3_K"] < 0.18 < errors["Q2_K"] < 0.33
    assert abs(errors["IQ4_XS"] - errors["Q4_K"]) < 0.02


def test_search_mixes_them(models, tmp_path, text):
    learning = [f"--calib={text}", "--nsamples=4", "--seqlen=24"]
    done = easyquant("search", models["wide"], "--formats=gguf", "--avg-bits=4.4", "--search-samples=2", *learning, "-o", tmp_path / "types.yaml")
    assert done.returncode == 0, done.stderr
    recipe = yaml.safe_load((tmp_path / "types.yaml").read_text())
    used = {recipe["scheme"], *(rule["scheme"] for rule in recipe["sites"])}
    assert used & set(SUPER_BLOCKS)
    tensors = tensors_of(export(models["wide"], tmp_path / "out", f"--recipe={tmp_path / 'types.yaml'}", *learning))
    assert {kind for kind, values in tensors.values()} & set(SUPER_BLOCKS)


@pytest.mark.parametrize("scheme", ["Q3_K", "Q4_K"])
def test_super_blocks_are_kept_and_converted(models, tmp_path, scheme):
    file = export(models["wide"], tmp_path / "first", f"--scheme={scheme}", f"--head={scheme}")
    done = easyquant("convert", file, "--format=gguf", "-o", tmp_path / "again")
    assert done.returncode == 0, done.stderr
    first, again = ({tensor.name: (tensor.tensor_type, tensor.data.tobytes()) for tensor in gguf.GGUFReader(path).tensors}
                    for path in (file, tmp_path / "again" / "model.gguf"))  # fmt: skip
    assert first == again and {kind.name for kind, _ in first.values()} == {"F32", "F16", scheme}


@pytest.mark.parametrize("scheme", ["Q6_K", "Q4_K", "Q3_K"])
def test_other_columns_have_what_llama_cpp_gives_them(models, tmp_path, scheme):
    done = easyquant("export", models["qwen2"], "--format", "gguf", "-o", tmp_path / "out", f"--scheme={scheme}", f"--head={scheme}")
    assert done.returncode == 0, done.stderr
    fallback = SUPER_BLOCKS[scheme]
    assert f"have the scheme {fallback}: the blocks of {scheme} are of 256 columns, which do not divide theirs" in done.stderr
    assert {kind for name, (kind, values) in tensors_of(tmp_path / "out" / "model.gguf").items() if values.ndim == 2} == {fallback}


def test_a_gguf_file_keeps_its_tokenizer(models, tmp_path):
    first = export(models["qwen2"], tmp_path / "first", "--scheme=Q8_0")
    second = export(first, tmp_path / "second", "--scheme=Q4_0")
    fields = [gguf.GGUFReader(file).fields for file in (first, second)]
    kept = [name for name in fields[0] if name.startswith("tokenizer.")]
    assert len(kept) > 5
    for name in kept:
        assert [list(part) for part in fields[0][name].parts[1:]] == [list(part) for part in fields[1][name].parts[1:]], name


@pytest.mark.parametrize("options, parts", [
    (["--scheme=W6A16"], ["model.layers.0.self_attn.q_proj", "gguf holds the schemes Q4_0, Q4_1, Q5_0, Q5_1, Q8_0, IQ4_NL, MXFP4A16, Q2_K, Q3_K, Q4_K, Q5_K, Q6_K and IQ4_XS"]),
    (["--scheme=W4A16_ASYM", "--group-size=32"], ["gguf holds the schemes"]),
    (["--scheme=W8A8"], ["float activations"]),
    (["--activation-basis=hadamard", "--scheme=W8A8"], ["float activations"]),
    (["--kv-scheme=int8"], ["--kv-scheme is an option of artifacts"]),
])  # fmt: skip
def test_what_the_format_lacks_is_refused(models, tmp_path, options, parts):
    done = easyquant("compile", models["llama"], "--export=gguf", "-o", tmp_path / "out", *options)
    assert_refused(done, *parts)
    assert not (tmp_path / "out").exists()


def test_columns_that_blocks_do_not_divide_are_refused(tmp_path):
    model = write_byte_level(write_model(tmp_path / "model", *random_llama(seed=1, hidden=40, vocab=330)), vocabulary=320)
    assert_refused(easyquant("export", model, "--format=gguf", "-o", tmp_path / "out"), "gguf holds whole groups", "40 columns")


def test_without_a_tokenizer_there_is_no_file(models, tmp_path):
    done = run_tool("easyquant-compile", models["llama"], "-o", tmp_path / "out", "--export=gguf")
    assert done.returncode != 0 and "a GGUF file has a tokenizer" in done.stderr and not (tmp_path / "out").exists()
    config = json.loads((models["llama"] / "config.json").read_text())
    bare = write_model(tmp_path / "bare", config, MODELS["llama"][1])
    assert_refused(easyquant("export", bare, "--format=gguf", "-o", tmp_path / "out"), "tokenizer.json")
