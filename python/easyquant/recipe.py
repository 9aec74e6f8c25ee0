# Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Recipe files: scheme and method per site. docs/guide/recipes.md describes them.

People write YAML; the compiler reads JSON, which is YAML too, so that the `recipe.json` of an artifact is a recipe as
it stands. What keys and values mean is the compiler's to check.
"""

import contextlib
import json
from pathlib import Path

import yaml

from easyquant.errors import UserError
from easyquant.files import scratch_folder


class _Loader(yaml.SafeLoader):
    """Refuses what YAML forbids and PyYAML lets pass: a key twice."""

    def construct_mapping(self, node, deep=False):
        seen = set()
        for key, _ in node.value:
            name = self.construct_object(key, deep=True)
            if isinstance(name, (str, int)) and name in seen:
                raise yaml.constructor.ConstructorError(None, None, f"key {name!r} is there twice", key.start_mark)
            seen.add(name if isinstance(name, (str, int)) else id(key))
        return super().construct_mapping(node, deep)


def read_recipe(file: Path) -> dict:
    """The recipe in a YAML or JSON file."""
    try:
        recipe = yaml.load(Path(file).read_text(encoding="utf-8"), _Loader)
    except OSError as error:
        raise UserError(f"{file}: cannot be read: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise UserError(f"{file}: is not UTF-8 text ({error.reason} at byte {error.start})") from None
    except (yaml.YAMLError, RecursionError, ValueError) as error:
        raise UserError(f"{file}: is no YAML: {' '.join(str(error).split())}") from None
    if not isinstance(recipe, dict):
        raise UserError(f"{file}: a recipe is a mapping such as 'scheme: W4A16', found {type(recipe).__name__}")
    return recipe


@contextlib.contextmanager
def recipe_as_json(file: Path):
    """A JSON file of the recipe for as long as the compiler needs it, under the same name."""
    try:
        text = json.dumps(read_recipe(file), indent=2, allow_nan=False)
    except (TypeError, ValueError) as error:
        raise UserError(f"{file}: holds a value that JSON has not: {error}") from None
    with scratch_folder() as folder:
        path = folder / f"{Path(file).stem}.json"
        path.write_text(text + "\n", encoding="utf-8")
        yield path
