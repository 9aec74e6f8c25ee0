# Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The table of rooms in docs/Architecture.md: what each room is, and which rooms it may use."""

import re
from dataclasses import dataclass

from helpers import REPO

HEADING = "| room | what it does | may use |"


@dataclass(frozen=True)
class Row:
    folders: tuple[str, ...]  # 'lib/Dialect/LM', as the row names them
    uses: tuple[str, ...]  # 'Support', 'formats': words of the last column between commas and semicolons, without what is in parentheses


def read_rooms() -> list[Row]:
    """In the order of the table."""
    lines = (REPO / "docs/Architecture.md").read_text().splitlines()
    rows = []
    for line in lines[lines.index(HEADING) + 2 :]:
        if not line.startswith("|"):
            break
        room, _, uses = (cell.strip() for cell in line.strip("|").split("|"))
        names = re.split(r"[,;]\s*", re.sub(r"\s*\([^)]*\)", "", uses))
        rows.append(Row(tuple(re.findall(r"`([^`]+)`", room)), tuple(name.strip() for name in names if name.strip(" –"))))
    return rows
