# Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What speculation from the text itself gains: answers that edit code, and answers that repeat nothing, with and without it in turn.

    python benchmarks/speculation.py qwen-w8a8 --threads 2 --rounds 3

The figure is new tokens a second from the first one on; answers are compared, too.
"""

import argparse
import statistics
import time
from pathlib import Path

import easyquant

CODE = '''class Stack:
    def __init__(self):
        self.items = []

    def push(self, item):
        self.items.append(item)

    def pop(self):
        if not self.items:
            raise IndexError("pop from an empty stack")
        return self.items.pop()

    def __len__(self):
        return len(self.items)
'''
PROMPTS = {
    "editing code": f"Rename the attribute items to values in this code. Answer with the whole code and nothing else.\n```python\n{CODE}```",
    "prose": "Write a story about a lighthouse keeper and a whale, in long sentences, without repeating yourself.",
}


def measure(model: easyquant.Model, prompt: str, tokens: int) -> tuple[float, str]:
    """Tokens a second, and the text."""
    begin, text = None, ""
    call = model.chat(max_tokens=tokens)
    for piece in call.stream(prompt):
        begin = begin or time.perf_counter()
        text += piece
    return (len(call.last.tokens) - 1) / (time.perf_counter() - begin), text


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("artifact", type=Path)
    parser.add_argument("--speculate", default="ngram", help="ngram, or an artifact of the same tokenizer")
    parser.add_argument("--threads", type=int, default=0)
    parser.add_argument("--tokens", type=int, default=128)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    with (
        easyquant.Model(options.artifact, threads=options.threads, sequences=1) as plain,
        easyquant.Model(options.artifact, threads=options.threads, sequences=1, speculate=options.speculate) as guessing,
    ):
        for name, prompt in PROMPTS.items():
            rounds = []
            for number in range(options.rounds):
                order = [plain, guessing] if number % 2 else [guessing, plain]
                found = {model: measure(model, prompt, options.tokens) for model in order}
                assert found[plain][1] == found[guessing][1], "the answers differ"
                rounds.append((found[plain][0], found[guessing][0]))
            ratios = sorted(guessed / own for own, guessed in rounds)
            own, guessed = (statistics.median(rates) for rates in zip(*rounds))
            print(f"{name}: {own:.1f} tokens/s, {guessed:.1f} with {options.speculate}: {statistics.median(ratios):.2f} times ({ratios[0]:.2f} to {ratios[-1]:.2f})", flush=True)


if __name__ == "__main__":
    main()
