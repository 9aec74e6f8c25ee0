//===- Bounds.h - What can be promised statically ---------------*- C++ -*-===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef EASYQUANT_NUMERICS_BOUNDS_H
#define EASYQUANT_NUMERICS_BOUNDS_H

#include "easyquant/Numerics/ScaleRules.h"
#include "easyquant/Numerics/Scheme.h"

#include <cstdint>
#include <span>

namespace easyquant::numerics {

/// The greatest K for which every sum of at most K products a * b, in any order, fits int32:
/// 133,144 for [-127, 127] by [-127, 127], 131,071 for [-128, 127] by [-128, 127], 66,311 for
/// weights stored + 128 ([1, 255]) by [-127, 127]. INT64_MAX when all products are 0. Codes of a
/// range are at most 2^16 in magnitude.
int64_t maxAccumulationLength(CodeRange a, CodeRange b);

/// OutOfRange when `length` products (K, or the group size where every group has an accumulator of
/// its own) can overflow int32; the message says what to do.
Result<void> checkAccumulator(int64_t length, CodeRange a, CodeRange b);

/// The range of what is multiplied for a code, before a zero point: the code, or the int8 value of
/// a table, in the table's unit.
CodeRange factorRange(const Scheme &scheme);

/// The same range as kernels store or look up its numbers: offset binary, [1, 255] for symmetric
/// int8 and for tables.
CodeRange storedRange(const Scheme &scheme);

/// The range of code - zero point, whatever the zero point is: [-255, 255] for asymmetric int8.
CodeRange centredRange(const Scheme &scheme);

/// The greatest K for which an int32 accumulator holds every sum of K products of weights and
/// inputs. This holds for the codes as they are multiplied (weights as `stored`: storedRange) and
/// for the codes less their zero points, which the corrections leave.
int64_t maxDotLength(const Scheme &weight, const Scheme &input, bool stored);

//===- Errors -------------------------------------------------------------===//
// In exact arithmetic: a measured error may exceed these by the rounding of float operations.

/// Greatest |x - s (q - z)| of a value inside the range that the scale was chosen for: s / 2.
constexpr double roundingErrorBound(double scale) { return scale / 2; }

/// The same for any value of [lo, hi], whose ends a rule may have cut. It is s / 2 (for codes that
/// are no integers, times their widest gap), or the distance from an end to the nearest value that
/// has a code.
double quantizationErrorBound(double lo, double hi, const SliceParams &params,
                              const Scheme &scheme);

/// SimQuant, whose float zero is the least value of a channel: max over channels of
/// (max - min) / (2 (2^bits - 1)).
double simQuantErrorBound(std::span<const float> minima, std::span<const float> maxima, int bits);

/// Greatest change of one output of y = sum_k x_k w_k when each x_k moves by up to inputError and
/// each w_k by up to the error of its group:
///
///      sum_k |x_k| e_k + inputError sum_k |w_k| + inputError sum_k e_k
///
/// x may be activations or the largest magnitude of each channel: then it holds for all of them.
/// weightErrors: one for each of the ceil(K / groupSize) groups; groupSize 0: one. The integer
/// product itself does not round.
double linearErrorBound(std::span<const float> x, double inputError, std::span<const float> weights,
                        std::span<const double> weightErrors, int64_t groupSize);

/// What is left at the end of a chain of layers when layer l adds localErrors[l] to its output and
/// stretches the error of its input by up to gains[l]: e_l = gains[l] e_(l-1) + localErrors[l],
/// e_(-1) = 0. All e_l, the last being the error of the end.
std::vector<double> compoundedErrors(std::span<const double> gains,
                                     std::span<const double> localErrors);

/// Hoeffding, 1963: with probability 1 - risk, the mean of n independent samples from an interval
/// of this width is no farther from its expectation: width sqrt(ln(2 / risk) / (2 n)). A scale that
/// is a mean over n calibration samples is off by that much over its largest code. 0 < risk < 1.
double samplingErrorBound(double width, int64_t samples, double risk);

} // namespace easyquant::numerics

#endif // EASYQUANT_NUMERICS_BOUNDS_H
