# Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What every room stands on: errors, files and folders that appear whole, a process' memory, the project's tools."""
