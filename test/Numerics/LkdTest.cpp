//===- LkdTest.cpp --------------------------------------------------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Losses are computed anew from the codes that come back, in double.
//
//===----------------------------------------------------------------------===//

#include "easyquant/Numerics/Lkd.h"

#include "DecoderData.h"

#include <gtest/gtest.h>

using namespace easyquant;
using namespace easyquant::numerics;

namespace {

/// Rows that hang together as hidden states do: on independent columns there is little to gain.
std::vector<float> correlated(int64_t tokens, int64_t columns, unsigned seed) {
  constexpr int64_t factors = 5;
  std::vector<float> loadings = normal<float>(factors * columns, 1, 7);
  std::vector<float> scores = normal<float>(tokens * factors, 1, seed);
  std::vector<float> x = normal<float>(tokens * columns, 0.2, seed + 1000);
  for (int64_t t = 0; t < tokens; ++t)
    for (int64_t f = 0; f < factors; ++f)
      for (int64_t j = 0; j < columns; ++j)
        x[t * columns + j] += scores[t * factors + f] * loadings[f * columns + j];
  return x;
}

/// A layer with sequences that go through it, all of whose linears are distilled.
struct Task : DifferentiableLayer {
  Layer<float> layer;
  DecoderWeights<float> weights; ///< with those in training replaced
  DecoderLayer<float> model;
  std::vector<std::vector<float>> in, out;
  std::vector<ConstMatrix> inputs, targets;
  std::vector<TrainedSite> sites;
  std::vector<DecoderLinear> linears; ///< of the sites

  Task(const DecoderShape &shape, int64_t sequences, const Scheme &scheme)
      : layer(shape, 32, 1), weights(layer.weights), model(shape, 1) {
    for (int64_t i = 0; i < sequences; ++i) {
      const int64_t tokens = 20 + i % 3;
      in.push_back(correlated(tokens, shape.hidden, 100 + i));
      out.emplace_back(in.back().size());
      model.forward(layer.weights, layer.rows(in.back(), tokens), layer.rows(out.back(), tokens));
    }
    for (int64_t i = 0; i < sequences; ++i) {
      inputs.push_back(layer.rows(in[i], 20 + i % 3));
      targets.push_back(layer.rows(out[i], 20 + i % 3));
    }
    for (int w = 0; w < kDecoderLinears; ++w)
      if (layer.weights.weights[w].data) {
        sites.push_back({layer.weights.weights[w], scheme, {extremesRule(scheme)}});
        linears.push_back(DecoderLinear(w));
      }
  }

  Result<void> setWeight(size_t site, ConstMatrix values) override {
    weights.weights[linears[site]] = values; // which the caller keeps
    return {};
  }
  Result<void> forward(size_t sequence, Matrix y) override {
    model.forward(weights, inputs[sequence], y);
    return {};
  }
  Result<void> backward(size_t, ConstMatrix dy, std::span<const Matrix> gradients) override {
    DecoderGradients<float> places;
    for (size_t s = 0; s < sites.size(); ++s) {
      places[linears[s]] = gradients[s];
      std::fill_n(gradients[s].data, gradients[s].rows * gradients[s].columns, 0.0f);
    }
    model.backward(weights, dy, places);
    return {};
  }

  Result<TrainedWeights> distilled(LkdOptions options) {
    return distill(*this, sites, targets, options);
  }

  /// Mean loss of the last sequences with these weights.
  double lossOf(const std::vector<QuantizedMatrix> &weights, size_t first) {
    Layer<double> wide(layer.shape, 32, 1);
    for (size_t s = 0; s < sites.size(); ++s) {
      std::vector<float> back(weights[s].codes.size());
      dequantize(weights[s], Matrix(back.data(), weights[s].rows, weights[s].columns));
      std::copy(back.begin(), back.end(), wide.memory[linears[s]].begin());
    }
    DecoderLayer<double> model(layer.shape, 1);
    double sum = 0;
    for (size_t i = first; i < in.size(); ++i) {
      std::vector<double> x(in[i].begin(), in[i].end()), y(x.size());
      model.forward(wide.weights, wide.rows(x, inputs[i].rows), wide.rows(y, inputs[i].rows));
      double one = 0;
      for (size_t j = 0; j < y.size(); ++j)
        one += (y[j] - out[i][j]) * (y[j] - out[i][j]) / y.size();
      sum += one / (in.size() - first);
    }
    return sum;
  }
};

const Scheme kInt4Groups{4, true, Granularity::Group, 16}, kInt3{3, false, Granularity::Channel, 0};

TEST(Lkd, LowersTheErrorOnSequencesHeldOut) {
  for (const DecoderShape &shape : {llamaShape(), gpt2Shape(DecoderActivation::GeluTanh)})
    for (const Scheme &scheme : {kInt4Groups, kInt3}) {
      Task task(shape, 24, scheme);
      auto result = task.distilled({.epochs = 10});
      ASSERT_TRUE(result) << result.error().message;
      EXPECT_LT(result->after, 0.8 * result->before);
      std::vector<QuantizedMatrix> nearest;
      for (const TrainedSite &site : task.sites)
        nearest.push_back(*quantize(site.weight, site.scheme, site.rule));
      EXPECT_NEAR(task.lossOf(nearest, 21), result->before, 1e-4 * result->before);
      EXPECT_NEAR(task.lossOf(result->weights, 21), result->after, 1e-4 * result->after);
    }
}

TEST(Lkd, NeverEndsWorseThanItBegan) {
  Task task(llamaShape(), 8, kInt4Groups);
  auto wild = task.distilled({.epochs = 2, .learningRate = 30});
  ASSERT_TRUE(wild) << wild.error().message;
  EXPECT_EQ(wild->after, wild->before);
  for (size_t s = 0; s < task.sites.size(); ++s) {
    auto nearest = quantize(task.sites[s].weight, kInt4Groups, {});
    EXPECT_EQ(wild->weights[s].codes, nearest->codes);
    EXPECT_EQ(wild->weights[s].params.scales, nearest->params.scales);
  }
  auto none = task.distilled({.epochs = 0});
  ASSERT_TRUE(none);
  EXPECT_EQ(none->after, none->before);
}

TEST(Lkd, GivesTheSameBytesForAnyNumberOfThreads) {
  std::vector<std::vector<int8_t>> codes;
  for (unsigned threads : {1u, 3u}) {
    Task task(gpt2Shape(DecoderActivation::GeluErf), 6, kInt4Groups);
    auto result = task.distilled({.epochs = 2, .threads = threads});
    ASSERT_TRUE(result);
    for (const QuantizedMatrix &weight : result->weights)
      codes.push_back(weight.codes);
  }
  for (size_t i = 0; i < codes.size() / 2; ++i)
    EXPECT_EQ(codes[i], codes[i + codes.size() / 2]);
}

TEST(Lkd, RefusesWhatItCannotTrain) {
  Task task(llamaShape(), 3, kInt4Groups);
  EXPECT_FALSE(task.distilled({.epochs = -1}));
  EXPECT_FALSE(task.distilled({.learningRate = 0}));
  EXPECT_FALSE(task.distilled({.learningRate = NAN}));
  EXPECT_FALSE(task.distilled({.heldOut = 1}));
  task.in[0][3] = INFINITY;
  auto bad = task.distilled({});
  ASSERT_FALSE(bad);
  EXPECT_NE(bad.error().message.find("not finite on sequence 0"), std::string::npos);
  task.targets.resize(1);
  EXPECT_FALSE(task.distilled({}));
}

} // namespace
