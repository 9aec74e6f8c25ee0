//===- Bounds.cpp - What can be promised statically -----------------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "easyquant/Numerics/Bounds.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace easyquant::numerics {

int64_t maxAccumulationLength(CodeRange a, CodeRange b) {
  int64_t corners[] = {int64_t(a.min) * b.min, int64_t(a.min) * b.max, int64_t(a.max) * b.min,
                       int64_t(a.max) * b.max};
  // Partial sums may be all of one sign, so each end limits K on its own.
  int64_t greatest = std::max<int64_t>(0, *std::max_element(corners, corners + 4));
  int64_t least = std::min<int64_t>(0, *std::min_element(corners, corners + 4));
  int64_t length = std::numeric_limits<int64_t>::max();
  if (greatest > 0)
    length = std::min(length, std::numeric_limits<int32_t>::max() / greatest);
  if (least < 0)
    length = std::min(length, int64_t(std::numeric_limits<int32_t>::min()) / least);
  return length;
}

CodeRange factorRange(const Scheme &scheme) {
  if (!scheme.table || !scheme.table->int8Unit())
    return codeRange(scheme);
  return {scheme.table->int8Value(0), scheme.table->int8Value(scheme.table->values().size() - 1)};
}

CodeRange storedRange(const Scheme &scheme) {
  const CodeRange range = factorRange(scheme);
  const int32_t offset = int32_t(1) << (scheme.isInteger() ? scheme.bits - 1 : 7);
  return {range.min + offset, range.max + offset};
}

CodeRange centredRange(const Scheme &scheme) {
  const CodeRange range = factorRange(scheme);
  const int32_t width = range.max - range.min;
  return scheme.symmetric ? range : CodeRange{-width, width};
}

int64_t maxDotLength(const Scheme &weight, const Scheme &input, bool stored) {
  int64_t multiplied =
      maxAccumulationLength(stored ? storedRange(weight) : codeRange(weight), codeRange(input));
  return std::min(multiplied, maxAccumulationLength(centredRange(weight), centredRange(input)));
}

Result<void> checkAccumulator(int64_t length, CodeRange a, CodeRange b) {
  int64_t limit = maxAccumulationLength(a, b);
  if (length <= limit)
    return {};
  return makeError(ErrorCode::OutOfRange,
                   "a sum of {} products of codes in [{}, {}] and [{}, {}] can overflow its int32 "
                   "accumulator: at most {} fit; use groups (--group-size) or leave this site "
                   "float (--ignore)",
                   length, a.min, a.max, b.min, b.max, limit);
}

//===- Errors -------------------------------------------------------------===//

double quantizationErrorBound(double lo, double hi, const SliceParams &params,
                              const Scheme &scheme) {
  CodeValues values = codeValues(scheme);
  double scale = params.scale;
  double least = scale * (values.least - params.zeroPoint) + params.minimum;
  double greatest = scale * (values.greatest - params.zeroPoint) + params.minimum;
  if (scale < 0)
    std::swap(least, greatest);
  return std::max({roundingErrorBound(std::fabs(scale)) * values.gap, least - lo, hi - greatest});
}

double simQuantErrorBound(std::span<const float> minima, std::span<const float> maxima, int bits) {
  double widest = 0;
  for (size_t d = 0; d < minima.size(); ++d)
    widest = std::max(widest, double(maxima[d]) - minima[d]);
  return widest / (2 * (std::ldexp(1.0, bits) - 1));
}

double linearErrorBound(std::span<const float> x, double inputError, std::span<const float> weights,
                        std::span<const double> weightErrors, int64_t groupSize) {
  double bound = 0;
  for (size_t k = 0; k < x.size(); ++k) {
    double weightError = weightErrors[groupSize == 0 ? 0 : k / groupSize];
    bound +=
        std::fabs(x[k]) * weightError + inputError * (std::fabs(double(weights[k])) + weightError);
  }
  return bound;
}

std::vector<double> compoundedErrors(std::span<const double> gains,
                                     std::span<const double> localErrors) {
  std::vector<double> errors(gains.size());
  double error = 0;
  for (size_t l = 0; l < gains.size(); ++l)
    errors[l] = error = gains[l] * error + localErrors[l];
  return errors;
}

double samplingErrorBound(double width, int64_t samples, double risk) {
  return width * std::sqrt(std::log(2 / risk) / (2 * static_cast<double>(samples)));
}

} // namespace easyquant::numerics
