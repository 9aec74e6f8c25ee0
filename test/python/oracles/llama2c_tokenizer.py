# Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The tokenizer file of llama2.c: SentencePiece BPE pieces with scores."""

import struct
from pathlib import Path

from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers

SPACE = "\u2581"
SPECIAL = ("<unk>", "<s>", "</s>")


def read_pieces(path):
    """[(score, bytes)] in the order of their ids."""
    data = Path(path).read_bytes()
    pieces, at = [], 4  # an int32 with the longest length comes first
    while at < len(data):
        score, length = struct.unpack_from("<fi", data, at)
        at += 8
        pieces.append((score, data[at:at + length]))
        at += length
    return pieces


def read_tokenizer(path):
    """A `tokenizers` tokenizer that encodes and decodes as SentencePiece does with these pieces.

    SentencePiece joins the neighbours whose union has the highest score; a merge list ordered by the score of the union does
    the same. Unknown characters become byte pieces, a space is put in front, and decoding takes one space off.
    """
    pieces = [(score, piece.strip(b"\n").decode() if piece.strip(b"\n").decode() in SPECIAL else
               piece.decode().replace(" ", SPACE)) for score, piece in read_pieces(path)]
    vocab = {piece: index for index, (_, piece) in enumerate(pieces)}
    plain = {piece: score for score, piece in pieces if piece not in SPECIAL and not piece.startswith("<0x")}
    merges = []
    for piece in sorted((p for p in plain if len(p) > 1), key=lambda p: (-plain[p], vocab[p])):
        splits = [(piece[:at], piece[at:]) for at in range(1, len(piece))]
        merges += [split for split in splits if split[0] in plain and split[1] in plain]
    tokenizer = Tokenizer(models.BPE(vocab=vocab, merges=merges, unk_token="<unk>", fuse_unk=True, byte_fallback=True))
    tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend(SPACE), normalizers.Replace(" ", SPACE)])
    tokenizer.decoder = decoders.Sequence(
        [decoders.Replace(SPACE, " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)])
    tokenizer.add_special_tokens([AddedToken(token, special=True, normalized=False) for token in SPECIAL])
    return tokenizer
