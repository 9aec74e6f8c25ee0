#!/usr/bin/env python3
# Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Checkpoints go out to their clients and come in from them: what is equal, and how far logits are apart.

    .venv/bin/python benchmarks/interop.py MODEL --text FILE -o FOLDER [--torch PYTHON] [--only REGEX] [--page FILE]

MODEL is a Hugging Face folder of the llama architecture, best off any grid. The script makes an environment for each client from PyPI (in --cache).

Out: for every row of EXPORTS it exports MODEL and compiles two artifacts, of MODEL with the same options and of what was exported (ONNX and upstream
ops do not come back: the first is the second). Each client loads the folder and is asked for what it dequantizes, which has to be the weights of the first
artifact, rounded once to the client's type. The second one continues a prompt greedily by 64 tokens; the client's logits of the same tokens have to be
within the bound of its arithmetic (BOUNDS), and, where activations stay float, have to like the same token best at each of the 64 steps, so that it would
have continued the prompt alike.

In: for every row of IMPORTS a library, the maker, quantizes MODEL by itself, to nearest or on a few windows of --text. `easyquant compile` takes the
checkpoint by its defaults and has to keep the codes of all sites. The artifact's weights have to be those that the reader of the row dequantizes, and
the mean KL divergence from the reader's logits on other windows of --text below 1e-4.

