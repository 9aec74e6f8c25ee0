#!/usr/bin/env python3
# Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What the head of Qwen3.5 that drafts gains: greedy answers with and without it in turn, on seeded models of Qwen3.5-0.8B's shape.

    PYTHONPATH=test/python:test/Inputs .venv/bin/python benchmarks/draft_head.py -o FOLDER [--updates 0.1,0.3] [--threads 2] [--rounds 5]

No checkpoint with such a head is in a package of PyPI. So weights are random, and nobody would read what the models say: accepted lengths are those of
these models, while times are those of the shape. What layers add to the hidden state is multiplied by each of --updates: the less it is, the more of the
next token follows from the one before it, and the more a head can guess. The head is fitted to the model. The block behind its `mtp.fc` adds nothing, and
`mtp.fc` is the ridge regression of the model's next normalized state on what the head reads, over answers of the model to other prompts.

Answers are the same in both ways, or the script fails. It prints guesses that were right, tokens a step, and decoded tokens a second.
"""

import argparse
import json
import statistics
import subprocess
import sys
from pathlib import Path

import numpy as np
from oracles.qwen35 import Qwen35
from qwen35_checkpoint import qwen35_shapes
from rich.console import Console
from rich.table import Table
from safetensors.numpy import load_file, save_file
from tokenizers import Tokenizer, decoders, models, pre_tokenizers

from easyquant.runtime.artifact import Artifact, BatchSize, load_model
from easyquant.runtime.drafts import HEAD, Speculation
from easyquant.runtime.engine import Engine, EngineOptions
from easyquant.runtime.requests import PromptReader, Settings

CONFIG = {
    "architectures": ["Qwen3_5ForCausalLM"], "model_type": "qwen3_5_text", "hidden_size": 1024, "intermediate_size": 3584, "num_hidden_layers": 24,
    "layer_types": ["linear_attention" if (layer + 1) % 4 else "full_attention" for layer in range(24)], "num_attention_heads": 8,
    "num_key_value_heads": 2, "head_dim": 256, "rms_norm_eps": 1e-6, "max_position_embeddings": 1024, "vocab_size": 248320, "attention_bias": False,
    "rope_theta": 10000000.0, "partial_rotary_factor": 0.25, "linear_conv_kernel_dim": 4, "linear_key_head_dim": 128, "linear_value_head_dim": 128,
    "linear_num_key_heads": 16, "linear_num_value_heads": 16, "mtp_num_hidden_layers": 1, "hidden_act": "silu", "tie_word_embeddings": False,
    "bos_token_id": None, "eos_token_id": None, "torch_dtype": "float16",
}  # fmt: skip
ADD_TO_THE_STATE = ("o_proj", "out_proj", "down_proj")
SPECIAL = 3
PROMPT, ANSWER = 16, 128
FITTED, JUDGED = 24, 4  # prompts
RIDGE = 1e-2  # of the mean square of a column


def value(random: np.random.Generator, name: str, shape: tuple[int, ...], updates: float) -> np.ndarray:
    if name.endswith("A_log"):
        return random.uniform(-4, 1.5, shape)
    if len(shape) == 1:
        return np.full(shape, 1.0 if "linear_attn.norm" in name else 0.0)
    deviation = 1.0 if "embed_tokens" in name else shape[-1] ** -0.5
    if "mtp.layers" in name and any(part in name for part in ADD_TO_THE_STATE):
        deviation = 0.0
    elif any(part in name for part in ADD_TO_THE_STATE):
        deviation *= updates
    return random.standard_normal(shape, np.float32) * np.float32(deviation)


def write_model(folder: Path, updates: float, seed: int) -> None:
    folder.mkdir(parents=True)
    random = np.random.default_rng(seed)
    tensors = {name: value(random, name, shape, updates).astype(np.float16) for name, shape in qwen35_shapes(CONFIG).items()}
    save_file(tensors, folder / "model.safetensors")
    (folder / "config.json").write_text(json.dumps(CONFIG))
    tokens = {f"<{token}>": token for token in range(CONFIG["vocab_size"])}
    tokenizer = Tokenizer(models.BPE(vocab=tokens, merges=[], unk_token="<0>"))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.save(str(folder / "tokenizer.json"))
    (folder / "tokenizer_config.json").write_text("{}")


def compiled(model: Path, artifact: Path) -> Path:
    command = [sys.executable, "-m", "easyquant", "compile", model, "-o", artifact, "--scheme=W8A8", "--method=absmax", "--context=512"]
    subprocess.run(list(map(str, command)), check=True, stdout=subprocess.DEVNULL)
    return artifact


def prompts(seed: int, count: int) -> list[list[int]]:
    return np.random.default_rng(seed).integers(SPECIAL, CONFIG["vocab_size"], (count, PROMPT)).tolist()


class Answers:
    """Greedy answers of one sequence at a time."""

    def __init__(self, artifact: Path, speculation: str, threads: int):
        self.reader = PromptReader(Artifact.open(artifact))
        size = BatchSize(PROMPT + ANSWER, 1, PROMPT + ANSWER + 16)
        options = EngineOptions(threads, speculation=Speculation(speculation))
        self.engine = Engine(load_model(self.reader.artifact), self.reader.artifact, self.reader, size, options)

    def __call__(self, asked: list[list[int]]) -> list[list[int]]:
        requests = [self.reader.request(prompt, Settings(max_tokens=ANSWER)) for prompt in asked]
        found = {number: completion.tokens for number, _, completion in self.engine.complete(requests) if completion}
        return [found[number] for number in range(len(asked))]

    def rate(self, asked: list[list[int]]) -> tuple[float, list[list[int]], int, int]:
        """Decoded tokens a second, the answers, tokens that were decoded, and guesses among them."""
        speed = self.engine.speed
        seconds, tokens, right = speed.decode_seconds, speed.decoded_tokens, speed.right_tokens
        answers = self(asked)
        tokens = speed.decoded_tokens - tokens
        return tokens / (speed.decode_seconds - seconds), answers, tokens, speed.right_tokens - right


def fit(folder: Path, texts: list[list[int]]) -> None:
    """Gives the model of a folder the head that guesses these texts best."""
    tensors = load_file(folder / "model.safetensors")
    oracle = Qwen35(CONFIG, {name: tensor.astype(np.float32) for name, tensor in tensors.items()})
    inputs, outputs = [], []
    for text in texts:
        states = oracle.hidden(text)
        beside = (oracle.norm("mtp.pre_fc_norm_embedding", oracle.embed(text[1:])), oracle.norm("mtp.pre_fc_norm_hidden", states[:-1]))
        inputs.append(np.concatenate(beside, axis=1))
        outputs.append(states[1:])
    x, y = np.concatenate(inputs).astype(np.float64), np.concatenate(outputs).astype(np.float64)
    gram = x.T @ x
    gram[np.diag_indices_from(gram)] += RIDGE * np.trace(gram) / len(gram)
    tensors["mtp.fc.weight"] = np.ascontiguousarray(np.linalg.solve(gram, x.T @ y).T, np.float16)
    save_file(tensors, folder / "model.safetensors")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-o", "--output", type=Path, required=True, help="where models and artifacts are kept; 4 GB each")
    parser.add_argument("--updates", default="0.1,0.3", help="what layers add is multiplied by these (%(default)s)")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=5)
    args = parser.parse_args()
    table = Table(title=f"W8A8, one sequence, {ANSWER} tokens, {args.threads} threads, medians of {args.rounds} rounds")
    for heading in ("updates", "tokens a step", "tokens/s without", "with the head", "ratio"):
        table.add_column(heading, justify="right")
    for updates in args.updates.split(","):
        model, artifact = args.output / f"model-{updates}", args.output / f"fitted-{updates}"
        if not artifact.exists():
            if not model.exists():
                write_model(model, float(updates), seed=1)
            asked = prompts(2, FITTED)
            answers = Answers(compiled(model, args.output / f"unfitted-{updates}"), "none", args.threads)(asked)
            fit(model, [prompt + answer for prompt, answer in zip(asked, answers, strict=True)])
            compiled(model, artifact)
        asked, ways = prompts(3, JUDGED), {way: Answers(artifact, way, args.threads) for way in ("none", HEAD)}
        rounds = []
        for number in range(args.rounds):
            found = {way: ways[way].rate(asked) for way in (list(ways) if number % 2 else list(ways)[::-1])}
            if found["none"][1] != found[HEAD][1]:
                sys.exit("error: the answers differ")
            rounds.append((found["none"][0], found[HEAD][0]))
        ratios = sorted(guessed / own for own, guessed in rounds)
        _, _, tokens, right = found[HEAD]
        own, guessed = (statistics.median(rates) for rates in zip(*rounds, strict=True))
        table.add_row(updates, f"{tokens / (tokens - right):.2f}", f"{own:.1f}", f"{guessed:.1f}", f"{statistics.median(ratios):.2f} ({ratios[0]:.2f} to {ratios[-1]:.2f})")
    Console(width=120).print(table)


if __name__ == "__main__":
    main()
