//===- Rope.cpp - Rotary position embeddings ------------------------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "easyquant/Numerics/Rope.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace easyquant::numerics {
namespace {

Result<void> checkPositive(const char *name, double value) {
  if (std::isfinite(value) && value > 0)
    return {};
  return makeError(ErrorCode::InvalidArgument,
                   "rotary embedding with {} = {}: expected a finite positive number", name, value);
}

Result<void> checkYarn(const RopeParams &params) {
  for (auto [name, value] :
       {std::pair("beta_fast", params.betaFast), std::pair("beta_slow", params.betaSlow),
        std::pair("attention_factor", params.attentionFactor)})
    if (auto ok = checkPositive(name, value); !ok)
      return ok;
  if (params.lateGain != 0.0)
    if (auto ok = checkPositive("late_gain", params.lateGain); !ok)
      return ok;
  if (params.betaSlow >= params.betaFast)
    return makeError(ErrorCode::InvalidArgument,
                     "rotary embedding with beta_slow = {} and beta_fast = {}: the first must be "
                     "below the second",
                     params.betaSlow, params.betaFast);
  if (params.theta <= 1.0)
    return makeError(ErrorCode::InvalidArgument,
                     "rotary embedding with rope_theta = {}: YaRN needs one above 1", params.theta);
  return {};
}

Result<void> checkLongRope(const RopeParams &params) {
  if (auto ok = checkPositive("attention_factor", params.attentionFactor); !ok)
    return ok;
  if (std::ssize(params.divisors) != params.dims / 2)
    return makeError(ErrorCode::InvalidArgument,
                     "rotary embedding of {} dimensions with {} divisors of their frequencies: "
                     "expected {}",
                     params.dims, params.divisors.size(), params.dims / 2);
  for (float divisor : params.divisors)
    if (auto ok = checkPositive("a divisor", divisor); !ok)
      return ok;
  return {};
}

Result<void> checkProportional(const RopeParams &params) {
  if (params.turnedPairs < 1 || params.turnedPairs > params.dims / 2)
    return makeError(
        ErrorCode::InvalidArgument,
        "rotary embedding of {} dimensions whose first {} pairs turn: expected 1 to {}",
        params.dims, params.turnedPairs, params.dims / 2);
  return {};
}

Result<void> check(const RopeParams &params) {
  if (params.dims < 2 || params.dims % 2 != 0 || params.dims > kMaxHeadDim)
    return makeError(
        ErrorCode::InvalidArgument,
        "rotary embedding of {} dimensions of a head: expected a positive even number of "
        "at most {}",
        params.dims, kMaxHeadDim);
  if (auto ok = checkPositive("rope_theta", params.theta); !ok)
    return ok;
  if (params.scaling == RopeScaling::None)
    return {};
  if (params.scaling == RopeScaling::LongRope)
    return checkLongRope(params);
  if (params.scaling == RopeScaling::Proportional)
    return checkProportional(params);
  if (auto ok = checkPositive("factor", params.factor); !ok)
    return ok;
  if (params.scaling == RopeScaling::Linear)
    return {};
  if (auto ok = checkPositive("original_max_position_embeddings",
                              static_cast<double>(params.originalPositions));
      !ok)
    return ok;
  if (params.scaling == RopeScaling::Yarn)
    return checkYarn(params);
  if (auto ok = checkPositive("low_freq_factor", params.lowFrequencyFactor); !ok)
    return ok;
  if (auto ok = checkPositive("high_freq_factor", params.highFrequencyFactor); !ok)
    return ok;
  if (params.lowFrequencyFactor >= params.highFrequencyFactor)
    return makeError(ErrorCode::InvalidArgument,
                     "rotary embedding with low_freq_factor = {} and high_freq_factor = {}: the "
                     "first must be below the second",
                     params.lowFrequencyFactor, params.highFrequencyFactor);
  return {};
}

/// How far pair `index` is interpolated: 0 for the fast ones, 1 for the slow ones.
double yarnRamp(int64_t index, const RopeParams &params) {
  const auto dim = static_cast<double>(params.dims);
  auto pairThatTurns = [&](double times) {
    double length = static_cast<double>(params.originalPositions);
    return dim * std::log(length / (2 * std::numbers::pi * times)) / (2 * std::log(params.theta));
  };
  double first = pairThatTurns(params.betaFast), last = pairThatTurns(params.betaSlow);
  if (params.truncate) {
    first = std::floor(first);
    last = std::ceil(last);
  }
  first = std::max(first, 0.0);
  last = std::min(last, dim - 1);
  if (first == last)
    last += 0.001; // as the reference implementations do
  return std::clamp((static_cast<double>(index) - first) / (last - first), 0.0, 1.0);
}

double scaleFrequency(double frequency, int64_t index, const RopeParams &params) {
  switch (params.scaling) {
  case RopeScaling::None:
    return frequency;
  case RopeScaling::Linear:
    return frequency / params.factor;
  case RopeScaling::Yarn: {
    double ramp = yarnRamp(index, params);
    return ramp * frequency / params.factor + (1 - ramp) * frequency;
  }
  case RopeScaling::LongRope:
    return frequency / static_cast<double>(params.divisors[index]);
  case RopeScaling::Proportional:
    return index < params.turnedPairs ? frequency : 0.0;
  case RopeScaling::Llama3:
    break;
  }
  double turns = static_cast<double>(params.originalPositions) * frequency / (2 * std::numbers::pi);
  if (turns > params.highFrequencyFactor)
    return frequency;
  if (turns < params.lowFrequencyFactor)
    return frequency / params.factor;
  double t = (turns - params.lowFrequencyFactor) /
             (params.highFrequencyFactor - params.lowFrequencyFactor);
  return (1 - t) * frequency / params.factor + t * frequency;
}

} // namespace

