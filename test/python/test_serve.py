# Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""`easyquant serve` as clients see it: the same answers as `Model`, over every endpoint, whole and streamed."""

import asyncio
import json

import numpy as np
import openai
import pytest

import easyquant
from serve_client import serving

LONG = "0123456789" * 9  # more than a page


@pytest.fixture(scope="module")
def folder(letters):
    return letters("--scheme=W8A8")


@pytest.fixture(scope="module")
def model(folder):
    with easyquant.Model(folder, threads=2) as model:
        yield model


@pytest.fixture(scope="module")
def client(folder):
    with serving({"letters": folder}) as client:
        yield client


@pytest.fixture(autouse=True)
def settled(client):
    """Each test leaves nothing behind."""
    yield
    client.settle()


SAMPLED = [
    {"temperature": 0},
    {"temperature": 1.5, "seed": 3},
    {"temperature": 2.0, "seed": 5, "top_p": 0.9, "presence_penalty": 0.5, "frequency_penalty": 0.25},
    {"temperature": 2.0, "seed": 2**63 - 1, "logit_bias": {"40": 5, "41": -100}},
]


@pytest.mark.parametrize("options", SAMPLED)
def test_chats_are_answered_as_by_the_model(client, model, options):
    messages = [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Ho"}, {"role": "user", "content": "Hey"}]
    expected = model.generate(messages, max_tokens=20, **options)
    api = client.openai()
    done = api.chat.completions.create(model="letters", messages=messages, max_completion_tokens=20, **options)
    (choice,) = done.choices
    assert choice.message.content == expected.text and choice.finish_reason == expected.finish_reason and choice.message.role == "assistant"
    assert done.usage.prompt_tokens == expected.prompt_tokens and done.usage.completion_tokens == len(expected.tokens)
    assert done.usage.total_tokens == done.usage.prompt_tokens + done.usage.completion_tokens and done.model == "letters"
    chunks = list(api.chat.completions.create(
        model="letters", messages=messages, max_tokens=20, stream=True, stream_options={"include_usage": True}, **options
    ))  # fmt: skip
    assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks[:-1]) == expected.text
    assert chunks[-2].choices[0].finish_reason == expected.finish_reason and chunks[-1].usage == done.usage and chunks[-1].choices == []
    assert chunks[0].choices[0].delta.role == "assistant" and len({chunk.id for chunk in chunks}) == 1 and len(chunks) > 15


@pytest.mark.parametrize("options", [*SAMPLED, {"temperature": 3, "seed": 1, "extra_body": {"top_k": 5, "min_p": 0.01, "repetition_penalty": 1.3}}])
def test_texts_are_continued_as_by_the_model(client, model, options):
    own = {name: value for name, value in options.items() if name != "extra_body"} | options.get("extra_body", {})
    prompts = ["abc", "Zebra!", LONG]
    expected = model.generate(prompts, max_tokens=20, **own)
    api = client.openai()
    for prompt in (prompts, [model.encode(prompt) for prompt in prompts]):
        done = api.completions.create(model="letters", prompt=prompt, max_tokens=20, **options)
        assert [choice.text for choice in done.choices] == [one.text for one in expected] and [choice.index for choice in done.choices] == [0, 1, 2]
        assert [choice.finish_reason for choice in done.choices] == [one.finish_reason for one in expected]
    texts = [""] * 3
    for chunk in api.completions.create(model="letters", prompt=prompts, max_tokens=20, stream=True, **options):
        texts[chunk.choices[0].index] += chunk.choices[0].text
    assert texts == [one.text for one in expected]


