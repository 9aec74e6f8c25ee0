# Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What the phases of prefill and decode cost: `easyquant bench --breakdown`."""

import numpy as np

from easyquant import console
from easyquant.artifact import open_session, runtime
from easyquant.errors import UserError

# In the order in which they are shown. Loading counts the weights; comm is between several devices.
PHASES = ("load", "quantize", "gemm", "attention", "comm", "sync", "other")


def difference(after: dict, before: dict) -> dict:
    return {phase: {figure: after[phase][figure] - before[phase][figure] for figure in after[phase]} for phase in PHASES}


def breakdown(model, prefill: int, decode: int) -> dict:
    """{"prefill": {phase: {launches, bytes, instructions, seconds}}, "decode": the same}, of one run; loading the model is in the prefill's."""
    try:
        session = open_session(model, context=prefill + decode, measure=True)
        random = np.random.default_rng(0)
        session.prefill(random.integers(0, model.vocab_size, prefill, dtype=np.int32))
        read = session.breakdown()
        for token in random.integers(0, model.vocab_size, decode):
            session.decode(int(token))
        return {"prefill": read, "decode": difference(session.breakdown(), read)}
    except runtime().Error as error:
        raise UserError(str(error)) from None


def print_breakdown(result: dict, prefill: int, decode: int) -> None:
    # A simulator counts instructions, a GPU takes time; neither does both.
    timed = any(cost["seconds"] > 0 for part in result.values() for cost in part.values())
    figure, unit = ("seconds", "ms") if timed else ("instructions", "warp instructions")
    for part, tokens in (("prefill", prefill), ("decode", decode)):
        costs = result[part]
        total = sum(cost[figure] for cost in costs.values())
        shown = f"{1000 * total:.3f}" if timed else f"{total:,}"
        table = console.table(f"{part} of {tokens}", show_footer=True)
        table.add_column("phase", "total")
        table.add_column("launches", f"{sum(cost['launches'] for cost in costs.values()):,}", justify="right")
        table.add_column(unit, shown, justify="right")
        table.add_column("share", justify="right")
        table.add_column("bytes", console.human_bytes(sum(cost["bytes"] for cost in costs.values())), justify="right")
        for phase in PHASES:
            cost = costs[phase]
            value = f"{1000 * cost[figure]:.3f}" if timed else f"{cost[figure]:,}"
            share = f"{cost[figure] / total:.1%}" if total else ""
            table.add_row(phase, f"{cost['launches']:,}", value, share, console.human_bytes(cost["bytes"]))
        console.out.print(table)
