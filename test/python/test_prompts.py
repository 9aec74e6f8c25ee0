# Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""`easyquant run --prompts`: results in order, errors where they belong, and nothing lost when it is interrupted."""

import fcntl
import json
import signal

import pytest

import easyquant
from easyquant.commands import prompts as prompts_module
from easyquant.terminal.interrupts import Interrupted
from command_line import run_command_line as easyquant_command
from helpers import REPO, Runner, random_llama, write_letters, write_model


@pytest.fixture(scope="module")
def folder(letters):
    return letters("--scheme=W8A8")


@pytest.fixture
def file(tmp_path):
    """file(*lines): a file of prompts; a line that is not bytes is written as JSON."""

    def write(*lines):
        path = tmp_path / "prompts.jsonl"
        path.write_bytes(b"".join((line if isinstance(line, bytes) else json.dumps(line).encode()) + b"\n" for line in lines))
        return path

    return write


def run(folder, file, *options, status=0):
    done = easyquant_command("run", folder, "--prompts", file, "--max-new-tokens", "12", *options)
    assert done.returncode == status, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()], done.stderr


MANY = [{"prompt": "abcdefgh"[: 1 + number % 8], "id": f"n{number}", "max_tokens": 1 + 7 * number % 11} for number in range(23)]


@pytest.mark.parametrize("batch", [1, 4, 16])
def test_results_are_those_of_each_alone_in_their_order(folder, file, batch):
    entries, notes = run(folder, file(*MANY), "--batch", batch)
    assert [(entry["line"], entry["id"]) for entry in entries] == [(1 + number, f"n{number}") for number in range(23)]
    with easyquant.Model(folder) as model:
        for entry, asked in zip(entries, MANY, strict=True):
            alone = model.generate(asked["prompt"], max_tokens=asked["max_tokens"])
            assert (entry["text"], entry["finish_reason"]) == (alone.text, alone.finish_reason)
            assert (entry["prompt_tokens"], entry["completion_tokens"]) == (len(asked["prompt"]), len(alone.tokens))
    assert "23 prompts" in notes and "tokens/s" in notes


def test_lines_of_all_kinds(folder, file):
    chat = [{"role": "user", "content": "Hi"}]
    entries, _ = run(folder, file("abc", b"", {"prompt": [3, 4, 5]}, b"   ", {"prompt": chat}, {"prompt": "Hi", "chat": True, "id": 7}, {"prompt": "abc", "temperature": 3, "seed": 1}))
    assert [entry["line"] for entry in entries] == [1, 3, 5, 6, 7] and [entry.get("id") for entry in entries] == [None] * 3 + [7, None]
    assert entries[2]["text"] == entries[3]["text"] and entries[2]["prompt_tokens"] == len("u(Hi)a(")
    assert [entry.get("seed") for entry in entries] == [None] * 4 + [1]
    tokens = Runner(folder).greedy([3, 4, 5], 12)[3:]
    assert entries[1]["text"] == "".join(chr(33 + token - 3) for token in tokens if token > 2)


def test_options_of_the_command_are_those_of_a_line(folder, file):
    options = {"temperature": 9.0, "seed": 3, "min_p": 0.01, "repetition_penalty": 1.2, "presence_penalty": 0.5, "frequency_penalty": -0.5, "logit_bias": {"40": 2.5}, "logprobs": 2}
    ((line,), _), ((plain,), _) = run(folder, file({"prompt": "abc"} | options)), run(folder, file({"prompt": "abc", "temperature": 9.0, "seed": 3}))
    given = [f"--{name.replace('_', '-')}={value}" for name, value in options.items() if name != "logit_bias"]
    ((same,), _) = run(folder, file("abc"), *given, "--logit-bias=40=2.5")
    assert same == line and line["text"] != plain["text"] and len(line["logprobs"]) == line["completion_tokens"]
    assert all(len(entry["best"]) == 2 and entry["logprob"] <= entry["best"][0][1] < 0 for entry in line["logprobs"])


