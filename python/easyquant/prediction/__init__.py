# Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""How long a step takes on a GPU, estimated from the artifact without one: machine code, the launch list, and one model of time."""
