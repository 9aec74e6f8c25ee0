//===- DecoderData.h - Random decoder layers --------------------*- C++ -*-===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef EASYQUANT_TEST_NUMERICS_DECODERDATA_H
#define EASYQUANT_TEST_NUMERICS_DECODERDATA_H

#include "DecoderLayer.h"

#include "easyquant/Numerics/Rope.h"

#include <cmath>
#include <random>

namespace easyquant::numerics {

inline DecoderShape llamaShape() {
  return {.hidden = 24,
          .intermediate = 40,
          .heads = 6,
          .kvHeads = 2,
          .headDim = 4,
          .attentionScale = 0.5};
}
inline DecoderShape gpt2Shape(DecoderActivation activation) {
  return {.hidden = 20,
          .intermediate = 36,
          .heads = 5,
          .kvHeads = 5,
          .headDim = 4,
          .norm = DecoderNorm::Layer,
          .activation = activation,
          .attentionScale = 0.5};
}

template <typename T> std::vector<T> normal(int64_t count, double spread, unsigned seed) {
  std::mt19937 random(seed);
  std::normal_distribution<double> distribution(0, spread);
  std::vector<T> values(count);
  for (T &v : values)
    v = static_cast<T>(distribution(random));
  return values;
}

/// A layer of random weights; those of two precisions agree up to rounding.
template <typename T> struct Layer {
  DecoderShape shape;
  DecoderWeights<T> weights;
  std::array<std::vector<T>, kDecoderLinears> memory, biases;
  std::array<std::vector<T>, 4> norms;
  std::vector<T> rope;

  Layer(const DecoderShape &s, int64_t positions, unsigned seed) : shape(s) {
    const int64_t q = s.heads * s.headDim, kv = s.kvHeads * s.headDim;
    const std::pair<int64_t, int64_t> sizes[] = {{q, s.hidden},
                                                 {kv, s.hidden},
                                                 {kv, s.hidden},
                                                 {s.hidden, q},
                                                 {s.intermediate, s.hidden},
                                                 {s.intermediate, s.hidden},
                                                 {s.hidden, s.intermediate}};
    const bool isGpt2 = s.norm == DecoderNorm::Layer;
    for (int w = 0; w < kDecoderLinears; ++w) {
      auto [rows, columns] = sizes[w];
      if (w == kGate && s.activation != DecoderActivation::SiluMul)
        continue;
      memory[w] = normal<T>(rows * columns, 1 / std::sqrt(double(columns)), seed + 10 * w);
      weights.weights[w] = {memory[w].data(), rows, columns};
      if (isGpt2 || w == kKey) {
        biases[w] = normal<T>(rows, 0.3, seed + 10 * w + 1);
        weights.biases[w] = biases[w].data();
      }
    }
    for (int i = 0; i < 4; ++i)
      norms[i] = normal<T>(s.hidden, 1, seed + 100 + i);
    weights.norm1 = norms[0].data();
    weights.norm2 = norms[1].data();
    if (isGpt2) {
      weights.norm1Bias = norms[2].data();
      weights.norm2Bias = norms[3].data();
      return;
    }
    for (int64_t t = 0; t < positions; ++t)
      for (int64_t i = 0; i < s.headDim / 2; ++i) {
        double angle = t * std::pow(10000.0, -2.0 * i / s.headDim);
        rope.push_back(static_cast<T>(std::cos(angle)));
        rope.push_back(static_cast<T>(std::sin(angle)));
      }
    weights.rope = {rope.data(), positions, s.headDim};
  }
  Layer(const Layer &) = delete;

  MatrixView<T> rows(std::vector<T> &x, int64_t tokens) const {
    return {x.data(), tokens, shape.hidden};
  }
};

} // namespace easyquant::numerics

#endif // EASYQUANT_TEST_NUMERICS_DECODERDATA_H
