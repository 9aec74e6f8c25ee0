# Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Checkpoints as dictionaries of arrays."""

import json
import struct
from pathlib import Path

import ml_dtypes
import numpy as np

DTYPES = {"F64": np.float64, "F32": np.float32, "F16": np.float16, "BF16": ml_dtypes.bfloat16, "F8_E4M3": ml_dtypes.float8_e4m3fn,
          "I64": np.int64, "I32": np.int32, "I16": np.int16, "I8": np.int8, "U8": np.uint8, "BOOL": np.bool_}  # fmt: skip


def read_safetensors(path):
    """The tensors of a file by name, of FP8 and bf16 too, which numpy alone does not know."""
    data = bytearray(Path(path).read_bytes())
    size = struct.unpack("<Q", data[:8])[0]
    header = {name: entry for name, entry in json.loads(data[8:8 + size]).items() if name != "__metadata__"}
    parts = {name: data[8 + size + entry["data_offsets"][0]:8 + size + entry["data_offsets"][1]] for name, entry in header.items()}
    return {name: np.frombuffer(parts[name], DTYPES[entry["dtype"]]).reshape(entry["shape"]) for name, entry in header.items()}


def read_folder(folder):
    """(config, tensors) of a Hugging Face folder with one or more safetensors files."""
    folder = Path(folder)
    tensors = {}
    for path in sorted(folder.glob("*.safetensors")):
        tensors |= read_safetensors(path)
    return json.loads((folder / "config.json").read_text()), tensors


def read_llama2c(path):
    """(config, tensors) of a llama2.c file of version 0: seven int32, then fp32 arrays, each kind for all layers.

    Its q and k rows keep the two halves of a rotary pair as neighbours; Hugging Face keeps them half a head apart, and that
    is the order returned here.
    """
    data = Path(path).read_bytes()
    dim, ffn, layers, heads, kv_heads, vocab, context = struct.unpack("<7i", data[:28])
    shared, vocab = vocab > 0, abs(vocab)  # a negative vocabulary says that the head is not the embedding
    values = np.frombuffer(data, "<f4", offset=28)
    head_dim, at = dim // heads, 0

    def take(*shape):
        nonlocal at
        size = int(np.prod(shape))
        if at + size > len(values):
            raise ValueError(f"{path}: {len(values)} floats, expected at least {at + size}")
        part = values[at:at + size].reshape(shape)
        at += size
        return part

    def halves(w, count):
        rows, columns = w.shape
        return w.reshape(count, head_dim // 2, 2, columns).swapaxes(1, 2).reshape(rows, columns)

    tensors = {"model.embed_tokens.weight": take(vocab, dim)}
    stacks = [("input_layernorm", (dim,)), ("self_attn.q_proj", (dim, dim)),
              ("self_attn.k_proj", (kv_heads * head_dim, dim)), ("self_attn.v_proj", (kv_heads * head_dim, dim)),
              ("self_attn.o_proj", (dim, dim)), ("post_attention_layernorm", (dim,)), ("mlp.gate_proj", (ffn, dim)),
              ("mlp.down_proj", (dim, ffn)), ("mlp.up_proj", (ffn, dim))]
    rotated = {"self_attn.q_proj": heads, "self_attn.k_proj": kv_heads}
    for name, shape in stacks:
        for layer, w in enumerate(take(layers, *shape)):
            tensors[f"model.layers.{layer}.{name}.weight"] = halves(w, rotated[name]) if name in rotated else w
    tensors["model.norm.weight"] = take(dim)
    take(2, context, head_dim // 2)  # tables of cosines and sines, which are computed anew where they are needed
    if not shared:
        tensors["lm_head.weight"] = take(vocab, dim)
    config = {
        "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_act": "silu", "hidden_size": dim,
        "intermediate_size": ffn, "num_hidden_layers": layers, "num_attention_heads": heads,
        "num_key_value_heads": kv_heads, "head_dim": head_dim, "vocab_size": vocab, "max_position_embeddings": context,
        "rms_norm_eps": 1e-5, "rope_theta": 10000.0, "tie_word_embeddings": shared, "bos_token_id": 1, "eos_token_id": 2,
        "torch_dtype": "float32",
    }
    return config, {name: np.ascontiguousarray(w) for name, w in tensors.items()}
