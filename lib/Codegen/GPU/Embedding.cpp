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
      : b(b), spec(spec), codec(spec.codec),
        bits(spec.rows == EmbeddingSpec::Rows::Fragments ? 16 : codec.bits), arguments(arguments),
        params(b, codec, spec.vocab, spec.columns, arguments), token(token), y(y),
        rowsOfBlock(numerics::fragmentRows(bits)), blockBytes(numerics::fragmentBytes(bits)),
        columnBlocks(divideCeil(spec.columns, numerics::kFragmentColumns)) {}

  void emit();

private:
  using Values = KernelBuilder::Values;
  static constexpr int64_t kLanes = 4; ///< that hold a row's part of a block
  bool floats() const { return bits == 16; }
  bool bytes() const { return !floats() && spec.order == numerics::FragmentOrder::M16N8K32; }
  /// The field of `count` bits from bit `bit` on, a constant, of a word.
  Value field(Value word, int64_t bit, int64_t count) {
    return b.andi(b.shr(word, bit % 32), (int64_t{1} << count) - 1);
  }
  Value loadWords(Value from, Int word, int64_t count) {
    Type type = count == 1 ? b.i32() : Type(b.vec(count, b.i32()));
    return b.load(b.advance(from, word, b.i32()), type, /*constant=*/true);
  }
  /// The first of lane q's words of a block.
  Value wordsOf(Value block, Value q);
  /// The bits of codes of the eight columns of lane q, in ascending order of columns.
  Values codes(Value block, Value q);
  /// What the bits of a code stand for, before its scale.
  Value valueOf(Value bits, Value zero);
  Values floatsOf(Value block, Value q);
  Values dequantized(Value block, Value q);
  void store(const Values &values, Value block, Value q);

  KernelBuilder &b;
  const EmbeddingSpec &spec;
  const WeightCodec &codec;
  const int bits;
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
  if (bits == 8) {
    Value two = loadWords(words, b.mul(tile, 2), 2);
    for (int64_t i = 0; i < 8; ++i)
      codes.push_back(field(b.extract(two, i / 4), 8 * (i % 4), 8));
    return codes;
  }
  const int64_t low = numerics::lowPlaneBits(bits), upper = numerics::highPlaneBits(bits);
  Value word = loadWords(words, b.rem(tile, 4), 1), above;
  if (low == 2) // rows 32 .. lie above the others
    word = b.shr(word, b.mul(b.div(tile, 4), bytes() ? 4 : 8));
  if (upper) {
    // The second plane is behind the first one, in which lanes have 16 bytes each.
    Value lane = b.add(b.mul(b.rem(token, 8), kLanes), q);
    const int64_t tiles = numerics::highPlaneTiles(bits), perLane = numerics::highPlaneWords(bits);
    Value offset = b.sub(b.i32(numerics::kFragmentBytes / 4), b.mul(lane, 4 - perLane));
    above = loadWords(words, b.add(offset, b.div(tile, tiles)), 1);
    Value t = b.rem(tile, tiles), turn = b.mul(t, bytes() ? 2 * upper : upper);
    if (bits == 3 && !bytes())
      turn = b.add(b.rem(t, 2), b.mul(b.div(t, 2), 8));
    above = b.intrinsic("llvm.fshr.i32", b.i32(), {above, above, turn});
  }
  for (int64_t i = 0; i < 8; ++i) {
    const int64_t at = bytes() ? 8 * (i % 4) + low * (i / 4) : 16 * (i % 2) + low * (i / 2);
    Value code = field(word, at, low);
    if (upper) {
      const int64_t aboveAt = bytes() ? 8 * (i % 4) + upper * (i / 4) : at + low;
      code = b.ori(code, b.shl(field(above, aboveAt, upper), low));
    }
    codes.push_back(code);
  }
  return codes;
}

