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

/// Makes of the logits of each row the gradient of the loss of a label that is drawn from them:
/// softmax(logits), less one at the label. Means of products of such gradients are the Fisher
/// information of the model. The label of row i follows from `seed`, `first` + i and the logits.
void sampledLossGradient(Matrix logits, uint64_t seed, int64_t first, unsigned threads = 0);

} // namespace easyquant::numerics

#endif // EASYQUANT_NUMERICS_LOGITMETRICS_H
