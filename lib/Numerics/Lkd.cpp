//===- Lkd.cpp - Layer-by-layer distillation ------------------------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "easyquant/Numerics/Lkd.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace easyquant::numerics {
namespace {

/// A weight in training.
struct Trained {
  const LkdSite *site = nullptr;
  std::vector<float> values;        ///< behind the codes
  std::vector<float> rounded;       ///< what the layer computes with
  std::vector<float> gradient;      ///< of `rounded`, hence of `values`
  std::vector<float> first, second; ///< Adam's moments
  QuantizedMatrix codes;            ///< of `values`
  double step = 0;                  ///< the learning rate in units of the weight
};

class Distiller {
public:
  Distiller(const DecoderShape &shape, const DecoderWeights<float> &layer,
            std::span<const ConstMatrix> inputs, std::span<const ConstMatrix> targets,
            const LkdOptions &options)
      : weights(layer), inputs(inputs), targets(targets), options(options),
        model(shape, options.threads) {}

  Result<LkdResult> run(std::span<const LkdSite> sites);

private:
  void start(const LkdSite &site);
  Result<void> round();
  Result<double> loss(size_t sequence, bool withGradient);
  Result<double> meanLoss(size_t first, size_t last);
  void update(Trained &weight, double rate) const;
  std::vector<QuantizedMatrix> codes() const;

  DecoderWeights<float> weights; ///< with those in training replaced
  std::span<const ConstMatrix> inputs, targets;
  const LkdOptions &options;
  DecoderLayer<float> model;
  std::vector<Trained> trained;
  DecoderGradients<float> gradients;
  std::vector<float> output;
  int64_t steps = 0;
};

} // namespace

void Distiller::start(const LkdSite &site) {
  ConstMatrix w = weights.weights[site.linear];
  Trained weight;
  weight.site = &site;
  for (int64_t i = 0; i < w.rows; ++i)
    weight.values.insert(weight.values.end(), w.row(i), w.row(i) + w.columns);
  weight.rounded.resize(weight.values.size());
  weight.gradient.resize(weight.values.size());
  weight.first.resize(weight.values.size());
  weight.second.resize(weight.values.size());
  weight.codes.rows = w.rows;
  weight.codes.columns = w.columns;
  trained.push_back(std::move(weight));
}

/// Codes of the values, and the weights that they stand for.
Result<void> Distiller::round() {
  for (Trained &weight : trained) {
    const int64_t rows = weight.codes.rows, columns = weight.codes.columns;
    auto codes = quantize(ConstMatrix(weight.values.data(), rows, columns), weight.site->scheme,
                          weight.site->rule);
    if (!codes)
      return Unexpected(codes.error());
    weight.codes = std::move(*codes);
    Matrix rounded(weight.rounded.data(), rows, columns);
    dequantize(weight.codes, rounded);
    weights.weights[weight.site->linear] = rounded;
    gradients[weight.site->linear] = Matrix(weight.gradient.data(), rows, columns);
  }
  return {};
}

Result<double> Distiller::loss(size_t sequence, bool withGradient) {
  ConstMatrix x = inputs[sequence], target = targets[sequence];
  output.resize(x.rows * x.columns);
  Matrix y(output.data(), x.rows, x.columns);
  model.forward(weights, x, y);
  const int64_t skipped = std::min(options.skippedRows, x.rows);
  const double count = static_cast<double>(std::max<int64_t>((x.rows - skipped) * x.columns, 1));
  double sum = 0;
  for (int64_t i = 0; i < x.rows; ++i)
    for (int64_t j = 0; j < x.columns; ++j) {
      double difference = i < skipped ? 0 : static_cast<double>(y(i, j)) - target(i, j);
      sum += difference * difference;
      y(i, j) = static_cast<float>(2 * difference / count); // dL/dy from here on
    }
  if (!std::isfinite(sum))
    return makeError(ErrorCode::InvalidArgument,
                     "the output of the quantized layer is not finite on sequence {}; take a "
                     "smaller learning rate",
                     sequence);
  if (withGradient) {
    for (Trained &weight : trained)
      std::fill(weight.gradient.begin(), weight.gradient.end(), 0.0f);
    model.backward(weights, y, gradients);
  }
  return sum / count;
}

Result<double> Distiller::meanLoss(size_t first, size_t last) {
  double sum = 0;
  for (size_t i = first; i < last; ++i) {
    auto one = loss(i, /*withGradient=*/false);
    if (!one)
      return one;
    sum += *one;
  }
  return sum / static_cast<double>(last - first);
}

