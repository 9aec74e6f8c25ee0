# Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Beginnings of texts whose keys and values are kept: whole pages, found by the hash of all tokens up to their end."""

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
        self._kept: OrderedDict[int, list[bytes]] = OrderedDict()  # hashes of units by sequence, the oldest first
        self._places: dict[bytes, tuple[int, int]] = {}  # the sequence that has all tokens up to there, and how many they are
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

    def fork(self, place: tuple[int, int]) -> int:
        """A sequence that holds a beginning."""
        sequence, tokens = place
        fork = self._batch.fork(sequence)
        self._batch.truncate(fork, tokens)
        self.hits += 1
        self.shared_tokens += tokens
        return fork

    def keep(self, sequence: int, hashes: list[bytes]) -> None:
        """Keeps the beginning of a sequence that has these units, in the place of shorter ones of the same text."""
        tokens = len(hashes) * self._unit
        if not hashes or tokens > self._limit:
            return
        place = self.longest(hashes)
        if place is not None and place[1] == tokens:
            return
        while place is not None and len(self._kept[place[0]]) * self._unit == place[1]:  # all of it is a part of the new one
            self._drop(place[0])
            place = self.longest(hashes)
        while len(self._kept) >= self._entries or self.tokens + tokens > self._limit:
            self.evict()
        fork = self._batch.fork(sequence)
        self._batch.truncate(fork, tokens)
        self._kept[fork] = hashes
        self.tokens += tokens
        for number, own in enumerate(hashes, 1):
            self._places.setdefault(own, (fork, number * self._unit))

    def evict(self) -> bool:
        if not self._kept:
            return False
        self._drop(next(iter(self._kept)))
        return True

    def _drop(self, sequence: int) -> None:
        hashes = self._kept.pop(sequence)
        self.tokens -= len(hashes) * self._unit
        self._batch.remove(sequence)
        for number, own in enumerate(hashes, 1):
            if self._places[own][0] != sequence:
                continue
            # Another one may begin in the same way.
            heir = next((other for other, theirs in self._kept.items() if len(theirs) >= number and theirs[number - 1] == own), None)
            if heir is None:
                del self._places[own]
            else:
                self._places[own] = (heir, number * self._unit)
