# Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Scales, zero points and codes of lib/Numerics against numpy, and against onnxruntime where its rules are the same."""

import subprocess

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper
from safetensors.numpy import load_file, save_file

from helpers import BUILD

EXTREMES = {"symmetric": "absmax", "full": "symmetric", "asymmetric": "zeropoint"}
GRANULARITIES = ["tensor", "channel", "16"]


@pytest.fixture
def quantize(tmp_path):
    def run(x, bits, kind, granularity, rule, *parameter):
        save_file({"x": np.ascontiguousarray(x, np.float32)}, tmp_path / "x.safetensors")
        subprocess.run([BUILD / "unittests" / "QuantizeFile", tmp_path / "x.safetensors", tmp_path / "q.safetensors", str(bits),
                        kind, granularity, rule, *map(str, parameter)], check=True)
        return load_file(tmp_path / "q.safetensors")

    return run


def matrices():
    random = np.random.default_rng(5)
    bell = random.normal(0, 1, (7, 40)).astype(np.float32)
    outlier, positive = bell.copy(), np.abs(bell) + 3
    outlier[3, 11] = -90
    with_zeros = bell.copy()
    with_zeros[2] = 0
    return {"bell": bell, "outlier": outlier, "positive": positive, "zeros": with_zeros, "one": bell[:1, :1],
            "ties": np.arange(-127, 128, dtype=np.float32)[None, :] / 2}


def slices(x, granularity):
    """Rows of slices, as the scales lie."""
    if granularity == "tensor":
        return [[x]]
    size = x.shape[1] if granularity == "channel" else int(granularity)
    return [[row[start:start + size] for start in range(0, x.shape[1], size)] for row in x]


def parameters(lo, hi, bits, kind):
    """Scale and zero point of a range, in double precision."""
    lo, hi, half = min(float(lo), 0.0), max(float(hi), 0.0), 2 ** (bits - 1)
    if hi == lo:
        return 1.0, 0
    if kind == "asymmetric":
        scale = (hi - lo) / (2 * half - 1)
        return scale, int(np.clip(np.rint(np.float32(-half) - np.float32(lo) / np.float32(scale)), -half, half - 1))
    return max(-lo, hi) / (half - 1 if kind == "symmetric" else half - 0.5), 0


def spread(values, x, granularity):
    """A value per element from one per slice."""
    if granularity == "tensor":
        return np.broadcast_to(values, x.shape)
    size = x.shape[1] if granularity == "channel" else int(granularity)
    return np.repeat(values, size, axis=1)[:, :x.shape[1]]


@pytest.mark.parametrize("kind", EXTREMES)
@pytest.mark.parametrize("granularity", GRANULARITIES)
def test_extremes_against_numpy(quantize, kind, granularity):
    for name, x in matrices().items():
        for bits in (2, 3, 4, 5, 6, 8):
            q = quantize(x, bits, kind, granularity, EXTREMES[kind])
            expected = [[parameters(s.min(), s.max(), bits, kind) for s in row] for row in slices(x, granularity)]
            np.testing.assert_allclose(q["scales"], [[s for s, _ in row] for row in expected], rtol=2e-7, err_msg=name)
            np.testing.assert_array_equal(q["zero_points"], [[z for _, z in row] for row in expected])
            low = -2 ** (bits - 1) + (kind == "symmetric")
            codes = np.rint(x / spread(q["scales"], x, granularity)) + spread(q["zero_points"], x, granularity)
            np.testing.assert_array_equal(q["codes"], np.clip(codes, low, 2 ** (bits - 1) - 1), err_msg=name)


