# Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""`easyquant eval`: what the compiled artifact makes of a text, alone and against a reference."""

import contextlib
import functools
import hashlib
import pickle
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

import numpy as np

from easyquant.compiler.compile import compile_model
from easyquant.compiler.options import CompileOptions
from easyquant.evaluation.choices import answer_questions, read_questions
from easyquant.evaluation.likelihoods import Scorer
from easyquant.evaluation.metrics import Scores, compare
from easyquant.evaluation.protocol import Corpus, check_context, evaluation_stamp, machine_stamp, source_stamp
from easyquant.runtime.artifact import Artifact, is_artifact, load_model, open_session
from easyquant.runtime.device import AUTO, Placement
from easyquant.runtime.extension import runtime
from easyquant.runtime.logits import token_losses
from easyquant.support.errors import UserError
from easyquant.support.files import scratch_folder, sha256
from easyquant.terminal import console
from easyquant.text.tokenizer import SAME_TOKENS, Tokenizer, load_tokenizer

# Rows of logits at a time: 50 MB of fp32 for a vocabulary of 49,152.
CHUNK_ROWS = 256


class KVProtocol(str, Enum):
    """How the tokens of a window come to the artifact. A call attends to its own tokens in float, whatever the cache is."""

    prefill = "prefill"  # CHUNK_ROWS at a time
    decode = "decode"  # one by one, or --kv-chunk at a time


@dataclass
class Evaluated:
    """An artifact, open for scoring."""

    artifact: Artifact
    model: object
    session: object
    step: int = CHUNK_ROWS  # tokens a call

    @classmethod
    def open(cls, artifact: Artifact, context: int, threads: int, step: int = CHUNK_ROWS, place: Placement = AUTO) -> "Evaluated":
        model = load_model(artifact, place=place)
        return cls(artifact, model, open_session(model, context=context, threads=threads), step)

    def logits(self, tokens: np.ndarray) -> np.ndarray:
        """The logits of every token, which are appended to the session."""
        parts = [self.session.score(tokens[begin : begin + self.step]) for begin in range(0, len(tokens), self.step)]
        result = parts[0] if len(parts) == 1 else np.concatenate(parts)
        # An artifact that yields NaN or infinity has no perplexity, and a mean would hide where it happened.
        if not np.isfinite(result).all():
            raise UserError(f"{self.artifact.shown}: produced logits that are not finite; compile the artifact again and report this")
        return result


def score_windows(
    subject: Evaluated, reference: Evaluated | None, windows: np.ndarray, advance: Callable[[int], None] = lambda tokens: None
) -> Scores:
    """Scores tokens 1 … n−1 of every window; each window starts from an empty session at position 0."""
    scores = Scores()
    sides = [side for side in (subject, reference) if side is not None]
    for window in windows:
        for side in sides:
            side.session.reset()
        inputs, targets = window[:-1], window[1:]
        losses: list[list[np.ndarray]] = [[] for _ in sides]
        for begin in range(0, len(inputs), CHUNK_ROWS):
            chunk, wanted = inputs[begin : begin + CHUNK_ROWS], targets[begin : begin + CHUNK_ROWS]
            logits = [side.logits(chunk) for side in sides]
            for collected, values in zip(losses, logits):
                collected.append(token_losses(values, wanted))
            if reference is not None:
                scores.add_comparison(compare(logits[0], logits[1]))
            advance(len(chunk))
        scores.add_window(*(np.concatenate(collected) for collected in losses))
    return scores


