# Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""easyquant-compile where memory is refused (test/Runtime/FailingNew.cpp)."""

import os

from helpers import BUILD, ISA, assert_refused, compile_model, run_tool


def test_the_model_is_named(tiny_llama, tmp_path):
    refused = 0
    for number, least in ((2, 1 << 14), (10, 1 << 12), (2000, 0), (20000, 0)):
        environment = os.environ | {"LD_PRELOAD": str(BUILD / "unittests" / "FailingNew.so"), "FAIL_NEW": str(number), "FAIL_NEW_OVER": str(least)}
        result = run_tool("easyquant-compile", tiny_llama, "-o", tmp_path / "out", "--force", ISA, env=environment)
        if result.returncode != 0:
            refused += 1
            assert_refused(result, f"error: {tiny_llama}: out of memory" if least else "out of memory")  # it may end before it knows the model
            assert not (tmp_path / "out").exists()
    assert refused > 1
    compile_model(tiny_llama, tmp_path / "out", "--force", ISA)
