#!/usr/bin/env python3
# Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""A searched recipe beside fixed patterns of the same size.

    .venv/bin/python benchmarks/search_patterns.py MODEL --calib FILE --text FILE --work FOLDER [--avg-bits 4,3.5]

Searches for the budgets among 2, 3, 4 and 8 bits in groups of 64 (`easyquant search`, defaults), and makes recipes of the same formats by rules of thumb,
each as large as the budget lets it be: more bits for attention, for the first or the last layers, or 8 bits at both ends. All are compiled
with the same text (16 windows of 512 tokens) and rounded to nearest; `easyquant eval` scores the same windows of the other text against the float model.
Prints mean KL divergences, and by how much each pattern's is larger, with the standard error of the paired difference. Ends with status 1
where a pattern is not worse than what was searched by more than that. FOLDER keeps what was found, and the same command goes on from it.
"""

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path

import yaml
from rich.console import Console
from rich.table import Table

from easyquant.compiler.plans import read_plans
from easyquant.evaluation.comparison import store, stored
from easyquant.evaluation.metrics import paired
from easyquant.evaluation.protocol import version
from easyquant.support.files import sha256

GROUP, WIDTHS = 64, (2, 3, 4, 8)
SEARCHED = "searched"
CALIBRATION = ("--nsamples", "16", "--seqlen", "512")


def easyquant(*arguments):
    subprocess.run([sys.executable, "-m", "easyquant", *map(str, arguments)], stdout=subprocess.DEVNULL, check=True)


class Patterns:
    """Formats of the layers' linears by rules of thumb."""

    def __init__(self, model):
        self.bytes, self.weights, sites = {}, 0, {}
        for width in WIDTHS:
            for site in read_plans(model, [f"--scheme=W{width}A16", f"--group-size={GROUP}"]).sites:
                if site["name"] != "lm_head":
                    self.bytes[site["name"], width] = site["bytes"]
                    sites[site["name"]] = site["out_features"] * site["in_features"]
        self.weights = sum(sites.values())
        self.sites = list(sites)  # in the order of the layers
        self.layers = list(dict.fromkeys(name.split(".")[2] for name in self.sites))

    def of_layers(self, layers):
        return [name for layer in layers for name in self.sites if name.split(".")[2] == layer]

    def filled(self, budget, first, fixed=None):
        """As many bits as the budget has for the sites in this order, the others having fewer: two widths, one of which would be too much for all."""
        widths = dict.fromkeys(self.sites, WIDTHS[0]) | (fixed or {})
        for width in WIDTHS[1:]:
            for name in first:
                grown = widths | {name: width}
                if width > widths[name] and sum(self.bytes[entry] for entry in grown.items()) * 8 <= budget * self.weights:
                    widths = grown
        return widths

    def all(self, budget):
        attention = [name for name in self.sites if ".self_attn." in name]
        ends = dict.fromkeys(self.of_layers([self.layers[0], self.layers[-1]]), 8)
        return {
            "attention first, then MLPs": self.filled(budget, attention + [name for name in self.sites if name not in attention]),
            "8 bits in the first and last layer": self.filled(budget, self.sites, ends),
            "the first layers first": self.filled(budget, self.sites),
            "the last layers first": self.filled(budget, self.of_layers(reversed(self.layers))),
        }


class Judge:
    """Compiles and scores recipes, and keeps what was found in the folder."""

    def __init__(self, args):
        self.args = args
        self.reference = args.work / "float"
        easyquant("compile", args.model, "-o", self.reference, "--scheme", "none", "--force")
        source = json.loads((self.reference / "manifest.json").read_text())["source"]["xxh3_128"]
        self.setting = [source, sha256(args.calib), sha256(args.text), args.context, args.windows, version()]

    def find(self, name, recipe):
        file = self.args.work / f"{name}.json"
        stamp = json.dumps([self.setting, recipe], sort_keys=True)
        if (found := stored(file, stamp)) is not None:
            return found
        print(name, file=sys.stderr)
        args = self.args
        with tempfile.TemporaryDirectory(dir=args.work) as scratch:
            artifact, result, path = (Path(scratch) / part for part in ("artifact", "result.json", "recipe.json"))
            path.write_text(json.dumps(recipe))
            easyquant("compile", args.model, "-o", artifact, "--recipe", path, "--calib", args.calib, *CALIBRATION)
            easyquant("eval", artifact, "--text", args.text, "--context", args.context, "--max-windows", args.windows, "--reference", self.reference,
                      "--json", result)  # fmt: skip
            found = json.loads(result.read_text())
        store(file, stamp, found)
        return found


def recipe_of(widths):
    rules = [{"match": name, "scheme": f"W{width}A16", "group_size": GROUP} for name, width in widths.items()]
    return {"scheme": "W4A16", "group_size": GROUP, "weight_observer": "hessian-diagonal", "sites": rules}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path, metavar="MODEL", help="a Hugging Face folder or a GGUF file, off any grid")
    parser.add_argument("--calib", type=Path, required=True, metavar="FILE", help="calibration text")
    parser.add_argument("--text", type=Path, required=True, metavar="FILE", help="the text to judge on, another one")
    parser.add_argument("--work", type=Path, required=True, metavar="FOLDER", help="where what was found is kept")
    parser.add_argument("--avg-bits", default="4,3.5", metavar="B,…", help="budgets (4,3.5)")
    parser.add_argument("--context", type=int, default=512, metavar="N", help="tokens of a window that is scored (512)")
    parser.add_argument("--windows", type=int, default=12, metavar="N", help="windows that are scored (12)")
    args = parser.parse_args()
    front = args.work / "front"
    easyquant("search", args.model, "--calib", args.calib, "--formats", ",".join(f"W{width}A16" for width in WIDTHS), "--group-sizes", GROUP,
              "--fit", "none", "--avg-bits", args.avg_bits, "--front", front, "--work", args.work / "search")  # fmt: skip
    patterns, judge = Patterns(args.model), Judge(args)
    table = Table(title="Mean KL divergence from the float model, nats; differences from what was searched are paired by window")
    for heading in ("bits a weight", "recipe", "KL", "− searched"):
        table.add_column(heading, justify="left" if heading == "recipe" else "right")
    misses = 0
    for budget in map(float, args.avg_bits.split(",")):
        recipes = {SEARCHED: yaml.safe_load((front / f"recipe-{budget:.12g}.yaml").read_text())}
        recipes |= {name: recipe_of(widths) for name, widths in patterns.all(budget).items()}
        found = {name: judge.find(f"{budget:g} {name}", recipe) for name, recipe in recipes.items()}
        for name, figures in found.items():
            difference, error = paired(figures["windows"]["kl"], found[SEARCHED]["windows"]["kl"])
            misses += name != SEARCHED and difference <= error
            table.add_row(f"{budget:g}", name, f"{figures['kl_mean']:.4f}", "" if name == SEARCHED else f"{difference:+.4f} ± {error:.4f}")
    Console(width=120).print(table)
    print(f"{version()}: {misses} misses")
    sys.exit(1 if misses else 0)


if __name__ == "__main__":
    main()
