#!/usr/bin/env python3
# Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Ranks beside one process with as many threads: decoding a shared model, and calibrating.

    .venv/bin/python benchmarks/ranks.py TOKENIZER --calib FILE [--ranks 2] [--rounds 7] [--work FOLDER]

Writes a seeded LLaMA (16 query and 8 key-value heads of 64, 12 layers, the vocabulary of TOKENIZER, a Hugging Face folder, whose
tokenizer it takes), compiles it to static W8A8 for one rank and for so many, and runs in turn

  * decoding: `easyquant bench --threads RANKS` and `mpirun -n RANKS easyquant bench --threads 1`;
  * `easyquant calibrate --threads 1` alone, under `mpirun -n RANKS`, and as RANKS processes that share nothing, each with its part of
    the samples: what the machine's cores give at best. The start of the processes counts.

Each round gives a ratio of what ran side by side; printed are the medians and what lies between the quartiles.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
from safetensors.numpy import save_file

CONFIG = {
    "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 1024, "intermediate_size": 2816,
    "num_hidden_layers": 12, "num_attention_heads": 16, "num_key_value_heads": 8, "head_dim": 64, "max_position_embeddings": 2048,
    "rms_norm_eps": 1e-5, "rope_theta": 10000.0, "hidden_act": "silu", "tie_word_embeddings": True,
}  # fmt: skip
ENVIRONMENT = os.environ | {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}


def write_model(folder: Path, tokenizer: Path) -> int:
    """Returns the number of its weights."""
    folder.mkdir(parents=True)
    for name in ("tokenizer.json", "tokenizer_config.json", "special_tokens_map.json"):
        if (tokenizer / name).is_file():
            shutil.copy(tokenizer / name, folder / name)
    source = json.loads((tokenizer / "config.json").read_text())
    config = CONFIG | {key: source[key] for key in ("vocab_size", "bos_token_id", "eos_token_id")}
    (folder / "config.json").write_text(json.dumps(config))
    random = np.random.default_rng(0)
    wide, heads, keys, mlp = config["hidden_size"], 16 * 64, 8 * 64, config["intermediate_size"]
    shapes = {"model.embed_tokens": (config["vocab_size"], wide)}
    norms = ["model.norm"]
    for layer in (f"model.layers.{index}" for index in range(config["num_hidden_layers"])):
        shapes |= {f"{layer}.self_attn.{name}_proj": shape for name, shape in
                   {"q": (heads, wide), "k": (keys, wide), "v": (keys, wide), "o": (wide, heads)}.items()}  # fmt: skip
        shapes |= {f"{layer}.mlp.{name}_proj": shape for name, shape in {"gate": (mlp, wide), "up": (mlp, wide), "down": (wide, mlp)}.items()}
        norms += [f"{layer}.input_layernorm", f"{layer}.post_attention_layernorm"]
    tensors = {f"{name}.weight": random.standard_normal(shape, np.float32) * np.float32(shape[1] ** -0.5) for name, shape in shapes.items()}
    tensors |= {f"{name}.weight": np.ones(wide, np.float32) for name in norms}
    save_file(tensors, folder / "model.safetensors")
    return sum(tensor.size for tensor in tensors.values())


def command(*arguments: object, ranks: int = 1) -> list[str]:
    """The command line of `easyquant` with these arguments, by mpirun where there are several ranks."""
    launcher = ["mpirun", "--oversubscribe", "--bind-to", "none", "-n", str(ranks)] if ranks > 1 else []
    return [*launcher, sys.executable, "-m", "easyquant", *map(str, arguments)]


def seconds_of(*commands: list[str]) -> float:
    """Runs the commands side by side; returns the seconds until the last one has ended."""
    begin = time.perf_counter()
    running = [subprocess.Popen(one, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=ENVIRONMENT) for one in commands]
    for one, process in zip(commands, running, strict=True):
        _, messages = process.communicate()
        if process.returncode != 0:
            sys.exit(f"error: status {process.returncode}: {' '.join(one)}\n{messages}")
    return time.perf_counter() - begin


def decode_rate(artifact: Path, work: Path, threads: int, ranks: int = 1) -> float:
    """Tokens a second."""
    file = work / "bench.json"
    seconds_of(command("bench", artifact, "--prefill", 64, "--decode", 64, "--repeats", 3, "--threads", threads, "--device", "cpu",
                       "--json", file, ranks=ranks))  # fmt: skip
    return json.loads(file.read_text())["decode_tokens_per_s"]


def calibration_time(args: argparse.Namespace, model: Path, work: Path, ranks: int = 1, processes: int = 1) -> float:
    """Seconds; with several processes, of which none knows of the others, each has its part of the samples."""
    with tempfile.TemporaryDirectory(dir=work) as folder:  # a new file each: one that is there already is not made again
        return seconds_of(*(
            command("calibrate", model, "--calib", args.calib, "-o", Path(folder) / f"{index}.safetensors", "--nsamples", args.nsamples // processes,
                    "--threads", 1, ranks=ranks)
            for index in range(processes)
        ))  # fmt: skip


def summary(values: list[float]) -> str:
    low, middle, high = np.quantile(values, (0.25, 0.5, 0.75))
    return f"{middle:.3f} ({low:.3f} to {high:.3f})"


def measure(args: argparse.Namespace, work: Path) -> None:
    model, alone, shared = work / "model", work / "alone", work / f"shared-{args.ranks}"
    if not (model / "model.safetensors").is_file():
        print(f"{write_model(model, args.tokenizer) / 1e6:.0f} million weights")
    static = ("--scheme", "W8A8", "--activations", "static", "--calib", args.calib, "--nsamples", 8, "--seqlen", 256)
    for artifact, options in ((alone, ()), (shared, ("--tensor-parallel", args.ranks))):
        if not artifact.exists():
            seconds_of(command("compile", model, "-o", artifact, *static, *options))
    rates, ratios = [], []
    for _ in range(args.rounds):
        one, many = decode_rate(alone, work, args.ranks), decode_rate(shared, work, 1, args.ranks)
        rates.append(one)
        ratios.append(many / one)
    print(f"decode: {np.median(rates):.1f} tokens/s of one process, {args.ranks} threads; {args.ranks} ranks of a thread to it: {summary(ratios)}")
    seconds, times, bounds = [], [], []
    for _ in range(args.rounds):
        one = calibration_time(args, model, work)
        seconds.append(one)
        times.append(calibration_time(args, model, work, ranks=args.ranks) / one)
        bounds.append(calibration_time(args, model, work, processes=args.ranks) / one)
    print(f"calibrate: {np.median(seconds):.1f} s of one process, one thread; time of {args.ranks} ranks to it: {summary(times)}")
    print(f"calibrate: {args.ranks} processes that share nothing, with their part of the samples each: {summary(bounds)}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tokenizer", type=Path, metavar="TOKENIZER", help="a Hugging Face folder, for its tokenizer and vocabulary")
    parser.add_argument("--calib", type=Path, required=True, metavar="FILE", help="calibration text")
    parser.add_argument("--ranks", type=int, default=2, metavar="N", help="ranks, and threads of the one process (2)")
    parser.add_argument("--rounds", type=int, default=7, metavar="N", help="ratios to take the median of (7)")
    parser.add_argument("--nsamples", type=int, default=64, metavar="N", help="windows to calibrate on, of 1024 tokens (64)")
    parser.add_argument("--work", type=Path, metavar="FOLDER", help="keep model and artifacts here, and take them from there")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        measure(args, args.work or Path(scratch))


if __name__ == "__main__":
    main()
