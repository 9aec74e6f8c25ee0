# Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Checkpoints that are quantized, compiled as they are: codes, scales and zero points are those that their clients unpack, and the logits
those of the weights that these stand for."""

import json
import re
import shutil

import gguf
import numpy as np
import pytest
from oracles import clients
from oracles.checkpoint import read_folder, read_safetensors
from oracles.llama import Llama

from easyquant.evaluation.weights import read_site
from easyquant.runtime.artifact import Artifact
from command_line import run_command_line
from exporting import GROUP, SIZES, assert_same_weight, export, write_models
from helpers import ISA, Runner, assert_refused, compile_model, random_llama, random_tokens, run_tool, sites_of, write_byte_level, write_model

SITES = [f"model.layers.{i}.{name}" for i in range(2) for name in (*(f"self_attn.{x}_proj" for x in "qkvo"), *(f"mlp.{x}_proj" for x in ("gate", "up", "down")))]
GPTQ = {"quant_method": "gptq", "bits": 4, "group_size": GROUP, "sym": False, "desc_act": False, "checkpoint_format": "gptq_v2"}


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    return write_models(tmp_path_factory.mktemp("models"))


class Kept:
    """What the compiler packs for CPUs of a folder by scheme keep, without the rest of an artifact."""

    def __init__(self, folder, out):
        out.mkdir()
        passes = f"equant-absmax{{scheme=keep}},equant-quantize,equant-materialize-weights{{output={out}}}"
        for arguments in ([f"--pipeline={passes}"], ["--dry-run"]):
            result = run_tool("easyquant-compile", folder, *arguments)
            assert result.returncode == 0, result.stderr
        self.sites = [site | {"tensor": f"{site['name']}.weight"} for site in json.loads(result.stdout)["sites"]]
        self.tensors = read_safetensors(out / "weights.safetensors")


def words(rng, *shape):
    return rng.integers(0, 2**32, shape, dtype=np.uint32).view(np.int32)


def random_gptq(seed, bits=4, order=None, **config):
    """A model whose linears have any words there are in place of their weights, and scales of either sign."""
    base, tensors = random_llama(seed=seed, **SIZES | {"ffn": 128 if seed == 23 else 96}, tied=False)
    rng = np.random.default_rng(seed)
    for site in SITES:
        rows, columns = tensors.pop(f"{site}.weight").shape
        groups = columns // GROUP
        scales = rng.normal(0, 0.02, (groups, rows)).astype(np.float16)
        scales[0, 0], scales[-1, 1] = 0, 3e-6  # of a group of zeros, and one that is subnormal
        index = np.arange(columns, dtype=np.int32) // GROUP
        tensors |= {f"{site}.qweight": words(rng, columns * bits // 32, rows), f"{site}.qzeros": words(rng, groups, rows * bits // 32),
                    f"{site}.scales": scales, f"{site}.g_idx": index if order is None else index[order(columns)]}  # fmt: skip
    return base | {"quantization_config": GPTQ | {"bits": bits} | config}, tensors


def dequantized(config, tensors):
    """The same model in floats: scale · (code − zero point) in double, rounded once."""
    quantization, floats = config["quantization_config"], dict(tensors)
    for site in SITES:
        index = floats.pop(f"{site}.g_idx")
        linear = clients.gptq(tensors | {f"{site}.g_idx": np.arange(len(index), dtype=np.int32) // GROUP}, site, quantization)
        for name in ("qweight", "qzeros", "scales"):
            del floats[f"{site}.{name}"]
        codes, scales, zeros = (x.astype(np.float64) for x in (linear.codes, linear.scales, linear.zero_points))
        floats[f"{site}.weight"] = (scales[:, index] * (codes - zeros[:, index])).astype(np.float32)
    return {key: value for key, value in config.items() if key != "quantization_config"}, floats


def assert_same_logits(artifact, config, floats):
    tokens = random_tokens(3, 24, config["vocab_size"])
    expected = Llama(config, floats, dtype=np.float64).logits(tokens)
    np.testing.assert_allclose(Runner(artifact).score(tokens), expected, rtol=0, atol=2e-5 * np.abs(expected).max())


CASES = [
    *[("gptq", f"W{bits}A16{zeros}") for bits in (2, 3, 4, 8) for zeros in ("", "_ASYM") if (bits, zeros) != (2, "_ASYM")],
    *[("gptq_v2", scheme) for scheme in ("W4A16", "W2A16_ASYM", "W4A16_ASYM")],
    *[("awq", scheme) for scheme in ("W4A16", "W4A16_ASYM")],
    *[("compressed-tensors", f"W{bits}A16{zeros}") for bits in (2, 3, 4, 5, 6, 8) for zeros in ("", "_ASYM")],
    *[("compressed-tensors", scheme) for scheme in ("W8A8", "W4A8", "FP8_DYNAMIC", "NVFP4A16", "MXFP4A16")],
]


@pytest.mark.parametrize("format, scheme", CASES)
def test_codes_are_those_of_the_client(models, tmp_path, format, scheme):
    model = models["llama" if scheme.endswith("_ASYM") else "qwen2"]
    group = [] if scheme.startswith(("W8A8", "FP8", "NVFP4", "MXFP4")) else [f"--group-size={GROUP}"]
    folder = export(model, tmp_path / "folder", format, f"--scheme={scheme}", *group)
    config, tensors = read_folder(folder)
    kept = Kept(folder, tmp_path / "kept")
    for site in kept.sites:
        linear = clients.read_linear(tensors, site["name"], config["quantization_config"])
        assert (linear is None) == (site["weight"] is None), site["name"]
        if linear is not None:
            assert_same_weight(linear, kept.tensors, site, config["quantization_config"]["quant_method"])
            assert (site["input"] is not None) == (scheme in ("W8A8", "W4A8", "FP8_DYNAMIC"))
    assert sum(site["weight"] is not None for site in kept.sites) == 14
    compiled = compile_model(folder, tmp_path / "out", ISA)
    assert sum(site.get("kept", False) for site in sites_of(compiled).values()) == 14
    assert all(site["weight_error"] == 0 for site in sites_of(compiled).values())


@pytest.mark.parametrize("bits", [2, 3, 4, 8])
def test_any_words_and_scales_are_taken(tmp_path, bits):
    """All codes and zero points, and scales that are negative, 0 and subnormal, in a checkpoint that EasyQuant did not write."""
    config, tensors = random_gptq(bits, bits)
    folder = write_model(tmp_path / "folder", config, tensors)
    for site in (kept := Kept(folder, tmp_path / "kept")).sites:
        if site["weight"] is not None:
            linear = clients.read_linear(tensors, site["name"], config["quantization_config"])
            assert linear.codes.min() == 0 and linear.codes.max() == 2**bits - 1 and linear.scales.min() < 0
            assert_same_weight(linear, kept.tensors, site, "gptq")
    assert_same_logits(compile_model(folder, tmp_path / "out", "--kv-cache=f32", ISA), *dequantized(config, tensors))
    assert_same_logits(compile_model(folder, tmp_path / "float", "--scheme=none", "--kv-cache=f32", ISA), *dequantized(config, tensors))


@pytest.mark.parametrize("format, scheme", [("gptq", "W4A16"), ("awq", "W4A16_ASYM"), ("compressed-tensors", "W4A16"), ("gguf", "Q4_0")])
def test_a_float_head_of_its_own_stays_float(tmp_path, format, scheme):
    """Embeddings that are not tied, beside a head that is not quantized: both are the file's floats, and all other codes are kept."""
    model = write_byte_level(write_model(tmp_path / "model", *random_llama(seed=3, **SIZES, vocab=330, tied=False)))
    group = [] if format == "gguf" else [f"--group-size={GROUP}"]
    done = run_command_line("export", model, "--format", format, "-o", tmp_path / "folder", "--scheme", scheme, *group, "--head=float")
    assert done.returncode == 0, done.stderr
    file = tmp_path / "folder" / "model.gguf" if format == "gguf" else tmp_path / "folder"
    artifact = compile_model(file, tmp_path / "out", "--scheme=keep", "--kv-cache=f32", ISA)
    sites = sites_of(artifact)
    assert sites["lm_head"]["weight"] is None and not sites["lm_head"].get("kept")
    assert sorted(name for name, site in sites.items() if site.get("kept")) == sorted(SITES)
    config, floats = read_folder(model)
    floats |= {f"{name}.weight": read_site(Artifact.open(artifact), name) for name in SITES}
    if format == "gguf":
        tensors = {tensor.name: gguf.quants.dequantize(tensor.data, tensor.tensor_type) for tensor in gguf.GGUFReader(file).tensors}
        stored = {"lm_head.weight": tensors["output.weight"], "model.embed_tokens.weight": tensors["token_embd.weight"]}
    else:
        stored = {name: weight.astype(np.float32) for name, weight in read_folder(file)[1].items() if name in floats}
        assert not any(f"{name}.weight" in stored for name in SITES)
    for name in ("lm_head.weight", "model.embed_tokens.weight"):
        np.testing.assert_allclose(stored[name], floats[name], rtol=2**-11, atol=2**-24)  # that very matrix, in f16
    assert_same_logits(artifact, config, floats | stored)


