//===- ExpertLinear.cpp - The linears of experts in one launch ------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// What an expert's linear is on the rows of an item is a linear like any other: its weight begins
// where the expert's rows do, its activations and results where those of the item do. So the bodies
// of kernels by tiles compute it, with these pointers in the places of theirs, and this file knows
// no scheme. As many blocks as the chip has room for take pairs of items and tiles of columns in
// turns.
//
// Tiles of an item lie side by side in that order: blocks that run at a time read few rows of
// activations, and each weight once for an item.
//
//===----------------------------------------------------------------------===//

#include "LinearKernels.h"
#include "WeightParams.h"

#include <algorithm>
#include <limits>

using namespace mlir;

namespace easyquant::gpu {

SmallVector<ItemList> itemLists(std::span<const TileChoice> tiles, int64_t experts) {
  SmallVector<ItemList> lists;
  for (auto [number, rows] : llvm::enumerate(kItemRows)) {
    const auto *choice =
        std::ranges::find(tiles.data(), tiles.data() + tiles.size(), rows,
                          [](const TileChoice &choice) { return choice.plain.rows; });
    const bool isLast = number + 1 == kItemRows.size();
    lists.push_back({static_cast<int64_t>(number),
                     isLast ? std::numeric_limits<int64_t>::max() : kFewRows * experts, choice});
  }
  return lists;
}

void fillChip(GemmTile &tile, const ItemList &list, int64_t n, int64_t blockRows,
              const Chip &chip) {
  constexpr int64_t kFewItems = 8; // of a token of common models
  if (list.number == 0)
    fillChip(tile, kFewItems * tile.rows, n, blockRows, chip);
}

void describeExperts(Description &description, const GemmTile &tile, const Chip &chip) {
  description.grid = {};
  description.grid[0].factor = chip.multiprocessors * tile.blocksPerSM;
  description.beginsNext = false; // its blocks take turns
}

namespace {

/// Parameters whose rows are those of choices: so many elements apart.
struct RowParameter {
  StringRef name;
  Int stride;
  Type element;
};

} // namespace

/// emit(arguments, place) for the items and tiles of a block.
template <typename Spec>
static void forItems(KernelBuilder &b, const Spec &spec, const GemmTile &tile, int64_t blocks,
                     ArrayRef<RowParameter> rowParameters, const KernelArguments &arguments,
                     llvm::function_ref<void(const KernelArguments &, TilePlace)> emit) {
  const auto *rows = std::ranges::find(kItemRows, tile.rows);
  const int64_t list = rows - kItemRows.begin(), across = divideCeil(spec.n, tile.columns);
  Type fields = b.vec(kItemFields, b.i32());
  auto item = [&](Value row) {
    Value first = b.rowOf(arguments["items"], row, kItemStride, b.i32());
    return b.elements(b.load(b.advance(first, kItemFields * list, b.i32()), fields,
                             /*constant=*/true));
  };
  Value count = b.mul(item(b.i32(0)).front(), across);
  b.forLoop(b.block(0), count, blocks, [&](Value unit) {
    KernelBuilder::Values of = item(b.add(b.div(unit, across), 1));
    Value expert = of[0], firstRow = of[1];
    KernelArguments own = arguments;
    for (const RowParameter &parameter : rowParameters)
      if (Value pointer = arguments.find(parameter.name))
        own.set(parameter.name, b.rowOf(pointer, firstRow, parameter.stride, parameter.element));
    const int64_t rowBytes =
        divideCeil(spec.k, numerics::kFragmentColumns) * numerics::fragmentBytes(spec.bits);
    Value rowBlock = b.mul(expert, spec.n / numerics::fragmentRows(spec.bits));
    own.set("w", b.rowOf(arguments["w"], rowBlock, rowBytes, b.i8()));
    if (spec.bias)
      own.set("bias", b.rowOf(arguments["bias"], expert, spec.n, b.f32()));
    own.set(kFirstWeightRow, b.mul(expert, spec.n));
    own.set("rows", of[2]);
    emit(own, {b.i32(0), b.rem(unit, across)});
    b.barrier(); // the next tile's slabs come where this one's are read
  });
}

void emitExpertLinear(KernelBuilder &b, const LinearSpec &spec, const LinearKernel &kernel,
                      const KernelArguments &arguments) {
  const int64_t groups = spec.dotGroups();
  const RowParameter rows[] = {
      {"codes", paddedColumns(spec.k), b.i8()},
      {"scales", spec.inputGroup ? groups : 1, b.f32()},
      {"sums", groups, b.i32()},
      {"zeros", spec.sumsWeights() ? groups : 1, b.i32()},
      {"y", arguments["y_stride"], b.type(spec.output)},
  };
  forItems(b, spec, kernel.tile, kernel.description.grid[0].factor, rows, arguments,
           [&](const KernelArguments &own, TilePlace place) {
             emitMatrixLinear(b, spec, kernel, own, place);
           });
}

void emitExpertLinear(KernelBuilder &b, const WeightOnlySpec &spec, const WeightOnlyKernel &kernel,
                      const KernelArguments &arguments) {
  const RowParameter rows[] = {
      {"x", arguments["x_stride"], b.type(spec.input)},
      {"y", arguments["y_stride"], b.type(spec.output)},
  };
  forItems(b, spec, kernel.tile, kernel.description.grid[0].factor, rows, arguments,
           [&](const KernelArguments &own, TilePlace place) {
             emitMatrixLinear(b, spec, kernel.tile, own, place);
           });
}

void emitExpertLinear(KernelBuilder &b, const BlockScaledSpec &spec,
                      const BlockScaledKernel &kernel, const KernelArguments &arguments) {
  const RowParameter rows[] = {
      {"codes", blockCodeBytes(spec.k), b.i8()},
      {"scales", spec.steps(), b.i32()},
      {"outer", 1, b.f32()},
      {"y", arguments["y_stride"], b.type(spec.output)},
  };
  forItems(b, spec, kernel.tile, kernel.description.grid[0].factor, rows, arguments,
           [&](const KernelArguments &own, TilePlace place) {
             emitMatrixLinear(b, spec, kernel.tile, own, place);
           });
}

} // namespace easyquant::gpu
