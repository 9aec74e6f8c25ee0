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
import threading
import time
from collections import OrderedDict
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
        raise UserError("response_format: needs the package llguidance; install the extra serve (pip install 'easyquant-compiler[serve]')") from None
    return llguidance


def schema_options() -> dict:
    """What a schema within a Lark grammar (`%json`) gets, so that it is compiled as one alone."""
    return {"x-guidance": {"whitespace_pattern": WHITESPACE}}


def _source(value: Mapping) -> str | None:
    """A response format as llguidance takes it; None: any text."""
    matcher = _llguidance().LLMatcher
    kind = value["type"]
    if kind == "text":
        return None
    if kind == "grammar":
        check_lark(value["grammar"])
        return matcher.grammar_from_lark(value["grammar"])
    if kind == "regex":
        check_regex("response_format: regex", value["regex"])
        return matcher.grammar_from_regex(value["regex"])
    schema = {"type": "object"} if kind == "json_object" else value["json_schema"]["schema"]
    text = check_schema(schema)
    return matcher.grammar_from_json_schema(text, overrides={"whitespace_pattern": WHITESPACE})


@dataclass(frozen=True)
class Grammar:
    """A compiled grammar."""

    matcher: object  # an LLMatcher that has seen nothing
    vocabulary: int
    end_tokens: frozenset[int]

    def start(self) -> "Constraint":
        return Constraint(self.matcher.deep_copy(), self.vocabulary, self.end_tokens)


class Constraint:
    """Where an answer is in its grammar."""

    def __init__(self, matcher, vocabulary: int, end_tokens: frozenset[int]):
        self.end_tokens = end_tokens  # which end the answer
        self._matcher, self._bits = matcher, np.empty(-(-vocabulary // 32), np.uint32)
        self._is_known, self._error = False, ""

    def allowed(self) -> np.ndarray:
        """The tokens that may come next, as bits: valid until one is taken. UserError where they cannot be found."""
        if not self._is_known:
            self._is_known, begin = True, time.thread_time()
            self._matcher.unsafe_compute_mask_ptr(self._bits.ctypes.data, self._bits.nbytes)
            seconds = time.thread_time() - begin
            self._error = _line(self._matcher.get_error())
            if not self._error and seconds > SLOWEST_MASK:
                self._error = f"finding the next tokens took {seconds:.1f} s, expected at most {SLOWEST_MASK:.0f} s"
        if self._error:
            raise UserError(f"response_format: the answer cannot go on within its grammar ({self._error}); make the grammar simpler")
        return self._bits

    def take(self, token: int) -> bool:
        """One of them; True: nothing may follow it."""
        self._matcher.consume_token(token)
        self._is_known = False
        return self._matcher.is_stopped()


class GrammarCompiler:
    """Compiles grammars for the tokens of a model, of which there are `vocabulary`; what was compiled is kept."""

    def __init__(self, tokenizer: Tokenizer, vocabulary: int, end_tokens: frozenset[int]):
        self._tokenizer, self._vocabulary, self._end_tokens = tokenizer, vocabulary, end_tokens
        self._kept: OrderedDict[str, Grammar] = OrderedDict()
        self._lock = threading.Lock()

    def compile(self, response_format: Mapping | None) -> Grammar | None:
        """None: any text. `response_format` has been checked."""
        source = None if response_format is None else _source(response_format)
        if source is None:
            return None
        with self._lock:
            if source in self._kept:
                self._kept.move_to_end(source)
                return self._kept[source]
        grammar = self._make(source)
        with self._lock:
            self._kept[source] = grammar
            while len(self._kept) > KEPT:
                self._kept.popitem(last=False)
        return grammar

    def _make(self, source: str) -> Grammar:
        library, tokens = _llguidance(), self._tokens
        limits = library.LLParserLimits(verbose_errors=False, max_lexer_states=LEXER_STATES)
        matcher = library.LLMatcher(tokens, source, log_level=0, limits=limits)
        if matcher.is_error():
            raise UserError(f"response_format: cannot be compiled ({_line(matcher.get_error())}); change it")
        grammar = Grammar(matcher, self._vocabulary, frozenset(tokens.eos_tokens))
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