@pytest.mark.parametrize("granularity", GRANULARITIES)
def test_percentile_and_mse_against_numpy(quantize, granularity):
    def error(s, lo, hi, bits, kind):
        scale, zero = parameters(lo, hi, bits, kind)
        codes = np.clip(np.rint(s / scale) + zero, -2 ** (bits - 1) + (kind == "symmetric"), 2 ** (bits - 1) - 1)
        return np.sum(np.abs(s - scale * (codes - zero)) ** 2.4)

    for name, x in matrices().items():
        for kind in EXTREMES:
            for bits in (3, 8):
                q = quantize(x, bits, kind, granularity, "percentile", 97.5)
                for i, row in enumerate(slices(x.astype(np.float64), granularity)):
                    for g, s in enumerate(row):
                        if kind == "asymmetric":
                            expected = parameters(np.percentile(s, 2.5), np.percentile(s, 97.5), bits, kind)
                        else:
                            t = np.percentile(np.abs(s), 97.5)
                            expected = parameters(-t, t, bits, kind)
                        np.testing.assert_allclose(q["scales"][i, g], expected[0], rtol=1e-6, err_msg=name)
                q = quantize(x, bits, kind, granularity, "mse", 2.4)
                for i, row in enumerate(slices(x.astype(np.float64), granularity)):
                    for g, s in enumerate(row):
                        tried = [(error(s, s.min() * p, s.max() * p, bits, kind), parameters(s.min() * p, s.max() * p, bits, kind)[0])
                                 for p in 1 - 0.8 * np.arange(101) / 100]
                        found = min(tried, key=lambda pair: abs(pair[1] - q["scales"][i, g]))
                        assert found[1] == pytest.approx(q["scales"][i, g], rel=1e-6)
                        assert found[0] <= min(tried)[0] * (1 + 1e-3) + 1e-9 * np.abs(s).max() ** 2.4, (name, kind, bits)


def run_onnx(node, inputs, outputs):
    """Runs one operator; inputs: {name: array}, outputs: {name: (type, shape)}."""
    types = {"float32": TensorProto.FLOAT, "int8": TensorProto.INT8}
    graph = helper.make_graph(
        [node], "test", [helper.make_tensor_value_info(k, types[str(v.dtype)], v.shape) for k, v in inputs.items()],
        [helper.make_tensor_value_info(k, *t) for k, t in outputs.items()])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    onnx.checker.check_model(model)
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    return session.run(list(outputs), inputs)


@pytest.mark.parametrize("kind", EXTREMES)
@pytest.mark.parametrize("granularity", GRANULARITIES)
def test_codes_are_onnxruntimes(quantize, kind, granularity):
    for name, x in matrices().items():
        if granularity == "16" and x.shape[1] % 16:
            x = np.tile(x, (1, 16))[:, :16 * ((x.shape[1] + 15) // 16)]  # onnxruntime wants whole blocks
        q = quantize(x, 8, kind, granularity, EXTREMES[kind])
        scales, zeros = q["scales"], q["zero_points"].astype(np.int8)
        options = {"tensor": {}, "channel": {"axis": 0}, "16": {"axis": 1, "block_size": 16}}[granularity]
        if granularity == "tensor":
            scales, zeros = scales.reshape(()), zeros.reshape(())
        elif granularity == "channel":
            scales, zeros = scales[:, 0].copy(), zeros[:, 0].copy()
        node = helper.make_node("QuantizeLinear", ["x", "s", "z"], ["y"], **options)
        codes, = run_onnx(node, {"x": x, "s": scales, "z": zeros}, {"y": (TensorProto.INT8, x.shape)})
        np.testing.assert_array_equal(q["codes"], codes, err_msg=name)
        node = helper.make_node("DequantizeLinear", ["y", "s", "z"], ["x"], **options)
        back, = run_onnx(node, {"y": codes, "s": scales, "z": zeros}, {"x": (TensorProto.FLOAT, x.shape)})
        ours = spread(q["scales"], x, granularity) * (q["codes"].astype(np.float32) - spread(q["zero_points"].astype(np.float32), x, granularity))
        np.testing.assert_array_equal(back, ours)


def test_zero_points_are_those_of_dynamic_quantize_linear(quantize):
    for name, x in matrices().items():
        node = helper.make_node("DynamicQuantizeLinear", ["x"], ["y", "s", "z"])
        codes, scale, zero = run_onnx(node, {"x": x}, 
                                     {"y": (TensorProto.UINT8, x.shape), "s": (TensorProto.FLOAT, ()), "z": (TensorProto.UINT8, ())})
        q = quantize(x, 8, "asymmetric", "tensor", "zeropoint")
        np.testing.assert_allclose(q["scales"][0, 0], scale, rtol=1.2e-7, err_msg=name)  # 1 ulp: ours is rounded once
        assert q["zero_points"][0, 0] == int(zero) - 128, name
        if q["scales"][0, 0] == scale:
            np.testing.assert_array_equal(q["codes"], codes.astype(np.int32) - 128)
