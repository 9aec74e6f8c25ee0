# Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Models and ops as upstream ops, run by mlir-runner: codes and integer sums to the bit, floats within rounding."""

import ml_dtypes
import numpy as np
import pytest
from safetensors.numpy import load_file

from calibrating import write_tokens
from easyquant.formats.packed import relative_error, unpack_codes, unpack_scales, unpack_zero_points
from helpers import ISA, random_gemma4, random_gpt2, random_llama, random_tokens, run_tool, with_slow, write_model
from linalg import call, call_iree, iree

NEEDED = "equant-fuse-shared-input)"  # the last pass before weights are written for kernels


def convert(model, out, *options, weights="constants", flags=()):
    """The model as easyquant-compile quantizes it with these options, as text of upstream ops; the weights file is in `out`."""
    dumped = run_tool("easyquant-compile", model, "-o", out, *options, "--dump-pipeline")
    assert dumped.returncode == 0, dumped.stderr
    pipeline = dumped.stdout.partition("--pass-pipeline='")[2]
    pipeline = f"{pipeline[: pipeline.index(NEEDED)]}{NEEDED},easyquant-linalg{{output={out} weights={weights}}})"
    imported = run_tool("easyquant-translate", "--import-hf", model)
    result = run_tool("easyquant-opt", f"--pass-pipeline={pipeline}", *flags, input=imported.stdout)
    assert result.returncode == 0, result.stderr
    return result.stdout


def logits(text, tokens):
    rows = np.arange(len(tokens), dtype=np.int32)
    return call(text, [("forward", [np.array(tokens, np.int32), rows])])[0][0]


# -------------------------------------------------------------------------------------------------------- whole models

LLAMA = {"layers": 1, "heads": 4, "kv_heads": 2}
WIDE = LLAMA | {"hidden": 256, "ffn": 256, "vocab": 97}  # blocks of 256 columns
CASES = {
    "W8A8": (random_llama, LLAMA | {"hidden": 64, "ffn": 96}, ("--scheme=W8A8",)),  # in the rotated basis
    "W8A8, plain basis": (random_llama, LLAMA, ("--scheme=W8A8", "--activation-basis=plain")),
    "W8A8, static": (random_llama, LLAMA, ("--scheme=W8A8", "--method=absmax", "--activations=static", "--sinks=none")),
    "W8A8, static with zero points": (random_llama, LLAMA, ("--scheme=W8A8", "--method=zeropoint", "--activations=static", "--sinks=none")),
    "W8A8, static, sinks apart": (random_llama, LLAMA, ("--scheme=W8A8", "--method=absmax", "--activations=static", "--sinks=keep")),
    "W8A8, groups of tokens": (random_llama, LLAMA, ("--scheme=W8A8", "--activation-group-size=32")),
    "W4A8, groups of both with zero points": (
        random_llama, LLAMA, ("--scheme=W4A8_ASYM", "--method=zeropoint", "--group-size=32", "--activation-group-size=32", "--activation-zero-points")),
    "W4A8, groups": (random_llama, LLAMA, ("--scheme=W4A8", "--group-size=16")),
    "W4A16": (random_llama, LLAMA, ("--scheme=W4A16", "--group-size=16")),
    "W3A16 with zero points": (random_llama, LLAMA, ("--scheme=W3A16_ASYM", "--method=zeropoint", "--group-size=32")),
    "NF4": (random_llama, LLAMA, ("--scheme=NF4A16", "--group-size=32")),
    "IQ4_NL beside int8": (random_llama, LLAMA, ("--scheme=IQ4NLA8", "--group-size=32")),
    "MXFP4": (random_llama, LLAMA, ("--scheme=MXFP4A16",)),
    "NVFP4": (random_llama, LLAMA, ("--scheme=NVFP4A16",)),
    "NVFP4 beside FP4": (random_llama, LLAMA, ("--scheme=NVFP4",)),
    "FP8": (random_llama, LLAMA, ("--scheme=FP8_DYNAMIC",)),
    "Q4_1": (random_llama, LLAMA, ("--scheme=Q4_1",)),
    "Q2_K": (random_llama, WIDE, ("--scheme=Q2_K",)),
    "Q3_K": (random_llama, WIDE, ("--scheme=Q3_K",)),
    "Q4_K": (random_llama, WIDE, ("--scheme=Q4_K",)),
    "Q5_K beside int8": (random_llama, WIDE, ("--scheme=Q5_K", "--activations=dynamic")),
    "Q6_K": (random_llama, WIDE, ("--scheme=Q6_K",)),
    "IQ4_XS": (random_llama, WIDE, ("--scheme=IQ4_XS",)),
    "float": (random_llama, LLAMA, ("--scheme=none",)),
    "Mistral": (random_llama, LLAMA | {"arch": "mistral", "sliding_window": 5}, ("--scheme=W8A8",)),
    "Qwen3": (random_llama, LLAMA | {"arch": "qwen3"}, ("--scheme=W8A16",)),
    "Qwen2": (random_llama, LLAMA | {"arch": "qwen2"}, ("--scheme=W8A8",)),
    "Phi-3": (random_llama, LLAMA | {"arch": "phi3", "hidden": 64, "partial_rotary_factor": 0.75}, ("--scheme=W8A8",)),
    "Gemma 4 E2B": (random_gemma4, {"layers": 4, "layer_types": ["sliding_attention", "full_attention"] * 2, "num_kv_shared_layers": 2,
                                    "use_double_wide_mlp": True, "hidden_size_per_layer_input": 16}, ("--scheme=W8A8",)),
    "Gemma 4": (random_gemma4, {"layers": 2, "layer_types": ["sliding_attention", "full_attention"], "attention_k_eq_v": True,
                                "num_global_key_value_heads": 1, "sliding_window": 5}, ("--scheme=W8A8",)),
    "GPT-2": (random_gpt2, {"layers": 1}, ("--scheme=W8A16",)),
}  # fmt: skip
# These vary what the others test.
SLOW = (
    "W8A8, plain basis", "W8A8, static", "W4A16", "MXFP4", "NVFP4", "Q3_K", "Q4_K", "Q6_K", "IQ4_XS", "float", "Mistral", "Qwen3", "Qwen2",
    "Gemma 4", "W8A8, static, sinks apart", "NF4", "FP8", "Q4_1", "Phi-3")


