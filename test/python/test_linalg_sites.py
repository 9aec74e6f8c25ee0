# Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Ops of linalg with constant weights, and what torch-mlir prints of networks: quantized by easyquant-opt alone, run by mlir-runner and IREE."""

import json
import re

import numpy as np
import pytest
from safetensors.numpy import save_file

from helpers import run_tool
from linalg import INPUTS, call, call_iree, constants, iree, network

PIPELINE = "builtin.module(equant-name-sites,{plan},equant-quantize,equant-evaluate-constants,convert-equant-to-linalg,canonicalize,cse)"
f32 = np.float32


def quantize(text, plan, *flags):
    """The module with its sites quantized as a plan pass plans them."""
    result = run_tool("easyquant-opt", f"--pass-pipeline={PIPELINE.format(plan=plan)}", *flags, input=text)
    assert result.returncode == 0, result.stderr
    assert "equant" not in result.stdout
    return result.stdout


# ------------------------------------------------------------------------------------- EasyQuant's arithmetic, in numpy


def weight_codes(w, bits=8, group=0):
    """Rule absmax: codes and scales, N x G; scales of groups are f16."""
    columns = w.shape[1]
    starts = range(0, columns, group or columns)
    parts = [w[:, start : start + (group or columns)] for start in starts]
    scales = np.stack([np.abs(part).max(axis=1) / f32(2 ** (bits - 1) - 1) for part in parts], axis=1)
    if group:
        scales = scales.astype(np.float16).astype(f32)
    top = 2 ** (bits - 1) - 1
    codes = [np.clip(np.rint(part / scales[:, i : i + 1]), -top, top) for i, part in enumerate(parts)]
    return np.concatenate(codes, axis=1).astype(np.int64), scales


def dequantized(w, bits=8, group=0):
    codes, scales = weight_codes(w, bits, group)
    return np.repeat(scales, group or w.shape[1], axis=1)[:, : w.shape[1]] * codes.astype(f32)


def linear(x, w):
    """W8A8, dynamic per row: integer sums, then scales of channels, then of rows, each one f32 operation."""
    codes, scales = weight_codes(w)
    top = np.abs(x).max(axis=1, keepdims=True)
    q = np.where(top > 0, np.rint(x * (f32(127) / np.where(top > 0, top, f32(1)))), 0).astype(np.int64)
    return np.where(top > 0, top / f32(127), f32(1)) * (scales[:, 0] * (q @ codes.T).astype(f32))


# ------------------------------------------------------------------------------------------------------------ single ops


def windows(x, kernel, strides, dilations):
    """x[n, c, spatial...] → [n, places..., c, kernel...]."""
    spans = [(size - 1) * dilation + 1 for size, dilation in zip(kernel, dilations)]
    view = np.lib.stride_tricks.sliding_window_view(x, spans, axis=tuple(range(2, x.ndim)))
    take = (slice(None), slice(None), *(slice(None, None, stride) for stride in strides), *(slice(None, None, dilation) for dilation in dilations))
    return np.moveaxis(view[take], 1, len(kernel) + 1)


def convolution(weights, kernel, strides, dilations, multiply):
    """A convolution of x[n, c, ...] with weights[f, c, ...], by the rows of windows."""

    def compute(x):
        seen = windows(x, kernel, strides, dilations)
        places = seen.shape[: 1 + len(kernel)]
        y = multiply(np.ascontiguousarray(seen).reshape(-1, weights[0].size), weights.reshape(len(weights), -1))
        return np.moveaxis(y.reshape(*places, -1), -1, 1)

    return compute


class Case:
    """An op, its weight as text has it, and what it computes by a linear of rows."""

    def __init__(self, op, x, weight, out, reference, attributes="", weight_first=False, dynamic=False):
        self.op, self.x, self.weight, self.out, self.reference = op, x, weight, out, reference
        self.attributes, self.weight_first, self.dynamic = attributes, weight_first, dynamic

    def function(self, name, transposed):
        """With a sum that is no 0; the weight is a constant, or the transposition of one."""
        kind = lambda shape: f"tensor<{'x'.join(map(str, shape))}xf32>"  # noqa: E731
        dims = list(range(self.weight.ndim))[::-1]
        stored = np.ascontiguousarray(self.weight.transpose(dims)) if transposed else self.weight
        lines = [f'%c = arith.constant dense<"0x{stored.tobytes().hex()}"> : {kind(stored.shape)}']
        if transposed:
            lines.append(f"%e = tensor.empty() : {kind(self.weight.shape)}")
            lines.append(f"%w = linalg.transpose ins(%c : {kind(stored.shape)}) outs(%e : {kind(self.weight.shape)}) permutation = {dims}")
        x = kind(["?", *self.x.shape[1:]] if self.dynamic else self.x.shape)
        y = kind(["?", *self.out[1:]] if self.dynamic else self.out)
        factors, kinds = ("%x, " + ("%w" if transposed else "%c")).split(", "), [x, kind(self.weight.shape)]
        if self.weight_first:
            factors.reverse()
            kinds.reverse()
        lines.append(f"%y = {self.op} {self.attributes} ins({', '.join(factors)} : {', '.join(kinds)}) outs(%i : {y}) -> {y}")
        return f"func.func @{name}(%x: {x}, %i: {y}) -> {y} {{\n" + "\n".join(lines) + f"\nreturn %y : {y}\n}}\n"


