# Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""`easyquant serve` and clients that leave, wait, crowd or may not come in; and how it ends."""

import contextlib
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time

import numpy as np
import openai
import pytest

import easyquant
from easyquant.runtime.extension import runtime
from easyquant.server import process
from easyquant.server.gate import Access, hosts_for
from easyquant.server.limits import Limits
from command_line import run_command_line
from helpers import random_llama, ranks_below, write_letters, write_model
from serve_client import serving

ENDLESS = {"temperature": 0, "logit_bias": {"2": -100}}  # never its end token


@pytest.fixture(scope="module")
def folder(letters):
    return letters("--scheme=W8A8")


def request(path: str, body: dict, **headers) -> bytes:
    raw = json.dumps(body).encode()
    lines = [f"POST {path} HTTP/1.1", "Host: localhost", f"Content-Length: {len(raw)}", *(f"{name}: {value}" for name, value in headers.items())]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + raw


@pytest.mark.parametrize("stream", [True, False])
def test_a_client_that_leaves_frees_its_pages(folder, stream):
    with serving({"letters": folder}) as client:
        engine = client.served.engine
        steps = engine.figures.steps
        with socket.create_connection(("127.0.0.1", client.port)) as connection:
            connection.sendall(request("/v1/completions", {"prompt": "abc", "max_tokens": 150, "n": 3, "stream": stream, **ENDLESS}))
            while engine.figures.running < 3:
                time.sleep(0.001)
        client.settle()
        assert engine.figures.steps - steps < 150 and engine.figures.free_pages == engine.figures.pages
        assert client.complete().status == 200


def test_those_that_wait_can_leave_too(folder):
    with serving({"letters": folder}, sequences=1, limits=Limits(waiting=8)) as client:
        first = threading.Thread(target=client.complete, kwargs={"max_tokens": 150, **ENDLESS})
        first.start()
        while not client.served.engine.figures.running:
            time.sleep(0.001)
        with socket.create_connection(("127.0.0.1", client.port)) as connection:
            connection.sendall(request("/v1/completions", {"prompt": "abc", "max_tokens": 150, **ENDLESS}))
            while client.served.admitted < 2:
                time.sleep(0.001)
        first.join()
        client.settle()


def test_a_full_queue_says_when_to_ask_again(folder):
    with serving({"letters": folder}, sequences=2, limits=Limits(waiting=2)) as client:
        replies = []
        crowd = [threading.Thread(target=lambda: replies.append(client.complete(max_tokens=100, **ENDLESS))) for _ in range(12)]
        for one in crowd:
            one.start()
        for one in crowd:
            one.join()
        refused = [reply for reply in replies if reply.status != 200]
        assert refused and len(replies) - len(refused) >= 4
        for reply in refused:
            assert (reply.status, reply.error["code"], reply.error["type"]) == (429, "rate_limit_exceeded", "rate_limit_error") and 1 <= int(reply.headers["retry-after"]) <= 60
        client.settle()
        assert client.complete().status == 200 and client.complete(n=4).status == 200
        assert client.complete(n=5).error["code"] == "too_many_choices"


def test_keys_come_in_and_have_beginnings_of_their_own(folder):
    prompt = "0123456789" * 8

    def cached(client, key):
        return client.openai(key).completions.create(model="letters", prompt=prompt, max_tokens=2).usage.prompt_tokens_details.cached_tokens

    with serving({"letters": folder}, Access(keys=("one", "two"))) as client:
        assert [cached(client, key) for key in ("one", "two", "one", "two")] == [0, 0, 64, 64]
        with pytest.raises(openai.AuthenticationError, match="none of this server"):
            cached(client, "three")
        for headers in ({}, {"Authorization": "one"}, {"Authorization": "Basic one"}, {"Authorization": "Bearer "}):
            reply = client.get("/v1/models", **headers)
            assert (reply.status, reply.error["code"]) == (401, "invalid_api_key") and reply.headers["www-authenticate"] == "Bearer"
        assert client.get("/metrics").status == 401 and client.get("/health").status == 200 == client.get("/docs").status
        assert client.get("/v1/models", Authorization="Bearer one").status == 200
    with serving({"letters": folder}, Access(keys=("one", "two"), shares_cache=True)) as client:
        assert [cached(client, key) for key in ("one", "two")] == [0, 64]