@pytest.mark.parametrize("name", with_slow(CASES, *SLOW))
def test_logits_are_those_of_the_artifact(runner, workspace, tmp_path, name):
    make, fields, options = CASES[name]
    model = write_model(workspace / f"linalg-{name.replace(' ', '-')}", *make(31, **fields))
    if {"--activations=static", "--scheme=NVFP4"} & set(options):
        options += (f"--tokens={write_tokens(workspace / 'linalg-tokens.safetensors', [random_tokens(seed, 40, 97) for seed in range(3)])}",)
    tokens = random_tokens(5, 11, 97)
    found = logits(convert(model, tmp_path, *options), tokens)
    expected = runner(model, *options, "--kv-cache=f32").score(tokens)
    rows = np.linalg.norm(expected - found, axis=1) / np.linalg.norm(expected, axis=1)
    # A code that rounds the other way, which one in some thousands does, moves the logits of its token by more than arithmetic does.
    assert np.median(rows) < 1e-6 and rows.max() < 2e-2


def test_weights_are_those_of_the_artifact(artifact, workspace, tmp_path):
    """Codes, scales and zero points to the bit, unpacked."""
    model = write_model(workspace / "linalg-weights", *random_llama(32, **LLAMA))
    options = ("--scheme=W4A16_ASYM", "--method=zeropoint", "--group-size=16")
    text = convert(model, tmp_path, *options, weights="arguments")
    plain, packed = load_file(tmp_path / "weights.safetensors"), load_file(artifact(model, *options) / "weights.safetensors")
    weights = [name for name in plain if name + "_scale" in plain]
    assert len(weights) == 5 and len(plain) == len(packed)
    for name in weights:
        bits, shape = 8 if "embed" in name else 4, plain[name].shape
        group = 0 if "embed" in name else 16
        np.testing.assert_array_equal(plain[name], unpack_codes(packed[name], bits, *shape))
        columns = lambda params: np.repeat(params, group or shape[1], axis=1)[:, : shape[1]]  # noqa: E731
        scales = unpack_scales(packed[name + "_scale"], *shape, group)
        np.testing.assert_array_equal(columns(plain[name + "_scale"]), scales.astype(np.float32))
        if name + "_zero_point" in plain:
            zeros = unpack_scales(unpack_zero_points(packed[name + "_zero_point"], bits), *shape, group)
            np.testing.assert_array_equal(columns(plain[name + "_zero_point"]), zeros)
    for name in plain:
        assert f'{{equant.tensor = "{name}"}}' in text


