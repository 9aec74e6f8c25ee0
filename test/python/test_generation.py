# Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Texts that come in pieces, and where they end."""

import numpy as np
import pytest

from easyquant.runtime.generation import Completion, StopTexts


@pytest.mark.parametrize("seed", range(200))
def test_stops_in_pieces(seed):
    random = np.random.default_rng(seed)
    text = "".join(random.choice(list("ab"), 40))
    stops = ["".join(random.choice(list("ab"), random.integers(2, 8))) for _ in range(2)]
    cuts = sorted(random.integers(0, 41, 12))
    pieces = [text[begin:end] for begin, end in zip([0, *cuts], [*cuts, 40])]
    stop, shown, read = StopTexts(stops), "", ""
    for piece in pieces:
        read += piece
        shown += stop.push(piece)
        if stop.found:
            break
        assert read.startswith(shown) and not any(read[len(shown) :].startswith(whole) for whole in stops)
        # Held back is only what may be the beginning of a stop.
        assert read == shown or any(whole.startswith(read[len(shown) :]) for whole in stops)
    places = [read.find(whole) for whole in stops if whole in read]
    assert stop.found == bool(places)
    assert shown + stop.finish() == (read[: min(places)] if places else text)


def test_a_completion_is_printed_as_its_text():
    assert str(Completion(text="Paris")) == "Paris" and not Completion().error
