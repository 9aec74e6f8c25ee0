//===- Gradients.h - Gradients that sum over tokens -------------*- C++ -*-===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// What the `lm` dialect's gradient ops mean that are products of matrices or sums over tokens; its
// LMGradientOps.td has the formulas. dy is the gradient of a result, dx that of what it was made
// of. Results are only written, and overlap no operand. They are the same bits for any number of
// threads (0: one per core). Sizes are the caller's to get right.
//
//===----------------------------------------------------------------------===//

#ifndef EASYQUANT_NUMERICS_GRADIENTS_H
#define EASYQUANT_NUMERICS_GRADIENTS_H

#include "easyquant/Numerics/Matrix.h"
#include "easyquant/Numerics/Reference.h"

#include <span>

namespace easyquant::numerics {

/// dx = dy w, of a linear's input.
void linearInputGradient(ConstMatrix dy, ConstMatrix w, Matrix dx, unsigned threads);
/// dw = dy^T x, of a linear's weight.
void linearWeightGradient(ConstMatrix dy, ConstMatrix x, Matrix dw, unsigned threads);
/// The sum of the rows, of a bias.
void biasGradient(ConstMatrix dy, std::span<float> db);

/// The gradient of the weight of an RMS norm over every dw.size() columns.
void rmsNormWeightGradient(ConstMatrix dy, ConstMatrix x, double epsilon, std::span<float> dw);
void layerNormWeightGradient(ConstMatrix dy, ConstMatrix x, double epsilon, std::span<float> dw);

/// The gradients of causal attention whose rows are all tokens that there are.
void attentionGradient(const reference::AttentionParams &params, ConstMatrix dy, ConstMatrix q,
                       ConstMatrix k, ConstMatrix v, Matrix dq, Matrix dk, Matrix dv,
                       unsigned threads);

/// By token of one sequence, the attention that it receives: the mean over the query heads of the
/// probabilities by which it and the tokens behind it read it. They sum to the number of tokens,
/// less the parts of sink logits.
void receivedAttention(const reference::AttentionParams &params, ConstMatrix q, ConstMatrix k,
                       std::span<float> received, unsigned threads);

/// The gradient of what a causal depthwise convolution reads, whose rows are all tokens that there
/// are: dx[t] = sum_i w[i] dy[t + W - 1 - i], column by column; w is C x W.
void convolutionGradient(ConstMatrix dy, ConstMatrix w, Matrix dx);
/// The same behind silu of the convolution of x and the bias, which may be empty.
void siluConvolutionGradient(ConstMatrix dy, ConstMatrix w, ConstMatrix x,
                             std::span<const float> bias, Matrix dx);

/// table = 0, then row tokens[m] of it gets row m of dy added; tokens are rows of the table.
void embeddingGradient(ConstMatrix dy, std::span<const int32_t> tokens, Matrix table);

} // namespace easyquant::numerics

#endif // EASYQUANT_NUMERICS_GRADIENTS_H
