#!/usr/bin/env python3
"""Print a dictionary attribute of strings, numbers, booleans, arrays and dictionaries as JSON.

    attribute_to_json.py FILE
"""

import re
import sys

text = open(sys.argv[1]).read().strip()
# Outside of quotes only: the types of numbers go, and keys get quotes.
parts = re.split(r'("(?:[^"\\]|\\.)*")', text)
for i in range(0, len(parts), 2):
    parts[i] = re.sub(r" : [if]64", "", parts[i])
    parts[i] = re.sub(r"(\w+) = ", r'"\1": ', parts[i])
print("".join(parts))
