//===- Embedding.cpp - Rows of a table ------------------------------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// A token's row of a packed table lies strided in its panel: 4 codes in every 128 bytes. The table
// is also the output head of most models, whose product wants that layout; the few rows that an
// embedding reads can afford the gather.
//
//===----------------------------------------------------------------------===//

#include "RowKernel.h"

#include "llvm/Support/FormatVariadic.h"

using namespace mlir;

namespace easyquant::cpu {

/// Columns unpacked together; group sizes are multiples of it, and rows are padded to one.
static constexpr int64_t kBlock = 8;

static StringRef nameOf(WeightFormat format) {
  switch (format) {
  case WeightFormat::F32:
    return "f32";
  case WeightFormat::I8:
    return "i8";
  case WeightFormat::I4:
    return "i4";
  }
  llvm_unreachable("all weight formats are named");
}

std::string symbolName(const EmbeddingSpec &spec) {
  std::string name =
      llvm::formatv("embedding_{0}x{1}_{2}", spec.vocab, spec.columns, nameOf(spec.table));
  if (spec.table != WeightFormat::F32 && spec.groupSize != 0)
    name += llvm::formatv("_g{0}", spec.groupSize);
  return name;
}

/// The codes of columns 8 block .. 8 block + 7 of row `lane` of a panel, as i32.
static Value unpackBlock(KernelBuilder &b, WeightFormat format, Value table, Value panel,
                         Value lane, Value block) {
  VectorType wide = b.vec(kBlock, b.i32());
  auto load = [&](Index slab) -> Value {
    Value bytes = b.loadVector(4, table, {panel, slab, lane, 0});
    return arith::ExtUIOp::create(b, b.vec(4, b.i32()), bytes);
  };
  SmallVector<int64_t> both = {0, 1, 2, 3, 4, 5, 6, 7};
  if (format == WeightFormat::I8) {
    Value first = b.mul(block, 2);
    Value codes = b.shuffle(load(first), load(b.add(first, 1)), both);
    return b.subi(codes, b.constant(wide, int64_t{128}));
  }
  Value pairs = load(block);
  Value codes = b.shuffle(b.andi(pairs, 15), b.shrLogical(pairs, 4), both);
  return b.subi(codes, b.constant(wide, int64_t{8}));
}

static void emitPackedRow(KernelBuilder &b, const EmbeddingSpec &spec, Value table, Value scales,
                          Value token, Value y, Value row) {
  Value panel = b.div(token, kPanelRows), lane = b.rem(token, kPanelRows);
  auto emitBlock = [&](Value block, Value scale, int64_t lanes) {
    Value values = b.mulf(b.toFloat(unpackBlock(b, spec.table, table, panel, lane, block)),
                          b.broadcast(scale, kBlock));
    b.storeVector(lanes == kBlock ? values : b.slice(values, 0, lanes), y,
                  {row, b.mul(block, kBlock)});
  };
  int64_t fullBlocks = spec.columns / kBlock, rest = spec.columns % kBlock;
  int64_t blocksOfGroup =
      spec.groupSize == 0 ? paddedColumns(spec.columns) / kBlock : spec.groupSize / kBlock;
  b.forLoop(0, groupCount(spec.columns, spec.groupSize), 1, [&](Value group) {
    Value scale = b.load(scales, {panel, group, lane});
    Value begin = b.mul(group, blocksOfGroup);
    b.forLoop(begin, b.min(b.add(begin, blocksOfGroup), fullBlocks), 1,
              [&](Value block) { emitBlock(block, scale, kBlock); });
  });
  if (rest != 0)
    emitBlock(b.index(fullBlocks), b.load(scales, {panel, fullBlocks / blocksOfGroup, lane}), rest);
}

func::FuncOp getOrEmitEmbedding(ModuleOp module, const EmbeddingSpec &spec, const Target &target) {
  bool packed = spec.table != WeightFormat::F32;
  auto inputs = [&](KernelBuilder &b) {
    SmallVector<Type> types = {b.memref({ShapedType::kDynamic}, b.i32())};
    int64_t panels = panelCount(spec.vocab);
    if (packed) {
      int64_t columnsOfSlab = spec.table == WeightFormat::I8 ? 4 : 8;
      types.push_back(
          b.memref({panels, paddedColumns(spec.columns) / columnsOfSlab, kPanelRows, 4}, b.i8()));
      types.push_back(
          b.memref({panels, groupCount(spec.columns, spec.groupSize), kPanelRows}, b.f32()));
    } else {
      types.push_back(b.memref({spec.vocab, spec.columns}, b.f32()));
    }
    types.push_back(b.rows(spec.columns));
    return types;
  };
  return getOrEmitRowKernel(
      module, symbolName(spec), target, inputs, spec.columns,
      [&](KernelBuilder &b, ValueRange args, Value begin, Value end) {
        b.forLoop(begin, end, 1, [&](Value row) {
          // The caller has checked that tokens are in the vocabulary.
          Value token = arith::IndexCastUIOp::create(b, b.getIndexType(), b.load(args[0], {row}));
          if (packed)
            return emitPackedRow(b, spec, args[1], args[2], token, args[3], row);
          forColumns(b, 0, spec.columns, 4 * target.lanes(), [&](Value column, int64_t lanes) {
            b.storeVector(b.loadVector(lanes, args[1], {token, column}), args[2], {row, column});
          });
        });
      });
}

std::string symbolName(const PositionEmbeddingSpec &spec) {
  return llvm::formatv("position_embedding_{0}x{1}", spec.positions, spec.columns);
}

func::FuncOp getOrEmitPositionEmbedding(ModuleOp module, const PositionEmbeddingSpec &spec,
                                        const Target &target) {
  auto arguments = [&](KernelBuilder &b) {
    return SmallVector<Type>{b.memref({spec.positions, spec.columns}, b.f32()), b.getIndexType(),
                             b.rows(spec.columns)};
  };
  return getOrEmitFunction(
      module, symbolName(spec), target, arguments, [&](KernelBuilder &b, ValueRange args) {
        Value table = args[0], position = args[1], y = args[2];
        b.forLoop(0, b.size(y, 0), 1, [&](Value row) {
          Value tableRow = b.add(position, row);
          forColumns(b, 0, spec.columns, 4 * target.lanes(), [&](Value column, int64_t lanes) {
            Value sum = b.addf(b.loadVector(lanes, y, {row, column}),
                               b.loadVector(lanes, table, {tableRow, column}));
            b.storeVector(sum, y, {row, column});
          });
        });
      });
}

} // namespace easyquant::cpu
