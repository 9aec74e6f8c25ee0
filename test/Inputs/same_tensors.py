# Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""same_tensors.py A B: do two safetensors files hold the same tensors, whatever their metadata?"""

import sys

import numpy as np
from safetensors.numpy import load_file

one, other = (load_file(path) for path in sys.argv[1:])
sys.exit(0 if one.keys() == other.keys() and all(np.array_equal(one[name], other[name]) for name in one) else 1)
