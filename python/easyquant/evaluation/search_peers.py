# Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Other tools' GGUF files of the model that `easyquant search` looks at: are they of it, how large, and what do they lose."""

import math
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import numpy as np
from safetensors.numpy import load_file

from easyquant.compiler.calibration import CalibrationText, tokens_of
from easyquant.compiler.driver import run_compiler, tokenizer_files
from easyquant.compiler.plans import Plans, read_plans
from easyquant.evaluation import llama_cpp_speed
from easyquant.evaluation.evaluate import CHUNK_ROWS, Evaluated, reference_artifact
from easyquant.evaluation.metrics import compare
from easyquant.formats.gguf_header import read_gguf_header
from easyquant.formats.model_files import read_gguf, vocabulary_of
from easyquant.runtime.artifact import Artifact
from easyquant.runtime.logits import token_losses
from easyquant.support.errors import UserError
from easyquant.support.files import scratch_folder
from easyquant.terminal import console
from easyquant.text.tokenizer import SAME_TOKENS, load_tokenizer

# What the compiler says of a model's shape, and what the header of a GGUF calls it.
SHAPE = {
    "architecture": "architecture", "num_layers": "layers", "hidden_size": "hidden size", "intermediate_size": "intermediate size",
    "num_heads": "heads", "num_kv_heads": "kv heads",
}  # fmt: skip


@dataclass(frozen=True)
class Peer:
    """A file, as the page shows it."""

    name: str
    bytes: int  # of its tensors
    loss: float | None = None  # the search's objective on its samples, nats a token
    perplexity: float | None = None
    unread: str | None = None  # why it cannot be run here
    # On llama.cpp, where that was asked for and is installed.
    prefill_tokens_per_s: float | None = None
    decode_tokens_per_s: float | None = None
    version: str | None = None


def refuse(peer: Path, what: str, found: object, expected: object) -> None:
    raise UserError(f"--peer {peer}: {what}: found {found}, the model has {expected}; give a file of the same model")


def tokens_in_common(peer: Path, model: Path) -> float | None:
    """The share of the tokenizer's tokens that have the same number in the file. None where one of them has no tokens."""
    names = read_gguf_header(peer).fields.get("tokenizer.ggml.tokens")
    with tokenizer_files(model) as files:
        folder = next((file.parent for file in files if file.name == "tokenizer.json"), None)
        if folder is None or not isinstance(names, list):
            return None
        known = load_tokenizer(folder, vocabulary_of(model)).vocabulary()
    return sum(number < len(names) and names[number] == token for token, number in known.items()) / max(1, len(known))


def check_peer(path: Path, model: Path, plans: Plans) -> Peer:
    """By what its header says. UserError where it is of another model."""
    info = read_gguf(path)
    for key, label in SHAPE.items():
        found = info.properties.get(label)
        found = found[0] if isinstance(found, list) and len(set(found)) == 1 else found
        # What is missing is as many as there are heads.
        if found is None and label == "kv heads":
            found = info.properties.get("heads")
        if found != plans.model[key]:
            refuse(path, label, found, plans.model[key])
    if (found := vocabulary_of(path)) != plans.model["vocab_size"]:
        refuse(path, "vocabulary", f"{found} tokens", plans.model["vocab_size"])
    common = tokens_in_common(path, model)
    if common is not None and common < SAME_TOKENS:
        refuse(path, "tokenizer", f"the same number for {common:.0%} of the tokens", "others")
    peer = Peer(path.stem, sum(tensor.bytes for tensor in info.tensors))
    try:
        shape = read_plans(path, ["--scheme=none"]).model
    except UserError as error:
        return replace(peer, unread=str(error))
    # Shapes of tensors, the width of heads among them: the compiler has checked them against each other.
    for key in ("head_dim", "parameters"):
        if shape[key] != plans.model[key]:
            refuse(path, key.replace("_", " "), shape[key], plans.model[key])
    return peer


def check_peers(paths: list[Path], model: Path, plans: Plans) -> dict[Path, Peer]:
    names = [path.stem for path in paths]
    if len(set(names)) < len(names):
        raise UserError(f"--peer: {', '.join(names)}: expected files of different names, by which the page tells them apart")
    return {path: check_peer(path, model, plans) for path in paths}


def losses_of(subject: Evaluated, reference: Evaluated, windows: np.ndarray, uncounted: int) -> tuple[float, float, float]:
    """Mean KL divergence over all positions but the first `uncounted` of a window, and both models' mean loss of the next token."""
    divergences: list[np.ndarray] = []
    losses: tuple[list[np.ndarray], list[np.ndarray]] = ([], [])
    for window in windows:
        for side in (subject, reference):
            side.session.reset()
        for begin in range(0, len(window), CHUNK_ROWS):
            chunk, targets = window[begin : begin + CHUNK_ROWS], window[begin + 1 : begin + CHUNK_ROWS + 1]
            logits = [side.logits(chunk) for side in (subject, reference)]
            first = max(0, uncounted - begin)
            divergences.append(compare(logits[0][first:], logits[1][first:]).kl)
            for collected, values in zip(losses, logits):
                collected.append(token_losses(values[first : len(targets)], targets[first:]))
    return float(np.concatenate(divergences).mean()), *(float(np.concatenate(collected).mean()) for collected in losses)


def windows_of(model: Path, text: CalibrationText, samples: int) -> np.ndarray:
    """[samples, length]: the tokens that a search on the text measures losses on."""
    with tokens_of(model, text) as file:
        return load_file(file)["tokens"][:samples]


def measure_peers(peers: dict[Path, Peer], model: Path, text: CalibrationText, samples: int, objective: str, threads: int) -> list[Peer]:
    """Runs those that can be read as float models, on the samples that the search has measured losses on."""
    if all(peer.unread for peer in peers.values()):
        return list(peers.values())
    windows = windows_of(model, text, samples)
    measured = []
    with reference_artifact(model) as artifact:
        reference = Evaluated.open(artifact, text.length, threads)
        for path, peer in peers.items():
            if not peer.unread:
                console.note(f"running {path.name}")
                with scratch_folder() as folder:
                    # Such files may lack the tokenizer, which nothing here needs.
                    run_compiler([str(path), "-o", str(folder / "float"), "--scheme=none"])
                    subject = Evaluated.open(Artifact.open(folder / "float"), text.length, threads)
                    divergence, loss, exact = losses_of(subject, reference, windows, int(text.bos))
                peer = replace(peer, loss=divergence if objective == "kl" else loss - exact, perplexity=math.exp(loss))
            measured.append(peer)
    return measured


def with_speeds(peers: list[Peer], files: list[Path], prefill: int, decode: int, threads: int, rounds: int) -> list[Peer]:
    """As llama.cpp runs the files."""
    measured = []
    for peer, file in zip(peers, files, strict=True):
        console.note(f"measuring {file.name} on llama.cpp")
        measured.append(replace(peer, **llama_cpp_speed.measure_apart(file, prefill, decode, threads, rounds)))
    return measured


def as_json(peers: list[Peer]) -> list[dict]:
    return [{key: value for key, value in asdict(peer).items() if value is not None} for peer in peers]
