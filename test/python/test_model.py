# Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""easyquant.Model on real artifacts, against the runtime's sessions."""

import subprocess
import sys
import threading

import numpy as np
import pytest

import easyquant
from easyquant.support.errors import UserError
from helpers import Runner

PROMPTS = ["abc", "The quick brown fox", "x", "Zebra!", "0123456789" * 9, "abc", "What?", "{}[]()"]


@pytest.fixture(scope="module")
def folder(letters):
    return letters("--scheme=W8A8")


@pytest.fixture(scope="module")
def model(folder):
    with easyquant.Model(folder, threads=2, sequences=3) as model:
        yield model


@pytest.fixture(scope="module")
def session(folder):
    return Runner(folder, threads=2)


def test_the_package_shows_it_and_loads_it_late():
    assert {"Model", "Completion", "Score", "UserError"} <= set(dir(easyquant)) and easyquant.UserError is UserError
    loaded = "import sys, easyquant; assert easyquant.__version__; print('numpy' in sys.modules, 'tokenizers' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", loaded], capture_output=True, text=True, check=True).stdout.split() == ["False", "False"]
    with pytest.raises(AttributeError, match="has no attribute 'Modell'"):
        easyquant.Modell


def test_generates_what_a_session_would(model, session):
    tokens = model.encode("abc")
    assert model.decode(tokens) == "abc"
    completion = model.generate("abc", max_tokens=20)
    assert completion.tokens == session.greedy(tokens, 20)[len(tokens) :] and completion.finish_reason == "length"
    assert completion.text == str(completion) == model.decode(completion.tokens) and completion.prompt_tokens == 3
    assert model.generate(tokens, max_tokens=20) == model.generate(np.array(tokens), max_tokens=20) == completion
    # Every token can end a text. A generation that ends before its limit does so at the end token.
    ended = next(done for done in (model.generate("abc", temperature=9.0, seed=seed) for seed in range(99)) if done.finish_reason == "stop")
    assert len(ended.tokens) < 128 and 2 not in ended.tokens


@pytest.mark.parametrize("options", [{}, {"temperature": 1.5, "seed": 3}, {"temperature": 4.0, "seed": 5, "top_k": 20, "top_p": 0.9}])
def test_several_prompts_are_each_what_they_are_alone(model, options):
    together = model.generate(PROMPTS, max_tokens=25, **options)
    assert together == [model.generate(prompt, max_tokens=25, **options) for prompt in PROMPTS]
    assert len({completion.text for completion in together}) > 3 and together[0] == together[5]
    assert model.generate([], **options) == []


def test_no_seed_is_another_one_for_each(model):
    drawn = model.generate(["abc"] * 4, max_tokens=25, temperature=4.0)
    assert len({completion.text for completion in drawn}) == 4
    assert model.generate("abc", max_tokens=25, temperature=4.0, seed=drawn[2].seed) == drawn[2]


def test_streams_the_same_text(model):
    pieces = list(model.stream("abc", max_tokens=20))
    assert "".join(pieces) == model.generate("abc", max_tokens=20).text and len(pieces) > 10
    one, other = model.stream("abc", max_tokens=20), model.stream("Zebra!", max_tokens=20)
    both = [next(one) + next(other) for _ in range(5)]
    assert "".join(piece[0] for piece in both) == "".join(pieces[:5])


def test_ends_before_a_stop(model):
    text = model.generate("abc", max_tokens=20).text
    stopped = model.generate("abc", max_tokens=20, stop=["never there", text[5:8]])
    assert stopped.text == text[: text.index(text[5:8])] and stopped.finish_reason == "stop"


