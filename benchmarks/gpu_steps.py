#!/usr/bin/env python3
# Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""How long decode steps of Llama-2-7B's shape would take on a GPU, estimated as `easyquant predict` does. Nothing is timed.

    .venv/bin/python benchmarks/gpu_steps.py -o FOLDER [--chip sm_90a] [--scheme W8A8] [--kv-scheme int8]

The model has random weights and two layers (1.3 GB, some seconds to compile). Layers are alike but for the last one, behind which rows whose logits are
asked for go on, so that a step of 32 is that of two and 30 times the first one. The roof is the time of a copy of the bytes that the step reads and writes.
"""

import argparse
import json
import subprocess
import sys
from pathlib import Path

import numpy as np
from safetensors.numpy import save_file

from easyquant.prediction.chips import CHIPS
from easyquant.prediction.step import predict
from easyquant.runtime.artifact import Artifact

LAYERS, WHOLE = 2, 32
HIDDEN, MLP, HEADS, VOCAB, CONTEXT = 4096, 11008, 32, 32000, 8192
CONFIG = {
    "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": HIDDEN, "intermediate_size": MLP, "num_hidden_layers": LAYERS,
    "num_attention_heads": HEADS, "num_key_value_heads": HEADS, "rms_norm_eps": 1e-5, "max_position_embeddings": CONTEXT, "vocab_size": VOCAB,
    "rope_theta": 10000.0, "hidden_act": "silu", "tie_word_embeddings": False, "attention_bias": False, "mlp_bias": False, "torch_dtype": "float16",
    "bos_token_id": 1, "eos_token_id": 2,
}  # fmt: skip
STEPS = ((1, 1024), (1, 8192), (16, 1024), (16, 4096), (64, 1024), (256, 1024))  # sequences, tokens that each sees


def shapes() -> dict[str, tuple[int, ...]]:
    found = {"model.embed_tokens.weight": (VOCAB, HIDDEN), "model.norm.weight": (HIDDEN,), "lm_head.weight": (VOCAB, HIDDEN)}
    for layer in range(LAYERS):
        at = f"model.layers.{layer}."
        found |= {at + f"self_attn.{name}_proj.weight": (HIDDEN, HIDDEN) for name in "qkvo"}
        found |= {at + f"mlp.{name}_proj.weight": (MLP, HIDDEN) for name in ("gate", "up")} | {at + "mlp.down_proj.weight": (HIDDEN, MLP)}
        found |= {at + f"{name}_layernorm.weight": (HIDDEN,) for name in ("input", "post_attention")}
    return found


def write_model(folder: Path) -> None:
    folder.mkdir(parents=True)
    random = np.random.default_rng(1)

    def value(shape: tuple[int, ...]) -> np.ndarray:
        return np.ones(shape, np.float16) if len(shape) == 1 else (random.standard_normal(shape, np.float32) * shape[-1] ** -0.5).astype(np.float16)

    save_file({name: value(shape) for name, shape in shapes().items()}, folder / "model.safetensors")
    (folder / "config.json").write_text(json.dumps(CONFIG))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("-o", "--output", type=Path, required=True, help="folder of the model and its artifacts")
    parser.add_argument("--chip", default="sm_90a", choices=CHIPS)
    parser.add_argument("--scheme", default="W8A8")
    parser.add_argument("--kv-scheme", default="int8", help="of the cache; none: f16")
    options = parser.parse_args()
    model = options.output / "model"
    artifact = options.output / f"{options.scheme}-{options.kv_scheme}-{options.chip}"
    if not model.exists():
        write_model(model)
    if not artifact.exists():
        command = [sys.executable, "-m", "easyquant", "compile", model, "-o", artifact, "--scheme", options.scheme, "--target", options.chip]
        command += ["--kv-scheme", options.kv_scheme] if options.kv_scheme != "none" else ["--kv-cache", "f16"]
        subprocess.run(list(map(str, command)), check=True, stdout=subprocess.DEVNULL)
    print("| cache | sequences | tokens | launches | ms | tokens/s | roof, tokens/s | share |\n|---|---|---|---|---|---|---|---|")
    for sequences, context in STEPS:
        step = predict(Artifact.open(artifact), options.chip, sequences, context)
        layer = [each for each in step.launches if "model.layers.0." in each.happening.launch.site]
        more = WHOLE - LAYERS
        seconds = step.seconds + more * sum(each.time.seconds for each in layer)
        roof = (step.bytes + more * sum(each.traffic.memory for each in layer)) / CHIPS[options.chip].copy_bandwidth
        print(f"| {options.kv_scheme if options.kv_scheme != 'none' else 'f16'} | {sequences} | {context:,} | {step.count + more * len(layer)} | {1e3 * seconds:.2f} | {sequences / seconds:,.0f} | {sequences / roof:,.0f} | {roof / seconds:.2f} |")


if __name__ == "__main__":
    main()
