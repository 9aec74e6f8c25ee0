#!/usr/bin/env python3
# Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""EasyQuant beside llama.cpp on one model, in one run.

    .venv/bin/python benchmarks/peers_llama_cpp.py MODEL [--threads 2] [--batch 1,4,16] [--types Q4_K_M,Q8_0] [--artifact OUT ...] [--json FILE]

MODEL is a Hugging Face folder of the llama architecture, or a GGUF file. The script

  * creates an environment of the peer's own under the cache folder (llama-cpp-python from PyPI, built for this CPU; some
    minutes the first time) or takes the one whose interpreter --peer-python names;
  * has llama.cpp quantize the model to Q4_0 and Q8_0 with an int8 (Q8_0) embedding and head, and easyquant compile it as W8A8
    and W4A8, whose embedding and head are int8 as well;
  * measures prefill of 512 tokens from an empty context and decode of the 128 that follow, all variants in turn, and repeats;
    llama.cpp with flash attention on and off. A round gives each variant one measurement, so drift of the machine meets all;
  * prints medians with their range, and for each EasyQuant variant the median over rounds of its speed over the peer's best
    variant in the same round, and over the best of each of the peer's types.

With --same-files, for which MODEL is a GGUF file with a tokenizer, both sides run the peer's files (Q4_0, Q4_K_M and Q8_0), or
MODEL itself where it is quantized: easyquant compiles them as they are, with int8 activations in groups of 32, as the peer has
(`--scheme keepA8`).

--types names other types of the peer, and with --artifact the script measures these artifacts of MODEL and compiles none.

With --batch the same for so many sequences at a time, each with a prompt of its own: tokens/s are those of all together, and
each variant is also compared with itself on one sequence. Steps of the peer are calls of its batch interface.

Ids are random and the same for all. What stands between two measurements is a pause, so that one library's spinning threads
do not take the cores from the next.
"""

import argparse
import itertools
import json
import platform
import random
import statistics
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import gguf
from peer import Worker, cache_folder, fail, peer_environment

PEER_TYPES = ("Q4_0", "Q8_0")
SAME_FILES = ("Q4_0", "Q4_K_M", "Q8_0")
ITSELF = "file"  # which MODEL is
OUR_VARIANTS = {"W8A8": ("--scheme=W8A8", "--method=absmax"), "W4A8": ("--scheme=W4A8", "--group-size=32")}
PHASES = ("prefill", "decode")
PAUSE_S = 0.4  # libomp's threads spin for 0.2 s after their last work


def cpu_model():
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.split(":", 1)[1].strip()
    return platform.machine()


@dataclass(frozen=True)
class Variant:
    """What is measured under a name, by which its worker has it."""

    worker: Worker
    kind: str  # type or scheme
    sequences: int
    is_peer: bool


def compile_ours(model, name, options, folder):
    """Always anew: an artifact of an older compiler must not be measured as today's."""
    out = folder / f"easyquant-{name.replace(' ', '-')}"
    command = [sys.executable, "-m", "easyquant", "compile", model, "-o", out, "--force", *options]
    if subprocess.run([str(part) for part in command], stdout=sys.stderr).returncode != 0:
        fail(f"easyquant could not compile {model} as {name}; its message is above")
    return out


def measure_all(variants, prefill, decode, rounds, vocab_size):
    """variants: {name: Variant}. {name: [(prefill tokens/s, decode tokens/s) per round]}; one more round warms up."""
    numbers = random.Random(0)
    most = max(variant.sequences for variant in variants.values())
    prompts = [[numbers.randrange(vocab_size) for _ in range(prefill)] for _ in range(most)]
    steps = [[numbers.randrange(vocab_size) for _ in range(most)] for _ in range(decode)]
    results = {name: [] for name in variants}
    for turn in range(rounds + 1):
        order = list(variants)
        if turn % 2:
            order.reverse()  # whatever follows whom, it does so in half of the rounds only
        for name in order:
            count = variants[name].sequences
            time.sleep(PAUSE_S)
            answer = variants[name].worker.ask("measure", id=name, prompts=prompts[:count], steps=[tokens[:count] for tokens in steps])
            if turn:
                results[name].append((count * prefill / answer["prefill_s"], count * decode / answer["decode_s"]))
        print(f"round {turn} of {rounds}{'' if turn else ' (warm-up)'}", file=sys.stderr)
    return results


