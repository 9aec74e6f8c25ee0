//===- MaskClusters.cpp - Logits of tokens in chosen clusters -------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "RowKernel.h"

#include "llvm/Support/FormatVariadic.h"

#include <limits>

using namespace mlir;

namespace easyquant::cpu {

std::string symbolName(const MaskClustersSpec &spec) {
  return llvm::formatv("mask_clusters_{0}of{1}_{2}", spec.chosen, spec.clusters, spec.tokens);
}

Description describe(const MaskClustersSpec &spec, MLIRContext *context) {
  Describer d(context, symbolName(spec), Describer::Over::Rows);
  d.writes("logits", d.rows(spec.tokens));
  d.reads("scores", d.rows(spec.clusters));
  d.reads("clusters", d.memory({spec.tokens}, d.getF32Type()));
  return std::move(d.kernel);
}

func::FuncOp getOrEmitMaskClusters(ModuleOp module, const MaskClustersSpec &spec,
                                   const Target &target) {
  constexpr double infinity = std::numeric_limits<double>::infinity();
  const int64_t lanes = target.lanes(), wide = 4 * lanes;
  // The greatest score below `bound`.
  auto nextBelow = [&](KernelBuilder &b, Value scores, Value row, Value bound) {
    return reduceColumns(
        b, 0, spec.clusters, wide, b.f32(), Combine::Greatest,
        [&](Value column, int64_t count) -> Value {
          Value score = b.loadVector(count, scores, {row, column});
          Value isBelow = b.compare(arith::CmpFPredicate::OLT, score, b.broadcast(bound, count));
          return b.select(isBelow, score, b.constant(b.vec(count, b.f32()), -infinity));
        });
  };
  auto emitRow = [&](KernelBuilder &b, const KernelArguments &in, Value row) {
    Value scores = in["scores"], logits = in["logits"], clusters = in["clusters"];
    Value least = b.forLoop(0, spec.chosen, 1, ValueRange{b.constant(b.f32(), infinity)},
                            [&](Value, ValueRange bound) {
                              return KernelBuilder::Values{nextBelow(b, scores, row, bound[0])};
                            })[0];
    forColumns(b, 0, spec.tokens, lanes, [&](Value column, int64_t count) {
      VectorType floats = b.vec(count, b.f32());
      Value numbers = arith::FPToSIOp::create(b, b.vec(count, b.i32()),
                                              b.loadVector(count, clusters, {column}));
      Value isChosen = b.compare(arith::CmpFPredicate::OGE, b.gather(scores, {row, 0}, numbers),
                                 b.broadcast(least, count));
      Value masked = b.constant(floats, static_cast<double>(std::numeric_limits<float>::lowest()));
      b.storeVector(b.select(isChosen, b.loadVector(count, logits, {row, column}), masked), logits,
                    {row, column});
    });
  };
  return getOrEmitRowKernel(
      module, spec, target,
      [&](KernelBuilder &b, const KernelArguments &in, Value begin, Value end) {
        b.forLoop(begin, end, 1, [&](Value row) { emitRow(b, in, row); });
      });
}

} // namespace easyquant::cpu
