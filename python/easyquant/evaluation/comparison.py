# Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What `easyquant compare` lays side by side: variants, the protocol they share, and what was found of each."""

import hashlib
import json
import re
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import numpy as np

from easyquant import __version__
from easyquant.compiler.options import CALIBRATED
from easyquant.evaluation.metrics import paired
from easyquant.runtime.artifact import Artifact
from easyquant.support.errors import UserError
from easyquant.support.files import write_json

FLOAT = "float"


@dataclass(frozen=True)
class Variant:
    """One artifact to be made: a method, a scheme, a KV cache."""

    method: str
    scheme: str
    kv: str = "none"
    nsamples: int | None = None  # calibration samples; None where the method reads none

    @property
    def weights(self) -> str:
        """'awq W4A16'"""
        return FLOAT if self.scheme == "none" else f"{self.method} {self.scheme}"

    @property
    def cache(self) -> str:
        """', KV int4'; nothing where the cache is float."""
        return "" if self.kv == "none" else f", KV {self.kv}"

    @property
    def label(self) -> str:
        return self.weights + self.cache

    @property
    def name(self) -> str:
        """Among variants of one scheme."""
        return self.method + self.cache

    @property
    def is_calibrated(self) -> bool:
        return not CALIBRATED.isdisjoint(self.method.split("+"))

    @property
    def slug(self) -> str:
        """A file name."""
        name = f"{self.label} {self.nsamples or ''}"
        return re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")


