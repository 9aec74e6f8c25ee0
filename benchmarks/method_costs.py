#!/usr/bin/env python3
# Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What quantization methods cost, in multiples of one float forward over the calibration tokens.

    .venv/bin/python benchmarks/method_costs.py MODEL --calib FILE [--methods smoothquant,gptq,awq] [--nsamples 64] [--seqlen 1024]

F is the time in which the calibration engine takes all tokens through the float model, measured in the same run with an
observer at a single site. A method's cost is what compiling with it takes longer than compiling with round to nearest,
its calibration included, once by the clock and once by the processor time of the program, which what else runs on the
machine changes less. Peak memory is that of the process, mapped pages of the model's file included; "anonymous" is what the
system may not drop. Give the machine nothing else to do.
"""

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.table import Table

from easyquant.compiler.calibration import CalibrationText, tokens_of
from easyquant.compiler.plans import flops_per_second
from easyquant.support.memory import peak_rss_bytes
from easyquant.support.tools import find_tool

SCHEMES = {"smoothquant": "W8A8", "gptq": "W4A16", "awq": "W4A16", "awq+gptq": "W4A16", "signround": "W4A16_ASYM", "awq+signround": "W4A16_ASYM",
           "zeroquant+lkd": "W4A8", "absmax": "W4A16"}
OBSERVED = "model.layers.0.self_attn.q_proj"


def processor_seconds():
    """Processor time of the children that have ended."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def run(*arguments):
    """Seconds by the clock and of the processor, peak resident and anonymous bytes of easyquant-compile."""
    begin, used, peak, anonymous = time.monotonic(), processor_seconds(), 0, 0
    process = subprocess.Popen([find_tool("easyquant-compile"), *map(str, arguments)], stderr=subprocess.DEVNULL)
    while process.poll() is None:
        try:
            peak = max(peak, peak_rss_bytes(process.pid))
            for line in Path(f"/proc/{process.pid}/status").read_text().splitlines():
                if line.startswith("RssAnon:"):
                    anonymous = max(anonymous, int(line.split()[1]) * 1024)
        except OSError:
            pass
        time.sleep(0.05)
    if process.returncode != 0:
        sys.exit(f"error: easyquant-compile {' '.join(map(str, arguments))} ended with status {process.returncode}")
    return {"seconds": time.monotonic() - begin, "processor_seconds": processor_seconds() - used, "peak_rss": peak, "peak_anonymous": anonymous}


def layer_flops(model, tokens):
    """Floating-point operations of the linears of all layers."""
    plans = json.loads(subprocess.run([find_tool("easyquant-compile"), model, "--scheme=none", "--dry-run", "--progress=none"],
                                      capture_output=True, text=True, check=True).stdout)
    return 2 * tokens * sum(site["out_features"] * site["in_features"] for site in plans["sites"] if site["name"] != "lm_head")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path)
    parser.add_argument("--calib", type=Path, required=True)
    parser.add_argument("--methods", default="smoothquant,gptq,awq")
    parser.add_argument("--nsamples", type=int, default=64)
    parser.add_argument("--seqlen", type=int, default=1024)
    parser.add_argument("--threads", type=int, default=0)
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    calibration = CalibrationText(args.calib, args.nsamples, args.seqlen)
    with tokens_of(args.model, calibration) as tokens, tempfile.TemporaryDirectory(prefix="easyquant-costs-") as folder:
        folder = Path(folder)
        threads = f"--threads={args.threads}"
        forward = run(args.model, threads, f'--pipeline=equant-insert-observers{{statistics=absmax sites={OBSERVED}}},'
                                  f'equant-calibrate{{tokens="{tokens}" work="{folder}/forward"}}')
        rates = [flops_per_second() for _ in range(5)]
        nearest = run(args.model, "-o", folder / "absmax", "--scheme=W4A16", "--isa=avx2", threads)
        rows = [{"method": "one float forward", **forward, "over_forward": 1.0, "over_forward_processor": 1.0}, {"method": "absmax W4A16 (whole compile)", **nearest}]
        for method in args.methods.split(","):
            cost = run(args.model, "-o", folder / method, f"--scheme={SCHEMES[method]}", f"--method={method}", f"--tokens={tokens}", "--isa=avx2", threads)
            over = {name: (cost[key] - nearest[key]) / forward[key]
                    for name, key in (("over_forward", "seconds"), ("over_forward_processor", "processor_seconds"))}
            rows.append({"method": f"{method} {SCHEMES[method]}", **cost, **over})
            print(json.dumps(rows[-1]), file=sys.stderr)
    table = Table(title=f"{args.model.name}, {args.nsamples} x {args.seqlen} tokens")
    for name in ("method", "seconds", "F", "processor s", "F of it", "peak RSS MB", "anonymous MB"):
        table.add_column(name, justify="left" if name == "method" else "right")
    for row in rows:
        times = [f"{row[name]:.2f}" if name in row else "" for name in ("over_forward", "over_forward_processor")]
        table.add_row(row["method"], f"{row['seconds']:.1f}", times[0], f"{row['processor_seconds']:.1f}", times[1], f"{row['peak_rss'] / 1e6:.0f}", f"{row['peak_anonymous'] / 1e6:.0f}")
    Console(width=130).print(table)
    rate = layer_flops(args.model, args.nsamples * args.seqlen) / forward["seconds"]
    print(f"float forward: {rate / 1e9:.0f} GFLOP/s in the layers' linears alone; OpenBLAS sgemm in the same run {np.median(rates) / 1e9:.0f}; ratio {rate / np.median(rates):.2f}")
    if args.json:
        args.json.write_text(json.dumps({"model": args.model.name, "nsamples": args.nsamples, "seqlen": args.seqlen, "rows": rows}, indent=2) + "\n")


if __name__ == "__main__":
    main()
