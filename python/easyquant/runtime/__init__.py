# Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Artifacts and what runs them: the extension `_runtime` over the C ABI, batches of requests, the class `Model`."""