What was found is kept in FOLDER, and the same command goes on from there. It prints a page and writes it to --page (default FOLDER/interop.md). What
cannot be installed, made or run is on the page with the reason. It ends with status 1 where something is not equal or beyond its bound.
"""

import argparse
import contextlib
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import asdict, dataclass
from datetime import date
from pathlib import Path

import numpy as np
from interop_clients import Environments, Unavailable, ask
from peer import Worker, cache_folder, fail
from safetensors.numpy import save_file

import easyquant
from easyquant.evaluation.protocol import Corpus, cpu_name, version
from easyquant.evaluation.weights import read_site
from easyquant.runtime.artifact import Artifact
from easyquant.support.tools import find_tool
from easyquant.text.tokenizer import load_tokenizer

PROMPT = "The lighthouse stood on the rock, and every evening the keeper climbed the stairs to"
STEPS = 64
WINDOWS, WINDOW = 4, 256  # of --text
SAMPLES = 2  # windows behind them, that libraries quantize with
# ‖difference of logits‖ / ‖logits‖, by the type that a client dequantizes to. One that computes in f32 differs in the order of sums; f16 and bf16 round
# every weight and most activations, to 11 and 8 bits. Where activations are codes, they are other codes: compressed-tensors has absmax / 127.5 as their
# scale where an artifact has absmax / 127, and llama.cpp rounds them in blocks of 32 or 256 where an artifact leaves floats. Logits are apart by the
# noise of that.
BOUNDS = {"float32": 1e-4, "float16": 2e-2, "bfloat16": 1e-1, "codes": 2e-1}
# NVFP4's outer scale: the file has its reciprocal, rounded to f32, by which the client divides. Its weights are ours within this, rounded once: where ours
# lies between two numbers of its type, it may be either.
RECIPROCAL = 2.0**-22
KL_BOUND = 1e-4


@dataclass(frozen=True)
class Export:
    format: str
    scheme: str
    clients: tuple[str, ...]

    @property
    def name(self) -> str:
        return f"{self.format} {self.scheme}"

    @property
    def input_is_quantized(self) -> bool:
        return self.scheme.endswith("A8") or self.scheme == "FP8_DYNAMIC"

    def options(self, group: int) -> list[str]:
        """What `export` is given, and `compile` for the same weights."""
        if self.format == "gguf":
            return [f"--scheme={self.scheme}", "--activation-basis=plain", "--head=Q8_0"]
        chosen = [f"--scheme={self.scheme}", "--activation-basis=plain", f"--method={'zeropoint' if self.scheme.endswith('_ASYM') else 'absmax'}"]
        if re.match(r"W[2-7]A", self.scheme):
            chosen.append(f"--group-size={group}")
        if "A16" in self.scheme and self.scheme.startswith("W"):
            chosen.append("--scale-type=f16")
        return [*chosen, "--head=float"]


_CT = ("compressed-tensors", "transformers")
_GGUF = ("Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0", "IQ4_NL", "MXFP4A16", "Q2_K", "Q3_K", "Q4_K", "Q5_K", "Q6_K", "IQ4_XS")
EXPORTS = (
    *(Export("compressed-tensors", scheme, _CT) for scheme in ("W4A16", "W3A16", "W4A16_ASYM", "W8A8", "FP8_DYNAMIC", "NVFP4A16", "MXFP4A16")),
    Export("gptq", "W3A16", ("gptqmodel",)),
    *(Export("gptq", scheme, ("gptqmodel", "genai")) for scheme in ("W8A16", "W4A16", "W4A16_ASYM")),
    Export("gptq_v2", "W4A16_ASYM", ("gptqmodel",)),
    Export("awq", "W4A16_ASYM", ("autoawq", "gptqmodel", "genai")),
    *(Export("gguf", scheme, ("llama.cpp", "llama.cpp, floats")) for scheme in _GGUF),
    *(Export("onnx", scheme, ("onnxruntime",)) for scheme in ("W8A16", "W4A16", "W4A16_ASYM", "W8A8")),
    *(Export("linalg", scheme, ("iree",)) for scheme in ("W4A16", "W8A8")),
)  # fmt: skip
# The environments of clients that are not called as theirs.
ENVIRONMENTS = {"transformers": "compressed-tensors", "llama.cpp, floats": "llama.cpp", "onnxruntime": "genai", "auto-round as gptq": "auto-round",
                "auto-round as awq": "auto-round"}  # fmt: skip


@dataclass(frozen=True)
class Import:
    maker: str
    scheme: str
    reader: str = ""  # the client that reads what was made; default: the maker

    @property
    def name(self) -> str:
        return f"{self.maker} {self.scheme}"

    @property
    def client(self) -> str:
        return self.reader or self.maker


IMPORTS = (
    *(Import("compressed-tensors", scheme) for scheme in ("W4A16", "W4A16_ASYM", "NVFP4A16", "MXFP4A16")),
    *(Import("llm-compressor", scheme, "compressed-tensors") for scheme in ("W4A16", "W4A16_ASYM")),
    *(Import("gptqmodel", scheme) for scheme in ("W4A16", "W4A16_ASYM")),
    Import("autoawq", "W4A16_ASYM"),
    Import("auto-round as gptq", "W4A16", "gptqmodel"),
    Import("auto-round as awq", "W4A16_ASYM", "autoawq"),
    *(Import("llama.cpp", kind, "llama.cpp, floats") for kind in ("Q4_K_M", "Q4_0", "Q6_K")),
)  # fmt: skip


def slack_of(name: str) -> dict[str, float]:
    return {"slack": RECIPROCAL} if "NVFP4" in name else {}


@dataclass(frozen=True)
class Row:
    """What was found of one client. `reason`: why there is nothing."""

    name: str
    client: str
    reason: str = ""
    linears: int = 0
    equal: int = 0  # of them
    type: str = ""  # that the client dequantizes to
    largest: float = 0.0  # difference of weights, in units of the largest weight of a linear
    apart: float | None = None  # of logits, relative; None: the client gives weights alone
    alike: int = 0  # greedy steps
    steps: int = 0
    kept: int = 0  # sites of the artifact with the codes of the checkpoint
    sites: int = 0
    kl: float | None = None

    @property
    def rounds(self) -> bool:
        """Are activations rounded to codes? llama.cpp does that beside its own."""
        return self.client == "llama.cpp" or bool(re.search(r"A8$|FP8", self.name))

    @property
    def bound(self) -> float:
        """The largest `apart` that the client's arithmetic explains."""
        return BOUNDS["codes" if self.rounds else self.type]

    @property
    def ok(self) -> bool:
        near = self.apart is None or (self.apart <= self.bound and (self.rounds or self.alike == self.steps))
        return self.equal == self.linears and near and self.kept == self.sites and (self.kl is None or self.kl < KL_BOUND)

    @property
    def weights(self) -> str:
        off = f", off by at most {self.largest:.1e} of the largest" if self.equal < self.linears else ""
        return f"{self.equal} of {self.linears} ({self.type}){off}"

    @property
    def logits(self) -> str:
        if self.apart is None:
            return "weights alone"
        return f"{self.apart:.1e}, bound {self.bound:.0e}; {self.alike} of {self.steps}"