Result<void> checkRope(const RopeParams &params, int64_t positions) {
  if (auto ok = check(params); !ok)
    return ok;
  if (positions < 0 || positions > kMaxRopeTableFloats / params.dims)
    return makeError(
        ErrorCode::InvalidArgument,
        "rotary table of {} positions for {} dimensions: expected at most {} floats, {} "
        "positions",
        positions, params.dims, kMaxRopeTableFloats, kMaxRopeTableFloats / params.dims);
  return {};
}

Result<std::vector<double>> ropeFrequencies(const RopeParams &params) {
  if (auto ok = check(params); !ok)
    return Unexpected(ok.error());
  std::vector<double> frequencies(params.dims / 2);
  for (size_t i = 0; i < frequencies.size(); ++i) {
    double exponent = -2.0 * static_cast<double>(i) / static_cast<double>(params.dims);
    frequencies[i] =
        scaleFrequency(std::pow(params.theta, exponent), static_cast<int64_t>(i), params);
  }
  return frequencies;
}

Result<std::vector<float>> ropeDivisors(const RopeParams &params) {
  RopeParams plain = params;
  plain.scaling = RopeScaling::None;
  auto scaled = ropeFrequencies(params), unscaled = ropeFrequencies(plain);
  for (const auto *frequencies : {&scaled, &unscaled})
    if (!*frequencies)
      return Unexpected(frequencies->error());
  std::vector<float> divisors;
  for (size_t i = 0; i < scaled->size(); ++i)
    divisors.push_back((*scaled)[i] == 0.0 ? 1e30f
                                           : static_cast<float>((*unscaled)[i] / (*scaled)[i]));
  return divisors;
}

Result<std::vector<float>> ropeTable(const RopeParams &params, int64_t positions, int64_t first) {
  if (auto ok = checkRope(params, positions); !ok)
    return Unexpected(ok.error());
  auto frequencies = ropeFrequencies(params);
  const bool isScaled =
      params.scaling == RopeScaling::Yarn || params.scaling == RopeScaling::LongRope;
  const double factor = isScaled ? params.attentionFactor : 1.0;
  const double late = params.scaling == RopeScaling::Yarn ? params.lateGain : 0.0;
  std::vector<float> table;
  table.reserve(positions * params.dims);
  for (int64_t p = first; p < first + positions; ++p) {
    double gain = factor;
    if (late != 0.0)
      gain *= 1.0 + late * std::log1p(static_cast<double>(p / params.originalPositions));
    for (double frequency : *frequencies) {
      double angle = static_cast<double>(p) * frequency;
      table.push_back(static_cast<float>(gain * std::cos(angle)));
      table.push_back(static_cast<float>(gain * std::sin(angle)));
    }
  }
  return table;
}

} // namespace easyquant::numerics
