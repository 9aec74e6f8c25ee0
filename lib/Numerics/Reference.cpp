//===- Reference.cpp - What kernels are compared with ---------------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "easyquant/Numerics/Reference.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace easyquant::numerics::reference {
namespace {

template <typename Function> void map(ConstMatrix x, Output y, Function function) {
  for (int64_t i = 0; i < x.rows; ++i)
    for (int64_t j = 0; j < x.columns; ++j)
      y(i, j) = function(static_cast<double>(x(i, j)));
}

} // namespace

void rmsNorm(ConstMatrix x, const float *weight, double epsilon, Output y) {
  for (int64_t i = 0; i < x.rows; ++i) {
    double squares = 0;
    for (int64_t j = 0; j < x.columns; ++j)
      squares += static_cast<double>(x(i, j)) * static_cast<double>(x(i, j));
    double root = std::sqrt(squares / static_cast<double>(x.columns) + epsilon);
    for (int64_t j = 0; j < x.columns; ++j)
      y(i, j) = x(i, j) / root * weight[j];
  }
}

void layerNorm(ConstMatrix x, const float *weight, const float *bias, double epsilon, Output y) {
  for (int64_t i = 0; i < x.rows; ++i) {
    double columns = static_cast<double>(x.columns), mean = 0, variance = 0;
    for (int64_t j = 0; j < x.columns; ++j)
      mean += x(i, j) / columns;
    for (int64_t j = 0; j < x.columns; ++j)
      variance += (x(i, j) - mean) * (x(i, j) - mean) / columns;
    double root = std::sqrt(variance + epsilon);
    for (int64_t j = 0; j < x.columns; ++j)
      y(i, j) = (x(i, j) - mean) / root * weight[j] + bias[j];
  }
}

void siluMul(ConstMatrix gate, ConstMatrix up, Output y) {
  for (int64_t i = 0; i < gate.rows; ++i)
    for (int64_t j = 0; j < gate.columns; ++j) {
      double v = gate(i, j);
      y(i, j) = v / (1 + std::exp(-v)) * up(i, j);
    }
}

static double geluTanh(double v) {
  double inner = std::sqrt(2 / std::numbers::pi) * (v + 0.044715 * v * v * v);
  return 0.5 * v * (1 + std::tanh(inner));
}

void geluMul(ConstMatrix gate, ConstMatrix up, Output y) {
  for (int64_t i = 0; i < gate.rows; ++i)
    for (int64_t j = 0; j < gate.columns; ++j)
      y(i, j) = geluTanh(gate(i, j)) * up(i, j);
}

void geluTanh(ConstMatrix x, Output y) {
  map(x, y, [](double v) { return geluTanh(v); });
}

void geluErf(ConstMatrix x, Output y) {
  // erfc keeps its digits where 1 + erf cancels.
  map(x, y, [](double v) { return 0.5 * v * std::erfc(-v / std::numbers::sqrt2); });
}

void add(ConstMatrix a, ConstMatrix b, Output y) {
  for (int64_t i = 0; i < a.rows; ++i)
    for (int64_t j = 0; j < a.columns; ++j)
      y(i, j) = static_cast<double>(a(i, j)) + static_cast<double>(b(i, j));
}

void multiply(ConstMatrix x, double factor, Output y) {
  map(x, y, [factor](double v) { return factor * v; });
}

void softCap(ConstMatrix x, double bound, Output y) {
  map(x, y, [bound](double v) { return bound * std::tanh(v / bound); });
}

void rope(ConstMatrix x, std::span<const float> table, int64_t headDim, int64_t position, Output y,
          int64_t dims) {
  dims = dims > 0 ? dims : headDim;
  int64_t half = dims / 2;
  for (int64_t m = 0; m < x.rows; ++m) {
    const float *turn = table.data() + (position + m) * dims;
    for (int64_t head = 0; head < x.columns; head += headDim) {
      for (int64_t i = 0; i < half; ++i) {
        double a = x(m, head + i), b = x(m, head + half + i);
        double cosine = turn[2 * i], sine = turn[2 * i + 1];
        y(m, head + i) = a * cosine - b * sine;
        y(m, head + half + i) = b * cosine + a * sine;
      }
      for (int64_t i = dims; i < headDim; ++i)
        y(m, head + i) = x(m, head + i);
    }
  }
}

void attention(ConstMatrix q, ConstMatrix k, ConstMatrix v, const AttentionParams &params,
               int64_t position, Output y) {
  int64_t dim = params.headDim;
  std::vector<double> weights(position + q.rows);
  for (int64_t m = 0; m < q.rows; ++m)
    for (int64_t h = 0; h < params.heads; ++h) {
      int64_t kv = h / (params.heads / params.kvHeads);
      int64_t last = position + m;
      int64_t first = params.window == 0 ? 0 : std::max<int64_t>(0, last - params.window + 1);
      const bool hasSink = !params.sinkLogits.empty();
      double largest = hasSink ? params.sinkLogits[h] : -INFINITY;
      for (int64_t t = first; t <= last; ++t) {
        double dot = 0;
        for (int64_t i = 0; i < dim; ++i)
          dot += static_cast<double>(q(m, h * dim + i)) * static_cast<double>(k(t, kv * dim + i));
        weights[t] = dot * params.scale;
        if (params.bound > 0)
          weights[t] = params.bound * std::tanh(weights[t] / params.bound);
        largest = std::max(largest, weights[t]);
      }
      double total = hasSink ? std::exp(params.sinkLogits[h] - largest) : 0.0;
      for (int64_t t = first; t <= last; ++t) {
        weights[t] = std::exp(weights[t] - largest);
        total += weights[t];
      }
      for (int64_t i = 0; i < dim; ++i) {
        double sum = 0;
        for (int64_t t = first; t <= last; ++t)
          sum += weights[t] * v(t, kv * dim + i);
        y(m, h * dim + i) = sum / total;
      }
    }
}

void embedding(std::span<const int32_t> tokens, ConstMatrix table, Output y) {
  for (size_t m = 0; m < tokens.size(); ++m)
    for (int64_t j = 0; j < table.columns; ++j)
      y(m, j) = table(tokens[m], j);
}

void positionEmbedding(ConstMatrix table, int64_t position, Output y) {
  for (int64_t m = 0; m < y.rows; ++m)
    for (int64_t j = 0; j < table.columns; ++j)
      y(m, j) += table(position + m, j);
}

} // namespace easyquant::numerics::reference
