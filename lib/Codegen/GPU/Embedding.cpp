//===- Embedding.cpp - Rows of tables -------------------------------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// A block copies one row. In a packed table, the words of four lanes hold 32 columns of a row, and
// a thread takes those of one lane, eight columns. The layout is the output head's; the few rows
// that an embedding reads can afford the gather.
//
//===----------------------------------------------------------------------===//

#include "StepTables.h"
#include "WeightParams.h"

#include "easyquant/Codegen/GPU/Embedding.h"
#include "easyquant/Numerics/FragmentPacking.h"

#include <numeric>

using namespace mlir;

namespace easyquant::gpu {

static constexpr int64_t kThreads = 128; // of a row

namespace {

/// Emits the row of a packed table.
class PackedRowEmitter {
public:
  PackedRowEmitter(KernelBuilder &b, const EmbeddingSpec &spec, const KernelArguments &arguments,
                   Value token, Value y)
      : b(b), spec(spec), arguments(arguments), params(b, spec.bits, spec.scales), token(token),
        y(y), rowsOfBlock(numerics::fragmentRows(spec.bits)),
        blockBytes(numerics::fragmentBytes(spec.bits)),
        columnBlocks(divideCeil(spec.columns, numerics::kFragmentColumns)) {}

  void emit();

private:
  using Values = KernelBuilder::Values;
  static constexpr int64_t kLanes = 4; ///< that hold a row's part of a block
  bool floats() const { return spec.bits == 16; }
  bool bytes() const { return !floats() && spec.order == numerics::FragmentOrder::M16N8K32; }
  /// The code in bits `bit` .. of a word, with its sign.
  Value field(Value word, int64_t bit) {
    return b.shrArithmetic(b.shl(word, 32 - spec.bits - bit), 32 - spec.bits);
  }
  Value loadWords(Value from, Int word, int64_t count) {
    Type type = count == 1 ? b.i32() : Type(b.vec(count, b.i32()));
    return b.load(b.advance(from, word, b.i32()), type, /*constant=*/true);
  }
  /// The first of lane q's words of a block.
  Value wordsOf(Value block, Value q);
  /// Codes of the eight columns of lane q, in ascending order of columns.
  Values codes(Value block, Value q);
  Values floatsOf(Value block, Value q);
  Values dequantized(Value block, Value q);
  void store(const Values &values, Value block, Value q);

