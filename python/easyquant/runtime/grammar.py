# Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Answers that follow a grammar: a JSON schema, a regular expression, or a Lark grammar in llguidance's form.

llguidance says which tokens may come next (E. Moskal et al., github.com/guidance-ai/llguidance). A grammar is compiled by the thread
that asks, and each answer then has a matcher of its own, its `Constraint`. `Masks` asks those of a step beside it.

The library bounds the work of a mask by what its parser does, but not by how long a text is that a grammar forces. So grammars have
limits of their own here (`grammar_limits.py`), and an answer ends as an error once a mask of it has taken SLOWEST_MASK.
"""

import contextlib
import functools
import json
import threading
import time
from collections import OrderedDict, deque
from collections.abc import Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np

from easyquant.runtime.grammar_limits import check_lark, check_regex, check_schema
from easyquant.support.errors import UserError, expect
from easyquant.text.tokenizer import Tokenizer

KEPT = 64  # compiled grammars
SLOWEST_MASK = 1.0  # seconds; usual ones take 20 µs
LEXER_STATES = 50_000  # of 1 to 2 kB
# One space, or one or two line ends and an indent: models that are not sure go on with white space for ever.
WHITESPACE = r"\x20|\n{1,2}[\x20\t]{0,20}"

_FORMATS = {
    "text": (),
    "json_object": (),
    "json_schema": ("json_schema",),
    "regex": ("regex",),
    "grammar": ("grammar",),
}


def check_response_format(value) -> None:
    """Whether it is an object as `Settings.response_format` says; what is in it is seen when it is compiled."""
    if value is None:
        return
    expect("response_format", value, isinstance(value, Mapping) and isinstance(value.get("type"), str), 'an object with the text "type"')
    kind = value["type"]
    expect("response_format: type", kind, kind in _FORMATS, " or ".join(_FORMATS))
    for key in value:
        expect("response_format: key", key, key in ("type", *_FORMATS[kind]), " and ".join(("type", *_FORMATS[kind])))
    for key in ("regex", "grammar"):
        if key in _FORMATS[kind]:
            expect(f"response_format: {key}", value.get(key), isinstance(value.get(key), str) and value[key], "a text that is not empty")
    if kind == "json_schema":
        given = value.get("json_schema")
        expect("response_format: json_schema", given, isinstance(given, Mapping), 'an object with "schema"')
        schema = given.get("schema")
        expect("response_format: json_schema: schema", schema, isinstance(schema, Mapping), "an object, a JSON schema")


def _llguidance():
    try:
        import llguidance
    except ImportError:
        raise UserError("response_format: needs the package llguidance; install the extra serve (pip install '.[serve]' in a checkout of EasyQuant)") from None
    return llguidance


def lark_schema(schema: Mapping, what: str) -> str:
    """A schema within a Lark grammar, compiled as one alone would be."""
    check_schema(schema, what)
    return "%json " + json.dumps({**schema, "x-guidance": {"whitespace_pattern": WHITESPACE}})


@dataclass(frozen=True)
class Form:
    """What an answer looks like: by its format, or calls of functions, or either; and what may be before it."""

    response_format: Mapping | None = None  # that has been checked; None: any text, unless there are calls
    calls: str | None = None  # a Lark grammar, whose errors are those of the field `tools`
    before: str = ""  # what comes before it, thoughts: Lark rules, the first of them called `before`

    def source(self) -> tuple[str, str] | None:
        """As llguidance takes it, and the field that is to blame where it does not. None: any text."""
        answer = None if self.response_format is None else _part(self.response_format)
        parts = {"answer": answer, "calls": None if self.calls is None else {"lark_grammar": self.calls}}
        named = [{"name": name, **part} for name, part in parts.items() if part is not None]
        if not named:
            return None
        if len(named) > 1 or self.before:
            named.insert(0, {"name": "top", "lark_grammar": self._top([part["name"] for part in named])})
        return json.dumps({"grammars": named}), "response_format" if answer else "tools"

    def _top(self, names: Sequence[str]) -> str:
        one = " | ".join(f"@{name}" for name in names)
        return f"start: before ({one})\n{self.before}" if self.before else f"start: {one}"


def _part(value: Mapping) -> dict | None:
    """A response format as llguidance takes it; None: any text."""
    matcher = _llguidance().LLMatcher
    kind = value["type"]
    if kind == "text":
        return None
    if kind == "grammar":
        check_lark(value["grammar"])
        return {"lark_grammar": value["grammar"]}
    if kind == "regex":
        check_regex("response_format: regex", value["regex"])
        return _only_part(matcher.grammar_from_regex(value["regex"]))
    schema = {"type": "object"} if kind == "json_object" else value["json_schema"]["schema"]
    text = check_schema(schema, "response_format: schema")
    return _only_part(matcher.grammar_from_json_schema(text, overrides={"whitespace_pattern": WHITESPACE}))


def _only_part(source: str) -> dict:
    (part,) = json.loads(source)["grammars"]
    return part


@dataclass(frozen=True)
class Grammar:
    """A compiled grammar."""

    matcher: object  # an LLMatcher that has seen nothing
    what: str  # the field that says it
    vocabulary: int
    end_tokens: frozenset[int]

    def start(self) -> "Constraint":
        return Constraint(self.matcher.deep_copy(), self.what, self.vocabulary, self.end_tokens)


class Constraint:
    """Where an answer is in its grammar.

    Where only one text can come next, its tokens are those that the tokenizer makes of it: they are `forced`, and no others are allowed
    in their places. So an answer is the same whether they are chosen one by one or read in one step.
    """

    def __init__(self, matcher, what: str, vocabulary: int, end_tokens: frozenset[int]):
        self.end_tokens = end_tokens  # which end the answer
        self.forced: deque[int] = deque()  # that come next
        self._what = what
        self._matcher, self._bits = matcher, np.empty(-(-vocabulary // 32), np.uint32)  # what may come behind those that are forced
        self._is_known, self._error = False, ""
        with self._timed():
            self._force()

    def allowed(self) -> np.ndarray:
        """The tokens that may come next, as bits: valid until one is taken. UserError where they cannot be found."""
        if not self._is_known:
            self._is_known = True
            with self._timed():
                self._matcher.unsafe_compute_mask_ptr(self._bits.ctypes.data, self._bits.nbytes)
        if self._error:
            raise UserError(f"{self._what}: the answer cannot go on within its grammar ({self._error}); make the grammar simpler")
        if not self.forced:
            return self._bits
        only = np.zeros_like(self._bits)
        only[self.forced[0] // 32] = 1 << self.forced[0] % 32
        return only

    def take(self, token: int) -> bool:
        """One of them; True: nothing may follow it."""
        if self.forced:
            self.forced.popleft()
        else:
            self._is_known = False
            with self._timed():
                self._matcher.consume_token(token)
                self._force()
        return not self.forced and self._matcher.is_stopped()

    def _force(self) -> None:
        """The matcher takes what is forced at once, so that the mask behind it is found while the model reads it."""
        if not self._matcher.is_stopped() and (forced := self._matcher.compute_ff_tokens()):
            self._matcher.consume_tokens(forced)
            self.forced.extend(forced)

    @contextlib.contextmanager
    def _timed(self):
        """Work of the library, whose errors are kept."""
        begin = time.thread_time()
        yield
        seconds = time.thread_time() - begin
        self._error = self._error or _line(self._matcher.get_error())
        if not self._error and seconds > SLOWEST_MASK:
            self._error = f"finding the next tokens took {seconds:.1f} s, expected at most {SLOWEST_MASK:.0f} s"


class GrammarCompiler:
    """Compiles grammars for the tokens of a model, of which there are `vocabulary`; what was compiled is kept."""

    def __init__(self, tokenizer: Tokenizer, vocabulary: int, end_tokens: frozenset[int]):
        self._tokenizer, self._vocabulary, self._end_tokens = tokenizer, vocabulary, end_tokens
        self._kept: OrderedDict[str, Grammar] = OrderedDict()
        self._lock = threading.Lock()

    def compile(self, form: Form) -> Grammar | None:
        """None: any text."""
        found = form.source()
        if found is None:
            return None
        source, what = found
        with self._lock:
            if source in self._kept:
                self._kept.move_to_end(source)
                return self._kept[source]
        grammar = self._make(source, what)
        with self._lock:
            self._kept[source] = grammar
            while len(self._kept) > KEPT:
                self._kept.popitem(last=False)
        return grammar

    def token(self, text: str) -> int | None:
        """The token of a text that llguidance takes for none: a special one, or another that looks like a mark, such as <think>."""
        token = self._tokenizer.token_id(text)
        return token if token is not None and self._tokens.is_special_token(token) else None

    def mark(self, text: str) -> str:
        """A text in a Lark grammar that may be such a token."""
        token = self.token(text)
        return f"<[{token}]>" if token is not None else json.dumps(text)

    def _make(self, source: str, what: str) -> Grammar:
        library, tokens = _llguidance(), self._tokens
        limits = library.LLParserLimits(verbose_errors=False, max_lexer_states=LEXER_STATES)
        matcher = library.LLMatcher(tokens, source, log_level=0, limits=limits)
        if matcher.is_error():
            raise UserError(f"{what}: cannot be compiled ({_line(matcher.get_error())}); change it")
        grammar = Grammar(matcher, what, self._vocabulary, frozenset(tokens.eos_tokens))
        grammar.start().allowed()  # what is too much at once is not left to the engine
        return grammar

    @functools.cached_property
    def _tokens(self):
        """The tokenizer as llguidance has it."""
        library = _llguidance()
        try:
            return library.LLTokenizer(self._tokenizer.to_json(), n_vocab=self._vocabulary, eos_token=sorted(self._end_tokens) or None)
        except BaseException as error:  # a panic of the library is no Exception
            if isinstance(error, (KeyboardInterrupt, SystemExit)):
                raise
            raise UserError(f"{self._tokenizer.source}: llguidance cannot use this tokenizer for grammars ({_line(str(error))}); ask without response_format") from None


def _line(text: str) -> str:
    """A message of the library, which may quote what it was given."""
    text = " ".join(text.replace("<non-verbose/>", "").split())[:300]
    return "".join(c if c.isprintable() else ascii(c)[1:-1] for c in text)


class Masks:
    """Finds what constraints allow while the model makes its step, in a thread beside it."""

    def __init__(self):
        self._pool: ThreadPoolExecutor | None = None  # once there is something to do
        self._work: Future | None = None

    def begin(self, constraints: Sequence[Constraint]) -> None:
        if constraints:
            self._pool = self._pool or ThreadPoolExecutor(1, "easyquant masks")
            self._work = self._pool.submit(_find, constraints)

    def wait(self) -> None:
        if self._work is not None:
            self._work.result()
            self._work = None


def _find(constraints: Sequence[Constraint]) -> None:
    for constraint in constraints:
        with contextlib.suppress(UserError):  # which is raised again where it is asked for
            constraint.allowed()
