#!/usr/bin/env python3
"""Check what materialize-weights-computed.mlir made of its constants, with numpy alone.

    check_computed.py MODEL_FOLDER WORK_FOLDER WEIGHTS
"""

import sys
from pathlib import Path

import numpy as np
from safetensors.numpy import load_file


def unpack(packed, rows, columns, bits):
    """Panels of 32 rows (Kernels.h) as rows x columns codes."""
    panels = packed.shape[0]
    if bits == 8:
        codes = packed.astype(np.int32) - 128
        codes = codes.transpose(0, 2, 1, 3)
    else:
        halves = np.stack([packed & 15, packed >> 4], axis=2).astype(np.int32) - 8  # panel, pair, half, row, depth
        codes = halves.transpose(0, 3, 1, 2, 4)
    return codes.reshape(panels * 32, -1)[:rows, :columns]


def absmax_codes(weight, limit):
    scale = (np.abs(weight).max(axis=1, keepdims=True) / np.float32(limit)).astype(np.float32)
    return np.clip(np.rint(weight / scale), -limit, limit), scale


def main():
    model = load_file(Path(sys.argv[1]) / "model.safetensors")
    work = {}
    for file in Path(sys.argv[2]).glob("*.safetensors"):
        work |= load_file(file)
    written = load_file(sys.argv[3])
    layer = "model.layers.0."
    norm, up, down = model[layer + "input_layernorm.weight"], model[layer + "mlp.up_proj.weight"], model[layer + "mlp.down_proj.weight"]
    gate, s, t = model[layer + "mlp.gate_proj.weight"], work["up.smooth_scale"], work["down.smooth_scale"]

    assert np.array_equal(written[layer + "input_layernorm.weight"], norm / s)
    # Read as it is and scaled: two tensors.
    assert np.array_equal(written[layer + "mlp.gate_proj.weight"], gate)
    assert np.array_equal(written[layer + "mlp.gate_proj.weight_2"], gate * s[None, :])

    scaled = (up * s[None, :]) / t[:, None]
    codes, scale = absmax_codes(scaled, 127)
    assert np.array_equal(unpack(written[layer + "mlp.up_proj.weight"], 24, 16, 8), codes)
    assert np.array_equal(written[layer + "mlp.up_proj.weight_scale"][0, 0, :24], scale[:, 0])

    # Computed scales, nearest codes; then computed scales and codes.
    scale = work["down.weight_scale"]
    codes = np.clip(np.rint(down * t[None, :] / np.repeat(scale, 8, axis=1)), -7, 7)
    assert np.array_equal(unpack(written[layer + "mlp.down_proj.weight"], 16, 24, 4), codes)
    assert np.array_equal(written[layer + "mlp.down_proj.weight_scale"][0, :, :16].T, scale)
    query, key = model[layer + "self_attn.q_proj.weight"], model[layer + "self_attn.k_proj.weight"]
    packed, scales = written[layer + "self_attn.q_proj+k_proj.weight"], written[layer + "self_attn.q_proj+k_proj.weight_scale"]
    codes, scale = absmax_codes(key, 127)
    assert np.array_equal(unpack(packed, 24, 16, 8), np.concatenate([work["q.weight_codes"], codes]))
    assert np.array_equal(scales[0, 0, :24], np.concatenate([work["q.weight_scale"], scale])[:, 0])

    assert np.array_equal(written[layer + "self_attn.q_proj+k_proj.bias"],
                          np.concatenate([model[layer + "self_attn.q_proj.bias"] / work["bias.smooth_scale"], model[layer + "self_attn.k_proj.bias"]]))
    restored = work["q.weight_codes"] * work["q.weight_scale"]
    print(f"q {np.linalg.norm(query - restored) / np.linalg.norm(query):.6f}")


if __name__ == "__main__":
    main()
