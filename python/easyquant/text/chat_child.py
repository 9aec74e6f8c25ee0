# Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Renders a chat template: a script that `easyquant.text.chat` starts, and that imports nothing of EasyQuant.

A template is a program by the author of the model. The sandbox keeps it from objects that it was not given. Only the kernel can
bound its memory and time, so it runs in a process of its own. The process reads lines of JSON: first {"template", "memory", "seconds",
"characters"}, and then variables, of one rendering each. For each it writes a line: {"text"}, {"refuses"}, the reason, or {"limit"},
the limit that was reached, which it does not outlive.
"""

import json
import resource
import signal
import sys
from datetime import datetime

import jinja2
import jinja2.ext
import jinja2.sandbox


def environment() -> jinja2.Environment:
    """The environment that templates are written for, which is that of `transformers`."""

    def refuse(message: str):
        raise jinja2.TemplateError(message)

    def to_json(value, ensure_ascii=False, indent=None, separators=None, sort_keys=False) -> str:
        return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)

    result = jinja2.sandbox.ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=[jinja2.ext.loopcontrols])
    result.filters["tojson"] = to_json
    result.globals["raise_exception"] = refuse
    result.globals["strftime_now"] = lambda form: datetime.now().strftime(form)
    return result


def render(template: jinja2.Template, variables: dict, characters: int) -> dict:
    """The text, unless it has more than so many characters."""
    pieces, length = [], 0
    for piece in template.generate(**variables):
        length += len(piece)
        if length > characters:
            return {"limit": f"writes more than {characters} characters"}
        pieces.append(piece)
    return {"text": "".join(pieces)}


def main() -> None:
    setup = json.loads(sys.stdin.readline())
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_AS, (setup["memory"], setup["memory"]))
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # of a terminal: its owner decides
    template = None
    for line in sys.stdin:
        variables = json.loads(line)
        # Seconds of the CPU, after which SIGPROF ends the process.
        signal.setitimer(signal.ITIMER_PROF, setup["seconds"])
        try:
            template = template or environment().from_string(setup["template"])
            reply = render(template, variables, setup["characters"])
        except MemoryError:
            reply = {"limit": f"needs more than {setup['memory'] >> 20} MB of memory"}
        except Exception as error:  # whatever a template can raise
            reply = {"refuses": f"{type(error).__name__}: {str(error)[:300]}"}
        signal.setitimer(signal.ITIMER_PROF, 0)
        print(json.dumps(reply), flush=True)
        if "limit" in reply:
            return


if __name__ == "__main__":
    main()
