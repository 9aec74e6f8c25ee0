# Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What a compilation would do: sites, schemes, predicted bytes, memory and time, with nothing run."""

import json
import subprocess
import time
from collections import defaultdict
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

import numpy as np
from rich.table import Table

from easyquant.compiler.calibration import CalibrationText, most_windows
from easyquant.compiler.driver import find_model
from easyquant.compiler.loss_memory import BASE_BYTES, LossMemory
from easyquant.compiler.options import default_of
from easyquant.compiler.recipe import recipe_as_json
from easyquant.runtime.artifact import GPU_SEQUENCE_STATES, SEQUENCE_STATES, cache_bytes
from easyquant.runtime.sites import describe_operand, pattern_of
from easyquant.support.children import ends_with_me
from easyquant.support.errors import UserError
from easyquant.support.memory import available_bytes
from easyquant.support.tools import explain, find_tool, tool_environment
from easyquant.terminal import console

# The passes that read calibration text: multiples of one float forward over its tokens, and what each holds at a time, as
# multiples of the floats of one layer and of the hidden states of all samples.
FORWARDS, LAYER_COPIES, STATE_COPIES = range(3)
COSTS = {"equant-take-windows": (1.0, 1, 1), "equant-calibrate": (1.0, 1, 1), "equant-choose-ranges": (1.0, 1, 1), "equant-gptq": (2.0, 3, 2), "equant-awq": (1.0, 3, 2),
         "equant-lkd": (10.4, 7, 2), "equant-signround": (13.0, 7, 2)}
# AWQ and the choice of ranges take means over so many tokens, those of the first samples.
TOKENS_OF_MEANS = 16384
# AWQ takes candidates for each block through the first tokens of some of the samples besides.
AWQ_CANDIDATES, AWQ_TOKENS = 21, 512
LKD_EPOCHS = 4  # those of the figure above, which benchmarks/method_costs.py measured
# In the metric of the loss these run the model forward, and forward and backward again.
BY_LOSS = ("equant-gptq", "equant-choose-ranges")
LOSS_FORWARDS = 7.0
# Learned rounding takes as many steps of as many tokens whatever the text: its figure is of so many steps, over so many tokens.
SIGNROUND_STEPS, SIGNROUND_TOKENS = 200, 8 * 1024


