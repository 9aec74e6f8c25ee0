# Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""How those who load quantized checkpoints unpack a linear, in numpy: gptqmodel 7.7 (BaseQuantLinear.dequantize_weight), AutoAWQ 0.2.7
(dequantize_gemm) and compressed-tensors 0.20 (BaseCompressor.decompress). Nothing here knows how EasyQuant packs.

Codes and zero points are counted from 0 on in gptq and awq, signed in compressed-tensors; all matrices are out x in, scales and zero points out x
groups, as `Linear` has them.
"""

from dataclasses import dataclass

import numpy as np

FP4 = np.array([0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0], np.float32)


@dataclass
class Linear:
    codes: np.ndarray  # integers, or the values of FP8 and FP4
    scales: np.ndarray
    zero_points: np.ndarray | None
    weight: np.ndarray  # as the client multiplies with it, in its own type
    global_scale: np.ndarray | None = None  # what scales are divided by


# ------------------------------------------------------------------------------------------------------------------ gptq


def _shifted(words, bits):
    """u32[...] → u32[..., 32 / bits], the lowest field first."""
    return (words[..., None] >> np.arange(0, 32, bits, dtype=np.uint32)) & (2**bits - 1)


def _three_bits(words):
    """u32[..., 3] → u32[..., 32]: ten fields and two bits of the eleventh; a bit, ten fields, and a bit of the next; two bits and ten fields."""
    first, second, third = (words[..., i] for i in range(3))
    fields = [(first >> np.uint32(3 * i)) & 7 for i in range(10)]
    fields.append((first >> np.uint32(30)) & 3 | (second << np.uint32(2)) & 4)
    fields += [(second >> np.uint32(3 * i + 1)) & 7 for i in range(10)]
    fields.append((second >> np.uint32(31)) & 1 | (third << np.uint32(1)) & 6)
    fields += [(third >> np.uint32(3 * i + 2)) & 7 for i in range(10)]
    return np.stack(fields, axis=-1)


def _gptq_rows(words, bits):
    """i32[W, N] → codes [K, N]: fields of a word lie along the rows."""
    words = words.view(np.uint32).T
    fields = _three_bits(words.reshape(len(words), -1, 3)) if bits == 3 else _shifted(words, bits)
    return fields.reshape(len(words), -1).T.astype(np.int32)


def gptq(tensors, site, config):
    bits = config["bits"]
    codes = _gptq_rows(tensors[f"{site}.qweight"], bits)
    zeros = _gptq_rows(tensors[f"{site}.qzeros"].T.copy(), bits).T
    if config["checkpoint_format"] == "gptq":
        zeros = zeros + 1  # convert_gptq_v1_to_v2_format
        assert zeros.max() < 2**bits, "a field overflows into the next one"
    scales, groups = tensors[f"{site}.scales"], tensors[f"{site}.g_idx"]
    assert scales.dtype == np.float16 and codes.shape == (len(groups), scales.shape[1]) and zeros.shape == scales.shape
    size = config["group_size"] if config["group_size"] > 0 else len(groups)
    np.testing.assert_array_equal(groups, np.arange(len(groups)) // size)
    weight = scales[groups] * (codes - zeros[groups]).astype(np.float16)
    return Linear(codes.T, scales.T, zeros.T, weight.T)


# ------------------------------------------------------------------------------------------------------------------- awq

AWQ_REVERSE_ORDER = [0, 4, 1, 5, 2, 6, 3, 7]


def awq(tensors, site, config):
    def unpack(words):
        fields = _shifted(words.view(np.uint32), config["bits"]).astype(np.int32)
        return fields[..., AWQ_REVERSE_ORDER].reshape(len(words), -1)

    codes, zeros, scales = unpack(tensors[f"{site}.qweight"]), unpack(tensors[f"{site}.qzeros"]), tensors[f"{site}.scales"]
    size = config["group_size"] if config["group_size"] > 0 else len(codes)
    assert scales.dtype == np.float16 and zeros.shape == scales.shape == (len(codes) // size, codes.shape[1])
    weight = (codes - np.repeat(zeros, size, axis=0)).astype(np.float16) * np.repeat(scales, size, axis=0)
    return Linear(codes.T, scales.T, zeros.T, weight.T)


# ---------------------------------------------------------------------------------------------------- compressed-tensors


def unpack_from_int32(words, bits, shape, packed_dim=1):
    """Element i of a line is at bit i · bits; the lines are rows, or columns where packed_dim is 0."""
    if packed_dim == 0:
        words = words.T
    bytes_of_lines = np.ascontiguousarray(words).view(np.uint8)
    bit = np.unpackbits(bytes_of_lines, axis=1, bitorder="little")[:, : shape[packed_dim] * bits].reshape(len(words), -1, bits)
    values = (bit * (1 << np.arange(bits))).sum(axis=2) - 2 ** (bits - 1)
    return (values.T if packed_dim == 0 else values).astype(np.int8)


def _by_group(values, columns):
    return np.repeat(values, columns // values.shape[1], axis=1)


def _dequantize(codes, scales, zeros, dtype):
    values = codes.astype(dtype)
    if zeros is not None:
        values = values - _by_group(zeros, codes.shape[1]).astype(dtype)
    return values * _by_group(scales, codes.shape[1])


def pack_quantized(tensors, site, weights):
    scales, (rows, columns) = tensors[f"{site}.weight_scale"], tensors[f"{site}.weight_shape"]
    codes = unpack_from_int32(tensors[f"{site}.weight_packed"], weights["num_bits"], (rows, columns))
    zeros = None
    if not weights["symmetric"]:
        zeros = unpack_from_int32(tensors[f"{site}.weight_zero_point"], weights["num_bits"], scales.shape, packed_dim=0)
    return Linear(codes, scales, zeros, _dequantize(codes, scales, zeros, scales.dtype))


def int_quantized(tensors, site, weights):
    codes, scales = tensors[f"{site}.weight"], tensors[f"{site}.weight_scale"]
    zeros = None if weights["symmetric"] else tensors[f"{site}.weight_zero_point"]
    assert codes.dtype == np.int8 and (zeros is None or zeros.dtype == np.int8)
    return Linear(codes, scales, zeros, _dequantize(codes, scales, zeros, scales.dtype))


def float_quantized(tensors, site, weights):
    codes, scales = tensors[f"{site}.weight"].astype(np.float32), tensors[f"{site}.weight_scale"]
    return Linear(codes, scales, None, _dequantize(codes, scales, None, scales.dtype))


def _fp4(packed):
    """unpack_fp4_from_uint8"""
    fields = np.stack([packed & 15, packed >> 4], axis=2).reshape(len(packed), -1)
    return FP4[fields & 7] * np.where(fields & 8, np.float32(-1), np.float32(1))


def nvfp4_pack_quantized(tensors, site, weights):
    codes, scales = _fp4(tensors[f"{site}.weight_packed"]), tensors[f"{site}.weight_scale"].astype(np.float32)
    divisor = tensors[f"{site}.weight_global_scale"]
    return Linear(codes, scales, None, _dequantize(codes, scales / divisor, None, np.float32), divisor)


def mxfp4_pack_quantized(tensors, site, weights):
    codes, exponents = _fp4(tensors[f"{site}.weight_packed"]), tensors[f"{site}.weight_scale"]
    scales = np.exp2(exponents.astype(np.float32) - 127)
    return Linear(codes, scales, None, _dequantize(codes, scales, None, np.float32))


CODECS = {
    "pack-quantized": pack_quantized, "int-quantized": int_quantized, "float-quantized": float_quantized,
    "nvfp4-pack-quantized": nvfp4_pack_quantized, "mxfp4-pack-quantized": mxfp4_pack_quantized,
}  # fmt: skip


def _group_of(site, config):
    """The group of a linear, by its name before its class, or None."""
    if site in config["ignore"]:
        return None
    groups = config["config_groups"].values()
    return next((group for group in groups if site in group["targets"]), next((group for group in groups if "Linear" in group["targets"]), None))


def compressed_tensors(tensors, site, config):
    group = _group_of(site, config)
    return CODECS[group["format"]](tensors, site, group["weights"])


def read_linear(tensors, site, config):
    """What the client that `quant_method` names makes of a linear of a checkpoint; None: it is float there."""
    if f"{site}.weight_scale" not in tensors and f"{site}.scales" not in tensors:
        return None
    return {"gptq": gptq, "awq": awq, "compressed-tensors": compressed_tensors}[config["quant_method"]](tensors, site, config)