def cases():
    random = np.random.default_rng(11)
    normal = lambda *shape: random.normal(0, 1, shape).astype(f32)  # noqa: E731
    found = {}
    w = normal(6, 16)
    found["matmul"] = Case("linalg.matmul", normal(5, 16), w.T.copy(), (5, 6), lambda m: lambda x: m(x, w), dynamic=True)
    maps = "indexing_maps = [affine_map<(m, n, k) -> (m, k)>, affine_map<(m, n, k) -> (n, k)>, affine_map<(m, n, k) -> (m, n)>]"
    found["matmul, transposed by its maps"] = Case("linalg.matmul", normal(5, 16), w, (5, 6), lambda m: lambda x: m(x, w), maps)
    v = normal(3, 16, 6)
    found["batch_matmul"] = Case("linalg.batch_matmul", normal(3, 5, 16), v, (3, 5, 6),
                                 lambda m: lambda x: np.stack([m(a, b.T) for a, b in zip(x, v)]))  # fmt: skip
    u = normal(2, 8, 3, 2)  # features 2, 3 of the output, 8 and 2 of the input
    maps = ("indexing_maps = [affine_map<(p, s, f, g, k, l) -> (f, k, g, l)>, affine_map<(p, s, f, g, k, l) -> (l, p, k, s)>,"
            " affine_map<(p, s, f, g, k, l) -> (g, s, f, p)>]")  # fmt: skip
    found["contract, weight first, any order"] = Case(
        "linalg.contract", normal(2, 4, 8, 5), u, (3, 5, 2, 4),
        lambda m: lambda x: m(x.transpose(1, 3, 2, 0).reshape(20, 16), u.transpose(0, 2, 1, 3).reshape(6, 16))
        .reshape(4, 5, 2, 3).transpose(3, 1, 2, 0), maps, weight_first=True)  # fmt: skip
    maps = "indexing_maps = [affine_map<(n, k) -> (k)>, affine_map<(n, k) -> (n, k)>, affine_map<(n, k) -> (n)>]"
    found["contract of a vector"] = Case("linalg.contract", normal(16), w, (6,), lambda m: lambda x: m(x[None], w)[0], maps)
    k = normal(6, 4, 3, 2)
    for name, order, dynamic in (("nchw_fchw", "nchw fchw", True), ("nhwc_fhwc", "nhwc fhwc", False), ("nhwc_hwcf", "nhwc hwcf", False)):
        of_x, of_w = order.split()
        to_x, to_w = (["nchw".index(c) for c in of_x], ["fchw".index(c) for c in of_w])
        # A window's columns are summed in the order of the op's loops, which groups of a row follow: that of "c, h, w" or "h, w, c".
        from_x = lambda x, to=to_x: x.transpose(np.argsort(to))  # noqa: E731
        found[f"conv_2d_{name}"] = Case(
            f"linalg.conv_2d_{name}", normal(2, 4, 9, 8).transpose(to_x).copy(), k.transpose(to_w).copy(),
            tuple(np.array((2, 6, 4, 6))[to_x]),
            lambda m, from_x=from_x, to=to_x, last=order[1] == "h": lambda x: convolution(
                k, (3, 2), (2, 1), (1, 2), m if not last else lambda r, w: m(channels_last(r), channels_last(w)))(from_x(x)).transpose(to),
            "{strides = dense<[2, 1]> : vector<2xi64>, dilations = dense<[1, 2]> : vector<2xi64>}", dynamic=dynamic)  # fmt: skip
    c = normal(6, 4, 3)
    found["conv_1d_ncw_fcw"] = Case("linalg.conv_1d_ncw_fcw", normal(2, 4, 9), c, (2, 6, 7), lambda m: convolution(c, (3,), (1,), (1,), m))
    g = normal(2, 3, 4, 3, 2)  # two groups of channels
    found["conv_2d_ngchw_gfchw"] = Case(
        "linalg.conv_2d_ngchw_gfchw", normal(2, 2, 4, 5, 6), g, (2, 2, 3, 3, 5),
        lambda m: lambda x: np.stack([convolution(g[i], (3, 2), (1, 1), (1, 1), m)(x[:, i]) for i in range(2)], axis=1))  # fmt: skip
    # Depthwise: d[c, m] is the window by which channel c of the input makes channel (c, m) of the output.
    d = normal(3, 2, 3, 2)
    by_channel = lambda multiply, weights, x: np.stack(  # noqa: E731
        [convolution(weights[c][:, None], (3, 2), (1, 1), (1, 1), multiply)(x[:, c : c + 1]) for c in range(3)], axis=1)  # fmt: skip
    found["depthwise_conv_2d_nchw_chw"] = Case(
        "linalg.depthwise_conv_2d_nchw_chw", normal(2, 3, 5, 6), d[:, 0].copy(), (2, 3, 3, 5),
        lambda m: lambda x: by_channel(m, d[:, :1], x)[:, :, 0], dynamic=True)  # fmt: skip
    found["depthwise_conv_2d_nhwc_hwc"] = Case(
        "linalg.depthwise_conv_2d_nhwc_hwc", normal(2, 5, 6, 3), d[:, 0].transpose(1, 2, 0).copy(), (2, 3, 5, 3),
        lambda m: lambda x: by_channel(m, d[:, :1], x.transpose(0, 3, 1, 2))[:, :, 0].transpose(0, 2, 3, 1))  # fmt: skip
    found["depthwise_conv_2d_nhwc_hwcm"] = Case(
        "linalg.depthwise_conv_2d_nhwc_hwcm", normal(2, 5, 6, 3), d.transpose(2, 3, 0, 1).copy(), (2, 3, 5, 3, 2),
        lambda m: lambda x: by_channel(m, d, x.transpose(0, 3, 1, 2)).transpose(0, 3, 4, 1, 2))  # fmt: skip
    return found


