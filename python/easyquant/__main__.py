# Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""`python -m easyquant` is the same as `easyquant`."""

from easyquant.cli import main

main()
