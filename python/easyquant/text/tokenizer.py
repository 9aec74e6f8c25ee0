# Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Text to token ids and back, for the folder of a model or an artifact.

`load_tokenizer` reads tokenizer.json (with the library `tokenizers`) and what tokenizer_config.json and
chat_template.jinja add to it. `tokenizer_from_gguf` and `write_tokenizer_files` make such files of a GGUF.
"""

import codecs
import contextlib
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from tokenizers import Tokenizer as HuggingFaceTokenizer

from easyquant.support.errors import UserError
from easyquant.text.chat import ChatTemplate, chat_template
from easyquant.text.gguf_tokenizer import tokenizer_from_gguf, write_tokenizer_files
from easyquant.text.messages import Conversation
from easyquant.text.tokenizer_checks import LARGEST_VOCABULARY, check_config, check_tokenizer, read_json

__all__ = ["SAME_TOKENS", "TextStream", "Tokenizer", "load_tokenizer", "tokenizer_from_gguf", "write_tokenizer_files"]

# The share of tokens that two forms of one tokenizer have in common: converters write some added tokens otherwise than tokenizer.json has them.
SAME_TOKENS = 0.99


def _byte_alphabet() -> dict[str, int]:
    """GPT-2's characters for the 256 bytes: printable Latin-1 for itself, others from U+0100 on, in order."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in printable]
    return {chr(byte): byte for byte in printable} | {chr(0x100 + index): byte for index, byte in enumerate(others)}


_BYTES = _byte_alphabet()
_BYTE_TOKEN = re.compile(r"<0x([0-9A-Fa-f]{2})>")


def _decoder_steps(decoder: Mapping | None) -> list[Mapping]:
    if not decoder:
        return []
    if decoder.get("type") == "Sequence":
        return [step for part in decoder["decoders"] for step in _decoder_steps(part)]
    return [decoder]


class TextStream:
    """Text of tokens that come one by one: never half a character, and together exactly what decode gives."""

    def __init__(self, tokenizer: "Tokenizer", skip_special_tokens: bool, strip_space: bool, shown: frozenset[int] = frozenset()):
        self._tokenizer, self._skip, self._strip, self._shown = tokenizer, skip_special_tokens, strip_space, shown
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")

    def push(self, token: int) -> str:
        """The text that is certain once `token` has come; often empty inside a character."""
        piece = self._tokenizer.token_bytes(token, self._skip and token not in self._shown)
        if self._strip and piece:
            piece, self._strip = piece.removeprefix(b" "), False
        return self._decoder.decode(piece)

    def finish(self) -> str:
        """What is left: U+FFFD where the last character was not finished."""
        return self._decoder.decode(b"", final=True)