def channels_last(rows):
    """Columns in the order h, w, c instead of c, h, w, of windows of 4 channels."""
    return np.ascontiguousarray(rows.reshape(len(rows), 4, -1).swapaxes(1, 2)).reshape(len(rows), -1)


CASES = cases()


def run_cases(plan, rounds):
    """[(name, found, expected for a way of multiplying rows)] of all ops, with the weight as it is and behind a transposition."""
    random = np.random.default_rng(12)
    functions, calls, expected = [], [], []
    for name, case in CASES.items():
        init = random.normal(0, 1, case.out).astype(f32)
        for transposed in (False, True):
            functions.append(case.function(f"f{len(functions)}", transposed))
            calls.append((f"f{len(calls)}", [case.x, init]))
            expected.append((f"{name}{', behind a transposition' if transposed else ''}", case.reference(rounds)(case.x), init))
    found = call(quantize("\n".join(functions), plan), calls)
    return [(name, y, wanted, init) for (name, wanted, init), (y,) in zip(expected, found, strict=True)]


def test_integer_sums_and_scales():
    """W8A8 to the bit: what linalg's op computes is the linear of its rows, added to what it adds to."""
    for name, found, wanted, init in run_cases("equant-absmax{scheme=W8A8}", linear):
        np.testing.assert_array_equal(found, init + wanted.astype(f32), err_msg=name)


@pytest.mark.parametrize("scheme, bits, group", [("W8A16", 8, 0), ("W4A16 group-size=8", 4, 8)])
def test_weights_alone(scheme, bits, group):
    """Against products in double precision."""
    for name, found, wanted, init in run_cases(f"equant-absmax{{scheme={scheme}}}", lambda x, w: x.astype(float) @ dequantized(w, bits, group).T.astype(float)):
        np.testing.assert_allclose(found, init + wanted, rtol=0, atol=1e-5, err_msg=name)


# -------------------------------------------------------------------------------------------------------- half precision


def to_bf16(x):
    """The nearest bf16, ties to even."""
    bits = x.astype(f32).view(np.uint32)
    return ((bits + 0x7FFF + (bits >> 16 & 1)) & 0xFFFF0000).astype(np.uint32).view(f32)


HALVES = {"f16": (lambda x: x.astype(np.float16).astype(f32), lambda x: x.astype(np.float16).tobytes()),
          "bf16": (to_bf16, lambda x: (x.view(np.uint32) >> 16).astype(np.uint16).tobytes())}  # fmt: skip


