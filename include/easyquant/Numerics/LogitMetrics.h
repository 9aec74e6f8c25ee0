//===- LogitMetrics.h - What logits say of the next token -------*- C++ -*-===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Rows are tokens, columns the vocabulary; everything is in nats. Exponentials are taken in f32,
// sums over the vocabulary in f64. Results do not depend on the number of threads.
//
//===----------------------------------------------------------------------===//

#ifndef EASYQUANT_NUMERICS_LOGITMETRICS_H
#define EASYQUANT_NUMERICS_LOGITMETRICS_H

#include "easyquant/Numerics/Matrix.h"
#include "easyquant/Support/Result.h"

#include <cstdint>
#include <span>

namespace easyquant::numerics {

/// The sum over rows of KL(softmax(reference) || softmax(logits)); not negative. Errors:
/// InvalidArgument (shapes that differ).
Result<double> klDivergence(ConstMatrix reference, ConstMatrix logits, unsigned threads = 0);

/// The sum over rows of -log softmax(logits)[target]. Errors: InvalidArgument (not a target a row,
/// one outside of the vocabulary).
Result<double> crossEntropy(ConstMatrix logits, std::span<const int32_t> targets,
                            unsigned threads = 0);

/// Makes of the logits of each row a gradient whose products with itself have the Fisher
/// information of the next token as their mean, diag(p) - p p^T with p = softmax(logits):
///   sqrt(p) e - p sum(sqrt(p) e), e random signs.
/// The gradient of the loss of a label that is drawn from p has the same mean, but is mostly next
/// to nothing and seldom large. The signs of row i follow from `seed` and `first` + i: bit j % 64
/// of number j / 64 of mt19937_64 is set where that of logit j is positive.
void sampledLossGradient(Matrix logits, uint64_t seed, int64_t first, unsigned threads = 0);

} // namespace easyquant::numerics

#endif // EASYQUANT_NUMERICS_LOGITMETRICS_H