@dataclass(frozen=True)
class Protocol:
    """What all variants of a comparison share. Figures of different protocols are never mixed."""

    model: str
    text_sha256: str
    calib_sha256: str | None
    context: int
    max_windows: int | None
    nsamples: int
    seqlen: int
    seed: int
    group_size: int | None
    ignore: tuple[str, ...]
    kv_chunk: int
    prefill: int
    decode: int
    repeats: int
    easyquant: str = __version__

    def stamp(self, variant: Variant) -> str:
        text = json.dumps([asdict(self), asdict(variant)], sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()


def unsuitable(method: str, scheme: str) -> str | None:
    """Why a method has nothing to do in a scheme, or None."""
    quantizes_activations = scheme != "none" and "A16" not in scheme
    parts = method.split("+")
    if "smoothquant" in parts and not quantizes_activations:
        return "SmoothQuant moves outliers from activations to weights; this scheme leaves activations float"
    if "zeroquant" in parts and not quantizes_activations:
        return "ZeroQuant quantizes activations per token; this scheme leaves them float"
    return None


def plan(
    methods: list[str], schemes: list[str], kv_schemes: list[str], nsamples: int, sweep: list[int]
) -> tuple[list[Variant], list[tuple[Variant, str]]]:
    """The variants to be made, the float one first, and those that make no sense, each with its reason.

    The sweep over calibration samples is done with the first scheme and a float KV cache.
    """
    variants = [Variant(FLOAT, "none", kv) for kv in kv_schemes]
    if variants[0].kv != "none":
        variants.insert(0, Variant(FLOAT, "none"))
    skipped = []
    for scheme in schemes:
        for method in methods:
            for kv in kv_schemes:
                variant = Variant(method, scheme, kv)
                if variant.is_calibrated:
                    variant = replace(variant, nsamples=nsamples)
                if reason := unsuitable(method, scheme):
                    skipped.append((variant, reason))
                    break
                variants.append(variant)
    for count in sweep:
        for method in methods:
            for scheme in schemes:
                variant = Variant(method, scheme, "none", count)
                if variant.is_calibrated and unsuitable(method, scheme) is None and variant not in variants:
                    variants.append(variant)
                    break
    return variants, skipped


def store(path: Path, stamp: str, found: dict) -> None:
    """Keeps in the report's folder what was found under the protocol of the stamp."""
    write_json(path, {"stamp": stamp, **found})


def stored(path: Path, stamp: str) -> dict | None:
    """What an earlier run stored under the same protocol, if it did."""
    try:
        found = json.loads(path.read_text())
        return found if found.pop("stamp") == stamp else None
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None


@dataclass
class Finding:
    """Everything measured of one variant, as it is stored in the report's folder."""

    variant: Variant
    figures: dict  # of `easyquant eval`
    speed: dict  # of `easyquant bench`
    cost: dict  # wall_seconds, cpu_seconds, peak_rss_bytes of compiling
    sites: list[dict]  # of the manifest
    histogram: list[int] | None = None  # of the example site's weights

    def save(self, path: Path, stamp: str) -> None:
        store(path, stamp, asdict(self))

    @classmethod
    def load(cls, path: Path, stamp: str) -> "Finding | None":
        """What an earlier run found under the same protocol, if it did."""
        found = stored(path, stamp)
        try:
            return None if found is None else cls(Variant(**found.pop("variant")), **found)
        except (KeyError, TypeError):
            return None

    @property
    def label(self) -> str:
        return self.variant.label

    @property
    def is_float(self) -> bool:
        return self.variant.scheme == "none"

    @property
    def is_cache_unread(self) -> bool:
        """Was the quantized KV cache attended to by no token? Then the figures are those of a float cache."""
        return self.figures.get("kv_codes_share") == 0


def layer_of(site: str) -> int | None:
    """`model.layers.3.mlp.up_proj` → 3; None outside the layers."""
    found = re.search(r"\b(?:layers|h)\.(\d+)\.", site)
    return int(found[1]) if found else None


def errors_by_layer(sites: list[dict]) -> list[float]:
    """The relative error of each layer's weights: √(Σ‖W − Ŵ‖² / Σ‖W‖²) with every site counted by its size."""
    sums: dict[int, list[float]] = {}
    for site in sites:
        layer = layer_of(site["name"])
        if layer is None or site["weight"] is None:
            continue
        weight = site["out_features"] * site["in_features"]
        total = sums.setdefault(layer, [0.0, 0.0])
        total[0] += weight * site["weight_error"] ** 2
        total[1] += weight
    return [float(np.sqrt(square / weight)) for _, (square, weight) in sorted(sums.items())]


@dataclass(frozen=True)
class WorstRounding:
    """The site whose largest weight error is the greatest share of its bound s / 2."""

    site: str
    error: float
    bound: float

    @property
    def share(self) -> float:
        return self.error / self.bound if self.bound else 0.0


def worst_rounding(sites: list[dict]) -> WorstRounding | None:
    """None where nothing is quantized."""
    found = [WorstRounding(site["name"], site["largest_error"], site["rounding_bound"]) for site in sites if site["weight"] is not None]
    return max(found, key=lambda rounding: rounding.share, default=None)


def outliers_by_layer(statistics: Path) -> dict[str, list[float]]:
    """For each kind of site, layer by layer: the largest channel's |x| over the median channel's, from a statistics file."""
    from safetensors import SafetensorError, safe_open

    ratios: dict[str, dict[int, float]] = {}
    try:
        with safe_open(statistics, framework="numpy") as file:
            for name in file.keys():
                site, _, statistic = name.rpartition("/")
                layer = layer_of(site)
                if statistic != "absmax" or layer is None:
                    continue
                channels = file.get_tensor(name)
                median = float(np.median(channels))
                if median > 0:
                    ratios.setdefault(site.rsplit(".", 1)[-1], {})[layer] = float(channels.max()) / median
    except (SafetensorError, OSError) as error:
        raise UserError(f"{statistics}: the calibration statistics cannot be read ({error}); delete the file and compare again") from None
    return {kind: [value for _, value in sorted(layers.items())] for kind, layers in ratios.items()}


def paired_difference(one: Finding, other: Finding, name: str) -> tuple[float, float | None]:
    """How much larger `name` (loss, kl or top1) is in `one`, and the standard error of that, over the windows that both saw."""
    return paired(one.figures["windows"][name], other.figures["windows"][name])


def cache_remark(finding: Finding) -> str:
    """How much of the judging went through the codes of a quantized KV cache."""
    remark = f"KV {finding.variant.kv}: {finding.figures['protocol']['kv_codes']}"
    return remark + ("; the figures are those of a float cache. Give a longer --context." if finding.is_cache_unread else ".")


def cache_remarks(findings: list[Finding]) -> list[str]:
    return list(dict.fromkeys(cache_remark(finding) for finding in findings if "kv_codes" in finding.figures["protocol"]))


def one_cache(findings: list[Finding]) -> list[Finding]:
    """The variant of each method and scheme over a float cache, or, if a comparison has none, over the first of the caches."""
    caches = dict.fromkeys(finding.variant.kv for finding in findings if not finding.is_float)
    shown = "none" if "none" in caches else next(iter(caches), "none")
    return [finding for finding in findings if finding.variant.kv == ("none" if finding.is_float else shown)]


def pareto(points: list[tuple[float, float]]) -> list[int]:
    """Indices of the points that no other point beats in both numbers, by the first one."""
    front, best = [], float("inf")
    for index in sorted(range(len(points)), key=lambda i: points[i]):
        if points[index][1] < best:
            front.append(index)
            best = points[index][1]
    return front


def model_stamp(artifact: Artifact) -> str:
    source = artifact.manifest["source"]
    return f"{source['name']} {source['xxh3_128']}"
