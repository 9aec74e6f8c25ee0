# Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""`easyquant inspect`: what is in a model or an artifact."""

from collections import defaultdict
from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table

from easyquant.formats.hub import model_name
from easyquant.formats.model_files import ModelInfo, read_model
from easyquant.runtime.artifact import Artifact, is_artifact
from easyquant.runtime.sites import describe_operand, pattern_of
from easyquant.terminal import console


def properties_table(properties: dict[str, object]) -> Table:
    table = console.pairs()
    for label, value in properties.items():
        table.add_row(label, f"{value:,}" if isinstance(value, int) else str(value))
    return table


def describe_cache(artifact: Artifact) -> str:
    """Type and bytes: 'f16, 23.0 kB a token'"""
    program = artifact.manifest["program"]
    cache = program["cache"]
    text = f"{artifact.describe_cache()}; {console.human_bytes(cache['page_bytes'] // cache['page_tokens'])} a token"
    if fixed := cache["window_bytes"]:
        whole = console.human_bytes(artifact.cache_bytes(artifact.max_context))
        text += f" and {console.human_bytes(fixed)} for window and sinks, {whole} for the whole context"
    if sliding := cache.get("sliding"):
        text += f", beside {console.human_bytes(sliding['page_bytes'] // cache['page_tokens'])} for each of the newest {sliding['window']:,}"
    return text


def artifact_properties(artifact: Artifact) -> dict[str, object]:
    model, program = artifact.model, artifact.manifest["program"]
    source = artifact.manifest["source"]
    stored = ", ".join(f"{kind} × {count}" for kind, count in source.get("stored_types", {}).items())
    quantization = artifact.manifest["quantization"]
    properties = {
        "artifact": f"{artifact.describe()}, for {artifact.manifest.get('target')}",
        "source": f"{source.get('name')} ({source.get('kind')}; stored as {stored or 'unknown'})",
        "architecture": model.get("architecture"),
        "parameters": model.get("parameters"),
        "layers": model.get("num_layers"),
        "hidden size": model.get("hidden_size"),
        "heads": f"{model.get('num_heads')} ({model.get('num_kv_heads')} key/value) of {model.get('head_dim')}",
        "context": model.get("max_context"),
        "vocabulary": model.get("vocab_size"),
        "output head": "its own codes" if quantization.get("head") == "keep" else quantization.get("head"),
        "left float": ", ".join(quantization.get("ignore", [])) or None,
        "instruction sets": ", ".join(program.get("entries", {})) or None,
        "activations": f"{console.human_bytes(program['arena_bytes'])} and {console.human_bytes(program['arena_bytes_per_thread'])} a thread"
        if program.get("entries")
        else None,
        "KV cache": describe_cache(artifact),
        "EasyQuant": artifact.manifest.get("easyquant_version"),
    }
    return {label: value for label, value in properties.items() if value is not None}


def gpu_table(artifact: Artifact) -> Table:
    """What sessions need on a GPU, and how many kernels do a step."""
    gpu = artifact.gpu
    table = console.table(f"GPUs ({gpu['fatbin'] or 'PTX only, which the driver assembles'})")
    for title in ("chip", "code"):
        table.add_column(title)
    for title in ("kernels", "launches", "weights", "activations", "KV cache a token"):
        table.add_column(title, justify="right")
    for name, chip in gpu["chips"].items():
        later = ", and PTX for later chips" if name == gpu["later"] else ""
        table.add_row(
            name, ("machine code" if chip["machine_code"] else "PTX") + later, str(chip["kernels"]), str(chip["launches"]),
            console.human_bytes(gpu["weights_bytes"]), console.human_bytes(chip["arena_bytes"]), console.human_bytes(gpu["cache"]["page_bytes"] // gpu["cache"]["page_tokens"])
        )  # fmt: skip
    return table


def sites_table(artifact: Artifact, every_site: bool) -> Table:
    rows: dict[tuple, list[dict]] = defaultdict(list)
    for site in artifact.manifest["sites"]:
        name = site["name"] if every_site else pattern_of(site["name"])
        scheme = (describe_operand(site.get("weight")), describe_operand(site.get("input")))
        rows[(name, site["out_features"], site["in_features"], *scheme)].append(site)
    table = console.table("Sites", show_footer=True)
    table.add_column("site", "total", overflow="fold")
    table.add_column("count", f"{len(artifact.manifest['sites'])}", justify="right")
    table.add_column("out × in", justify="right")
    table.add_column("weight")
    table.add_column("input")
    table.add_column("weight error", justify="right")
    table.add_column("bytes", console.human_bytes(sum(site["bytes"] for site in artifact.manifest["sites"])), justify="right")
    for (name, rows_out, columns_in, weight, activation), sites in rows.items():
        errors = [site["weight_error"] for site in sites if site.get("weight_error") is not None]
        kept = all(site.get("kept") for site in sites)
        shown = "" if not errors or weight == "float" else "kept" if kept else f"{min(errors):.2%}"
        if shown and not kept and f"{max(errors):.2%}" != shown:
            shown += f" – {max(errors):.2%}"
        table.add_row(
            name, str(len(sites)), f"{rows_out} × {columns_in}", weight, activation, shown, console.human_bytes(sum(site["bytes"] for site in sites))
        )
    return table


def files_table(artifact: Artifact) -> Table:
    table = console.table("Files")
    table.add_column("file")
    table.add_column("bytes", justify="right")
    table.add_column("xxh3-128", style="dim")
    for name, entry in artifact.manifest["files"].items():
        table.add_row(name, f"{entry['bytes']:,}", entry["xxh3_128"])
    return table


def tensors_table(model: ModelInfo, every_tensor: bool) -> Table:
    rows: dict[tuple, list] = defaultdict(list)
    for tensor in model.tensors:
        name = tensor.name if every_tensor else pattern_of(tensor.name)
        rows[(name, tensor.dtype, tensor.shape)].append(tensor.bytes)
    table = console.table("Tensors", show_footer=True)
    table.add_column("tensor", "total", overflow="fold")
    table.add_column("count", str(len(model.tensors)), justify="right")
    table.add_column("stored as")
    table.add_column("shape", justify="right")
    table.add_column("bytes", console.human_bytes(sum(tensor.bytes for tensor in model.tensors)), justify="right")
    for (name, dtype, shape), sizes in rows.items():
        table.add_row(name, str(len(sizes)), dtype, " × ".join(map(str, shape)), console.human_bytes(sum(sizes)))
    return table


@console.command
def inspect_command(
    path: Annotated[Path, typer.Argument(metavar="MODEL_OR_ARTIFACT", help="A Hugging Face folder, a GGUF file or an artifact.")],
    every: Annotated[bool, typer.Option("--all", help="List every layer by itself.")] = False,
) -> None:
    """Show architecture, sites, schemes and bytes.

    Example: [bold]easyquant inspect smol-w8a8[/bold]
    """
    if is_artifact(path):
        artifact = Artifact.open(path)
        console.out.print(properties_table(artifact_properties(artifact)))
        console.out.print()
        if artifact.gpu:
            console.out.print(gpu_table(artifact))
        console.out.print(sites_table(artifact, every))
        console.out.print(files_table(artifact))
        return
    model = read_model(path)
    properties = {"model": f"{model_name(model.path)} ({model.kind})", **model.properties, "parameters": model.parameters}
    console.out.print(properties_table(properties))
    console.out.print()
    console.out.print(tensors_table(model, every))
