# Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What the phases of prefill and decode cost: `easyquant bench --breakdown`."""

import re
import time

import numpy as np

from easyquant.runtime.artifact import open_session
from easyquant.runtime.extension import runtime
from easyquant.support.errors import UserError
from easyquant.terminal import console

# In the order in which they are shown. Loading counts the weights; comm is between several devices.
PHASES = ("load", "quantize", "gemm", "attention", "comm", "sync", "other")
PARTS = ("prefill", "decode")
FIGURES = ("launches", "bytes", "instructions", "seconds")


def subtract(after: dict, before: dict) -> dict:
    return after | {figure: after[figure] - before[figure] for figure in FIGURES}


def difference(after: dict, before: dict) -> dict:
    return {phase: subtract(after[phase], before[phase]) for phase in PHASES}


def site_difference(after: list[dict], before: list[dict]) -> list[dict]:
    """The costs between two lists that a session gave one after the other. Sites keep their places."""
    return [subtract(*pair) for pair in zip(after, before, strict=True)]


def timed(action) -> float:
    begin = time.perf_counter()
    action()
    return time.perf_counter() - begin


def breakdown(model, prefill: int, decode: int, threads: int = 0) -> dict:
    """{"prefill": {phase: {launches, bytes, instructions, seconds}}, "decode": the same}, of one run; loading the model is in the prefill's.

    On a CPU beside it "sites": {"prefill": [{site, phase and the same figures}], "decode": …}, and "wall_seconds": {"prefill": …, "decode": …},
    what the same steps took as their caller sees them.
    """
    random = np.random.default_rng(0)
    prompt = random.integers(0, model.vocab_size, prefill, dtype=np.int32)
    follow = [int(token) for token in random.integers(0, model.vocab_size, decode)]
    try:
        session = open_session(model, context=prefill + decode, threads=threads, measure=True)
        steps = {"prefill": lambda: session.prefill(prompt), "decode": lambda: [session.decode(token) for token in follow]}
        if model.device == "cpu":
            return cpu_breakdown(session, steps)
        steps["prefill"]()
        read = session.breakdown()
        steps["decode"]()
        return {"prefill": read, "decode": difference(session.breakdown(), read)}
    except runtime().Error as error:
        raise UserError(str(error)) from None


def cpu_breakdown(session, steps: dict) -> dict:
    # The first steps map the weights page by page and start the threads.
    for part in PARTS:
        steps[part]()
    session.reset()
    result = {"wall_seconds": {}, "sites": {}}
    for part in PARTS:
        phases, sites = session.breakdown(), session.breakdown_sites()
        result["wall_seconds"][part] = timed(steps[part])
        result[part] = difference(session.breakdown(), phases)
        result["sites"][part] = site_difference(session.breakdown_sites(), sites)
    return result


# ------------------------------------------------------------------------------------------------------------------ print


def print_part(title: str, costs: dict, is_timed: bool, wall: float | None) -> None:
    """`wall`: seconds of the whole, of which the phases are parts."""
    figure, unit = ("seconds", "ms") if is_timed else ("instructions", "warp instructions")
    inside = sum(cost[figure] for cost in costs.values())
    total = inside if wall is None else wall
    has_bytes = any(cost["bytes"] for cost in costs.values())

    def show(value: float) -> str:
        return f"{1000 * value:.3f}" if is_timed else f"{value:,}"

    def share(value: float) -> str:
        return f"{value / total:.1%}" if total else ""

    table = console.table(title, show_footer=True)
    table.add_column("phase", "total")
    table.add_column("launches", f"{sum(cost['launches'] for cost in costs.values()):,}", justify="right")
    table.add_column(unit, show(total), justify="right")
    table.add_column("share", justify="right")
    if has_bytes:
        table.add_column("bytes", console.human_bytes(sum(cost["bytes"] for cost in costs.values())), justify="right")
    for phase in PHASES:
        cost = costs[phase]
        row = [phase, f"{cost['launches']:,}", show(cost[figure]), share(cost[figure])]
        table.add_row(*row, *([console.human_bytes(cost["bytes"])] if has_bytes else []))
    if wall is not None:
        table.add_row("outside kernels", "", show(wall - inside), share(wall - inside))
    console.out.print(table)


def over_layers(sites: list[dict]) -> dict:
    """Seconds by (site, phase), the sites of all layers as one: model.layers.*.mlp.down_proj."""
    seconds = {}
    for cost in sites:
        key = re.sub(r"(?<![^.])\d+(?=\.)", "*", cost["site"]), cost["phase"]
        seconds[key] = seconds.get(key, 0) + cost["seconds"]
    return seconds


def print_sites(sites: dict, walls: dict) -> None:
    costs = {part: over_layers(sites[part]) for part in PARTS}
    table = console.table("sites, over all layers")
    table.add_column("site", overflow="fold")
    table.add_column("phase")
    for part in PARTS:
        table.add_column(f"{part} ms", justify="right")
        table.add_column("share", justify="right")
    for site in sorted(costs["decode"], key=lambda site: -costs["decode"][site]):
        row = []
        for part in PARTS:
            value = costs[part][site]
            row += [f"{1000 * value:.3f}", f"{value / walls[part]:.1%}"]
        table.add_row(*site, *row)
    console.out.print(table)


def print_breakdown(result: dict, prefill: int, decode: int) -> None:
    # A simulator counts instructions, CPUs and GPUs take time; none does both.
    is_timed = any(cost["seconds"] > 0 for part in PARTS for cost in result[part].values())
    walls = result.get("wall_seconds", {})
    for part, tokens in zip(PARTS, (prefill, decode), strict=True):
        print_part(f"{part} of {tokens}", result[part], is_timed, walls.get(part))
    if "sites" in result:
        print_sites(result["sites"], walls)
    console.out.print(
        "quantize: kernels that make codes, the norm or activation in them included; attention makes the codes of its own cache, which count as attention.",
        style="dim",
        soft_wrap=True,
    )
