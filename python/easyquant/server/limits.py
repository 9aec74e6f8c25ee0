# Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""How much a client may ask for, and how long it may take."""

from dataclasses import dataclass

MOST_CHOICES = 128  # of one request, all of its prompts together
MOST_STOPS = 16
LONGEST_STOP = 1000  # characters
HEADER_BYTES = 64 << 10
HEADER_SECONDS = 20.0  # in which a request line and its headers are to come, and then its body


@dataclass(frozen=True)
class Limits:
    body_bytes: int = 4 << 20
    prompt_tokens: int = 0  # 0: what the context holds
    max_tokens: int = 0  # of an answer; 0: what the context holds
    waiting: int = 64  # answers that wait for a sequence to become free
    seconds: float = 600.0  # of a request, from its body to its last byte
    connections: int = 512  # half of the files that a process may usually have
