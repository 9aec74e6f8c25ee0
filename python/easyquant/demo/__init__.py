# Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What the demo fetches: a model and texts to calibrate and to judge it on."""

from easyquant.demo.model import fetch_model

__all__ = ["fetch_model"]