def test_pages_of_elsewhere(folder):
    page = {"Origin": "https://example.org"}
    with serving({"letters": folder}, Access(hosts=hosts_for("127.0.0.1", ()))) as client:
        for headers in (page, {"Host": "example.org"}, {"Host": f"evil.example:{client.port}", "Origin": f"http://evil.example:{client.port}"}):
            assert client.get("/v1/models", **headers).status == 403
        for headers in ({}, {"Host": "localhost"}, {"Origin": f"http://127.0.0.1:{client.port}"}):
            reply = client.get("/v1/models", **headers)
            assert reply.status == 200 and "access-control-allow-origin" not in reply.headers
    with serving({"letters": folder}, Access(origins=("https://example.org",))) as client:
        asked = page | {"Access-Control-Request-Method": "POST", "Access-Control-Request-Headers": "authorization,content-type"}
        preflight = client.ask("OPTIONS", "/v1/chat/completions", headers=asked)
        assert preflight.status == 200 and preflight.headers["access-control-allow-origin"] == "https://example.org"
        assert client.get("/v1/models", **page).headers["access-control-allow-origin"] == "https://example.org"
        assert client.get("/v1/models", Origin="https://other.org").status == 403


def test_limits_of_prompts_answers_and_time(folder):
    with serving({"letters": folder}, limits=Limits(prompt_tokens=20, max_tokens=30, seconds=0.05)) as client:
        assert client.complete("a" * 21).error["code"] == "context_length_exceeded" and client.complete(max_tokens=31).error["param"] == "max_tokens"
        reply = client.post("/v1/completions", {"prompt": "abc", "max_tokens": 30, "n": 64, **ENDLESS})
        assert (reply.status, reply.error["code"]) == (504, "timeout") or reply.status == 200
        events = client.post("/v1/completions", {"prompt": "abc", "max_tokens": 30, "n": 64, "stream": True, **ENDLESS}).events
        assert events[-1].get("error", {"code": "timeout"})["code"] == "timeout"
        client.settle()


def test_slow_clients(folder, monkeypatch):
    monkeypatch.setattr(process, "HEADER_SECONDS", 0.3)
    monkeypatch.setattr("easyquant.server.app.HEADER_SECONDS", 0.3)
    with serving({"letters": folder}) as client:
        begin = time.monotonic()
        for data in (b"", b"GET /health HT", b"GET /health HTTP/1.1\r\nHost: a\r\nX: "):
            assert client.raw(data) == b""
        assert b"408" in client.raw(b"POST /tokenize HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\n{")
        twice = b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n"
        assert client.raw(twice + b"GET /hea").count(b"200 OK") == 1
        assert time.monotonic() - begin < 30
        # One that does not read what it asked for holds nothing up, and its answer goes on until it is done.
        with socket.create_connection(("127.0.0.1", client.port)) as connection:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1024)
            connection.sendall(request("/v1/completions", {"prompt": "abc", "max_tokens": 150, "n": 4, "stream": True, **ENDLESS}))
            assert client.complete().status == 200
            client.settle()


def test_more_connections_than_there_may_be(folder):
    with serving({"letters": folder}, limits=Limits(connections=4)) as client:
        idle = [socket.create_connection(("127.0.0.1", client.port)) for _ in range(4)]
        assert client.get("/health").status == 503
        for connection in idle:
            connection.close()
        until = time.monotonic() + 20
        while client.get("/health").status != 200:
            assert time.monotonic() < until


@pytest.mark.parametrize("data", [
    b"\x16\x03\x01\x02\x00\x01", b"GET /x HTTP/9.9\r\n\r\n", b"GET /" + b"a" * 70000, b"POST /tokenize HTTP/1.1\r\nHost: localhost\r\nContent-Length: -5\r\n\r\n",
    b"POST /tokenize HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n", b"GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\nX\r\n\r\n",
    b"GET /\xff\xfe HTTP/1.1\r\nHost: a\r\n\r\n", b"GET /health HTTP/1.1\r\n" + b"A: b\r\n" * 20000 + b"\r\n", b"\x00" * 1000, b"GET http://169.254.169.254/ HTTP/1.1\r\nHost: localhost\r\n\r\n",
    b"POST /tokenize HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer \xff\xfe\r\nContent-Length: 2\r\n\r\n{}",
])  # fmt: skip
def test_what_is_no_request(folder, shared, data):
    reply = shared.raw(data, patience=1)
    assert reply == b"" or reply.startswith(b"HTTP/1.1 4"), reply[:200]
    assert shared.get("/health").status == 200


@pytest.fixture(scope="module")
def shared(folder):
    with serving({"letters": folder}) as client:
        yield client


