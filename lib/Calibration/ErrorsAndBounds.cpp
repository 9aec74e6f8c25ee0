//===- ErrorsAndBounds.cpp - What is measured beside what is promised -----===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "ErrorsAndBounds.h"

#include "easyquant/Numerics/Bounds.h"
#include "easyquant/Support/Parallel.h"

#include <numeric>
#include <random>

using namespace easyquant;
using namespace easyquant::calibration;
using namespace easyquant::numerics;

//===----------------------------------------------------------------------===//
// Linears
//===----------------------------------------------------------------------===//

void WorstPair::see(double error, double itsBound) {
  largest = std::max(largest, error);
  // Without division: a bound may be 0.
  if (empty || error * bound > measured * itsBound) {
    measured = error;
    bound = itsBound;
    empty = false;
  }
}

void WorstPair::merge(const WorstPair &other) {
  if (other.empty)
    return;
  see(other.measured, other.bound);
  largest = std::max(largest, other.largest);
}

void LinearErrors::merge(const LinearErrors &other) {
  weights.merge(other.weights);
  outputs.merge(other.outputs);
}

Result<QuantizedRows> QuantizedRows::make(std::vector<float> rows, int64_t columns,
                                          const std::optional<Scheme> &input) {
  QuantizedRows result;
  result.exact = std::move(rows);
  result.columns = columns;
  const int64_t tokens = static_cast<int64_t>(result.exact.size()) / columns;
  result.errors.resize(tokens);
  result.quantized = result.exact;
  if (!input)
    return result;
  auto codes = quantizeTokens({result.exact.data(), tokens, columns}, *input, /*groupSize=*/0);
  if (!codes)
    return Unexpected(codes.error());
  dequantize(*codes, Matrix(result.quantized.data(), tokens, columns));
  const int64_t scales = tokens ? std::ssize(codes->scales) / tokens : 0;
  for (int64_t t = 0; t < tokens; ++t)
    result.errors[t] = roundingErrorBound(*std::max_element(
        codes->scales.begin() + t * scales, codes->scales.begin() + (t + 1) * scales));
  return result;
}

/// One output feature.
static void measureRow(std::span<const float> weight, std::span<const float> rounded,
                       const QuantizedMatrix &codes, int64_t row, const QuantizedRows &rows,
                       LinearErrors &errors) {
  const int64_t columns = rows.columns;
  const int64_t groupSize = codes.scheme.groupSize, step = groupSize ? groupSize : columns;
  std::vector<double> bounds;
  for (int64_t first = 0; first < columns; first += step) {
    const int64_t last = std::min(first + step, columns);
    const size_t index = (codes.params.rows == 1 ? 0 : row) * codes.params.groups + first / step;
    const SliceParams params = sliceParams(codes.scheme, codes.params, index);
    auto [lo, hi] = std::minmax_element(weight.begin() + first, weight.begin() + last);
    double largest = 0;
    for (int64_t k = first; k < last; ++k)
      largest = std::max(largest, std::fabs(static_cast<double>(weight[k]) - rounded[k]));
    bounds.push_back(quantizationErrorBound(*lo, *hi, params, codes.scheme));
    errors.weights.see(largest, bounds.back());
  }
  for (int64_t t = 0; t < rows.tokens(); ++t) {
    std::span exact(rows.exact.data() + t * columns, columns);
    const float *quantized = rows.quantized.data() + t * columns;
    double difference = 0;
    for (int64_t k = 0; k < columns; ++k)
      difference += static_cast<double>(quantized[k]) * rounded[k] -
                    static_cast<double>(exact[k]) * weight[k];
    errors.outputs.see(std::fabs(difference),
                       linearErrorBound(exact, rows.errors[t], weight, bounds, groupSize));
  }
}

LinearErrors calibration::measureLinear(ConstMatrix weight, const QuantizedMatrix &codes,
                                        const QuantizedRows &rows, unsigned threads) {
  constexpr int64_t kPiece = 16;
  std::vector<float> rounded(weight.rows * weight.columns);
  dequantize(codes, Matrix(rounded.data(), weight.rows, weight.columns));
  std::vector<LinearErrors> found((weight.rows + kPiece - 1) / kPiece);
  parallelFor(static_cast<int64_t>(found.size()), threads, [&](int64_t piece) {
    for (int64_t n = piece * kPiece; n < std::min((piece + 1) * kPiece, weight.rows); ++n)
      measureRow({weight.row(n), static_cast<size_t>(weight.columns)},
                 {rounded.data() + n * weight.columns, static_cast<size_t>(weight.columns)}, codes,
                 n, rows, found[piece]);
  });
  LinearErrors all;
  for (const LinearErrors &part : found)
    all.merge(part);
  return all;
}

//===----------------------------------------------------------------------===//
// Keys and values
//===----------------------------------------------------------------------===//

