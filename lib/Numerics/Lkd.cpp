//===- Lkd.cpp - Layer-by-layer distillation ------------------------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "easyquant/Numerics/Lkd.h"

#include "LayerLoss.h"

#include "easyquant/Support/Parallel.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace easyquant::numerics {
namespace {

/// A weight in training.
struct Trained {
  const TrainedSite *site = nullptr;
  std::vector<float> values;        ///< behind the codes
  std::vector<float> rounded;       ///< what the layer computes with
  std::vector<float> gradient;      ///< of `rounded`, hence of `values`
  std::vector<float> first, second; ///< Adam's moments
  QuantizedMatrix codes;            ///< of `values`
  double step = 0;                  ///< the learning rate in units of the weight
};

class Distiller {
public:
  Distiller(DifferentiableLayer &layer, std::span<const ConstMatrix> targets,
            const LkdOptions &options)
      : layer(layer), loss(layer, targets, options.heldOut, options.skippedRows,
                           "; take a smaller learning rate"),
        options(options) {}

  Result<TrainedWeights> run(std::span<const TrainedSite> sites);

private:
  void start(const TrainedSite &site);
  Result<void> round(double rate);
  void update(Trained &weight, double rate) const;

  DifferentiableLayer &layer;
  LayerLoss loss;
  const LkdOptions &options;
  std::vector<Trained> trained;
  std::vector<Matrix> gradients; ///< of the trained
  int64_t steps = 0;
};

} // namespace

void Distiller::start(const TrainedSite &site) {
  ConstMatrix w = site.weight;
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
  gradients.push_back({weight.gradient.data(), w.rows, w.columns});
  trained.push_back(std::move(weight)); // the vectors keep their memory
}

static Result<QuantizedMatrix> quantizeSite(const TrainedSite &site, ConstMatrix values) {
  if (!site.params)
    return quantize(values, site.scheme, site.rule);
  QuantizedMatrix q{site.scheme, values.rows, values.columns, {}, *site.params};
  q.codes.resize(values.rows * values.columns);
  if (auto done = quantize(values, q.scheme, q.params, q.codes); !done)
    return Unexpected(done.error());
  return q;
}

/// A step of the optimizer, if there has been a gradient; then codes of the values, and the weights
/// that they stand for.
Result<void> Distiller::round(double rate) {
  std::vector<Result<void>> done(trained.size());
  parallelFor(static_cast<int64_t>(trained.size()), options.threads, [&](int64_t i) {
    Trained &weight = trained[i];
    if (steps > 0)
      update(weight, rate);
    const int64_t rows = weight.codes.rows, columns = weight.codes.columns;
    auto codes = quantizeSite(*weight.site, ConstMatrix(weight.values.data(), rows, columns));
    if (!codes) {
      done[i] = Unexpected(codes.error());
      return;
    }
    weight.codes = std::move(*codes);
    dequantize(weight.codes, Matrix(weight.rounded.data(), rows, columns));
  });
  for (size_t i = 0; i < trained.size(); ++i) {
    if (!done[i])
      return done[i];
    const Trained &weight = trained[i];
    ConstMatrix rounded(weight.rounded.data(), weight.codes.rows, weight.codes.columns);
    if (auto set = layer.setWeight(i, rounded); !set)
      return set;
  }
  return {};
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

Result<TrainedWeights> Distiller::run(std::span<const TrainedSite> sites) {
  for (const TrainedSite &site : sites)
    start(site);
  if (auto ok = round(/*rate=*/0); !ok)
    return Unexpected(ok.error());
  for (Trained &weight : trained) {
    const std::vector<float> &scales = weight.codes.params.scales;
    weight.step = std::accumulate(scales.begin(), scales.end(), 0.0,
                                  [](double sum, float s) { return sum + std::fabs(s); }) /
                  static_cast<double>(std::max<size_t>(scales.size(), 1));
  }
  std::optional<TrainedWeights> best;
  if (auto ok = loss.keepBest(trained, best); !ok)
    return Unexpected(ok.error());

  const auto total = static_cast<double>(options.epochs * static_cast<int64_t>(loss.trained()));
  for (int64_t epoch = 0; epoch < options.epochs; ++epoch) {
    for (size_t i = 0; i < loss.trained(); ++i) {
      if (auto ok = loss.of(i, gradients); !ok)
        return Unexpected(ok.error());
      const double rate = options.learningRate * (1 - static_cast<double>(steps) / total);
      ++steps;
      if (auto ok = round(rate); !ok)
        return Unexpected(ok.error());
    }
    if (auto ok = loss.keepBest(trained, best); !ok)
      return Unexpected(ok.error());
  }
  return std::move(*best);
}

Result<TrainedWeights> distill(DifferentiableLayer &layer, std::span<const TrainedSite> sites,
                               std::span<const ConstMatrix> targets, const LkdOptions &options) {
  if (options.epochs < 0 || !(options.learningRate > 0) || !std::isfinite(options.learningRate) ||
      !(options.heldOut > 0) || !(options.heldOut < 1) || options.skippedRows < 0)
    return makeError(ErrorCode::InvalidArgument,
                     "distillation with {} epochs, learning rate {}, {} held out and {} rows "
                     "skipped: expected 0 or more epochs, a positive rate, and a share between 0 "
                     "and 1",
                     options.epochs, options.learningRate, options.heldOut, options.skippedRows);
  if (targets.size() < 2)
    return makeError(ErrorCode::InvalidArgument,
                     "distillation on {} sequences: expected at least 2, one of which is held out; "
                     "calibrate on more samples",
                     targets.size());
  return Distiller(layer, targets, options).run(sites);
}

} // namespace easyquant::numerics