def slug(name: str) -> str:
    """A name as a file's."""
    return re.sub(r"[^A-Za-z0-9_.]+", "-", name)


def easyquant_command(*arguments: object) -> str:
    """What the command prints; Unavailable, with its message, where it refuses."""
    done = subprocess.run([sys.executable, "-m", "easyquant", *map(str, arguments)], capture_output=True, text=True)
    if done.returncode != 0:
        raise Unavailable(" ".join(done.stderr.split())[-400:])
    return done.stdout


def run_tool(name: str, *arguments: object, read: bytes = b"") -> bytes:
    """What one of the compiler's tools prints."""
    done = subprocess.run([find_tool(name), *map(str, arguments)], input=read, capture_output=True)
    if done.returncode != 0:
        raise Unavailable(f"{name}: {' '.join(done.stderr.decode(errors='replace').split())[-400:]}")
    return done.stdout


def group_of(model: Path) -> int:
    """The largest power of two up to 128 that divides the columns of all linears."""
    config = json.loads((model / "config.json").read_text())
    group = 128
    while config["hidden_size"] % group or config["intermediate_size"] % group:
        group //= 2
    return group


def distance(ours: np.ndarray, theirs: np.ndarray) -> float:
    return float(np.linalg.norm(ours.astype(np.float64) - theirs) / np.linalg.norm(ours.astype(np.float64)))


def divergence(reference: np.ndarray, other: np.ndarray) -> float:
    """The mean of KL(reference ‖ other) over rows of logits."""

    def log_softmax(logits: np.ndarray) -> np.ndarray:
        shifted = logits.astype(np.float64) - logits.max(axis=1, keepdims=True)
        return shifted - np.log(np.exp(shifted).sum(axis=1, keepdims=True))

    p, q = log_softmax(reference), log_softmax(other)
    return float((np.exp(p) * (p - q)).sum(axis=1).mean())


