# Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What a client is told that asked for something wrong, in the form that OpenAI's API has."""

from collections.abc import Mapping

import orjson
from starlette.responses import Response

from easyquant.support.errors import UserError

_TYPES = {401: "authentication_error", 403: "permission_error", 429: "rate_limit_error"}


class ApiError(Exception):
    """`param`: the field of the body that is wrong. `code`: for programs, as OpenAI has it where it has one."""

    def __init__(self, status: int, message: str, param: str | None = None, code: str | None = None, headers: Mapping[str, str] | None = None):
        super().__init__(message)
        self.status, self.message, self.param, self.code, self.headers = status, message, param, code, dict(headers or {})

    @property
    def body(self) -> dict:
        kind = "server_error" if self.status >= 500 else _TYPES.get(self.status, "invalid_request_error")
        return {"error": {"message": self.message, "type": kind, "param": self.param, "code": self.code}}

    def response(self) -> Response:
        return Response(orjson.dumps(self.body), self.status, self.headers, "application/json")


def of_user_error(error: UserError, param: str | None = None) -> ApiError:
    """`param`: where the message does not begin with the name of a field."""
    name, colon, _ = str(error).partition(":")
    return ApiError(400, str(error), param or (name if colon and name.isidentifier() else None), "invalid_value")
