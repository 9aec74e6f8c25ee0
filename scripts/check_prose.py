# Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Lints the English of Markdown pages, comments, docstrings and TableGen descriptions, and the links of pages to files and headings.

The checks of English are those of proselint that pyproject.toml names under [tool.prose], and RULES. Without arguments the script
reads every file that git tracks; otherwise it reads the files that are named.
"""

import re
import subprocess
import sys
import tomllib
from bisect import bisect_right
from pathlib import Path

import proselint.checks
from proselint.registry.checks import Check, engine, types

REPO = Path(__file__).resolve().parent.parent
LEADERS = dict.fromkeys((".h", ".cpp", ".c", ".td", ".mlir"), "//") | dict.fromkeys((".py", ".sh", ".cmake", ".test", ".toml"), "#")

RULES = {
    "genitive": (r"\bOf [\w|]|[;:] of [a-z]", "begin with the subject: 'a weight of two levels has', not 'of two levels a weight has'"),
    "headless": (r"\b(?:W|w)ho(?:ever) |(?<=\n\n)(?:Those|That) (?:as|from|of|that|with) ", "name the subject: 'the caller that', 'the scale of'"),
    "repeated": (r"(?<![\w-])([a-z]{2,}) \1(?![\w-])", "a word is repeated"),
}


def paragraphs(lines):
    """Joins neighbouring lines of (number, text); yields the joined text with the offset and number of each line."""
    text, starts, last = "", [], None
    for number, line in lines:
        line = re.sub(r"`[^`]*`|\]\([^)]*\)|<[^<> ]+>", "|", " ".join(line.split()))
        if text and (not line or number != last + 1):
            yield text, starts
            text, starts = "", []
        if line:
            starts.append((len(text), number))
            text += line + " "
        last = number
    if text:
        yield text, starts


def markdown(text):
    """The prose of a page: no code, and each item of a list and each cell of a table by itself."""
    fenced = False
    for number, line in enumerate(text.splitlines(), 1):
        fenced ^= line.startswith("```")
        if fenced or line.startswith(("```", "    ")):
            yield number, ""
        elif line.startswith("|"):
            yield number, ". ".join(line.strip("|").split("|"))
        else:
            yield number, re.sub(r"^\s*(?:[-*>]|\d+\.|#+) ", ". ", line)


def comments(text, leader):
    """What comments say, and docstrings of Python and descriptions of TableGen."""
    closing = None
    for number, line in enumerate(text.splitlines(), 1):
        if closing:
            ends = closing in line
            yield number, line.replace(closing, " ")
            closing = None if ends else closing
            continue
        comment = re.search(rf"(?:^|\s){leader}[/!<#]* (.*)", line)
        quoted = re.search(r'"""(.*)' if leader == "#" else r"description = \[\{(.*)", line)
        if quoted:
            closing = '"""' if leader == "#" else "}]"
            if closing in quoted[1]:
                closing = None
            yield number, quoted[1].replace('"""', " ").replace("}]", " ")
        elif comment and not re.match(r"[A-Z][A-Z0-9-]*:", comment[1]):  # RUN: and CHECK: are no prose
            yield number, ("" if line.lstrip().startswith(leader) else ". ") + comment[1]
        else:
            yield number, ""


def headings(page):
    """The anchors of a page, as GitHub makes them."""
    titles = re.findall(r"^#+ (.*)$", re.sub(r"^```.*?^```", "", page.read_text(), flags=re.M | re.S), re.M)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


def dead_links(name, text):
    for number, line in enumerate(text.splitlines(), 1):
        for link in re.findall(r"\]\(([^)\s]+)\)", re.sub(r"`[^`]*`", "", line)):
            path, _, anchor = link.partition("#")
            target = (REPO / name).parent / path if path else REPO / name
            if ":" not in path and (not target.exists() or anchor and anchor not in headings(target)):
                yield f"{name}:{number}", "link", "there is no such file or heading", link


def checks(settings):
    own = tuple(Check(check_type=types.ExistenceSimple(pattern=pattern), path=name, message=message, engine=engine.Fancy(engine.RegexOptions(case_insensitive=False)))
                for name, (pattern, message) in RULES.items())
    named = settings["checks"]
    return own + tuple(check for check in proselint.checks.__register__ if any(check.matches_partial(name) for name in named))


def main():
    with open(REPO / "pyproject.toml", "rb") as file:
        settings = tomllib.load(file)["tool"]["prose"]
    names = sys.argv[1:] or subprocess.run(["git", "ls-files"], cwd=REPO, capture_output=True, text=True, check=True).stdout.split()
    places, pieces, length, findings = [], [], 0, []
    for name in names:
        suffix = Path(name).suffix
        if suffix != ".md" and suffix not in LEADERS:
            continue
        text = (REPO / name).read_text()
        if suffix == ".md":
            findings += dead_links(name, text)
        for paragraph, starts in paragraphs(markdown(text) if suffix == ".md" else comments(text, LEADERS[suffix])):
            places += [(length + offset, f"{name}:{number}") for offset, number in starts]
            pieces.append(paragraph)
            length += len(paragraph) + 2
    whole = "\n\n".join(pieces)
    findings += [(place, check.path, result.message, whole[start:end])
                 for check in checks(settings) for result in check.check_with_flags(whole)
                 for start, end in [result.span]
                 for place in [places[bisect_right(places, (start + 1, "~")) - 1][1]]]
    for place, path, message, found in sorted(findings):
        print(f"{place}: {found.strip()!r}: {path}: {message}")
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main())