@pytest.mark.parametrize("kind", HALVES)
def test_half_precision(kind):
    """A product of halves, and one of floats whose weight is stored in halves: in integers to the bit, one rounding at the end."""
    to_half, pack = HALVES[kind]
    random = np.random.default_rng(14)
    w, x, init = (to_half(random.normal(0, 1, shape).astype(f32)) for shape in ((16, 6), (5, 16), (5, 6)))
    body = f"""
  %c = arith.constant dense<"0x{pack(w).hex()}"> : tensor<16x6x{kind}>
  %h = arith.truncf %x : tensor<5x16xf32> to tensor<5x16x{kind}>
  %j = arith.truncf %i : tensor<5x6xf32> to tensor<5x6x{kind}>
  %y = linalg.matmul ins(%h, %c : tensor<5x16x{kind}>, tensor<16x6x{kind}>) outs(%j : tensor<5x6x{kind}>) -> tensor<5x6x{kind}>
  %f = arith.extf %y : tensor<5x6x{kind}> to tensor<5x6xf32>
  %w = arith.extf %c : tensor<16x6x{kind}> to tensor<16x6xf32>
  %z = linalg.matmul ins(%x, %w : tensor<5x16xf32>, tensor<16x6xf32>) outs(%i : tensor<5x6xf32>) -> tensor<5x6xf32>
  return %f, %z : tensor<5x6xf32>, tensor<5x6xf32>
"""
    text = f"func.func @f(%x: tensor<5x16xf32>, %i: tensor<5x6xf32>) -> (tensor<5x6xf32>, tensor<5x6xf32>) {{{body}}}"
    sums = linear(x, w.T.copy()).astype(f32)
    half, whole = call(quantize(text, "equant-absmax{scheme=W8A8}"), [("f", [x, init])])[0]
    np.testing.assert_array_equal(half, to_half(init + sums))
    np.testing.assert_array_equal(whole, init + sums)
    # Beside floats the op stays one of halves, on weights that are rounded to them.
    rounded, wide = dequantized(w.T.copy()).T, x.astype(float)
    half, whole = call(quantize(text, "equant-absmax{scheme=W8A16}"), [("f", [x, init])])[0]
    np.testing.assert_allclose(whole, init + wide @ rounded, rtol=0, atol=1e-5)
    expected, product = init.copy(), to_half if kind == "f16" else lambda x: x  # upstream's emulation of bf16 rounds sums alone
    for k in range(16):
        expected = to_half(expected + product(x[:, k : k + 1] * to_half(rounded[k])))
    np.testing.assert_array_equal(half, expected)


# -------------------------------------------------------------------------------------------------------------- networks


def with_constants(text, values):
    for name, value in values.items():
        text = re.sub(rf'({re.escape(name)}: "0x04000000)[0-9A-F]*"', lambda m, value=value: f'{m[1]}{value.tobytes().hex().upper()}"', text)
    return text


def pretty(text):
    result = run_tool("easyquant-opt", "-", input=text)
    assert result.returncode == 0, result.stderr
    return result.stdout


NETWORKS = {
    "mlp": np.random.default_rng(1).normal(0, 1, (5, 16)).astype(f32),
    "convolutions": np.random.default_rng(2).normal(0, 1, (2, 3, 12, 12)).astype(f32),
    "llama": np.array([[3, 9, 1, 30, 22, 7]]),
}


def weights_of(network, name, value):
    """Is it the weight of a linear or a convolution? An embedding and tables of angles are no factors of products."""
    return value.ndim in (2, 4) and not (network == "llama" and name in TABLES)


TABLES = [f"torch_tensor_{name}" for name in ("32_16_torch.float32", "6_6_torch.float32", "6_8_torch.float32", "6_8_torch.float32_1")]


@pytest.mark.parametrize("name", NETWORKS)
def test_float_networks_are_those_of_torch(name):
    (found,) = call(pretty(network(name)), [("forward", [NETWORKS[name]])])[0]
    np.testing.assert_allclose(found, np.load(INPUTS / f"{name}.npy"), rtol=0, atol=2e-6)


def sites_of(text):
    named = run_tool("easyquant-opt", "--equant-name-sites", input=text)
    assert named.returncode == 0, named.stderr
    return re.findall(r'equant\.site = "([^"]*)"', named.stdout)


def test_sites():
    assert sites_of(network("mlp")) == ["forward.matmul_0", "forward.matmul_1"]
    assert sites_of(network("convolutions")) == ["forward.conv_2d_nchw_fchw_0", "forward.conv_2d_nchw_fchw_1", "forward.matmul_0"]
    assert len(sites_of(network("llama"))) == 8  # q, k, v, o, gate, up, down and the head; attention has no weights


@pytest.mark.parametrize("name", NETWORKS)
@pytest.mark.parametrize("scheme, bits, group", [("W8A16", 8, 0), ("W4A16 group-size=8", 4, 8)])
def test_networks_with_quantized_weights(name, scheme, bits, group):
    """The same network in floats whose weights numpy has rounded."""
    text = network(name)
    values = constants(text)
    rounded = {key: dequantized(w.reshape(len(w), -1), bits, group).reshape(w.shape) for key, w in values.items() if weights_of(name, key, w)}
    assert len(rounded) == len(sites_of(text))
    (expected,) = call(pretty(with_constants(text, rounded)), [("forward", [NETWORKS[name]])])[0]
    (found,) = call(quantize(text, f"equant-absmax{{scheme={scheme}}}"), [("forward", [NETWORKS[name]])])[0]
    np.testing.assert_allclose(found, expected, rtol=0, atol=2e-6)
    (unchanged,) = call(pretty(text), [("forward", [NETWORKS[name]])])[0]
    assert np.abs(found - unchanged).max() > 1e-4


