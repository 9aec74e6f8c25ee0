# Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""An HTTP server that speaks OpenAI's API, on the engine of `easyquant.runtime`. Nothing else imports it but the command `serve`."""
