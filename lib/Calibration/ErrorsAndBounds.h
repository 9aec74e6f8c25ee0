//===- ErrorsAndBounds.h - What is measured beside what is promised -*- C++ -*-===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Measurements of arrays; the bounds beside them are those of lib/Numerics. Bounds hold in exact
// arithmetic: what was computed with floats may exceed them by rounding. Private to
// lib/Calibration.
//
//===----------------------------------------------------------------------===//

#ifndef EASYQUANT_LIB_CALIBRATION_ERRORSANDBOUNDS_H
#define EASYQUANT_LIB_CALIBRATION_ERRORSANDBOUNDS_H

#include "easyquant/Numerics/KVCache.h"
#include "easyquant/Numerics/Matrix.h"
#include "easyquant/Numerics/Quantize.h"
#include "easyquant/Numerics/SmoothQuant.h"
#include "easyquant/Numerics/Statistics.h"

namespace easyquant::calibration {

/// The pair, among many, whose measured error is the greatest share of its bound.
struct WorstPair {
  double measured = 0, bound = 0;
  double largest = 0; ///< of all measured errors
  void see(double error, double itsBound);
  void merge(const WorstPair &other);

private:
  bool empty = true;
};

/// Tokens on which outputs are compared, and what their quantization does to them.
struct QuantizedRows {
  std::vector<float> exact, quantized; ///< tokens x columns
  std::vector<double> errors;          ///< bound of each token's elements; 0 for float inputs
  int64_t columns = 0;

  /// input: the scheme as which kernels quantize tokens; absent: they stay float. Errors: those of
  /// numerics::quantizeTokens.
  static Result<QuantizedRows> make(std::vector<float> rows, int64_t columns,
                                    const std::optional<numerics::Scheme> &input);
  int64_t tokens() const { return static_cast<int64_t>(errors.size()); }
};

struct LinearErrors {
  WorstPair weights; ///< |W - What| of a slice beside quantizationErrorBound
  WorstPair outputs; ///< |x W^T - xhat What^T| of an output beside linearErrorBound
  void merge(const LinearErrors &other);
};
/// The errors of rows of a weight and of their outputs, which are computed in double.
LinearErrors measureLinear(numerics::ConstMatrix weight, const numerics::QuantizedMatrix &codes,
                           const QuantizedRows &rows, unsigned threads);

/// Keys or values of one layer under a KV scheme: the largest error, and the extrema of all slices.
struct CacheErrors {
  double measured = 0;
  std::vector<float> minima, maxima; ///< of every slice
  /// Errors: those of quantizeKeys and quantizeValues.
  Result<void> seeKeys(numerics::ConstMatrix keys, const numerics::KVScheme &scheme,
                       int64_t headDim);
  Result<void> seeValues(numerics::ConstMatrix values, const numerics::KVScheme &scheme,
                         int64_t headDim);

private:
  void see(numerics::ConstMatrix x, const numerics::QuantizedKV &codes, int64_t firstRow,
           int64_t rows, int64_t sliceRows, int64_t sliceColumns);
};
/// The scheme of `bits` bits with the largest group up to 64 that `tokens` tokens fill; Unsupported
/// when there is none, or none for such heads.
Result<numerics::KVScheme> measurableKVScheme(int bits, int64_t tokens, int64_t headDim);

/// Smoothing of one activation: exponents of easyquant/Numerics/SmoothQuant.h, and the error bound
/// E(s) of each choice.
struct Smoothing {
  double mean = 0, least = 0, greatest = 0; ///< of the best exponents
  double searched = 0;
  double bestError = 0, searchedError = 0, plainError = 0; ///< plain: factors of 1
};
/// The search has seen the weights. Best exponents are those for the steps of the model as it is.
Result<Smoothing> measureSmoothing(std::span<const float> activation, std::span<const float> weight,
                                   const numerics::SmoothingSearch &search,
                                   const numerics::SmoothedCodes &codes);

/// The mean of the first n of a list of values beside the mean of all.
struct SampledMean {
  int64_t samples = 0;
  double measured = 0, bound = 0;
};
/// For n = 1, 2, 4, ... below the number of values: samples of a text, whose order `permutation`
/// makes a random one. Hoeffding's bound holds for draws without replacement too (his section 6);
/// what is drawn from are the values, so that the width of their interval is known.
std::vector<SampledMean> measureSampling(std::span<const double> values,
                                         std::span<const int64_t> permutation, double risk);
/// A random order of 0 .. count - 1, the same in every run.
std::vector<int64_t> randomOrder(int64_t count);

} // namespace easyquant::calibration

#endif // EASYQUANT_LIB_CALIBRATION_ERRORSANDBOUNDS_H
