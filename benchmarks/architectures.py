#!/usr/bin/env python3
# Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Float artifacts of seeded checkpoints, small ones of the tests for each architecture, beside transformers and llama.cpp on the same numbers.

    .venv/bin/python benchmarks/architectures.py [--only NAME ...] [--oracle]

All read the same random tokens, more than windows of attention have, and go on for 64, each the likeliest one. transformers computes in f32, and
llama.cpp gets the checkpoint as a file of f32. The script prints a table of the relative RMS of our logits from theirs and of tokens that are
equal before one differs, and ends with status 1 where an RMS exceeds 1e-4 or a token differs.

llama.cpp takes GELU from a table of f16. The last column, of models with GELU alone, is what llama.cpp's logits differ from those of the numpy
oracle with that table. Such models hold beside llama.cpp where this is below the bound.

Assistants of Gemma 4 guess 4 tokens behind each of 16 texts. Guesses have to be those of both, and the oracle's logits within the bound.
transformers is asked twice: as it is, and with so many of the newest keys in layers with a window as the window has beside the token itself,
which is what llama.cpp sees. The first is for information.

With --oracle the numpy oracle in double precision, which tests compare artifacts with, takes the place of ours: nothing is compiled.

transformers and torch are installed into an environment of their own at first (some GB), and llama-cpp-python is built in another one.
"""

import argparse
import sys
import tempfile
from contextlib import ExitStack, contextmanager
from pathlib import Path
from unittest.mock import patch

import numpy as np
from easyquant.runtime.artifact import Artifact, load_model, open_session
from easyquant.runtime.extension import runtime
from peer import Worker, cache_folder, fail, peer_environment, transformers_environment

TESTS = Path(__file__).resolve().parent.parent / "test"
sys.path[:0] = [str(TESTS / "Inputs"), str(TESTS / "python")]
import test_architectures  # noqa: E402
import test_experts  # noqa: E402
import test_gated_delta  # noqa: E402
import test_gemma4  # noqa: E402
import test_gemma4_assistant  # noqa: E402
import test_gpt_oss  # noqa: E402
import test_recurrent  # noqa: E402
from helpers import (  # noqa: E402
    ISA, compile_model, random_gemma4, random_gemma4_assistant, random_gpt2, random_lfm2, random_llama, random_qwen35, random_tokens, write_gguf, write_model)
from make_checkpoint import CONV1D  # noqa: E402
from oracles.gates import gelu  # noqa: E402
from oracles.gemma4_assistant import Gemma4Assistant  # noqa: E402
from oracles.gpt2 import GPT2  # noqa: E402
from oracles.lfm2 import Lfm2  # noqa: E402
from oracles.llama import Llama  # noqa: E402
from oracles.qwen35 import Qwen35  # noqa: E402

LARGEST_RMS, PROMPT, CONTINUED = 1e-4, 160, 64
SIZES = {"vocab": 300, "context": PROMPT + CONTINUED}
# llama.cpp caps logits of Gemma 4 at 30 where a file says nothing of it.
CAP = {"final_logit_softcapping": 30.0}
# Makers of checkpoints, the tests' models that they make, and those of them that are tried, with what GGUF or llama.cpp has not of them.
TRIED = (
    (random_gemma4, test_gemma4.MODELS, {
        "shared projections": "", "E2B in small": "", "embeddings of layers": "", "experts": "", "experts, embeddings of layers": ""}),
    (random_llama, test_architectures.MODELS, {
        "mistral": "windows of mistral", "mistral, no window": "", "qwen2": "", "qwen3": "", "olmo2": "", "smollm3": "", "gemma2": "", "gemma3": "its pattern of windows",
        "gemma3, as GGUF has it": "", "granite": "", "phi3, a part of each head": "", "ministral": "windows of ministral", "ministral3": "", "olmo3": ""}),
    (random_llama, test_experts.MODELS, {"qwen3_moe": "", "mixtral": "", "qwen2_moe": ""}),
    (random_llama, test_gpt_oss.MODELS, {"stacks of floats": "ends of YaRN that are not truncated", "one of five, no YaRN": ""}),
    (random_lfm2, test_recurrent.MODELS, {"lfm2": "", "experts": ""}),
    (random_qwen35, test_gated_delta.MODELS, {"three value heads a key head": "values of other sizes than keys", "wide": ""}),
    (random_gpt2, {"gpt2": {}}, {"gpt2": ""}),
)
# Assistants: what the model is, and the assistant, and what llama.cpp has not of it.
PAIRS = test_gemma4_assistant.PAIRS
ASSISTANTS = {
    "plain": (*PAIRS["plain"], ""), "a narrow window": (*PAIRS["a narrow window"], ""),
    "E2B in small": (*PAIRS["E2B in small"], "clusters"), "E2B in small, no clusters": (PAIRS["E2B in small"][0], PAIRS["plain"][1], ""),
    "experts": (*PAIRS["experts"], "biases and heads of their own"), "experts, no biases": (PAIRS["experts"][0], PAIRS["plain"][1], ""),
}
TEXTS, GUESSES = [random_tokens(length, length, SIZES["vocab"]) for length in range(5, 85, 5)], 4


def relative_rms(found, expected):
    return float(np.linalg.norm(found.astype(np.float64) - expected) / np.linalg.norm(expected.astype(np.float64)))


def equal_tokens(ours, theirs):
    return next((at for at, pair in enumerate(zip(ours, theirs, strict=True)) if pair[0] != pair[1]), len(ours))


def gelu_of_table(x):
    """GELU as llama.cpp's CPU code has it."""
    with np.errstate(over="ignore"):  # of what the table is not asked for
        rounded = x.astype(np.float16).astype(x.dtype)
    return np.where(x <= -10, 0, np.where(x >= 10, x, gelu(np.clip(rounded, -10, 10)).astype(np.float16)))