@dataclass(frozen=True)
class Plans:
    """What easyquant-print-plans prints."""

    sites: list[dict]
    passes: list[str]  # of quantization
    other_bytes: int
    header_bytes: int  # at most
    gathered_bytes: int  # of tables of which a step reads a row a token
    cache: dict  # page_tokens, page_bytes, window_bytes and perhaps sliding, as in the manifest; read: page_bytes of the layers of each window that a step reads (0: none)
    state_bytes: int  # of the recurrent state of a sequence; 0: no layer has one
    layer_floats: int
    recipe: dict
    model: dict

    @property
    def weight_bytes(self) -> int:
        return self.header_bytes + self.other_bytes + sum(site["bytes"] for site in self.sites)

    def unread_bytes(self, rows: int) -> int:
        """Bytes of the head that drafts, and of experts that a step of so many rows leaves alone, as the mean of rows that choose independently of
        each other."""
        left = {site["name"]: (1 - site["experts_per_row"] / site["experts"]) ** rows for site in self.sites if "experts" in site}
        return sum(round(site["bytes"] * (1.0 if "draft" in site else left.get(site["name"], 0.0))) for site in self.sites)

    def cache_bytes(self, tokens: int) -> int:
        """Bytes of the keys and values of a sequence of so many tokens."""
        return cache_bytes(self.cache, tokens)

    def pages(self, tokens: int) -> int:
        return -(-tokens // self.cache["page_tokens"])

    def read_cache_bytes(self, tokens: int) -> int:
        """What a step reads of these: what lies in the windows of layers that have one, and nothing of the head that drafts."""
        read = sum(self.pages(min(tokens, part["window"] or tokens)) * part["page_bytes"] for part in self.cache["read"])
        return self.cache["window_bytes"] + read

    @property
    def methods(self) -> list[str]:
        return list(dict.fromkeys(method for site in self.sites for method in site["methods"]))

    @property
    def text_passes(self) -> list[str]:
        """The passes that read calibration text."""
        return [name for name in self.passes if name in COSTS]

    @property
    def fallbacks(self) -> list[dict]:
        return [site for site in self.sites if site["reason"]]


def read_plans(model: Path, arguments: list[str]) -> Plans:
    """Plans of `easyquant-compile MODEL arguments --dry-run`; raises UserError with its words."""
    model = find_model(model)
    tool = find_tool("easyquant-compile")
    command = [tool, str(model), *arguments, "--dry-run", "--progress=none"]
    result = subprocess.run(command, capture_output=True, text=True, errors="replace", env=tool_environment(), preexec_fn=ends_with_me())
    if result.returncode != 0:
        raise UserError(explain(tool, result.returncode, result.stderr))
    return Plans(**json.loads(result.stdout))


def plans_of(model: Path, options) -> Plans:
    """Plans of CompileOptions."""
    text = ["--with-text"] if options.calibration else []
    if options.recipe is None:
        return read_plans(model, options.arguments() + text)
    with recipe_as_json(options.recipe) as recipe:
        return read_plans(model, replace(options, recipe=recipe).arguments() + text)


def describe_weight(site: dict) -> str:
    why = site.get("float_by_default")
    return describe_operand(site["weight"]) + (f", as it {why}" if why else "")


def plans_table(plans: Plans) -> Table:
    rows: dict[tuple, list[dict]] = defaultdict(list)
    for site in plans.sites:
        key = (pattern_of(site["name"]), site["out_features"], site["in_features"], describe_weight(site), describe_operand(site["input"]))
        rows[(*key, "+".join(site["methods"]))].append(site)
    table = console.table("Sites", show_footer=True)
    table.add_column("site", "everything else")
    table.add_column("count", str(len(plans.sites)), justify="right")
    table.add_column("out × in", justify="right")
    table.add_column("weight", "float")
    table.add_column("input")
    table.add_column("methods")
    table.add_column("bytes", console.human_bytes(plans.other_bytes), justify="right")
    for (name, out, columns, weight, activation, methods), sites in rows.items():
        size = console.human_bytes(sum(site["bytes"] for site in sites))
        table.add_row(name, str(len(sites)), f"{out} × {columns}", weight, activation, methods, size)
    return table


def describe_time(seconds: float) -> str:
    return f"about {seconds:.0f} s" if seconds < 120 else f"about {seconds / 60:.0f} min"


@dataclass(frozen=True)
class Prediction:
    """What a compilation will take, roughly."""

    weight_bytes: int
    memory_bytes: float  # beside the model's own pages
    seconds: float  # on this machine

    @property
    def time(self) -> str:
        return describe_time(self.seconds)


def flops_per_second() -> float:
    """The speed of a float matrix product on this machine, now."""
    a = np.random.default_rng(0).standard_normal((768, 768), np.float32)
    a @ a
    begin = time.perf_counter()
    for _ in range(4):
        a @ a
    return 4 * 2 * 768**3 / (time.perf_counter() - begin)


# Several predictions are of the same machine.
machine_speed = cache(flops_per_second)


def forward_seconds(plans: Plans, tokens: int) -> float:
    """What so many tokens take through the float model."""
    # A site of experts has the rows of all of them.
    multiplied = sum(site["out_features"] * site["in_features"] * site.get("experts_per_row", 1) / site.get("experts", 1) for site in plans.sites)
    return 2 * tokens * multiplied / (0.7 * machine_speed())


def expert_bytes(plans: Plans, tokens: int) -> int:
    """The rows that GPTQ keeps of what the experts of a linear read, at most at a time."""
    return 4 * tokens * max((site["input_rows"] * site["in_features"] for site in plans.sites if "experts" in site and "gptq" in site["methods"]), default=0)


def is_by_loss(options) -> bool:
    return (options.hessian or default_of("hessian")).startswith("loss")


def walk_bytes(plans: Plans, tokens: int) -> float:
    """What a walk through the layers takes that gathers nothing."""
    return BASE_BYTES + 4 * (plans.layer_floats + tokens * plans.model["hidden_size"])


def passes_at_work(plans: Plans) -> list[str]:
    """Passes that read text. GPTQ weighs ranges by the Hessians that it has."""
    return [name for name in plans.text_passes if name != "equant-choose-ranges" or "equant-gptq" not in plans.passes]


def gathers_loss(plans: Plans, options) -> bool:
    """Is the model run backward?"""
    return is_by_loss(options) and options.statistics is None and any(name in BY_LOSS for name in passes_at_work(plans))


def loss_memory(plans: Plans, options, ranks: int = 1) -> LossMemory:
    """What that takes on one of so many ranks."""
    text = options.calibration or CalibrationText
    both = (options.hessian or default_of("hessian")) == "loss-both"
    return loss_memory_of_text(plans, text, ranks, options.expert_tokens, rows=both)


def loss_memory_of_text(plans: Plans, text, ranks: int, expert_tokens: int | None = None, rows: bool = True, to_file: bool = False) -> LossMemory:
    samples = -(-most_windows(text, expert_tokens) // ranks)
    return LossMemory.of(plans.sites, plans.model, plans.layer_floats, samples, text.length, rows, to_file)


def forwards(name: str, samples: int, length: int, options) -> float:
    """How many times a pass takes the text through the model."""
    passes = COSTS[name][FORWARDS]
    of_means = min(1, TOKENS_OF_MEANS / (samples * length))
    gathering = LOSS_FORWARDS if is_by_loss(options) and not options.statistics else 0
    if name == "equant-choose-ranges":
        return passes + gathering if is_by_loss(options) else passes * (1 if options.expert_tokens else of_means)
    if name == "equant-awq":
        compared = min(options.search_samples or int(default_of("search-samples")), samples) / samples
        return passes * max(of_means, compared) + AWQ_CANDIDATES * compared * min(length, AWQ_TOKENS) / length
    if name == "equant-gptq" and is_by_loss(options):
        return gathering
    if name == "equant-lkd":
        return passes * (options.epochs or int(default_of("epochs"))) / LKD_EPOCHS
    if name == "equant-signround":
        steps = options.steps or int(default_of("steps"))
        return passes * steps / SIGNROUND_STEPS * SIGNROUND_TOKENS / (samples * length)
    return passes


def prediction(plans: Plans, options) -> Prediction:
    """What compiling with these CompileOptions takes."""
    work = passes_at_work(plans)
    memory, seconds = BASE_BYTES, 5.0
    if work:
        text = options.calibration or CalibrationText
        samples = most_windows(text, options.expert_tokens)
        tokens = samples * text.length
        states = tokens * plans.model["hidden_size"] * 4
        memory += max(plans.layer_floats * 4 * COSTS[name][LAYER_COPIES] + states * COSTS[name][STATE_COPIES]
                      + (expert_bytes(plans, tokens) if name == "equant-gptq" else 0) for name in work)
        if gathers_loss(plans, options):
            memory = max(memory, loss_memory(plans, options).needed)
        seconds += forward_seconds(plans, tokens) * sum(forwards(name, samples, text.length, options) for name in work)
    return Prediction(plans.weight_bytes, memory, seconds)


def describe_windows(text: CalibrationText, expert_tokens: int | None) -> str:
    """'64 x 1,024 tokens', and of what figures are where experts decide how many windows there are."""
    most = most_windows(text, expert_tokens)
    return f"{text.samples:,} x {text.length:,} tokens" + (f", up to {most:,} as experts need them, of which memory and time are" if expert_tokens else "")


def describe_cache(plans: Plans) -> str:
    """'23.6 MB for a sequence of 1,024 tokens': what keys and values of the longest sequence take."""
    tokens = plans.model["max_context"]
    return f"{console.human_bytes(plans.cache_bytes(tokens))} for a sequence of {tokens:,} tokens"


def print_dry_run(plans: Plans, options) -> None:
    console.out.print(plans_table(plans))
    table = console.pairs()
    predicted = prediction(plans, options)
    table.add_row("weights", console.human_bytes(predicted.weight_bytes))
    if not options.export:
        table.add_row("KV cache", describe_cache(plans))
        if plans.state_bytes:
            table.add_row("state", f"{console.human_bytes(plans.state_bytes)} for each sequence, in memory {SEQUENCE_STATES} times, {GPU_SEQUENCE_STATES} on GPUs")
    if options.expert_tokens and passes_at_work(plans):
        table.add_row("text", describe_windows(options.calibration or CalibrationText, options.expert_tokens))
    table.add_row("memory", f"about {console.human_bytes(predicted.memory_bytes)} beside the model's own pages")
    if (available := available_bytes()) is not None:
        table.add_row("available", console.human_bytes(available))
    table.add_row("time", f"{predicted.time} on this machine")
    console.out.print(table)
    for site in plans.fallbacks:
        console.out.print(f"stays float: {site['name']} {site['reason']}", markup=False, soft_wrap=True)
