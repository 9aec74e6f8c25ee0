# Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""easyquant.Model in an event loop, and conversations, which keep their pages from turn to turn."""

import asyncio
import contextlib
import time

import pytest

import easyquant
from easyquant.support.errors import UserError
from helpers import random_llama, write_letters, write_model

PROMPTS = ["abc", "The-quick-brown-fox", "x", "Zebra!", "0123456789" * 9]


@pytest.fixture(scope="module")
def model(tmp_path_factory, artifact):
    folder = write_letters(write_model(tmp_path_factory.mktemp("conversations") / "letters", *random_llama(seed=11, context=600)))
    with easyquant.Model(artifact(folder, "--scheme=W8A8", *(f"--copy-file={folder / name}" for name in ("tokenizer.json", "tokenizer_config.json"))), threads=2, sequences=3) as model:
        yield model


def figures(model):
    """What its engine says of itself, once it has nothing to do."""
    end = time.monotonic() + 20
    while model._engine.figures.running and time.monotonic() < end:
        time.sleep(0.005)
    return model._engine.figures


def test_a_loop_gets_what_a_thread_does(model):
    options = {"max_tokens": 25, "temperature": 1.5, "seed": 3, "logprobs": 2}

    async def ask():
        ticks = 0

        async def tick():
            nonlocal ticks
            while True:
                ticks += 1
                await asyncio.sleep(0)

        ticking = asyncio.create_task(tick())
        several = asyncio.create_task(model.agenerate(PROMPTS, **options))
        ones = await asyncio.gather(*(model.agenerate(prompt, **options) for prompt in PROMPTS))
        streamed = [piece async for piece in model.astream("abc", **options)]
        score = await model.ascore("abc" * 9)
        found = await several, list(ones), streamed, score
        ticking.cancel()
        return *found, ticks

    several, ones, streamed, score, ticks = asyncio.run(ask())
    assert several == ones == model.generate(PROMPTS, **options) and ones[0].logprobs
    assert "".join(streamed) == ones[0].text and len(streamed) > 10 and ticks > 10, "the loop went on"
    assert score.total == model.score("abc" * 9).total


def test_who_is_cancelled_frees_its_pages(model):
    async def ask():
        task = asyncio.create_task(model.agenerate(["ab" * 40] * 3, max_tokens=450, logit_bias={2: -1e6}))
        while not (model._engine and model._engine.figures.running == 3):
            await asyncio.sleep(0.002)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        async for piece in model.astream("xyz", max_tokens=450, logit_bias={2: -1e6}):
            return  # the loop closes what was left in the middle

    asyncio.run(ask())
    found = figures(model)
    assert found.running == found.waiting == 0 and found.free_pages * 64 >= found.pages * 64 - found.kept_tokens


def test_errors_and_limits_of_a_call(model):
    async def refused(match, *arguments, **options):
        with pytest.raises(UserError, match=match):
            await model.agenerate(*arguments, **options)

    asyncio.run(refused("temperature: found -1", "abc", temperature=-1))
    asyncio.run(refused("priority: found 'high', expected a whole number", "abc", priority="high"))
    asyncio.run(refused("timeout: found 0, expected a number of seconds above 0", "abc", timeout=0))
    asyncio.run(refused("found the option 'temperatures', expected max_tokens, .*; did you mean temperature?", "abc", temperatures=1))
    asyncio.run(refused("was not done by its deadline", "abc", timeout=1e-6, max_tokens=450))
    with pytest.raises(UserError, match="was not done by its deadline"):
        list(model.stream("abc", timeout=1e-6, max_tokens=450, priority=3))
    assert model.generate("abc", max_tokens=3, timeout=60, priority=1).error is None


def test_a_turn_reads_what_is_new(model):
    chat = model.chat(max_tokens=70, logit_bias={2: -1e6})
    first = chat.send("a" * 100)
    assert chat.messages == [{"role": "user", "content": "a" * 100}, {"role": "assistant", "content": first.text}] and chat.last is first
    assert first.cached_tokens == 0
    second = chat.send("b" * 10)
    read = second.prompt_tokens - second.cached_tokens
    assert first.prompt_tokens + 70 - 64 < second.cached_tokens < second.prompt_tokens and second.cached_tokens % 64 == 0 and read < 128
    assert second.text == model.generate(chat.messages[:3], max_tokens=70, logit_bias={2: -1e6}).text
    assert "4 messages" in repr(chat)
    third = "".join(chat.stream("c", max_tokens=5))
    assert len(chat.messages) == 6 and chat.messages[-1]["content"] == third and len(chat.last.tokens) == 5
    chat.reset()
    assert chat.messages == [] and chat.last is None
    again = chat.send("a" * 100)
    assert again.text == first.text


def test_a_conversation_begins_with_what_it_is_given(model):
    assert model.chat("Be brief.").messages == [{"role": "system", "content": "Be brief."}]
    chat = model.chat("Be brief.", [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Ho"}], max_tokens=4)
    chat.send("x")
    assert len(chat.messages) == 5
    chat.reset()
    assert chat.messages == [{"role": "system", "content": "Be brief."}]


def test_what_fails_leaves_a_conversation_as_it_was(model):
    chat = model.chat(max_tokens=4)
    chat.send("x")
    before = list(chat.messages)
    with pytest.raises(UserError, match="but the context of .* is 600"):
        chat.send("y" * 900)
    with pytest.raises(UserError, match="text: found 3"):
        chat.send(3)
    with pytest.raises(UserError, match="did you mean max_tokens"):
        chat.send("x", max_token=3)
    assert chat.messages == before


def test_what_was_said_before_an_interruption_stays(model):
    chat = model.chat(max_tokens=400, logit_bias={2: -1e6})
    pieces = chat.stream("abc")
    said = next(pieces) + next(pieces)
    pieces.close()
    assert chat.messages[-1] == {"role": "assistant", "content": said}
    assert figures(model).running == 0

    async def leave():
        async with contextlib.aclosing(chat.astream("def")) as more:
            async for piece in more:
                return piece

    piece = asyncio.run(leave())
    assert chat.messages[-1]["content"] == piece and len(chat.messages) == 4
    assert asyncio.run(chat.asend("ghi", max_tokens=3)).finish_reason == "length" and len(chat.messages) == 6
