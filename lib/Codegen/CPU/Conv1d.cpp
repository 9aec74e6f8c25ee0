//===- Conv1d.cpp - Causal depthwise convolution --------------------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Vectors of columns are shared among threads. A thread goes through the rows of each sequence with
// some of its vectors at a time, so that it reads rows in pieces of a kilobyte, and finds the rows
// before each one in the first-level cache.
//
//===----------------------------------------------------------------------===//

#include "KernelBuilder.h"
#include "Sequences.h"
#include "VectorMath.h"

#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "llvm/Support/FormatVariadic.h"

using namespace mlir;

namespace easyquant::cpu {

std::string symbolName(const Conv1dSpec &spec) {
  return llvm::formatv("conv1d_{0}x{1}_of{2}{3}{4}", spec.columns, spec.width, spec.stateValues,
                       spec.bias ? "_bias" : "", spec.silu ? "_silu" : "");
}

Description describe(const Conv1dSpec &spec, MLIRContext *context) {
  Describer d(context, symbolName(spec), Describer::Over::Other);
  Type f32 = d.getF32Type();
  d.reads("x", d.rows(spec.columns));
  d.reads("w", d.memory({spec.columns, spec.width}, f32));
  d.reads("bias", d.memory({spec.columns}, f32), spec.bias);
  d.writes("state", d.memory({ShapedType::kDynamic, spec.stateValues}, f32));
  d.reads("first", d.getIndexType());
  d.reads("sequences", sequencesType(d));
  d.writes("y", d.rows(spec.columns));
  return std::move(d.kernel);
}

/// Bytes of a piece of a row.
static constexpr int64_t kPieceBytes = 1024;

namespace {

/// Emits what is done for a piece of the columns, the vectors [begin, end).
class ConvolutionEmitter {
public:
  ConvolutionEmitter(KernelBuilder &b, const Conv1dSpec &spec, const KernelArguments &in,
                     Value weights)
      : b(b), spec(spec), in(in), lanes(b.target.lanes()), weights(weights) {}

  void emit(Value begin, Value end);

private:
  bool isWhole() const { return spec.columns % lanes == 0; }
  Value count(Value column) { return b.min(lanes, b.sub(spec.columns, column)); }
  Value load(Value memory, ArrayRef<Index> at, Value column) {
    return isWhole() ? b.loadVector(lanes, memory, at)
                     : b.loadFirst(count(column), lanes, memory, at);
  }
  void store(Value vector, Value memory, ArrayRef<Index> at, Value column) {
    if (isWhole())
      b.storeVector(vector, memory, at);
    else
      b.storeFirst(count(column), vector, memory, at);
  }
  /// body(vector, column): the number of a vector in the piece, and its first column.
  void forVectors(llvm::function_ref<void(Value vector, Value column)> body) {
    b.forLoop(first, last, 1,
              [&](Value vector) { body(b.sub(vector, first), b.mul(vector, lanes)); });
  }
  void takeWeights();
  void emitSequence(const Sequence &sequence);
  /// token(column, i) gives token i of the last `spec.width` ones, the last of which is that of the
  /// row.
  void emitRow(Value row, llvm::function_ref<Value(Value column, int64_t i)> token);
  /// Token `i` of those before the rows.
  Value before(const Sequence &sequence, Value column, Index i) {
    Value place = b.add(b.add(in["first"], b.mul(i, spec.columns)), column);
    return load(in["state"], {sequence.slot, place}, column);
  }