# ----------------------------------------------------------------------------------------------------- ops, to the bit

f32 = np.float32


def clamp_round(steps, low, high):
    return np.clip(np.rint(steps), low, high)


def symmetric(x):
    top = np.abs(x).max(axis=-1, keepdims=True)
    return clamp_round(x * (f32(127) / top), -127, 127), top / f32(127), 0 * top


def asymmetric(x):
    up, down = (np.maximum(side.max(axis=-1, keepdims=True), 0) for side in (x, -x))
    half = up * f32(0.5) + down * f32(0.5)
    inverse = f32(127.5) / half
    zero = clamp_round(down * inverse - f32(128), -128, 127)
    return np.clip(np.rint(x * inverse) + zero, -128, 127), half / f32(127.5), zero


def static(x, scale, zero):
    low = -128 if zero else -127
    return np.clip(np.rint(x * (f32(1) / f32(scale))) + zero, low, 127), np.full((len(x), 1), scale, f32), np.full((len(x), 1), zero)


def with_sinks(x, scale, zero):
    codes, scales, zeros = static(x, scale, zero)
    low = (-128 if zero else -127) - zero
    centre, reach = f32((low + 127 - zero) / 2), f32((127 - zero - low) / 2 + 0.5)
    leaves = np.abs(x * (f32(1) / f32(scale)) - centre).max(axis=-1, keepdims=True) > reach
    assert 0 < leaves.sum() < len(x)
    own = symmetric(x)
    return tuple(np.where(leaves, a, b) for a, b in zip(own, (codes, scales, zeros)))


ROWS = {
    "token, dynamic": ("symmetric, token, dynamic", "", symmetric, 0),
    "groups": ("symmetric, token, group = 32, dynamic", "", symmetric, 32),
    "groups with zero points": ("asymmetric, token, group = 32, dynamic", "", asymmetric, 32),
    "static": ("symmetric, tensor", "{scale = 3.125e-02 : f32}", lambda x: static(x, 0.03125, 0), 0),
    "static with zero point": ("asymmetric, tensor", "{scale = 0.04 : f32, zero_point = 37 : i32}", lambda x: static(x, f32(0.04), 37), 0),
    "sinks": ("symmetric, tensor, sinks", "{scale = 0.04 : f32}", lambda x: with_sinks(x, f32(0.04), 0), 0),
    "sinks with zero point": ("asymmetric, tensor, sinks", "{scale = 0.04 : f32, zero_point = -20 : i32}", lambda x: with_sinks(x, f32(0.04), -20), 0),
}  # fmt: skip
WEIGHTS = {
    "channel": "i8, symmetric, channel",
    "group": "i4, symmetric, group = 64",
    "zero points": "i5, asymmetric, group = 32",
    "minima": "i4, asymmetric, minima, group = 32",
}
COLUMNS, OUT = 104, 7  # no whole groups


def lower(text):
    result = run_tool("easyquant-opt", "--convert-equant-to-linalg", "--canonicalize", "--cse", input=text)
    assert result.returncode == 0, result.stderr
    return result.stdout


def activations():
    random = np.random.default_rng(3)
    x = random.normal(0, 1, (9, COLUMNS)).astype(f32)
    x[2] *= 30
    x[4] = 0
    x[5, 1] = -41.5
    return x