class Tokenizer:
    """A `tokenizers` tokenizer with the parts that `transformers` would add: BOS, EOS, chat template."""

    def __init__(self, tokenizer: HuggingFaceTokenizer, config: Mapping, chat_template: ChatTemplate | None, source: str):
        self._tokenizer, self.source, self._chat_template = tokenizer, source, chat_template
        # The same tokenizer to which "<s>" is three characters; a setting of the object, hence a second one.
        self._literal: HuggingFaceTokenizer | None = None
        self._special = dict(tokenizer.get_added_tokens_decoder())
        self._pieces: dict[tuple[int, bool], bytes] = {}
        steps = _decoder_steps(json.loads(tokenizer.to_str()).get("decoder"))
        kinds = {step["type"] for step in steps}
        self._byte_level, self._byte_fallback = "ByteLevel" in kinds, "ByteFallback" in kinds
        if not self._byte_level and not kinds & {"ByteFallback", "Metaspace", "Replace"}:
            raise UserError(f"{source}: its decoder is {', '.join(sorted(kinds)) or 'missing'}; known are byte-level BPE and SentencePiece")
        self._strips_space = not self._byte_level and any(
            step["type"] == "Strip" and step["start"] > 0 or step["type"] == "Metaspace" and step.get("prepend_scheme") != "never" for step in steps
        )
        self.special_tokens = {
            role: token for role in ("bos_token", "eos_token", "unk_token", "pad_token") if (token := _token_text(config.get(role))) is not None
        }
        self.bos_token_id = self._id("bos_token")
        self.eos_token_id = self._id("eos_token")

    def _id(self, role: str) -> int | None:
        token = self.special_tokens.get(role)
        return None if token is None else self._tokenizer.token_to_id(token)

    @property
    def vocab_size(self) -> int:
        return self._tokenizer.get_vocab_size(with_added_tokens=True)

    def vocabulary(self) -> dict[str, int]:
        """Every token, as tokenizer.json spells it, and its id."""
        return self._tokenizer.get_vocab(with_added_tokens=True)

    def to_json(self) -> str:
        """As tokenizer.json has it."""
        return self._tokenizer.to_str()

    def encode(self, text: str, *, add_special_tokens: bool = True, parse_special: bool = True) -> list[int]:
        """Token ids of `text`.

        add_special_tokens: with what the tokenizer puts around a text, such as BOS (many put nothing).
        parse_special: whether the name of a special token in the text, such as <|im_end|>, is that token.
        """
        tokenizer = self._tokenizer if parse_special else self._literal_tokenizer()
        try:
            text.encode()
        except UnicodeError:
            raise UserError("the text has lone surrogates, which no encoding allows; read it as UTF-8") from None
        with _refusals(f"{self.source}: the library tokenizers fails on this text"):
            # Batches of the library let other threads of Python run meanwhile; the fast ones leave out where tokens are in the text.
            (found,) = tokenizer.encode_batch_fast([text], add_special_tokens=add_special_tokens)
        return found.ids

    def _literal_tokenizer(self) -> HuggingFaceTokenizer:
        if self._literal is None:
            self._literal = HuggingFaceTokenizer.from_str(self._tokenizer.to_str())
            self._literal.encode_special_tokens = True
        return self._literal

    def token_bytes(self, token: int, skip_special_tokens: bool = True) -> bytes:
        """What one token adds to a text; empty for special tokens, if so asked, and for ids that have no token."""
        key = (int(token), skip_special_tokens)
        piece = self._pieces.get(key)
        if piece is None:
            piece = self._pieces[key] = self._token_bytes(*key)
        return piece

    def _token_bytes(self, token: int, skip_special_tokens: bool) -> bytes:
        added = self._special.get(token)
        if added is not None:
            return b"" if added.special and skip_special_tokens else added.content.encode()
        text = self._tokenizer.id_to_token(token) if token >= 0 else None
        if text is None:
            return b""
        if self._byte_level:
            # A character outside the alphabet stands for itself, as in the library.
            return b"".join(bytes([_BYTES[c]]) if c in _BYTES else c.encode() for c in text)
        if self._byte_fallback and (byte := _BYTE_TOKEN.fullmatch(text)):
            return bytes([int(byte[1], 16)])
        return text.replace("▁", " ").encode()

    def decode(self, tokens: Iterable[int], *, skip_special_tokens: bool = True) -> str:
        """The text of a whole sequence; bytes that are no UTF-8 become U+FFFD."""
        stream = TextStream(self, skip_special_tokens, self._strips_space)
        return "".join([stream.push(token) for token in tokens] + [stream.finish()])

    def stream(self, *, skip_special_tokens: bool = True, at_start: bool = False, shown: frozenset[int] = frozenset()) -> TextStream:
        """For tokens that continue a text. `at_start`: they begin one (SentencePiece then drops the first space). `shown`: special ones that are not skipped."""
        return TextStream(self, skip_special_tokens, at_start and self._strips_space, shown)

    def token_id(self, text: str) -> int | None:
        """The token that is spelled so in tokenizer.json, of added ones their text."""
        return self._tokenizer.token_to_id(text)

    def special_token(self, text: str) -> int | None:
        """The id of a special token, by its text."""
        token = self.token_id(text)
        added = None if token is None else self._special.get(token)
        return token if added is not None and added.special else None

    @property
    def has_chat_template(self) -> bool:
        return self._chat_template is not None

    @property
    def chat_template(self) -> str | None:
        """The text of it."""
        return self._chat_template.text if self._chat_template else None

    def render_chat(self, chat: Conversation | Sequence[Mapping]) -> str:
        """The text that the model's chat template makes of a chat, or of its messages: [{"role": "user", "content": ...}, ...]."""
        if self._chat_template is None:
            raise UserError(f"{self.source}: the model has no chat template; give it plain text")
        chat = chat if isinstance(chat, Conversation) else Conversation(chat)
        return chat.cut(self._chat_template.render(chat.given_to(self._chat_template.text, self.special_tokens)))

    def encode_chat(self, chat: Conversation | Sequence[Mapping]) -> list[int]:
        """Token ids of a chat; the template itself writes BOS where the model wants it."""
        return self.encode(self.render_chat(chat), add_special_tokens=False)


def _token_text(value) -> str | None:
    """A token of tokenizer_config.json: its text, or an object with it as "content"."""
    if isinstance(value, Mapping):
        value = value.get("content")
    return value if isinstance(value, str) and value else None


@contextlib.contextmanager
def _refusals(what: str):
    """Whatever the library does not like is a UserError: it raises plain Exception, and its panics are not even that."""
    try:
        yield
    except (KeyboardInterrupt, SystemExit, GeneratorExit):
        raise
    except BaseException as error:
        raise UserError(f"{what} ({error})") from None


def load_tokenizer(folder: Path, vocabulary: int = LARGEST_VOCABULARY) -> Tokenizer:
    """The tokenizer of a model folder or artifact whose model knows so many tokens. UserError when tokenizer.json is missing or damaged."""
    folder = Path(folder)
    file = folder / "tokenizer.json"
    if not file.is_file():
        raise UserError(f"{file}: there is no such file; a tokenizer in any other form must be converted to tokenizer.json first")
    text, value = read_json(file)
    check_tokenizer(value, str(file), vocabulary)
    with _refusals(f"{file}: is no tokenizer of the library tokenizers"):
        tokenizer = HuggingFaceTokenizer.from_str(text)
    # What an added token is not given as its id, the library chooses.
    if (largest := max(tokenizer.get_added_tokens_decoder(), default=0)) >= vocabulary:
        raise UserError(f"{file}: added_tokens: a token has id {largest}, expected one from 0 to {vocabulary - 1}, the model's vocabulary")
    configuration = folder / "tokenizer_config.json"
    config = read_json(configuration)[1] if configuration.is_file() else {}
    check_config(config, str(configuration), vocabulary)
    # A file may ask for cut or padded sequences; here a text is all of its tokens and nothing else.
    tokenizer.no_truncation()
    tokenizer.no_padding()
    return Tokenizer(tokenizer, config, chat_template(folder, config), str(file))
