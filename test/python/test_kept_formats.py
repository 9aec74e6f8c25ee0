# Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Checkpoints in codes of others: fp8 with scales of blocks or of tensors, NVFP4 of ModelOpt, and rotated bases of compressed-tensors. Codes and
scales are those of the file, activations are rounded as its configuration says."""

import json

import make_checkpoint
import ml_dtypes
import numpy as np
import pytest
from oracles.checkpoint import read_folder
from oracles.formats import FORMATS, rounded
from oracles.llama import Llama
from oracles.schemes import rotate

from exporting import GROUP, export, unpack, write_models
from helpers import ISA, Runner, assert_refused, compile_model, random_llama, random_tokens, run_tool, sites_of
from test_kept_codes import SITES, Kept, assert_same_logits

SIZES = {"hidden": 192, "ffn": 320, "heads": 4, "kv_heads": 2, "layers": 2}  # no whole blocks of 128
TYPES = {"float8_e4m3fn": "F8_E4M3", "float16": "F16", "bfloat16": "BF16", "float32": "F32", "int32": "I32", "int8": "I8", "uint8": "U8"}
F8 = ml_dtypes.float8_e4m3fn


def write_folder(folder, config, tensors, **documents):
    folder.mkdir()
    for name, content in ({"config": config} | documents).items():
        (folder / f"{name}.json").write_text(json.dumps(content))
    make_checkpoint.write_safetensors(folder / "model.safetensors", {name: (TYPES[str(w.dtype)], w.shape, w.tobytes()) for name, w in tensors.items()})
    return folder


class Rounded:
    """A float model's linears, in the order of SITES, that read rounded activations."""

    def __init__(self, *rounds):
        self.rounds = iter(rounds if len(rounds) > 1 else list(rounds) * len(SITES))

    def linear(self, weight, dtype):
        weight, chosen = np.asarray(weight, dtype), next(self.rounds)
        return lambda x: chosen(x.astype(np.float32)).astype(dtype) @ weight.T

    @staticmethod
    def value_block(_):
        return 0

    def head(self, weight, dtype):
        return Float(np.asarray(weight, dtype))

    table = head


class Float:
    def __init__(self, weight):
        self.weight = weight

    def __call__(self, x):
        return x @ self.weight.T

    def rows(self, index):
        return self.weight[index]


def assert_rounds_activations(artifact, config, floats, scheme):
    """Far nearer to the model that rounds activations so than to the one that does not: some values are rounded the other way."""
    tokens = random_tokens(3, 24, config["vocab_size"])
    found, exact = Runner(artifact).score(tokens), Llama(config, floats, dtype=np.float64).logits(tokens)
    expected = Llama(config, floats, scheme, dtype=np.float64).logits(tokens)
    difference, rounding = (np.sqrt(np.mean((found - other) ** 2)) for other in (expected, exact))
    assert rounding > 0.005 * np.sqrt(np.mean(exact**2)) and difference < 0.25 * rounding


def kept(folder, out):
    packed = Kept(folder, out)
    return {site["name"]: (site, *unpack(packed.tensors, site)) for site in packed.sites if site["weight"] is not None}


# ---------------------------------------------------------------------------------------------------------------------- fp8


