# Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What a model file says about itself, read from headers only: no weights are loaded."""

import json
import math
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from easyquant.formats.gguf_header import GgufHeader, GgufTensor, read_gguf_header
from easyquant.formats.hub import download_hint, locate
from easyquant.support.errors import UserError


@dataclass(frozen=True)
class TensorInfo:
    name: str
    dtype: str
    shape: tuple[int, ...]  # row-major, as in a Hugging Face checkpoint
    bytes: int
    offset: int = 0  # in the data of a safetensors file


@dataclass(frozen=True)
class ModelInfo:
    path: Path
    kind: str  # "huggingface" or "gguf"
    properties: dict[str, object]
    tensors: list[TensorInfo]

    @property
    def parameters(self) -> int:
        total = 0
        for tensor in self.tensors:
            count = 1
            for extent in tensor.shape:
                count *= extent
            total += count
        return total


def read_safetensors_header(path: Path) -> list[TensorInfo]:
    """Every tensor of one file; the header is untrusted and checked against the file's length."""
    size = path.stat().st_size
    with open(path, "rb") as stream:
        length = int.from_bytes(stream.read(8), "little")
        if size < 8 or length > size - 8:
            raise UserError(f"{path}: its header claims {length} bytes, but the file has {size}; the file is truncated or no safetensors file")
        raw = stream.read(length)
    try:
        header = json.loads(raw)
        tensors = []
        for name, entry in header.items():
            if name == "__metadata__":
                continue
            begin, end = entry["data_offsets"]
            if not 0 <= begin <= end <= size - 8 - length:
                raise UserError(f"{path}: tensor {name!r} lies at bytes {begin} to {end} of {size - 8 - length}; the file is truncated")
            tensors.append(TensorInfo(name, str(entry["dtype"]), tuple(int(extent) for extent in entry["shape"]), end - begin, begin))
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise UserError(f"{path}: its header is not that of a safetensors file ({error!r})") from None
    return tensors


def read_json(path: Path) -> dict:
    try:
        value = json.loads(path.read_bytes())
    except (ValueError, RecursionError) as error:
        raise UserError(f"{path}: is not valid JSON ({error})") from None
    if not isinstance(value, dict):
        raise UserError(f"{path}: holds {type(value).__name__}, expected a JSON object")
    return value


def read_hugging_face(folder: Path) -> ModelInfo:
    config = read_json(folder / "config.json")
    index = folder / "model.safetensors.index.json"
    if index.is_file():
        mapping = read_json(index).get("weight_map")
        if not isinstance(mapping, dict):
            raise UserError(f"{index}: has no weight_map")
        names = sorted(set(mapping.values()))
        if bad := [name for name in names if not isinstance(name, str) or Path(name).name != name]:
            raise UserError(f"{index}: names the shard {bad[0]!r}, which is not a file name inside the folder")
    else:
        names = ["model.safetensors"]
    tensors = []
    for name in names:
        if not (folder / name).is_file():
            raise UserError(f"{folder / name}: the weights are missing; expected a safetensors file")
        tensors += read_safetensors_header(folder / name)
    properties = _properties_of_config(config)
    return ModelInfo(folder, "huggingface", properties, sorted(tensors, key=lambda tensor: tensor.name))


def lacks_weights(folder: Path) -> bool:
    """Is a Hugging Face folder one whose weights, or some of them, are not there? What else is wrong with it is for its readers to say."""
    if (folder / "model.safetensors").is_file():
        return False
    index = folder / "model.safetensors.index.json"
    if not index.is_file():
        return True
    mapping = read_json(index).get("weight_map")
    names = mapping.values() if isinstance(mapping, dict) else ()
    return any(isinstance(name, str) and not (folder / name).is_file() for name in names)


def _properties_of_config(config: dict) -> dict[str, object]:
    keys = {
        "architecture": ("model_type",),
        "layers": ("num_hidden_layers", "n_layer"),
        "hidden size": ("hidden_size", "n_embd"),
        "intermediate size": ("intermediate_size", "n_inner"),
        "heads": ("num_attention_heads", "n_head"),
        "kv heads": ("num_key_value_heads",),
        "context": ("max_position_embeddings", "n_positions"),
        "vocabulary": ("vocab_size",),
    }
    properties = {}
    for label, alternatives in keys.items():
        found = next((config[key] for key in alternatives if config.get(key) is not None), None)
        if found is not None:
            properties[label] = found
    return properties


def _gguf_tensor(header: GgufHeader, tensor: GgufTensor) -> TensorInfo:
    from gguf.constants import GGML_QUANT_SIZES, GGMLQuantizationType

    try:
        kind = GGMLQuantizationType(tensor.ggml_type)
    except ValueError:
        raise UserError(f"{header.path}: tensor {tensor.name!r} has the unknown type {tensor.ggml_type}; convert the model to a common one") from None
    block, block_bytes = GGML_QUANT_SIZES[kind]
    return TensorInfo(tensor.name, kind.name, tensor.shape, math.prod(tensor.shape) // block * block_bytes)


def read_gguf(path: Path) -> ModelInfo:
    header = read_gguf_header(path)
    fields = {key: value.tolist() if isinstance(value, np.ndarray) else value for key, value in header.fields.items()}
    tensors = [_gguf_tensor(header, tensor) for tensor in header.tensors]
    architecture = fields.get("general.architecture")
    keys = {
        "layers": "block_count",
        "hidden size": "embedding_length",
        "intermediate size": "feed_forward_length",
        "heads": "attention.head_count",
        "kv heads": "attention.head_count_kv",
        "context": "context_length",
        "vocabulary": "vocab_size",
    }
    properties = {"name": fields.get("general.name"), "architecture": architecture}
    properties |= {label: fields.get(f"{architecture}.{key}") for label, key in keys.items()}
    return ModelInfo(path, "gguf", {label: value for label, value in properties.items() if value is not None}, tensors)


def vocabulary_of(model: Path) -> int:
    """How many tokens a model knows: a Hugging Face folder or a GGUF file."""
    if Path(model).is_dir():
        file = Path(model) / "config.json"
        size = read_json(file).get("vocab_size")
        if type(size) is not int or size < 1:
            raise UserError(f"{file}: vocab_size: found {size!r}, expected a positive integer")
        return size
    header = read_gguf_header(model)
    for tensor in header.tensors:
        if tensor.name == "token_embd.weight" and len(tensor.shape) == 2:
            return tensor.shape[0]
    raise UserError(f"{model}: tensor 'token_embd.weight' of two dimensions is missing, expected in every model; convert it again from its checkpoint")


def context_of(model: Path) -> int | None:
    """How many tokens a sequence may have; None where the model does not say it as a number."""
    properties = _properties_of_config(read_json(model / "config.json")) if model.is_dir() else read_gguf(model).properties
    context = properties.get("context")
    return context if type(context) is int and context > 0 else None


def read_model(path: Path) -> ModelInfo:
    path = locate(Path(path))
    if path.is_dir():
        if not (path / "config.json").is_file():
            raise UserError(f"{path}: has neither manifest.json nor config.json; expected an artifact or a Hugging Face folder")
        return read_hugging_face(path)
    if not path.exists():
        raise UserError(f"{path}: there is no such file or folder; expected an artifact, a Hugging Face folder or a GGUF file{download_hint(path)}")
    return read_gguf(path)
