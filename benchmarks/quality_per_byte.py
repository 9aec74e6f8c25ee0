#!/usr/bin/env python3
# Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Accuracy at a size: EasyQuant's weights beside llama.cpp's files, on the same windows of the same texts.

    .venv/bin/python benchmarks/quality_per_byte.py MODEL --calib FILE --text FILE [--text FILE] -o FOLDER

MODEL is a Hugging Face folder of the llama architecture, or a GGUF file. The script

  * has llama.cpp's quantizer make a file of every type in PEERS out of the model's f32 GGUF, with an importance matrix (mean x² of each
    column over windows of the calibration text) where it says so, and llama.cpp judge each by its own f32 logits;
  * compiles MODEL by every row of OURS and by every recipe in the folders that --recipes names, and has `easyquant eval` judge each by
    the float artifact; what is calibrated sees the same windows as the importance matrix;
  * prints both fronts with standard errors over windows, and for each file the best of ours that has no more bytes: the ratio of mean KL
    divergences, whose goal is 0.8, and both shares of equal first choices. It ends with status 1 where the goal is missed;
  * draws FOLDER/quality-per-byte.svg.

Bytes count tensors: those of weights*.safetensors without the rotation table, which no GGUF has, and those of the GGUF. Every point is
kept in FOLDER, and the same command goes on from there. A point is measured again where the model, a text, the windows, the compiler or
the peer's version has changed.

One text should be of another genre than the usual WikiText-2. News, for instance, are in a package of PyPI (300 articles, GNU LGPL):

    pip download --no-deps gensim==4.4.0 && unzip -p gensim-4.4.0-*.whl gensim/test/test_data/lee_background.cor >news.txt
"""

import argparse
import json
import re
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from functools import cache, cached_property
from pathlib import Path

import numpy as np
from peer import PEER_PACKAGES, Worker, cache_folder, fail, peer_environment
from quality_fronts import Point, draw, show
from safetensors import safe_open

from easyquant.evaluation.comparison import store, stored
from easyquant.evaluation.protocol import Corpus
from easyquant.runtime.extension import runtime
from easyquant.support.files import sha256
from easyquant.support.tools import find_tool
from easyquant.text.tokenizer import load_tokenizer

# File types of llama.cpp, and whether their quantizer gets an importance matrix.
PEERS = {"Q2_K": True, "IQ4_XS": True, "Q3_K_M": True, "Q4_K_M": True, "Q5_K_M": True, "Q6_K": False}
# Options of `easyquant compile`, beside the calibration text.
WEIGHTED = "--weight-observer=hessian-diagonal"
OURS = {
    f"W4A16_ASYM g{group} {method}": ("--scheme=W4A16_ASYM", f"--group-size={group}", f"--method={method}")
    for group in (128, 64, 32)
    for method in ("zeropoint", "awq", "gptq", "awq+gptq")
} | {
    f"W{bits}A16_ASYM g64, head the same, weighted ranges": (
        f"--scheme=W{bits}A16_ASYM", "--group-size=64", f"--head=W{bits}A16_ASYM", "--head-group-size=64", "--method=zeropoint", WEIGHTED)
    for bits in (4, 5, 6)
} | {mix: (f"--scheme={mix}",) for mix in ("Q3", "Q4", "Q5", "Q6")} | {
    "W8A16 absmax": ("--scheme=W8A16", "--method=absmax"),
    "W8A16 g128 weighted ranges": ("--scheme=W8A16", "--group-size=128", "--method=absmax", WEIGHTED),
}  # fmt: skip
ROTATION_TABLE = "rope.cos_sin"


@dataclass(frozen=True)
class Setting:
    """What all points share."""

    model_xxh3_128: str
    calib_sha256: str
    context: int
    windows: int


def easyquant(*arguments: object) -> None:
    command = [sys.executable, "-m", "easyquant", *map(str, arguments)]
    if subprocess.run(command, stdout=subprocess.DEVNULL).returncode != 0:
        fail(f"{shlex.join(command)}; its message is above")


def bytes_of_weights(artifact: Path) -> int:
    """Bytes of the weights' files without the rotation table."""
    total = 0
    for path in artifact.glob("weights*.safetensors"):
        total += path.stat().st_size
        with safe_open(path, framework="numpy") as file:
            total -= sum(file.get_tensor(name).nbytes for name in file.keys() if name == ROTATION_TABLE)
    return total


def slug(name: str) -> str:
    """A name as part of a file's name."""
    return re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")


