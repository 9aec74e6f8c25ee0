//===- GatedDelta.cpp - The recurrence of gated delta nets ----------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Columns of the state of a head do not depend on each other. So a vector of them is an item of
// work, and a thread goes with it through the tokens of each sequence.
//
//===----------------------------------------------------------------------===//

#include "RowKernel.h"
#include "Sequences.h"
#include "VectorMath.h"

#include "mlir/Dialect/Math/IR/Math.h"
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

namespace {

/// Emits what is done for one vector of columns of one value head.
class RecurrenceEmitter {
public:
  RecurrenceEmitter(KernelBuilder &b, const GatedDeltaSpec &spec, const KernelArguments &in,
                    Value head, Value column)
      : b(b), spec(spec), in(in), lanes(b.target.lanes()), head(head), column(column),
        count(b.min(lanes, b.sub(spec.valueDim, column))) {}

  void emit();

private:
  Value load(Value memory, ArrayRef<Index> at) { return b.loadFirst(count, lanes, memory, at); }
  Value everywhere(Value memory, ArrayRef<Index> at) {
    return b.broadcast(b.load(memory, at), lanes);
  }
  /// Where row i of the head's state has these columns, in a slot.
  Value place(Value i) {
    Value row = b.add(b.mul(head, spec.keyDim), i);
    return b.add(b.add(in["first"], b.mul(row, spec.valueDim)), column);
  }
  /// 1 / |x|, of a head of keys or queries.
  Value inverseLength(Value x, Value row, Value first);
  Value softplus(Value x);
  void emitStart(const Sequence &sequence);
  void emitToken(const Sequence &sequence, Value row, Value rate, Value bias);

  KernelBuilder &b;
  const GatedDeltaSpec &spec;
  const KernelArguments &in;
  const int64_t lanes;
  Value head, column, count;
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

/// The state goes to the slot that the step leaves; zeros at the beginning.
void RecurrenceEmitter::emitStart(const Sequence &sequence) {
  Value isFirst = arith::CmpIOp::create(b, arith::CmpIPredicate::eq, sequence.position, b.index(0));
  Value zeros = b.zero(b.vec(lanes, b.f32()));
  b.forLoop(0, spec.keyDim, 1, [&](Value i) {
    Value before = b.select(isFirst, zeros, load(in["state"], {sequence.slot, place(i)}));
    b.storeFirst(count, before, in["state"], {sequence.nextSlot, place(i)});
  });
}

void RecurrenceEmitter::emitToken(const Sequence &sequence, Value row, Value rate, Value bias) {
  Value state = in["state"], slot = sequence.nextSlot;
  Value step = softplus(b.addf(everywhere(in["decay"], {row, head}), bias));
  Value decay = exp(b, b.negate(b.mulf(rate, step)));
  Value strength = logistic(b, everywhere(in["beta"], {row, head}));
  Value key = b.broadcast(inverseLength(in["k"], row, firstKey), lanes);
  Value query = b.mulf(b.broadcast(inverseLength(in["q"], row, firstKey), lanes),
                       b.constant(key.getType(), 1.0 / std::sqrt(double(spec.keyDim))));
  Value zeros = b.zero(key.getType());
  Value known = b.forLoop(0, spec.keyDim, 1, ValueRange{zeros}, [&](Value i, ValueRange sum) {
    Value s = b.mulf(decay, load(state, {slot, place(i)}));
    return KernelBuilder::Values{b.fma(s, everywhere(in["k"], {row, b.add(firstKey, i)}), sum[0])};
  })[0];
  Value at = b.add(b.mul(head, spec.valueDim), column);
  Value change = b.mulf(strength, b.subf(load(in["v"], {row, at}), b.mulf(key, known)));
  change = b.mulf(key, change);
  Value seen = b.forLoop(0, spec.keyDim, 1, ValueRange{zeros}, [&](Value i, ValueRange sum) {
    Value from = b.add(firstKey, i);
    Value s = b.mulf(decay, load(state, {slot, place(i)}));
    s = b.fma(everywhere(in["k"], {row, from}), change, s);
    b.storeFirst(count, s, state, {slot, place(i)});
    return KernelBuilder::Values{b.fma(s, everywhere(in["q"], {row, from}), sum[0])};
  })[0];
  b.storeFirst(count, b.mulf(query, seen), in["y"], {row, at});
}

void RecurrenceEmitter::emit() {
  Value keyHead =
      spec.tiled ? b.rem(head, spec.keyHeads) : b.div(head, spec.valueHeads / spec.keyHeads);
  firstKey = b.mul(keyHead, spec.keyDim);
  Value rate = exp(b, everywhere(in["log_rate"], {head}));
  Value bias = everywhere(in["bias"], {head});
  forSequences(b, in["sequences"], [&](const Sequence &sequence) {
    emitStart(sequence);
    b.forLoop(0, sequence.rows, 1, [&](Value number) {
      emitToken(sequence, b.add(sequence.firstRow, number), rate, bias);
    });
  });
}

func::FuncOp getOrEmitGatedDelta(ModuleOp module, const GatedDeltaSpec &spec,
                                 const Target &target) {
  return getOrEmitKernel(module, describe(spec, module.getContext()), target,
                         [&](KernelBuilder &b, const KernelArguments &in, const Team &team) {
                           const int64_t lanes = target.lanes(),
                                         vectors = (spec.valueDim + lanes - 1) / lanes;
                           auto [begin, end] = shareOf(b, spec.valueHeads * vectors, team);
                           b.forLoop(begin, end, 1, [&](Value item) {
                             Value head = b.div(item, vectors);
                             Value column = b.mul(b.sub(item, b.mul(head, vectors)), lanes);
                             RecurrenceEmitter(b, spec, in, head, column).emit();
                           });
                         });
}

} // namespace easyquant::cpu
