# Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Beginnings of texts whose keys and values are kept: whole pages, found by the hash of all tokens up to their end.

A sequence goes on from its places: from the end of each page; where layers have a recurrent state, from those whose state it has; where they have
a window, from the newest. These are few, so that the engine makes one where two texts part (`common`).
"""

import hashlib
from collections import OrderedDict
from collections.abc import Sequence

import numpy as np


class PrefixCache:
    """Keeps forks of sequences of a batch, cut to whole units of `unit` tokens; the ones that were used the longest time ago go first.

    `entries`: at most so many sequences; `tokens`: at most so many tokens in all of them, each counted by itself.
    """

    def __init__(self, batch, unit: int, entries: int, tokens: int):
        self._batch, self._unit, self._entries, self._limit = batch, unit, entries, tokens
        self._kept: OrderedDict[int, dict[bytes, int]] = OrderedDict()  # by sequence, the oldest first: hashes of its places, and tokens up to there
        self._places: dict[bytes, tuple[int, int]] = {}  # the sequence that has all tokens up to there, and how many they are
        self._met: OrderedDict[bytes, None] = OrderedDict()  # hashes of units of texts that came, the oldest first
        self.tokens = 0
        self.hits = self.shared_tokens = 0

    def __len__(self) -> int:
        return len(self._kept)

    def hashes(self, tokens: Sequence[int], owner: bytes = b"") -> list[bytes]:
        """One for each whole unit, of all tokens up to its end and their owner; none where nothing is kept."""
        if self._entries == 0:
            return []
        data, found, last = np.asarray(tokens, "<i4").tobytes(), [], owner
        for end in range(4 * self._unit, len(data) + 1, 4 * self._unit):
            last = hashlib.blake2b(last + data[end - 4 * self._unit : end], digest_size=16).digest()
            found.append(last)
        return found

    def longest(self, hashes: list[bytes]) -> tuple[int, int] | None:
        """A sequence with the longest known beginning, and the tokens of it; it is the newest then."""
        for own in reversed(hashes):
            if place := self._places.get(own):
                self._kept.move_to_end(place[0])
                return place
        return None

    def common(self, hashes: list[bytes]) -> int:
        """Tokens that a text which came before has in common with this one, whether there is a place or not; this one has come then."""
        same = next((number for number in range(len(hashes), 0, -1) if hashes[number - 1] in self._met), 0)
        for own in hashes:
            self._met[own] = None
            self._met.move_to_end(own)
        while len(self._met) > self._limit // self._unit:
            self._met.popitem(last=False)
        return same * self._unit

    def fork(self, place: tuple[int, int]) -> int:
        """A sequence that holds a beginning."""
        sequence, tokens = place
        fork = self._batch.fork(sequence)
        self._batch.truncate(fork, tokens)
        self.hits += 1
        self.shared_tokens += tokens
        return fork

    def keep(self, sequence: int, hashes: list[bytes]) -> None:
        """Keeps the beginning of a sequence that has these units, up to its last place, instead of others that have no place besides."""
        places = self._places_of(sequence, hashes)
        tokens = max(places.values(), default=0)
        if tokens == 0 or tokens > self._limit:
            return
        place = self.longest(hashes)
        if place is not None and place[1] == tokens:
            return
        for other in [other for other, theirs in self._kept.items() if theirs.keys() <= places.keys()]:
            self._drop(other)
        while len(self._kept) >= self._entries or self.tokens + tokens > self._limit:
            self.evict()
        fork = self._batch.fork(sequence)
        self._batch.truncate(fork, tokens)
        self._kept[fork] = places
        self.tokens += tokens
        for own, end in places.items():
            self._places.setdefault(own, (fork, end))

    def _places_of(self, sequence: int, hashes: list[bytes]) -> dict[bytes, int]:
        """Those within its units, and the tokens up to each."""
        found, end = {}, len(hashes) * self._unit
        while end > 0:
            place = self._batch.resume_position(sequence, end)
            if place == end:
                found[hashes[end // self._unit - 1]] = end
                place -= 1
            end = place // self._unit * self._unit
        return found

    def evict(self) -> bool:
        if not self._kept:
            return False
        self._drop(next(iter(self._kept)))
        return True

    def _drop(self, sequence: int) -> None:
        places = self._kept.pop(sequence)
        self.tokens -= max(places.values())
        self._batch.remove(sequence)
        for own, end in places.items():
            if self._places[own][0] != sequence:
                continue
            # Another one may begin in the same way.
            heir = next((other for other, theirs in self._kept.items() if own in theirs), None)
            if heir is None:
                del self._places[own]
            else:
                self._places[own] = (heir, end)