@pytest.mark.parametrize("options, groups", [([], (32, 32)), (["--activation-group-size=0"], (0, 0)), (["--activation-group-size=64"], (0, 0))])
def test_int8_activations_beside_codes(tmp_path, options, groups):
    """keepA8: in groups of 32 by default, per token where groups of the weights are smaller than those asked for; codes are the same."""
    config, tensors = random_gptq(5)
    folder = write_model(tmp_path / "folder", config, tensors)
    floats = compile_model(folder, tmp_path / "float", "--kv-cache=f32", ISA)
    artifact = compile_model(folder, tmp_path / "out", "--scheme=keepA8", "--kv-cache=f32", *options, ISA)
    sites = sites_of(artifact)
    for name in SITES:
        assert sites[name]["kept"] and sites[name]["weight"] == sites_of(floats)[name]["weight"]
        assert sites[name]["input"]["bits"] == 8 and sites[name]["input"].get("group_size", 0) == groups[0]
    tokens = random_tokens(3, 24, 97)
    a, b = Runner(artifact).score(tokens), Runner(floats).score(tokens)
    error = np.sqrt(np.mean((a - b) ** 2) / np.mean(b**2))
    assert 1e-4 < error < 0.1
    again = compile_model(folder, tmp_path / "again", f"--recipe={artifact / 'recipe.json'}", "--kv-cache=f32", ISA)
    assert sites_of(again) == sites


