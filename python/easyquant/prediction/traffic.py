# Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What a launch reads and writes, by the name of its kernel, which has its sizes, and by the weights that it is given.

A family of kernels is a row of `_FAMILIES`. A kernel of no family is refused, since all that could be said of its bytes were a guess."""

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass

from easyquant.prediction.launch_list import Happening, Program
from easyquant.prediction.launch_time import Traffic
from easyquant.support.errors import UserError

_TWO_INPUTS = ("silu_mul", "gelu_mul", "clamped_mul", "mul", "sigmoid_mul", "add")
_ROW_OPERATIONS = "quantize|rms_norm|layer_norm|gelu_tanh|gelu_erf|multiply|soft_cap|copy|gather_columns|gather|add_bias|" + "|".join(_TWO_INPUTS)


@dataclass(frozen=True)
class CacheRead:
    """What attention reads of the KV cache for one sequence."""

    context: int  # tokens that the new one sees, itself included
    token_bytes: dict[str, float]  # of a token in the pages, by site
    window_bytes: dict[str, float]  # of the window of a cache of codes, by site


def cache_read(program: Program, context: int) -> CacheRead:
    """Layers share a page, and a window, by the columns of their keys."""
    columns = {}
    for launch in program.launches:
        if found := re.match(r"attention_\d+of(\d+)x(\d+)_", launch.kernel.name):
            columns[launch.site] = int(found[1]) * int(found[2])
    total = sum(columns.values())
    pages, window = program.page_bytes / program.page_tokens, program.window_bytes
    return CacheRead(context, {site: pages * n / total for site, n in columns.items()}, {site: window * n / total for site, n in columns.items()})


def distinct_experts(experts: int, chosen: int, tokens: int) -> float:
    """How many experts are chosen by any of the tokens, each of which chooses so many: what is expected where all are as likely. A router that
    prefers some calls up fewer, and their weights are read by more rows."""
    return experts * (1 - (1 - chosen / experts) ** tokens)


def _experts(found: re.Match, happening: Happening, tensors: list[int], experts: int) -> tuple[Traffic, int | None]:
    """Weights of those that have rows are read. An item is up to so many rows of one as a tile has; blocks take items and tiles of columns in turns."""
    n, k = int(found["n"]), int(found["k"])
    rows, kernel, chosen = happening.rows, happening.launch.kernel, happening.launch.multiple
    element = 1 if re.search(r"_q(_|$)", found["tag"]) else 2
    read = distinct_experts(experts, chosen, rows // chosen)
    tile_rows, tile_columns, _slab = map(int, found["tile"].split("x"))
    items, tiles = read * math.ceil(rows / read / tile_rows), math.ceil(n / tile_columns)
    streamed = items * (max(tensors) / experts + tile_rows * k * element * tiles)
    memory = sum(tensors) * read / experts + rows * (k * element + n * 4)
    return Traffic(memory, streamed, streamed), min(kernel.blocks(rows), math.ceil(items * tiles))


def _linear(found: re.Match, happening: Happening, tensors: list[int], _: CacheRead) -> tuple[Traffic, int | None]:
    n, k, tag = int(found["n"]), int(found["k"]), found["tag"]
    if of_experts := re.search(r"_of(\d+)_", tag):
        return _experts(found, happening, tensors, int(of_experts[1]))
    rows, kernel = happening.rows, happening.launch.kernel
    element = 1 if re.search(r"_q(_|$)", tag) else 2
    codes, passes = max(tensors), kernel.row_blocks(rows)
    results = rows * n * 4 * (2 if "accumulate" in tag else 1)
    memory = sum(tensors) + rows * k * element + results
    # Blocks that share K each read their part of a row; others all of it. All of them write their sums, and the last one reads those of the others.
    blocks = kernel.blocks(rows)
    if found["tile"]:
        tile_rows, tile_columns, _slab = map(int, found["tile"].split("x"))
        splits, sums = int(found["splits"] or 1), tile_rows * tile_columns * 4
        streamed = codes * passes + passes * tile_rows * k * element * math.ceil(n / tile_columns)
        asked = streamed
    else:
        splits, sums = kernel.grid[1][0], int(found["rows"]) * n / kernel.grid[0][0] * 4
        streamed = codes * passes
        asked = streamed + min(rows, int(found["rows"])) * k * element * blocks / splits
    written = blocks * sums if splits > 1 else 0
    return Traffic(memory, streamed, asked + written, (splits - 1) * sums), None


def _f32_linear(found: re.Match, happening: Happening, tensors: list[int], _: CacheRead) -> tuple[Traffic, int | None]:
    """Each block reads the rows that it has, and its part of the weight."""
    n, k, rows, kernel = int(found["n"]), int(found["k"]), happening.rows, happening.launch.kernel
    streamed = max(tensors) * kernel.row_blocks(rows) + kernel.blocks(rows) * int(found["rows"]) * k * 4
    return Traffic(sum(tensors) + rows * (k + n) * 4, streamed, streamed), None


def _attention(found: re.Match, happening: Happening, _: list[int], cache: CacheRead) -> tuple[Traffic, int | None]:
    site, kernel, rows = happening.launch.site, happening.launch.kernel, happening.rows
    in_float = min(cache.context, sum(int(number) for number in re.findall(r"_(?:residual|sinks)(\d+)", kernel.name)))
    held = sum(int(number) for number in re.findall(r"_(?:residual|sinks)(\d+)", kernel.name))
    window = cache.window_bytes[site] * in_float / held if held else 0.0
    read = rows * ((cache.context - in_float) * cache.token_bytes[site] + window)
    # Tokens are cut into pieces. Sums of each are written, and read by who ends the last one of a row.
    parts = math.ceil(cache.context / int(found["tokens"]))
    partial = rows * int(found["heads"]) * (int(found["dim"]) + 2) * 4 * (2 * parts if parts > 1 else 0)
    result = rows * int(found["heads"]) * int(found["dim"]) * 4
    return Traffic(read + partial + result, read, read), min(kernel.blocks(rows), rows * int(found["kv"]) * parts)


def _rows(columns: float, read: float, written: float):
    """A family that moves so many bytes a column and row."""
    return lambda found, happening, tensors, cache: (Traffic(happening.rows * columns(found) * (read(found) + written(found))), None)


def _embedding(found: re.Match, happening: Happening, tensors: list[int], _: CacheRead) -> tuple[Traffic, int | None]:
    return Traffic(happening.rows * (int(found["columns"]) * 4 + sum(tensors) / int(found["vocab"]))), None


def _convolution(found: re.Match, happening: Happening, tensors: list[int], _: CacheRead) -> tuple[Traffic, int | None]:
    """Tokens that a sequence keeps are read, and written one place further."""
    columns, kept = int(found["columns"]), int(found["width"]) - 1
    return Traffic(happening.rows * columns * 4 * (2 + 2 * kept) + sum(tensors)), None


def _recurrence(found: re.Match, happening: Happening, tensors: list[int], _: CacheRead) -> tuple[Traffic, int | None]:
    """The state of every head is read and written."""
    key_heads, keys, heads, values = (int(found[name]) for name in ("key_heads", "keys", "heads", "values"))
    row = 2 * heads * keys * values + 2 * key_heads * keys + heads * (2 * values + 2)
    # Lanes that share columns have sixteen rows each at most, and a lane has two columns.
    lanes = max(8, 2 ** math.ceil(math.log2(keys / 16)))
    items = happening.rows * heads * math.ceil(values / (2 * 128 // lanes))
    return Traffic(happening.rows * row * 4 + sum(tensors)), min(happening.launch.kernel.blocks(happening.rows), items)


def _heads(found: re.Match) -> int:
    return (int(found["heads"]) + 2 * int(found["kv"] or 0)) * int(found["dim"])


_CACHED = _rows(lambda f: 2 * int(f["kv"]) * int(f["dim"]), lambda f: 4, lambda f: 2)


def _cache_codes(found: re.Match, happening: Happening, *rest) -> tuple[Traffic, int | None]:
    """A block a row and head works. So do those of groups of keys in one step of R, for keys leave the float window R at a time: 1 / G of a block."""
    traffic, _ = _CACHED(found, happening, *rest)
    return traffic, math.ceil(happening.rows * int(found["kv"]) * (1 + 1 / int(found["group"])))


_FAMILIES = (
    (r"linear_(?P<n>\d+)x(?P<k>\d+)_(?P<tag>\w+?)_(?:(?:dot|stream)_(?P<rows>\d+)|mma_(?P<tile>\d+x\d+x\d+)(?:_split(?P<splits>\d+))?)", _linear),
    (r"f32_linear_(?P<n>\d+)x(?P<k>\d+)\w*_rows(?P<rows>\d+)", _f32_linear),
    (r"attention_(?P<heads>\d+)of(?P<kv>\d+)x(?P<dim>\d+)_\w*?split(?P<tokens>\d+)\w*", _attention),
    (r"embedding_(?P<vocab>\d+)x(?P<columns>\d+)_\w+", _embedding),
    (r"heads_(?P<heads>\d+)(?:_(?P<kv>\d+))?x(?P<dim>\d+)\w*", _rows(_heads, lambda f: 4, lambda f: 4)),
    (r"kv_append_(?P<kv>\d+)x(?P<dim>\d+)\w*", _CACHED),
    (r"kv_quantize_(?P<kv>\d+)x(?P<dim>\d+)_kv\d+_group(?P<group>\d+)\w*", _cache_codes),
    (r"conv1d_(?P<columns>\d+)x(?P<width>\d+)_of\d+\w*", _convolution),
    (r"gated_delta_(?P<key_heads>\d+)x(?P<keys>\d+)_(?P<heads>\d+)x(?P<values>\d+)\w*", _recurrence),
    (r"choose_experts_(?P<chosen>\d+)_of_(?P<experts>\d+)\w*", _rows(lambda f: 1, lambda f: 4 * int(f["experts"]), lambda f: 8 * int(f["chosen"]))),
    (r"sort_choices_(?P<chosen>\d+)_of_(?P<experts>\d+)\w*", _rows(lambda f: int(f["chosen"]), lambda f: 4, lambda f: 8)),
    (r"combine_experts_(?P<chosen>\d+)x(?P<columns>\d+)\w*",
     _rows(lambda f: int(f["columns"]), lambda f: 4 * int(f["chosen"]) + 4 * ("shared" in f[0]), lambda f: 4)),
    (r"keep_logits_(?P<vocabulary>\d+)", _rows(lambda f: int(f["vocabulary"]), lambda f: 4, lambda f: 4)),
    # A greatest logit and a sum of each 64.
    (r"weigh_logits_(?P<vocabulary>\d+)", _rows(lambda f: int(f["vocabulary"]), lambda f: 4, lambda f: 8 / 64)),
    (r"choose_tokens_(?P<vocabulary>\d+)", _rows(lambda f: int(f["vocabulary"]), lambda f: 8 / 64, lambda f: 0)),
    (r"rescale_(?P<columns>\d+)_\w+", _rows(lambda f: int(f["columns"]), lambda f: 4, lambda f: 4)),
    (r"fake_quantize_(?P<columns>\d+)_\w+_(?P<output>f32|f16|bf16)", _rows(lambda f: int(f["columns"]), lambda f: 4, lambda f: 4 if f["output"] == "f32" else 2)),
    (r"advance_(?P<columns>\d+)_\w+", _rows(lambda f: int(f["columns"]), lambda f: 16, lambda f: 16)),
    (rf"(?P<op>{_ROW_OPERATIONS})_(?P<columns>\d+)(?:_\w+)?",
     _rows(lambda f: int(f["columns"]), lambda f: 8 if f["op"] in _TWO_INPUTS else 4, lambda f: 1 if "quantize" in f[0] else 4)),
)  # fmt: skip


def traffic_of(happening: Happening, weights: Mapping[int, int], cache: CacheRead) -> tuple[Traffic, int]:
    """Its bytes, and the blocks that have work. `weights`: bytes of the tensor at each offset."""
    launch = happening.launch
    name, blocks = launch.kernel.name, launch.kernel.blocks(happening.rows)
    for pattern, family in _FAMILIES:
        if found := re.fullmatch(pattern, name):
            try:
                traffic, busy = family(found, happening, [weights[offset] for offset in launch.weights], cache)
            except (KeyError, ValueError, IndexError) as error:
                raise UserError(f"site {launch.site!r}: kernel {name} and the weights do not fit together ({error!r}); copy or compile the artifact again") from None
            return traffic, busy or blocks
    raise UserError(f"site {launch.site!r}: kernel {name} is of a family whose bytes are not known, expected one of those in easyquant/prediction/traffic.py; "
                    "compile the model again with this version")  # fmt: skip