class Bench:
    """Makes and judges points, and keeps what was found in the folder."""

    def __init__(self, args: argparse.Namespace, scratch: Path, peers: dict[str, bool] = PEERS):
        self.args, self.scratch, self.peers = args, scratch, peers
        easyquant("compile", args.model, "-o", self.reference, "--scheme=none")
        manifest = json.loads((self.reference / "manifest.json").read_text())
        self.setting = Setting(manifest["source"]["xxh3_128"], sha256(args.calib), args.context, args.windows)
        self.texts = {text: sha256(text) for text in args.text}
        self.vocab_size = manifest["model"]["vocab_size"]

    @property
    def samples(self) -> list[str]:
        """Which windows of the calibration text either side sees."""
        return [f"--nsamples={self.args.nsamples}", f"--seqlen={self.args.seqlen}"]

    @property
    def reference(self) -> Path:
        return self.scratch / "float"

    @cached_property
    def compiler(self) -> list[str]:
        """What decides our figures: compiler and runtime."""
        return [sha256(find_tool("easyquant-compile")), sha256(Path(runtime().__file__))]

    @cached_property
    def peer(self) -> Worker:
        return Worker(self.args.peer_python or peer_environment(cache_folder(self.args.cache)), "llama_cpp_judge.py")

    @cached_property
    def full(self) -> Path:
        path = self.scratch / "full.gguf"
        self.peer.ask("full", source=str(self.args.model.absolute()), out=str(path))
        return path

    @cached_property
    def statistics(self) -> Path:
        path = self.scratch / "statistics.safetensors"
        easyquant("calibrate", self.args.model, "--calib", self.args.calib, "-o", path, "--statistic=moments", *self.samples)
        return path

    def windows_of(self, text: Path) -> Path:
        """int32 [windows, context]: what `easyquant eval` scores."""
        path = self.scratch / f"{self.texts[text]}.npy"
        if not path.exists():
            corpus = Corpus.read(text, load_tokenizer(self.reference, self.vocab_size), None)
            np.save(path, corpus.windows(self.setting.context, self.setting.windows))
        return path

    def peer_points(self) -> list[Point]:
        """Files that are missing are judged together: the f32 logits are computed once for all."""
        names = {kind: f"llama.cpp {kind}" + (", importance matrix" if matrix else "") for kind, matrix in self.peers.items()}
        sources = {kind: [PEER_PACKAGES, self.samples if matrix else None] for kind, matrix in self.peers.items()}
        found = {kind: {} for kind in self.peers}
        for text in self.texts:
            for kind in self.peers:
                found[kind][text.name] = self.load(names[kind], text, sources[kind])
            missing = [kind for kind in self.peers if found[kind][text.name] is None]
            if not missing:
                continue
            print(f"llama.cpp {', '.join(missing)}: {text.name}", file=sys.stderr)
            files = [self.peer_file(kind) for kind in missing]
            for kind, (_, size), figures in zip(missing, files, self.judge([file for file, _ in files], text)):
                found[kind][text.name] = self.keep(names[kind], text, sources[kind], {"bytes": size, "figures": figures})
        return [Point.of(names[kind], True, found[kind]) for kind in self.peers]

    def judge(self, files: list[Path], text: Path) -> list[dict]:
        """What llama.cpp finds of GGUF files, by its own f32 logits."""
        return self.peer.ask("judge", paths=[str(file) for file in files], reference=str(self.full), windows=str(self.windows_of(text)),
                             threads=self.args.threads)["figures"]  # fmt: skip

    @staticmethod
    def source_of(arguments: tuple[str, ...]) -> object:
        """What they are, and of a recipe what is in it."""
        recipes = [Path(argument.partition("=")[2]) for argument in arguments if argument.startswith("--recipe=")]
        return [sha256(recipe) for recipe in recipes] or arguments

    @cache
    def peer_file(self, kind: str) -> tuple[Path, int]:
        """A file of the quantizer, and the bytes of its tensors."""
        file = self.scratch / f"{kind}.gguf"
        statistics = str(self.statistics) if self.peers[kind] else None
        return file, self.peer.ask("quantize", full=str(self.full), out=str(file), file_type=kind, statistics=statistics)["tensor_bytes"]

    def our_point(self, name: str, arguments: tuple[str, ...]) -> Point:
        """`arguments`: options of `easyquant compile`."""
        source = [self.compiler, self.samples, self.source_of(arguments)]
        found = {}
        with self.artifact_folder(name, source) as artifact, tempfile.TemporaryDirectory(dir=self.scratch) as folder:
            result = Path(folder) / "result.json"
            for text in self.texts:
                found[text.name] = self.load(name, text, source)
                if found[text.name] is not None:
                    continue
                print(f"{name}: {text.name}", file=sys.stderr)
                self.compile(artifact, arguments)
                easyquant("eval", artifact, "--text", text, "--context", self.setting.context, "--max-windows", self.setting.windows,
                          "--reference", self.reference, "--threads", self.args.threads, "--json", result)  # fmt: skip
                figures = {"bytes": bytes_of_weights(artifact), "figures": json.loads(result.read_text())}
                found[text.name] = self.keep(name, text, source, figures)
        return Point.of(name, False, found)

    @contextmanager
    def artifact_folder(self, name: str, source: list) -> Iterator[Path]:
        """Where the artifact of a point is or will be, for as long as the block lasts."""
        with tempfile.TemporaryDirectory(dir=self.scratch) as folder:
            yield Path(folder) / "artifact"

    def compile(self, artifact: Path, arguments: tuple[str, ...]) -> None:
        if not artifact.exists():
            easyquant("compile", self.args.model, "-o", artifact, "--calib", self.args.calib, *self.samples, *arguments)

    def file_of(self, name: str, text: Path) -> Path:
        return self.args.output / f"{slug(name)}-{self.texts[text][:8]}.json"

    def stamp(self, text: Path, source: list) -> str:
        """`source`: what makes of the model decides the figures."""
        return json.dumps([asdict(self.setting), self.texts[text], source], sort_keys=True)

    def load(self, name: str, text: Path, source: list) -> dict | None:
        return stored(self.file_of(name, text), self.stamp(text, source))

    def keep(self, name: str, text: Path, source: list, found: dict) -> dict:
        store(self.file_of(name, text), self.stamp(text, source), found)
        return found


