//===- HeadNorm.cpp - RMS norm of every head ------------------------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "RowKernel.h"

#include "mlir/Dialect/Math/IR/Math.h"
#include "llvm/Support/FormatVariadic.h"

using namespace mlir;

namespace easyquant::cpu {

std::string symbolName(const HeadNormSpec &spec) {
  return llvm::formatv("head_norm_{0}x{1}_eps{2:x-}{3}", spec.heads, spec.headDim,
                       llvm::bit_cast<uint32_t>(static_cast<float>(spec.epsilon)),
                       spec.weight ? "" : "_plain");
}

Description describe(const HeadNormSpec &spec, MLIRContext *context) {
  Describer d(context, symbolName(spec), Describer::Over::Rows);
  d.writes("x", d.rows(spec.heads * spec.headDim));
  if (spec.weight)
    d.reads("weight", d.memory({spec.headDim}, d.getF32Type()));
  return std::move(d.kernel);
}

func::FuncOp getOrEmitHeadNorm(ModuleOp module, const HeadNormSpec &spec, const Target &target) {
  const int64_t columns = spec.heads * spec.headDim, wide = 4 * target.lanes();
  auto emitHead = [&](KernelBuilder &b, Value x, Value weight, Value row, Value first) {
    Value squares = reduceColumns(b, first, spec.headDim, wide, b.f32(), Combine::Add,
                                  [&](Value column, int64_t lanes) -> Value {
                                    Value value = b.loadVector(lanes, x, {row, column});
                                    return b.mulf(value, value);
                                  });
    Value mean = b.divf(squares, b.constant(b.f32(), static_cast<double>(spec.headDim)));
    Value shifted = b.addf(mean, b.constant(b.f32(), spec.epsilon));
    Value scale = b.divf(b.constant(b.f32(), 1.0), math::SqrtOp::create(b, shifted));
    forColumns(b, 0, spec.headDim, wide, [&](Value column, int64_t lanes) {
      Value at = b.add(first, column);
      Value value = b.mulf(b.loadVector(lanes, x, {row, at}), b.broadcast(scale, lanes));
      if (weight)
        value = b.mulf(value, b.loadVector(lanes, weight, {column}));
      b.storeVector(value, x, {row, at});
    });
  };
  return getOrEmitRowKernel(
      module, spec, target,
      [&](KernelBuilder &b, const KernelArguments &in, Value begin, Value end) {
        Value weight = spec.weight ? in["weight"] : Value();
        b.forLoop(begin, end, 1, [&](Value row) {
          b.forLoop(0, columns, spec.headDim,
                    [&](Value first) { emitHead(b, in["x"], weight, row, first); });
        });
      });
}

} // namespace easyquant::cpu