def test_recipes_name_sites(tmp_path):
    """One linear in 4 bits, the other in floats: its op stays, and nothing else of the module changes."""
    rules = [{"match": "forward.matmul_1", "scheme": "none"}, {"match": "forward.matmul_0", "scheme": "W4A16", "group_size": 16}]
    (tmp_path / "recipe.json").write_text(json.dumps({"method": "absmax", "scheme": "W8A16", "sites": rules}))
    text = network("mlp")
    (found,) = call(quantize(text, f"equant-recipe{{file={tmp_path / 'recipe.json'}}}"), [("forward", [NETWORKS["mlp"]])])[0]
    up = constants(text)["torch_tensor_32_16_torch.float32"]
    rounded = with_constants(text, {"torch_tensor_32_16_torch.float32": dequantized(up, 4, 16)})
    (expected,) = call(pretty(rounded), [("forward", [NETWORKS["mlp"]])])[0]
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-6)
    other = run_tool("easyquant-opt", f"--pass-pipeline={PIPELINE.format(plan='equant-absmax{scheme=W8A16 ignore=forward.matmul_2}')}", input=text)
    assert other.returncode != 0 and "forward.matmul_2" in other.stderr


def expected_mlp(x, values):
    up, down = values["torch_tensor_32_16_torch.float32"], values["torch_tensor_8_32_torch.float32"]
    hidden = np.maximum(linear(x, up) + values["torch_tensor_32_torch.float32"], 0)
    return linear(hidden, down) + values["torch_tensor_8_torch.float32"]


def expected_convolutions(x, values):
    pad = lambda x: np.pad(x, ((0, 0), (0, 0), (1, 1), (1, 1)))  # noqa: E731
    first, second = values["torch_tensor_8_3_3_3_torch.float32"], values["torch_tensor_8_8_3_3_torch.float32"]
    bias = values["torch_tensor_8_torch.float32"][:, None, None]
    x = np.maximum(bias + convolution(first, (3, 3), (1, 1), (1, 1), linear)(pad(x)), 0)
    x = np.maximum(convolution(second, (3, 3), (2, 2), (1, 1), linear)(pad(x)), 0)
    mean = np.cumsum(x.reshape(*x.shape[:2], -1), axis=2, dtype=f32)[:, :, -1] / f32(36)  # one after the other
    return linear(mean, values["torch_tensor_5_8_torch.float32"]) + values["torch_tensor_5_torch.float32"]


@pytest.mark.parametrize("name, expect", [("mlp", expected_mlp), ("convolutions", expected_convolutions)])
def test_networks_in_integers(name, expect):
    """W8A8, all of it in numpy: to the bit."""
    text = network(name)
    (found,) = call(quantize(text, "equant-absmax{scheme=W8A8}"), [("forward", [NETWORKS[name]])])[0]
    np.testing.assert_array_equal(found, expect(NETWORKS[name], constants(text)).astype(f32))


def test_zero_points_and_scales_of_static_activations():
    """Asymmetric weights, and a scale that the module gives: against double precision."""
    text = network("mlp")
    named = run_tool("easyquant-opt", "--equant-name-sites", input=text).stdout
    given = named.replace('equant.site = "', 'equant.input_scale = 3.0e-02 : f32, equant.site = "')
    plan = "equant-absmax{scheme=W8A8 activations=static sinks=none}"
    x = NETWORKS["mlp"]
    (found,) = call(quantize(given, plan), [("forward", [x])])[0]
    values = constants(text)

    def static(x, w):
        codes, scales = weight_codes(w)
        q = np.clip(np.rint(x * (f32(1) / f32(0.03))), -127, 127).astype(np.int64)
        return f32(0.03) * (scales[:, 0] * (q @ codes.T).astype(f32))

    up, down = values["torch_tensor_32_16_torch.float32"], values["torch_tensor_8_32_torch.float32"]
    hidden = np.maximum(static(x, up) + values["torch_tensor_32_torch.float32"], 0)
    np.testing.assert_array_equal(found, static(hidden, down) + values["torch_tensor_8_torch.float32"])
    exact = call(pretty(text), [("forward", [x])])[0][0]
    (found,) = call(quantize(text, "equant-zeropoint{scheme=W8A16}"), [("forward", [x])])[0]
    assert 1e-5 < np.abs(found - exact).max() < 2e-2


# ---------------------------------------------------------------------------------------------------------- static ranges


def calibrate(text, *inputs, options="", before=""):
    """The result of easyquant-opt, which has run the module on files."""
    pipeline = f"builtin.module(equant-name-sites,{before}equant-calibrate-sites{{inputs={','.join(map(str, inputs))} {options}}})"
    return run_tool("easyquant-opt", f"--pass-pipeline={pipeline}", "-", input=text)


def scales_of(result):
    assert result.returncode == 0, result.stderr
    return [f32(value) for value in re.findall(r"equant\.input_scale = (\S+) : f32", result.stdout)]


def saved(folder, **arrays):
    for name, array in arrays.items():
        np.save(folder / f"{name}.npy", array)
    return [folder / f"{name}.npy" for name in arrays]


