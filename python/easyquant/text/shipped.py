# Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The text that the package brings, to calibrate on where a user has named none. It is in the public domain."""

from pathlib import Path

TITLE = "chapters 1 to 8 of Jane Austen's Persuasion"
FILE = Path(__file__).with_name("persuasion.txt")
