# Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Errors that round to nearest makes on a model beside the bounds of lib/Numerics, as `equant-measure-bounds` finds them."""

import json
from dataclasses import dataclass
from pathlib import Path

from rich.table import Table

from easyquant.compiler.calibration import CalibrationText, tokens_of
from easyquant.compiler.driver import compiler_progress, run_compiler
from easyquant.compiler.statistics import quoted
from easyquant.support.errors import UserError
from easyquant.terminal import console


@dataclass(frozen=True)
class BoundRow:
    """A measured error beside its bound. It stands for many errors by the one with the greatest share."""

    scheme: str  # "any" where it plays no part
    quantity: str
    where: str
    measured: float
    bound: float
    share: float | None  # None: the bound is 0 and the error is not

    @property
    def is_above(self) -> bool:
        return self.share is None or self.share > 1

    @property
    def share_text(self) -> str:
        if self.share is None:
            return "above a bound of 0"
        # What is above by less than the digits show is above all the same.
        text = f"{self.share:.1%}" if not 1 < self.share < 1.001 else f"{self.share:.5%}"
        return f"{text}, above" if self.is_above else text


@dataclass(frozen=True)
class SmoothingRow:
    """Exponents of one activation: the best of each channel and the one that SmoothQuant's search finds, with E(s) of both."""

    scheme: str
    where: str
    best: str
    searched: float
    error_best: float
    error_searched: float
    error_plain: float


def measure_bounds(model: Path, calibration: CalibrationText, scheme: str, group_size: int | None, ignore: list[str], output: Path, threads: int) -> dict:
    """The report of `equant-measure-bounds` for one scheme, rounded to nearest; `output` is the file that the tool writes."""
    options = f"scheme={scheme}"
    if group_size is not None:
        options += f" group-size={group_size}"
    if ignore:
        options += f" ignore={','.join(map(quoted, ignore))}"
    planner = "equant-zeropoint" if scheme.endswith("_ASYM") or scheme.startswith("Q") else "equant-absmax"
    with compiler_progress() as follow, tokens_of(model, calibration) as tokens:
        measure = f"equant-measure-bounds{{tokens={quoted(tokens)} output={quoted(output)} threads={threads}}}"
        run_compiler([str(model), f"--pipeline={planner}{{{options}}},{measure}"], follow)
    try:
        return json.loads(output.read_text())
    except (OSError, ValueError) as error:
        raise UserError(f"{output}: the bounds cannot be read ({error}); compare again") from None


def _worst(entries: list[dict]) -> dict | None:
    return max(entries, key=lambda entry: float("inf") if entry["share"] is None else entry["share"], default=None)


def _row(scheme: str, quantity: str, entries: list[dict], where) -> list[BoundRow]:
    worst = _worst(entries)
    return [BoundRow(scheme, quantity, where(worst), worst["measured"], worst["bound"], worst["share"])] if worst else []


def _rows_of_scheme(scheme: str, report: dict) -> list[BoundRow]:
    rows = _row(scheme, "weight, |W − Ŵ|", report["weights"], lambda e: e["site"])
    rows += _row(scheme, "output of a linear", report["outputs"], lambda e: e["site"])
    # The bound behind the first layer is its own error; what can fall short of or exceed it comes later.
    layers = report["layers"][1:] or report["layers"]
    rows += _row(scheme, "hidden states, all layers up to one quantized", layers, lambda e: f"layer {e['layer']}")
    if len(layers) > 1:
        rows += _row(scheme, "hidden states, all layers quantized", layers[-1:], lambda e: f"layer {e['layer']}")
    return rows


def _rows_of_model(report: dict) -> list[BoundRow]:
    """What does not depend on the scheme of weights and activations."""
    rows = []
    for bits in (8, 4, 2):
        for tensor in ("keys", "values"):
            entries = [entry for entry in report["keys_values"] if (entry["tensor"], entry["bits"]) == (tensor, bits)]
            rows += _row("any", f"{tensor} of an int{bits} cache", entries, lambda e: f"layer {e['layer']}")
    rows += _row(
        "any", f"mean scale of n samples against all {report['all_samples']}", report["sampling"],
        lambda e: f"{e['sites'][0]}, n = {e['samples']}",
    )  # fmt: skip
    return rows


def bound_rows(reports: dict[str, dict]) -> list[BoundRow]:
    """For each scheme and quantity the pair with the greatest share. `reports`: by scheme."""
    rows = [row for scheme, report in reports.items() for row in _rows_of_scheme(scheme, report)]
    return rows + (_rows_of_model(next(iter(reports.values()))) if reports else [])


def smoothing_rows(reports: dict[str, dict]) -> list[SmoothingRow]:
    """For each scheme the activation where the search's error bound is the furthest above the best one."""
    rows = []
    for scheme, report in reports.items():
        points = [point for point in report["smoothing"] if point["error_best"]]
        if not points:
            continue
        point = max(points, key=lambda p: p["error_searched"] / p["error_best"])
        best = f"{point['best_mean']:.2f} ({point['best_least']:.2f} to {point['best_greatest']:.2f})"
        rows.append(SmoothingRow(scheme, ", ".join(point["sites"]), best, point["searched"], point["error_best"], point["error_searched"], point["error_plain"]))
    return rows


def moved_bytes(reports: dict[str, dict]) -> list[tuple[str, int, int]]:
    """scheme, bytes that one token moves at all sites with fused kernels, and with separate ones."""
    return [(scheme, *(sum(site[kind] for site in report["bytes_per_token"]) for kind in ("fused", "separate"))) for scheme, report in reports.items()]


def bounds_tables(reports: dict[str, dict]) -> list[Table]:
    """For the console."""
    table = console.table("Bounds beside measured errors")
    for heading in ("scheme", "quantity", "where"):
        table.add_column(heading, overflow="fold")
    for heading in ("measured", "bound", "share"):
        table.add_column(heading, justify="right")
    for row in bound_rows(reports):
        table.add_row(row.scheme, row.quantity, row.where, f"{row.measured:.4g}", f"{row.bound:.4g}", row.share_text)
    tables = [table]
    if smoothings := smoothing_rows(reports):
        table = console.table("Smoothing: the best exponents and the one that the search finds")
        for heading in ("scheme", "where"):
            table.add_column(heading, overflow="fold")
        for heading in ("best exponents", "searched", "E, best", "E, searched", "E, none"):
            table.add_column(heading, justify="right")
        for row in smoothings:
            table.add_row(row.scheme, row.where, row.best, f"{row.searched:.2f}", *(f"{error:.4g}" for error in (row.error_best, row.error_searched, row.error_plain)))
        tables.append(table)
    table = console.table("Bytes that a token moves at the linears")
    for heading in ("scheme", "fused", "separate", "share"):
        table.add_column(heading, justify="left" if heading == "scheme" else "right")
    for scheme, fused, separate in moved_bytes(reports):
        table.add_row(scheme, f"{fused:,}", f"{separate:,}", f"{fused / separate:.1%}" if separate else "")
    return [*tables, table]
