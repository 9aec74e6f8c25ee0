# Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""`easyquant recipe show|check`: what an artifact was made with, and what a recipe would do to a model."""

from pathlib import Path
from typing import Annotated

import typer
import yaml

from easyquant.compiler.driver import find_model
from easyquant.compiler.options import CompileOptions
from easyquant.compiler.plans import plans_of, plans_table
from easyquant.compiler.recipe import read_recipe
from easyquant.formats.hub import model_name
from easyquant.runtime.artifact import Artifact, is_artifact
from easyquant.support.errors import UserError
from easyquant.terminal import console
from easyquant.terminal.usage import Command, Commands

app = typer.Typer(cls=Commands, no_args_is_help=True, help="Show the recipe of an artifact, or check one against a model.")


@app.command("show", cls=Command)
@console.command
def show_command(
    source: Annotated[Path, typer.Argument(metavar="ARTIFACT_OR_FILE", help="An artifact, or a recipe file.")],
) -> None:
    """Print the recipe that an artifact was made with, as YAML.

    Example: [bold]easyquant recipe show smol-w8a8 > recipe.yaml[/bold]
    """
    if is_artifact(source):
        source = Artifact.open(source).path / "recipe.json"
    console.out.print(yaml.safe_dump(read_recipe(source), sort_keys=False, allow_unicode=True), end="", markup=False, soft_wrap=True)


@app.command("check", cls=Command)
@console.command
def check_command(
    recipe: Annotated[Path, typer.Argument(metavar="RECIPE", help="A recipe file: YAML or JSON.")],
    model: Annotated[Path, typer.Argument(metavar="MODEL", help="The model that it is for.")],
    max_fallback: Annotated[int, typer.Option(min=0, metavar="N", help="Sites that may stay float where they cannot be quantized as asked.")] = 0,
) -> None:
    """Show what a recipe would do to each site of a model; status 1 if it could not.

    Example: [bold]easyquant recipe check recipe.yaml SmolLM2-135M[/bold]
    """
    model = find_model(model)
    plans = plans_of(model, CompileOptions(recipe=recipe))
    console.out.print(plans_table(plans))
    for site in plans.fallbacks:
        console.out.print(f"stays float: {site['name']} {site['reason']}", markup=False, soft_wrap=True)
    if len(plans.fallbacks) > max_fallback:
        raise UserError(f"{recipe}: {len(plans.fallbacks)} sites cannot be quantized as asked; see above, or allow them with --max-fallback")
    quantized = sum(site["weight"] is not None for site in plans.sites)
    console.out.print(f"{recipe}: quantizes {quantized} of {len(plans.sites)} sites of {model_name(model)}", markup=False, soft_wrap=True)