def recipes_of(folders: list[Path]) -> dict[str, tuple[str, ...]]:
    """{name: options} of every recipe in the folders, which `easyquant search --front` writes, for one."""
    found = {}
    for folder in folders:
        files = sorted(folder.glob("*.yaml"))
        if not files:
            fail(f"--recipes {folder}: there is no *.yaml in it; expected a folder of recipes, such as `easyquant search --front` writes")
        found |= {f"{folder.name}/{file.stem}": (f"--recipe={file}",) for file in files}
    return found


def chosen(ours: dict[str, tuple[str, ...]], args: argparse.Namespace) -> dict[str, tuple[str, ...]]:
    """Our points that are asked for, and the recipes."""
    return {name: options for name, options in (ours | recipes_of(args.recipes)).items() if re.search(args.ours, name)}


def add_protocol(parser: argparse.ArgumentParser, output: Path, several: bool = False) -> None:
    """What is judged, and on what. `several`: `args.models`, one or more, in the place of `args.model`."""
    models = {"dest": "models", "nargs": "+"} if several else {"dest": "model"}
    parser.add_argument(**models, type=Path, metavar="MODEL", help="a Hugging Face folder of the llama architecture, or a GGUF file; best off any grid")
    parser.add_argument("--calib", type=Path, required=True, metavar="FILE", help="calibration text, of both sides")
    parser.add_argument("--text", type=Path, required=True, action="append", metavar="FILE", help="a text to judge on; repeatable")
    parser.add_argument("--ours", metavar="REGEX", default="", help="of our points only those whose name matches")
    parser.add_argument("--recipes", type=Path, action="append", default=[], metavar="FOLDER", help="a folder of recipes, each a point; repeatable")
    parser.add_argument("-o", "--output", type=Path, default=output, metavar="FOLDER", help=f"where points are kept ({output})")
    parser.add_argument("--nsamples", type=int, default=16, metavar="N", help="calibration windows of either side (16)")
    parser.add_argument("--seqlen", type=int, default=512, metavar="N", help="tokens of one (512)")
    parser.add_argument("--context", type=int, default=1024, metavar="N", help="tokens of a window (1024)")
    parser.add_argument("--windows", type=int, default=8, metavar="N", help="windows of each text, two or more (8)")
    parser.add_argument("--threads", type=int, default=2, metavar="N")
    parser.add_argument("--peer-python", type=Path, help="interpreter of an environment that has llama-cpp-python and gguf")
    parser.add_argument("--cache", type=Path, help="where the peer's environment is kept")


def check_protocol(args: argparse.Namespace) -> None:
    model = args.model / "config.json" if args.model.is_dir() else args.model
    for what, path in (("MODEL", model), ("--calib", args.calib), *(("--text", text) for text in args.text)):
        if not path.is_file():
            fail(f"{what}: there is no file {path}")
    names = [text.name for text in args.text]
    if len(set(names)) < len(names):
        fail(f"--text: {', '.join(names)}: expected files of different names, by which figures are told apart")
    if args.windows < 2:
        fail(f"--windows {args.windows}: expected two or more, since standard errors are over windows")


def read_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_protocol(parser, Path("quality-per-byte"))
    parser.add_argument("--no-peer", action="store_true", help="judge ours alone, without llama.cpp")
    args = parser.parse_args()
    check_protocol(args)
    return args


def main() -> None:
    args = read_arguments()
    ours = chosen(OURS, args)
    args.output.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=args.output, prefix=".scratch-") as scratch:
        bench = Bench(args, Path(scratch))
        points = [] if args.no_peer else bench.peer_points()
        points += [bench.our_point(name, options) for name, options in ours.items()]
    names = [text.name for text in args.text]
    draw(points, names, args.output / "quality-per-byte.svg")
    sys.exit(1 if show(points, names) else 0)


if __name__ == "__main__":
    main()
