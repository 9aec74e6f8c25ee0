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
}
COMMON = {"hidden_act": "silu", "tie_word_embeddings": False, "bos_token_id": 1, "eos_token_id": 2, "torch_dtype": "bfloat16"}
PIECE = 1 << 22  # values made and written at a time


def plan(config):
    """(name, shape) of every weight in the order of execution; a vector is the gain of a norm."""
    hidden, inner, head = config["hidden_size"], config["intermediate_size"], config["head_dim"]
    q, kv = config["num_attention_heads"] * head, config["num_key_value_heads"] * head
    yield "model.embed_tokens.weight", (config["vocab_size"], hidden)
    for layer in range(config["num_hidden_layers"]):
        parts = {"input_layernorm": (hidden,), "self_attn.q_proj": (q, hidden), "self_attn.k_proj": (kv, hidden),
                 "self_attn.v_proj": (kv, hidden), "self_attn.o_proj": (hidden, q), "post_attention_layernorm": (hidden,),
                 "mlp.gate_proj": (inner, hidden), "mlp.up_proj": (inner, hidden), "mlp.down_proj": (hidden, inner)}
        if config["model_type"] == "qwen3":
            parts |= {"self_attn.q_norm": (head,), "self_attn.k_norm": (head,)}
        for part, shape in parts.items():
            yield f"model.layers.{layer}.{part}.weight", shape
    yield "model.norm.weight", (hidden,)
    yield "lm_head.weight", (config["vocab_size"], hidden)


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
    deviation, mean = (shape[1] ** -0.5, 0) if len(shape) == 2 else (0.1, 1)
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
    out = Path(out)
    out.mkdir(parents=True)
    (out / "config.json").write_text(json.dumps(config, indent=2) + "\n")
    shards = shards_of(plan(config), shard_bytes)
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
