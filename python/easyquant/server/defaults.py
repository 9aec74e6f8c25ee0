# Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What the model's authors say of how its tokens are to be chosen: generation_config.json."""

from pathlib import Path

from easyquant.runtime.requests import Settings
from easyquant.support.errors import UserError
from easyquant.text.tokenizer_checks import read_json

NAMES = ("temperature", "top_k", "top_p", "min_p", "repetition_penalty")


def read_defaults(folder: Path) -> dict:
    """Fields of Settings. Where the file says nothing of temperature it is 1, as in OpenAI's API; where it has do_sample false, 0."""
    file, found = folder / "generation_config.json", {}
    if file.is_file():
        config = read_json(file)[1]
        if not isinstance(config, dict):
            raise UserError(f"{file}: is no object; copy it from the model again")
        found = {name: config[name] for name in NAMES if config.get(name) is not None}
        if config.get("do_sample") is False:
            found["temperature"] = 0.0
    found = {"temperature": 1.0} | found
    try:
        Settings(**found)
    except UserError as error:
        raise UserError(f"{file}: {error}") from None
    return found
