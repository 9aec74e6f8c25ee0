# Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""How tables name sites and say what is computed there."""

import re


def pattern_of(name: str) -> str:
    """'model.layers.11.mlp.up_proj' → 'model.layers.*.mlp.up_proj': equal layers are one row."""
    return re.sub(r"(?<=\.)\d+(?=\.|$)", "*", name)


def describe_operand(operand: dict | None) -> str:
    """'int8/channel', 'int4/group 64, f16 + zero points', 'int4/group 32, f16 + minima', 'f8E4M3FN/token', 'int8/token, group 32', 'int8/tensor, static', 'f4E2M1FN/group 16, f8E4M3FN × f32',
    'float'"""
    if operand is None:
        return "float"
    granularity = operand.get("granularity")
    if granularity == "group":
        granularity = f"group {operand['group_size']}"
    elif granularity == "token" and operand.get("group_size"):
        granularity = f"token, group {operand['group_size']}"
    codes = f"int{operand['bits']}" if operand["codes"] == "integer" else operand["codes"]
    text = f"{codes}/{granularity}"
    if operand.get("scale_type", "f32") != "f32":
        text += f", {operand['scale_type']}"
    if operand.get("outer"):
        text += " × f32" if "scale_type" in operand else ", calibrated"
    if operand.get("symmetric") is False:
        text += " + minima" if operand.get("minima") else " + zero points"
    if operand.get("online"):
        text += ", online"
    elif operand.get("dynamic") is False:
        text += ", static"
    if operand.get("sinks"):
        text += ", sinks apart"
    return text + (f", behind H{operand['hadamard']}" if operand.get("hadamard") else "")
