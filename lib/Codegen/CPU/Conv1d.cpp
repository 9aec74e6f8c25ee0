//===- Conv1d.cpp - Causal depthwise convolution --------------------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Vectors of columns are shared among threads; a thread does its columns of every sequence, with
// the tokens that the next row needs in registers.
//
//===----------------------------------------------------------------------===//

#include "KernelBuilder.h"
#include "Sequences.h"
#include "VectorMath.h"

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

namespace {

/// Emits what is done for one vector of columns, of which the last may have fewer than there are
/// lanes.
class ConvolutionEmitter {
public:
  ConvolutionEmitter(KernelBuilder &b, const Conv1dSpec &spec, const KernelArguments &in,
                     Value column)
      : b(b), spec(spec), in(in), lanes(b.target.lanes()), column(column),
        count(b.min(lanes, b.sub(spec.columns, column))) {}

  void emit();

private:
  Value load(Value memory, ArrayRef<Index> at) { return b.loadFirst(count, lanes, memory, at); }
  KernelBuilder::Values loadWeights();
  void emitSequence(const Sequence &sequence, ArrayRef<Value> weights, Value bias);
  /// Where a token before the rows lies in a slot.
  Value place(int64_t token) { return b.add(b.add(in["first"], token * spec.columns), column); }

  KernelBuilder &b;
  const Conv1dSpec &spec;
  const KernelArguments &in;
  const int64_t lanes;
  Value column, count;
};

} // namespace

/// Vector i has weight i of each column. Lanes that no column has read the last one's.
KernelBuilder::Values ConvolutionEmitter::loadWeights() {
  SmallVector<int32_t> numbers;
  for (int64_t lane = 0; lane < lanes; ++lane)
    numbers.push_back(static_cast<int32_t>(lane));
  VectorType type = b.vec(lanes, b.i32());
  Value lane = arith::ConstantOp::create(b, DenseIntElementsAttr::get(type, ArrayRef(numbers)));
  Value last = arith::IndexCastOp::create(b, b.i32(), b.sub(count, 1));
  Value own = arith::MinSIOp::create(b, lane, b.broadcast(last, lanes));
  Value offsets = b.muli(own, b.constant(type, spec.width));
  KernelBuilder::Values weights;
  for (int64_t i = 0; i < spec.width; ++i)
    weights.push_back(b.gather(in["w"], {column, i}, offsets));
  return weights;
}

void ConvolutionEmitter::emitSequence(const Sequence &sequence, ArrayRef<Value> weights,
                                      Value bias) {
  Value isFirst = arith::CmpIOp::create(b, arith::CmpIPredicate::eq, sequence.position, b.index(0));
  Value zeros = b.zero(b.vec(lanes, b.f32()));
  SmallVector<Value> before;
  for (int64_t token = 0; token + 1 < spec.width; ++token)
    before.push_back(b.select(isFirst, zeros, load(in["state"], {sequence.slot, place(token)})));
  auto after = b.forLoop(0, sequence.rows, 1, before, [&](Value number, ValueRange seen) {
    Value row = b.add(sequence.firstRow, number);
    KernelBuilder::Values tokens(seen.begin(), seen.end());
    tokens.push_back(load(in["x"], {row, column}));
    Value sum = bias;
    for (auto [token, weight] : llvm::zip_equal(tokens, weights))
      sum = sum ? b.fma(token, weight, sum) : b.mulf(token, weight);
    if (spec.silu)
      sum = b.mulf(sum, logistic(b, sum));
    b.storeFirst(count, sum, in["y"], {row, column});
    tokens.erase(tokens.begin());
    return tokens;
  });
  for (auto [token, value] : llvm::enumerate(after))
    b.storeFirst(count, value, in["state"],
                 {sequence.nextSlot, place(static_cast<int64_t>(token))});
}

void ConvolutionEmitter::emit() {
  KernelBuilder::Values weights = loadWeights();
  Value bias = spec.bias ? load(in["bias"], {column}) : Value();
  forSequences(b, in["sequences"],
               [&](const Sequence &sequence) { emitSequence(sequence, weights, bias); });
}

func::FuncOp getOrEmitConv1d(ModuleOp module, const Conv1dSpec &spec, const Target &target) {
  return getOrEmitKernel(module, describe(spec, module.getContext()), target,
                         [&](KernelBuilder &b, const KernelArguments &in, const Team &team) {
                           const int64_t lanes = target.lanes();
                           auto [begin, end] = shareOf(b, (spec.columns + lanes - 1) / lanes, team);
                           b.forLoop(begin, end, 1, [&](Value vector) {
                             ConvolutionEmitter(b, spec, in, b.mul(vector, lanes)).emit();
                           });
                         });
}

} // namespace easyquant::cpu