class Bench:
    def __init__(self, args: argparse.Namespace, scratch: Path):
        self.args, self.scratch = args, scratch
        self.environments = Environments(cache_folder(args.cache), args.torch)
        self.group = group_of(args.model)
        self.tokenizer = load_tokenizer(args.model)
        self.prompt = self.tokenizer.encode(PROMPT)
        self.found: list[Row] = []  # of the row at work
        self.versions: set[str] = set()

    def compile(self, name: str, model: Path, *options: str) -> Path:
        easyquant_command("compile", model, "-o", self.scratch / name, "--kv-cache=f32", *options)
        return self.scratch / name

    def worker(self, client: str) -> Worker:
        return self.environments.worker(ENVIRONMENTS.get(client, client))

    def weights_of(self, path: Path, head: bool) -> Path:
        """A file of the weights of quantized linears, as the artifact multiplies with them."""
        artifact = Artifact.open(path)
        sites = [site["name"] for site in artifact.manifest["sites"] if site["weight"] and (head or site["name"] != "lm_head")]
        save_file({name: np.ascontiguousarray(read_site(artifact, name)) for name in sites}, self.scratch / "ours.safetensors")
        return self.scratch / "ours.safetensors"

    def client_logits(self, client: str, sequences: list[list[int]]) -> np.ndarray:
        ask(self.worker(client), "logits", sequences=sequences, out=str(self.scratch / "logits.npy"))
        return np.load(self.scratch / "logits.npy")

    def attempt(self, name: str, client: str, work: Callable[[], None]) -> None:
        try:
            work()
        except Unavailable as error:
            print(f"{name}, {client}: {error}", file=sys.stderr)
            self.found.append(Row(name, client, reason=str(error)))

    def rows(self, name: str, client: str, work: Callable[[], None]) -> list[Row]:
        """What was found of one row of a table, now or by an earlier run."""
        kept = self.args.output / f"{slug(name)}.json"
        if not kept.exists():
            if not re.search(self.args.only, name):
                return [Row(name, client, reason="not asked for by --only")]
            print(name, file=sys.stderr)
            self.found = []
            self.environments.used.clear()
            self.attempt(name, client, work)  # what goes wrong before there is a client is all of theirs
            numbers = {f"EasyQuant {version()}"}
            for one in set(self.environments.used):
                with contextlib.suppress(Unavailable):
                    numbers |= {f"{package} {number}" for package, number in self.environments.versions(one).items()}
            kept.write_text(json.dumps({"versions": sorted(numbers), "date": str(date.today()), "rows": [asdict(row) for row in self.found]}, indent=1))
            for path in self.scratch.iterdir():
                shutil.rmtree(path) if path.is_dir() else path.unlink()
        record = json.loads(kept.read_text())
        self.versions |= set(record["versions"])
        return [Row(**row) for row in record["rows"]]

    # ------------------------------------------------------------------------------------------------------------- out

    def export(self, row: Export) -> None:
        options = row.options(self.group)
        folder = self.scratch / "folder"
        artifact = kept = self.compile("artifact", self.args.model, *options)
        if row.format == "linalg":
            self.lower(folder, options)
        else:
            easyquant_command("export", self.args.model, "--format", row.format, "-o", folder, *options)
            if row.format != "onnx":
                kept = self.compile("kept", folder / "model.gguf" if row.format == "gguf" else folder)
        ours = self.weights_of(artifact, head=row.format == "gguf")
        with easyquant.Model(kept) as model:
            tokens = self.prompt + model.generate(self.prompt, max_tokens=STEPS, temperature=0).tokens
            expected = model.logits(tokens)
        for client in row.clients:
            self.attempt(row.name, client, lambda: self.compare(row, client, folder, ours, tokens, expected))

    def lower(self, folder: Path, options: list[str]) -> None:
        """What docs/guide/linalg.md says: the pipeline of `compile`, up to linears that share an input, then upstream ops."""
        folder.mkdir()
        command = ["easyquant-compile", self.args.model, "-o", folder / "unused", *options, "--dump-pipeline"]
        dumped = run_tool(*command).decode().partition("--pass-pipeline='")[2]
        needed = "equant-fuse-shared-input)"
        pipeline = f"{dumped[: dumped.index(needed)]}{needed},easyquant-linalg{{output={folder} weights=iree}})"
        imported = run_tool("easyquant-translate", "--import-hf", self.args.model)
        run_tool("easyquant-opt", f"--pass-pipeline={pipeline}", "--allow-unregistered-dialect", "--mlir-print-op-generic", "-o", folder / "model.mlir", read=imported)

    def compare(self, row: Export, client: str, folder: Path, ours: Path, tokens: list[int], expected: np.ndarray) -> None:
        worker = self.worker(client)
        ask(worker, "load", library=client, folder=str(folder))
        found = ask(worker, "weights", ours=str(ours), **slack_of(row.name))
        # The library of compressed-tensors gives weights; what its schemes do to activations is transformers' part.
        if client == "compressed-tensors" and row.input_is_quantized:
            self.found.append(Row(row.name, client, **found))
            return
        logits = self.client_logits(client, [tokens])
        steps = slice(len(self.prompt) - 1, -1)
        alike = int((expected[steps].argmax(axis=1) == logits[steps].argmax(axis=1)).sum())
        self.found.append(Row(row.name, client, apart=distance(expected, logits), alike=alike, steps=len(tokens) - len(self.prompt), **found))

    # -------------------------------------------------------------------------------------------------------------- in

    def take(self, row: Import) -> None:
        folder = self.args.output / slug(row.name)
        windows = Corpus.read(self.args.text, self.tokenizer, None).windows(WINDOW, WINDOWS + SAMPLES).tolist()
        windows, samples = windows[:WINDOWS], windows[WINDOWS:]
        is_gguf = row.maker == "llama.cpp"
        if not folder.exists():
            model = self.args.model.absolute()
            if is_gguf:  # its quantizer reads files of floats, with vocabularies
                easyquant_command("export", model, "--format=gguf", "--scheme=none", "-o", self.scratch / "floats")
                model = self.scratch / "floats" / "model.gguf"
            ask(self.worker(row.maker), "make", library=row.maker, model=str(model), out=str(folder.absolute()), scheme=row.scheme, group=self.group,
                windows=samples)  # fmt: skip
            self.environments.stop(ENVIRONMENTS.get(row.maker, row.maker))  # quantizers keep memory
        worker = self.worker(row.client)
        ask(worker, "load", library=row.client, folder=str(folder.absolute()))
        artifact = self.compile("imported", folder / "model.gguf" if is_gguf else folder)
        sites = [site for site in Artifact.open(artifact).manifest["sites"] if site["weight"] and (is_gguf or site["name"] != "lm_head")]
        kept = sum(bool(site.get("kept")) for site in sites)
        found = ask(worker, "weights", ours=str(self.weights_of(artifact, head=is_gguf)), **slack_of(row.name))
        with easyquant.Model(artifact) as model:
            logits = np.concatenate([model.logits(window) for window in windows])
        lost = divergence(self.client_logits(row.client, windows), logits)
        self.found.append(Row(f"in {row.name}", row.client, kept=kept, sites=len(sites), kl=lost, **found))

    # ------------------------------------------------------------------------------------------------------------ page

    def page(self, out: list[Row], back: list[Row]) -> str:
        args = self.args
        command = f"benchmarks/interop.py {args.model.name} --text {args.text.name} -o FOLDER"
        mark = {True: "yes", False: "**no**"}
        reasons: dict[str, list[str]] = {}
        for row in (*out, *back):
            if row.reason:
                reasons.setdefault(row.reason, []).append(f"{row.name} ({row.client})")
        lines = [
            "# Interoperability", "", "Printed by", "", f"    {command}", "",
            f"on {date.today()} ({cpu_name()}, {os.cpu_count()} CPUs). {', '.join(sorted(self.versions))}.", "The script says how each figure is made.", "",
            "## Out", "",
            "| format, scheme | client | linears equal to ours, rounded once to its type | logits, ‖difference‖ / ‖logits‖; greedy steps alike | holds |",
            "|---|---|---|---|---|",
            *(f"| {row.name} | {row.client} | {row.weights} | {row.logits} | {mark[row.ok]} |" for row in out if not row.reason),
            "", "## In", "", "| made by | scheme | read by | linears equal to what it dequantizes | sites kept | KL divergence from its logits | holds |",
            "|---|---|---|---|---|---|---|",
            *(f"| {' | '.join(row.name.removeprefix('in ').rsplit(' ', 1))} | {row.client} | {row.weights} | {row.kept} of {row.sites} | {row.kl:.1e} | "
              f"{mark[row.ok]} |" for row in back if not row.reason),
            "", "## What was not run", "",
            *(f"- {', '.join(names)}: {reason}" for reason, names in reasons.items()), "",
        ]  # fmt: skip
        return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path, metavar="MODEL")
    parser.add_argument("--text", type=Path, required=True, help="text that KL divergences are taken on")
    parser.add_argument("-o", "--output", type=Path, required=True, metavar="FOLDER", help="keeps the checkpoints that libraries made")
    parser.add_argument("--cache", type=Path, help="folder of the environments (default: below the user's cache)")
    parser.add_argument("--torch", type=Path, metavar="PYTHON", help="interpreter of an environment that has torch, such as its build for CPUs "
                        "(default: one is made from PyPI, with packages of CUDA: 6 GB)")  # fmt: skip
    parser.add_argument("--only", default="", metavar="REGEX", help="make only rows whose name, such as 'gptq W4A16' or 'in gptqmodel W4A16', matches")
    parser.add_argument("--page", type=Path, help="where the page is written (default: FOLDER/interop.md)")
    args = parser.parse_args()
    if not (args.model / "config.json").is_file():
        fail(f"{args.model}: expected a Hugging Face folder")
    args.output.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=args.output, prefix=".scratch-") as scratch:
        bench = Bench(args, Path(scratch))
        out = [row for one in EXPORTS for row in bench.rows(one.name, ", ".join(one.clients), lambda: bench.export(one))]
        back = [row for one in IMPORTS for row in bench.rows(f"in {one.name}", one.client, lambda: bench.take(one))]
        page = bench.page(out, back)
        bench.environments.close()
    (args.page or args.output / "interop.md").write_text(page)
    print(page)
    sys.exit(0 if all(row.ok or row.reason for row in (*out, *back)) else 1)


if __name__ == "__main__":
    main()
