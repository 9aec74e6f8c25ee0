//===- GatedDelta.cpp - The recurrence of gated delta nets ----------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Columns of the state of a head do not depend on each other. So some vectors of them are an item
// of work. A thread takes their part of the state, side by side, so that the first-level cache
// holds it, through the tokens of each sequence. Chunks of tokens in triangular form would be
// products of matrices, but other sums for other cuts of a text; token by token the bits are those
// of any cut.
//
//===----------------------------------------------------------------------===//

#include "RowKernel.h"
#include "Sequences.h"
#include "VectorMath.h"

#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "llvm/Support/FormatVariadic.h"

#include <cmath>

using namespace mlir;

namespace easyquant::cpu {

std::string symbolName(const GatedDeltaSpec &spec) {
  return llvm::formatv("gated_delta_{0}x{1}_{2}x{3}{4}_of{5}", spec.keyHeads, spec.keyDim,
                       spec.valueHeads, spec.valueDim, spec.tiled ? "_tiled" : "",
                       spec.stateValues);
}

Description describe(const GatedDeltaSpec &spec, MLIRContext *context) {
  Describer d(context, symbolName(spec), Describer::Over::Other);
  Type f32 = d.getF32Type();
  const int64_t keys = spec.keyHeads * spec.keyDim, values = spec.valueHeads * spec.valueDim;
  d.reads("q", d.rows(keys));
  d.reads("k", d.rows(keys));
  d.reads("v", d.rows(values));
  d.reads("decay", d.rows(spec.valueHeads));
  d.reads("beta", d.rows(spec.valueHeads));
  d.reads("log_rate", d.memory({spec.valueHeads}, f32));
  d.reads("bias", d.memory({spec.valueHeads}, f32));
  d.writes("state", d.memory({ShapedType::kDynamic, spec.stateValues}, f32));
  d.reads("first", d.getIndexType());
  d.reads("sequences", sequencesType(d));
  d.writes("y", d.rows(values));
  return std::move(d.kernel);
}

/// Vectors of columns that a thread works on together. They share the scalars of a token, and the
/// sums of one do not wait for those of another.
static constexpr int64_t kMostVectors = 4;

/// How many vectors a head has, and how many of them are an item of work.
static std::pair<int64_t, int64_t> vectorsOf(const GatedDeltaSpec &spec, const Target &target) {
  const int64_t lanes = target.lanes(), vectors = (spec.valueDim + lanes - 1) / lanes;
  int64_t together = std::min(kMostVectors, vectors);
  while (vectors % together != 0)
    --together;
  return {vectors, together};
}

namespace {

/// Emits what is done for some vectors of columns of one value head.
class RecurrenceEmitter {
public:
  using Values = KernelBuilder::Values;

  RecurrenceEmitter(KernelBuilder &b, const GatedDeltaSpec &spec, const KernelArguments &in,
                    Value own, Value head, Value column, int64_t vectors)
      : b(b), spec(spec), in(in), lanes(b.target.lanes()), own(own), head(head) {
    for (int64_t i = 0; i < vectors; ++i)
      columns.push_back(b.add(column, i * lanes));
  }

  void emit();

private:
  bool isWhole() const { return spec.valueDim % lanes == 0; }
  Value count(Value column) { return b.min(lanes, b.sub(spec.valueDim, column)); }
  /// Vector `i` of a row of memory, whose first column of the head is `first`.
  Value load(size_t i, Value memory, Value row, Value first) {
    SmallVector<Index> at = {row, b.add(first, columns[i])};
    return isWhole() ? b.loadVector(lanes, memory, at)
                     : b.loadFirst(count(columns[i]), lanes, memory, at);
  }
  void store(size_t i, Value vector, Value memory, Value row, Value first) {
    SmallVector<Index> at = {row, b.add(first, columns[i])};
    if (isWhole())
      b.storeVector(vector, memory, at);
    else
      b.storeFirst(count(columns[i]), vector, memory, at);
  }
  Value everywhere(Value memory, ArrayRef<Index> at) {
    return b.broadcast(b.load(memory, at), lanes);
  }
  /// Where row i of the head's state begins in a slot.
  Value place(Value i) {
    Value row = b.add(b.mul(head, spec.keyDim), i);
    return b.add(in["first"], b.mul(row, spec.valueDim));
  }
  /// 1 / |x|, of a head of keys or queries.
  Value inverseLength(Value x, Value row, Value first);
  Value softplus(Value x);
  void takeState(const Sequence &sequence);
  void leaveState(const Sequence &sequence);
  Value loadOwn(Value i, size_t v) {
    return b.loadVector(lanes, own, {i, static_cast<int64_t>(v) * lanes});
  }
  void storeOwn(Value vector, Value i, size_t v) {
    b.storeVector(vector, own, {i, static_cast<int64_t>(v) * lanes});
  }
  void emitToken(Value row, Value rate, Value bias);