Result<KVScheme> calibration::measurableKVScheme(int bits, int64_t tokens, int64_t headDim) {
  KVScheme scheme{.bits = bits};
  while (scheme.group > 16 && scheme.sinks + scheme.group > tokens)
    scheme.group /= 2;
  scheme.residual = scheme.group;
  if (scheme.sinks + scheme.group > tokens)
    return makeError(ErrorCode::Unsupported,
                     "samples of {} tokens fill no group of keys; {} are needed", tokens,
                     scheme.sinks + scheme.group);
  if (auto ok = checkKVScheme(scheme, headDim); !ok)
    return Unexpected(ok.error());
  return scheme;
}

void CacheErrors::see(ConstMatrix x, const QuantizedKV &codes, int64_t firstRow, int64_t rows,
                      int64_t sliceRows, int64_t sliceColumns) {
  for (int64_t r = firstRow; r < firstRow + rows; r += sliceRows)
    for (int64_t c = 0; c < x.columns; c += sliceColumns) {
      float low = x(r, c), high = low;
      for (int64_t i = r; i < r + sliceRows; ++i)
        for (int64_t j = c; j < c + sliceColumns; ++j) {
          low = std::min(low, x(i, j));
          high = std::max(high, x(i, j));
          measured =
              std::max(measured, std::fabs(static_cast<double>(x(i, j)) - codes.dequantized(i, j)));
        }
      minima.push_back(low);
      maxima.push_back(high);
    }
}

Result<void> CacheErrors::seeKeys(ConstMatrix keys, const KVScheme &scheme, int64_t headDim) {
  auto codes = quantizeKeys(keys, scheme, headDim, CacheFloat::F32);
  if (!codes)
    return Unexpected(codes.error());
  see(keys, *codes, scheme.sinks, quantizedKeys(scheme, keys.rows) - scheme.sinks, scheme.group, 1);
  return {};
}

Result<void> CacheErrors::seeValues(ConstMatrix values, const KVScheme &scheme, int64_t headDim) {
  auto codes = quantizeValues(values, scheme, headDim, CacheFloat::F32);
  if (!codes)
    return Unexpected(codes.error());
  see(values, *codes, scheme.sinks, values.rows - scheme.sinks, 1, std::min(scheme.group, headDim));
  return {};
}

//===----------------------------------------------------------------------===//
// Smoothing and sampling
//===----------------------------------------------------------------------===//

Result<Smoothing> calibration::measureSmoothing(std::span<const float> activation,
                                                std::span<const float> weight,
                                                const SmoothingSearch &search,
                                                const SmoothedCodes &codes) {
  auto step = [](std::span<const float> peaks, int maxCode) {
    return static_cast<double>(*std::max_element(peaks.begin(), peaks.end())) / maxCode;
  };
  auto error = [&](std::span<const float> factors) {
    return smoothedErrorBound(activation, weight, factors, codes.maxActivation, codes.maxWeight);
  };
  // Factors of the best exponents are those of 1/2 up to one that all channels share, and E does
  // not see that.
  auto best = smoothingFactors(activation, weight, 0.5);
  if (!best)
    return Unexpected(best.error());
  const double activationStep = step(activation, codes.maxActivation);
  const double weightStep = step(weight, codes.maxWeight);
  if (activationStep == 0 || weightStep == 0)
    return makeError(ErrorCode::InvalidArgument, "all activations or all weights are zero");
  std::vector<double> alphas = bestExponents(activation, weight, activationStep, weightStep);
  auto [least, greatest] = std::minmax_element(alphas.begin(), alphas.end());
  return Smoothing{.mean =
                       std::accumulate(alphas.begin(), alphas.end(), 0.0) / double(alphas.size()),
                   .least = *least,
                   .greatest = *greatest,
                   .searched = search.best().alpha,
                   .bestError = error(*best),
                   .searchedError = error(search.best().factors),
                   .plainError = error(std::vector<float>(activation.size(), 1.0f))};
}

std::vector<int64_t> calibration::randomOrder(int64_t count) {
  // Fisher and Yates by hand: what std::shuffle does differs between libraries.
  std::vector<int64_t> order(count);
  std::iota(order.begin(), order.end(), 0);
  std::mt19937_64 random(0);
  for (int64_t i = count - 1; i > 0; --i)
    std::swap(order[i], order[random() % (i + 1)]);
  return order;
}

std::vector<SampledMean> calibration::measureSampling(std::span<const double> values,
                                                      std::span<const int64_t> permutation,
                                                      double risk) {
  const int64_t count = static_cast<int64_t>(values.size());
  auto [least, greatest] = std::minmax_element(values.begin(), values.end());
  const double all = std::accumulate(values.begin(), values.end(), 0.0) / double(count);
  std::vector<SampledMean> found;
  double sum = 0;
  for (int64_t n = 1; n < count; ++n) {
    sum += values[permutation[n - 1]];
    if ((n & (n - 1)) == 0)
      found.push_back(
          {n, std::fabs(sum / double(n) - all), samplingErrorBound(*greatest - *least, n, risk)});
  }
  return found;
}
