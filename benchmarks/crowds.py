# Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What scripts that load a server of OpenAI's API have in common: a client, the server itself, and an eye on it.

The client is one asyncio loop that looks for events and reads no JSON but whole answers.
"""

import asyncio
import contextlib
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

CHUNKS = b"transfer-encoding: chunked"


@dataclass
class Reply:
    status: int
    body: bytes = b""
    times: list[float] = field(default_factory=list)  # of events that came, seconds after the request


class Client:
    """Requests to one server, a connection each."""

    def __init__(self, url: str, key: str | None):
        parts = urlsplit(url)
        self.host, self.port, self.path = parts.hostname, parts.port or 80, parts.path.rstrip("/")
        self._key = f"Authorization: Bearer {key}\r\n" if key else ""

    def request(self, path: str, body: bytes | None) -> bytes:
        method = "GET" if body is None else "POST"
        head = f"{method} {path} HTTP/1.1\r\nHost: {self.host}:{self.port}\r\nConnection: close\r\n{self._key}"
        return f"{head}Content-Type: application/json\r\nContent-Length: {len(body or b'')}\r\n\r\n".encode() + (body or b"")

    async def send(self, data: bytes, leave_after: int | None = None) -> Reply:
        """`leave_after`: events, after which the connection is closed."""
        reader, writer = await asyncio.open_connection(self.host, self.port, limit=1 << 22)
        begin, reply = time.perf_counter(), Reply(0)
        try:
            writer.write(data)
            if leave_after == 0:
                await asyncio.sleep(0.05)
                return reply
            head = await reader.readuntil(b"\r\n\r\n")
            reply.status = int(head[9:12])
            is_chunked = CHUNKS in head.lower()
            while True:
                piece = await (self._chunk(reader) if is_chunked else reader.read(1 << 16))
                if not piece:
                    return reply
                reply.body += piece
                if is_chunked:
                    reply.times += [time.perf_counter() - begin] * piece.count(b"data: {")
                if leave_after is not None and len(reply.times) >= leave_after:
                    return reply
        except (asyncio.IncompleteReadError, ConnectionError):
            return reply
        finally:
            writer.close()

    @staticmethod
    async def _chunk(reader: asyncio.StreamReader) -> bytes:
        size = int(await reader.readuntil(b"\r\n"), 16)
        piece = await reader.readexactly(size + 2)
        return piece[:-2]

    async def post(self, path: str, body: dict, leave_after: int | None = None) -> Reply:
        return await self.send(self.request(self.path + path, json.dumps(body).encode()), leave_after)

    async def get(self, path: str) -> bytes:
        return (await self.send(self.request(path, None))).body


@contextlib.contextmanager
def served(artifact: Path, options: list[str]):
    """A Client of `easyquant serve ARTIFACT` with these options and any free port, and the id of its process; the model's name is "model"."""
    options = [*options, "--port=0", "--served-name=model"]
    notes = tempfile.TemporaryFile("w+")
    process = subprocess.Popen([sys.executable, "-m", "easyquant", "serve", artifact, *options], stdout=subprocess.PIPE, stderr=notes, text=True)
    try:
        url = next((line.split()[0] for line in process.stdout if line.startswith("http")), None)
        if url is None:
            raise SystemExit("error: the server did not start")
        yield Client(url, None), process.pid
        process.terminate()
        if process.wait(300) != 0:
            raise SystemExit(f"error: the server ended with status {process.returncode}")
    finally:
        process.kill()
        notes.seek(0)
        said = notes.read()
        sys.stderr.write(said)
    if "Traceback" in said:
        raise SystemExit("error: the server had an exception")


class Watched:
    """A server that is asked much: what its memory does, and what is wrong."""

    def __init__(self, asked, client: Client, pid: int):
        self.asked, self.client, self.pid = asked, client, pid
        self.memory: list[int] = []  # MB, each second
        self.wrong: list[str] = []

    async def watch(self, work: Awaitable) -> None:
        """Until the work is done; then nothing may run any more, and memory must be flat."""
        work = asyncio.ensure_future(work)
        while not work.done():
            await asyncio.wait([work], timeout=1)
            status = Path(f"/proc/{self.pid}/status").read_text()
            self.memory.append(int(status.partition("VmRSS:")[2].split()[0]) // 1024)
        await work
        await self._settled()
        if self.growth > self.asked.growth:
            self.wrong.append(f"memory has grown by {self.growth} MB: {self.memory[:: max(1, len(self.memory) // 20)]}")

    @property
    def growth(self) -> int:
        """MB after the first quarter of the time."""
        quarter = len(self.memory) // 4
        return max(self.memory[quarter:], default=0) - max(self.memory[: quarter + 1], default=0)

    async def _settled(self) -> None:
        """Nothing runs."""
        for _ in range(1200):
            figures = {line.partition("{")[0]: float(line.split()[-1]) for line in (await self.client.get("/metrics")).decode().split("\r\n\r\n")[-1].splitlines() if line and line[0] != "#"}
            if figures["easyquant_requests_running"] == figures["easyquant_requests_waiting"] == 0:
                return
            await asyncio.sleep(0.1)
        self.wrong.append("requests of clients that have left still run")
