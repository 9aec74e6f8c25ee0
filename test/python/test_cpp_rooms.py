# Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Includes and links between rooms of C++ are those that the table of docs/Architecture.md allows, and go down only."""

import re

from helpers import REPO
from rooms import read_rooms

ROWS = [row for row in read_rooms() if not row.folders[0].startswith("python/")]
# 'Dialect/LM' → what its row lists. A room may also use what those rooms may use.
LISTED = {folder.removeprefix("lib/").rstrip("/"): row.uses for row in ROWS for folder in row.folders}
# Tools are a room of several folders.
SOURCES = sorted(
    file for top in ("lib", "include/easyquant", "tools") for file in (REPO / top).rglob("*") if file.suffix in (".h", ".cpp", ".td")
)  # fmt: skip


def allowed(room: str) -> set[str]:
    return {room}.union(*(allowed(name) for name in LISTED[room]))


def room_of(path: str) -> str:
    """'lib/Dialect/LM/IR/LMOps.cpp' → 'Dialect/LM': the row that names the deepest folder."""
    place = re.sub(r"^(lib|include/easyquant)/", "", path)
    rooms = [room for room in LISTED if place.startswith(room + "/")]
    assert rooms, f"{path}: no row of the table of rooms in docs/Architecture.md names its folder"
    return max(rooms, key=len)


def includes():
    """(file, the room of what it includes) of every include of a header or TableGen file of ours."""
    for file in SOURCES:
        for name in re.findall(r'^\s*#?include "(easyquant/[^"]+)"', file.read_text(), re.MULTILINE):
            yield str(file.relative_to(REPO)), room_of(f"include/{name}")


def links():
    """(CMakeLists.txt, the room of a library that a library in its folder is linked to)."""
    calls = {}
    for file in sorted((REPO / "lib").rglob("CMakeLists.txt")):
        for name, rest in re.findall(r"easyquant_add_(?:mlir_)?library\((\w+)([^)]*)\)", file.read_text()):
            calls[name] = (file, re.findall(r"\bEasyQuant\w+", rest.partition("LINK")[2].partition("DEPENDS")[0]))
    assert len(calls) > 20, "no libraries found: does cmake/EasyQuant.cmake name its functions otherwise?"
    for file, used in calls.values():
        for name in used:
            yield str(file.relative_to(REPO)), room_of(str(calls[name][0].relative_to(REPO)))


def test_rooms_use_those_above_them_in_the_table():
    above = set()
    for row in ROWS:
        for folder in row.folders:
            name = folder.removeprefix("lib/").rstrip("/")
            assert set(row.uses) <= above, f"{folder}: may use {sorted(set(row.uses) - above)}, which the table does not list above it"
        above |= {folder.removeprefix("lib/").rstrip("/") for folder in row.folders}


def test_every_folder_is_a_room():
    folders = {room_of(str(file.relative_to(REPO))) for file in SOURCES}
    assert folders == set(LISTED), "rows of the table without a file"


def test_includes_and_links_are_allowed():
    wrong = {
        f"{file}: {used}" for file, used in [*includes(), *links()] if used not in allowed(room_of(file))
    }  # fmt: skip
    assert not wrong, "docs/Architecture.md does not allow these rooms to be used:\n" + "\n".join(sorted(wrong))


def test_what_is_listed_is_used():
    used = {room: set() for room in LISTED}
    for file, name in [*includes(), *links()]:
        used[room_of(file)].add(name)
    for room, names in LISTED.items():
        assert set(names) <= used[room], f"{room}: the table lists {sorted(set(names) - used[room])}, which it does not use"