class Failing:
    """A batch whose steps or choices fail as they are told."""

    def __init__(self, batch):
        self._batch, self.appends, self.chooses = batch, [], []

    def __getattr__(self, name):
        return getattr(self._batch, name)

    def append(self, items, **options):
        if self.appends:
            raise self.appends.pop()
        return self._batch.append(items, **options)

    def choose(self, items):
        return [self.chooses.pop()] * len(items) if self.chooses else self._batch.choose(items)


def test_a_failure_is_an_error_and_the_server_goes_on(folder):
    with serving({"letters": folder}) as client:
        expected = client.complete().json["choices"]
        batch = client.served.engine._batch = Failing(client.served.engine._batch)
        step = runtime().Error("the device has failed")
        for fails, words in ((lambda: batch.appends.append(step), "the device has failed"), (lambda: batch.chooses.append(runtime().Error("logits: NaN")), "logits: NaN")):
            fails()
            reply = client.complete()
            assert (reply.status, reply.error["type"], reply.error["code"]) == (500, "server_error", "engine_error") and reply.error["message"] == words
            fails()
            assert client.complete(stream=True).events[-1]["error"]["message"] == words
            fails()
            events = client.post("/v1/responses", {"input": "Hi", "stream": True}).events
            assert [event["type"] for event in events[-2:]] == ["error", "response.failed"] and events[-2]["message"] == words
            fails()
            assert client.complete(n=3).status == 500
        client.settle()
        assert client.complete().json["choices"] == expected and np.isfinite(client.metric("easyquant_answers_total"))


def test_two_models(folder, letters):
    with serving({"one": folder, "two": letters("--scheme=W4A8", "--group-size=8")}) as client:
        assert [card["id"] for card in client.get("/v1/models").json["data"]] == ["one", "two"]
        texts = [client.complete(model=name, max_tokens=30).json["choices"][0]["text"] for name in ("one", "two")]
        assert texts[0] != texts[1] and client.complete().error["code"] == "missing_required_parameter"


# ----------------------------------------------------------------------------------------------------------- the command


class Command:
    """`easyquant serve` in a process."""

    def __init__(self, *arguments, start=(sys.executable, "-m", "easyquant", "serve"), **environment):
        self.process = subprocess.Popen(
            [*start, *map(str, arguments), "--port", "0", "--threads", "2"],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=os.environ | {"PYTHONUNBUFFERED": "1"} | environment,
        )  # fmt: skip
        self.lines = []
        for line in self.process.stdout:
            self.lines.append(line)
            if line.startswith("curl "):
                break
        assert self.lines, self.process.stderr.read()
        self.curl = self.lines[-1].strip()
        self.port = int(self.lines[-2].partition("/v1")[0].rpartition(":")[2])

    def stream(self, tokens: int) -> socket.socket:
        connection = socket.create_connection(("127.0.0.1", self.port))
        connection.settimeout(60)
        connection.sendall(request("/v1/completions", {"prompt": "abc", "max_tokens": tokens, "stream": True, **ENDLESS}))
        assert connection.recv(10000)
        return connection


def read_all(connection: socket.socket) -> bytes:
    found = b""
    while piece := connection.recv(65536):
        found += piece
    return found


def test_the_command_serves_and_ends_when_it_is_told(folder):
    command = Command(folder, "--served-name", "tiny", "--sequences", "2")
    try:
        done = subprocess.run(command.curl, shell=True, capture_output=True, text=True, timeout=60, check=True)
        assert json.loads(done.stdout)["choices"][0]["message"]["role"] == "assistant" and '"model": "tiny"' in command.curl
        connection = command.stream(150)
        command.process.send_signal(signal.SIGTERM)
        rest = read_all(connection)
        assert b'"finish_reason":"length"' in rest and b"data: [DONE]" in rest  # what runs is finished
        assert command.process.wait(30) == 0 and "Traceback" not in command.process.stderr.read()
        with pytest.raises(OSError):
            socket.create_connection(("127.0.0.1", command.port))
    finally:
        command.process.kill()


def test_full_disks_behind_its_logs(folder):
    """It answers all the same."""
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    with open("/dev/full", "w") as full:
        server = subprocess.Popen([sys.executable, "-m", "easyquant", "serve", folder, "--port", str(port), "--threads", "1", "--access-log"], stdout=full, stderr=full)
    try:
        for _ in range(600):
            assert server.poll() is None
            with contextlib.suppress(OSError):
                socket.create_connection(("127.0.0.1", port)).close()
                break
            time.sleep(0.1)
        for _ in range(3):
            answer = openai.OpenAI(base_url=f"http://127.0.0.1:{port}/v1", api_key="none").completions.create(model="0", prompt="abc", max_tokens=2)
            assert answer.usage.completion_tokens > 0
        server.send_signal(signal.SIGTERM)
        assert server.wait(30) == 0
    finally:
        server.kill()


