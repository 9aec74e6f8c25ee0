//===- Reference.h - What kernels are compared with -------------*- C++ -*-===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The operations of the lm dialect, plainly: floats in, double precision inside and out. Slow, and
// meant to be read. Rows are tokens; shapes are the caller's to get right (a mismatch is undefined
// here; only what comes from quantized data is checked).
//
//===----------------------------------------------------------------------===//

#ifndef EASYQUANT_NUMERICS_REFERENCE_H
#define EASYQUANT_NUMERICS_REFERENCE_H

#include "easyquant/Numerics/Matrix.h"
#include "easyquant/Numerics/Quantize.h"

#include <cstdint>
#include <span>
#include <vector>

namespace easyquant::numerics::reference {

using Output = MatrixView<double>;

/// y[m,n] = sum_k x[m,k] w[n,k] + bias[n]. x: M x K, w: N x K, y: M x N; bias: N values or null.
void linear(ConstMatrix x, ConstMatrix w, const float *bias, Output y);

//===- Integer linears ----------------------------------------------------===//
// x: M x K tokens, w: N x K weights per tensor, channel or group. Both fail with InvalidArgument
// when the columns differ, x.groups is not w.params.groups (or tokens have groups that do not lie
// within those of w) or w is a table whose values are not int8; with OutOfRange when a group can
// overflow its int32 accumulator. In w - zw, w stands for the code, or for the value of a table in
// the table's unit u (1 of integers).

/// dot[m,n,g] = sum of (x - zx[m]) * (w - zw[n,g]) over the columns of group g: M x N x G, G being
/// x.groups; tokens with groups of their own have zx[m,g], and w the zero point of the group
/// around. A kernel whose weights are stored + offset accumulates acc = sum of x * (w + offset),
/// and dot = acc - (offset + zw[n,g]) * sums[m,g] - zx[m] * (sum of w - zw[n,g]).
Result<std::vector<int32_t>> integerDots(const QuantizedTokens &x, const QuantizedMatrix &w);

/// In fp32, in the kernels' order: t = 0; for each group t = fma(sw[n,g], float(dot), t); v = sx[m]
/// * u * t; v = v + bias[n] (if any); y[m,n] = v, or y[m,n] + v when accumulating. Where tokens
/// have groups, t = fma(sw[n,h], i, t) for each group h of the weight, i = 0 and i = fma(sx[m,g],
/// float(dot), i) for each group g of the token in it; v = u * t. A weight with minima m has its
/// lowest code for zw, and behind each fma of sw one of m[n,h] with the sum of x - zx[m] over the
/// group, which of tokens in groups is summed up as i is.
Result<void> integerLinear(const QuantizedTokens &x, const QuantizedMatrix &w, const float *bias,
                           bool accumulate, Matrix y);

/// The same sum in double, without rounding in between.
Result<void> integerLinear(const QuantizedTokens &x, const QuantizedMatrix &w, const float *bias,
                           Output y);

//===- Row-wise operations ------------------------------------------------===//

/// x / sqrt(mean(x^2) + epsilon) * weight. x: M x C, weight: C values.
void rmsNorm(ConstMatrix x, const float *weight, double epsilon, Output y);
/// (x - mean) / sqrt(variance + epsilon) * weight + bias, the variance that of the population.
void layerNorm(ConstMatrix x, const float *weight, const float *bias, double epsilon, Output y);
/// silu(gate) * up, silu(v) = v / (1 + exp(-v)).
void siluMul(ConstMatrix gate, ConstMatrix up, Output y);
/// geluTanh(gate) * up.
void geluMul(ConstMatrix gate, ConstMatrix up, Output y);
/// 0.5 v (1 + tanh(sqrt(2 / pi) (v + 0.044715 v^3))): "gelu_new", "gelu_pytorch_tanh".
void geluTanh(ConstMatrix x, Output y);
/// 0.5 v (1 + erf(v / sqrt 2)): "gelu".
void geluErf(ConstMatrix x, Output y);
void add(ConstMatrix a, ConstMatrix b, Output y);
/// factor * x.
void multiply(ConstMatrix x, double factor, Output y);
/// bound * tanh(x / bound).
void softCap(ConstMatrix x, double bound, Output y);

//===- Positions, attention, embedding ------------------------------------===//

/// Turns the first R = `dims` dimensions of every head of x (M x heads*D; 0: all) by its row of the
/// table (see ropeTable): row m is at position `position` + m. y[i] = x[i] cos - x[i + R/2] sin;
/// y[i + R/2] = x[i + R/2] cos + x[i] sin. The other dimensions are those of x.
void rope(ConstMatrix x, std::span<const float> table, int64_t headDim, int64_t position, Output y,
          int64_t dims = 0);

struct AttentionParams {
  int64_t heads = 0, kvHeads = 0, headDim = 0;
  double scale = 0.0; ///< usually 1 / sqrt(headDim)
  int64_t window = 0; ///< tokens that a token sees, itself included; 0: all before it
  double bound = 0.0; ///< > 0: scaled products s are bound * tanh(s / bound)
  /// One for each head, or empty: products without values in the softmax of the head.
  std::span<const float> sinkLogits = {};
};

/// Causal softmax attention of the newest M tokens. q, y: M x heads*D; k, v: (position + M) x
/// kvHeads*D, all tokens so far. Query head h reads kv head h / (heads / kvHeads).
void attention(ConstMatrix q, ConstMatrix k, ConstMatrix v, const AttentionParams &params,
               int64_t position, Output y);

/// y[m] = table[tokens[m]]. table: vocabulary x C.
void embedding(std::span<const int32_t> tokens, ConstMatrix table, Output y);
/// y[m] += table[position + m]. table: positions x C.
void positionEmbedding(ConstMatrix table, int64_t position, Output y);

} // namespace easyquant::numerics::reference

#endif // EASYQUANT_NUMERICS_REFERENCE_H
