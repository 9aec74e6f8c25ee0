# Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""JSON schemas for tests: some as programs write them, and as many random ones as one likes."""

import random

_PATTERNS = ["^[a-z]{2,5}$", r"^\d{3}-\d{4}$", "^(red|green|blue)$", "^v[0-9]+(\\.[0-9]+){0,2}$", "[AB]C", "^[^\"\\\\]{0,6}$"]


def _scalar(choice):
    kind = choice.choice(["string", "integer", "number", "boolean", "null", "enum", "const", "pattern", "several"])
    if kind == "string":
        low = choice.randint(0, 3)
        return {"type": "string", "minLength": low, "maxLength": low + choice.randint(0, 5)}
    if kind in ("integer", "number"):
        low = choice.randint(-50, 50)
        bounds = {choice.choice(["minimum", "exclusiveMinimum"]): low, choice.choice(["maximum", "exclusiveMaximum"]): low + choice.randint(3, 200)}
        if kind == "integer" and choice.random() < 0.2:
            return {"type": "integer", "multipleOf": choice.randint(2, 9)}
        return {"type": kind} | (bounds if choice.random() < 0.8 else {})
    if kind == "enum":
        return {"enum": choice.sample(["a", "b c", 'qu"ote', "é", "\n", 1, -2.5, True, None, {"k": [1]}], choice.randint(1, 4))}
    if kind == "const":
        return {"const": choice.choice(["x", 7, None, [1, "two"], {"a": {"b": False}}])}
    if kind == "pattern":
        return {"type": "string", "pattern": choice.choice(_PATTERNS)}
    if kind == "several":
        return {"type": choice.sample(["string", "integer", "boolean", "null"], 2), "maxLength": 4}
    return {"type": kind}


def random_schema(seed):
    """One whose answers are seldom long."""
    choice = random.Random(seed)
    named = {}

    def schema(depth):
        kind = choice.choice(["object", "array", "anyOf", "ref", "tuple", "map", "scalar"] if depth else ["scalar"])
        if kind == "object":
            names = choice.sample(["id", "name", "größe", "a b", "x\"y", "tags", "$k", "0"], choice.randint(0, 4))
            required = [name for name in names if choice.random() < 0.7]
            return {"type": "object", "properties": {name: schema(depth - 1) for name in names}, "required": required, "additionalProperties": False}
        if kind == "array":
            low = choice.randint(0, 2)
            return {"type": "array", "items": schema(depth - 1), "minItems": low, "maxItems": low + choice.randint(0, 2)}
        if kind == "tuple":
            parts = [schema(depth - 1) for _ in range(choice.randint(1, 3))]
            return {"type": "array", "prefixItems": parts, "items": False, "minItems": choice.randint(0, len(parts))}
        if kind == "map":
            return {"type": "object", "additionalProperties": schema(depth - 1), "maxProperties": 2}
        if kind == "anyOf":
            return {"anyOf": [schema(depth - 1) for _ in range(choice.randint(1, 3))]}
        if kind == "ref":
            name = f"part{len(named)}"
            named[name] = None  # its place
            named[name] = schema(depth - 1)
            return {"$ref": f"#/$defs/{name}"}
        return _scalar(choice)

    return schema(choice.randint(1, 3)) | ({"$defs": named} if named else {})


_TREE = {"type": "object", "properties": {"value": {"type": "integer"}, "children": {"type": "array", "items": {"$ref": "#/$defs/tree"}, "maxItems": 2}},
         "required": ["value", "children"], "additionalProperties": False}  # fmt: skip
_ADDRESS = {"type": "object", "properties": {"street": {"type": "string", "maxLength": 8}, "zip": {"type": "string", "pattern": "^[0-9]{5}$"}},
            "required": ["street", "zip"], "additionalProperties": False}  # fmt: skip

PICKED = [
    {"$defs": {"tree": _TREE}, "$ref": "#/$defs/tree"},
    {"type": "object", "definitions": {"address": _ADDRESS}, "properties": {"home": {"$ref": "#/definitions/address"}, "work": {"anyOf": [{"$ref": "#/definitions/address"}, {"type": "null"}]}},
     "required": ["home", "work"], "additionalProperties": False},
    {"type": "object", "properties": {"name": {"type": "string", "maxLength": 5}}, "required": ["name"], "additionalProperties": {"type": "integer"}, "maxProperties": 3},
    {"allOf": [{"type": "object", "properties": {"a": {"type": "integer", "minimum": 0, "maximum": 9}}, "required": ["a"]}, {"properties": {"b": {"type": "boolean"}}, "required": ["b"]}]},
    {"oneOf": [{"type": "object", "properties": {"kind": {"const": "circle"}, "r": {"type": "integer"}}, "required": ["kind", "r"], "additionalProperties": False},
               {"type": "object", "properties": {"kind": {"const": "square"}, "side": {"type": "integer"}}, "required": ["kind", "side"], "additionalProperties": False}]},
    {"type": "array", "items": {"type": "array", "items": {"type": "array", "items": {"enum": [0, 1]}, "minItems": 2, "maxItems": 2}, "minItems": 2, "maxItems": 2}, "minItems": 1, "maxItems": 1},
    {"type": "object", "patternProperties": {"^x_[a-z]{1,3}$": {"type": "boolean"}}, "additionalProperties": False, "maxProperties": 2},
    {"type": "string", "format": "date"}, {"type": "string", "format": "uuid"}, {"type": "string", "format": "ipv4"}, {"type": "string", "format": "time"},
    {"type": "number", "multipleOf": 0.5, "minimum": 0, "maximum": 4}, {"type": "integer", "exclusiveMinimum": 99, "exclusiveMaximum": 101},
    {"enum": [f"value {index}" for index in range(300)]}, {"type": ["string", "null"], "maxLength": 3}, {"const": {"deep": [1, {"er": None}]}},
    {"type": "object", "properties": {"title": {"type": "string", "title": "Title", "description": "of it", "default": "x", "maxLength": 4}}, "required": ["title"],
     "additionalProperties": False, "$schema": "https://json-schema.org/draft/2020-12/schema", "title": "Note"},
    {}, {"type": "object"},
]  # fmt: skip
