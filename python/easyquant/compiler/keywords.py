# Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The options of a compilation as keywords of Python: their names and types, and what is wrong with those that were given.

The compiler's table (`options.py`) has names, choices and bounds. The types below are for editors and type checkers, and a test
holds them against the table.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TypedDict

from easyquant.compiler.calibration import CalibrationText
from easyquant.compiler.options import LOOKS, MODEL_OPTIONS, OPTIONS, CompileOptions, Option, check_table
from easyquant.support.errors import UserError, expect, is_number, is_whole
from easyquant.terminal.usage import did_you_mean


class ModelKeywords(TypedDict, total=False):
    """What decides how a model is quantized. `easyquant compile --help` says what each one means."""

    calib: str | Path  # the text that methods and static activations are calibrated on, UTF-8,
    nsamples: int  # windows of it,
    seqlen: int  # tokens of a window,
    seed: int  # which chooses the windows,
    calib_bos: bool  # and whether each begins with the beginning-of-text token
    target: str
    draft_head: str
    assistant: str | Path
    scheme: str
    method: str
    recipe: str | Path
    group_size: int
    scale_type: str
    activations: str
    activation_group_size: int
    activation_zero_points: bool
    activation_basis: str
    hadamard_block: int
    head: str
    head_group_size: int
    ignore: Sequence[str]
    targets: Sequence[str]
    weight_observer: str
    weight_percentile: float
    observer: str
    observer_percentile: float
    sinks: str
    online_decay: float
    online_window: int
    online_tokens: int
    mixed: bool
    dequantize: bool
    max_fallback: int
    statistics: str | Path
    expert_tokens: int
    alpha: str | float
    search_samples: int
    clip: bool
    hessian: str
    act_order: bool
    static_groups: bool
    damping: float
    steps: int
    epochs: int
    kv_cache: str
    kv_scheme: str
    kv_group: int
    kv_residual: int
    kv_sinks: int
    kv_keys: str
    kv_key_scales: str


class CompileKeywords(ModelKeywords, total=False):
    """These, and how the artifact is written."""

    export: str
    closest: bool
    context: int
    tensor_parallel: int
    threads: int
    max_shard_bytes: int
    opset: int
    force: bool
    work: str | Path


CALIBRATION = {"nsamples": "samples", "seqlen": "length", "seed": "seed", "calib_bos": "bos"}  # fields of CalibrationText
COMPILED = {option.field: option for option in OPTIONS.values() if option.group != LOOKS}
KEPT = {option.field: option for option in MODEL_OPTIONS.values()}  # those of ModelKeywords


def compile_options(given: Mapping, known: Mapping[str, Option] = COMPILED) -> CompileOptions:
    """`given`: keywords, of which None is as if it was not given. `known`: COMPILED or KEPT."""
    check_table()
    names = [*known, "calib", *CALIBRATION]
    options = {name: value for name, value in given.items() if value is not None}
    for name in given:
        if name not in names:
            raise UserError(f"found the option {name!r}, which does not exist here{did_you_mean(name, names) or _nearby(name)}")
    text = _calibration({name: options.pop(name) for name in ("calib", *CALIBRATION) if name in options})
    return CompileOptions(calibration=text, **{name: _checked(known[name], value) for name, value in options.items()})


def _nearby(name: str) -> str:
    if name in (option.field for option in OPTIONS.values() if option.group == LOOKS):
        return f"; `easyquant compile --{name.replace('_', '-')}` shows it"
    return "; see `easyquant compile --help`" if name not in COMPILED else "; easyquant.quantize has it"


def _calibration(given: dict) -> CalibrationText | None:
    if not given:
        return None
    if "calib" not in given:
        raise UserError(f"{next(iter(given))}: goes with calib, the file of a text")
    for name in given.keys() & {"nsamples", "seqlen"}:
        expect(name, given[name], is_whole(given[name]) and given[name] >= 1, "a whole number of at least 1")
    if "seed" in given:
        expect("seed", given["seed"], is_whole(given["seed"]) and given["seed"] >= 0, "a whole number of at least 0")
    if "calib_bos" in given:
        expect("calib_bos", given["calib_bos"], isinstance(given["calib_bos"], bool), "True or False")
    text = Path(_path("calib", given.pop("calib")))
    if not text.is_file():
        raise UserError(f"calib {text}: there is no such file; expected a text in UTF-8")
    return CalibrationText(text, **{CALIBRATION[name]: value for name, value in given.items()})


def _path(name: str, value) -> str | Path:
    expect(name, value, isinstance(value, (str, Path)), "a path")
    return value


def _checked(option: Option, value):
    """A value as the table has it. Texts, as of methods, are the compiler's to check."""
    name = option.field
    if option.kind == "switch":
        expect(name, value, isinstance(value, bool), "True or False")
    elif option.kind == "choice":
        legal = f"one of {', '.join(option.choices)}"
        expect(name, value, value in option.choices, legal + (did_you_mean(value, option.choices) if isinstance(value, str) else ""))
    elif option.kind == "list":
        expect(name, value, isinstance(value, (list, tuple)) and all(isinstance(item, str) for item in value), "a list of texts")
        return list(value)
    elif option.kind in ("integer", "number"):
        whole = option.kind == "integer"
        bounds = f"at least {option.least:g}" if option.least is not None else ""
        bounds += (" and " if bounds else "") + f"at most {option.most:g}" if option.most is not None else ""
        within = (is_whole if whole else is_number)(value) and (option.least is None or value >= option.least) and (option.most is None or value <= option.most)
        expect(name, value, within, ("a whole number" if whole else "a number") + (f" of {bounds}" if bounds else ""))
    elif option.kind == "text or number":
        expect(name, value, isinstance(value, str) or is_number(value), "a number or a text")
    elif option.is_path:
        return Path(_path(name, value))
    else:
        expect(name, value, isinstance(value, str), "a text")
    return value
