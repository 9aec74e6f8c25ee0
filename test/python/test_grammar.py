# Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Answers within a grammar, of a model with random weights: whatever it would like to say, they follow the grammar."""

import json
import re
import sys
import time

import jsonschema
import pytest

import easyquant
from easyquant.runtime import grammar
from easyquant.runtime.artifact import BatchSize
from easyquant.runtime.drafts import Speculation
from easyquant.runtime.engine import Engine, EngineOptions
from easyquant.runtime.requests import Settings
from easyquant.support.errors import UserError
from easyquant.text.tokenizer import load_tokenizer, write_tokenizer_files
from command_line import run_command_line
from helpers import random_llama, write_byte_level, write_model
from schemas import PICKED, random_schema
from test_tokenizer_metadata import BYTE_LEVEL, SENTENCEPIECE, write_gguf

VOCABULARY = 330  # a few more than the tokenizer has


@pytest.fixture(scope="module")
def folder(artifact, workspace):
    model = write_model(workspace / "grammar-model", *random_llama(seed=11, vocab=VOCABULARY, context=512, bos_token_id=0, eos_token_id=0))
    write_byte_level(model)
    return artifact(model, "--scheme=W8A8", *(f"--copy-file={model / name}" for name in ("tokenizer.json", "tokenizer_config.json")))


@pytest.fixture(scope="module")
def model(folder):
    with easyquant.Model(folder, threads=2) as loaded:
        yield loaded


@pytest.fixture(scope="module")
def closing(folder):
    """A bias towards the characters that end texts, lists and objects, without which few answers come to their end."""
    tokenizer = load_tokenizer(folder)
    return {tokenizer.encode(text, add_special_tokens=False)[0]: 8.0 for text in '"}]'}


def answer(model, kind, **options):
    return model.generate("a", temperature=1.0, response_format=kind, **options)


def schema_format(schema):
    return {"type": "json_schema", "json_schema": {"name": "it", "schema": schema}}


def check_schemas(model, closing, schemas):
    """How many answers were whole. All at once, as in a server."""
    prompts = [{"prompt": [3 + place % 300], "seed": place, "response_format": schema_format(schema)} for place, schema in enumerate(schemas)]
    reader, whole = model._reader, 0
    settings = [Settings(temperature=1.0, max_tokens=200, logit_bias=closing, seed=one["seed"], response_format=one["response_format"]) for one in prompts]
    requests = reader.requests([(one["prompt"], own) for one, own in zip(prompts, settings, strict=True)])
    assert [(schema, str(request)) for schema, request in zip(schemas, requests, strict=True) if isinstance(request, UserError)] == []
    with Engine(model._open(), reader.artifact, reader, BatchSize(256, 16, 16 * 256), EngineOptions(2)) as engine:
        for number, _, completion in engine.complete(requests):
            assert completion.finish_reason in (None, "stop", "length"), (schemas[number], completion)
            if completion.finish_reason == "stop":
                whole += 1
                jsonschema.validate(json.loads(completion.text), schemas[number])
    return whole


def test_answers_are_valid_by_their_schemas(model, closing):
    schemas = PICKED + [random_schema(seed) for seed in range(40)]
    assert check_schemas(model, closing, schemas) > 0.7 * len(schemas)


@pytest.mark.slow
def test_answers_are_valid_by_500_schemas(model, closing):
    schemas = PICKED + [random_schema(seed) for seed in range(500 - len(PICKED))]
    assert check_schemas(model, closing, schemas) > 0.7 * len(schemas)


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_regular_expressions_and_lark(model, temperature):
    for seed, pattern in enumerate([r"(yes|no)", r"[0-9]{3}-[a-f]{2}", r" lead", r"(é|日本){2}"]):
        completion = model.generate("a", temperature=temperature, seed=seed, response_format={"type": "regex", "regex": pattern})
        assert re.fullmatch(pattern, completion.text) and completion.finish_reason == "stop", completion
    completion = model.generate("a", temperature=temperature, seed=1, response_format={"type": "grammar", "grammar": 'start: "(" start ")" | NUMBER\nNUMBER: /[0-9]{1,2}/'}, max_tokens=90)
    assert re.fullmatch(r"\(*\d+\)*", completion.text) and (completion.finish_reason == "length" or completion.text.count("(") == completion.text.count(")"))


