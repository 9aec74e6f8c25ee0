# Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Imports between rooms of the Python package are those that the table of docs/Architecture.md allows, and go down only."""

import ast
from graphlib import TopologicalSorter

import easyquant
from helpers import REPO
from rooms import read_rooms

PACKAGE = REPO / "python/easyquant"
WRITTEN_BY_CMAKE = {"easyquant.support._config", "easyquant.runtime._runtime"}

# Every module's name and file.
MODULES = {
    ".".join(("easyquant", *file.relative_to(PACKAGE).with_suffix("").parts)).removesuffix(".__init__"): file
    for file in PACKAGE.rglob("*.py")
}  # fmt: skip
ROOMS = {row.folders[0]: row.uses for row in read_rooms() if row.folders[0].startswith("python/easyquant")}


def room_of(module: str) -> str:
    """'easyquant.text.chat' → 'text'; '' for what lies outside of rooms."""
    name = module.split(".")[1] if "." in module else ""
    return name if (PACKAGE / name).is_dir() else ""


def imported(module: str) -> set[str]:
    """The modules of the package that a module names, at its top and within functions; a package where only its names are used."""
    found = set()
    for node in ast.walk(ast.parse(MODULES[module].read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{MODULES[module]}:{node.lineno}: a relative import"
            names = {f"{node.module}.{alias.name}" for alias in node.names}
            submodules = names & (MODULES.keys() | WRITTEN_BY_CMAKE)
            found |= submodules if submodules else {node.module}
    return {name for name in found - WRITTEN_BY_CMAKE if name == "easyquant" or name.startswith("easyquant.")}


def test_the_table_has_every_room():
    folders = {"python/easyquant"} | {f"python/easyquant/{file.parent.name}" for file in PACKAGE.glob("*/__init__.py")}
    assert ROOMS.keys() == folders
    assert {name for name in MODULES if not room_of(name)} == {"easyquant", "easyquant.__main__"}, "a module outside of rooms"


def test_rooms_use_those_above_them_in_the_table():
    above = set()
    for folder, uses in ROOMS.items():
        assert set(uses) <= above, f"{folder}: may use {set(uses) - above}, which the table does not list above it"
        above.add(folder.rpartition("/")[2])


def test_imports_are_allowed():
    wrong = []
    for module, file in MODULES.items():
        room = room_of(module)
        allowed = {*ROOMS[f"python/easyquant/{room}".rstrip("/")], room}
        for name in imported(module):
            assert name in MODULES, f"{file}: imports {name}, which there is not"
            # The package itself gives its version to all.
            if name != "easyquant" and room_of(name) not in allowed:
                wrong.append(f"{file.relative_to(REPO)}: {name}")
    assert not wrong, "docs/Architecture.md does not allow these imports:\n" + "\n".join(sorted(wrong))


def test_what_is_allowed_is_used():
    used = {room_of(module): set() for module in MODULES}
    for module in MODULES:
        used[room_of(module)] |= {room_of(name) for name in imported(module)}
    used[""] |= {room_of(f"easyquant.{place}") for place in easyquant._PLACES.values()}
    for folder, uses in ROOMS.items():
        assert set(uses) <= used[folder.removeprefix("python/easyquant").lstrip("/")], folder


def test_modules_do_not_import_in_circles():
    graph = {module: imported(module) - {"easyquant"} for module in MODULES if module != "easyquant"}
    assert list(TopologicalSorter(graph).static_order())  # CycleError names the circle