@contextmanager
def table_of_gelu():
    """In it models of the oracle have llama.cpp's GELU."""
    with ExitStack() as patches:
        for name in ("oracles.llama.gelu", "oracles.experts.gelu", "oracles.gpt2.gelu_new", "oracles.gemma4_assistant.gelu"):
            patches.enter_context(patch(name, gelu_of_table))
        yield


def oracle_of(config, tensors):
    kinds = {"gpt2": GPT2, "lfm2": Lfm2, "lfm2_moe": Lfm2, "qwen3_5_text": Qwen35}
    return kinds.get(config["model_type"], Llama)(config, tensors, dtype=np.float64)


def of_oracle(made, tokens):
    """Logits of all tokens, and what comes behind them."""
    model, text = oracle_of(*made), list(tokens)
    logits = model.logits(text)
    while len(text) < len(tokens) + CONTINUED:
        text.append(int(model.logits(text)[-1].argmax()))
    return logits, text[len(tokens):]


def of_artifact(model, tokens, scratch, threads):
    """The same of a compiled model."""
    artifact = Artifact.open(compile_model(model, scratch / "float", "--scheme=none", f"--context={SIZES['context']}", ISA, timeout=None))
    session = open_session(load_model(artifact), threads=threads)
    logits = np.array(session.score(tokens))
    session.reset()
    session.prefill(tokens)
    found = []
    while len(found) < CONTINUED:
        found.append(int(session.logits.argmax()))
        session.decode(found[-1])
    return logits, found


def of_transformers(worker, model, tokens, scratch, threads):
    np.save(scratch / "tokens.npy", tokens)
    answer = worker.ask("judge", path=str(model), tokens=str(scratch / "tokens.npy"), count=CONTINUED, out=str(scratch / "theirs.npy"), threads=threads)
    return np.load(scratch / "theirs.npy"), answer["tokens"]