def fp8_model(seed, block, activations="dynamic"):
    """(config, tensors, floats): blocks of rows and columns share a scale, or all of a tensor."""
    base, tensors = random_llama(seed=seed, **SIZES, tied=False)
    floats = dict(tensors)
    for site in SITES:
        weight = tensors.pop(f"{site}.weight")
        rows, columns = block or weight.shape
        starts = [(r, c) for r in range(0, len(weight), rows) for c in range(0, weight.shape[1], columns)]
        scales = np.array([np.abs(weight[r : r + rows, c : c + columns]).max() / 448 for r, c in starts], np.float32)
        scales = scales.reshape(-(-len(weight) // rows), -1)
        each = np.repeat(np.repeat(scales, rows, axis=0), columns, axis=1)[: len(weight), : weight.shape[1]]
        codes = (weight / each).astype(F8)
        tensors[f"{site}.weight"] = codes
        tensors[f"{site}.weight_scale_inv" if block else f"{site}.weight_scale"] = scales if block else scales.reshape(())
        if activations == "static":
            tensors[f"{site}.input_scale"] = np.float32(0.01 * (1 + len(site) % 5)).reshape(1)
        floats[f"{site}.weight"] = codes.astype(np.float32) * each
    quantization = {"quant_method": "fp8", "activation_scheme": activations, "fmt": "e4m3"} | ({"weight_block_size": block} if block else {})
    return base | {"quantization_config": quantization}, tensors, floats


@pytest.mark.parametrize("block", [[128, 128], [64, 32]])
def test_fp8_of_blocks(tmp_path, block):
    """As DeepSeek-V3 has it, for rows and columns that are no whole blocks."""
    config, tensors, floats = fp8_model(3, block)
    folder = write_folder(tmp_path / "folder", config, tensors)
    for name, (site, codes, scales, _, _) in kept(folder, tmp_path / "kept").items():
        np.testing.assert_array_equal((codes + 128).astype(np.uint8), tensors[f"{name}.weight"].view(np.uint8))
        rows = np.repeat(tensors[f"{name}.weight_scale_inv"], block[0], axis=0)[: site["out_features"]]
        np.testing.assert_array_equal(scales, rows)
        assert site["weight"]["codes"] == "f8E4M3FN" and site["input"]["group_size"] == block[1]
    artifact = compile_model(folder, tmp_path / "out", "--kv-cache=f32", ISA)
    assert all(sites_of(artifact)[name]["kept"] and sites_of(artifact)[name]["weight_error"] == 0 for name in SITES)
    assert_rounds_activations(artifact, config, floats, Rounded(lambda x: rounded(x, "f8E4M3FN", "f32", block[1])))
    assert_same_logits(compile_model(folder, tmp_path / "float", "--scheme=none", "--kv-cache=f32", ISA), config, floats)


@pytest.mark.parametrize("activations", ["dynamic", "static"])
def test_fp8_of_tensors(tmp_path, activations):
    config, tensors, floats = fp8_model(5, None, activations)
    folder = write_folder(tmp_path / "folder", config, tensors)
    for name, (site, codes, scales, _, _) in kept(folder, tmp_path / "kept").items():
        np.testing.assert_array_equal((codes + 128).astype(np.uint8), tensors[f"{name}.weight"].view(np.uint8))
        assert (scales == tensors[f"{name}.weight_scale"]).all() and site["input"]["dynamic"] == (activations == "dynamic")
    artifact = compile_model(folder, tmp_path / "out", "--kv-cache=f32", ISA)
    largest, nearest = FORMATS["f8E4M3FN"]
    rounds = [lambda x: rounded(x, "f8E4M3FN", "f32")]
    if activations == "static":
        rounds = [lambda x, s=tensors[f"{name}.input_scale"][0]: s * nearest(x / s) for name in SITES]
    assert_rounds_activations(artifact, config, floats, Rounded(*rounds))


def test_groups_of_activations_that_no_scheme_has(tmp_path):
    config, tensors, floats = fp8_model(7, [16, 16])
    folder = write_folder(tmp_path / "folder", config, tensors)
    assert_refused(run_tool("easyquant-compile", folder, "-o", tmp_path / "out", ISA),
                   "its codes cannot be kept: its activations are those of blocks: groups of 16 columns of a token: expected 32, 64 or 128",
                   "--dequantize makes such sites float")  # fmt: skip
    assert_same_logits(compile_model(folder, tmp_path / "out", "--dequantize", "--kv-cache=f32", ISA), config, floats)


# ----------------------------------------------------------------------------------------------------------------- ModelOpt


def modelopt_model(seed):
    """NVFP4: codes of FP4, two a byte, scales of FP8 in units of one of the tensor."""
    base, tensors = random_llama(seed=seed, **SIZES, tied=False)
    floats, rng = dict(tensors), np.random.default_rng(seed)
    values = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6, 0, -0.5, -1, -1.5, -2, -3, -4, -6], np.float32)
    for site in SITES:
        rows, columns = tensors.pop(f"{site}.weight").shape
        codes = rng.integers(0, 16, (rows, columns), dtype=np.uint8)
        scales = rng.uniform(20, 448, (rows, columns // 16)).astype(F8)
        outer, inputs = np.float32(rng.uniform(1, 2) * 1e-4), np.float32(rng.uniform(1, 2) * 1e-3)
        tensors |= {f"{site}.weight": codes[:, ::2] | codes[:, 1::2] << 4, f"{site}.weight_scale": scales,
                    f"{site}.weight_scale_2": outer.reshape(()), f"{site}.input_scale": inputs.reshape(())}  # fmt: skip
        floats[f"{site}.weight"] = values[codes] * np.repeat(scales.astype(np.float32) * outer, 16, axis=1)
    return base, tensors, floats


@pytest.mark.parametrize("place", ["config.json", "hf_quant_config.json"])
def test_nvfp4_of_modelopt(tmp_path, place):
    config, tensors, floats = modelopt_model(11)
    quantization = {"quant_algo": "NVFP4", "group_size": 16, "exclude_modules": ["lm_head"], "kv_cache_quant_algo": "FP8"}
    for layer in range(2):
        tensors |= {f"model.layers.{layer}.self_attn.{x}_proj.{x}_scale": np.ones((), np.float32) for x in "kv"}
    if place == "config.json":
        folder = write_folder(tmp_path / "folder", config | {"quantization_config": quantization | {"quant_method": "modelopt"}}, tensors)
    else:
        folder = write_folder(tmp_path / "folder", config, tensors, hf_quant_config={"producer": {"name": "modelopt"}, "quantization": quantization})
    sites = kept(folder, tmp_path / "kept")
    assert sorted(sites) == sorted(SITES)
    for name, (_, codes, scales, _, outer) in sites.items():
        packed = (codes + 8).astype(np.uint8)
        np.testing.assert_array_equal(packed[:, ::2] | packed[:, 1::2] << 4, tensors[f"{name}.weight"])
        np.testing.assert_array_equal(scales, tensors[f"{name}.weight_scale"].astype(np.float32))
        assert (outer == tensors[f"{name}.weight_scale_2"]).all()
    done = run_tool("easyquant-compile", folder, "-o", tmp_path / "out", "--kv-cache=f32", ISA)
    assert done.returncode == 0 and "has a format of the KV cache, which is not taken: the cache is what --kv-scheme says" in done.stderr
    rounds = [lambda x, s=tensors[f"{name}.input_scale"]: rounded(x, "f4E2M1FN", "f32", 16, s) for name in SITES]
    assert_rounds_activations(tmp_path / "out", config, floats, Rounded(*rounds))


def test_fp8_of_modelopt(tmp_path):
    config, tensors, _ = fp8_model(13, None, "static")
    folder = write_folder(tmp_path / "a", config, tensors)
    other = write_folder(tmp_path / "b", config | {"quantization_config": {"quant_method": "modelopt", "quant_algo": "FP8"}}, tensors)
    a, b = Kept(folder, tmp_path / "a-kept").tensors, Kept(other, tmp_path / "b-kept").tensors
    assert a.keys() == b.keys() and all(np.array_equal(a[name].view(np.uint8), b[name].view(np.uint8)) for name in a)


# -------------------------------------------------------------------------------------------------------- the rotated basis


def rotated_folder(tmp_path, scheme="W8A8", *options):
    model = write_models(tmp_path)["llama"]
    return export(model, tmp_path / "folder", "compressed-tensors", f"--scheme={scheme}", "--activation-basis=hadamard", *options), model


def plain(config):
    return {key: value for key, value in config.items() if key != "quantization_config"}


@pytest.mark.parametrize("scheme, options", [("W8A8", []), ("W4A8_ASYM", [f"--group-size={GROUP}"])])
def test_a_rotated_basis_comes_back(tmp_path, scheme, options):
    """What --activation-basis hadamard exports: the codes of the artifact that it would have been, and its tokens."""
    folder, model = rotated_folder(tmp_path, scheme, *options)
    config, tensors = read_folder(folder)
    assert config["quantization_config"]["transform_config"]["config_groups"]
    plain_config, original = read_folder(model)
    for name in original:  # what stays float, as the folder has it
        original[name] = original[name] if any(name.startswith(f"{site}.weight") for site in SITES) else tensors[name].astype(np.float32)
    same = write_folder(tmp_path / "same", plain_config, original)
    scales = {"float16": "f16", "float32": "f32"}[str(tensors[f"{SITES[0]}.weight_scale"].dtype)]
    direct = compile_model(same, tmp_path / "direct", f"--scheme={scheme}", "--head=float", "--activation-basis=hadamard", f"--scale-type={scales}", *options,
                           "--kv-cache=f32", ISA)  # fmt: skip
    artifact = compile_model(folder, tmp_path / "out", "--kv-cache=f32", ISA)
    sites, expected = sites_of(artifact), sites_of(direct)
    for name in SITES:
        assert sites[name]["kept"]
        assert sites[name]["weight"].get("hadamard") == expected[name]["weight"].get("hadamard") or name.endswith("o_proj")
    tokens = random_tokens(3, 24, 97)
    a, b = Runner(artifact).score(tokens), Runner(direct).score(tokens)
    np.testing.assert_allclose(a, b, rtol=0, atol=1e-3 * np.abs(b).max())
    # Again out of it: the same folder.
    again = export(folder, tmp_path / "again", "compressed-tensors")
    assert (again / "model.safetensors").read_bytes() == (folder / "model.safetensors").read_bytes()
    assert json.loads((again / "config.json").read_text()) == json.loads((folder / "config.json").read_text())


def test_floats_of_a_rotated_basis_are_in_the_plain_one(tmp_path):
    folder, _ = rotated_folder(tmp_path)
    config, tensors = read_folder(folder)
    groups = config["quantization_config"]["transform_config"]["config_groups"].values()
    block = {site: group["head_dim"] for group in groups for site in group["apply"][0]["targets"]}
    floats = {name: value.astype(np.float32) for name, value in tensors.items() if not any(name.startswith(f"{site}.") for site in SITES)}
    for site in SITES:
        weight = tensors[f"{site}.weight"].astype(np.float64) * tensors[f"{site}.weight_scale"].astype(np.float64)
        floats[f"{site}.weight"] = (rotate(weight, block[site]) if site in block else weight).astype(np.float32)
    artifact = compile_model(folder, tmp_path / "float", "--scheme=none", "--kv-cache=f32", ISA)
    assert_same_logits(artifact, plain(config), floats)


def test_values_that_are_kept_are_not_rotated(tmp_path):
    """A file of others rotates what reads attention, too, though its values lie in the plain basis: that is done at run time."""
    folder, _ = rotated_folder(tmp_path, "W8A8")
    config, tensors = read_folder(folder)
    quantization = config["quantization_config"]
    group = next(iter(quantization["transform_config"]["config_groups"].values()))
    for place in group["apply"]:
        place["targets"] += [site for site in SITES if site.endswith("o_proj")]
    group["head_dim"] = 16
    others = write_folder(tmp_path / "others", config, tensors)
    printed = run_tool("easyquant-compile", others, "--emit-ir-after=quantize")
    assert printed.returncode == 0, printed.stderr
    assert "axis = 0" not in printed.stdout and printed.stdout.count("equant.hadamard") >= 2 * 4


def change(config, **fields):
    next(iter(config["transform_config"]["config_groups"].values())).update(fields)


TRANSFORMS = [
    (lambda c: change(c, type="random-hadamard"), "a transform \"random-hadamard\" with head_dim"),
    (lambda c: change(c, randomize=True), "a transform \"hadamard\" that is randomized with head_dim"),
    (lambda c: change(c, head_dim=48), "with head_dim 48 is not supported; expected \"hadamard\" with a head_dim that is a power of two from 16 to 512"),
    (lambda c: change(c, head_dim=256), "columns are no whole blocks of 256, in which transform_config rotates them"),
    (lambda c: change(c, apply=[{"targets": ["Linear"], "location": "output"}]), "location \"output\" is not supported; expected \"input\" or \"weight_input\""),
    (lambda c: change(c, apply=[{"targets": ["Linear"], "location": "input"}]), "transform_config rotates its input 1 times and its weight 0 times"),
    (lambda c: change(c, apply=[{"targets": ["re:("], "location": "input"}]), "apply[0]: targets: \"(\" is no regular expression"),
    (lambda c: change(c, apply=7), "apply: found 7, expected an array"),
    (lambda c: c["transform_config"].update(config_groups=None), "transform_config: config_groups: found nothing, expected an object"),
]  # fmt: skip


@pytest.mark.parametrize("damage, expected", TRANSFORMS)
def test_other_transforms_are_refused(tmp_path, damage, expected):
    folder, _ = rotated_folder(tmp_path)
    config = json.loads((folder / "config.json").read_text())
    damage(config["quantization_config"])
    (folder / "config.json").write_text(json.dumps(config))
    assert_refused(run_tool("easyquant-compile", folder, "-o", tmp_path / "out", ISA), expected)
    assert not (tmp_path / "out").exists()


# ----------------------------------------------------------------------------------------------------------------- mistakes


def nan_code(codes):
    codes = codes.copy()
    codes.view(np.uint8)[1, 2] = 0x7F
    return codes


FP8 = [
    ({"activation_scheme": "other"}, {}, "activation_scheme: found \"other\", expected \"dynamic\" or \"static\""),
    ({"activation_scheme": "static"}, {}, "activation_scheme \"static\" beside a weight_block_size is not supported"),
    ({"fmt": "e5m2"}, {}, "fmt: found \"e5m2\", expected \"e4m3\""),
    ({"weight_block_size": [0, 128]}, {}, "weight_block_size: found [0, 128], expected two positive integers"),
    ({"weight_block_size": [128, 64]}, {}, "q_proj.weight_scale_inv': expected F32 of shape 2x3", "found F32 of shape 2x2"),
    ({"weight_block_size": [128, 12]}, {}, "q_proj.weight_scale_inv': expected F32 of shape 2x16"),
    ({}, {"weight_scale_inv": None}, "tensor 'model.layers.0.self_attn.q_proj.weight_scale_inv' is missing"),
    ({}, {"weight_scale_inv": lambda x: np.full_like(x, np.nan)}, "site 'model.layers.0.self_attn.q_proj': the scale of row 0, group 0 is nan, which is no number"),
    ({}, {"weight": nan_code}, "site 'model.layers.0.self_attn.q_proj': the weight in row 1, column 2 is no number (NaN)"),
    ({}, {"weight": lambda x: x.astype(np.float16)}, "q_proj.weight': expected F8_E4M3 of shape 192x192"),
]  # fmt: skip


def edited(tensors, change):
    tensors = dict(tensors)
    for name, edit in change.items():
        full = f"{SITES[0]}.{name}"
        if edit is None:
            del tensors[full]
        else:
            tensors[full] = edit(tensors[full])
    return tensors


@pytest.mark.parametrize("config, change, expected", [(config, change, expected) for config, change, *expected in FP8])
def test_bad_fp8_is_refused(tmp_path, config, change, expected):
    base, tensors, _ = fp8_model(17, [128, 128])
    base["quantization_config"] |= config
    folder = write_folder(tmp_path / "folder", base, edited(tensors, change))
    assert_refused(run_tool("easyquant-compile", folder, "-o", tmp_path / "out", ISA), *expected)
    assert not (tmp_path / "out").exists()


MODELOPT = [
    ({"quant_algo": "W4A8_AWQ"}, {}, "quant_algo \"W4A8_AWQ\" is not supported; expected \"NVFP4\" or \"FP8\""),
    ({"group_size": 32}, {}, "group_size: found 32, expected"),
    ({}, {"weight_scale": None}, "tensor 'model.layers.0.self_attn.q_proj.weight_scale' is missing"),
    ({}, {"weight_scale_2": None}, "tensor 'model.layers.0.self_attn.q_proj.weight_scale_2' is missing"),
    ({}, {"input_scale": lambda x: -x}, "q_proj.input_scale': expected a positive number, found -0.00"),
    ({}, {"weight_scale": lambda x: x[:, 1:]}, "q_proj.weight_scale': expected F8_E4M3 of shape 192x12", "found F8_E4M3 of shape 192x11"),
    ({}, {"weight_scale": nan_code}, "the scale of row 1, group 2 is nan, which is no number"),
    ({}, {"weight": lambda x: x[1:]}, "q_proj.weight': expected U8 of shape 192x96"),
]  # fmt: skip


@pytest.mark.parametrize("config, change, expected", [(config, change, expected) for config, change, *expected in MODELOPT])
def test_bad_files_of_modelopt_are_refused(tmp_path, config, change, expected):
    base, tensors, _ = modelopt_model(19)
    base["quantization_config"] = {"quant_method": "modelopt", "quant_algo": "NVFP4"} | config
    folder = write_folder(tmp_path / "folder", base, edited(tensors, change))
    assert_refused(run_tool("easyquant-compile", folder, "-o", tmp_path / "out", ISA), *expected)
    assert not (tmp_path / "out").exists()