def test_models_are_compiled_at_first(letters_model, tmp_path):
    command = Command(letters_model, "--scheme", "W8A8", "--context", "100", EASYQUANT_CACHE=str(tmp_path))
    try:
        done = subprocess.run(command.curl, shell=True, capture_output=True, text=True, timeout=60, check=True)
        assert json.loads(done.stdout)["model"] == "letters" and "context 100" in command.lines[0] and list(tmp_path.glob("artifacts/letters-*"))
    finally:
        command.process.kill()


@pytest.mark.parametrize("signals, grace, status", [([signal.SIGINT], 0, 0), ([signal.SIGTERM, signal.SIGTERM], 60, 128 + signal.SIGTERM)])
def test_what_does_not_finish_in_time(folder, signals, grace, status):
    """It is told so, or a second signal ends it all at once."""
    command = Command(folder, "--grace", grace)
    try:
        connections = [command.stream(150) for _ in range(3)]
        for number in signals:
            command.process.send_signal(number)
            time.sleep(0.02)
        found = command.process.wait(30)
        assert found == status or found == 0  # where it was done before the second came
        for connection in connections:
            connection.close()
    finally:
        command.process.kill()


@pytest.mark.skipif(not shutil.which("mpirun"), reason="unsupported: no mpirun")
def test_rank_0_serves_what_ranks_share(artifact, workspace, monkeypatch):
    model = write_letters(write_model(workspace / "served-by-ranks", *random_llama(3, hidden=64, ffn=128, heads=8, kv_heads=4, context=160)))
    files = [f"--copy-file={model / name}" for name in ("tokenizer.json", "tokenizer_config.json")]
    single, shared = (artifact(model, "--scheme=W8A8", "--hadamard-block=16", f"--tensor-parallel={ranks}", *files) for ranks in (1, 2))
    with easyquant.Model(single, threads=1) as alone:
        expected = alone.generate("abc", max_tokens=8).text
    for name in ("OMPI_ALLOW_RUN_AS_ROOT", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM"):
        monkeypatch.setenv(name, "1")
    # Ranks hear of each other while nobody asks for anything, too.
    script = "from easyquant.runtime import engine; engine.BEAT_SECONDS = 0.2; from easyquant.commands.cli import main; main()"
    command = Command(shared, start=["mpirun", "--oversubscribe", "-n", "2", sys.executable, "-c", script, "serve"])
    try:
        time.sleep(1)
        with socket.create_connection(("127.0.0.1", command.port), timeout=60) as connection:
            connection.sendall(request("/v1/completions", {"prompt": "abc", "max_tokens": 8, "temperature": 0}, Connection="close"))
            assert json.loads(read_all(connection).partition(b"\r\n\r\n")[2])["choices"][0]["text"] == expected
        os.kill(ranks_below(command.process, 2)[0], signal.SIGTERM)
        assert command.process.wait(60) == 0, command.process.stderr.read()
    finally:
        command.process.kill()


def test_the_command_line(folder, tmp_path):
    def refused(*arguments, **environment):
        done = run_command_line("serve", *arguments, **environment)
        assert done.returncode == 1, done
        return done.stderr

    assert "--host 0.0.0.0: others can reach the server there; give --api-key" in refused(folder, "--host", "0.0.0.0")
    assert "two models have this name" in refused(folder, folder) and "found 2 names for 1 models" in refused(folder, "--served-name", "a", "--served-name", "b")
    assert "there is no such file or folder" in refused(tmp_path / "none")
    (tmp_path / "keys").write_text("# none\n")
    assert "holds no key" in refused(folder, "--api-key-file", tmp_path / "keys") and "other characters" in refused(folder, "--api-key", "a b")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        assert "cannot listen there (Address already in use); choose another one" in refused(folder, "--port", taken.getsockname()[1])
    assert "cannot listen there" in refused(folder, "--host", "no.such.host.invalid", "--insecure")
    assert f"1 to 160, for which {folder} was made" in refused(folder, "--context", 161, "--port", 0)


def test_what_the_server_needs_is_named_where_it_is_missing(folder):
    script = "import sys; sys.modules['uvicorn'] = None; from easyquant.commands.cli import main; main()"
    done = subprocess.run([sys.executable, "-c", script, "serve", folder], capture_output=True, text=True)
    assert done.returncode == 1 and "uvicorn is not installed, which the server needs; pip install '.[serve]'" in done.stderr