def test_codes_of_activations():
    x = activations()
    functions, calls = [], []
    for index, (scheme, parameters, _, group) in enumerate(ROWS.values()):
        rows = f"!equant.rows<?x{COLUMNS}, #equant.scheme<i8, {scheme}>, sums = {group}>"
        functions.append(
            f"func.func @f{index}(%x: tensor<?x{COLUMNS}xf32>) -> {rows} {{\n"
            f"%q = equant.quantize_rows %x {parameters} : tensor<?x{COLUMNS}xf32> -> {rows}\nreturn %q : {rows}\n}}"
        )
        calls.append((f"f{index}", [x]))
    for (name, (scheme, _, define, group)), found in zip(ROWS.items(), call(lower("\n".join(functions)), calls), strict=True):
        with np.errstate(divide="ignore", invalid="ignore"):
            parts = [define(x[:, start : start + group] if group else x) for start in (range(0, COLUMNS, group) if group else [0])]
        zero = [~np.isfinite(scales) | (scales == 0) for _, scales, _ in parts] if "dynamic" in scheme or "sinks" in scheme else [False] * len(parts)
        codes = [np.where(is_zero, 0, codes) for is_zero, (codes, _, _) in zip(zero, parts)]
        np.testing.assert_array_equal(found[0], np.concatenate(codes, axis=1), err_msg=name)
        scales = np.concatenate([np.where(is_zero, f32(1), scales) for is_zero, (_, scales, _) in zip(zero, parts)], axis=1)
        np.testing.assert_array_equal(found[1].reshape(scales.shape), scales, err_msg=name)
        np.testing.assert_array_equal(found[2], np.stack([part.sum(axis=1) for part in codes], axis=1), err_msg=name)
        if "asymmetric" in scheme:
            zeros = np.concatenate([np.where(is_zero, 0, zeros) for is_zero, (_, _, zeros) in zip(zero, parts)], axis=1)
            np.testing.assert_array_equal(found[3].reshape(zeros.shape), zeros, err_msg=name)


def nearest(steps, kind):
    return np.clip(steps, -largest(kind), largest(kind)).astype(kind).astype(f32)


def largest(kind):
    return f32(ml_dtypes.finfo(kind).max)


FP8, FP4 = ml_dtypes.float8_e4m3fn, ml_dtypes.float4_e2m1fn
ROUNDED = {
    "FP8, token": ("f8E4M3FN, token, dynamic", None, FP8, 0),
    "FP8, groups": ("f8E4M3FN, token, group = 32, dynamic", None, FP8, 32),
    "FP8, static": ("f8E4M3FN, tensor", 0.015625, FP8, 0),
    "FP4, token": ("f4E2M1FN, token, dynamic", None, FP4, 0),
    "FP4, static": ("f4E2M1FN, tensor", 0.5, FP4, 0),
    "NVFP4": ("f4E2M1FN, group = 16, dynamic, scale = f8E4M3FN, outer = tensor", 2.5e-3, FP4, 16),
}


def scales_of(x, dynamic, scale, kind):
    """One a row, of its own, or in steps of FP8 of the one that is given."""
    if not dynamic:
        return np.full((len(x), 1), scale, f32)
    top = np.abs(x).max(axis=1, keepdims=True)
    if scale is None:
        return np.where(top == 0, f32(1), top / largest(kind))
    steps = np.maximum(nearest(top / largest(kind) / f32(scale), FP8), f32(2**-9))
    return np.where(top == 0, f32(1), steps) * f32(scale)


