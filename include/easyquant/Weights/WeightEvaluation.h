//===- WeightEvaluation.h - Quantizing constants ----------------*- C++ -*-===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Computes quantized weights with lib/Numerics from the tensors of a model on disk and what methods
// have computed.
//
//===----------------------------------------------------------------------===//

#ifndef EASYQUANT_WEIGHTS_WEIGHTEVALUATION_H
#define EASYQUANT_WEIGHTS_WEIGHTEVALUATION_H

#include "easyquant/Numerics/Metrics.h"
#include "easyquant/Numerics/WeightLayout.h"
#include "easyquant/Weights/ConstantWeights.h"

#include "llvm/Support/ThreadPool.h"

namespace easyquant::equant {

/// A weight in the order of each layout, and the quantization error of each part.
struct EvaluatedWeight {
  std::vector<numerics::PackedWeight> packed;
  std::vector<numerics::ErrorSums> errors;
};

/// Are all tensors that the weight is made of there? Errors name file, tensor and site.
Result<void> checkTensors(const ConstantWeight &weight, const ConstantReader &reader);

/// Reads and quantizes block of rows by block of rows, and hands each to all layouts. No more than
/// the packed weight and a few rows a thread are in memory at a time. The same bytes and the same
/// errors for any number of threads. Fails like ConstantReader::readRows: a source value that is
/// not finite among others; and with Corrupt on a computed scale that is not positive, or a
/// computed zero point or code out of range.
Result<EvaluatedWeight> evaluate(const ConstantWeight &weight,
                                 llvm::ArrayRef<const numerics::WeightLayout *> layouts,
                                 const ConstantReader &reader, llvm::ThreadPoolInterface &pool);

} // namespace easyquant::equant

#endif // EASYQUANT_WEIGHTS_WEIGHTEVALUATION_H