def test_the_end_of_a_grammar_ends_the_answer(model):
    """Also in its last token, and whatever its options."""
    (brace,) = model.encode("}")
    kind = {"type": "regex", "regex": "abc"}
    whole = model.generate("a", response_format=kind, logprobs=2)
    assert (whole.text, whole.finish_reason) == ("abc", "stop") and len(whole.logprobs) == len(whole.tokens)
    assert model.generate("a", response_format=kind, max_tokens=len(whole.tokens)).finish_reason == "stop"
    assert model.generate("a", response_format=kind, max_tokens=1).finish_reason == "length"
    assert model.generate("a", response_format=kind, stop="b").text == "a"
    assert model.generate("a", response_format={"type": "text"}, max_tokens=5) == model.generate("a", max_tokens=5)
    assert json.loads(model.generate("a", response_format={"type": "json_object"}, logit_bias={brace: 30.0}).text) == {}
    assert "".join(model.stream("a", response_format=kind)) == "abc"


def test_each_is_in_a_crowd_what_it_is_alone(model):
    formats = [schema_format(random_schema(seed)) for seed in range(8)] + [{"type": "regex", "regex": "[a-z ]{1,40}"}, None]
    settings = [Settings(temperature=1.0, seed=seed, max_tokens=60, response_format=kind) for seed, kind in enumerate(formats)]
    requests = model._reader.requests([("a b", own) for own in settings])
    found = []
    for sequences, tokens in ((1, 256), (4, 256)):  # with four there are too few pages, and some step back
        with Engine(model._open(), model._reader.artifact, model._reader, BatchSize(128, sequences, tokens), EngineOptions(2)) as engine:
            found.append({number: (completion.tokens, completion.finish_reason) for number, _, completion in engine.complete(requests)})
    assert found[0] == found[1] and len(found[0]) == len(formats)


FORCING = [
    schema_format({"type": "object", "properties": {"first_name": {"type": "string", "maxLength": 5}, "year_of_birth": {"type": "integer"}, "kind": {"enum": ["human being", "machine"]}}, "required": ["first_name", "year_of_birth", "kind"], "additionalProperties": False}),
    {"type": "regex", "regex": "It is (a cat that sleeps|a dog that barks at night), or so they say[.!]"},
    {"type": "grammar", "grammar": 'start: "begin\\n" line{3} "the end of it"\nline: /[a-c]{1,3}/ " is one of them\\n"'},
    {"type": "regex", "regex": "x" * 70 + "[yz]"},  # longer than what a step reads
]  # fmt: skip


def test_forced_tokens_are_read_in_one_step(model):
    """And the answers are those of one token a step: alone, in a crowd where some step back, behind what is kept, and where tokens are guessed."""
    ways = [{}, {"temperature": 1.0, "seed": 2, "logprobs": 2, "presence_penalty": 0.5}, {"max_tokens": 13, "logprobs": 0}, {"stop": "is"}]
    settings = [Settings(**{"max_tokens": 90} | way, response_format=kind) for kind in FORCING for way in ways]
    requests = model._reader.requests([("a b c d " * 5, own) for own in settings])

    def answers(sequences, tokens, speculation=None, is_exact=True, times=1):
        found, options = {}, EngineOptions(2, speculation=speculation)
        with Engine(model._open(), model._reader.artifact, model._reader, BatchSize(256, sequences, tokens), options) as engine:
            engine._is_exact = is_exact
            for _ in range(times):
                found |= {number: completion for number, _, completion in engine.complete(requests)}
            return [found[number] for number in range(len(requests))], engine

    slow, one_by_one = answers(1, 256, is_exact=False)
    assert [one.error for one in slow] == [None] * len(requests) and one_by_one.speed.forced_tokens == 0
    for way in ({"sequences": 1, "tokens": 256}, {"sequences": 4, "tokens": 384}, {"sequences": 8, "tokens": 2048, "times": 2}, {"sequences": 4, "tokens": 384, "speculation": Speculation("ngram", 4)}):
        found, engine = answers(**way)
        for asked, one, other in zip(settings, slow, found, strict=True):
            assert (one.text, one.tokens, one.finish_reason, one.logprobs) == (other.text, other.tokens, other.finish_reason, other.logprobs), (way, asked)
            assert other.logprobs is None or [entry.token for entry in other.logprobs] == other.tokens
        assert engine.speed.forced_tokens > 0.2 * engine.speed.new_tokens
        assert engine._set_aside > 0 or way["tokens"] != 384
        if way["sequences"] == 1:
            assert engine._steps == one_by_one._steps - engine.speed.forced_tokens
    assert [one.finish_reason for one in slow[2::4]] == ["length"] * 4
    assert all("is" not in one.text for one in slow[3::4])