  KernelBuilder &b;
  const GatedDeltaSpec &spec;
  const KernelArguments &in;
  const int64_t lanes;
  Value own; ///< these columns of the state: keyDim x vectors
  Value head;
  Values columns; ///< of the head, the first one of each vector
  Value firstKey; ///< column of queries and keys
};

} // namespace

Value RecurrenceEmitter::inverseLength(Value x, Value row, Value first) {
  Value squares = reduceColumns(b, first, spec.keyDim, 4 * lanes, b.f32(), Combine::Add,
                                [&](Value at, int64_t count) -> Value {
                                  Value values = b.loadVector(count, x, {row, at});
                                  return b.mulf(values, values);
                                });
  Value shifted = b.addf(squares, b.constant(b.f32(), kDeltaEpsilon));
  return b.divf(b.constant(b.f32(), 1.0), math::SqrtOp::create(b, shifted));
}

/// log(1 + e^x) = max(x, 0) + log(1 + e^-|x|).
Value RecurrenceEmitter::softplus(Value x) {
  Value zero = b.constant(x.getType(), 0.0);
  Value size = b.larger(x, b.negate(x));
  return b.addf(b.larger(x, zero), log1p(b, exp(b, b.negate(size))));
}

/// The state that the tokens begin with: zeros at the beginning of a sequence.
void RecurrenceEmitter::takeState(const Sequence &sequence) {
  Value isFirst = arith::CmpIOp::create(b, arith::CmpIPredicate::eq, sequence.position, b.index(0));
  Value zeros = b.zero(b.vec(lanes, b.f32()));
  b.forLoop(0, spec.keyDim, 1, [&](Value i) {
    for (size_t v = 0; v < columns.size(); ++v)
      storeOwn(b.select(isFirst, zeros, load(v, in["state"], sequence.slot, place(i))), i, v);
  });
}

void RecurrenceEmitter::leaveState(const Sequence &sequence) {
  b.forLoop(0, spec.keyDim, 1, [&](Value i) {
    for (size_t v = 0; v < columns.size(); ++v)
      store(v, loadOwn(i, v), in["state"], sequence.nextSlot, place(i));
  });
}

void RecurrenceEmitter::emitToken(Value row, Value rate, Value bias) {
  Value step = softplus(b.addf(everywhere(in["decay"], {row, head}), bias));
  Value decay = exp(b, b.negate(b.mulf(rate, step)));
  Value strength = logistic(b, everywhere(in["beta"], {row, head}));
  Value key = b.broadcast(inverseLength(in["k"], row, firstKey), lanes);
  Value query = b.mulf(b.broadcast(inverseLength(in["q"], row, firstKey), lanes),
                       b.constant(key.getType(), 1.0 / std::sqrt(double(spec.keyDim))));
  const Values zeros(columns.size(), b.zero(key.getType()));
  auto known = b.forLoop(0, spec.keyDim, 1, zeros, [&](Value i, ValueRange sums) {
    Value k = everywhere(in["k"], {row, b.add(firstKey, i)});
    Values next;
    for (size_t v = 0; v < columns.size(); ++v)
      next.push_back(b.fma(loadOwn(i, v), k, sums[v]));
    return next;
  });
  Value firstValue = b.mul(head, spec.valueDim);
  Value kept = b.mulf(key, decay);
  Values changes;
  for (size_t v = 0; v < columns.size(); ++v) {
    Value error = b.subf(load(v, in["v"], row, firstValue), b.mulf(kept, known[v]));
    changes.push_back(b.mulf(key, b.mulf(strength, error)));
  }
  auto seen = b.forLoop(0, spec.keyDim, 1, zeros, [&](Value i, ValueRange sums) {
    Value from = b.add(firstKey, i);
    Value k = everywhere(in["k"], {row, from}), q = everywhere(in["q"], {row, from});
    Values next;
    for (size_t v = 0; v < columns.size(); ++v) {
      Value s = b.fma(k, changes[v], b.mulf(decay, loadOwn(i, v)));
      storeOwn(s, i, v);
      next.push_back(b.fma(s, q, sums[v]));
    }
    return next;
  });
  for (size_t v = 0; v < columns.size(); ++v)
    store(v, b.mulf(query, seen[v]), in["y"], row, firstValue);
}

void RecurrenceEmitter::emit() {
  Value keyHead =
      spec.tiled ? b.rem(head, spec.keyHeads) : b.div(head, spec.valueHeads / spec.keyHeads);
  firstKey = b.mul(keyHead, spec.keyDim);
  Value rate = exp(b, everywhere(in["log_rate"], {head}));
  Value bias = everywhere(in["bias"], {head});
  forSequences(b, in["sequences"], [&](const Sequence &sequence) {
    takeState(sequence);
    b.forLoop(0, sequence.rows, 1,
              [&](Value number) { emitToken(b.add(sequence.firstRow, number), rate, bias); });
    leaveState(sequence);
  });
}

func::FuncOp getOrEmitGatedDelta(ModuleOp module, const GatedDeltaSpec &spec,
                                 const Target &target) {
  return getOrEmitKernel(module, describe(spec, module.getContext()), target,
                         [&](KernelBuilder &b, const KernelArguments &in, const Team &team) {
                           auto [vectors, together] = vectorsOf(spec, target);
                           const int64_t items = vectors / together;
                           MemRefType type =
                               b.memref({spec.keyDim, together * target.lanes()}, b.f32());
                           Value own = memref::AllocaOp::create(b, type, b.getI64IntegerAttr(64));
                           auto [begin, end] = shareOf(b, spec.valueHeads * items, team);
                           b.forLoop(begin, end, 1, [&](Value item) {
                             Value head = b.div(item, items);
                             Value column =
                                 b.mul(b.sub(item, b.mul(head, items)), together * target.lanes());
                             RecurrenceEmitter(b, spec, in, own, head, column, together).emit();
                           });
                         });
}

} // namespace easyquant::cpu