  KernelBuilder &b;
  const EmbeddingSpec &spec;
  const KernelArguments &arguments;
  WeightParams params;
  Value token, y;
  int64_t rowsOfBlock, blockBytes, columnBlocks;
};

} // namespace

Value PackedRowEmitter::wordsOf(Value block, Value q) {
  Value row = b.rowOf(arguments["w"], b.div(token, rowsOfBlock), columnBlocks * blockBytes, b.i8());
  Value lane = b.add(b.mul(b.rem(token, 8), kLanes), q);
  return b.advance(row, b.add(b.mul(block, blockBytes / 4), b.mul(lane, 4)), b.i32());
}

PackedRowEmitter::Values PackedRowEmitter::floatsOf(Value block, Value q) {
  Value words = loadWords(wordsOf(block, q), 0, 4);
  Values values;
  for (int64_t i = 0; i < 8; ++i) {
    Value two = b.bitcast(b.extract(words, i / 2), b.vec(2, b.type(spec.table)));
    values.push_back(b.toF32(b.extract(two, i % 2)));
  }
  return values;
}

PackedRowEmitter::Values PackedRowEmitter::codes(Value block, Value q) {
  Value words = wordsOf(block, q), tile = b.div(b.rem(token, rowsOfBlock), 8);
  Values codes;
  if (spec.bits == 8) {
    Value two = loadWords(words, b.mul(tile, 2), 2);
    for (int64_t i = 0; i < 8; ++i)
      codes.push_back(field(b.extract(two, i / 4), 8 * (i % 4)));
    return codes;
  }
  Value word = loadWords(words, b.rem(tile, 4), 1);
  if (spec.bits < 4) // rows 32 .. lie above the others
    word = b.shr(word, b.mul(b.div(tile, 4), bytes() ? 4 : 8));
  if (spec.bits == 3) {
    // The third bit of t, 8 tiles: 512 bytes further on, two words a lane. Turned to the right by
    // {0, 1, 8, 9}[t mod 4], bit 16 i + 2 r + 2 is that of the column.
    Value lane = b.add(b.mul(b.rem(token, 8), kLanes), q);
    Value high = b.advance(words, b.sub(b.i32(128), b.mul(lane, 2)), b.i32());
    Value third = loadWords(high, b.div(tile, 4), 1), t = b.rem(tile, 4);
    Value turn = b.add(b.rem(t, 2), b.mul(b.div(t, 2), 8));
    third = b.intrinsic("llvm.fshr.i32", b.i32(), {third, third, turn});
    for (int64_t i = 0; i < 8; ++i) {
      int64_t bit = 16 * (i % 2) + 2 * (i / 2);
      Value low = b.andi(b.shr(word, bit), 3);
      // The bit 2 places above, which may have come around.
      Value sign = b.andi(b.shr(third, (bit + 2) % 32), 1);
      codes.push_back(b.sub(low, b.shl(sign, 2)));
    }
    return codes;
  }
  for (int64_t i = 0; i < 8; ++i)
    codes.push_back(field(word, bytes() ? 8 * (i % 4) + spec.bits * (i / 4)
                                        : 16 * (i % 2) + spec.bits * (i / 2)));
  return codes;
}

PackedRowEmitter::Values PackedRowEmitter::dequantized(Value block, Value q) {
  Value group =
      spec.groupSize == 0 ? b.i32(0) : b.div(block, spec.groupSize / numerics::kFragmentColumns);
  const int64_t padded = numerics::fragmentScaleRows(spec.vocab);
  Type type = params.scaleType();
  Value scales = b.rowOf(arguments["wscales"], group, padded, type);
  Value scale = params.loadScale(b.advance(scales, token, type)), zero;
  if (spec.zeroPoints) {
    const int64_t bytes = padded * numerics::zeroPointBits(spec.bits) / 8;
    Value zeros = b.rowOf(arguments["wzeros"], group, bytes, b.i8());
    zero = params.loadZeros(zeros, token, 1).front();
  }
  Values values;
  for (Value code : codes(block, q))
    values.push_back(b.mulf(b.toFloat(zero ? b.sub(code, zero) : code), scale));
  return values;
}

void PackedRowEmitter::store(const Values &values, Value block, Value q) {
  // M16N8K32: columns 16 h + 4 q + i; M16N8K16: columns 8 r + 2 q + i.
  int64_t run = bytes() ? 4 : 2, width = std::gcd(spec.columns, run);
  Value first = b.add(b.mul(block, numerics::kFragmentColumns), b.mul(q, run));
  bool whole = spec.columns % numerics::kFragmentColumns == 0;
  for (int64_t i = 0; i < 8; i += width) {
    Value column = b.add(first, i / run * kLanes * run + i % run);
    b.ifThen(whole ? Value() : b.less(column, spec.columns), [&] {
      b.store(b.join(ArrayRef(values).slice(i, width)), b.advance(y, column, b.f32()));
    });
  }
}

void PackedRowEmitter::emit() {
  b.forLoop(b.thread(), columnBlocks * kLanes, kThreads, [&](Value unit) {
    Value block = b.div(unit, kLanes), q = b.rem(unit, kLanes);
    store(floats() ? floatsOf(block, q) : dequantized(block, q), block, q);
  });
}

/// `row` is one of `columns` elements; what is stored is f32.
static void emitFloatRow(KernelBuilder &b, int64_t columns, Float type, Value row, Value y) {
  Type element = b.type(type);
  int64_t width = std::gcd(columns, 16 / bytesOf(type));
  int64_t stored = std::min<int64_t>(width, 4);
  b.forLoop(b.mul(b.thread(), width), columns, kThreads * width, [&](Value column) {
    Type loaded = width == 1 ? element : Type(b.vec(width, element));
    Value x = b.load(b.advance(row, column, element), loaded, /*constant=*/true);
    for (int64_t i = 0; i < width; i += stored) {
      KernelBuilder::Values values;
      for (int64_t j = i; j < i + stored; ++j)
        values.push_back(b.toF32(b.extract(x, j)));
      b.store(b.join(values), b.advance(y, b.add(column, i), b.f32()));
    }
  });
}

static std::string symbolName(const EmbeddingSpec &spec) {
  std::string name =
      fmt::format("embedding_{}x{}{}", spec.vocab, spec.columns, spec.sharded ? "_sharded" : "");
  if (spec.bits == 0)
    return name + fmt::format("_{}", nameOf(spec.table));
  if (spec.bits == 16)
    return name + fmt::format("_{}_fragments", nameOf(spec.table));
  name += "_" + nameOf(spec.bits, spec.scales);
  if (spec.groupSize != 0)
    name += fmt::format("_g{}", spec.groupSize);
  name += spec.zeroPoints ? "_zp" : "";
  return name + "_" + std::string(numerics::nameOf(spec.order));
}

/// A block of threads for each row of the result.
static Description describeRows(std::string name, std::vector<Parameter> parameters) {
  Description kernel;
  kernel.name = std::move(name);
  kernel.threads = kThreads;
  kernel.grid[0].rowsPerBlock = 1;
  kernel.parameters = std::move(parameters);
  return kernel;
}

Description getOrEmit(mlir::gpu::GPUModuleOp module, const EmbeddingSpec &spec, const Chip &) {
  const bool isPacked = spec.bits != 0;
  Description kernel =
      describeRows(symbolName(spec), Parameters()
                                         .constants("tokens")
                                         .reads(isPacked ? "w" : "table")
                                         .constants("wscales", isPacked && spec.bits != 16)
                                         .constants("wzeros", isPacked && spec.zeroPoints)
                                         .number("rank", spec.sharded)
                                         .writesRows("y")
                                         .rows());
  return getOrEmitKernel(module, kernel, [&](KernelBuilder &b, const KernelArguments &arguments) {
    Value row = b.block(0);
    Value token = b.load(b.advance(arguments["tokens"], row, b.i32()), b.i32(), true);
    Value y = b.rowOf(arguments["y"], row, arguments["y_stride"], b.f32());
    auto copyRow = [&] {
      if (isPacked)
        return PackedRowEmitter(b, spec, arguments, token, y).emit();
      Value from = b.rowOf(arguments["table"], token, spec.columns, b.type(spec.table));
      emitFloatRow(b, spec.columns, spec.table, from, y);
    };
    if (!spec.sharded)
      return copyRow();
    token = b.sub(token, b.mul(arguments["rank"], spec.vocab));
    Value isOwn = b.both(b.less(-1, token), b.less(token, spec.vocab));
    b.ifThen(isOwn, copyRow);
    b.ifThen(b.equal(b.select(isOwn, b.i32(1), b.i32(0)), 0), [&] {
      b.forLoop(b.thread(), spec.columns, kThreads,
                [&](Value column) { b.store(b.zero(b.f32()), b.advance(y, column, b.f32())); });
    });
  });
}

Description getOrEmit(mlir::gpu::GPUModuleOp module, const GatherSpec &spec, const Chip &) {
  Description kernel =
      describeRows(fmt::format("gather_{}", spec.columns),
                   Parameters().readsRows("x").constants("numbers").writesRows("y").rows());
  return getOrEmitKernel(module, kernel, [&](KernelBuilder &b, const KernelArguments &arguments) {
    Value row = b.block(0);
    Value number = b.load(b.advance(arguments["numbers"], row, b.i32()), b.i32(), true);
    Value x = b.rowOf(arguments["x"], number, arguments["x_stride"], b.f32());
    Value y = b.rowOf(arguments["y"], row, arguments["y_stride"], b.f32());
    emitFloatRow(b, spec.columns, Float::F32, x, y);
  });
}

Description getOrEmit(mlir::gpu::GPUModuleOp module, const PositionEmbeddingSpec &spec,
                      const Chip &) {
  Description kernel =
      describeRows(fmt::format("position_embedding_{}x{}", spec.positions, spec.columns),
                   Parameters().constants("table").constants("row_places").writesRows("y").rows());
  return getOrEmitKernel(module, kernel, [&](KernelBuilder &b, const KernelArguments &arguments) {
    Value row = b.block(0), position = PlaceOfRow(b, arguments, row).position;
    Value table = b.rowOf(arguments["table"], position, spec.columns, b.f32());
    Value y = b.rowOf(arguments["y"], row, arguments["y_stride"], b.f32());
    int64_t width = std::gcd<int64_t>(spec.columns, 4);
    Type type = width == 1 ? b.f32() : Type(b.vec(width, b.f32()));
    b.forLoop(b.mul(b.thread(), width), spec.columns, kThreads * width, [&](Value column) {
      Value to = b.advance(y, column, b.f32());
      Value added = b.load(b.advance(table, column, b.f32()), type, true);
      b.store(b.addf(b.load(to, type), added), to);
    });
  });
}

} // namespace easyquant::gpu
