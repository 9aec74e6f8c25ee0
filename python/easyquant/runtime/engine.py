# Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Answers requests, many in one step of the model: one thread owns a batch, and requests join and leave between steps.

`schedule.py` decides who runs, `prefixes.py` keeps beginnings, `generation.py` makes text of tokens; here they meet the batch. What
becomes of a request does not depend on the others: the runtime gives each sequence the logits that it has alone, tokens are drawn by the
request's seed and their positions, and a sequence that steps back where pages run out is kept as bytes. On CPUs logits are the same bits
even where a text is read in other pieces, so that an answer is the same bytes after a beginning that is kept, too.
"""

import itertools
import queue
import threading
import time
import weakref
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from easyquant.runtime.artifact import Artifact, BatchSize, open_batch
from easyquant.runtime.device import Placement
from easyquant.runtime.drafts import HEAD, Asked, Pace, RowCost, Speculation
from easyquant.runtime.events import Event, Events, Handle, received
from easyquant.runtime.extension import runtime
from easyquant.runtime.generation import Completion, Speed
from easyquant.runtime.grammar import Masks
from easyquant.runtime.prefixes import PrefixCache
from easyquant.runtime.requests import PromptReader, Request
from easyquant.runtime.schedule import Scheduler
from easyquant.runtime.tasks import Task
from easyquant.support.errors import UserError

STEP_MS = 50
PIECE_TOKENS = 64  # of a prompt, in a step
BEAT_SECONDS = 60.0  # ranks that share a model give up one that they have not heard of for ten minutes
KEPT_BEGINNINGS = 16
KEPT_STATES = 2


@dataclass(frozen=True)
class EngineOptions:
    """How requests share a batch."""

    threads: int = 0
    step_ms: float = STEP_MS  # that a step with pieces of prompts should take at most, besides its first piece
    kept_tokens: int = 1 << 16  # of beginnings that are kept for requests that begin in the same way, as long as nobody needs the pages; 0: none
    keeps_answers: bool | None = None  # of answers, too; None: on CPUs, where what was read token by token has the bits of a prompt
    kept_beginnings: int = KEPT_BEGINNINGS  # at most so many
    # What each sequence keeps where layers have a recurrent state: the places of beginnings; 0: none. Where layers have a window: pages behind it.
    kept_states: int = KEPT_STATES
    speculation: Speculation | None = None

    def beginnings(self, artifact: Artifact) -> int:
        """How many are kept at most, each in a sequence of its own."""
        can_keep = artifact.lasting is None and (self.kept_states > 0 or artifact.state_bytes == 0)
        return self.kept_beginnings if can_keep and self.kept_tokens > 0 else 0


@dataclass(frozen=True)
class Figures:
    """An engine between two steps."""

    waiting: int = 0  # requests
    running: int = 0
    pages: int = 0  # of the KV cache
    free_pages: int = 0
    kept_tokens: int = 0  # of beginnings
    hits: int = 0  # of requests that begin with one of these, so far
    shared_tokens: int = 0  # that they did not have to read
    steps: int = 0  # so far
    set_aside: int = 0  # how often a request had to step back


class Engine:
    """The requests of one model. `size` is that of the batch, in which beginnings that are kept have sequences of their own.

    Used as a context, it ends with it. Any thread may submit requests.
    """

    def __init__(self, model, artifact: Artifact, reader: PromptReader, size: BatchSize, options: EngineOptions = EngineOptions()):
        self.reader, self.size, self.speed = reader, size, Speed()
        cache = artifact.cache_pages(model.device)
        # Codes and online scales hold more of a text than its beginning: nothing of it can be shared exactly, and steps of one token are
        # others than one of several.
        self._is_exact = artifact.lasting is None
        self._has_places = not artifact.is_cut_anywhere
        entries = options.beginnings(artifact)
        kept_states = options.kept_states if entries else 0
        self._speculation, self._drafts, self._row_cost = Speculation.settled(options.speculation, artifact, model.device), None, RowCost()
        if self._speculation is not None:
            self._speculation.check(reader)
        room = BatchSize(size.context, size.sequences + entries, size.tokens)
        drafts = self._speculation is not None and self._speculation.source == HEAD
        self._batch = open_batch(model, room, options.threads, kept_states=kept_states, drafts=drafts)
        page_tokens = int(cache["page_tokens"])
        # A strong reference back would be a cycle, and who forgets an engine would have to wait for the collector.
        self._scheduler = Scheduler(weakref.proxy(self), size.sequences, page_tokens, PIECE_TOKENS, options.step_ms / 1000)
        self.prefixes = PrefixCache(self._batch, self._scheduler.piece, entries, options.kept_tokens)
        self._masks = Masks()
        if self._speculation is not None:
            self._drafts = self._speculation.open(reader, self._batch, size, options.threads, Placement("auto" if model.device == "cuda" else "cpu"))
        self._keeps_answers = model.device == "cpu" if options.keeps_answers is None else options.keeps_answers
        self._can_save = model.rank_count == 1
        self.is_shared = model.rank_count > 1
        self._page_tokens, self._steps, self._set_aside = page_tokens, 0, 0
        self.figures = self._figures()  # of its thread's last look; any thread may read it
        self._numbers = itertools.count()
        self._orders: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._stopping = threading.Event()
        self._tasks: set[Task] = set()
        # The thread refers to the engine only while it has something to do, so that one that is forgotten ends.
        self._thread = threading.Thread(target=_work, args=(weakref.ref(self), self._orders), name="easyquant engine", daemon=True)
        self._finalizer = weakref.finalize(self, _stop, self._stopping, self._orders, self._thread)
        self._thread.start()

    def __enter__(self) -> "Engine":
        return self

    def __exit__(self, *error) -> None:
        self.close()

    def close(self) -> None:
        """Ends what runs; those requests are errors."""
        self._finalizer()

    def submit(self, request: Request, priority: int = 0, deadline: float | None = None, events: Events | None = None) -> Handle:
        """priority: a unit is worth ten seconds of waiting. deadline: time.monotonic() at which it ends as an error."""
        events = queue.SimpleQueue() if events is None else events
        # The logits behind tokens that are scored, and behind the one before them, are to be computed.
        shared = request.tokens if request.score is None else request.tokens[: max(0, request.score_from - 1)]
        hashes = self.prefixes.hashes(shared, request.owner)
        task = Task(next(self._numbers), request, self.reader, priority, deadline, events, hashes)
        self._post(lambda: self._join(task))
        return Handle(task.number, lambda: self._cancel(task), events)

    def complete(self, requests: Sequence[Request]) -> Iterator[tuple[int, str, Completion]]:
        """Answers requests: for each new token the number of its request, the text that it adds, and the completion so far.

        A request that fails is whole, too. Who leaves the iterator cancels what is left.
        """
        for event, number in self.follow(requests):
            if event.piece or event.reason or event.completion.tokens:
                yield number, event.piece, event.completion

    def follow(self, requests: Sequence[Request], priority: int = 0, deadline: float | None = None) -> Iterator[tuple[Event, int]]:
        """The events of requests, with the places of these, pieces of prompts that have been read among them.

        priority, deadline: as of submit(). Who leaves the iterator cancels what is left.
        """
        events: queue.SimpleQueue[Event] = queue.SimpleQueue()
        with Following(self, requests, priority, deadline, events) as following:
            while following:
                yield following.place(received(events))

    # ---------------------------------------------------------------------------------------------- the engine's thread

    def _post(self, order: Callable[[], None]) -> None:
        if self._stopping.is_set():
            raise UserError("the engine was closed; make another one")
        self._orders.put(order)

    def _cancel(self, task: Task) -> None:
        if not self._stopping.is_set():
            self._post(lambda: self._end(task, "the request was cancelled"))

    def _join(self, task: Task) -> None:
        pages = -(-task.request.positions // self._page_tokens)
        self._tasks.add(task)
        if pages > self._batch.pages or task.request.positions > self.size.context:
            most = min(self._batch.pages * self._page_tokens, self.size.context)
            self._end(task, f"the prompt and {task.request.max_tokens} new tokens take {task.request.positions} positions, but there is memory for {most}")
            return
        self._scheduler.add(task)

    def _leave(self, task: Task) -> None:
        """From the batch and the schedule."""
        self._tasks.discard(task)
        if task.pace is not None:
            self._drafts.end(task.number)
        if task.sequence is not None:
            if task.request.keeps_answer or self._keeps_answers and task.answer.reason != "error":
                self.prefixes.keep(task.sequence, self.prefixes.hashes(task.all_tokens[: task.held], task.request.owner))
            self._batch.remove(task.sequence)
            task.sequence = None
        if task in self._scheduler.waiting or task in self._scheduler.running:
            self._scheduler.remove(task)

    def _end(self, task: Task, error: str) -> None:
        if task not in self._tasks:
            return  # it was done
        task.answer.fail(error)
        self._leave(task)
        task.tell()

    def _step(self) -> bool:
        """One step; False: there is nothing to do."""
        for job in self._scheduler.expired(time.monotonic()):
            self._end(job, "the request was not done by its deadline")
        self._guess()
        items = self._scheduler.plan()
        if not items:
            return False
        begin = time.perf_counter()
        reads_prompts = any(task.held < len(task.request.tokens) for task, _ in items)
        try:
            results = self._batch.append([task.item(count) for task, count in items], progress=self._check)
        except runtime().Error as error:
            for task, _ in items:
                self._end(task, str(error))
            return True
        seconds = time.perf_counter() - begin
        self._steps += 1
        self._scheduler.measured(items, seconds)
        self.speed.count(len(items), reads_prompts, seconds)
        if not reads_prompts:
            self._row_cost.measured(sum(count for _, count in items), seconds)
        whole = []
        for (task, count), result in zip(items, results, strict=True):
            if isinstance(result, runtime().Error):
                if task.guesses:  # which it may be the fault of
                    task.guesses, task.guessing = 0, False
                else:
                    self._end(task, str(result))
                continue
            if task.guesses:
                task.held, task.rows = task.held + 1, result
            else:
                task.held += count
                if result is not None:
                    task.scores.append(result)
                if task.held == task.branch:
                    self.prefixes.keep(task.sequence, task.hashes[: task.held // self._scheduler.piece])
            if task.unread == 0:
                whole.append(task)
            else:
                task.tell()
        self._choose(whole)
        return True

    def _choose(self, tasks: list[Task]) -> None:
        """The next tokens of those that have read all of theirs."""
        for task in tasks:
            if task.hashes and task.held == len(task.request.tokens):
                self.prefixes.keep(task.sequence, task.hashes)
        for task in tasks:
            if task.is_scored:
                task.answer.score(task.scores)
                task.scores.clear()
            if task.answer.reason:
                self._leave(task)
                task.tell()
        writing = [task for task in tasks if not task.answer.reason]
        written = list(writing)
        while writing:
            writing = self._write(writing)
        for task in written:
            self._settle(task)
        self._masks.begin([task.answer.constraint for task in written if task.answer.constraint and not task.answer.reason])

    def _write(self, writing: list[Task]) -> list[Task]:
        """A token of each; those whose token was guessed, so that the next one can be chosen, too."""
        self._constrain(writing)
        goes_on = []
        for task, result in zip(writing, self._batch.choose([task.place() for task in writing]), strict=True):
            if isinstance(result, runtime().Error):
                self._end(task, str(result))
                continue
            count = len(task.answer.completion.tokens)
            piece = task.answer.take(*result)
            self.speed.new_tokens += len(task.answer.completion.tokens) - count
            if task.answer.reason:
                self._leave(task)
            else:
                task.tokens += 1
                if task.take_guess(result[0]):
                    goes_on.append(task)
            task.tell(piece)
        return goes_on

    def _guess(self) -> None:
        """What the next step verifies, of those that continue an answer."""
        going = [task for task in self._scheduler.running if task.unread == 1 and task.answer.completion.tokens and task.guessing]
        forced = [task for task in going if task.answer.forced] if self._is_exact else []
        for task in forced:
            most = min(PIECE_TOKENS // len(forced), task.request.max_tokens - 1 - len(task.answer.completion.tokens))
            task.guess(tuple(itertools.islice(task.answer.forced, max(0, most))), is_certain=True)
        if self._drafts is not None:
            self._draft([task for task in going if not (self._is_exact and task.answer.forced)])

    def _draft(self, going: list[Task]) -> None:
        """What the source of guesses proposes."""
        asked, share = {}, self._row_cost.share(len(going)) if going else 0.0
        for task in going:
            if task.pace is None:
                task.pace = Pace(self._speculation.draft_tokens)
                self._drafts.begin(task.number, task.all_tokens)
            most = min(task.pace.length(share), task.request.max_tokens - 1 - len(task.answer.completion.tokens))
            if most > 0:
                asked[task.number] = Asked(most, task.sequence, int(task.next_tokens(1)[0]))
        begin = time.perf_counter()
        try:
            found = self._drafts.propose(asked) if asked else {}
        except runtime().Error:  # no memory, or its device failed: it goes without
            found = {}
        self._row_cost.guessed(sum(map(len, found.values())), time.perf_counter() - begin)
        for task in going:
            task.guess(found.get(task.number, ()))

    def _settle(self, task: Task) -> None:
        """Forgets guesses that were wrong, and tells what was right."""
        if task.rows is not None:
            right = task.held - task.settled - 1
            if task.is_certain:
                self.speed.count_forced(right)
            else:
                task.pace.tell(task.guesses, right)
                self.speed.count_guesses(task.guesses, right)
            task.rows, task.guesses = None, 0
            if task.sequence is not None and self._batch.position(task.sequence) > task.held:
                self._batch.truncate(task.sequence, task.held)
        if task.pace is not None and task in self._tasks:
            self._drafts.accept(task.number, task.answer.completion.tokens[task.known :])
        task.known, task.settled = len(task.answer.completion.tokens), task.held

    def _constrain(self, writing: list[Task]) -> None:
        """Tells the samplers what grammars allow. Whose grammar fails leaves `writing`."""
        self._masks.wait()
        for task in [task for task in writing if task.answer.constraint]:
            try:
                task.answer.sampler.allow(task.answer.constraint.allowed())
            except UserError as error:
                writing.remove(task)
                self._end(task, str(error))

    def _figures(self) -> Figures:
        batch, kept, jobs = self._batch, self.prefixes, self._scheduler
        pages = (batch.pages, batch.free_pages)
        return Figures(len(jobs.waiting), len(jobs.running), *pages, kept.tokens, kept.hits, kept.shared_tokens, self._steps, self._set_aside)

    def beat(self) -> None:
        """A step, which ranks that share the model take part in, so that they know that this one is there."""
        sequence = self._batch.add()
        self._batch.append([(sequence, [0])])
        self._batch.remove(sequence)

    def _check(self, *_) -> None:
        if self._stopping.is_set():
            raise _Stopped

    def _fail_all(self, error: str) -> None:
        for task in tuple(self._tasks):
            self._end(task, error)

    # -------------------------------------------------------------------------------------------- what the scheduler asks

    def free_pages(self) -> int:
        return self._batch.free_pages

    def evict(self) -> bool:
        return self.prefixes.evict()

    def shared_tokens(self, task: Task) -> int:
        place = self._known(task)
        return place[1] if place else 0

    def _known(self, task: Task) -> tuple[int, int] | None:
        """A beginning that is kept, without the last token, whose logits are to be computed."""
        return None if task.saved is not None else self.prefixes.longest(self._shareable(task))

    def _shareable(self, task: Task) -> list[bytes]:
        return task.hashes[: (len(task.request.tokens) - 1) // self._scheduler.piece]

    def start(self, task: Task) -> None:
        if task.saved is not None:
            task.sequence, task.saved = self._batch.restore(task.saved), None
        elif place := self._known(task):
            task.sequence = self.prefixes.fork(place)
        else:
            task.sequence = self._batch.add()
        task.held = self._batch.position(task.sequence)
        if task.fresh:
            task.fresh = False
            if self._has_places:
                task.branch = self.prefixes.common(self._shareable(task))
            task.answer.completion.cached_tokens = task.held
            self.speed.prompt_tokens += len(task.request.tokens)

    def set_aside(self, task: Task) -> None:
        """As bytes; where ranks share the model, its tokens are read again."""
        self._set_aside += 1
        if self._can_save and task.held > 0:
            task.saved = self._batch.save(task.sequence)
        else:
            task.scores.clear()
        self._batch.remove(task.sequence)
        task.sequence, task.held, task.guesses = None, 0, 0


class Following:
    """Requests whose events come to one place. As a context it cancels, when it is left, those that are not done."""

    def __init__(self, engine: Engine, requests: Sequence[Request], priority: int, deadline: float | None, events: Events):
        self._handles = {}
        for place, request in enumerate(requests):
            handle = engine.submit(request, priority, deadline, events)
            self._handles[handle.number] = handle, place

    def __bool__(self) -> bool:
        """Are there events to come?"""
        return bool(self._handles)

    def place(self, event: Event) -> tuple[Event, int]:
        """An event that has come, and the place of its request."""
        place = self._handles[event.number][1]
        if event.reason:
            del self._handles[event.number]
        return event, place

    def __enter__(self) -> "Following":
        return self

    def __exit__(self, *error) -> None:
        for handle, _ in self._handles.values():
            handle.cancel()


class _Stopped(Exception):
    pass


def _stop(stopping: threading.Event, orders: queue.SimpleQueue, thread: threading.Thread) -> None:
    stopping.set()
    orders.put(None)
    if thread is not threading.current_thread():
        thread.join()


def _work(engine: "weakref.ref[Engine]", orders: queue.SimpleQueue) -> None:
    """The engine's thread: waits for orders, and makes steps while there is something to do."""
    while (order := _next_order(engine, orders)) is not None:
        own = engine()
        if own is None:
            return
        try:
            order()
            _run(own, orders)
        except _Stopped:
            own._fail_all("the engine was closed")
            return
        except Exception as error:  # a mistake of the engine: those that wait are told, and the next request begins anew
            own._fail_all(f"the engine failed: {error!r}")
        del own, order
    if own := engine():
        own._fail_all("the engine was closed")


def _next_order(engine: "weakref.ref[Engine]", orders: queue.SimpleQueue) -> Callable[[], None] | None:
    own = engine()
    pause = BEAT_SECONDS if own is not None and own.is_shared else None
    del own
    while True:
        try:
            return orders.get(timeout=pause)
        except queue.Empty:
            if own := engine():
                own.beat()
            del own


def _run(engine: Engine, orders: queue.SimpleQueue) -> None:
    while True:
        while not orders.empty():
            order = orders.get()
            if order is None:
                raise _Stopped
            order()
        went_on = engine._step()
        engine.figures = engine._figures()
        if not went_on:
            return