def test_activations_in_floats_of_few_bits():
    """Against ml_dtypes."""
    x, functions = activations(), []
    x[6] = np.arange(COLUMNS) * 0.125  # many ties
    for index, (scheme, scale, _, _) in enumerate(ROUNDED.values()):
        attributes = f"scheme = #equant.scheme<{scheme}>" + ("" if scale is None else f", scale = {scale:e} : f32")
        functions.append(f"func.func @f{index}(%x: tensor<?x{COLUMNS}xf32>) -> tensor<?x{COLUMNS}xf32> {{\n"
                         f"%y = equant.fake_quantize %x {{{attributes}}} : tensor<?x{COLUMNS}xf32>\nreturn %y : tensor<?x{COLUMNS}xf32>\n}}")  # fmt: skip
    found = call(lower("\n".join(functions)), [(f"f{index}", [x]) for index in range(len(functions))])
    for (name, (scheme, scale, kind, group)), (values,) in zip(ROUNDED.items(), found, strict=True):
        parts = [x[:, start : start + (group or COLUMNS)] for start in range(0, COLUMNS, group or COLUMNS)]
        scales = [scales_of(part, "dynamic" in scheme, scale, kind) for part in parts]
        wanted = np.concatenate([s * nearest(part / s, kind) for s, part in zip(scales, parts)], axis=1)
        np.testing.assert_array_equal(values, wanted, err_msg=name)


def linear_function(name, weight, bits, groups, input_scheme, parameters):
    """A linear on activations, codes as i8, scales and, of asymmetric schemes, zero points or minima."""
    kind, codes = f"!equant.weight<{OUT}x{COLUMNS}, #equant.scheme<{weight}>>", f"tensor<{OUT}x{COLUMNS}xi{bits}>"
    arguments = {"%c": f"tensor<{OUT}x{COLUMNS}xi8>", "%s": f"tensor<{OUT}x{groups}xf32>"}
    if "asymmetric" in weight:
        arguments["%z"] = f"tensor<{OUT}x{groups}x{'f32' if 'minima' in weight else 'i32'}>"
    narrow = f"%n = arith.trunci %c : {arguments['%c']} to {codes}" if bits < 8 else ""
    zeros = "" if "%z" not in arguments else "minimum(%z) " if "minima" in weight else "zero_point(%z) "
    attributes = f"input_scheme = {input_scheme}, {parameters + ', ' if parameters else ''}sites = [\"a\"]"
    return f"""
func.func @{name}(%x: tensor<?x{COLUMNS}xf32>, {", ".join(f"{value}: {kind}" for value, kind in arguments.items())}) -> tensor<?x{OUT}xf32> {{
  {narrow}
  %w = equant.from_codes {"%n" if narrow else "%c"} scale(%s) {zeros}: ({", ".join([codes, *list(arguments.values())[1:]])}) -> {kind}
  %y = equant.linear %x, %w {{{attributes}}} : (tensor<?x{COLUMNS}xf32>, {kind}) -> tensor<?x{OUT}xf32>
  return %y : tensor<?x{OUT}xf32>
}}"""