  KernelBuilder &b;
  const Conv1dSpec &spec;
  const KernelArguments &in;
  const int64_t lanes;
  Value weights;     ///< of the piece: vectors x width x lanes
  Value first, last; ///< vectors
};

} // namespace

/// Vector i of `weights` has weight i of each column. Lanes that no column has read the last one's.
void ConvolutionEmitter::takeWeights() {
  SmallVector<int32_t> numbers;
  for (int64_t lane = 0; lane < lanes; ++lane)
    numbers.push_back(static_cast<int32_t>(lane));
  VectorType type = b.vec(lanes, b.i32());
  Value lane = arith::ConstantOp::create(b, DenseIntElementsAttr::get(type, ArrayRef(numbers)));
  forVectors([&](Value vector, Value column) {
    Value last = arith::IndexCastOp::create(b, b.i32(), b.sub(count(column), 1));
    Value own = arith::MinSIOp::create(b, lane, b.broadcast(last, lanes));
    Value offsets = b.muli(own, b.constant(type, spec.width));
    for (int64_t i = 0; i < spec.width; ++i)
      b.storeVector(b.gather(in["w"], {column, i}, offsets), weights, {vector, i, 0});
  });
}

void ConvolutionEmitter::emitRow(Value row,
                                 llvm::function_ref<Value(Value column, int64_t i)> token) {
  forVectors([&](Value vector, Value column) {
    Value sum = spec.bias ? load(in["bias"], {column}, column) : Value();
    for (int64_t i = 0; i < spec.width; ++i) {
      Value weight = b.loadVector(lanes, weights, {vector, i, 0});
      sum = sum ? b.fma(token(column, i), weight, sum) : b.mulf(token(column, i), weight);
    }
    if (spec.silu)
      sum = b.mulf(sum, logistic(b, sum));
    store(sum, in["y"], {row, column}, column);
  });
}

void ConvolutionEmitter::emitSequence(const Sequence &sequence) {
  const int64_t kept = spec.width - 1;
  Value isFirst = arith::CmpIOp::create(b, arith::CmpIPredicate::eq, sequence.position, b.index(0));
  Value zeros = b.zero(b.vec(lanes, b.f32()));
  auto rowOf = [&](Value number) { return b.add(sequence.firstRow, number); };
  auto own = [&](Value number, Value column) {
    return load(in["x"], {rowOf(number), column}, column);
  };
  // The first rows, which meet tokens of the state.
  for (int64_t number = 0; number < kept; ++number)
    b.ifThen(b.less(number, sequence.rows), [&] {
      emitRow(rowOf(b.index(number)), [&](Value column, int64_t i) -> Value {
        const int64_t at = number + i; // among the kept tokens, then the rows
        return at < kept ? b.select(isFirst, zeros, before(sequence, column, at))
                         : own(b.index(at - kept), column);
      });
    });
  b.forLoop(kept, sequence.rows, 1, [&](Value number) {
    emitRow(rowOf(number),
            [&](Value column, int64_t i) { return own(b.sub(b.add(number, i), kept), column); });
  });
  // What is kept now is behind what was: it may be written to the same slot in this order.
  forVectors([&](Value, Value column) {
    for (int64_t i = 0; i < kept; ++i) {
      Value at = b.add(sequence.rows, i);
      auto keep = [&](Value token) {
        Value place = b.add(b.add(in["first"], i * spec.columns), column);
        store(token, in["state"], {sequence.nextSlot, place}, column);
      };
      b.ifThenElse(
          b.less(at, kept), [&] { keep(b.select(isFirst, zeros, before(sequence, column, at))); },
          [&] { keep(own(b.sub(at, kept), column)); });
    }
  });
}

void ConvolutionEmitter::emit(Value begin, Value end) {
  first = begin;
  last = end;
  takeWeights();
  forSequences(b, in["sequences"], [&](const Sequence &sequence) { emitSequence(sequence); });
}

func::FuncOp getOrEmitConv1d(ModuleOp module, const Conv1dSpec &spec, const Target &target) {
  return getOrEmitKernel(
      module, describe(spec, module.getContext()), target,
      [&](KernelBuilder &b, const KernelArguments &in, const Team &team) {
        const int64_t lanes = target.lanes(), vectors = kPieceBytes / 4 / lanes;
        Value weights = memref::AllocaOp::create(b, b.memref({vectors, spec.width, lanes}, b.f32()),
                                                 b.getI64IntegerAttr(64));
        auto [begin, end] = shareOf(b, (spec.columns + lanes - 1) / lanes, team);
        b.forLoop(begin, end, vectors, [&, end = end](Value first) {
          ConvolutionEmitter(b, spec, in, weights).emit(first, b.min(end, b.add(first, vectors)));
        });
      });
}

} // namespace easyquant::cpu
