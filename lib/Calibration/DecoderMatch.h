//===- DecoderMatch.h - A layer as one that can be trained ------*- C++ -*-===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Private to lib/Calibration.
//
//===----------------------------------------------------------------------===//

#ifndef EASYQUANT_LIB_CALIBRATION_DECODERMATCH_H
#define EASYQUANT_LIB_CALIBRATION_DECODERMATCH_H

#include "easyquant/Calibration/ModelConstants.h"
#include "easyquant/Dialect/LM/IR/LM.h"
#include "easyquant/Numerics/DecoderLayer.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"

#include <array>
#include <memory>

namespace easyquant::calibration {

/// Where a linear of numerics::DecoderLayer is: `rows` rows from `first` on of the weight of an op.
/// GPT-2's q, k and v are rows of one. No op: the layer has no such linear.
struct MatchedLinear {
  lm::LinearOp op;
  int64_t first = 0, rows = 0;
};

/// A layer of the IR in the terms of numerics::DecoderLayer.
struct DecoderMatch {
  numerics::DecoderShape shape;
  std::array<MatchedLinear, numerics::kDecoderLinears> linears;
  mlir::Operation *norm1 = nullptr, *norm2 = nullptr;
  mlir::Value rope; ///< the table; null: no rotation
};

/// Fails with a diagnostic that names what is not as in a layer of LLaMA or GPT-2.
mlir::FailureOr<DecoderMatch> matchDecoder(mlir::func::FuncOp layer);

/// The float weights of a matched layer.
struct DecoderValues {
  numerics::DecoderWeights<float> weights;

  /// Reads them; the rotation table as far as `positions`. Fails with a diagnostic.
  static mlir::FailureOr<DecoderValues> read(const DecoderMatch &match,
                                             const ModelConstants &constants, int64_t positions);

private:
  std::vector<std::unique_ptr<std::vector<float>>> memory;
};

} // namespace easyquant::calibration

#endif // EASYQUANT_LIB_CALIBRATION_DECODERMATCH_H