def test_a_chat_goes_through_the_template(model):
    assert model.decode(model.encode("Hi", chat=True)) == "u(Hi)a("
    messages = [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Ho"}, {"role": "user", "content": "Hey"}]
    assert model.decode(model.encode(messages)) == "u(Hi)a(Ho)u(Hey)a("
    assert model.generate(messages[:1], max_tokens=9) == model.generate("Hi", max_tokens=9, chat=True)
    assert model.generate([messages, messages[:1]], max_tokens=9)[1] == model.generate("Hi", max_tokens=9, chat=True)


def test_logits_and_scores(model, session):
    tokens = model.encode("The quick brown fox")
    logits = model.logits(tokens)
    assert logits.dtype == np.float32 and np.array_equal(logits, session.score(tokens))
    score = model.score("The quick brown fox")
    rows = logits[:-1].astype(np.float64)
    expected = rows[np.arange(len(rows)), tokens[1:]] - np.log(np.exp(rows).sum(axis=1))
    np.testing.assert_allclose(score.log_probabilities, expected, atol=1e-5)
    assert score.tokens == tokens and score.total == pytest.approx(expected.sum(), rel=1e-6)
    assert score.perplexity == pytest.approx(np.exp(-expected.mean()), rel=1e-6)


def test_an_answer_ends_where_the_context_does(folder):
    with easyquant.Model(folder, context=30) as small:
        assert small.context == 30
        completion = small.generate("a" * 20, temperature=3.0, seed=1)
        assert completion.finish_reason == "stop" or len(completion.tokens) == 11
        with pytest.raises(UserError, match=r"prompt: has 31 tokens, but the context of .* is 30; shorten it"):
            small.generate("a" * 31)


@pytest.mark.parametrize("prompt, options, words", [
    ("", {}, None), ([], {}, None), (5, {}, "prompt: found 5, expected a text, a list of token ids"), (None, {}, "prompt: found None"),
    ([1, -1], {}, r"prompt: token 1: found -1, expected an id from 0 to 96"), ([1, 97], {}, "token 1: found 97"), ([1, "a"], {}, "token 1: found 'a'"),
    (np.zeros((2, 2), np.int32), {}, "token 0"), (np.zeros(0, np.int32), {}, "holds no token"),
    ([{"role": "user"}], {}, 'message 0: found .* expected an object with the texts "role" and "content"'),
    ("a", {"max_tokens": 0}, "max_tokens: found 0, expected a whole number of at least 1"), ("a", {"max_tokens": 2.5}, "max_tokens"),
    ("a", {"temperature": -1}, "temperature: found -1, expected a number of at least 0"), ("a", {"temperature": "hot"}, "temperature: found 'hot'"),
    ("a", {"temperature": float("nan")}, "temperature"), ("a", {"top_k": -1}, "top_k: found -1"), ("a", {"top_p": 0}, "top_p: found 0"),
    ("a", {"seed": -1}, "seed: found -1"), ("a", {"seed": True}, "seed: found True"), ("a", {"stop": ""}, "stop: found ''"),
    ("a", {"stop": [1]}, r"stop: found \[1\]"), ("a", {"chat": 1}, "chat: found 1"), ("\ud800", {}, "surrogates"),
])  # fmt: skip
def test_mistakes(model, prompt, options, words):
    if words is None:  # An empty text is the beginning-of-text token; no prompts have no completions.
        assert model.generate(prompt, max_tokens=2) is not None
        return
    with pytest.raises(UserError, match=words):
        model.generate(prompt, **options)


def test_one_mistake_among_several_is_that_ones(model):
    completions = model.generate(["abc", "a" * 161, [1, 99], "Zebra!"], max_tokens=5)
    assert [completion.finish_reason for completion in completions] == ["length", "error", "error", "length"]
    assert "161 tokens, but the context" in completions[1].error and "found 99" in completions[2].error
    assert completions[0] == model.generate("abc", max_tokens=5)


@pytest.mark.parametrize("options, words", [
    ({"device": "abacus"}, "abacus"), ({"context": 161}, "context: found 161, expected 1 to 160"), ({"context": -1}, "context: found -1"),
    ({"sequences": 0}, "sequences: found 0"), ({"threads": -1}, "threads: found -1"),
])  # fmt: skip
def test_what_cannot_be_opened(folder, options, words):
    with pytest.raises(UserError, match=words):
        easyquant.Model(folder, **options)


def test_no_artifact(tmp_path):
    with pytest.raises(UserError, match="has neither manifest.json nor config.json; expected an artifact, a Hugging Face folder or a GGUF file"):
        easyquant.Model(tmp_path)


def test_too_many_threads_are_refused(folder):
    with pytest.raises(UserError, match="threads: found 100000, expected"):
        easyquant.Model(folder, threads=100_000).generate("a")


def test_a_closed_model_says_so(folder):
    with easyquant.Model(folder) as model:
        assert "W8A8" in repr(model) and model.device == "cpu" and model.vocabulary == 97
        stream = model.stream("abc")
        next(stream)
    assert "closed" in repr(model) and next(stream)
    for call in (model.generate, model.stream, model.logits, model.score):
        with pytest.raises(UserError, match="the model was closed"):
            call("abc")


def test_threads_of_python_share_a_model(model):
    expected = [model.generate(prompt, max_tokens=20) for prompt in PROMPTS]
    found = [None] * len(PROMPTS)

    def work(number):
        found[number] = model.generate(PROMPTS[number], max_tokens=20)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(len(PROMPTS))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == expected


def test_on_a_simulated_gpu(letters):
    """Several prompts of different lengths in one step; each is what it is alone, and as likely as on a CPU."""
    folder = letters("--scheme=W8A8", "--target=sm_80,cpu", "--isa=avx2")
    prompts = ["abc", "Zebra!", "x" * 20]
    with easyquant.Model(folder, device="simt", sequences=2) as gpu, easyquant.Model(folder, device="cpu") as cpu:
        assert gpu.device == "simulated sm_80"
        together = gpu.generate(prompts, max_tokens=3)
        assert together == [gpu.generate(prompt, max_tokens=3) for prompt in prompts]
        assert gpu.score("Zebra!").total == pytest.approx(cpu.score("Zebra!").total, rel=0.02)
