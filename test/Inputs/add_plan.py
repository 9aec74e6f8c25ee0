"""Prints a module with a work folder and plans at the sites whose names end as asked."""

import argparse
import re
from pathlib import Path

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("module", type=Path)
parser.add_argument("--work", required=True)
parser.add_argument("--sites", nargs="+", required=True)
parser.add_argument("--methods", nargs="*", default=[])
parser.add_argument("--rule", default="absmax")
parser.add_argument("--weight", default="i4, symmetric, group = 16")
args = parser.parse_args()
methods = ", ".join(f'"{name}"' for name in args.methods)
plan = f"#equant.plan<methods = [{methods}], rule = {args.rule}, weight = <{args.weight}>>"
text = args.module.read_text().replace("module attributes {", f'module attributes {{equant.work = "{args.work}", ', 1)
print(re.sub(r'\{site = "([^"]*)"\}',
             lambda m: f'{{equant.plan = {plan}, site = "{m[1]}"}}' if m[1].endswith(tuple(args.sites)) else m[0], text))
