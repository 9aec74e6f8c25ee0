# Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""A real server on the loopback, in a thread of this process, and clients for it."""

import contextlib
import http.client
import json
import socket
import threading
import time
from dataclasses import dataclass

import openai

from easyquant.runtime.artifact import Artifact
from easyquant.server import process
from easyquant.server.app import make_app
from easyquant.server.gate import Access
from easyquant.server.metrics import Metrics
from easyquant.server.served import ServedModel, ServeOptions, open_all


@dataclass
class Reply:
    status: int
    headers: dict
    body: bytes

    @property
    def json(self):
        return json.loads(self.body)

    @property
    def error(self) -> dict:
        """The error object, which has the fields of OpenAI's and nothing else."""
        assert self.status >= 400, self
        (error,) = self.json.values()
        assert set(error) == {"message", "type", "param", "code"} and error["message"] and "\n" not in error["message"], error
        return error

    @property
    def events(self) -> list[dict]:
        """What server-sent events have, without [DONE]."""
        assert self.status == 200, self
        lines = [line.removeprefix("data: ") for line in self.body.decode().split("\n") if line.startswith("data: ")]
        return [json.loads(line) for line in lines if line != "[DONE]"]


@dataclass
class Client:
    """`post` and `get` over a connection of their own each."""

    port: int
    models: dict[str, ServedModel]
    server: process.Server

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/v1"

    @property
    def served(self) -> ServedModel:
        return next(iter(self.models.values()))

    def ask(self, method: str, path: str, body: bytes | None = None, headers: dict | None = None) -> Reply:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        try:
            connection.request(method, path, body, {"Content-Type": "application/json"} | (headers or {}))
            reply = connection.getresponse()
            return Reply(reply.status, {name.lower(): value for name, value in reply.getheaders()}, reply.read())
        finally:
            connection.close()

    def get(self, path: str, **headers) -> Reply:
        return self.ask("GET", path, headers=headers)

    def post(self, path: str, body, **headers) -> Reply:
        return self.ask("POST", path, body if isinstance(body, bytes) else json.dumps(body).encode(), headers)

    def chat(self, text: str = "Hi", **fields) -> Reply:
        return self.post("/v1/chat/completions", {"messages": [{"role": "user", "content": text}], "max_tokens": 8, "temperature": 0} | fields)

    def complete(self, prompt="abc", **fields) -> Reply:
        return self.post("/v1/completions", {"prompt": prompt, "max_tokens": 8, "temperature": 0} | fields)

    def openai(self, key: str = "none", kind=openai.OpenAI):
        return kind(base_url=self.url, api_key=key, max_retries=0, timeout=60)

    def raw(self, data: bytes, patience: float = 10) -> bytes:
        """What comes back until the server closes, or for so long."""
        with socket.create_connection(("127.0.0.1", self.port), timeout=patience) as connection:
            connection.sendall(data)
            found = b""
            with contextlib.suppress(TimeoutError, ConnectionError):
                while piece := connection.recv(65536):
                    found += piece
            return found

    def metric(self, name: str) -> float:
        """The sum over all labels."""
        lines = self.get("/metrics").body.decode().splitlines()
        return sum(float(line.rpartition(" ")[2]) for line in lines if line.partition("{")[0].partition(" ")[0] == name)

    def settle(self, patience: float = 20) -> None:
        """Until nothing runs, and no page is taken but by beginnings that are kept."""
        until = time.monotonic() + patience
        for served in self.models.values():
            while served.admitted or served.engine.figures.running or served.engine.figures.waiting:
                assert time.monotonic() < until, (served.admitted, served.engine.figures)
                time.sleep(0.01)


@contextlib.contextmanager
def serving(folders: dict, access: Access = Access(), grace: float = 5, **options):
    """A Client of a server of artifacts, by names."""
    options = ServeOptions(**{"threads": 2, "sequences": 4} | options)
    metrics = Metrics()
    models = open_all([(Artifact.open(folder), name) for name, folder in folders.items()], options, metrics, lambda text: None)
    app, service = make_app(models, options.limits, access, metrics)
    server, bound = process.Server(app, service, options.limits, grace), process.listen("127.0.0.1", 0)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [bound]})
    thread.start()
    try:
        until = time.monotonic() + 20
        while not server.started:
            assert thread.is_alive() and time.monotonic() < until
            time.sleep(0.01)
        yield Client(bound.getsockname()[1], models, server)
    finally:
        server.should_exit = True
        thread.join(60)
        for model in models.values():
            model.close()
    assert not thread.is_alive()