def test_the_lines_of_the_guide(folder, tmp_path):
    section = (REPO / "docs/guide/run.md").read_text().partition("## Many prompts")[2]
    file = tmp_path / "guide.jsonl"
    file.write_text(section.split("```json\n")[1].partition("```")[0])
    assert len(run(folder, file)[0]) == 4


def test_a_chat_model_that_ends_at_once_without_its_template(artifact, file, tmp_path):
    config, tensors = random_llama(seed=11, context=160)
    model = write_letters(write_model(tmp_path / "ends", config | {"eos_token_id": list(range(3, 97))}, tensors))
    ends = artifact(model, *(f"--copy-file={model / name}" for name in ("tokenizer.json", "tokenizer_config.json")))
    prompts = file("abc", {"prompt": "abc", "chat": True}, {"prompt": [5, 6]}, {"prompt": "abc", "stop": ["x"]}, "de")
    entries, notes = run(ends, prompts)
    assert [entry["text"] for entry in entries] == [""] * 5
    assert f"warning: 2 of 5 prompts got no answer: {ends} is a chat model" in notes and "--chat" in notes
    assert "got no answer" not in run(ends, prompts, "--chat")[1]
    done = easyquant_command("run", ends, "--prompt", "abc")
    assert done.returncode == 0 and "warning: the prompt got no answer" in done.stderr and "--chat" in done.stderr
    plain = artifact(model, f"--copy-file={model / 'tokenizer.json'}")
    assert "got no answer" not in run(plain, file("abc"))[1], "a model without a template has its own reasons"


BAD = {
    b"{": "is not valid JSON", b'"a': "is not valid JSON", b'"\xff"': "is not UTF-8 (byte 1)", b"3": "the line: found 3, expected a JSON text, or an object",
    b"{}": "has no prompt", b'{"prompt": 3}': "prompt: found 3", b'{"prompt": []}': "prompt: found []", b'{"prompt": [1, 97]}': "token 1: found 97, expected an id from 0 to 96",
    b'{"prompt": "a", "max_token": 3}': "found the field 'max_token', expected prompt, id, max_tokens, temperature, top_k, top_p, min_p, repetition_penalty, presence_penalty, frequency_penalty, logit_bias, seed, logprobs, stop, response_format, chat; did you mean max_tokens?",
    b'{"prompt": "\\ud800", "chat": true}': "lone surrogates", b'{"prompt": "\\ud800"}': "lone surrogates",
    b'{"prompt": "a", "id": []}': "id: found []", b'{"prompt": "a", "max_tokens": "3"}': "max_tokens: found '3', expected a whole number",
    b'{"prompt": "a", "temperature": NaN}': "temperature: found nan", b"[" * 100_000: "is not valid JSON", b'{"prompt": "' + b"a" * 161 + b'"}': "161 tokens, but the context",
}  # fmt: skip


def test_an_error_is_its_lines_and_the_others_go_on(folder, file, tmp_path):
    lines = [line for bad in BAD for line in ("abc", bad)]
    entries, notes = run(folder, file(*lines), status=1)
    good, _ = run(folder, file("abc"))
    assert [entry["line"] for entry in entries] == [1 + number for number in range(len(lines))]
    for entry, words in zip(entries[1::2], BAD.values(), strict=True):
        assert set(entry) - {"id"} == {"line", "error"} and f"prompts.jsonl, line {entry['line']}: " in entry["error"] and words in entry["error"]
    assert all(entry["text"] == good[0]["text"] for entry in entries[::2])
    assert f"error: {len(BAD)} of {len(lines)} prompts failed, the first: " in notes and "Traceback" not in notes
    # An error is a result: the file is written all the same.
    out = tmp_path / "out.jsonl"
    assert run(folder, file(*lines), "-o", out, status=1)[0] == [] and [json.loads(line) for line in out.read_text().splitlines()] == entries


