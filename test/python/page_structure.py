# Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What every page that EasyQuant writes must be: whole, alone, and with sound references."""

import re
from html.parser import HTMLParser


class Structure(HTMLParser):
    VOID = {"meta", "link", "br", "img", "path", "use", "rect", "input", "hr"}

    def __init__(self, page: str):
        super().__init__()
        self.page = page
        self.open, self.attributes, self.tags = [], [], []
        self.feed(page)

    def handle_starttag(self, tag, attributes):
        self.tags.append(tag)
        self.attributes += [(tag, *attribute) for attribute in attributes]
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attributes):
        self.tags.append(tag)
        self.attributes += [(tag, *attribute) for attribute in attributes]

    def handle_endtag(self, tag):
        if tag not in self.VOID:
            assert self.open.pop() == tag

    def check_elements_are_closed(self):
        assert self.open == []

    def check_nothing_outside_is_referred_to(self):
        for tag, name, value in self.attributes:
            if name in ("src", "href", "xlink:href", "srcset", "action", "data", "poster"):
                assert value.startswith("#"), (tag, name, value)
        assert not {"script", "link", "iframe", "img", "object", "embed", "base"} & set(self.tags)
        assert not re.search(r"https?:|@import|//\w+\.\w+", self.page)
        assert all(target.startswith("#") for target in re.findall(r"url\(([^)]*)\)", self.page))

    def check_ids(self):
        """Every id is unique and every reference found."""
        ids = [value for _, name, value in self.attributes if name == "id"]
        assert len(ids) == len(set(ids))
        references = {value[1:] for _, name, value in self.attributes if name == "href"} | set(re.findall(r"url\(#([^)]*)\)", self.page))
        assert references <= set(ids)

    def check_colours(self):
        """Figures take their colours from the page."""
        assert "var(--series-1)" in self.page and "#01010" not in self.page