Value PackedRowEmitter::valueOf(Value code, Value zero) {
  if (codec.isTable())
    return b.load(b.advance(arguments["codebook"], code, b.f32()), b.f32(), /*constant=*/true);
  if (const numerics::FloatFormat *format = numerics::floatFormat(codec.codes)) {
    // The bits of an f32 but for the bias of the exponent; a power of two makes up for it.
    const int64_t signBit = bits - 1;
    Value magnitude = b.shl(b.andi(code, (int64_t{1} << signBit) - 1), 23 - format->mantissaBits);
    const double bias = codec.codes == CodeFormat::F8E4M3FN ? 0x1p120 : 0x1p126;
    Value value = b.mulf(b.bitcast(magnitude, b.f32()), b.constant(b.f32(), bias));
    Value sign = b.shl(b.shr(code, signBit), 31);
    return b.bitcast(b.ori(b.bitcast(value, b.i32()), sign), b.f32());
  }
  Value integer = b.shrArithmetic(b.shl(code, 32 - bits), 32 - bits);
  return b.toFloat(zero ? b.sub(integer, zero) : integer);
}

PackedRowEmitter::Values PackedRowEmitter::dequantized(Value block, Value q) {
  // A block has two groups of 16 columns; in the order M16N8K16 the second one is that of the
  // second half of the lane's columns.
  const bool isShort = codec.groupSize != 0 && codec.groupSize < numerics::kFragmentColumns;
  auto groupOf = [&](int64_t i) -> Value {
    if (isShort)
      return b.min(b.add(b.mul(block, 2), i / 4), groupCount(spec.columns, codec.groupSize) - 1);
    return codec.groupSize == 0 ? b.i32(0)
                                : b.div(block, codec.groupSize / numerics::kFragmentColumns);
  };
  Value scale, zero, minimum;
  Values values;
  for (auto [i, code] : llvm::enumerate(codes(block, q))) {
    if (i == 0 || (isShort && i == 4)) {
      Value group = groupOf(i);
      scale = params.scales(group, token, 1).front();
      if (codec.outer)
        scale = b.mulf(scale, params.outer(token, 1).front());
      if (codec.zeroPoints)
        zero = params.zeros(group, token, 1).front();
      if (codec.minima) {
        zero = b.i32(-(int64_t{1} << (bits - 1)));
        minimum = params.minima(group, token, 1).front();
      }
    }
    Value value = b.mulf(valueOf(code, zero), scale);
    values.push_back(minimum ? b.addf(value, minimum) : value);
  }
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
  switch (spec.rows) {
  case EmbeddingSpec::Rows::Floats:
    return name + fmt::format("_{}", nameOf(spec.table));
  case EmbeddingSpec::Rows::Fragments:
    return name + fmt::format("_{}_fragments", nameOf(spec.table));
  case EmbeddingSpec::Rows::Codes:
    break;
  }
  return name + fmt::format("_{}_{}", nameOf(spec.codec), numerics::nameOf(spec.order));
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
  const bool isPacked = spec.rows != EmbeddingSpec::Rows::Floats;
  const bool isCodes = spec.rows == EmbeddingSpec::Rows::Codes;
  Description kernel =
      describeRows(symbolName(spec), Parameters()
                                         .constants("tokens")
                                         .reads(isPacked ? "w" : "table")
                                         .constants("wscales", isCodes)
                                         .constants("wzeros", isCodes && spec.codec.zeroPoints)
                                         .constants("wminima", isCodes && spec.codec.minima)
                                         .constants("wouter", isCodes && spec.codec.outer)
                                         .constants("codebook", isCodes && spec.codec.isTable())
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
      describeRows(fmt::format("gather_{}{}", spec.columns, spec.chosen ? "_chosen" : ""),
                   Parameters()
                       .readsRows("x")
                       .reads("numbers", spec.chosen)
                       .constants("numbers", !spec.chosen)
                       .writesRows("y")
                       .rows());
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
