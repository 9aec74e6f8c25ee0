# Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Who comes in: keys, hosts and origins, before anything of a body is read."""

import hashlib
import hmac
import time
from collections.abc import Sequence
from dataclasses import dataclass

from starlette.datastructures import Headers

from easyquant.server.errors import ApiError
from easyquant.server.metrics import Metrics

_OPEN = ("/health", "/docs", "/openapi.json", "/")  # without a key: they tell nothing about anybody's requests
_LOOPBACK = ("localhost", "127.0.0.1", "::1")


@dataclass(frozen=True)
class Access:
    keys: Sequence[str] = ()  # none: everybody may come in
    shares_cache: bool = False  # whether beginnings of one key's prompts are kept for the others, too
    origins: Sequence[str] = ()  # of web pages on other servers that may call this one; "*": all
    hosts: Sequence[str] = ()  # names by which clients may call it; none: all


def is_loopback(host: str) -> bool:
    return host in _LOOPBACK or host.startswith("127.")


def hosts_for(host: str, keys: Sequence[str]) -> tuple[str, ...]:
    """A server without keys on this computer alone is called by its names only: a web page whose name was made to mean this computer is not."""
    return () if keys or not is_loopback(host) else (*_LOOPBACK, host)


class Keys:
    """Compared in a time that does not depend on what is right about a key."""

    def __init__(self, keys: Sequence[str]):
        self._digests = [hashlib.sha256(key.encode()).digest() for key in keys]

    def owner(self, authorization: str | None) -> bytes:
        """By which the beginnings of this key's prompts are known. ApiError where there is none such."""
        if not self._digests:
            return b""
        scheme, _, given = (authorization or "").partition(" ")
        if scheme.lower() != "bearer" or not given:
            raise ApiError(401, "an API key is missing; send the header Authorization: Bearer KEY", None, "invalid_api_key", {"www-authenticate": "Bearer"})
        own, found = hashlib.sha256(given.strip().encode("utf-8", "surrogateescape")).digest(), None
        for digest in self._digests:
            if hmac.compare_digest(digest, own):
                found = digest
        if found is None:
            raise ApiError(401, "the API key is none of this server's", None, "invalid_api_key", {"www-authenticate": "Bearer"})
        return found[:16]


class Gate:
    """An ASGI application around another. Puts `owner` into the state of a request, and counts replies."""

    def __init__(self, app, access: Access, metrics: Metrics, endpoints: Sequence[str]):
        self._app, self._access, self._keys, self._metrics, self._endpoints = app, access, Keys(access.keys), metrics, frozenset(endpoints)

    async def __call__(self, scope, receive, send) -> None:
        if scope["type"] != "http":
            return await self._app(scope, receive, send)
        begin, status = time.perf_counter(), 499

        async def counted(message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        endpoint = scope["path"] if scope["path"] in self._endpoints else "other"
        try:
            scope["state"]["owner"] = self._check(scope)
            await self._app(scope, receive, counted)
        except ApiError as error:
            await error.response()(scope, receive, counted)
        finally:
            self._metrics.requests.labels(endpoint, status).inc()
            self._metrics.request_seconds.labels(endpoint).observe(time.perf_counter() - begin)

    def _check(self, scope) -> bytes:
        headers = Headers(scope=scope)
        host = headers.get("host", "")
        name = host[1 : host.find("]")] if host.startswith("[") else host.partition(":")[0]
        if self._access.hosts and name.lower() not in self._access.hosts:
            raise ApiError(403, f"the server is not called {name[:80]!r}; it answers to {', '.join(dict.fromkeys(self._access.hosts))}", None, "wrong_host")
        origin = headers.get("origin")
        if origin is not None and origin.partition("://")[2] != host and not {"*", origin} & set(self._access.origins):
            raise ApiError(403, f"the web page at {origin[:80]!r} may not call this server; --cors-origin lets it", None, "wrong_origin")
        if scope["path"] in _OPEN or scope["method"] == "OPTIONS":
            return b""
        owner = self._keys.owner(headers.get("authorization"))
        return b"" if self._access.shares_cache else owner
