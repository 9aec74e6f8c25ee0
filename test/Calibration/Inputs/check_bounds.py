"""Reads what equant-measure-bounds wrote and says of each kind of pair how many there are and which exceed their bounds."""

import json
import sys
from pathlib import Path

# What rounding floats may add to an error in exact arithmetic.
SLACK = 1 + 1e-4

report = json.loads(Path(sys.argv[1]).read_text(), parse_constant=lambda name: sys.exit(f"{name} is no JSON"))
for kind in ("weights", "outputs", "layers", "keys_values", "sampling"):
    exceeding = [entry for entry in report[kind] if not 0 < entry["measured"] <= entry["bound"] * SLACK]
    print(f"{kind}: {len(report[kind])} pairs, {'all within their bounds' if not exceeding else exceeding}")
print(f"smoothing: {len(report['smoothing'])} activations")
fewer = all(site["fused"] < site["separate"] for site in report["bytes_per_token"])
print(f"bytes_per_token: {len(report['bytes_per_token'])} sites, {'fewer' if fewer else 'not fewer'} fused")