def test_responses_are_the_chats_answers(client, model):
    messages = [{"role": "system", "content": "Be"}, {"role": "user", "content": "Hi"}]
    expected = model.generate(messages, max_tokens=20, temperature=1.5, seed=7)
    api = client.openai()
    asked = {"model": "letters", "temperature": 1.5, "max_output_tokens": 20, "extra_body": {"seed": 7}, "store": False, "metadata": {"a": "b"}}
    for given in ({"instructions": "Be", "input": "Hi"}, {"input": [{"role": "developer", "content": "Be"}, {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "Hi"}]}]}):
        response = api.responses.create(**asked, **given)
        assert response.output_text == expected.text and response.metadata == {"a": "b"} and response.usage.output_tokens == len(expected.tokens)
        assert response.status == ("incomplete" if expected.finish_reason == "length" else "completed")
        assert expected.finish_reason != "length" or response.incomplete_details.reason == "max_output_tokens"
    events = list(api.responses.create(**asked, instructions="Be", input="Hi", stream=True))
    assert [event.sequence_number for event in events] == list(range(len(events)))
    kinds = [event.type for event in events]
    deltas = [event.delta for event in events if event.type == "response.output_text.delta"]
    assert "".join(deltas) == expected.text and len(deltas) > 10
    assert kinds[:4] == ["response.created", "response.in_progress", "response.output_item.added", "response.content_part.added"]
    assert kinds[-4:] == ["response.output_text.done", "response.content_part.done", "response.output_item.done", f"response.{response.status}"]
    assert events[-1].response.output_text == expected.text and events[-1].response.usage == response.usage
    stop = expected.text[10:13]  # an answer that is whole
    with api.responses.stream(**asked | {"extra_body": {"seed": 7, "stop": stop}}, instructions="Be", input="Hi") as stream:
        final = stream.until_done().get_final_response()
        assert final.output_text == expected.text[: expected.text.index(stop)] and final.status == "completed"
    # An answer goes back as an item.
    again = [{"role": "user", "content": "Hi"}, response.output[0].model_dump(exclude_none=True), {"role": "user", "content": "Ho"}]
    chat = [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": response.output_text}, {"role": "user", "content": "Ho"}]
    asked |= {"temperature": 0}
    assert api.responses.create(**asked, input=again).output_text == model.generate(chat, max_tokens=20).text


def test_logprobs_of_responses(client):
    done = client.openai().responses.create(
        model="letters", input="Hi", max_output_tokens=6, temperature=0, top_logprobs=2, include=["message.output_text.logprobs"]
    )
    logprobs = done.output[0].content[0].logprobs
    assert len(logprobs) == done.usage.output_tokens and all(len(one.top_logprobs) == 2 and one.top_logprobs[0].logprob == one.logprob for one in logprobs)


@pytest.mark.parametrize("temperature", [0, 2.0])
def test_several_answers_differ_in_their_seeds_and_share_the_prompt(client, model, temperature):
    prompt = f"n{temperature}{LONG}"
    before = client.served.engine.figures.shared_tokens
    done = client.complete(prompt, n=4, temperature=temperature, seed=11, max_tokens=15).json
    expected = [model.generate(prompt, max_tokens=15, temperature=temperature, seed=11 + number) for number in range(4)]
    assert [choice["text"] for choice in done["choices"]] == [one.text for one in expected]
    assert done["usage"]["prompt_tokens"] == expected[0].prompt_tokens and done["usage"]["completion_tokens"] == sum(len(one.tokens) for one in expected)
    client.settle()
    assert client.served.engine.figures.shared_tokens - before == 3 * 64
    texts = ["", "", "", ""]
    for event in client.chat("Hi", n=4, temperature=temperature, seed=11, stream=True).events:
        texts[event["choices"][0]["index"]] += event["choices"][0]["delta"].get("content", "")
    assert texts == [model.generate("Hi", chat=True, max_tokens=8, temperature=temperature, seed=11 + number).text for number in range(4)]


def test_what_is_known_of_a_prompt_is_told(client):
    prompt = "The same beginning " * 4 + "."
    first, second = (client.complete(prompt.replace(" ", "_")).json["usage"] for _ in range(2))
    assert first["prompt_tokens_details"] == {"cached_tokens": 0} and second["prompt_tokens_details"] == {"cached_tokens": 64}


def test_stops(client, model):
    text = model.generate("abc", max_tokens=20).text
    for stop in (text[5:8], ["never there", text[5:8]]):
        choice = client.complete(max_tokens=20, stop=stop).json["choices"][0]
        assert choice["text"] == text[: text.index(text[5:8])] and choice["finish_reason"] == "stop"
        events = client.complete(max_tokens=20, stop=stop, stream=True).events
        assert "".join(event["choices"][0]["text"] for event in events) == choice["text"]


def test_logprobs_are_those_of_the_model(client, model):
    prompt, options = "abcdef", {"max_tokens": 9, "temperature": 1.5, "seed": 4}
    expected = model.generate(prompt, logprobs=3, **options)
    (choice,) = client.complete(prompt, logprobs=3, **options).json["choices"]
    found = choice["logprobs"]
    assert found["token_logprobs"] == pytest.approx([one.logprob for one in expected.logprobs]) and "".join(found["tokens"]) == expected.text
    assert [len(best) for best in found["top_logprobs"]] == [3] * len(expected.tokens) and found["text_offset"] == list(range(len(expected.tokens)))
    chat = client.chat("Hi", logprobs=True, top_logprobs=2, max_tokens=9).json["choices"][0]
    content = chat["logprobs"]["content"]
    expected = model.generate("Hi", chat=True, max_tokens=9, logprobs=2)
    assert "".join(entry["token"] for entry in content) == chat["message"]["content"] == bytes(byte for entry in content for byte in entry["bytes"]).decode()
    assert [entry["logprob"] for entry in content] == pytest.approx([one.logprob for one in expected.logprobs])
    assert all(entry["top_logprobs"][0]["logprob"] == entry["logprob"] and len(entry["top_logprobs"]) == 2 for entry in content)
    # Streamed, each piece has those of its own tokens.
    events = client.chat("Hi", logprobs=True, top_logprobs=2, max_tokens=9, stream=True).events
    pieces = [event["choices"][0] for event in events if event["choices"][0]["logprobs"]]
    assert [entry for piece in pieces for entry in piece["logprobs"]["content"]] == content
    assert all(piece["delta"]["content"] == "".join(entry["token"] for entry in piece["logprobs"]["content"]) for piece in pieces)


def test_echo_scores_prompts_as_lm_eval_asks_it(client, model):
    """Its model local-completions: contexts with continuations as token ids, one new token, log-probabilities of all."""
    tokens = [model.encode(text) for text in ("The_quick_brown_fox", LONG, "ab")]
    reply = client.complete(tokens, max_tokens=1, logprobs=1, echo=True, seed=1234).json
    for ids, choice in zip(tokens, reply["choices"], strict=True):
        begin = len(ids) // 2
        logprobs = choice["logprobs"]
        score = model.score(ids)
        assert logprobs["token_logprobs"][0] is None and logprobs["top_logprobs"][0] is None
        assert sum(logprobs["token_logprobs"][begin:-1]) == pytest.approx(score.log_probabilities[begin - 1 :].sum(), abs=1e-9)
        rows = model.logits(ids)
        greedy = all(value == max(best.values()) for value, best in zip(logprobs["token_logprobs"][begin:-1], logprobs["top_logprobs"][begin:-1], strict=True))
        assert greedy == bool((np.argmax(rows[begin - 1 : -1], axis=1) == ids[begin:]).all())
        assert choice["text"] == model.decode(ids) + model.generate(ids, max_tokens=1).text and len(logprobs["tokens"]) == len(ids) + 1
    for prompt in ("abcd", LONG):
        whole, streamed = client.complete(prompt, echo=True, logprobs=2).json, client.complete(prompt, echo=True, logprobs=2, stream=True).events
        parts = [event["choices"][0] for event in streamed]
        assert "".join(part["text"] for part in parts) == whole["choices"][0]["text"]
        for name in ("tokens", "token_logprobs", "text_offset", "top_logprobs"):
            assert [value for part in parts if part["logprobs"] for value in part["logprobs"][name]] == whole["choices"][0]["logprobs"][name]
    assert client.complete("abcd", echo=True, max_tokens=0).json["choices"][0]["text"] == "abcd"
    scored = client.complete("abcd", echo=True, max_tokens=0, logprobs=0, n=2).json
    assert [len(choice["logprobs"]["tokens"]) for choice in scored["choices"]] == [4, 4] and scored["usage"]["completion_tokens"] == 0


def test_the_async_client(client, model):
    async def ask():
        async with client.openai(kind=openai.AsyncOpenAI) as api:
            one = {"model": "letters", "max_tokens": 20, "temperature": 2.0}
            whole = [api.chat.completions.create(messages=[{"role": "user", "content": f"Hi{seed}"}], seed=seed, **one) for seed in range(12)]
            stream = await api.completions.create(prompt="abc", stream=True, seed=1, **one)
            streamed = [chunk.choices[0].text async for chunk in stream]
            return [done.choices[0].message.content for done in await asyncio.gather(*whole)], "".join(streamed)

    chats, text = asyncio.run(ask())
    assert chats == [model.generate(f"Hi{seed}", chat=True, max_tokens=20, temperature=2.0, seed=seed).text for seed in range(12)]
    assert text == model.generate("abc", max_tokens=20, temperature=2.0, seed=1).text


def test_messages_in_parts_and_roles(client, model):
    parts = [{"role": "developer", "content": [{"type": "text", "text": "B"}, {"type": "text", "text": "e"}]}, {"role": "user", "content": "Hi", "name": "me"}]
    plain = [{"role": "system", "content": "Be"}, {"role": "user", "content": "Hi"}]
    found = client.post("/v1/chat/completions", {"messages": parts, "max_tokens": 9, "temperature": 0}).json
    assert found["choices"][0]["message"]["content"] == model.generate(plain, max_tokens=9).text
    call = {"id": "1", "type": "function", "function": {"name": "f", "arguments": '{"a": 1}'}}
    turn = [*plain, {"role": "assistant", "content": None, "tool_calls": [call], "refusal": None, "annotations": []}, {"role": "tool", "tool_call_id": "1", "content": "4"}]
    assert client.post("/tokenize", {"messages": turn}).json["count"] == model.encode([*plain, {"role": "assistant", "content": ""}, {"role": "tool", "content": "4"}]).__len__()


def test_models_tokens_health_and_docs(client, model):
    (card,) = client.openai().models.list().data
    assert card.id == "letters" and card.owned_by == "easyquant" and client.openai().models.retrieve("letters") == card
    found = client.post("/tokenize", {"model": "letters", "prompt": "abc", "return_token_strs": True}).json
    assert found == {"count": 3, "max_model_len": 160, "tokens": model.encode("abc"), "token_strs": ["a", "b", "c"]}
    assert client.post("/detokenize", {"tokens": found["tokens"]}).json == {"prompt": "abc"}
    assert client.post("/tokenize", {"messages": [{"role": "user", "content": "Hi"}]}).json["tokens"] == model.encode("Hi", chat=True)
    assert client.get("/health").json == {"status": "ok", "models": ["letters"]}
    page, schema = client.get("/docs").body.decode(), client.get("/openapi.json").json
    for path in ("/v1/chat/completions", "/v1/completions", "/v1/responses", "/tokenize", "/detokenize"):
        assert path in page and schema["paths"][path]["post"]["requestBody"]
    assert "src=" not in page and "http" not in page


def test_figures(client):
    before = {name: client.metric(name) for name in ("easyquant_generated_tokens_total", "easyquant_time_to_first_token_seconds_count", "easyquant_time_per_token_seconds_count")}
    done = client.complete(LONG, n=2, max_tokens=10, logit_bias={"2": -100}).json
    client.settle()
    after = {name: client.metric(name) - count for name, count in before.items()}
    assert list(after.values()) == [20, 2, 18] and done["usage"]["completion_tokens"] == 20
    assert client.metric("easyquant_requests_running") == 0 == client.metric("easyquant_requests_waiting")
    assert 0 < client.metric("easyquant_cache_free_pages") <= client.metric("easyquant_cache_pages") and client.metric("easyquant_prefix_cache_hits_total") > 0
    text = client.get("/metrics").body.decode()
    assert 'easyquant_requests_total{endpoint="/v1/completions",status="200"}' in text and 'easyquant_answers_total{model="letters",reason="length"}' in text


def test_defaults_are_those_of_the_models_authors(artifact, letters_model, model, tmp_path):
    (tmp_path / "generation_config.json").write_text(json.dumps({"do_sample": True, "temperature": 0.7, "top_k": 5, "repetition_penalty": 1.1, "max_length": 20}))
    files = [f"--copy-file={folder / name}" for folder, name in ((letters_model, "tokenizer.json"), (letters_model, "tokenizer_config.json"), (tmp_path, "generation_config.json"))]
    with serving({"own": artifact(letters_model, "--scheme=W8A8", *files)}) as client:
        own = {"temperature": 0.7, "top_k": 5, "repetition_penalty": 1.1}
        for given, expected in (({}, own), ({"temperature": 2, "top_k": 0}, own | {"temperature": 2, "top_k": 0})):
            found = client.post("/v1/completions", {"prompt": "abc", "seed": 8, **given}).json
            assert found["choices"][0]["text"] == model.generate("abc", max_tokens=16, seed=8, **expected).text
