# Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The endpoints, as an application that any ASGI server can run."""

import asyncio
import contextlib
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor

import orjson
from fastapi import FastAPI, Request
from starlette.exceptions import HTTPException
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import ClientDisconnect
from starlette.responses import HTMLResponse, Response

from easyquant import __version__
from easyquant.server import chat, completions, responses, text_tools
from easyquant.server.answers import Answers
from easyquant.server.asking import Asker
from easyquant.server.bridge import Bridge
from easyquant.server.errors import ApiError
from easyquant.server.fields import Fields, read_json
from easyquant.server.gate import Access, Gate
from easyquant.server.limits import HEADER_SECONDS, Limits
from easyquant.server.metrics import Metrics
from easyquant.server.pages import chat_page, docs_page
from easyquant.server.served import ServedModel
from easyquant.server.streaming import EventStream, watched

_READERS = 4  # threads that make tokens of prompts

# Endpoints that write: how their bodies are read, and how answers become a reply or a stream.
_WRITING = {
    "/v1/chat/completions": (chat.FIELDS, chat.read_chat, chat.whole, chat.stream, "A chat, answered"),
    "/v1/completions": (completions.FIELDS, completions.read_texts, completions.whole, completions.stream, "Texts, continued"),
    "/v1/responses": (responses.FIELDS, responses.read_query, responses.whole, responses.stream, "A conversation, answered; nothing is stored"),
}
_TEXT = {
    "/tokenize": (text_tools.TOKENIZE, text_tools.tokenize, "The tokens of a text or of a chat"),
    "/detokenize": (text_tools.DETOKENIZE, text_tools.detokenize, "The text of tokens"),
}
ENDPOINTS: Mapping[str, tuple[Fields, str]] = {path: (fields, title) for path, (fields, *_, title) in (_WRITING | _TEXT).items()}
OTHERS = {
    "/": "A page to chat",
    "/v1/models": "The models that are served",
    "/v1/models/{model}": "One of them",
    "/health": "Whether requests are taken",
    "/metrics": "Figures for Prometheus",
    "/docs": "What there is",
    "/openapi.json": "The same for programs",
}


def reply(value, status: int = 200) -> Response:
    return Response(orjson.dumps(value), status, media_type="application/json")


async def read_body(request: Request, limits: Limits) -> bytes:
    """ApiError where it is too large, or comes too slowly."""
    data = bytearray()
    try:
        async with asyncio.timeout(HEADER_SECONDS):
            async for chunk in request.stream():
                data += chunk
                if len(data) > limits.body_bytes:
                    raise ApiError(413, f"the body has more than {limits.body_bytes} bytes", None, "body_too_large", {"connection": "close"})
    except ClientDisconnect:
        raise ApiError(499, "the client has left", None, "client_left") from None
    except TimeoutError:
        raise ApiError(408, f"the body did not come within {HEADER_SECONDS:g} s", None, "timeout", {"connection": "close"}) from None
    return bytes(data)


class Service:
    """The models, and how requests get to them. `end` is for who runs the server."""

    def __init__(self, models: Mapping[str, ServedModel], limits: Limits, metrics: Metrics):
        self.models, self.limits, self.metrics = models, limits, metrics
        self._readers = ThreadPoolExecutor(_READERS, "easyquant reader")
        self._answers: set[Answers] = set()
        self.is_ending = False

    def start(self, loop: asyncio.AbstractEventLoop) -> None:
        bridge = Bridge(loop)
        for served in self.models.values():
            served.bridge = bridge

    def end(self) -> None:
        """Ends what still runs; clients are told."""
        self.is_ending = True
        for served in self.models.values():
            served.is_ending = True
        for answers in tuple(self._answers):
            answers.cancel()

    def close(self) -> None:
        self._readers.shutdown(wait=False, cancel_futures=True)

    async def _read(self, request: Request, read: Callable):
        """What `read` makes of the body, beside the event loop."""
        raw = await read_body(request, self.limits)
        asker = Asker(self.models, request.state.owner)
        return await asyncio.get_running_loop().run_in_executor(self._readers, lambda: read(read_json(raw), asker))

    async def write(self, request: Request, read: Callable, whole: Callable, stream: Callable) -> Response:
        asked = await self._read(request, read)
        if self.is_ending:
            raise ApiError(503, "the server is ending; ask again", None, "server_ending", {"retry-after": "5"})
        answers = Answers(asked.served, asked.requests, asked.copies, asked.priority)
        self._answers.add(answers)
        answers.when_over(lambda: self._answers.discard(answers))
        if asked.stream:
            return EventStream(answers, stream(asked, answers))
        try:
            async with watched(request.receive, answers):
                return reply(await whole(asked, answers))
        except TimeoutError:
            raise ApiError(504, f"the answer was not done after {self.limits.seconds:g} s, which is the server's limit", None, "timeout") from None

    async def answer(self, request: Request, make: Callable) -> Response:
        return reply(await self._read(request, make))