def hidden_of_mlp(x, values):
    return np.maximum(x @ values["torch_tensor_32_16_torch.float32"].T + values["torch_tensor_32_torch.float32"], 0)


def test_ranges_are_those_of_all_inputs(tmp_path):
    """Two runs with other numbers of rows: the range of the activations that numpy computes, by observers of extrema and of the tensor as a whole."""
    text, a, b = network("mlp"), NETWORKS["mlp"], 2 * NETWORKS["mlp"][:3]
    files, values = saved(tmp_path, a=a, b=b), constants(text)
    seen = np.concatenate([a, b]), np.concatenate([hidden_of_mlp(a, values), hidden_of_mlp(b, values)])
    expected = [np.abs(x).max() / 127 for x in seen]
    np.testing.assert_allclose(scales_of(calibrate(text, *files)), expected, rtol=1e-6)
    np.testing.assert_allclose(scales_of(calibrate(text, *files, options="observer=absmax")), expected, rtol=1e-6)
    assert scales_of(calibrate(text, *files[:1]))[0] == np.abs(a).max() / f32(127)
    cut = scales_of(calibrate(text, *files, options="observer=percentile observer-percentile=90"))
    for x, scale in zip(seen, cut):
        np.testing.assert_allclose(scale * 127, np.quantile(np.abs(x), 0.9), rtol=0.1)
    result = calibrate(text, *files, options="zero-points=true")
    np.testing.assert_allclose(scales_of(result), [(max(x.max(), 0) - min(x.min(), 0)) / 255 for x in seen], rtol=1e-6)
    zeros = [int(value) for value in re.findall(r"equant\.input_zero_point = (-?\d+) : i32", result.stdout)]
    assert zeros[1] == -128 and abs(zeros[0]) < 40  # behind a ReLU all is above 0


@pytest.mark.parametrize("name", NETWORKS)
def test_static_networks(tmp_path, name):
    """From a float network to static W8A8 in one pipeline, whose results are near the floats'."""
    (file,) = saved(tmp_path, x=NETWORKS[name])
    plan = f"equant-calibrate-sites{{inputs={file}}},equant-absmax{{scheme=W8A8 activations=static sinks=none}}"
    (exact,) = call(pretty(network(name)), [("forward", [NETWORKS[name]])])[0]
    (found,) = call(quantize(network(name), plan), [("forward", [NETWORKS[name]])])[0]
    assert 1e-5 < np.linalg.norm(found - exact) / np.linalg.norm(exact) < 3e-2
    if name == "mlp":
        scales, values = scales_of(calibrate(network(name), file)), constants(network(name))

        def static(x, w, scale):
            codes, weights = weight_codes(w)
            q = np.clip(np.rint(x * (f32(1) / scale)), -127, 127).astype(np.int64)
            return scale * (weights[:, 0] * (q @ codes.T).astype(f32))

        hidden = np.maximum(static(NETWORKS[name], values["torch_tensor_32_16_torch.float32"], scales[0]) + values["torch_tensor_32_torch.float32"], 0)
        expected = static(hidden, values["torch_tensor_8_32_torch.float32"], scales[1]) + values["torch_tensor_8_torch.float32"]
        np.testing.assert_array_equal(found, expected)


BRANCHES = """
func.func private @inner(%x: tensor<2x4xf16>) -> tensor<2x4xf16> {
  %w = arith.constant dense<0.5> : tensor<4x4xf16>
  %i = arith.constant dense<0.0> : tensor<2x4xf16>
  %y = linalg.matmul ins(%x, %w : tensor<2x4xf16>, tensor<4x4xf16>) outs(%i : tensor<2x4xf16>) -> tensor<2x4xf16>
  return %y : tensor<2x4xf16>
}
func.func @main(%x: tensor<2x4xf16>, %b: tensor<i1>) -> tensor<2x4xf16> {
  %c = tensor.extract %b[] : tensor<i1>
  %w = arith.constant dense<0.25> : tensor<4x4xf16>
  %i = arith.constant dense<0.0> : tensor<2x4xf16>
  %y = scf.if %c -> tensor<2x4xf16> {
    %z = func.call @inner(%x) : (tensor<2x4xf16>) -> tensor<2x4xf16>
    scf.yield %z : tensor<2x4xf16>
  } else {
    %z = linalg.matmul ins(%x, %w : tensor<2x4xf16>, tensor<4x4xf16>) outs(%i : tensor<2x4xf16>) -> tensor<2x4xf16>
    scf.yield %z : tensor<2x4xf16>
  }
  return %y : tensor<2x4xf16>
}"""


