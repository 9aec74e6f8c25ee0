# Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""HTML pages that refer to nothing outside themselves, from the templates of the package."""

from jinja2 import Environment, PackageLoader, StrictUndefined

from easyquant.terminal.console import human_bytes


def render(template: str, **values) -> str:
    environment = Environment(
        loader=PackageLoader("easyquant.reports", "templates"), autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    environment.filters["human_bytes"] = human_bytes
    return environment.get_template(template).render(**values)
