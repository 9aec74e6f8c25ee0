# Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Recipe files: scheme and method per site. docs/guide/recipes.md describes them.

People write YAML; the compiler reads JSON, which is YAML too, so that the `recipe.json` of an artifact is a recipe as
it stands. What keys and values mean is the compiler's to check.
"""

import contextlib
import json
import re
import tempfile
from pathlib import Path

import yaml

from easyquant.support.errors import UserError
from easyquant.support.files import scratch_folder
from easyquant.terminal import console


class _Loader(yaml.SafeLoader):
    """Refuses what YAML forbids and PyYAML lets pass, a key twice; takes 1e-05, which JSON writes, for the number that it is in YAML 1.2."""

    def construct_mapping(self, node, deep=False):
        seen = set()
        for key, _ in node.value:
            name = self.construct_object(key, deep=True)
            if isinstance(name, (str, int)) and name in seen:
                raise yaml.constructor.ConstructorError(None, None, f"key {name!r} is there twice", key.start_mark)
            seen.add(name if isinstance(name, (str, int)) else id(key))
        return super().construct_mapping(node, deep)


_Loader.add_implicit_resolver("tag:yaml.org,2002:float", re.compile(r"[-+]?\d+(\.\d*)?[eE][-+]?\d+$"), list("-+0123456789"))


def read_recipe(file: Path) -> dict:
    """The recipe in a YAML or JSON file."""
    try:
        recipe = yaml.load(Path(file).read_text(encoding="utf-8"), _Loader)
    except OSError as error:
        raise UserError(f"{file}: cannot be read: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise UserError(f"{file}: is not UTF-8 text ({error.reason} at byte {error.start})") from None
    except yaml.MarkedYAMLError as error:
        where = f", line {error.problem_mark.line + 1}, column {error.problem_mark.column + 1}" if error.problem_mark else ""
        raise UserError(f"{file}{where}: is no YAML: {error.problem or error.context}") from None
    except yaml.reader.ReaderError as error:
        raise UserError(f"{file}: is no YAML: character {error.character!r} at {error.position} is not allowed") from None
    except (RecursionError, ValueError) as error:
        raise UserError(f"{file}: is no YAML: {error}") from None
    if not isinstance(recipe, dict):
        raise UserError(f"{file}: a recipe is a mapping such as 'scheme: W4A16', found {type(recipe).__name__}")
    return recipe


@contextlib.contextmanager
def recipe_as_json(file: Path, keep: bool = False):
    """A JSON file of the recipe for as long as the compiler needs it; its errors name `file`.

    It is temporary, unless a printed command is going to name it (`keep`).
    """
    try:
        text = json.dumps(read_recipe(file), indent=2, allow_nan=False)
    except (TypeError, ValueError) as error:
        raise UserError(f"{file}: holds a value that JSON has not: {error}") from None
    with contextlib.ExitStack() as stack:
        folder = tempfile.mkdtemp(prefix="easyquant-recipe-") if keep else stack.enter_context(scratch_folder())
        path = Path(folder) / "recipe.json"
        path.write_text(text + "\n", encoding="utf-8")
        if keep:
            console.note(f"the recipe as JSON is in {path}")
        try:
            yield path
        except UserError as error:
            raise UserError(str(error).replace(str(path), str(file))) from None
