# Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""From prompts to requests of the engine. It takes milliseconds, and runs in threads beside the event loop."""

from collections.abc import Mapping

import numpy as np

from easyquant.runtime.requests import Request, Settings, TooLong
from easyquant.server.errors import ApiError, of_user_error
from easyquant.server.fields import Body
from easyquant.server.sampling import room_for
from easyquant.server.served import ServedModel
from easyquant.support.errors import UserError
from easyquant.text.messages import Conversation


class Asker:
    """Who asks, and which models there are."""

    def __init__(self, models: Mapping[str, ServedModel], owner: bytes = b""):
        self.models, self.owner = models, owner

    def model(self, body: Body) -> ServedModel:
        name = body.text("model")
        if name is None and len(self.models) == 1:
            return next(iter(self.models.values()))
        if name is None:
            raise ApiError(400, f"model: is missing; this server has {', '.join(self.models)}", "model", "missing_required_parameter")
        return self.named(name)

    def named(self, name: str) -> ServedModel:
        served = self.models.get(name)
        if served is None:
            raise ApiError(404, f"model: there is no {name[:80]!r} here; this server has {', '.join(self.models)}", "model", "model_not_found")
        return served

    def request(self, tokens: np.ndarray, max_tokens: int, settings: Settings, begins_text: bool, **more) -> Request:
        return Request(tokens, max_tokens, settings, begins_text, is_text=False, owner=self.owner, **more)


def read_tokens(served: ServedModel, prompt, param: str) -> np.ndarray:
    """The tokens of a text, or of a list of their ids."""
    try:
        return served.reader.tokens(prompt)
    except TooLong as error:
        room_for(served, error.tokens, None, param)
        raise
    except UserError as error:
        raise ApiError(400, served.without_paths(str(error)), param, "invalid_value") from None


def render(served: ServedModel, param: str, messages: list[dict], **more) -> str:
    """The text of a chat. `more`: fields of a Conversation."""
    if not served.reader.tokenizer.has_chat_template:
        raise ApiError(400, f"{served.name} has no chat template; use /v1/completions", param, "no_chat_template")
    try:
        return served.reader.tokenizer.render_chat(Conversation(messages, **more))
    except UserError as error:
        raise ApiError(400, served.without_paths(str(error)), param, "template_error") from None


def chat_tokens(served: ServedModel, text: str, param: str) -> np.ndarray:
    try:
        return served.reader.chat_tokens(text)
    except TooLong as error:
        room_for(served, error.tokens, None, param)
        raise
    except UserError as error:
        raise of_user_error(error, param) from None
