# Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What one call of `easyquant.Model` asks of an engine, and what comes of it."""

from dataclasses import dataclass

from easyquant.runtime.events import Event
from easyquant.runtime.generation import Completion
from easyquant.runtime.requests import Request
from easyquant.support.errors import UserError


@dataclass
class Call:
    requests: list[Request]
    completions: list[Completion]  # of all prompts, an error where a prompt is none
    places: list[int]  # of the requests among them
    is_one: bool
    priority: int = 0
    deadline: float | None = None  # on the clock of time.monotonic()

    def take(self, event: Event, number: int) -> None:
        self.completions[self.places[number]] = event.completion

    def result(self) -> Completion | list[Completion]:
        """Once all is done. The error of a single prompt is raised."""
        if not self.is_one:
            return self.completions
        (completion,) = self.completions
        if completion.error:
            raise UserError(completion.error)
        return completion