def test_sites_in_branches_and_in_other_functions(tmp_path):
    """Arguments of several types in safetensors files; each run takes another way."""
    x = np.random.default_rng(5).normal(0, 1, (2, 4)).astype(np.float16)
    files = [tmp_path / "yes.safetensors", tmp_path / "no.safetensors"]
    for file, value, scaled in zip(files, (True, False), (x, 3 * x)):
        save_file({"0": scaled, "1": np.array(value)}, file)
    np.testing.assert_allclose(scales_of(calibrate(BRANCHES, *files)), [np.abs(part.astype(f32)).max() / 127 for part in (x, 3 * x)], rtol=1e-6)
    result = calibrate(BRANCHES, files[0])
    assert result.returncode != 0 and "site 'main.matmul_0' was not reached by any input of function 'main'; leave equant.site out" in result.stderr


def test_what_cannot_be_calibrated(tmp_path):
    random = np.random.default_rng(6)
    text, x = network("mlp"), NETWORKS["mlp"]
    far = np.array([[3, 9, 1, 30, 22, 700000000]])
    infinite = x.copy()
    infinite[1, 2] = np.inf
    files = dict(zip(["good", "wide", "double", "infinite", "far", "empty"],
                     saved(tmp_path, good=x, wide=random.normal(0, 1, (5, 17)).astype(f32), double=x.astype(float), infinite=infinite, far=far, empty=x[:0])))  # fmt: skip
    save_file({"0": x}, tmp_path / "named.safetensors")
    (tmp_path / "text.npy").write_text("no array")
    (tmp_path / "x.csv").write_text("1,2")
    for module, inputs, options, expected in (
        (text, [], "", "option inputs is missing: files of arguments that the module is run on"),
        (text, [tmp_path / "none.npy"], "", "none.npy"),
        (text, [tmp_path / "text.npy"], "", "no .npy file, as numpy.save writes it"),
        (text, [tmp_path / "x.csv"], "", "x.csv' is neither a .npy nor a .safetensors file"),
        (text, [files["wide"]], "", "F32 of shape [5, 17] for an argument of tensor<?x16xf32>; expected F32 of that shape"),
        (text, [files["double"]], "", "F64 of shape [5, 16] for an argument of tensor<?x16xf32>; expected F32"),
        (text, [files["empty"]], "", "F32 of shape [0, 16] for an argument of tensor<?x16xf32>; expected F32 of that shape, with elements"),
        (text, [files["infinite"]], "", "infinite.npy: site 'forward.matmul_0': its activations: "),
        (text, [files["good"]], "observer=best", "observer"),
        (text, [files["good"]], "observer=percentile observer-percentile=120", "120"),
        (text, [files["good"]], "function=backward", "option function: the module has no function 'backward' with a body"),
        (text.replace('"forward"', '"a"') + "", [files["good"]], "function=forward", "the module has no function 'forward'"),
        (network("llama"), [files["far"]], "", "the program ended itself: an assertion of it failed, or an index lies beyond a tensor"),
        (BRANCHES, [files["good"]], "", "good.npy: a .npy file is one argument, and the function has 2; expected a .safetensors file"),
        (BRANCHES, [tmp_path / "named.safetensors"], "", "tensor '0': F32 of shape [5, 16] for an argument of tensor<2x4xf16>"),
        (BRANCHES.replace("private ", ""), [files["good"]], "", "the module has 2 public functions; expected one, or the option function=NAME"),
    ):  # fmt: skip
        result = calibrate(module, *inputs, options=options)
        assert result.returncode == 1 and expected in result.stderr, (expected, result.stderr)


# ------------------------------------------------------------------------------------------------------------------ IREE

PARAMETER = {
    "flow.tensor.constant": ("", '"flow.tensor.constant"() {value = #flow.parameter.named<"model"::"up"> : tensor<6x16xf32>}'),
    "util.global": (
        '"util.global"() <{sym_name = "up", sym_visibility = "private", type = tensor<6x16xf32>,'
        ' initial_value = #flow.parameter.named<"model"::"up"> : tensor<6x16xf32>}> : () -> ()',
        '"util.global.load"() <{global = @up}>',
    ),
}  # fmt: skip