def score_on_ranks(joined, subject: Evaluated, reference: Evaluated | None, windows: np.ndarray, advance: Callable[[int], None]) -> Scores:
    """The same, each window by one of the ranks in turn."""
    own = [score_windows(subject, reference, windows[i : i + 1], advance) for i in range(joined.rank, len(windows), joined.size)]
    parts = [pickle.loads(part) for part in joined.gather(pickle.dumps(own))]
    scores = Scores()
    for i in range(len(windows)):
        scores.extend(parts[i % joined.size][i // joined.size])
    return scores


def agree(joined, windows: np.ndarray, protocol: str, *sides: Evaluated | None) -> None:
    """What figures depend on must be the same on every rank."""
    subjects = [("the windows of the text", f"{windows.shape} {hashlib.sha256(windows.tobytes()).hexdigest()}"), ("the protocol", protocol)]
    for name, side in zip(("artifact", "reference"), sides):
        if side is not None:
            subjects += [(f"the {name}", sha256(side.artifact.path / "manifest.json")), (f"what runs the {name}", f"{side.model.device} {side.model.isa}")]
    joined.agree(subjects)


def calls_of_window(inputs: int, step: int) -> list[tuple[int, int]]:
    """Begin and end of the calls in which `score_windows` brings the tokens of a window to an artifact."""
    chunks = ((begin, min(begin + CHUNK_ROWS, inputs)) for begin in range(0, inputs, CHUNK_ROWS))
    return [(begin, min(begin + step, end)) for start, end in chunks for begin in range(start, end, step)]


def share_past_codes(scheme: dict, inputs: int, step: int) -> float:
    """How many of a window's tokens attend to codes of the KV cache.

    A call does once it begins behind the sinks and a whole float window (include/easyquant/Numerics/KVCache.h).
    """
    floats = scheme["sinks"] + scheme["residual"]
    return sum(end - begin for begin, end in calls_of_window(inputs, step) if begin >= floats) / inputs


def describe_past_codes(share: float, artifact: Artifact, context: int, step: int) -> str:
    if share:
        return f"{share:.0%} of the tokens attended to codes, the others to the float part alone"
    return f"nothing was quantized: no token of a window of {context}, {step} a call, attended to codes of this cache ({artifact.describe_cache()})"


def check_vocabularies(artifact: Artifact, reference: Artifact) -> None:
    ours, theirs = artifact.model["vocab_size"], reference.model["vocab_size"]
    if ours != theirs:
        raise UserError(f"--reference {reference.shown}: its vocabulary has {theirs} tokens, that of {artifact.path} {ours}; compare artifacts of one model")


def check_comparable(artifact: Artifact, reference: Artifact, tokenizer: Tokenizer, corpus: Corpus, bos_token: int | None) -> None:
    """Two artifacts are compared token by token, so both must read the text as the same tokens, and mean the same by them.

    Their files may differ: a GGUF's tokenizer is written anew.
    """
    if sha256(artifact.path / "tokenizer.json") == sha256(reference.path / "tokenizer.json"):
        return
    other = load_tokenizer(reference.path, reference.model["vocab_size"])
    ours, theirs = tokenizer.vocabulary(), other.vocabulary()
    common = sum(theirs.get(token) == number for token, number in ours.items()) / max(1, len(ours))
    if common < SAME_TOKENS:
        raise UserError(
            f"--reference {reference.shown}: its tokenizer gives {common:.0%} of the tokens the numbers that they have in {artifact.path}; "
            "compare artifacts of one model"
        )
    if not np.array_equal(corpus.tokens, Corpus.read(corpus.path, other, bos_token).tokens):
        raise UserError(f"--reference {reference.shown}: its tokenizer makes other tokens of {corpus.path} than that of {artifact.path}; compare artifacts of one model")


@contextlib.contextmanager
def reference_artifact(path: Path):
    """The artifact at `path`, or one compiled as float from the model at `path` for as long as it is needed."""
    if is_artifact(path):
        yield Artifact.open(path)
        return
    with scratch_folder() as folder:
        output = folder / "float"
        compile_model(path, output, CompileOptions(scheme="none"))
        yield Artifact.open(output, origin=path)


def describe_reference(reference: Artifact) -> str:
    """With the data type that the reference computes in."""
    dtype = "float32" if reference.scheme == "none" else reference.scheme
    name = f"{reference.origin.name}, compiled as float" if reference.origin else reference.describe()
    return f"{name}; computed in {dtype}"


def evaluate(
    artifact: Artifact,
    text: Path,
    context: int | None = None,
    max_windows: int | None = None,
    reference: Artifact | None = None,
    bos: bool = False,
    split: str = "whole file",
    threads: int = 0,
    title: str | None = None,
    kv_protocol: KVProtocol = KVProtocol.prefill,
    kv_chunk: int = 1,
    place: Placement = AUTO,
    joined=None,
) -> dict:
    """The figures of `metrics.Scores` with the protocol's stamp under "protocol"; the same on every rank of `joined` (Ranks.joined)."""
    context = check_context(artifact, context)
    bos_token = artifact.model.get("bos_token_id")
    if bos and bos_token is None:
        raise UserError(f"--bos: {artifact.path} has no beginning-of-text token")
    if reference is not None:
        check_vocabularies(artifact, reference)
        check_context(reference, context)
    with console.err.status(f"tokenizing {text.name}"):
        tokenizer, first = load_tokenizer(artifact.path, artifact.model["vocab_size"]), int(bos_token) if bos else None
        corpus = Corpus.read(text, tokenizer, first, split)
        if reference is not None:
            check_comparable(artifact, reference, tokenizer, corpus, first)
    windows = corpus.windows(context, max_windows)

    step = kv_chunk if kv_protocol == KVProtocol.decode else CHUNK_ROWS
    subject = Evaluated.open(artifact, context, threads, step, place)
    # A float cache gives the same logits however the tokens come.
    other_step = step if reference is not None and reference.cache_scheme else CHUNK_ROWS
    other = Evaluated.open(reference, context, threads, other_step, place.of_reference(reference)) if reference is not None else None
    joined = joined or runtime().Ranks("none")
    with console.progress() as bar:
        own = len(range(joined.rank, len(windows), joined.size))
        task = bar.add_task(title or "evaluating", total=own * (context - 1))
        try:
            agree(joined, windows, f"{step} {other_step}", subject, other)
            scores = score_on_ranks(joined, subject, other, windows, lambda tokens: bar.advance(task, tokens))
        except runtime().Error as error:
            raise UserError(str(error)) from None
    stamp = evaluation_stamp(
        artifact,
        subject.model,
        threads,
        corpus,
        context,
        len(windows),
        describe_reference(reference) if reference is not None else None,
    )
    stamp["kv_protocol"] = f"{kv_protocol.value}: {step} token{'s' if step > 1 else ''} a call, which attend to the cache, and to each other in float"
    figures = scores.figures()
    if artifact.cache_scheme:
        figures["kv_codes_share"] = share_past_codes(artifact.cache_scheme, context - 1, step)
        stamp["kv_codes"] = describe_past_codes(figures["kv_codes_share"], artifact, context, step)
    return figures | {"protocol": stamp}


def evaluate_choices(
    artifact: Artifact, file: Path, context: int | None = None, split: str = "whole file", threads: int = 0, place: Placement = AUTO
) -> dict:
    """Accuracy on multiple-choice questions, with the protocol's stamp."""
    context = artifact.max_context if context is None else check_context(artifact, context)
    questions = read_questions(file)
    scorer = Scorer(artifact, context, threads, place)
    encode = functools.partial(scorer.reader.tokenizer.encode, add_special_tokens=False)
    with contextlib.closing(scorer), console.progress() as bar:
        task = bar.add_task("answering", total=sum(len(question.choices) for question in questions))
        likelihoods = functools.partial(scorer.likelihoods, advance=lambda: bar.advance(task))
        tally = answer_questions(likelihoods, encode, questions, artifact.model.get("bos_token_id"), context)
    stamp = machine_stamp(artifact, scorer.model, threads) | source_stamp(artifact) | {
        "corpus": file.name,
        "corpus_sha256": sha256(file),
        "split": split,
        "bos": "only where a question has no context",
        "context": context,
        "scoring": "log-likelihood of each choice after the context; normalized: per byte of the choice",
        "intervals": "95 %, Wilson",
    }  # fmt: skip
    return tally.figures() | {"protocol": stamp}
