#!/usr/bin/env python3
# Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Activations with static, dynamic and online scales, on text that turns into another kind.

    .venv/bin/python benchmarks/online_scales.py MODEL --calib FILE --texts FILE FILE [--tokens 1024] [--window 256] [--out DIR]

Compiles W8A8 by SmoothQuant with searched alpha in each way (those with sinks apart: `--sinks keep`), and lets each read the first tokens of one text after the other,
in windows of so many tokens, at 1 and at 32 tokens a step. State goes on from window to window and from text to text. Prints
the mean KL divergence from the float model on each text, and what a decode step costs beside one with static scales: the median of
ratios of interleaved steps.
"""

import argparse
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.table import Table

from easyquant import _runtime
from easyquant.runtime.artifact import Artifact
from easyquant.text.tokenizer import load_tokenizer

NONE, KEEP = ("--sinks=none",), ("--sinks=keep",)
KINDS = {
    "static": NONE, "static, sinks apart": KEEP, "dynamic": (), "online-ema": NONE, "online-ema, sinks apart": KEEP,
    "online-window": NONE, "online-window, sinks apart": KEEP,
}  # fmt: skip


def compile_all(model, calib, out, options):
    folders = {}
    for kind in ("float", *KINDS):
        folder = folders[kind] = out / kind.replace(", ", "-").replace(" ", "-")
        if folder.exists():
            continue
        how = ("--scheme=none",) if kind == "float" else (
            "--scheme=W8A8", "--method=smoothquant", "--alpha=search", f"--activations={kind.partition(',')[0]}", *KINDS[kind],
            f"--calib={calib}", *options)
        subprocess.run([sys.executable, "-m", "easyquant", "compile", model, "-o", folder, *how], check=True)
    return folders


def log_softmax(logits):
    shifted = logits - logits.max(axis=1, keepdims=True)
    return shifted - np.log(np.exp(shifted).sum(axis=1, keepdims=True))


def read(session, tokens, window, step):
    """Logits of all tokens, in windows."""
    rows = []
    for begin in range(0, len(tokens), window):
        session.reset()
        part = tokens[begin:begin + window]
        for first in range(0, len(part), step):
            rows.append(session.score(part[first:first + step]))
    return np.concatenate(rows)


def divergences(models, texts, window, step):
    """{kind: [mean KL of each text]}."""
    sessions = {kind: _runtime.Session(model, context=window) for kind, model in models.items()}
    found = {kind: [] for kind in KINDS}
    for tokens in texts:
        reference = log_softmax(read(sessions["float"], tokens, window, 32).astype(np.float64))
        for kind in KINDS:
            judged = log_softmax(read(sessions[kind], tokens, window, step).astype(np.float64))
            found[kind].append(float((np.exp(reference) * (reference - judged)).sum(axis=1).mean()))
    return found


def step_costs(models, tokens, rounds):
    """{kind: median ratio of a decode step to one with static scales}, one thread."""
    sessions = {kind: _runtime.Session(models[kind], context=256, threads=1) for kind in KINDS}
    ratios = {kind: [] for kind in KINDS}
    for round in range(rounds):
        seconds = {kind: [] for kind in KINDS}
        for session in sessions.values():
            session.reset()
        for token in tokens[:64]:
            for kind in np.random.default_rng(round).permutation(list(KINDS)):
                begin = time.perf_counter()
                sessions[kind].decode(int(token))
                seconds[kind].append(time.perf_counter() - begin)
        for kind in KINDS:
            ratios[kind].append(np.median(seconds[kind]) / np.median(seconds["static"]))
    return {kind: float(np.median(values)) for kind, values in ratios.items()}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path)
    parser.add_argument("--calib", type=Path, required=True)
    parser.add_argument("--texts", type=Path, nargs="+", required=True)
    parser.add_argument("--tokens", type=int, default=1024, help="of each text")
    parser.add_argument("--window", type=int, default=256)
    parser.add_argument("--steps", type=int, nargs="+", default=[1, 32])
    parser.add_argument("--rounds", type=int, default=9, help="of timing; 0: none")
    parser.add_argument("--out", type=Path, help="where artifacts are kept, and taken from if they are there")
    parser.add_argument("--option", action="append", default=[], help="for compile, such as --option=--online-decay=0.8")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        folders = compile_all(options.model, options.calib, options.out or Path(scratch), options.option)
        artifact = Artifact.open(folders["float"])
        tokenizer = load_tokenizer(artifact.path, artifact.model["vocab_size"])
        texts = [np.array(tokenizer.encode(text.read_text()[:16 * options.tokens], add_special_tokens=False)[:options.tokens], np.int32)
                 for text in options.texts]
        models = {kind: _runtime.Model(str(folder), device="cpu") for kind, folder in folders.items()}
        console = Console()
        for step in options.steps:
            table = Table("activations", *(text.name for text in options.texts), title=f"mean KL from float, {step} tokens a step")
            for kind, values in divergences(models, texts, options.window, step).items():
                table.add_row(kind, *(f"{value:.4f}" for value in values))
            console.print(table)
        if options.rounds:
            costs = step_costs(models, texts[0], options.rounds)
            console.print("a decode step beside static: " + ", ".join(f"{kind} {ratio:.3f}" for kind, ratio in costs.items()))


if __name__ == "__main__":
    main()