void Distiller::update(Trained &weight, double rate) const {
  constexpr double beta1 = 0.9, beta2 = 0.999;
  const double bias1 = 1 - std::pow(beta1, steps), bias2 = 1 - std::pow(beta2, steps);
  // Adam's epsilon against a gradient that is zero: far below any other.
  double largest = 0;
  for (float g : weight.gradient)
    largest = std::max(largest, std::fabs(static_cast<double>(g)));
  const double epsilon = 1e-6 * largest + 1e-30;
  for (size_t i = 0; i < weight.values.size(); ++i) {
    const double g = weight.gradient[i];
    weight.first[i] = static_cast<float>(beta1 * weight.first[i] + (1 - beta1) * g);
    weight.second[i] = static_cast<float>(beta2 * weight.second[i] + (1 - beta2) * g * g);
    const double mean = weight.first[i] / bias1, square = weight.second[i] / bias2;
    weight.values[i] -=
        static_cast<float>(rate * weight.step * mean / (std::sqrt(square) + epsilon));
  }
}

std::vector<QuantizedMatrix> Distiller::codes() const {
  std::vector<QuantizedMatrix> all;
  all.reserve(trained.size());
  for (const Trained &weight : trained)
    all.push_back(weight.codes);
  return all;
}

Result<LkdResult> Distiller::run(std::span<const LkdSite> sites) {
  for (const LkdSite &site : sites)
    start(site);
  if (auto ok = round(); !ok)
    return Unexpected(ok.error());
  for (Trained &weight : trained) {
    const std::vector<float> &scales = weight.codes.params.scales;
    weight.step = std::accumulate(scales.begin(), scales.end(), 0.0) /
                  static_cast<double>(std::max<size_t>(scales.size(), 1));
  }
  const auto held = static_cast<size_t>(
      std::clamp(std::round(options.heldOut * static_cast<double>(inputs.size())), 1.0,
                 static_cast<double>(inputs.size() - 1)));
  const size_t training = inputs.size() - held;
  auto before = meanLoss(training, inputs.size());
  if (!before)
    return Unexpected(before.error());
  LkdResult best{codes(), *before, *before};

  const auto total = static_cast<double>(options.epochs * static_cast<int64_t>(training));
  for (int64_t epoch = 0; epoch < options.epochs; ++epoch) {
    for (size_t i = 0; i < training; ++i) {
      if (auto ok = loss(i, /*withGradient=*/true); !ok)
        return Unexpected(ok.error());
      const double rate = options.learningRate * (1 - static_cast<double>(steps) / total);
      ++steps;
      for (Trained &weight : trained)
        update(weight, rate);
      if (auto ok = round(); !ok)
        return Unexpected(ok.error());
    }
    auto now = meanLoss(training, inputs.size());
    if (!now)
      return Unexpected(now.error());
    if (*now < best.after) {
      best.weights = codes();
      best.after = *now;
    }
  }
  return best;
}

Result<LkdResult> distill(const DecoderShape &shape, const DecoderWeights<float> &layer,
                          std::span<const LkdSite> sites, std::span<const ConstMatrix> inputs,
                          std::span<const ConstMatrix> targets, const LkdOptions &options) {
  if (options.epochs < 0 || !(options.learningRate > 0) || !std::isfinite(options.learningRate) ||
      !(options.heldOut > 0) || !(options.heldOut < 1) || options.skippedRows < 0)
    return makeError(ErrorCode::InvalidArgument,
                     "distillation with {} epochs, learning rate {}, {} held out and {} rows "
                     "skipped: expected 0 or more epochs, a positive rate, and a share between 0 "
                     "and 1",
                     options.epochs, options.learningRate, options.heldOut, options.skippedRows);
  if (inputs.size() < 2 || inputs.size() != targets.size())
    return makeError(ErrorCode::InvalidArgument,
                     "distillation on {} sequences with {} targets: expected at least 2 of each, "
                     "one of which is held out; calibrate on more samples",
                     inputs.size(), targets.size());
  for (size_t i = 0; i < inputs.size(); ++i)
    if (inputs[i].columns != shape.hidden || targets[i].columns != shape.hidden ||
        inputs[i].rows != targets[i].rows)
      return makeError(ErrorCode::InvalidArgument,
                       "sequence {}: {} x {} in and {} x {} out, expected {} columns and as many "
                       "rows in as out",
                       i, inputs[i].rows, inputs[i].columns, targets[i].rows, targets[i].columns,
                       shape.hidden);
  for (const LkdSite &site : sites)
    if (!layer.weights[site.linear].data)
      return makeError(ErrorCode::InvalidArgument, "the layer has no linear {}",
                       static_cast<int>(site.linear));
  return Distiller(shape, layer, inputs, targets, options).run(sites);
}

} // namespace easyquant::numerics
