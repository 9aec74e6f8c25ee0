# Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Independent numpy references of what EasyQuant computes. Nothing here imports EasyQuant.

checkpoint   reads Hugging Face folders and llama2.c files into dictionaries of arrays
schemes      quantization, simulated in floating point with integer codes
llama, gpt2  forward passes
scoring      token losses, perplexity, greedy decoding
"""
