# Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Models by their names at Hugging Face, as far as they are on this machine. Nothing here goes to the network."""

import re
from pathlib import Path

from easyquant.support.errors import UserError

# "gpt2", "HuggingFaceTB/SmolLM2-135M"; one without a slash is more often a path that was misspelled
_NAME = re.compile(r"\w[\w.-]*(/\w[\w.-]*)?")


def is_name(model: Path) -> bool:
    """Could it be a name, and not only a path?"""
    return _NAME.fullmatch(str(model)) is not None


def cache_folder() -> Path:
    """Where downloads are kept: $HF_HUB_CACHE, $HF_HOME/hub, or in ~/.cache."""
    from huggingface_hub import constants

    return Path(constants.HF_HUB_CACHE)


def cached_model(name: str) -> Path | None:
    """The folder, or the only GGUF file, of a model that was downloaded under this name; None if none was."""
    if not (cache_folder() / f"models--{name.replace('/', '--')}").is_dir():
        return None
    from huggingface_hub import snapshot_download  # slow to load
    from huggingface_hub.errors import LocalEntryNotFoundError

    try:
        folder = Path(snapshot_download(name, cache_dir=cache_folder(), local_files_only=True))
    except LocalEntryNotFoundError:
        return None
    files = sorted(folder.glob("*.gguf"))
    if (folder / "config.json").is_file() or not files:
        return folder
    if len(files) > 1:
        raise UserError(f"{name}: its download holds {len(files)} GGUF files; give one of them: {', '.join(map(str, files))}")
    return files[0]


def locate(model: Path) -> Path:
    """`model` itself, or what was downloaded under it as a name where there is no such path."""
    return model if model.exists() or not is_name(model) else cached_model(str(model)) or model


def download_hint(model: Path) -> str:
    """What to do where `model` is neither a path nor a download; nothing where it cannot be a name."""
    if not is_name(model) or "/" not in str(model):
        return ""
    return f"; as a name at Hugging Face it is not in {cache_folder()}: download it with `hf download {model}`"


def model_name(model: Path) -> str:
    """The name of a model's file or folder. A download has the name of the model, not of its revision."""
    path = model.resolve()
    if path.parent.name == "snapshots" and path.parent.parent.name.startswith("models--"):
        return path.parent.parent.name.rpartition("--")[2]
    return path.name
