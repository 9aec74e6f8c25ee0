//===- DecoderLayer.h - A decoder layer and its gradients -------*- C++ -*-===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// A layer of LLaMA or GPT-2 on one sequence x of T tokens, and what a change of its output asks of
// its weights:
//
//      n = norm1(x)    m = x + o(attention(rope(q(n)), rope(k(n)), v(n)))
//      y = m + down(act(gate(norm2(m)), up(norm2(m))))
//
// LLaMA: norms are RMSNorm, act(g, u) = silu(g) u. GPT-2: norms are LayerNorm, act(u) = gelu(u), no
// gate and no rotation; q, k and v are rows of one weight. Attention is causal and grouped (Ainslie
// et al., 2023). Written out by hand: what the compiled gradients of layers are compared with, and
// checked itself by differences in double.
//
//===----------------------------------------------------------------------===//

#ifndef EASYQUANT_TEST_NUMERICS_DECODERLAYER_H
#define EASYQUANT_TEST_NUMERICS_DECODERLAYER_H

#include "easyquant/Numerics/Matrix.h"

#include <array>
#include <vector>

namespace easyquant::numerics {

enum class DecoderNorm { Rms, Layer };
enum class DecoderActivation { SiluMul, GeluTanh, GeluErf };

struct DecoderShape {
  int64_t hidden = 0, intermediate = 0;
  int64_t heads = 0, kvHeads = 0, headDim = 0;
  DecoderNorm norm = DecoderNorm::Rms;
  DecoderActivation activation = DecoderActivation::SiluMul;
  double epsilon = 1e-5;         ///< of both norms
  double attentionScale = 0.125; ///< of the scores
};

/// The linears of a layer. Gate is absent but with SiluMul.
enum DecoderLinear { kQuery, kKey, kValue, kOutput, kGate, kUp, kDown, kDecoderLinears };

/// Borrowed. Weights are out x in features; biases, of out features, may be null.
template <typename T> struct DecoderWeights {
  std::array<MatrixView<const T>, kDecoderLinears> weights;
  std::array<const T *, kDecoderLinears> biases{};
  const T *norm1 = nullptr, *norm2 = nullptr;
  const T *norm1Bias = nullptr, *norm2Bias = nullptr; ///< of LayerNorm
  /// positions x headDim: (cos, sin) of each pair (Rope.h); without data there is no rotation. At
  /// least as many rows as tokens.
  MatrixView<const T> rope;
};

/// Gradients by linear; those without data are not computed.
template <typename T> using DecoderGradients = std::array<MatrixView<T>, kDecoderLinears>;

/// Runs a layer and keeps what the way back needs. Sizes are the caller's to get right. Results are
/// the same bits for any number of threads (0: one per core).
template <typename T> class DecoderLayer {
public:
  DecoderLayer(const DecoderShape &shape, unsigned threads) : shape(shape), threads(threads) {}

  /// y = the layer of x, both T x hidden. y must not be x.
  void forward(const DecoderWeights<T> &layer, MatrixView<const T> x, MatrixView<T> y);
  /// After forward of the same layer: adds dL/dW to the gradients, given dL/dy.
  void backward(const DecoderWeights<T> &layer, MatrixView<const T> dy,
                const DecoderGradients<T> &gradients);

private:
  MatrixView<T> buffer(std::vector<T> &memory, int64_t rows, int64_t columns);
  void linear(const DecoderWeights<T> &layer, DecoderLinear which, MatrixView<const T> x,
              MatrixView<T> y);
  void normalize(MatrixView<const T> x, const T *weight, const T *bias, std::vector<T> &rates,
                 MatrixView<T> y);
  void normalizeBackward(MatrixView<const T> x, const T *weight, const std::vector<T> &rates,
                         MatrixView<const T> dy, MatrixView<T> dx);
  void rotate(const DecoderWeights<T> &layer, MatrixView<T> rows, T direction);
  void attend();
  void attendBackward(MatrixView<const T> dOut, MatrixView<T> dq, MatrixView<T> dk,
                      MatrixView<T> dv);

  DecoderShape shape;
  unsigned threads;
  int64_t tokens = 0;
  std::vector<T> normed1, q, k, v, scores, attended, middle, normed2, gate, up, inner;
  std::vector<T> rates1, rates2; ///< 1 / standard deviation of each row, before the mean if any
};

extern template class DecoderLayer<float>;
extern template class DecoderLayer<double>;

} // namespace easyquant::numerics

#endif // EASYQUANT_TEST_NUMERICS_DECODERLAYER_H
