//===- DecoderLayerTest.cpp -----------------------------------------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The forward pass is checked against a plain one, token by token and head by head, the gradients
// against differences of losses, both in double.
//
//===----------------------------------------------------------------------===//

#include "DecoderData.h"

#include <gtest/gtest.h>

#include <cmath>

using namespace easyquant::numerics;

namespace {

using Doubles = std::vector<double>;

Doubles linear(const Layer<double> &l, int which, const Doubles &x) {
  const auto &w = l.weights.weights[which];
  Doubles y(w.rows);
  for (int64_t i = 0; i < w.rows; ++i) {
    y[i] = l.weights.biases[which] ? l.weights.biases[which][i] : 0;
    for (int64_t j = 0; j < w.columns; ++j)
      y[i] += w(i, j) * x[j];
  }
  return y;
}

Doubles norm(const Layer<double> &l, const Doubles &x, const double *weight, const double *bias) {
  double mean = 0, variance = 0;
  if (l.shape.norm == DecoderNorm::Layer)
    for (double v : x)
      mean += v / x.size();
  for (double v : x)
    variance += (v - mean) * (v - mean) / x.size();
  Doubles y(x.size());
  for (size_t j = 0; j < x.size(); ++j)
    y[j] = (x[j] - mean) / std::sqrt(variance + l.shape.epsilon) * weight[j] + (bias ? bias[j] : 0);
  return y;
}

void turn(const Layer<double> &l, Doubles &x, int64_t token) {
  int64_t d = l.shape.headDim;
  if (!l.weights.rope.data)
    return;
  for (size_t first = 0; first < x.size(); first += d)
    for (int64_t i = 0; i < d / 2; ++i) {
      double angle = token * std::pow(10000.0, -2.0 * i / d);
      double a = x[first + i], b = x[first + d / 2 + i];
      x[first + i] = a * std::cos(angle) - b * std::sin(angle);
      x[first + d / 2 + i] = b * std::cos(angle) + a * std::sin(angle);
    }
}

/// The layer, one token after the other.
Doubles plain(const Layer<double> &l, const Doubles &x, int64_t tokens) {
  const DecoderShape &s = l.shape;
  std::vector<Doubles> keys, values;
  Doubles y;
  for (int64_t t = 0; t < tokens; ++t) {
    Doubles in(x.begin() + t * s.hidden, x.begin() + (t + 1) * s.hidden);
    Doubles n = norm(l, in, l.weights.norm1, l.weights.norm1Bias);
    Doubles q = linear(l, kQuery, n), k = linear(l, kKey, n), out(q.size());
    turn(l, q, t);
    turn(l, k, t);
    keys.push_back(k);
    values.push_back(linear(l, kValue, n));
    for (int64_t h = 0; h < s.heads; ++h) {
      int64_t kv = h * s.kvHeads / s.heads;
      Doubles p(t + 1);
      double sum = 0;
      for (int64_t u = 0; u <= t; ++u) {
        double dot = 0;
        for (int64_t i = 0; i < s.headDim; ++i)
          dot += q[h * s.headDim + i] * keys[u][kv * s.headDim + i];
        sum += p[u] = std::exp(dot * s.attentionScale);
      }
      for (int64_t u = 0; u <= t; ++u)
        for (int64_t i = 0; i < s.headDim; ++i)
          out[h * s.headDim + i] += p[u] / sum * values[u][kv * s.headDim + i];
    }
    Doubles m = linear(l, kOutput, out);
    for (int64_t j = 0; j < s.hidden; ++j)
      m[j] += in[j];
    n = norm(l, m, l.weights.norm2, l.weights.norm2Bias);
    Doubles u = linear(l, kUp, n);
    if (s.activation == DecoderActivation::SiluMul) {
      Doubles g = linear(l, kGate, n);
      for (size_t j = 0; j < u.size(); ++j)
        u[j] *= g[j] / (1 + std::exp(-g[j]));
    } else {
      for (double &v : u)
        v *= s.activation == DecoderActivation::GeluErf
                 ? 0.5 * (1 + std::erf(v / std::sqrt(2.0)))
                 : 0.5 * (1 + std::tanh(std::sqrt(2 / M_PI) * (v + 0.044715 * v * v * v)));
    }
    Doubles d = linear(l, kDown, u);
    for (int64_t j = 0; j < s.hidden; ++j)
      y.push_back(m[j] + d[j]);
  }
  return y;
}

class DecoderKinds : public testing::TestWithParam<DecoderShape> {};

TEST_P(DecoderKinds, ForwardIsTheLayer) {
  for (int64_t tokens : {1, 2, 17}) {
    Layer<double> l(GetParam(), 32, 3);
    Doubles x = normal<double>(tokens * l.shape.hidden, 1.0, 4), y(x.size());
    DecoderLayer<double> layer(l.shape, 2);
    layer.forward(l.weights, l.rows(x, tokens), l.rows(y, tokens));
    Doubles expected = plain(l, x, tokens);
    for (size_t i = 0; i < y.size(); ++i)
      ASSERT_NEAR(y[i], expected[i], 1e-10);
  }
}

TEST_P(DecoderKinds, GradientsAreLimitsOfDifferences) {
  const int64_t tokens = 5;
  Layer<double> l(GetParam(), 32, 5);
  Doubles x = normal<double>(tokens * l.shape.hidden, 1.0, 6);
  Doubles dy = normal<double>(x.size(), 1.0, 7), y(x.size());
  DecoderLayer<double> layer(l.shape, 2);
  auto loss = [&] { // whose gradient by y is dy
    layer.forward(l.weights, l.rows(x, tokens), l.rows(y, tokens));
    double sum = 0;
    for (size_t i = 0; i < y.size(); ++i)
      sum += y[i] * dy[i];
    return sum;
  };
  std::array<Doubles, kDecoderLinears> memory;
  DecoderGradients<double> gradients;
  for (int w = 0; w < kDecoderLinears; ++w) {
    auto &view = l.weights.weights[w];
    memory[w].assign(view.rows * view.columns, 100); // to be added to
    gradients[w] = {memory[w].data(), view.rows, view.columns};
  }
  loss();
  layer.backward(l.weights, l.rows(dy, tokens), gradients);
  for (int w = 0; w < kDecoderLinears; ++w)
    for (size_t i = 0; i < l.memory[w].size(); i += 1 + l.memory[w].size() / 40) {
      double &value = l.memory[w][i], before = value, step = 1e-5;
      value = before + step;
      double more = loss();
      value = before - step;
      double less = loss();
      value = before;
      double expected = (more - less) / (2 * step);
      ASSERT_NEAR(memory[w][i] - 100, expected, 1e-6 * (1 + std::fabs(expected)))
          << "linear " << w << ", element " << i;
    }
}

TEST_P(DecoderKinds, SingleIsCloseToDoubleOnAnyNumberOfThreads) {
  const int64_t tokens = 70;
  Layer<double> wide(GetParam(), 80, 8);
  Layer<float> l(GetParam(), 80, 8);
  Doubles x = normal<double>(tokens * l.shape.hidden, 1.0, 9), expected(x.size());
  std::vector<float> in(x.begin(), x.end());
  DecoderLayer<double>(l.shape, 1)
      .forward(wide.weights, wide.rows(x, tokens), wide.rows(expected, tokens));
  std::vector<std::vector<float>> results;
  for (unsigned threads : {1u, 3u}) {
    DecoderLayer<float> layer(l.shape, threads);
    std::vector<float> y(x.size()), gradient(l.memory[kQuery].size());
    layer.forward(l.weights, l.rows(in, tokens), l.rows(y, tokens));
    for (size_t i = 0; i < y.size(); ++i)
      ASSERT_NEAR(y[i], expected[i], 1e-4);
    DecoderGradients<float> gradients;
    gradients[kQuery] = {gradient.data(), l.weights.weights[kQuery].rows, l.shape.hidden};
    layer.backward(l.weights, l.rows(y, tokens), gradients);
    y.insert(y.end(), gradient.begin(), gradient.end());
    results.push_back(y);
  }
  EXPECT_EQ(results[0], results[1]);
}

INSTANTIATE_TEST_SUITE_P(Kinds, DecoderKinds,
                         testing::Values(llamaShape(), gpt2Shape(DecoderActivation::GeluTanh),
                                         gpt2Shape(DecoderActivation::GeluErf)));

} // namespace
