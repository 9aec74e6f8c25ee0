# Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Reads a site's weights out of an artifact: the very values that its program multiplies with."""

import numpy as np
from safetensors import SafetensorError, safe_open

from easyquant.evaluation.comparison import layer_of
from easyquant.evaluation.results import WeightExample
from easyquant.formats.packed import code_values, dequantize, relative_error, rotate, scale_values
from easyquant.runtime.artifact import Artifact
from easyquant.support.errors import UserError


def read_tensor(artifact: Artifact, name: str) -> np.ndarray:
    """A tensor of the artifact's weights as it is stored."""
    file = artifact.file_of_tensor(name)
    try:
        with safe_open(file, framework="numpy") as tensors:
            return tensors.get_tensor(name)
    except (SafetensorError, OSError) as error:
        raise UserError(f"{file}: tensor {name} cannot be read ({error}); compile the artifact again") from None


def read_site(artifact: Artifact, name: str) -> np.ndarray:
    """f32[out_features, in_features] of the site `name`, in the plain basis and the order of its activations."""
    site = next((site for site in artifact.manifest["sites"] if site["name"] == name), None)
    if site is None:
        raise UserError(f"{artifact.path}: has no site {name}; `easyquant inspect --all {artifact.path}` lists them")
    # Sites that share an input are one tensor below each other, and a tied head is the embedding.
    tensor, first = site["tensor"], site["first_row"]
    rows = slice(first, first + site["out_features"])
    weight = read_tensor(artifact, tensor)
    if site["weight"] is None:
        return _plain_rows(weight[rows], site)
    scheme = site["weight"]
    scales = read_tensor(artifact, f"{tensor}_scale")
    minima = read_tensor(artifact, f"{tensor}_minimum") if scheme.get("minima") else None
    zero_points = None if scheme["symmetric"] or scheme.get("minima") else read_tensor(artifact, f"{tensor}_zero_point")
    outer = read_tensor(artifact, f"{tensor}_outer") if scheme.get("outer") else None
    values = dequantize(weight, scales, rows.stop, site["in_features"], scheme, zero_points, outer, minima)[rows]
    if "column_order" in site:  # column i of the codes is column order[i] of the weight
        values = values[:, np.argsort(read_tensor(artifact, site["column_order"])[: site["in_features"]])]
    return _plain_rows(values, site)


def _plain_rows(weight: np.ndarray, site: dict) -> np.ndarray:
    """Where the basis of attention's output is folded into the site, its rows are rotated."""
    block, first = site.get("row_hadamard"), site.get("row_hadamard_first", 0)
    if not block:
        return weight
    return np.concatenate([weight[:first], rotate(np.ascontiguousarray(weight[first:].T), block).T])


def rounding_bound(artifact: Artifact, site: dict) -> float:
    """s / 2 of the largest scale of a quantized site, of codes that are no integers times their widest gap: what round to nearest moves a
    weight by at most, inside the range of its scale."""
    rows = np.arange(site["first_row"], site["first_row"] + site["out_features"])
    scheme = site["weight"]
    scales = scale_values(read_tensor(artifact, f"{site['tensor']}_scale"), scheme["scale_type"])  # panels x groups x rows of a panel
    if scheme.get("outer"):
        scales = scales * read_tensor(artifact, f"{site['tensor']}_outer")
    panel = scales.shape[2]
    gap = 1.0 if scheme["codes"] == "integer" else float(np.diff(np.unique(code_values(scheme)[np.isfinite(code_values(scheme))])).max())
    return float(scales[rows // panel, :, rows % panel].max()) / 2 * gap


def example_site(sites: list[dict]) -> str | None:
    """A quantized site in the middle of the network: the output of an attention, which methods scale least."""
    quantized = [site["name"] for site in sites if site["weight"] is not None]
    closing = [name for name in quantized if name.endswith((".self_attn.o_proj", ".attn.c_proj"))] or quantized
    return closing[len(closing) // 2] if closing else None


def scaled_sites(artifact: Artifact) -> set[str]:
    """Sites whose weights a method multiplied by factors: they are no longer those of the model, though the function is the same."""
    transforms = artifact.manifest["quantization"].get("transforms", [])
    return {site for entry in transforms if "skipped" not in entry for site in entry["sites"]}


def example_weights(artifacts: list[Artifact], labels: list[str]) -> WeightExample | None:
    """The weights of a site that no method scaled, if there is one. `artifacts`: the float one first."""
    quantized = artifacts[1:]
    scaled = set().union(*map(scaled_sites, quantized))
    comparable = [site["name"] for site in quantized[-1].manifest["sites"] if site["weight"] is not None and site["name"] not in scaled]
    layers = [name for name in comparable if layer_of(name) is not None]
    if not layers:
        return None
    site = layers[len(layers) // 2]
    before = read_site(artifacts[0], site)
    after = [(label, weights, relative_error(before, weights)) for artifact, label in zip(quantized, labels[1:]) for weights in [read_site(artifact, site)]]
    return WeightExample(site, before, after)