def references(name, variants):
    """{what it is: names of variants} that one of EasyQuant's is compared with."""
    ours = variants[name]
    peers = {other: variant for other, variant in variants.items() if variant.is_peer and variant.sequences == ours.sequences}
    found = {"the best peer": list(peers)}
    kinds = dict.fromkeys(peer.kind for peer in peers.values())
    found |= {f"llama.cpp {kind}": [other for other, variant in peers.items() if variant.kind == kind] for kind in kinds}
    if ours.sequences > 1:
        found["one sequence"] = [other for other, variant in variants.items() if (variant.kind, variant.sequences) == (ours.kind, 1)]
    return {what: names for what, names in found.items() if names}


def summarize(results, variants):
    """Medians with ranges, and ratios to the best of other variants, round by round."""
    summary = {"variants": {}, "ratios": {}}
    for name, rounds in results.items():
        summary["variants"][name] = {}
        for index, phase in enumerate(PHASES):
            values = [r[index] for r in rounds]
            summary["variants"][name][f"{phase}_tokens_per_s"] = statistics.median(values)
            summary["variants"][name][f"{phase}_tokens_per_s_range"] = [min(values), max(values)]
        if variants[name].is_peer:
            continue
        summary["ratios"][name] = {}
        for what, others in references(name, variants).items():
            ratios = summary["ratios"][name][what] = {}
            for index, phase in enumerate(PHASES):
                pairs = [own[index] / max(results[other][turn][index] for other in others) for turn, own in enumerate(rounds)]
                ratios |= {phase: statistics.median(pairs), f"{phase}_range": [min(pairs), max(pairs)]}
    return summary


def print_summary(report):
    print(f"{report['cpu']}, {report['threads']} threads; prefill of {report['prefill']}, decode of {report['decode']} after it; "
          f"medians of {report['rounds']} rounds (smallest to largest), tokens/s")
    print(f"llama-cpp-python {report['peer']['version']}: {report['peer']['features']}")
    if "easyquant" in report:
        print(f"EasyQuant {report['easyquant']['version']}, {report['easyquant']['isa']}")
    width = max(len(name) for name in report["variants"])
    if report["sequences"] != [1]:
        print("of several sequences: all together")
    for name, values in report["variants"].items():
        cells = []
        for phase in PHASES:
            low, high = values[f"{phase}_tokens_per_s_range"]
            cells.append(f"{phase} {values[f'{phase}_tokens_per_s']:7.1f} ({low:.1f} to {high:.1f})")
        print(f"  {name:<{width}}  " + "   ".join(cells))
    for name, ratios in report["ratios"].items():
        for what, values in ratios.items():
            cells = (f"{phase} {values[phase]:.2f} ({values[phase + '_range'][0]:.2f} to {values[phase + '_range'][1]:.2f})" for phase in PHASES)
            print(f"  {name} over {what} of each round: " + ", ".join(cells))


def read_counts(text):
    counts = text.split(",")
    if not all(count.strip().isdecimal() and int(count) > 0 for count in counts):
        fail(f"--batch {text}: expected numbers of sequences joined by commas, such as 1,4,16")
    return sorted({int(count) for count in counts})


def artifacts_of(paths):
    """{name: artifact}; each is told by the name of its folder."""
    found = {path.name: path for path in paths}
    if len(found) < len(paths):
        fail(f"--artifact: {', '.join(map(str, paths))}: expected folders of different names, by which figures are told apart")
    for path in paths:
        if not (path / "manifest.json").is_file():
            fail(f"--artifact {path}: there is no manifest.json in it; expected what `easyquant compile` writes")
    return found