def test_files_of_autogptq(tmp_path):
    """They say no checkpoint_format, which is version 1 then, and give every linear a bias of zeros."""
    config, tensors = random_gptq(7)
    for site in SITES:  # no field may be all ones: readers that add 1 to whole words would carry
        zeros = tensors[f"{site}.qzeros"].view(np.uint32)
        tensors[f"{site}.qzeros"] = (zeros & np.uint32(0xEEEEEEEE)).view(np.int32)
    first = write_model(tmp_path / "v1", config | {"quantization_config": GPTQ | {"checkpoint_format": "gptq"}}, tensors)
    biases = {f"{site}.bias": np.zeros(tensors[f"{site}.scales"].shape[1], np.float16) for site in SITES}
    said = {key: value for key, value in GPTQ.items() if key != "checkpoint_format"}
    old = write_model(tmp_path / "old", config | {"quantization_config": said}, tensors | biases)
    done = run_tool("easyquant-compile", old, "-o", tmp_path / "out", ISA)
    assert "note: " in done.stderr and 'names no checkpoint_format, which is taken for "gptq": zero points are stored less 1' in done.stderr
    a, b = Kept(first, tmp_path / "a").tensors, Kept(old, tmp_path / "b").tensors
    assert a.keys() == b.keys() and all(np.array_equal(a[name], b[name]) for name in a)
    zeros = clients.gptq(tensors, SITES[0], config["quantization_config"] | {"checkpoint_format": "gptq"}).zero_points
    assert zeros.min() == 1 and zeros.max() == 15


