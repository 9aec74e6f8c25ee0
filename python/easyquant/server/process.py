# Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The server as a process: its socket, slow clients, and signals that end it."""

import asyncio
import contextlib
import os
import signal
import socket
import threading
from collections.abc import Callable, Iterator

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from easyquant.server.app import Service
from easyquant.server.limits import HEADER_BYTES, HEADER_SECONDS, Limits
from easyquant.support.errors import UserError

_BACKLOG = 2048


class _Protocol(H11Protocol):
    """Closes a connection on which a request does not become whole, which uvicorn would wait for."""

    _late: asyncio.TimerHandle | None = None

    def connection_made(self, transport) -> None:
        super().connection_made(transport)
        self._expect()

    def connection_lost(self, error) -> None:
        self._forget()
        super().connection_lost(error)

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self.cycle is not None and not self.cycle.response_complete:
            self._forget()
        elif self._late is None and not self.transport.is_closing():
            self._expect()

    def on_response_complete(self) -> None:
        self._forget()
        super().on_response_complete()

    def _expect(self) -> None:
        self._late = self.loop.call_later(HEADER_SECONDS, self.transport.close)

    def _forget(self) -> None:
        if self._late is not None:
            self._late.cancel()
            self._late = None


def listen(host: str, port: int) -> socket.socket:
    """A socket, bound before anything is loaded."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
        bound = socket.socket(family, kind, protocol)
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.bind(address)
    except OSError as error:
        raise UserError(f"--host {host} --port {port}: cannot listen there ({error.strerror or error}); choose another one") from None
    return bound


class Server(uvicorn.Server):
    """Serves until it is told to end. The first signal lets what runs finish within `grace` seconds; the second ends at once."""

    def __init__(self, app, service: Service, limits: Limits, grace: float, access_log: bool = False, tell: Callable[[], None] = lambda: None):
        """tell: is called once clients can come."""
        super().__init__(uvicorn.Config(
            app, http=_Protocol, loop="uvloop", ws="none", lifespan="on", log_level="info" if access_log else "error", access_log=access_log, server_header=False,
            backlog=_BACKLOG, limit_concurrency=limits.connections, h11_max_incomplete_event_size=HEADER_BYTES, timeout_graceful_shutdown=int(grace) + 10,
        ))  # fmt: skip
        self._service, self._grace, self._tell = service, grace, tell

    def handle_exit(self, number: int, frame) -> None:
        if self.should_exit:
            os._exit(128 + number)
        self.should_exit = True

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """uvicorn would raise them again once all is done; here the end that was asked for is a success."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        before = {number: signal.signal(number, self.handle_exit) for number in (signal.SIGINT, signal.SIGTERM)}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    async def startup(self, sockets=None) -> None:
        await super().startup(sockets)
        self._tell()

    async def shutdown(self, sockets=None) -> None:
        loop = asyncio.get_running_loop()
        late = loop.call_later(self._grace, self._service.end)
        try:
            await super().shutdown(sockets)
        finally:
            late.cancel()