def of_llama_cpp(worker, made, tokens, scratch, threads):
    np.save(scratch / "windows.npy", tokens[None])
    config, tensors = made
    tensors = {name: weight.T if name.endswith(CONV1D) else weight for name, weight in tensors.items()}  # GPT-2's
    source, full = write_gguf(scratch / "source.gguf", config, tensors), scratch / "full.gguf"
    worker.ask("full", source=str(source), out=str(full))
    worker.ask("logits", path=str(full), windows=str(scratch / "windows.npy"), out=str(scratch / "theirs.npy"), threads=threads)
    answer = worker.ask("continue", path=str(full), tokens=tokens.tolist(), count=CONTINUED, threads=threads)
    return np.load(scratch / "theirs.npy")[0], answer["tokens"]


def compare(made, missing, peers, scratch, threads, by_oracle):
    """A row of the table, and whether it holds."""
    config, tensors = made
    model, tokens = write_model(scratch / "model", config, tensors), np.array(random_tokens(5, PROMPT, config["vocab_size"]), np.int32)
    logits, found = of_oracle(made, tokens) if by_oracle else of_artifact(model, tokens, scratch, threads)
    cells, holds = [], True
    theirs, others = of_transformers(peers["transformers"], model, tokens, scratch, threads)
    rms, same = relative_rms(logits, theirs), equal_tokens(found, others)
    cells += [f"{rms:.1e}", f"{same} of {CONTINUED}"]
    holds &= rms <= LARGEST_RMS and same == CONTINUED
    if missing:
        return [*cells, f"not in GGUF or llama.cpp: {missing}", "", ""], holds
    theirs, others = of_llama_cpp(peers["llama.cpp"], made, tokens, scratch, threads)
    rms, same, with_table = relative_rms(logits, theirs), equal_tokens(found, others), None
    if "gelu" in (config.get("hidden_activation") or config.get("activation_function") or ""):
        with table_of_gelu():
            with_table = relative_rms(theirs, oracle_of(config, tensors).logits(tokens))
    cells += [f"{rms:.1e}", f"{same} of {CONTINUED}", f"{with_table:.1e}" if with_table else ""]
    return cells, holds and (with_table or rms) <= LARGEST_RMS and (same == CONTINUED or with_table is not None)


def guesses_of_artifact(model, assistant, scratch, threads):
    artifact = Artifact.open(compile_model(model, scratch / "float", f"--assistant={assistant}", "--scheme=none", ISA, timeout=None))
    batch, found = runtime().Batch(load_model(artifact), sequences=1, threads=threads, drafts=True), []
    for text in TEXTS:
        sequence = batch.add()
        batch.append([(sequence, np.array(text[:-1], np.int32))])
        found.append([int(token) for token in batch.draft([(sequence, text[-1], GUESSES)])[0]])
        batch.remove(sequence)
    return found


def compare_guesses(found, theirs, logits, expected):
    """Cells of the table: relative RMS of the oracle's logits from theirs where both guess behind the same, and how many guesses are ours."""
    squares, norms, same = 0.0, 0.0, 0
    for text in range(len(TEXTS)):
        for at in range(GUESSES):
            among = np.isfinite(expected[text][at])
            squares += np.square(logits[text][at][among] - expected[text][at][among]).sum()
            norms += np.square(expected[text][at][among]).sum()
            if found[text][at] != theirs[text][at]:
                break
            same += 1
    return float((squares / norms) ** 0.5), same


