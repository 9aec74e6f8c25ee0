#!/usr/bin/env python3
# Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""GGUF files that EasyQuant exports beside those of llama.cpp's quantizer, type by type, both judged by llama.cpp.

    .venv/bin/python benchmarks/gguf_files.py MODEL --calib FILE --text FILE [--text FILE] -o FOLDER [--ours REGEX]

MODEL is a Hugging Face folder of the llama architecture, or a GGUF file; best off any grid. For every type in TYPES that --ours matches the script
exports MODEL by `easyquant export --format gguf`, has llama.cpp's quantizer make its own file with an importance matrix from the same windows of the
calibration text, and has llama.cpp judge both by its f32 logits. It prints bytes of tensors, mean KL divergences with standard errors over
windows and their ratio, and ends with status 1 where the ratio is above GOAL. Files and figures are kept in FOLDER, and the same command goes on from there.
"""

import argparse
import re
import sys
import tempfile
from hashlib import sha256
from pathlib import Path

import gguf
from peer import PEER_PACKAGES, fail
from quality_fronts import GOAL, Point, ratio, with_error
from quality_per_byte import Bench, add_protocol, check_protocol, easyquant, slug
from rich.console import Console
from rich.table import Table

# Methods of `easyquant export` by type.
TYPES = {kind: "awq+signround" for kind in ("Q4_0", "IQ4_NL", "Q5_0")} | {"Q8_0": "absmax"}


class GGUFBench(Bench):
    def our_file(self, kind: str, source: list) -> Path:
        folder = self.args.output / f"ours-{slug(kind)}-{sha256(repr([self.setting, source]).encode()).hexdigest()[:12]}"
        if not folder.exists():
            easyquant("export", self.args.model, "--format=gguf", "-o", folder, f"--scheme={kind}", f"--method={TYPES[kind]}", "--calib", self.args.calib, *self.samples)
        return folder / "model.gguf"

    def judged(self, kind: str) -> tuple[Point, Point]:
        """Ours and theirs."""
        sources = {f"EasyQuant {kind}": [self.compiler, self.samples, TYPES[kind]], f"llama.cpp {kind}": [PEER_PACKAGES, self.samples]}
        found = {name: {} for name in sources}
        for text in self.texts:
            for name, source in sources.items():
                found[name][text.name] = self.load(name, text, source)
            if all(points[text.name] for points in found.values()):
                continue
            print(f"{kind}: {text.name}", file=sys.stderr)
            ours, (theirs, size) = self.our_file(kind, sources[f"EasyQuant {kind}"]), self.peer_file(kind)
            sizes = (sum(int(tensor.n_bytes) for tensor in gguf.GGUFReader(ours).tensors), size)
            judged = self.peer.ask("judge", paths=[str(ours), str(theirs)], reference=str(self.full), windows=str(self.windows_of(text)),
                                   threads=self.args.threads)["figures"]  # fmt: skip
            for (name, source), size, figures in zip(sources.items(), sizes, judged):
                found[name][text.name] = self.keep(name, text, source, {"bytes": size, "figures": figures})
        ours, theirs = (Point.of(name, name.startswith("llama.cpp"), points) for name, points in found.items())
        return ours, theirs


def show(pairs: list[tuple[Point, Point]], texts: list[str]) -> list[str]:
    """Prints the table, and returns where the goal is missed."""
    table = Table(title="mean KL divergence from llama.cpp's f32 logits")
    for heading in ("", "MB", *(f"KL, {text}" for text in texts), *(f"ratio, {text}" for text in texts)):
        table.add_column(heading, justify="right" if heading else "left")
    misses = []
    for ours, theirs in pairs:
        ratios = [ratio(ours, theirs, text) for text in texts]
        for point, cells in ((theirs, [""] * len(texts)), (ours, [with_error(*value, 2) for value in ratios])):
            table.add_row(point.name, f"{point.bytes / 1e6:.1f}", *(with_error(point.kl(text), point.kl_error(text), 4) for text in texts), *cells)
        misses += [f"{ours.name} has {value:.2f} of the KL of {theirs.name} on {text}, goal {GOAL}" for text, (value, _) in zip(texts, ratios) if value > GOAL]
    Console(width=150).print(table)
    print("\n".join([*misses, f"{len(misses)} misses"]))
    return misses


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_protocol(parser, Path("gguf-files"))
    args = parser.parse_args()
    check_protocol(args)
    kinds = [kind for kind in TYPES if re.search(args.ours, kind)]
    if not kinds:
        fail(f"--ours {args.ours}: matches none of {', '.join(TYPES)}")
    args.output.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=args.output, prefix=".scratch-") as scratch:
        bench = GGUFBench(args, Path(scratch), dict.fromkeys(kinds, True))
        pairs = [bench.judged(kind) for kind in kinds]
    sys.exit(1 if show(pairs, [text.name for text in args.text]) else 0)


if __name__ == "__main__":
    main()
