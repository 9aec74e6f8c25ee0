//===- SmoothQuant.cpp - Difficulty moved from activations to weights -----===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "easyquant/Numerics/SmoothQuant.h"

#include <algorithm>
#include <cmath>

namespace easyquant::numerics {

Result<std::vector<float>> smoothingFactors(std::span<const float> activationAbsMax,
                                            std::span<const float> weightAbsMax, double alpha) {
  if (!(alpha >= 0 && alpha <= 1))
    return makeError(
        ErrorCode::InvalidArgument,
        "alpha {}: expected a number from 0 (leave activations as they are) to 1 (move "
        "everything to the weights)",
        alpha);
  if (activationAbsMax.size() != weightAbsMax.size())
    return makeError(ErrorCode::InvalidArgument, "{} channels of activations, {} of weights",
                     activationAbsMax.size(), weightAbsMax.size());
  std::vector<float> factors(activationAbsMax.size(), 1.0f);
  for (size_t j = 0; j < factors.size(); ++j) {
    float a = activationAbsMax[j], w = weightAbsMax[j];
    if (!(a >= 0 && w >= 0) || !std::isfinite(a) || !std::isfinite(w))
      return makeError(ErrorCode::InvalidArgument,
                       "channel {}: largest activation {}, largest weight {}: expected finite "
                       "magnitudes",
                       j, a, w);
    if (a == 0)
      continue;
    double factor = std::pow(a, alpha) / std::pow(std::max(w, kLeastSmoothing), 1 - alpha);
    factors[j] = std::max(static_cast<float>(factor), kLeastSmoothing);
  }
  return factors;
}

double smoothedErrorBound(std::span<const float> activationAbsMax,
                          std::span<const float> weightAbsMax, std::span<const float> factors,
                          int maxActivationCode, int maxWeightCode) {
  double peakX = 0, peakW = 0, sumX = 0, sumW = 0;
  for (size_t j = 0; j < factors.size(); ++j) {
    double a = activationAbsMax[j] / double(factors[j]), w = weightAbsMax[j] * double(factors[j]);
    peakX = std::max(peakX, a);
    peakW = std::max(peakW, w);
    sumX += a;
    sumW += w;
  }
  return (peakW / maxWeightCode * sumX + peakX / maxActivationCode * sumW) / 2;
}

std::vector<double> bestExponents(std::span<const float> activationAbsMax,
                                  std::span<const float> weightAbsMax, double activationStep,
                                  double weightStep) {
  std::vector<double> exponents(activationAbsMax.size(), 0.5);
  for (size_t j = 0; j < exponents.size(); ++j) {
    double product = double(activationAbsMax[j]) * weightAbsMax[j];
    if (product > 0 && product != 1)
      exponents[j] += std::log(weightStep / activationStep) / (2 * std::log(product));
  }
  return exponents;
}

Result<SmoothingSearch> SmoothingSearch::create(std::span<const float> activationAbsMax,
                                                std::span<const float> meanSquares,
                                                std::span<const float> weightAbsMax,
                                                const SmoothedCodes &codes) {
  SmoothingSearch search;
  search.codes = codes;
  search.meanSquares.assign(meanSquares.begin(), meanSquares.end());
  constexpr int kSteps = 20;
  for (int step = 0; step <= kSteps; ++step) {
    const double alpha = static_cast<double>(step) / kSteps;
    auto factors = smoothingFactors(activationAbsMax, weightAbsMax, alpha);
    if (!factors)
      return Unexpected(factors.error());
    double peak = 0;
    for (size_t j = 0; j < factors->size(); ++j)
      peak = std::max(peak, activationAbsMax[j] / static_cast<double>((*factors)[j]));
    search.activationSteps.push_back(codes.maxActivation ? peak / codes.maxActivation : 0);
    search.candidates.push_back({alpha, std::move(*factors), 0});
  }
  return search;
}

void SmoothingSearch::update(ConstMatrix weights) {
  const int64_t columns = weights.columns, group = codes.groupSize ? codes.groupSize : columns;
  for (size_t c = 0; c < candidates.size(); ++c) {
    Candidate &candidate = candidates[c];
    const double activationNoise = activationSteps[c] * activationSteps[c] / 12;
    for (int64_t row = 0; row < weights.rows; ++row) {
      const float *w = weights.row(row);
      for (int64_t first = 0; first < columns; first += group) {
        double peak = 0, squares = 0, inputs = 0;
        for (int64_t j = first; j < std::min(first + group, columns); ++j) {
          const double s = candidate.factors[j], scaled = w[j] * s;
          peak = std::max(peak, std::fabs(scaled));
          squares += scaled * scaled;
          inputs += meanSquares[j] / (s * s);
        }
        const double step = peak / codes.maxWeight;
        candidate.error += activationNoise * squares + inputs * step * step / 12;
      }
    }
  }
}

const SmoothingSearch::Candidate &SmoothingSearch::best() const {
  return *std::min_element(candidates.begin(), candidates.end(),
                           [](const Candidate &a, const Candidate &b) {
                             return std::pair(a.error, std::fabs(a.alpha - 0.5)) <
                                    std::pair(b.error, std::fabs(b.alpha - 0.5));
                           });
}

} // namespace easyquant::numerics