def is_quantized(model):
    """Are linears of layers codes? `easyquant export --format gguf --scheme none` writes the head alone as codes."""
    layers = [tensor for tensor in gguf.GGUFReader(model).tensors if tensor.name.startswith("blk.")] if model.suffix == ".gguf" else []
    return any(tensor.tensor_type.name not in ("F32", "F16", "BF16") for tensor in layers)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path, help="a Hugging Face folder of the llama architecture, or a GGUF file")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--prefill", type=int, default=512)
    parser.add_argument("--decode", type=int, default=128)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--batch", default="1", metavar="N,...", help="sequences at a time: 1,4,16")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures here as well")
    parser.add_argument("--peer-only", action="store_true", help="measure llama.cpp alone")
    parser.add_argument("--types", metavar="TYPE,...", help=f"types of the peer ({','.join(PEER_TYPES)}, with --same-files {','.join(SAME_FILES)})")
    ours = parser.add_mutually_exclusive_group()
    ours.add_argument("--artifact", type=Path, action="append", default=[], metavar="FOLDER", help="an artifact of MODEL to measure; repeatable")
    ours.add_argument("--same-files", action="store_true", help="compile the peer's files as they are")
    parser.add_argument("--isa", choices=("avx2", "avx512vnni"),
                        help="instruction set of EasyQuant (the best of this CPU); beside a peer that is built for the same, see --peer-python")
    parser.add_argument("--peer-python", type=Path, help="interpreter of an environment that has llama-cpp-python and gguf")
    parser.add_argument("--cache", type=Path, help="where the peer's environment and all models are kept")
    args = parser.parse_args()
    if not args.model.exists():
        fail(f"{args.model}: there is no such file or folder")
    if min(args.threads, args.prefill, args.decode, args.rounds) < 1:
        fail("--threads, --prefill, --decode and --rounds must be at least 1")
    cache = cache_folder(args.cache)
    loads = {"threads": args.threads, "context": args.prefill + args.decode}
    counts = read_counts(args.batch)
    artifacts = artifacts_of(args.artifact)
    types = args.types.split(",") if args.types else SAME_FILES if args.same_files else PEER_TYPES

    def named(name, count):
        return name if counts == [1] else f"{name}, {count} sequence{'s' if count > 1 else ''}"

    peer = Worker(args.peer_python or peer_environment(cache), "llama_cpp_worker.py")
    variants = {}
    report = {"cpu": cpu_model(), "threads": args.threads, "prefill": args.prefill, "decode": args.decode, "sequences": counts,
              "rounds": args.rounds, "model": args.model.name, "peer": peer.ask("describe"), "bytes": {}}
    models = cache / "models" / args.model.name
    models.mkdir(parents=True, exist_ok=True)
    if args.same_files and is_quantized(args.model):
        files = {ITSELF: args.model}
    else:
        files = {kind: models / f"llama-cpp-{kind}.gguf" for kind in types}
        for kind, out in files.items():
            out.unlink(missing_ok=True)
            peer.ask("make", source=str(args.model.absolute()), out=str(out), type=kind, itself=args.same_files)
    for kind, file in files.items():
        report["bytes"][kind] = file.stat().st_size
        for count, flash in itertools.product(counts, (True, False)):
            name = named(f"llama.cpp {kind}, flash attention {'on' if flash else 'off'}", count)
            loaded = peer.ask("load", id=name, path=str(file.absolute()), flash=flash, sequences=count, **loads)
            variants[name] = Variant(peer, kind, count, is_peer=True)
    if not args.peer_only:
        us = Worker(sys.executable, "easyquant_worker.py")
        report["easyquant"] = us.ask("describe")
        own = {scheme: (args.model, options) for scheme, options in OUR_VARIANTS.items()}
        if args.same_files:
            own = {f"its {kind}": (file, ("--scheme=keepA8",)) for kind, file in files.items()}
        artifacts = artifacts or {kind: compile_ours(model, kind, options, models) for kind, (model, options) in own.items()}
        for kind, artifact in artifacts.items():
            report["bytes"][kind] = sum(file.stat().st_size for file in artifact.glob("weights*.safetensors"))
            for count in counts:
                name = named(f"EasyQuant {kind}", count)
                report["easyquant"] |= us.ask("load", id=name, path=str(artifact), sequences=count, isa=args.isa, **loads)
                variants[name] = Variant(us, kind, count, is_peer=False)
    report |= summarize(measure_all(variants, args.prefill, args.decode, args.rounds, loaded["vocab_size"]), variants)
    for worker in {variant.worker for variant in variants.values()}:
        worker.close()
    print_summary(report)
    if args.json:
        args.json.write_text(json.dumps(report, indent=2) + "\n")


if __name__ == "__main__":
    main()