def test_a_recipe_keeps_some_sites(models, tmp_path):
    """Rules with a scheme of their own quantize anew; what is recorded does the same again."""
    folder = export(models["llama"], tmp_path / "folder", "gptq_v2", "--scheme=W4A16_ASYM", f"--group-size={GROUP}")
    recipe = tmp_path / "recipe.json"
    recipe.write_text(json.dumps({"scheme": "keep", "sites": [{"match": "re:.*down_proj", "scheme": "W8A16"}]}))
    artifact = compile_model(folder, tmp_path / "a", f"--recipe={recipe}", ISA)
    sites = sites_of(artifact)
    assert [name for name, site in sites.items() if not site.get("kept")] == [*(name for name in SITES if "down_proj" in name), "lm_head"]
    assert sites["model.layers.0.mlp.down_proj"]["weight"]["bits"] == 8
    again = compile_model(folder, tmp_path / "b", f"--recipe={artifact / 'recipe.json'}", ISA)
    assert (artifact / "weights.safetensors").read_bytes() == (again / "weights.safetensors").read_bytes()


def test_groups_and_rules_of_configurations(models, tmp_path):
    """A mix is `dynamic` of gptq and config groups of compressed-tensors; both are the artifact of the recipe that they came from."""
    recipe = tmp_path / "recipe.json"
    rules = [{"match": "re:.*mlp.*", "scheme": "W8A16_ASYM"}, {"match": "model.layers.1.self_attn.o_proj", "scheme": "none"}]
    recipe.write_text(json.dumps({"scheme": "W4A16_ASYM", "group_size": GROUP, "scale_type": "f16", "activation_basis": "plain", "head": "float",
                                  "sites": [rule | ({"scale_type": "f16"} if rule["scheme"] != "none" else {}) for rule in rules]}))  # fmt: skip
    weights = []
    for format in ("gptq_v2", "compressed-tensors"):
        folder = export(models["llama"], tmp_path / format, format, f"--recipe={recipe}")
        kept = Kept(folder, tmp_path / f"{format}-kept")
        assert {(site["weight"] or {}).get("bits") for site in kept.sites if "mlp" in site["name"]} == {8}
        weights.append(kept.tensors)
    assert weights[0].keys() == weights[1].keys()
    assert all(np.array_equal(weights[0][name], weights[1][name]) for name in weights[0] if re.search("layers.*proj", name))


@pytest.mark.parametrize("scheme, options", [("W8A8", ["--activations=static", "--sinks=none"]), ("FP8", []), ("NVFP4", [])])
def test_static_activations_are_those_of_the_file(models, tmp_path, scheme, options):
    from calibrating import write_tokens

    tokens = write_tokens(tmp_path / "tokens.safetensors", [random_tokens(seed, 24, 97) for seed in range(4)])
    text = [f"--scheme={scheme}", *options, f"--tokens={tokens}"]
    folder = export(models["qwen2"], tmp_path / "folder", "compressed-tensors", *text)
    _, tensors = read_folder(folder)
    printed = run_tool("easyquant-compile", folder, "--emit-ir-after=quantize")
    assert printed.returncode == 0, printed.stderr
    linears = re.findall(r"equant\.linear .*\{input_scale = (\S+) : f32, .*sites = \[([^\]]*)\]", printed.stdout)
    scales = {site: float(scale) for scale, sites in linears for site in re.findall('"(.*?)"', sites)}
    assert sorted(scales) == sorted(SITES)
    for site, scale in scales.items():
        expected = 1 / tensors[f"{site}.input_global_scale"][0] if scheme == "NVFP4" else tensors[f"{site}.input_scale"][0]
        assert np.float32(scale) == np.float32(expected), site
    sites = sites_of(compile_model(folder, tmp_path / "out", ISA))
    assert all(sites[name]["kept"] and sites[name]["input"] for name in SITES)


