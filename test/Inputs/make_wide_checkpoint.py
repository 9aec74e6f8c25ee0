#!/usr/bin/env python3
"""Write a random checkpoint with the layers of a real model, as many as asked, in sharded bf16.

    make_wide_checkpoint.py OUT --shape llama-7b --layers 2
    make_wide_checkpoint.py OUT --shape qwen3-14b --layers 4 --vocab 512

It needs numpy, and the memory of one piece of one weight. Equal arguments write equal bytes; a weight's values depend on the
seed and its place in the model alone, not on the number of layers.
"""

import argparse
import json
import math
import struct
from pathlib import Path

import numpy as np
from make_checkpoint import shapes

SHAPES = {
    "llama-7b": {
        "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 4096, "intermediate_size": 11008,
        "num_attention_heads": 32, "num_key_value_heads": 32, "head_dim": 128, "rms_norm_eps": 1e-5, "rope_theta": 10000.0,
        "max_position_embeddings": 4096, "vocab_size": 32000,
    },
    "qwen3-14b": {
        "architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3", "hidden_size": 5120, "intermediate_size": 17408,
        "num_attention_heads": 40, "num_key_value_heads": 8, "head_dim": 128, "rms_norm_eps": 1e-6, "rope_theta": 1000000.0,
        "max_position_embeddings": 40960, "vocab_size": 151936, "attention_bias": False,
    },
    "qwen3-30b-a3b": {
        "architectures": ["Qwen3MoeForCausalLM"], "model_type": "qwen3_moe", "hidden_size": 2048, "intermediate_size": 6144, "num_attention_heads": 32,
        "num_key_value_heads": 4, "head_dim": 128, "rms_norm_eps": 1e-6, "rope_theta": 1000000.0, "max_position_embeddings": 40960,
        "vocab_size": 151936, "attention_bias": False, "num_experts": 128, "num_experts_per_tok": 8, "moe_intermediate_size": 768,
        "norm_topk_prob": True,
    },
    "qwen3.5-4b": {
        "architectures": ["Qwen3_5ForCausalLM"], "model_type": "qwen3_5_text", "hidden_size": 2560, "intermediate_size": 9216,
        "num_attention_heads": 16, "num_key_value_heads": 4, "head_dim": 256, "rms_norm_eps": 1e-6, "max_position_embeddings": 262144,
        "vocab_size": 248320, "attention_bias": False,
        "rope_parameters": {"rope_type": "default", "rope_theta": 10000000.0, "partial_rotary_factor": 0.25}, "linear_conv_kernel_dim": 4,
        "linear_key_head_dim": 128, "linear_value_head_dim": 128, "linear_num_key_heads": 16, "linear_num_value_heads": 32,
    },
}
SHAPES["qwen3.5-35b-a3b"] = {key: value for key, value in SHAPES["qwen3.5-4b"].items() if key != "intermediate_size"} | {
    "architectures": ["Qwen3_5MoeForCausalLM"], "model_type": "qwen3_5_moe_text", "hidden_size": 2048, "num_key_value_heads": 2, "num_experts": 256,
    "num_experts_per_tok": 8, "moe_intermediate_size": 512, "shared_expert_intermediate_size": 512,
}
COMMON = {"hidden_act": "silu", "tie_word_embeddings": False, "bos_token_id": 1, "eos_token_id": 2, "torch_dtype": "bfloat16"}
PIECE = 1 << 22  # values made and written at a time


def layer_types(config):
    """Attention in every fourth layer, where an architecture mixes kinds."""
    count = config["num_hidden_layers"]
    return {"layer_types": ["linear_attention" if (layer + 1) % 4 else "full_attention" for layer in range(count)]} if "linear_num_value_heads" in config else {}


def shards_of(tensors, limit):
    """Lists of (name, shape), each of at most `limit` bytes unless a single tensor is larger."""
    shards, filled = [[]], 0
    for name, shape in tensors:
        size = 2 * math.prod(shape)
        if shards[-1] and filled + size > limit:
            shards.append([])
            filled = 0
        shards[-1].append((name, shape))
        filled += size
    return shards


def write_values(stream, name, shape, seed):
    """bf16, as the upper halves of floats, of deviation 1/sqrt(columns); gains are near 1."""
    random = np.random.default_rng([seed, *name.encode()])
    deviation, mean = (shape[-1] ** -0.5, 0) if len(shape) > 1 else (0.1, 1)
    left = math.prod(shape)
    while left:
        count = min(left, PIECE)
        values = random.standard_normal(count, np.float32)
        values *= np.float32(deviation)
        values += np.float32(mean)
        stream.write((values.view(np.uint32) >> 16).astype("<u2").data)
        left -= count


def write_shard(path, tensors, seed):
    header, offset = {"__metadata__": {"format": "pt"}}, 0
    for name, shape in tensors:
        end = offset + 2 * math.prod(shape)
        header[name] = {"dtype": "BF16", "shape": list(shape), "data_offsets": [offset, end]}
        offset = end
    text = json.dumps(header).encode()
    with open(path, "wb") as stream:
        stream.write(struct.pack("<Q", len(text)) + text)
        for name, shape in tensors:
            write_values(stream, name, shape, seed)


def write_checkpoint(out, shape, layers, vocab=None, seed=0, shard_bytes=5_000_000_000):
    """Returns the bytes of its weights."""
    config = SHAPES[shape] | COMMON | {"num_hidden_layers": layers}
    if vocab:
        config["vocab_size"] = vocab
    config |= layer_types(config)
    out = Path(out)
    out.mkdir(parents=True)
    (out / "config.json").write_text(json.dumps(config, indent=2) + "\n")
    shards = shards_of(shapes(config).items(), shard_bytes)
    weight_map, total = {}, 0
    for index, tensors in enumerate(shards):
        file = f"model-{index + 1:05}-of-{len(shards):05}.safetensors"
        write_shard(out / file, tensors, seed)
        weight_map |= {name: file for name, _ in tensors}
        total += sum(2 * math.prod(shape) for _, shape in tensors)
    index = {"metadata": {"total_size": total}, "weight_map": weight_map}
    (out / "model.safetensors.index.json").write_text(json.dumps(index, indent=2) + "\n")
    return total


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("--shape", choices=SHAPES, required=True)
    parser.add_argument("--layers", type=int, required=True)
    parser.add_argument("--vocab", type=int, help="a smaller vocabulary saves disk")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--shard-bytes", type=int, default=5_000_000_000)
    args = parser.parse_args()
    write_checkpoint(args.out, args.shape, args.layers, args.vocab, args.seed, args.shard_bytes)


if __name__ == "__main__":
    main()