@pytest.mark.parametrize("options, words", [
    ((), "give either --prompt TEXT or --prompts FILE.jsonl"), (("--prompt=a", "--prompts=b"), "give either"), (("--prompt=a", "--batch=2"), "--batch: goes with --prompts"),
    (("--prompt=a", "-o", "x"), "--output: goes with --prompts"), (("--prompts=/nowhere.jsonl",), "/nowhere.jsonl: No such file"), (("--prompts=/dev/null",), "/dev/null: holds no prompt"),
    (("--prompts=-", "-o", "/nowhere/x"), "there is no folder /nowhere"), (("--prompt=a", "--top-p=2"), "--top-p 2: expected a number from 0.0 to 1.0"),
    (("--prompt=a", "--stop="), "--stop: found ('',), expected a text or a list of texts, none of them empty"),
    (("--prompt=a", "--logprobs=2"), "--logprobs: goes with --prompts"), (("--prompt=a", "--step-ms=2"), "--step-ms: goes with --prompts"), (("--prompt=a", "--logit-bias=3"), "--logit-bias 3: expected a token id, = and a number"),
    (("--prompt=a", "--logit-bias=x=3"), "--logit-bias: found {'x': 3.0}, expected numbers"), (("--prompt=a", "--repetition-penalty=0"), "--repetition-penalty: found 0.0, expected"),
    (("--prompt=a", "--top-p=0"), "--top-p: found 0.0, expected a number above 0"), (("--prompt=a", "--temperature=-1"), "--temperature -1: expected a number of at least 0.0"),
])  # fmt: skip
def test_what_cannot_be_asked(folder, options, words):
    done = easyquant_command("run", folder, *options)
    assert done.returncode == 1 and words in done.stderr and "Traceback" not in done.stderr


@pytest.fixture
def interrupt(monkeypatch):
    """interrupt(count): after so many results Ctrl-C comes; None: never."""
    complete = prompts_module.Engine.complete

    def after(count):
        def interrupted(engine, requests):
            finished = 0
            for event in complete(engine, requests):
                if finished == count:
                    raise Interrupted(signal.SIGINT)
                yield event
                finished += event[2].finish_reason is not None

        monkeypatch.setattr(prompts_module.Engine, "complete", interrupted)

    return after


def test_goes_on_where_it_was_interrupted(folder, file, tmp_path, interrupt):
    asked, out, partial = file(*MANY[:9], b"{", *MANY[9:]), tmp_path / "out.jsonl", tmp_path / "out.jsonl.partial"
    entries, _ = run(folder, asked, status=1)
    for count, status in ((5, 130), (0, 130), (12, 130), (None, 1)):
        interrupt(count)
        before = len(partial.read_bytes().splitlines()) - 1 if partial.exists() else 0
        _, notes = run(folder, asked, "-o", out, "--batch", "3", status=status)
        if before:
            assert f"has {before} of 24 results from a run that was interrupted" in notes
        if status == 130:
            assert not out.exists() and "the same command goes on from there" in notes
            kept = [json.loads(line) for line in partial.read_text().splitlines()[1:]]
            assert kept == entries[: len(kept)] and len(kept) >= before
    assert [json.loads(line) for line in out.read_text().splitlines()] == entries and not partial.exists()
    assert notes.count("1 of 24 prompts failed") == 1  # on the line whose result was kept, too


def test_what_another_run_left_is_kept(folder, file, tmp_path, interrupt):
    out, partial = tmp_path / "out.jsonl", tmp_path / "out.jsonl.partial"
    interrupt(3)
    run(folder, file(*MANY), "-o", out, status=130)
    left = partial.read_bytes()
    interrupt(None)
    for others, options in ((MANY[1:], ()), (MANY, ("--top-k", "3"))):
        _, notes = run(folder, file(*others), "-o", out, *options, status=1)
        assert "results of another run" in notes and partial.read_bytes() == left and not out.exists()
    partial.write_bytes(left + b'{"line": 99, "te')  # a line that was cut off by a crash
    run(folder, file(*MANY), "-o", out)
    assert [json.loads(line)["line"] for line in out.read_text().splitlines()] == list(range(1, 24))


def test_one_writer_at_a_time(folder, file, tmp_path):
    out = tmp_path / "out.jsonl"
    with open(f"{out}.partial", "wb") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        _, notes = run(folder, file("abc"), "-o", out, status=1)
    assert "another process is writing it" in notes