@pytest.mark.parametrize("kind, message", [
    ("json", 'response_format: found \'json\', expected an object with the text "type"'),
    ({"type": "xml"}, "response_format: type: found 'xml', expected text or json_object or json_schema or regex or grammar"),
    ({"type": "regex", "pattern": "a"}, "response_format: key: found 'pattern', expected type and regex"),
    ({"type": "regex", "regex": ""}, "expected a text that is not empty"),
    ({"type": "json_schema"}, 'response_format: json_schema: found None, expected an object with "schema"'),
    ({"type": "json_schema", "json_schema": {"schema": [1]}}, "expected an object, a JSON schema"),
    ({"type": "regex", "regex": "("}, "cannot be compiled .*unclosed group"),
    ({"type": "grammar", "grammar": "start: other"}, 'cannot be compiled .*unknown name: "other"'),
    ({"type": "grammar", "grammar": "\x1b[31m"}, "cannot be compiled"),
    (schema_format({"type": "string\u2028"}), "cannot be compiled .Invalid type: string"),
    (schema_format({"not": {}}), "cannot be compiled .*Unimplemented keys"),
    (schema_format({"$ref": "http://127.0.0.1/x.json"}), "cannot be compiled .*not present in a registry"),
    (schema_format({"$ref": "#"}), "the answer cannot go on within its grammar .*NoExtension"),
    (schema_format({"x": float("nan")}), "found what is no JSON"),
])  # fmt: skip
def test_what_is_refused(model, kind, message):
    with pytest.raises(UserError, match=message) as error:
        answer(model, kind)
    assert str(error.value).isprintable()


def test_the_command_line(folder, tmp_path):
    schema = {"type": "object", "properties": {"kind": {"enum": ["cat", "dog"]}, "age": {"type": "integer", "minimum": 0, "maximum": 9}}, "required": ["kind", "age"], "additionalProperties": False}
    file, lines = tmp_path / "schema.json", tmp_path / "prompts.jsonl"
    file.write_text(json.dumps(schema))
    lines.write_text('"a"\n{"prompt": "a", "response_format": {"type": "regex", "regex": "[xy]{2}"}}\n')

    def run(*options, prompt="--prompt=a", status=0):
        done = run_command_line("run", folder, prompt, *options)
        assert done.returncode == status, done
        return done.stdout if status == 0 else done.stderr

    answers = [run("--json-schema", given, "--temperature", 1, "--seed", 1) for given in (file, f" {json.dumps(schema)}")]
    jsonschema.validate(json.loads(answers[0]), schema)
    assert answers[0] == answers[1], "the answer alone, without the prompt"
    assert re.fullmatch("(ab|cd){3}\n", run("--regex", "(ab|cd){3}"))
    one, other = map(json.loads, run("--json-schema", file, prompt=f"--prompts={lines}").splitlines())
    jsonschema.validate(json.loads(one["text"]), schema)
    assert re.fullmatch("[xy]{2}", other["text"])
    cut = run_command_line("run", folder, "--prompt", "a", "--regex", "a{9}", "--max-new-tokens", 2)
    assert cut.stdout == "aa\n" and "warning: the answer is not whole: it was cut after 2 tokens; --max-new-tokens allows more" in cut.stderr
    file.write_text("[]")
    for options, message in (
        (("--json-schema", "{"), "--json-schema: is not valid JSON"),
        (("--json-schema", tmp_path / "none"), f"--json-schema {tmp_path / 'none'}: No such file or directory; give a file, or a schema that begins with {{"),
        (("--json-schema", file), f"--json-schema {file}: found JSON that is no object, expected a JSON schema"),
        (("--json-schema", '{"type": "thing"}'), "--json-schema: cannot be compiled (Invalid type: thing"),
        (("--json-schema", '{"not": {}}'), "--json-schema: cannot be compiled"),
        (("--json-schema", json.dumps({"const": "a" * 20000})), "--json-schema: found "),
        (("--regex", "("), "--regex: cannot be compiled"),
        (("--regex", ""), "--regex: found an empty text, expected a regular expression"),
        (("--regex", "a", "--json-schema", "{}"), "--json-schema and --regex: an answer has one form; give one of them"),
    ):
        assert run(*options, status=1).startswith(f"error: {message}"), message
    assert run("--regex", "(", prompt=f"--prompts={lines}", status=1).startswith("error: --regex: cannot be compiled"), "not an error of each line"


def _deep(levels):
    schema = {}
    for _ in range(levels):
        schema = {"items": schema}
    return schema


CHAIN = "start: a0\n" + "".join(f"a{index}: {' '.join([f'a{index + 1}'] * 10)}\n" for index in range(6)) + 'a6: "x"'


