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

#include "PackedBlock.h"
#include "RowKernel.h"
#include "Sequences.h"
#include "WeightParams.h"

#include "llvm/Support/FormatVariadic.h"

using namespace mlir;

namespace easyquant::cpu {

/// Columns unpacked together; group sizes are multiples of it, and rows are padded to one.
static constexpr int64_t kColumns = 8;

std::string symbolName(const EmbeddingSpec &spec) {
  std::string name =
      llvm::formatv("embedding_{0}x{1}_{2}", spec.vocab, spec.columns, nameOf(spec.table));
  if (spec.floats != ScaleFormat::F32)
    name += llvm::formatv("_{0}", numerics::toString(spec.floats));
  name += nameOf(spec.numbers);
  if (spec.zeroPoints)
    name += "_zp";
  if (spec.table != WeightFormat::F32 && spec.groupSize != 0)
    name += llvm::formatv("_g{0}", spec.groupSize);
  if (spec.sharded)
    name += "_sharded";
  return name;
}

/// The fields of columns 8 block .. 8 block + 7 of row `lane` of a panel, as i32: code + 2^(b-1).
static Value unpackBlock(KernelBuilder &b, WeightFormat format, Value table, Value panel,
                         Value lane, Value block) {
  // Four bytes of the panel: those of a row, or of the rows that share a field with it.
  auto load = [&](Index slab, Index row) -> Value {
    return b.zeroExtend(b.loadVector(4, table, {panel, slab, row, 0}), b.i32());
  };
  /// The field of this row, of `rows` that are 32 / rows deep: low step in its lower half.
  auto field = [&](int64_t firstRow, int64_t rows, int64_t bits) {
    Value pairs = load(block, b.add(b.rem(lane, rows), firstRow));
    Value shift = arith::IndexCastUIOp::create(b, b.i32(), b.mul(b.div(lane, rows), 2 * bits));
    return arith::ShRUIOp::create(b, pairs, b.broadcast(shift, 4)).getResult();
  };
  auto join = [&](Value pairs, int64_t bits) {
    Value both = b.shuffle(pairs, b.shrLogical(pairs, bits), {0, 1, 2, 3, 4, 5, 6, 7});
    return b.andi(both, (1 << bits) - 1);
  };
  switch (format) {
  case WeightFormat::I8: {
    Value first = b.mul(block, 2);
    return b.shuffle(load(first, lane), load(b.add(first, 1), lane), {0, 1, 2, 3, 4, 5, 6, 7});
  }
  case WeightFormat::I4:
    return join(load(block, lane), 4);
  case WeightFormat::I6:
    return b.addi(b.shl(join(load(block, lane), 4), 2), join(field(32, 16, 2), 2));
  case WeightFormat::I5:
    return b.addi(b.shl(join(load(block, lane), 4), 1), join(field(32, 8, 1), 1));
  case WeightFormat::I3:
    return b.addi(b.shl(join(field(0, 16, 2), 2), 1), join(field(16, 8, 1), 1));
  case WeightFormat::I2:
    return join(field(0, 16, 2), 2);
  case WeightFormat::F32:
    break;
  }
  llvm_unreachable("floats are not packed");
}

/// What the fields stand for, less the zero point (i32 lanes, may be null); with minima what they
/// are above the lowest. codebook: the values of
/// a table, a vector, else null.
static Value valuesOf(KernelBuilder &b, const EmbeddingSpec &spec, Value codebook, Value fields,
                      Value zero) {
  if (spec.numbers.codes != CodeFormat::Integer)
    return valueOf(b, spec.numbers.codes, bitsOf(spec.table), codebook, fields);
  if (spec.numbers.minima)
    return b.toFloat(fields);
  auto offset = int64_t(1) << (bitsOf(spec.table) - 1);
  Value codes = b.subi(fields, b.constant(fields.getType(), offset));
  return b.toFloat(zero ? b.subi(codes, zero) : codes);
}

static void emitPackedRow(KernelBuilder &b, const EmbeddingSpec &spec, const KernelArguments &in,
                          Value token, Value row) {
  Value codes = in["w"], scales = in["wscales"], y = in["y"];
  Value zeros = in.find("wzeros"), minima = in.find("wminima"), outer = in.find("wouter"),
        codebook = in.find("codebook");
  if (codebook)
    codebook = loadCodebook(b, spec.table, codebook);
  Value panel = b.div(token, kPanelRows), lane = b.rem(token, kPanelRows);
  int64_t fullBlocks = spec.columns / kColumns, rest = spec.columns % kColumns;
  int64_t blocksOfGroup =
      spec.groupSize == 0 ? paddedColumns(spec.columns) / kColumns : spec.groupSize / kColumns;
  struct GroupParams {
    Value scale, zero, minimum;
  };
  auto paramsOf = [&](Index group) {
    GroupParams params;
    Value scale = loadScales(b, spec.numbers.scales, 1, scales, panel, group, lane);
    scale = b.extract(scale, 0);
    if (outer)
      scale = b.mulf(scale, b.load(outer, {panel, 0, lane}));
    params.scale = b.broadcast(scale, kColumns);
    if (minima)
      params.minimum = b.broadcast(
          b.extract(loadScales(b, spec.numbers.scales, 1, minima, panel, group, lane), 0),
          kColumns);
    if (zeros)
      params.zero =
          b.broadcast(loadZeroPoint(b, bitsOf(spec.table), zeros, panel, group, lane), kColumns);
    return params;
  };
  auto emitBlock = [&](Value block, const GroupParams &params, int64_t lanes) {
    Value fields = unpackBlock(b, spec.table, codes, panel, lane, block);
    Value values = b.mulf(valuesOf(b, spec, codebook, fields, params.zero), params.scale);
    if (minima)
      values = b.addf(values, params.minimum);
    b.storeVector(lanes == kColumns ? values : b.slice(values, 0, lanes), y,
                  {row, b.mul(block, kColumns)});
  };
  b.forLoop(0, groupCount(spec.columns, spec.groupSize), 1, [&](Value group) {
    GroupParams params = paramsOf(group);
    Value begin = b.mul(group, blocksOfGroup);
    b.forLoop(begin, b.min(b.add(begin, blocksOfGroup), fullBlocks), 1,
              [&](Value block) { emitBlock(block, params, kColumns); });
  });
  if (rest != 0)
    emitBlock(b.index(fullBlocks), paramsOf(fullBlocks / blocksOfGroup), rest);
}

static void emitCopyRow(KernelBuilder &b, int64_t columns, Value from, Value fromRow, Value to,
                        Value toRow, ScaleFormat format = ScaleFormat::F32) {
  forColumns(b, 0, columns, 4 * b.target.lanes(), [&](Value column, int64_t lanes) {
    b.storeVector(toF32(b, format, b.loadVector(lanes, from, {fromRow, column})), to,
                  {toRow, column});
  });
}

static void emitZeroRow(KernelBuilder &b, int64_t columns, Value y, Value row) {
  forColumns(b, 0, columns, 4 * b.target.lanes(), [&](Value column, int64_t lanes) {
    b.storeVector(b.zero(b.vec(lanes, b.f32())), y, {row, column});
  });
}

Description describe(const EmbeddingSpec &spec, MLIRContext *context) {
  Describer d(context, symbolName(spec), Describer::Over::Rows);
  d.reads("tokens", d.vector(d.getI32Type()));
  if (spec.table == WeightFormat::F32)
    d.reads("w", d.memory({spec.vocab, spec.columns}, elementOf(d, spec.floats)));
  else
    readWeight(
        d, {spec.table, spec.numbers, spec.vocab, spec.columns, spec.groupSize, spec.zeroPoints});
  d.reads("rank", d.getIndexType(), spec.sharded);
  d.writes("y", d.rows(spec.columns));
  return std::move(d.kernel);
}

func::FuncOp getOrEmitEmbedding(ModuleOp module, const EmbeddingSpec &spec, const Target &target) {
  auto emitRow = [&](KernelBuilder &b, const KernelArguments &in, Value token, Value row) {
    if (spec.table != WeightFormat::F32)
      emitPackedRow(b, spec, in, token, row);
    else
      emitCopyRow(b, spec.columns, in["w"], token, in["y"], row, spec.floats);
  };
  return getOrEmitRowKernel(
      module, spec, target,
      [&](KernelBuilder &b, const KernelArguments &in, Value begin, Value end) {
        b.forLoop(begin, end, 1, [&](Value row) {
          // The caller has checked that tokens are in the vocabulary.
          Value token =
              arith::IndexCastUIOp::create(b, b.getIndexType(), b.load(in["tokens"], {row}));
          if (!spec.sharded)
            return emitRow(b, in, token, row);
          // Tokens below the rank's first one are far above its last one, unsigned.
          Value own = b.sub(token, b.mul(in["rank"], spec.vocab));
          Value isOwn =
              arith::CmpIOp::create(b, arith::CmpIPredicate::ult, own, b.index(spec.vocab));
          b.ifThenElse(
              isOwn, [&] { emitRow(b, in, own, row); },
              [&] { emitZeroRow(b, spec.columns, in["y"], row); });
        });
      });
}

std::string symbolName(const PositionEmbeddingSpec &spec) {
  return llvm::formatv("position_embedding_{0}x{1}", spec.positions, spec.columns);
}

Description describe(const PositionEmbeddingSpec &spec, MLIRContext *context) {
  Describer d(context, symbolName(spec), Describer::Over::Rows);
  d.writes("y", d.rows(spec.columns));
  d.reads("table", d.memory({spec.positions, spec.columns}, d.getF32Type()));
  d.reads("sequences", sequencesType(d));
  return std::move(d.kernel);
}

func::FuncOp getOrEmitPositionEmbedding(ModuleOp module, const PositionEmbeddingSpec &spec,
                                        const Target &target) {
  return getOrEmitRowKernel(
      module, spec, target,
      [&](KernelBuilder &b, const KernelArguments &in, Value begin, Value end) {
        Value y = in["y"], table = in["table"];
        forPositions(b, in["sequences"], begin, end, [&](Value row, Value position) {
          forColumns(b, 0, spec.columns, 4 * target.lanes(), [&](Value column, int64_t lanes) {
            Value sum = b.addf(b.loadVector(lanes, y, {row, column}),
                               b.loadVector(lanes, table, {position, column}));
            b.storeVector(sum, y, {row, column});
          });
        });
      });
}

std::string symbolName(const GatherSpec &spec) { return llvm::formatv("gather_{0}", spec.columns); }

Description describe(const GatherSpec &spec, MLIRContext *context) {
  // Any thread may have made the rows that another one gathers.
  Describer d(context, symbolName(spec), Describer::Over::Other);
  d.reads("numbers", d.vector(d.getI32Type()));
  d.reads("x", d.rows(spec.columns));
  d.writes("y", d.rows(spec.columns)).shared = true;
  return std::move(d.kernel);
}

func::FuncOp getOrEmitGather(ModuleOp module, const GatherSpec &spec, const Target &target) {
  return getOrEmitRowKernel(
      module, spec, target,
      [&](KernelBuilder &b, const KernelArguments &in, Value begin, Value end) {
        b.forLoop(begin, end, 1, [&](Value row) {
          Value from =
              arith::IndexCastUIOp::create(b, b.getIndexType(), b.load(in["numbers"], {row}));
          emitCopyRow(b, spec.columns, in["x"], from, in["y"], row);
        });
      });
}

} // namespace easyquant::cpu
