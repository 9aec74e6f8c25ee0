# Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The page /docs: every endpoint, and every field with what becomes of it. Nothing on it comes from elsewhere."""

import re
from collections.abc import Mapping
from html import escape

from easyquant.server.fields import Field, Fields

_STYLE = """
body { font: 16px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem; color: #1c1c1c; background: #fff }
code { font: 0.9em ui-monospace, monospace } table { border-collapse: collapse; width: 100% }
td { border-top: 1px solid #ddd; padding: 0.25rem 0.75rem 0.25rem 0; vertical-align: top } .refused td { color: #777 }
@media (prefers-color-scheme: dark) { body { color: #ddd; background: #161616 } td { border-color: #333 } }
"""


def _text(meaning: str) -> str:
    return re.sub(r"`([^`]+)`", r"<code>\1</code>", escape(meaning))


def _row(name: str, field: Field) -> str:
    what = _text(field.meaning)
    if field.refused:
        harmless = f" Taken: <code>{escape(', '.join(map(repr, field.harmless)))}</code>." if field.harmless else ""
        what = f"refused: {what}.{harmless}"
    return f'<tr{" class=refused" if field.refused else ""}><td><code>{escape(name)}</code></td><td>{what}</td></tr>'


def docs_page(endpoints: Mapping[str, tuple[Fields, str]], others: Mapping[str, str]) -> str:
    parts = [f"<!doctype html><html lang=en><meta charset=utf-8><title>EasyQuant</title><style>{_STYLE}</style><h1>EasyQuant</h1>"]
    parts.append("<p>OpenAI's API, on models that were compiled with EasyQuant. A field that is null is not there; one that is not listed is an error.</p>")
    for path, (fields, title) in endpoints.items():
        rows = "".join(_row(name, field) for name, field in sorted(fields.items(), key=lambda item: item[1].refused))
        parts.append(f"<h2><code>POST {escape(path)}</code></h2><p>{_text(title)}.</p><table>{rows}</table>")
    parts.append("<h2>Others</h2><table>" + "".join(f"<tr><td><code>GET {escape(path)}</code></td><td>{_text(title)}</td></tr>" for path, title in others.items()))
    return "".join(parts) + "</table></html>"