@pytest.mark.parametrize("kind", [
    {"type": "regex", "regex": "((a{100}){100}){100}"}, {"type": "regex", "regex": "b|x(a{99999})?"}, {"type": "regex", "regex": "a{9" + "9" * 5000 + "}"},
    {"type": "regex", "regex": "a" * 20000}, {"type": "regex", "regex": "(?:a?){5000}a{5000}"}, {"type": "regex", "regex": "(" * 9000 + ")" * 9000},
    {"type": "grammar", "grammar": CHAIN}, {"type": "grammar", "grammar": 'start: A{100}\nA: B{100}\nB: C{100}\nC: "a"'}, {"type": "grammar", "grammar": "x" * (1 << 19)},
    {"type": "grammar", "grammar": 'start: a~1000\na: b~1000\nb: "x" | /a{3}/'}, {"type": "grammar", "grammar": "start: a0\n" + "".join(f"a{i}: a{i + 1}\n" for i in range(9999))},
    schema_format(_deep(2000)), schema_format(_deep(70)), schema_format({"const": "a" * 20000}), schema_format({"properties": {"a" * 20000: {}}}), schema_format({"enum": ["a" * 9000] * 60}),
    schema_format({"type": "string", "pattern": "^((a{100}){100}){100}$"}), schema_format({"patternProperties": {"^a{99999}$": {}}}), schema_format({"type": "integer", "multipleOf": 123457}),
])  # fmt: skip
def test_what_would_take_too_long_is_refused_at_once(model, kind):
    begin = time.thread_time()
    with pytest.raises(UserError, match="^response_format: "):
        answer(model, kind, max_tokens=20)
    assert time.thread_time() - begin < 5


def test_limits_leave_usual_grammars_alone(model):
    arithmetic = """
        start: sum
        ?sum: product (("+" | "-") product)*
        ?product: power (("*" | "/") power)*
        ?power: atom ("^" atom)*
        ?atom: NUMBER | "(" sum ")" | NAME "[" [sum] "]"
        NAME: /[a-z]{1,3}/
        NUMBER: /[0-9]+(\\.[0-9]{1,4})?/
        %ignore " "
    """
    answer(model, {"type": "grammar", "grammar": arithmetic}, max_tokens=20)
    answer(model, schema_format({"type": "string", "maxLength": 100000}), max_tokens=20)
    answer(model, schema_format({"type": "array", "items": {"type": "string"}, "minItems": 20000}), max_tokens=20)
    answer(model, schema_format({"description": "d" * 20000, "properties": {"description": {"type": "string"}}}), max_tokens=20)
    answer(model, {"type": "regex", "regex": r"(https?://[\w./-]{1,200}\s+){1,9}"}, max_tokens=20)


def test_a_grammar_that_fails_on_its_way_ends_its_answer_alone(model, monkeypatch):
    monkeypatch.setattr(grammar, "SLOWEST_MASK", -1.0)
    kind = {"type": "regex", "regex": "[a-z]{9}"}
    settings = [Settings(response_format=kind), Settings(max_tokens=5)]
    with pytest.raises(UserError, match="finding the next tokens took 0.0 s"):
        answer(model, kind)
    monkeypatch.undo()
    requests = model._reader.requests([("a", own) for own in settings])
    monkeypatch.setattr(grammar, "SLOWEST_MASK", -1.0)
    with Engine(model._open(), model._reader.artifact, model._reader, BatchSize(128, 4, 512), EngineOptions(2)) as engine:
        done = {number: completion for number, _, completion in engine.complete(requests)}
    assert "cannot go on within its grammar" in done[0].error and (done[1].error, len(done[1].tokens)) == (None, 5)


def test_a_grammar_is_compiled_once(model, monkeypatch):
    kind = {"type": "regex", "regex": "once"}
    made = []
    real = grammar.GrammarCompiler._make
    monkeypatch.setattr(grammar.GrammarCompiler, "_make", lambda self, *source: made.append(source) or real(self, *source))
    assert [answer(model, kind).text for _ in range(3)] == ["once"] * 3 and len(made) == 1


def test_without_the_library(model, monkeypatch):
    monkeypatch.setitem(sys.modules, "llguidance", None)
    with pytest.raises(UserError, match=r"needs the package llguidance; install the extra serve .pip install '..serve.'"):
        answer(model, {"type": "json_object"})


@pytest.mark.parametrize("metadata", [BYTE_LEVEL, SENTENCEPIECE], ids=["gpt2", "llama"])
def test_tokens_are_the_same_bytes_to_both(tmp_path, metadata):
    """Also where a GGUF carried the tokenizer: what llguidance reads and what we write."""
    write_tokenizer_files(write_gguf(tmp_path / "small.gguf", metadata), tmp_path)
    tokenizer = load_tokenizer(tmp_path)
    tokens = grammar.GrammarCompiler(tokenizer, tokenizer.vocab_size + 7, frozenset([2]))._tokens
    assert tokens.vocab_size == tokenizer.vocab_size + 7 and tokens.eos_tokens == [2]
    for token in range(tokenizer.vocab_size):
        if not tokens.is_special_token(token):
            assert tokens.decode_bytes([token]) == tokenizer.token_bytes(token), token
