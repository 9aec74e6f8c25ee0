# Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What a batch does next: who joins, who reads how much of a prompt, who steps back where pages run out.

No batch, no clock and no thread is known here: a `Place` has the sequences, and times are what the caller says.

Jobs have an order: by when they came, a unit of priority being worth PRIORITY_SECONDS of waiting. Those that run are always the first
ones of it that fit, the very first among them, and each step takes each token that continues an answer and at least one piece of the
first prompt that is being read. So a job is done after at most as many steps as the jobs up to it in the order have pieces and tokens
to come, whatever comes behind it.
"""

import bisect
from typing import Protocol

PRIORITY_SECONDS = 10.0
_FORGETTING = 0.2  # of what a step was measured to take, for each new one


class Job:
    """A sequence of tokens that is read, and continued token by token."""

    def __init__(self, number: int, arrival: float, tokens: int, priority: int = 0, deadline: float | None = None):
        self.order = (arrival - priority * PRIORITY_SECONDS, number)  # `number`: a job's own
        self.deadline = deadline
        self.tokens = tokens  # that there are, the prompt and then the answer
        self.held = 0  # of them, by its sequence
        self.guesses = 0  # tokens behind them that its next step verifies, where there is room
        self.is_done = False

    @property
    def unread(self) -> int:
        return self.tokens - self.held


class Place(Protocol):
    """Where sequences are."""

    def free_pages(self) -> int: ...
    def evict(self) -> bool:
        """Gives up the oldest of what is kept for later jobs; False: there is nothing."""

    def shared_tokens(self, job: Job) -> int:
        """Tokens of a job that waits which would take no page if it began now."""

    def start(self, job: Job) -> None:
        """Gives it a sequence, and sets what it holds."""

    def set_aside(self, job: Job) -> None:
        """Takes its sequence away; it may begin again later."""


class Scheduler:
    """`sequences` run at a time; a piece of a prompt has up to `piece` tokens, whole pages."""

    def __init__(self, place: Place, sequences: int, page_tokens: int, piece: int = 64, step_seconds: float = 0.05):
        self.place, self.sequences, self.page_tokens, self.step_seconds = place, sequences, page_tokens, step_seconds
        self.piece = -(-piece // page_tokens) * page_tokens
        self.waiting: list[Job] = []  # both in their order
        self.running: list[Job] = []
        self._timed: set[Job] = set()  # those with a deadline
        self._base = self._row = 0.0  # seconds of a step without prompts, and of a row of a prompt

    def add(self, job: Job) -> None:
        bisect.insort(self.waiting, job, key=lambda other: other.order)
        if job.deadline is not None:
            self._timed.add(job)

    def remove(self, job: Job) -> None:
        self._timed.discard(job)
        (self.running if job in self.running else self.waiting).remove(job)

    def expired(self, now: float) -> list[Job]:
        return sorted((job for job in self._timed if job.deadline <= now), key=lambda job: job.order)

    def plan(self) -> list[tuple[Job, int]]:
        """The tokens that jobs read in the next step, in an order of pages: who has been there longer comes first."""
        self._admit()
        items = self._choose()
        while self._pages(items) > self.place.free_pages():
            if any(job.guesses for job in self.running):
                for job in self.running:
                    job.guesses = 0
                items = self._choose()
                continue
            if self.place.evict():
                continue
            if len(self.running) == 1:
                return items  # whose error says what is missing
            self._set_aside(self.running[-1])
            items = self._choose()
        return items

    def measured(self, items: list[tuple[Job, int]], seconds: float) -> None:
        """What a step has taken; `items` as planned, before their jobs have moved on."""
        rows = sum(count for job, count in items if job.unread > 1)
        if rows == 0:
            self._base += (seconds - self._base) * (_FORGETTING if self._base else 1)
        else:
            row = max(0.0, seconds - self._base) / rows
            self._row += (row - self._row) * (_FORGETTING if self._row else 1)

    def _admit(self) -> None:
        while self.waiting:
            job = self.waiting[0]
            if len(self.running) < self.sequences and self._make_room(job):
                self.place.start(job)
                self.waiting.pop(0)
                bisect.insort(self.running, job, key=lambda other: other.order)
            elif self.running and self.running[-1].order > job.order:
                self._set_aside(self.running[-1])
            else:
                return

    def _make_room(self, job: Job) -> bool:
        """For all of its tokens and the next one, beside what those that run are still going to take for theirs."""
        while True:
            needed = self._pages_of(job.tokens + 1) - self.place.shared_tokens(job) // self.page_tokens
            promised = sum(self._pages_of(other.tokens + 1) - self._pages_of(other.held) for other in self.running)
            if needed + promised <= self.place.free_pages():
                return True
            if not self.place.evict():
                return not self.running  # alone it has all that there is

    def _set_aside(self, job: Job) -> None:
        self.place.set_aside(job)
        self.running.remove(job)
        self.add(job)

    def _choose(self) -> list[tuple[Job, int]]:
        items = [(job, 1 + job.guesses) for job in self.running if job.unread == 1]
        rows, has_piece = 0, False
        most = (self.step_seconds - self._base) / self._row if self._row else self.piece
        for job in self.running:
            if job.unread <= 1:
                continue
            count = min(job.unread, self.piece - job.held % self.piece)
            if has_piece and rows + count > most:
                break
            items.append((job, count))
            rows, has_piece = rows + count, True
        return items

    def _pages(self, items: list[tuple[Job, int]]) -> int:
        return sum(self._pages_of(job.held + count) - self._pages_of(job.held) for job, count in items)

    def _pages_of(self, tokens: int) -> int:
        return -(-tokens // self.page_tokens)