def test_one_scale_of_a_tensor(models, tmp_path):
    """Weights of strategy tensor are those of strategy channel with the scale repeated."""
    folder = export(models["qwen2"], tmp_path / "channel", "compressed-tensors", "--scheme=FP8_DYNAMIC")
    config, tensors = read_folder(folder)
    tensors = {name: np.full_like(value, value.max()) if name.endswith("weight_scale") else value for name, value in tensors.items()}
    one = {name: value[:1, 0] if name.endswith("weight_scale") else value for name, value in tensors.items()}
    group = config["quantization_config"]["config_groups"]["group_0"]
    of_tensor = config | {"quantization_config": config["quantization_config"] | {"config_groups": {"g": group | {"weights": group["weights"] | {"strategy": "tensor"}}}}}
    a = Kept(rewritten(folder, tmp_path / "a", config, tensors), tmp_path / "a-kept")
    b = Kept(rewritten(folder, tmp_path / "b", of_tensor, one), tmp_path / "b-kept")
    assert all(np.array_equal(a.tensors[name].view(np.uint8), b.tensors[name].view(np.uint8)) for name in a.tensors)


def padded(values, bits):
    """Along rows: 32 // bits fields in a word, as compressed-tensors once had it (pack_to_int32)."""
    per_word = 32 // bits
    fields = np.zeros((len(values), -(-values.shape[1] // per_word) * per_word), np.uint32)
    fields[:, : values.shape[1]] = values + 2 ** (bits - 1)
    return (fields.reshape(len(values), -1, per_word) << (np.arange(per_word, dtype=np.uint32) * bits)).sum(axis=2).astype(np.uint32).view(np.int32)


@pytest.mark.parametrize("scheme", ["W3A16", "W5A16_ASYM", "W6A16"])
def test_the_older_packing_has_the_same_codes(models, tmp_path, scheme):
    folder = export(models["llama"], tmp_path / "folder", "compressed-tensors", f"--scheme={scheme}", f"--group-size={GROUP}")
    config, tensors = read_folder(folder)
    config["quantization_config"]["kv_cache_scheme"] = {"num_bits": 8, "type": "float"}
    old, bits = dict(tensors), int(scheme[1])
    for name in tensors:
        site, _, kind = name.rpartition(".")
        if kind == "weight_packed":
            linear = clients.read_linear(tensors, site, config["quantization_config"])
            old[name] = padded(linear.codes.astype(int), bits)
            if linear.zero_points is not None:
                old[f"{site}.weight_zero_point"] = np.ascontiguousarray(padded(linear.zero_points.T.astype(int), bits).T)
    older = rewritten(folder, tmp_path / "old", config, old)
    a, b = Kept(folder, tmp_path / "a").tensors, Kept(older, tmp_path / "b").tensors
    assert a.keys() == b.keys() and all(np.array_equal(a[name], b[name]) for name in a)
    done = run_tool("easyquant-compile", older, "-o", tmp_path / "out", ISA)
    assert "has a kv_cache_scheme, which is not taken: the cache is what --kv-scheme says" in done.stderr


def rewritten(folder, out, config, tensors):
    """The folder with other contents."""
    import make_checkpoint

    shutil.copytree(folder, out)
    (out / "config.json").write_text(json.dumps(config))
    types = {"float8_e4m3fn": "F8_E4M3", "float16": "F16", "bfloat16": "BF16", "float32": "F32", "int32": "I32", "int64": "I64", "int8": "I8", "uint8": "U8"}
    make_checkpoint.write_safetensors(out / "model.safetensors", {name: (types[str(w.dtype)], w.shape, w.tobytes()) for name, w in tensors.items()})
    return out


REFUSALS = [
    ({"bits": 5}, {}, "site 'model.layers.0.self_attn.q_proj': gptq_v2 holds integers of 2, 3, 4 or 8 bits, found int5"),
    ({"bits": "four"}, {}, "config.json: quantization_config: bits: found \"four\", expected"),
    ({"checkpoint_format": "marlin"}, {}, "checkpoint_format \"marlin\" is not supported; expected \"gptq\" or \"gptq_v2\""),
    ({"dynamic": {"+:(": {"bits": 8}}}, {}, "dynamic: \"(\" is no regular expression"),
    ({"dynamic": {"+:" + "(" * 5000 + ")" * 5000: {}}}, {}, "a regular expression of 10000 characters; expected at most 1000"),
    ({"dynamic": {"+:(.*.*)*(.*.*)*(.*.*)*x": {"bits": 8}}, "bits": 5}, {}, "found int5"),
    ({"dynamic": {"-:.*q_proj": {}}}, {}, "tensor 'model.layers.0.self_attn.q_proj.qweight': quantization_config says that this linear is float"),
    ({"group_size": 48}, {}, "gptq_v2 holds whole groups: 64 columns are no multiple of 48"),
    ({"group_size": 64}, {}, "tensor 'model.layers.0.self_attn.q_proj.g_idx': column 32 is of group 1; expected 0 to 0"),
    ({}, {"g_idx": lambda x: x + 9}, "tensor 'model.layers.0.self_attn.q_proj.g_idx': column 0 is of group 9; expected 0 to 1"),
    ({}, {"g_idx": lambda x: x[:-1]}, "q_proj.g_idx': expected I32 of shape 64, found I32 of shape 63"),
    ({}, {"qweight": lambda x: x[1:]}, "q_proj.qweight': expected I32 of shape 8x64 for int4", "found I32 of shape 7x64"),
    ({}, {"qweight": lambda x: x.view(np.float32)}, "q_proj.qweight': expected I32 of shape 8x64 for int4", "found F32 of shape 8x64"),
    ({}, {"scales": lambda x: x.astype(np.int16)}, "q_proj.scales': expected F16, BF16 or F32, found I16"),
    ({}, {"scales": lambda x: np.full_like(x, np.inf)}, "site 'model.layers.0.self_attn.q_proj'", "the scale of row", "which is no number"),
    ({}, {"qzeros": None}, "tensor 'model.layers.0.self_attn.q_proj.qzeros' is missing"),
    ({}, {"bias": lambda x: np.ones(64, np.float32)}, "tensor \"model.layers.0.self_attn.q_proj.bias\"", "has no place"),
    ({"quant_method": "awq", "version": "gemv"}, {}, "version \"gemv\" is not supported; expected \"gemm\""),
    ({"quant_method": "bitsandbytes"}, {}, "quant_method \"bitsandbytes\" is not supported; expected \"gptq\", \"awq\", \"compressed-tensors\", \"fp8\", \"modelopt\" or \"mxfp4\""),
    ({"quant_method": "compressed-tensors", "config_groups": {"g": {"targets": ["Linear"], "weights": {"num_bits": 4}}}}, {},
     "q_proj.weight\" is missing; expected shape [64, 64], or the tensors that the quant_method of config.json has in its place"),
    ({"quant_method": "compressed-tensors"}, {}, "quantization_config: config_groups: found nothing, expected an object"),
]  # fmt: skip


@pytest.mark.parametrize("config, change, expected", [(config, change, expected) for config, change, *expected in REFUSALS])
def test_bad_checkpoints_are_refused(tmp_path, config, change, expected):
    base, tensors = random_gptq(13)
    base["quantization_config"] |= config
    for name, edit in change.items():
        full = f"{SITES[0]}.{name}"
        if edit is None:
            del tensors[full]
        else:
            tensors[full] = edit(tensors.get(full))
    folder, out = write_model(tmp_path / "folder", base, tensors), tmp_path / "out"
    assert_refused(run_tool("easyquant-compile", folder, "-o", out, ISA), *expected)
    assert not out.exists()


def no_target(config):
    config["config_groups"]["group_0"]["targets"] = ["re:.*k_proj"]


def other_strategy(config):
    config["config_groups"]["group_0"]["weights"]["strategy"] = "block"


def unknown_transform(config):
    config["transform_config"] = {"config_groups": {"a": {}}}


def unknown_format(config):
    config["config_groups"]["group_0"]["format"] = "marlin-24"


def frozen(config):
    config["quantization_status"] = "frozen"


def asymmetric_tokens(config):
    config["config_groups"]["group_0"]["input_activations"] |= {"symmetric": False}


@pytest.mark.parametrize("change, expected", [
    (no_target, "q_proj.weight_scale': no group of quantization_config targets this linear"), (other_strategy, "weights of strategy \"block\" are not supported"),
    (unknown_transform, "transform_config: config_groups: \"a\": type: found nothing, expected a string"), (unknown_format, "format \"marlin-24\" is not supported"), (frozen, "quantization_status \"frozen\""),
    (asymmetric_tokens, "its codes cannot be kept: its activations are dynamic, of strategy \"token\", with 8 bits and zero points, which no scheme has"),
])  # fmt: skip
def test_configurations_of_compressed_tensors_are_refused(models, tmp_path, change, expected):
    folder = export(models["qwen2"], tmp_path / "folder", "compressed-tensors", "--scheme=W8A8")
    config = json.loads((folder / "config.json").read_text())
    change(config["quantization_config"])
    (folder / "config.json").write_text(json.dumps(config))
    assert_refused(run_tool("easyquant-compile", folder, "-o", tmp_path / "out", ISA), expected)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("options, expected", [
    (["--head=int8"], "head=int8 needs a scheme that quantizes, but scheme is keep"), (["--group-size=32"], "group size 32 needs a scheme, but scheme is keep"),
    (["--scale-type=f16"], "scheme keep takes codes as they are, found scale-type f16; leave it out, or give another scheme"),
    (["--weight-observer=mse"], "found weight-observer mse"), (["--activation-basis=hadamard"], "found activation-basis hadamard"),
])  # fmt: skip
def test_what_would_change_codes_is_refused(tmp_path, options, expected):
    folder = write_model(tmp_path / "folder", *random_gptq(17))
    assert_refused(run_tool("easyquant-compile", folder, "-o", tmp_path / "out", *options, ISA), expected)


def test_float_checkpoints_have_nothing_to_keep(models, tmp_path):
    result = run_tool("easyquant-compile", models["llama"], "-o", tmp_path / "out", "--scheme=keep", ISA)
    assert_refused(result, "scheme keep keeps the codes of a checkpoint that is quantized, and this one has floats")


def test_another_scheme_says_that_it_rounds_again(tmp_path):
    folder = write_model(tmp_path / "folder", *random_gptq(19))
    done = run_tool("easyquant-compile", folder, "-o", tmp_path / "out", "--scheme=W8A16", ISA)
    assert done.returncode == 0 and re.search(r"is quantized already \(int4 asymmetric, groups of 32, f16 scales × 14\), and its values are rounded once more; "
                                              r"--scheme keep takes its codes, and a float file of the model keeps more of it", done.stderr)  # fmt: skip


def test_a_format_becomes_another(models, tmp_path):
    """Exporting with codes that are kept: the same file as from the model, and the first one again on the way back."""
    first = export(models["llama"], tmp_path / "gptq", "gptq_v2", "--scheme=W4A16_ASYM", f"--group-size={GROUP}")
    direct = export(models["llama"], tmp_path / "direct", "compressed-tensors", "--scheme=W4A16_ASYM", f"--group-size={GROUP}")
    there = export(first, tmp_path / "there", "compressed-tensors")
    back = export(there, tmp_path / "back", "gptq_v2")
    for a, b in ((there, direct), (back, first)):
        assert (a / "model.safetensors").read_bytes() == (b / "model.safetensors").read_bytes()
        assert json.loads((a / "config.json").read_text()) == json.loads((b / "config.json").read_text())


def test_ranks_have_the_codes_of_one(tmp_path):
    config, tensors = random_gptq(23)
    folder = write_model(tmp_path / "folder", config, tensors)
    alone = compile_model(folder, tmp_path / "alone", "--kv-cache=f32", ISA)
    shared = compile_model(folder, tmp_path / "shared", "--kv-cache=f32", "--tensor-parallel=2", ISA)
    assert_same_logits(alone, *dequantized(config, tensors))
    kept = [site for site in sites_of(shared).values() if site.get("kept")]
    assert len(kept) == 14


@pytest.mark.parametrize("bits", [4, 8])
def test_gpus_have_them_too(tmp_path, bits):
    """In the simulator: scales of either sign, and all codes."""
    config, tensors = random_gptq(29, bits)
    artifact = compile_model(write_model(tmp_path / "folder", config, tensors), tmp_path / "out", "--target=sm_80,cpu")
    tokens = random_tokens(5, 12, 97)
    a, b = Runner(artifact, device="simt").score(tokens), Runner(artifact, device="cpu").score(tokens)
    np.testing.assert_allclose(a, b, rtol=0, atol=0.02 * np.abs(b).max())
