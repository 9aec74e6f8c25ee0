#!/usr/bin/env python3
# Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The float artifact of a model beside llama.cpp on the same numbers.

    .venv/bin/python benchmarks/models.py MODEL [MODEL ...] --text FILE

MODEL is a Hugging Face folder of the llama architecture, or a GGUF file, of which llama.cpp gets a file of f32. Both read the same windows
of the text, and go on for 64 tokens behind the first one. The script prints a table of the relative RMS of our logits, of the two
perplexities and of the tokens, and ends with status 1 where a bound is missed.
"""

import argparse
import sys
import tempfile
from pathlib import Path

import numpy as np
from easyquant.evaluation.protocol import Corpus
from easyquant.runtime.artifact import Artifact, load_model, open_session
from easyquant.runtime.logits import token_losses
from easyquant.text.tokenizer import load_tokenizer
from peer import Worker, cache_folder, fail, peer_environment
from quality_per_byte import easyquant

LARGEST_RMS, LARGEST_PERPLEXITY, CONTINUED = 1e-4, 5e-4, 64
ROWS = 128  # whose logits are in memory at a time


def compare(model, text, args, worker, scratch):
    """(relative RMS of logits, our perplexity, llama.cpp's, tokens that are the same before one differs)."""
    artifact, full, windows, theirs = (scratch / name for name in ("float", "full.gguf", "windows.npy", "theirs.npy"))
    easyquant("compile", model, "-o", artifact, "--scheme=none", f"--context={args.context + CONTINUED}")
    worker.ask("full", source=str(model.absolute()), out=str(full))
    loaded = Artifact.open(artifact)
    tokenizer = load_tokenizer(artifact, loaded.model["vocab_size"])
    found = Corpus.read(text, tokenizer, loaded.model.get("bos_token_id")).windows(args.context, args.windows)
    np.save(windows, found)
    worker.ask("logits", path=str(full), windows=str(windows), out=str(theirs), threads=args.threads)
    expected = np.load(theirs, mmap_mode="r")
    session = open_session(load_model(loaded), threads=args.threads)
    squares, norms, losses = 0.0, 0.0, ([], [])
    for window, wanted in zip(found, expected):
        session.reset()
        for begin in range(0, len(window), ROWS):
            part = slice(begin, min(begin + ROWS, len(window)))
            ours = session.score(window[part])
            squares += float(np.square(ours.astype(np.float64) - wanted[part]).sum())
            norms += float(np.square(wanted[part].astype(np.float64)).sum())
            targets = window[part.start + 1 : part.stop + 1]
            for collected, logits in zip(losses, (ours, wanted[part])):
                collected.append(token_losses(np.asarray(logits[: len(targets)]), targets))
    session.reset()
    session.prefill(found[0])
    tokens = []
    while len(tokens) < CONTINUED:
        tokens.append(int(session.logits.argmax()))
        session.decode(tokens[-1])
    others = worker.ask("continue", path=str(full), tokens=found[0].tolist(), count=CONTINUED, threads=args.threads)["tokens"]
    same = next((i for i, (a, b) in enumerate(zip(tokens, others)) if a != b), CONTINUED)
    return (squares / norms) ** 0.5, *(float(np.exp(np.concatenate(side).mean())) for side in losses), same


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="+", type=Path, metavar="MODEL")
    parser.add_argument("--text", type=Path, required=True, metavar="FILE", help="what both read")
    parser.add_argument("--context", type=int, default=768, metavar="N", help="tokens of a window (768: more than windows of attention have)")
    parser.add_argument("--windows", type=int, default=2, metavar="N", help="windows of the text (2)")
    parser.add_argument("--threads", type=int, default=2, metavar="N")
    parser.add_argument("--peer-python", type=Path, help="interpreter of an environment that has llama-cpp-python and gguf")
    parser.add_argument("--cache", type=Path, help="where the peer's environment is kept")
    args = parser.parse_args()
    for path in (*args.models, args.text):
        if not path.exists():
            fail(f"{path}: there is no such file or folder")
    worker = Worker(args.peer_python or peer_environment(cache_folder(args.cache)), "llama_cpp_judge.py")
    print("| model | relative RMS of logits | perplexity | llama.cpp's | tokens that are equal |\n|---|---|---|---|---|")
    missed = False
    for model in args.models:
        with tempfile.TemporaryDirectory() as scratch:
            rms, ours, theirs, same = compare(model, args.text, args, worker, Path(scratch))
        print(f"| {model.stem} | {rms:.1e} | {ours:.4f} | {theirs:.4f} | {same} of {CONTINUED} |", flush=True)
        missed |= rms > LARGEST_RMS or abs(ours / theirs - 1) > LARGEST_PERPLEXITY or same < CONTINUED
    worker.close()
    sys.exit(1 if missed else 0)


if __name__ == "__main__":
    main()
