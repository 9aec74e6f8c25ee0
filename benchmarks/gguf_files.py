#!/usr/bin/env python3
# Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""GGUF files that EasyQuant exports beside those of llama.cpp's quantizer, all judged by llama.cpp.

    .venv/bin/python benchmarks/gguf_files.py MODEL --calib FILE --text FILE [--text FILE] -o FOLDER [--search] [--theirs REGEX] [--ours REGEX]

MODEL is a Hugging Face folder of the llama architecture, or a GGUF file; best off any grid. The script exports MODEL by `easyquant export --format gguf`
as every type of OURS and by every recipe in the folders that --recipes names, has llama.cpp's quantizer make files of PEERS with an importance matrix from
the same windows of the calibration text, and has llama.cpp judge all of them by its f32 logits. It prints what quality_per_byte.py prints of artifacts,
draws FOLDER/gguf-files.svg, and ends with status 1 where a goal is missed. Files and figures are kept in FOLDER, and the same command goes on from there.

With --auto-round, auto-round makes files of these types by 200 steps, each on one of the same windows, in an environment of its own that the script
makes; MODEL is a folder then, and ours are to be no worse at no more bytes.

With --search the whole comparison is this one command: for the bytes of each of llama.cpp's files but Q4_0 it searches a mix of types (`easyquant search
--formats gguf --front`, one set of measurements for all), whose recipes are points as well. It takes long; `--theirs Q4_K_M --ours none`
compares one size.
"""

import argparse
import re
import sys
import tempfile
from collections.abc import Callable
from functools import cached_property, partial
from hashlib import sha256
from pathlib import Path

import gguf
import quality_per_byte
from interop_clients import CLIENTS, Environments, Unavailable, ask
from peer import cache_folder, fail
from quality_fronts import Point, draw, show
from quality_per_byte import Bench, add_protocol, check_protocol, chosen, easyquant, recipes_of, slug

from easyquant.compiler.calibration import CalibrationText
from easyquant.evaluation.search_peers import windows_of

# File types of llama.cpp, and whether their quantizer gets an importance matrix.
PEERS = quality_per_byte.PEERS | {"Q4_0": True}
# Options of `easyquant export`, beside the calibration text.
OURS = {kind: (f"--scheme={kind}", "--method=awq+signround") for kind in ("Q4_0", "IQ4_NL", "Q5_0")} | {"Q8_0": ("--scheme=Q8_0", "--method=absmax")}
# A type of theirs that is no size to search for: OURS has one for it.
PLAIN = ("Q4_0",)
SEARCH_SAMPLES = 4
# Types of auto-round's files, as llama.cpp names them.
AUTO_ROUND = ("Q4_0", "Q4_K_M")


class GGUFBench(Bench):
    def our_file(self, name: str, source: list, arguments: tuple[str, ...]) -> Path:
        folder = self.args.output / f"{slug(name)}-{sha256(repr([self.setting, source]).encode()).hexdigest()[:12]}"
        if not folder.exists():
            easyquant("export", self.args.model, "--format=gguf", "-o", folder, *arguments, "--calib", self.args.calib, *self.samples)
        return folder / "model.gguf"

    def searched(self, theirs: list[Point]) -> Path:
        """The folder of recipes for the bytes of files of the peer, the smallest first."""
        sizes = sorted({point.bytes for point in theirs})
        source = [self.setting, self.compiler, self.samples, sizes]
        folder = self.args.output / f"recipes-{sha256(repr(source).encode()).hexdigest()[:12]}"
        if not (folder / "search.json").exists():  # which is written last
            print(f"search for {', '.join(f'{size / 1e6:.1f} MB' for size in sizes)}", file=sys.stderr)
            easyquant("search", self.args.model, "--formats=gguf", "--front", folder, f"--max-size={','.join(f'{size}B' for size in sizes)}", "--calib",
                      self.args.calib, *self.samples, f"--search-samples={SEARCH_SAMPLES}")  # fmt: skip
        return folder

    @cached_property
    def calibration_windows(self) -> list[list[int]]:
        """The windows that `easyquant export` sees."""
        return windows_of(self.args.model, CalibrationText(self.args.calib, self.args.nsamples, self.args.seqlen), self.args.nsamples).tolist()

    def auto_round_file(self, kind: str, source: list, environments: Environments) -> Path:
        folder = self.args.output / f"auto-round-{slug(kind)}-{sha256(repr([self.setting, source]).encode()).hexdigest()[:12]}"
        if not folder.exists():
            request = {"library": "auto-round as gguf", "model": str(self.args.model.absolute()), "out": str(folder.absolute())}
            ask(environments.worker("auto-round"), "make", **request, scheme=kind, group=0, windows=self.calibration_windows)
        return next(folder.glob("*.gguf"))

    def auto_round_points(self, environments: Environments) -> list[Point]:
        source, kinds = [CLIENTS["auto-round"].alone, self.samples], self.args.auto_round.split(",")
        makers = {f"auto-round {kind}": (source, partial(self.auto_round_file, kind, [*source, kind], environments)) for kind in kinds}
        return self.file_points(makers, is_peer=True)

    def our_points(self, ours: dict[str, tuple[str, ...]]) -> list[Point]:
        sources = {name: [self.compiler, self.samples, self.source_of(arguments)] for name, arguments in ours.items()}
        makers = {name: (sources[name], partial(self.our_file, name, sources[name], arguments)) for name, arguments in ours.items()}
        return self.file_points(makers, is_peer=False)

    def file_points(self, makers: dict[str, tuple[list, Callable[[], Path]]], is_peer: bool) -> list[Point]:
        """What decides each file, and makes it. Files that are missing are judged together, as those of llama.cpp are."""
        found = {name: {} for name in makers}
        for text in self.texts:
            for name, (source, _) in makers.items():
                found[name][text.name] = self.load(name, text, source)
            missing = [name for name in makers if found[name][text.name] is None]
            if not missing:
                continue
            print(f"{', '.join(missing)}: {text.name}", file=sys.stderr)
            files = [makers[name][1]() for name in missing]
            for name, file, figures in zip(missing, files, self.judge(files, text)):
                size = sum(int(tensor.n_bytes) for tensor in gguf.GGUFReader(file).tensors)
                found[name][text.name] = self.keep(name, text, makers[name][0], {"bytes": size, "figures": figures})
        return [Point.of(name, is_peer, found[name]) for name in makers]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_protocol(parser, Path("gguf-files"))
    parser.add_argument("--search", action="store_true", help="search a mix of types for the bytes of each of llama.cpp's files")
    parser.add_argument("--auto-round", nargs="?", const=",".join(AUTO_ROUND), default="", metavar="TYPE,...",
                        help=f"files of auto-round, too, which it takes long to make ({','.join(AUTO_ROUND)})")  # fmt: skip
    parser.add_argument("--torch", type=Path, metavar="PYTHON", help="for --auto-round: an interpreter that has torch already")
    parser.add_argument("--theirs", metavar="REGEX", default="", help="of llama.cpp's files only those whose type matches")
    args = parser.parse_args()
    check_protocol(args)
    peers = {kind: matrix for kind, matrix in PEERS.items() if re.search(args.theirs, kind)}
    if not peers:
        fail(f"--theirs {args.theirs}: matches none of {', '.join(PEERS)}")
    ours = chosen(OURS, args)
    if not ours and not (args.search or args.auto_round):
        fail(f"--ours {args.ours}: matches none of {', '.join(OURS)}")
    if args.auto_round and not args.model.is_dir():
        fail(f"{args.model}: --auto-round expects a Hugging Face folder")
    args.output.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=args.output, prefix=".scratch-") as scratch:
        bench = GGUFBench(args, Path(scratch), peers)
        points = bench.peer_points()
        if args.search and (sizes := [point for kind, point in zip(peers, points) if kind not in PLAIN]):
            ours |= recipes_of([bench.searched(sizes)])
        points += bench.our_points(ours)
        if args.auto_round:
            try:
                points += bench.auto_round_points(Environments(cache_folder(args.cache), args.torch))
            except Unavailable as error:
                fail(f"auto-round: {error}")
    names = [text.name for text in args.text]
    draw(points, names, args.output / "gguf-files.svg")
    sys.exit(1 if show(points, names) else 0)


if __name__ == "__main__":
    main()