def _model_card(served: ServedModel) -> dict:
    card = {"id": served.name, "object": "model", "created": served.created, "owned_by": "easyquant"}
    return card | {"max_model_len": served.reader.context, "description": served.artifact.describe()}


def _schema(fields: Fields) -> dict:
    """For /openapi.json."""
    known = {name: {"description": field.meaning} for name, field in fields.items() if not field.refused}
    return {"requestBody": {"required": True, "content": {"application/json": {"schema": {"type": "object", "properties": known}}}}}


def make_app(models: Mapping[str, ServedModel], limits: Limits, access: Access, metrics: Metrics) -> tuple[FastAPI, Service]:
    service = Service(models, limits, metrics)

    @contextlib.asynccontextmanager
    async def lifespan(app: FastAPI):
        service.start(asyncio.get_running_loop())
        yield
        service.close()

    app = FastAPI(title="EasyQuant", version=__version__, docs_url=None, redoc_url=None, lifespan=lifespan)

    def add(path: str, method: str, title: str, handle: Callable, **more) -> None:
        app.add_api_route(path, handle, methods=[method], summary=title, response_class=Response, **more)

    def add_writing(path: str) -> None:
        fields, read, whole, stream, title = _WRITING[path]

        async def handle(request: Request):
            return await service.write(request, read, whole, stream)

        add(path, "POST", title, handle, openapi_extra=_schema(fields))

    def add_text(path: str) -> None:
        fields, make, title = _TEXT[path]

        async def handle(request: Request):
            return await service.answer(request, make)

        add(path, "POST", title, handle, openapi_extra=_schema(fields))

    for path in _WRITING:
        add_writing(path)
    for path in _TEXT:
        add_text(path)

    async def list_models():
        return reply({"object": "list", "data": [_model_card(served) for served in models.values()]})

    async def one_model(model: str):
        return reply(_model_card(Asker(models).named(model)))

    async def health():
        return reply({"status": "ending" if service.is_ending else "ok", "models": list(models)}, 503 if service.is_ending else 200)

    async def figures():
        return Response(metrics.text(), media_type="text/plain; version=0.0.4; charset=utf-8")

    async def docs():
        return HTMLResponse(docs_page(ENDPOINTS, OTHERS))

    page, page_headers = chat_page()

    async def chatting():
        return HTMLResponse(page, headers=page_headers)

    for path, handle in (("/", chatting), ("/v1/models", list_models), ("/v1/models/{model:path}", one_model), ("/health", health), ("/metrics", figures), ("/docs", docs)):
        add(path, "GET", OTHERS[path.replace(":path", "")], handle)

    @app.exception_handler(ApiError)
    async def told(request: Request, error: ApiError):
        return error.response()

    @app.exception_handler(HTTPException)
    async def not_there(request: Request, error: HTTPException):
        message = f"{request.method} {request.url.path[:200]}: {error.detail}; /docs says what there is"
        return ApiError(error.status_code, message, None, "unknown_url" if error.status_code == 404 else None, error.headers).response()

    @app.exception_handler(Exception)
    async def failed(request: Request, error: Exception):
        return ApiError(500, "the server has made a mistake; its log says which", None, "internal_error").response()

    app.add_middleware(Gate, access=access, metrics=metrics, endpoints=[*ENDPOINTS, *OTHERS])
    if access.origins:
        app.add_middleware(CORSMiddleware, allow_origins=list(access.origins), allow_methods=["GET", "POST"], allow_headers=["*"], max_age=600)
    return app, service
