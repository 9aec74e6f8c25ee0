# Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The pages for people: / is a chat; /docs, and docs/guide/serve-fields.md, have every endpoint, and every field with what becomes of it.

Nothing on them comes from elsewhere.
"""

import base64
import hashlib
import re
from collections.abc import Mapping
from html import escape
from pathlib import Path

import orjson

from easyquant.server.fields import Field, Fields

_STYLE = """
body { font: 16px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem; color: #1c1c1c; background: #fff }
code { font: 0.9em ui-monospace, monospace } table { border-collapse: collapse; width: 100% }
td { border-top: 1px solid #ddd; padding: 0.25rem 0.75rem 0.25rem 0; vertical-align: top } .refused td { color: #777 }
@media (prefers-color-scheme: dark) { body { color: #ddd; background: #161616 } td { border-color: #333 } }
"""


def _what(field: Field) -> str:
    """What becomes of it, in Markdown."""
    if not field.refused:
        return field.meaning
    harmless = f" (taken: `{orjson.dumps(field.harmless).decode()[1:-1]}`)" if field.harmless else ""
    return f"refused: {field.meaning}{harmless}"


def _sorted(fields: Fields) -> list[tuple[str, Field]]:
    """The refused ones come last."""
    return sorted(fields.items(), key=lambda item: item[1].refused)


def fields_page(endpoints: Mapping[str, tuple[Fields, str]]) -> str:
    """docs/guide/serve-fields.md"""
    parts = ["# The fields of requests\n\nWhat `easyquant serve` makes of each. `/docs` of a server has the same. A field that is null counts as absent; one that is not listed is an error.\n"]
    for path, (fields, title) in endpoints.items():
        rows = "".join(f"| `{name}` | {_what(field)} |\n" for name, field in _sorted(fields))
        parts.append(f"\n## POST {path}\n\n{title}.\n\n| field | |\n|---|---|\n{rows}")
    return "".join(parts)


def _text(meaning: str) -> str:
    return re.sub(r"`([^`]+)`", r"<code>\1</code>", escape(meaning))


def _row(name: str, field: Field) -> str:
    return f'<tr{" class=refused" if field.refused else ""}><td><code>{escape(name)}</code></td><td>{_text(_what(field))}</td></tr>'


def chat_page() -> tuple[str, dict[str, str]]:
    """The page and its headers, by which it runs its own script, has its own style, and talks to its own server."""
    page = Path(__file__).with_name("chat_page.html").read_text(encoding="utf-8")
    allowed = {}
    for kind in ("style", "script"):
        (text,) = re.findall(f"<{kind}>(.*?)</{kind}>", page, re.DOTALL)
        allowed[kind] = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
    rules = [f"{kind}-src 'sha256-{value}'" for kind, value in allowed.items()]
    rules += ["default-src 'none'", "connect-src 'self'", "img-src data:", "base-uri 'none'", "form-action 'none'", "frame-ancestors 'none'"]
    return page, {"content-security-policy": "; ".join(rules), "x-content-type-options": "nosniff", "referrer-policy": "no-referrer"}


def docs_page(endpoints: Mapping[str, tuple[Fields, str]], others: Mapping[str, str]) -> str:
    parts = [f"<!doctype html><html lang=en><meta charset=utf-8><title>EasyQuant</title><style>{_STYLE}</style><h1>EasyQuant</h1>"]
    parts.append("<p>OpenAI's API, on models that were compiled with EasyQuant. A field that is null is not there; one that is not listed is an error.</p>")
    for path, (fields, title) in endpoints.items():
        rows = "".join(_row(name, field) for name, field in _sorted(fields))
        parts.append(f"<h2><code>POST {escape(path)}</code></h2><p>{_text(title)}.</p><table>{rows}</table>")
    parts.append("<h2>Others</h2><table>" + "".join(f"<tr><td><code>GET {escape(path)}</code></td><td>{_text(title)}</td></tr>" for path, title in others.items()))
    return "".join(parts) + "</table></html>"