def test_integer_sums_and_scales():
    """Every pair of schemes, against reference::integerLinear in numpy."""
    random, x = np.random.default_rng(4), activations()
    functions, calls, expected = [], [], []
    for weight in WEIGHTS.values():
        for name, (scheme, parameters, define, group) in ROWS.items():
            width = 32 if "group = 32" in weight else 64 if "group" in weight else 0
            if group and width % group:
                continue
            groups = -(-COLUMNS // width) if width else 1
            bits, has_zeros, has_minima = int(weight[1]), "asymmetric" in weight, "minima" in weight
            codes = random.integers(-(2 ** (bits - 1)) + 1, 2 ** (bits - 1), (OUT, COLUMNS)).astype(np.int8)
            scales = random.uniform(0.01, 0.02, (OUT, groups)).astype(f32)
            zeros = random.integers(-8, 8, (OUT, groups)).astype(np.int32)
            minima = random.uniform(-0.2, 0.05, (OUT, groups)).astype(f32)
            index, inner = len(functions), parameters.strip("{}").replace("scale", "input_scale").replace("zero_point", "input_zero_point")
            functions.append(linear_function(f"f{index}", weight, bits, groups, f"#equant.scheme<i8, {scheme}>", inner))
            calls.append((f"f{index}", [x, codes, scales] + [minima if has_minima else zeros] * has_zeros))
            if has_minima:
                zeros = np.full((OUT, groups), -(2 ** (bits - 1)))  # what a minimum is added to is counted from the lowest code on
            params = zeros * has_zeros, minima if has_minima else None
            expected.append((name, weight, reference(x, define, group, codes, scales, *params, width, "dynamic" in scheme or "sinks" in scheme)))
    for (name, weight, wanted), (found,) in zip(expected, call(lower("\n".join(functions)), calls), strict=True):
        np.testing.assert_array_equal(found, wanted, err_msg=f"{name} beside {weight}")


def fma(a, b, c):
    """Rounded once: a product of two f32 is exact in f64, and sums of these here are as good as exact."""
    return (a.astype(np.longdouble) * b + c).astype(f32)


def reference(x, define, token_group, codes, scales, zeros, minima, width, has_zero_rows):
    """reference::integerLinear, in numpy."""
    token_group, width = token_group or COLUMNS, width or COLUMNS
    step = min(token_group, width)
    y = np.zeros((len(x), OUT), f32)
    params = {}
    for start in range(0, COLUMNS, token_group):
        with np.errstate(divide="ignore", invalid="ignore"):
            q, s, z = define(x[:, start : start + token_group])
        zero = (~np.isfinite(s) | (s == 0)) if has_zero_rows else np.zeros(s.shape, bool)
        params[start] = np.where(zero, 0, q).astype(np.int64), np.where(zero, f32(1), s), np.where(zero, 0, z).astype(np.int64)
    for first in range(0, COLUMNS, width):
        group, inner, ones = first // width, np.zeros((len(x), OUT), f32), np.zeros((len(x), 1), f32)
        for start in range(first, min(first + width, COLUMNS), step):
            end = min(start + step, COLUMNS)
            of = start // token_group * token_group
            q, s, z = params[of]
            dots = (q[:, start - of : end - of] - z) @ (codes[:, start:end].astype(np.int64) - zeros[:, group : group + 1]).T
            dots = dots.astype(f32)
            inner = fma(s, dots, inner) if token_group < COLUMNS else dots
            total = (q[:, start - of : end - of] - z).sum(axis=1, keepdims=True).astype(f32)
            ones = fma(s, total, ones) if token_group < COLUMNS else total
        y = fma(scales[:, group], inner, y)
        if minima is not None:
            y = fma(minima[:, group], ones, y)
    return y if token_group < COLUMNS else params[0][1] * y


def test_rotated_rows_are_those_of_kernels():
    """Additions and subtractions in the order of Hadamard.h, and one factor."""
    x, block = np.random.default_rng(6).normal(0, 1, (5, 96)).astype(f32), 32
    text = f"func.func @f(%x: tensor<?x96xf32>) -> tensor<?x96xf32> {{\n%r = equant.hadamard %x {{block = {block} : i64}} : tensor<?x96xf32>\nreturn %r : tensor<?x96xf32>\n}}"
    expected, half = x.copy(), 1
    while half < block:
        pairs = expected.reshape(5, -1, 2, half)
        expected = np.stack([pairs[:, :, 0] + pairs[:, :, 1], pairs[:, :, 0] - pairs[:, :, 1]], axis=2).reshape(5, 96)
        half *= 2
    np.testing.assert_array_equal(call(lower(text), [("f", [x])])[0][0], expected * f32(1 / np.sqrt(block)))


# ---------------------------------------------------------------------------------------------------------------- IREE


def test_iree_runs_it_beside_its_parameters(runner, tiny_llama, tmp_path):
    iree("iree-compile")
    text = convert(tiny_llama, tmp_path, "--scheme=W8A8", weights="iree", flags=("--allow-unregistered-dialect", "--mlir-print-op-generic"))
    tokens = random_tokens(5, 11, 97)
    inputs = [np.array(values, np.int32) for values in (tokens, range(11))]
    found = call_iree(text, tmp_path, "forward", inputs, f"--parameters=model={tmp_path / 'weights.safetensors'}")
    expected = runner(tiny_llama, "--scheme=W8A8", "--kv-cache=f32").score(tokens)
    assert relative_error(expected, found) < 2e-3