def compare_assistants(of_model, of_assistant, missing, peers, scratch, threads, by_oracle):
    """A row of the table, and whether it holds."""
    made = random_gemma4(11, **of_model | SIZES)
    made_assistant = random_gemma4_assistant(12, made[0], **of_assistant)
    model, assistant = write_model(scratch / "model", *made), write_model(scratch / "assistant", *made_assistant)

    def expected():
        oracle = Gemma4Assistant(Llama(*made, dtype=np.float64), *made_assistant)
        return np.array([oracle.guesses(text[:-1], text[-1], GUESSES) for text in TEXTS])

    out, cells, holds, plain = scratch / "theirs.npy", [], True, expected()
    found = plain.argmax(-1) if by_oracle else guesses_of_artifact(model, assistant, scratch, threads)

    def add(answer, expected, bound):
        nonlocal holds
        rms, same = compare_guesses(found, answer["tokens"], np.load(out), expected)
        cells.extend((f"{rms:.1e}", f"{same} of {len(TEXTS) * GUESSES}"))
        holds &= not bound or (rms <= LARGEST_RMS and same == len(TEXTS) * GUESSES)

    request = {"texts": TEXTS, "count": GUESSES, "out": str(out), "threads": threads}
    for window in (None, made_assistant[0]["text_config"]["sliding_window"] - 1):
        answer = peers["transformers"].ask("guesses", path=str(model), assistant=str(assistant), window=window, **request)
        add(answer, plain, bound=window is not None)
    if missing:
        return [*cells, f"not in llama.cpp: {missing}", ""], holds
    source, full, drafter = write_gguf(scratch / "source.gguf", *made), scratch / "full.gguf", scratch / "assistant.gguf"
    worker = peers["llama.cpp's assistant"]
    worker.ask("full", source=str(source), out=str(full))
    worker.ask("assistant", source=str(assistant), model=str(full), out=str(drafter))
    answer = worker.ask("guesses", path=str(full), assistant=str(drafter), **request)
    with table_of_gelu():
        add(answer, expected(), bound=True)
    return cells, holds


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", metavar="NAME", help="only checkpoints whose architecture or name has one of these in it")
    parser.add_argument("--oracle", action="store_true", help="the numpy oracle in the place of compiled models")
    parser.add_argument("--threads", type=int, default=1, metavar="N", help="threads of each (1: the models are small)")
    parser.add_argument("--cache", type=Path, help="where the peers' environments are kept")
    args = parser.parse_args()
    cases = [(make, models[name], name, missing) for make, models, names in TRIED for name, missing in names.items()]
    cache = cache_folder(args.cache)
    peers = {"transformers": Worker(transformers_environment(cache), "transformers_judge.py")}
    peers |= {name: Worker(peer_environment(cache), script) for name, script in (("llama.cpp", "llama_cpp_judge.py"), ("llama.cpp's assistant", "llama_cpp_drafts.py"))}
    print(f"transformers {peers['transformers'].ask('describe')['version']}, llama-cpp-python {peers['llama.cpp'].ask('describe')['version']}\n")
    print("| architecture | checkpoint | transformers: relative RMS | equal tokens | llama.cpp: relative RMS | equal tokens | with its GELU |\n|---|---|---|---|---|---|---|")
    tried, missed = 0, False

    def row(architecture, name, compared, *arguments):
        nonlocal tried, missed
        if args.only and not any(part in f"{architecture} {name}" for part in args.only):
            return
        with tempfile.TemporaryDirectory() as scratch:
            cells, holds = compared(*arguments, peers, Path(scratch), args.threads, args.oracle)
        print(f"| `{architecture}` | {name} | {' | '.join(cells)} |", flush=True)
        tried, missed = tried + 1, missed | (not holds)

    for make, fields, name, missing in cases:
        made = make(11, **(CAP if make is random_gemma4 else {}) | fields | SIZES)
        row(made[0]["model_type"], name, compare, made, missing)
    print("\n| architecture | checkpoint | transformers as it is: relative RMS | equal guesses | its windows cut: relative RMS | equal guesses | "
          "llama.cpp: relative RMS | equal guesses |\n|---|---|---|---|---|---|---|---|")
    for name, (of_model, of_assistant, missing) in ASSISTANTS.items():
        row("gemma4_assistant", name, compare_assistants, of_model, of_assistant, missing)
    for worker in peers.values():
        worker.close()
    if tried == 0:
        fail(f"no checkpoint has a name with {' or '.join(args.only)} in it")
    sys.exit(1 if missed else 0)


if __name__ == "__main__":
    main()
