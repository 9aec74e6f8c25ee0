# Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""HTML pages that refer to nothing outside themselves, from the templates of the package."""

import html
import re

from jinja2 import Environment, PackageLoader, StrictUndefined

from easyquant.terminal.console import human_bytes


def render(template: str, **values) -> str:
    environment = Environment(
        loader=PackageLoader("easyquant.reports", "templates"), autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    environment.filters["human_bytes"] = human_bytes
    page = environment.get_template(template).render(**values)
    return re.sub(r"<table>.*?</table>", lambda table: _with_heads(table[0]), page, flags=re.DOTALL)


def _with_heads(table: str) -> str:
    """A table whose cells know what stands above them: where the page is narrow, rows are lists of cells."""
    heads = [html.unescape(re.sub(r"<[^>]*>", " ", head)) for head in re.findall(r'<th scope="col"[^>]*>(.*?)</th>', table, re.DOTALL)]

    def row(found: re.Match) -> str:
        places = iter(heads)

        def cell(begin: re.Match) -> str:
            head, span = next(places, ""), re.search(r'colspan="(\d+)"', begin[2])
            for _ in range(int(span[1]) - 1 if span else 0):
                next(places, "")
            return begin[0] if span or begin[1] == "th" else f'<td data-head="{html.escape(" ".join(head.split()))}"{begin[2]}>'

        return re.sub(r"<(td|th)\b([^>]*)>", cell, found[0])

    head, body, rest = table.partition("</thead>")
    return head + body + re.sub(r"<tr>.*?</tr>", row, rest, flags=re.DOTALL)
