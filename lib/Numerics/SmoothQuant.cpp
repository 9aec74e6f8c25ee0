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

} // namespace easyquant::numerics