@pytest.mark.parametrize("kind", PARAMETER)
def test_parameters(tmp_path, kind):
    """A weight in a safetensors file, as IREE's ops name it."""
    w, x = (np.random.default_rng(seed).normal(0, 1, shape).astype(f32) for seed, shape in ((3, (6, 16)), (4, (5, 16))))
    save_file({"up": w}, tmp_path / "weights.safetensors")
    held, load = PARAMETER[kind]
    text = f"""{held}
func.func @f(%x: tensor<5x16xf32>, %i: tensor<5x6xf32>) -> tensor<5x6xf32> {{
  %c = {load} : () -> tensor<6x16xf32>
  %e = tensor.empty() : tensor<16x6xf32>
  %w = linalg.transpose ins(%c : tensor<6x16xf32>) outs(%e : tensor<16x6xf32>) permutation = [1, 0]
  %y = linalg.matmul ins(%x, %w : tensor<5x16xf32>, tensor<16x6xf32>) outs(%i : tensor<5x6xf32>) -> tensor<5x6xf32>
  return %y : tensor<5x6xf32>
}}"""

    def run(parameters):
        pipeline = PIPELINE.format(plan="equant-absmax{scheme=W8A8}").replace("equant-evaluate-constants", f"equant-evaluate-constants{parameters}")
        return run_tool("easyquant-opt", f"--pass-pipeline={pipeline}", "--allow-unregistered-dialect", input=text)

    result = run(f"{{parameters=model={tmp_path / 'weights.safetensors'}}}")
    assert result.returncode == 0, result.stderr
    assert "util.global.load" not in result.stdout and "flow.tensor" not in result.stdout
    found = call("\n".join(line for line in result.stdout.splitlines() if "util.global" not in line), [("f", [x, np.ones((5, 6), f32)])])[0][0]
    np.testing.assert_array_equal(found, f32(1) + linear(x, w).astype(f32))

    for parameters, expected in (
        ("", 'of a constant: #flow.parameter.named<"model"::"up"> is in a file; give the option parameters=model=FILE.safetensors'),
        ("{parameters=weights}", "option parameters: expected SCOPE=FILE, as model=weights.safetensors; found 'weights'"),
        (f"{{parameters=model={tmp_path / 'other.safetensors'}}}", "other.safetensors"),
    ):
        save_file({"up": w.T.copy()}, tmp_path / "other.safetensors")
        result = run(parameters)
        assert result.returncode != 0 and expected in result.stderr
    assert "must be F32 of 6x16, found F32 of 16x6" in result.stderr


@pytest.mark.parametrize("scheme", ["W8A16", "W8A8"])
@pytest.mark.parametrize("name", ["depthwise_conv_2d_nhwc_hwc", "depthwise_conv_2d_nchw_chw"])
def test_iree_runs_depthwise_convolutions(tmp_path, name, scheme):
    iree("iree-compile")
    text, init = CASES[name].function("f", transposed=False), np.ones(CASES[name].out, f32)
    (expected,) = call(quantize(text, f"equant-absmax{{scheme={scheme}}}"), [("f", [CASES[name].x, init])])[0]
    found = call_iree(quantize(text, f"equant-absmax{{scheme={scheme}}}", "--mlir-print-op-generic"), tmp_path, "f", [CASES[name].x, init])
    np.testing.assert_allclose(found, expected, rtol=0, atol=2e-6)


def test_iree_runs_halves(tmp_path):
    iree("iree-compile")
    w, x = (np.random.default_rng(seed).normal(0, 1, shape).astype(np.float16) for seed, shape in ((3, (16, 6)), (4, (5, 16))))
    text = f"""func.func @f(%x: tensor<5x16xf16>, %i: tensor<5x6xf16>) -> tensor<5x6xf16> {{
  %c = arith.constant dense<"0x{w.tobytes().hex()}"> : tensor<16x6xf16>
  %y = linalg.matmul ins(%x, %c : tensor<5x16xf16>, tensor<16x6xf16>) outs(%i : tensor<5x6xf16>) -> tensor<5x6xf16>
  return %y : tensor<5x6xf16>
}}"""
    quantized = quantize(text, "equant-absmax{scheme=W8A8}", "--mlir-print-op-generic")
    found = call_iree(quantized, tmp_path, "f", [x, np.zeros((5, 6), np.float16)])
    expected = linear(x.astype(f32), w.T.astype(f32)).astype(np.float16)
    np.testing.assert_allclose(found, expected, rtol=2e-3, atol=0)  # a unit in the last place of f16, where IREE rounds otherwise


def test_iree_runs_static_networks(tmp_path):
    iree("iree-compile")
    (file,) = saved(tmp_path, x=NETWORKS["convolutions"])
    plan = f"equant-calibrate-sites{{inputs={file}}},equant-absmax{{scheme=W8A8 activations=static sinks=none}}"
    (expected,) = call(quantize(network("convolutions"), plan), [("forward", [NETWORKS["convolutions"]])])[0]
    found = call_iree(quantize(network("convolutions"), plan, "--mlir-print-op-generic"), tmp_path, "forward", [NETWORKS["convolutions"]])
    np.testing.assert_allclose(found, expected, rtol=0, atol=2e-2)  # as below


@pytest.mark.parametrize("name", NETWORKS)
@pytest.mark.parametrize("scheme", ["W8A16", "W4A16 group-size=8", "W8A8"])
def test_iree_runs_networks(tmp_path, name, scheme):
    """As it prints them: in the generic form."""
    iree("iree-compile")
    plan = f"equant-absmax{{scheme={scheme}}}"
    (expected,) = call(quantize(network(name), plan), [("forward", [NETWORKS[name]])])[0]
    found = call_iree(quantize(network(name), plan, "--mlir-print-op-generic"), tmp_path, "forward", [NETWORKS[name]])
    # IREE reorders sums of floats, so that a code may round the other way.
    np.testing.assert_allclose(found, expected, rtol=0, atol=2e-2 if scheme == "W8A8" else 2e-6)
