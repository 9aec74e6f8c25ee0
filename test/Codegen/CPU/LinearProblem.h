//===- LinearProblem.h - Linear kernels with inputs and outputs -*- C++ -*-===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Random weights and activations for a spec, a call of its kernel with memory laid out at its
// limits, and what comes out of quantized input to the bit.
//
//===----------------------------------------------------------------------===//

#ifndef EASYQUANT_TEST_CODEGEN_CPU_LINEARPROBLEM_H
#define EASYQUANT_TEST_CODEGEN_CPU_LINEARPROBLEM_H

#include "GuardedBuffer.h"
#include "KernelRunner.h"

#include "easyquant/Numerics/Packing.h"
#include "easyquant/Numerics/Reference.h"
#include "easyquant/Numerics/ScaleRules.h"

#include <cmath>
#include <gtest/gtest.h>
#include <random>
#include <span>

namespace easyquant::cpu {

namespace num = easyquant::numerics;

template <typename T, typename U>
void copyInto(GuardedBuffer<T> &buffer, const std::vector<U> &values) {
  static_assert(sizeof(T) == sizeof(U));
  ASSERT_EQ(values.size(), buffer.elementCount());
  if (!values.empty())
    std::memcpy(buffer.data(), values.data(), values.size() * sizeof(T));
}

enum class Inputs { Gaussian, ZeroRows, Outliers, Extreme };

inline bool isPacked(const LinearSpec &spec) { return spec.weights != WeightFormat::F32; }

/// A table of unequal steps, or one that has a name, if there is one of so many bits. Its values
/// are int8 where activations are.
inline const num::Codebook *tableOf(int bits, bool isNamed, bool isInt8) {
  if (isNamed && bits == 4)
    return num::Codebook::iq4nl();
  std::vector<float> values;
  for (int i = 0; i < 1 << bits; ++i)
    values.push_back(-1.5f + 0.3f * static_cast<float>(i) + 0.02f * static_cast<float>(i * i));
  const num::Codebook *table = *num::Codebook::of(values);
  return isInt8 ? *table->inInt8() : table;
}

struct Problem {
  LinearSpec spec;
  std::vector<float> w, bias;     ///< w: for F32
  num::QuantizedMatrix quantized; ///< not for F32, as are the next
  num::PackedWeight packed;
  std::vector<int32_t> offsets; ///< of experts
  std::mt19937 rng;

  /// Codes and zero points are random; with `extreme` codes each is one of the two furthest out.
  Problem(const LinearSpec &spec, uint32_t seed, bool extreme) : spec(spec), rng(seed) {
    std::normal_distribution<float> gauss;
    bias.resize(spec.n);
    for (float &v : bias)
      v = gauss(rng);
    if (!isPacked(spec)) {
      w.resize(spec.n * spec.k);
      for (float &v : w)
        v = 0.05f * gauss(rng);
      return;
    }
    num::Scheme scheme;
    scheme.bits = static_cast<int>(bitsOf(spec.weights));
    scheme.minima = spec.numbers.minima;
    scheme.symmetric = !spec.zeroPoints && !scheme.minima;
    scheme.fullRange = spec.fullRange;
    scheme.granularity = spec.groupSize ? num::Granularity::Group : num::Granularity::Channel;
    scheme.groupSize = spec.groupSize;
    scheme.codes = spec.numbers.codes;
    scheme.scales = spec.numbers.scales;
    if (scheme.codes == CodeFormat::Table)
      scheme.table = tableOf(scheme.bits, /*isNamed=*/seed % 2, spec.quantizedInput);
    scheme.outer = spec.numbers.outer;
    num::CodeRange range = num::codeRange(scheme);
    // The one code of f8E4M3FN that quantization never gives: a NaN.
    range.max -= scheme.codes == CodeFormat::F8E4M3FN;
    auto random = [&] {
      int32_t code = range.min + static_cast<int32_t>(rng() % (range.max - range.min + 1));
      return static_cast<int8_t>(scheme.codes == CodeFormat::F8E4M3FN && code == -1 ? 0 : code);
    };
    int64_t groups = groupCount(spec.k, spec.groupSize);
    quantized = {scheme, spec.n, spec.k, {}, {spec.n, groups, {}, {}}};
    for (int64_t i = 0; i < spec.n * spec.k; ++i)
      quantized.codes.push_back(!extreme ? random()
                                         : static_cast<int8_t>(rng() % 4 ? range.min : range.max));
    for (int64_t n = 0; n < spec.n && scheme.outer; ++n)
      quantized.params.outer.push_back(0.01f + 0.01f * std::fabs(gauss(rng)));
    float unit = 1; // of a super-group
    for (int64_t i = 0; i < spec.n * groups; ++i) {
      float inner = num::roundScale(0.01f + 0.01f * std::fabs(gauss(rng)), scheme.scales);
      if (scheme.scales == ScaleFormat::UI6) {
        if (i % groups % num::kSuperGroups == 0)
          unit = num::roundScale(0.02f + 0.02f * std::fabs(gauss(rng)), ScaleFormat::F16);
        inner = static_cast<float>(1 + rng() % 63) / 64 * unit;
      }
      quantized.params.scales.push_back(inner * quantized.params.outerOf(i / groups));
      if (spec.zeroPoints)
        quantized.params.zeroPoints.push_back(extreme ? range.max : random());
      if (scheme.minima)
        quantized.params.minima.push_back(num::roundScale(0.1f * gauss(rng), scheme.scales));
    }
    num::PanelLayout layout = *num::panelLayout(scheme, spec.n, spec.k);
    layout.withSums = spec.inputZeroPoints && !spec.inputGroup;
    packed = num::pack(layout, quantized);
  }

  std::vector<float> makeX(int64_t m, Inputs kind) {
    std::normal_distribution<float> gauss;
    std::vector<float> x(m * spec.k);
    for (int64_t i = 0; i < m; ++i)
      for (int64_t j = 0; j < spec.k; ++j) {
        float &v = x[i * spec.k + j];
        v = gauss(rng);
        if (kind == Inputs::ZeroRows && i % 2 == 0)
          v = 0.0f;
        if (kind == Inputs::Outliers && j == spec.k / 2)
          v *= 3.0e4f;
        if (kind == Inputs::Extreme)
          v = i % 2 ? 1.0f : -1.0f;
      }
    return x;
  }

  /// Extreme inputs become codes of 127 and -128: the largest accumulators there are.
  num::QuantizedTokens makeTokens(const std::vector<float> &x, int64_t m, Inputs kind) {
    num::ConstMatrix view(x.data(), m, spec.k);
    if (spec.inputGroup)
      return *num::quantizeTokensInGroups(view, spec.inputGroup, !spec.inputZeroPoints);
    num::Scheme fullRange{8, true, num::Granularity::Tensor, 0, false, true};
    auto tokens = kind == Inputs::Extreme
                      ? num::quantizeTokens(view, fullRange, 0x1p-8f, 0, spec.groupSize)
                      : num::quantizeTokens(view, spec.groupSize);
    EXPECT_TRUE(tokens) << tokens.error().message;
    for (int64_t i = 0; spec.inputZeroPoints && i < m; ++i)
      tokens->zeroPoints.push_back(
          kind == Inputs::Extreme ? (i % 2 ? -128 : 127) : static_cast<int32_t>(rng() % 256) - 128);
    return *tokens;
  }
};

inline bool sameBits(float a, float b) {
  return std::bit_cast<uint32_t>(a) == std::bit_cast<uint32_t>(b);
}

/// A kernel with memory laid out at its limits.
class Call {
public:
  Call(const Problem &problem, const Target &target, const Kernel &run)
      : problem(problem), spec(problem.spec), target(target), run(run), weights(weightBytes()),
        scales(problem.packed[num::WeightTensor::Scales].size()),
        zeros(problem.packed[num::WeightTensor::ZeroPoints].size()),
        sums(problem.packed[num::WeightTensor::Sums].size()),
        minima(problem.packed[num::WeightTensor::Minima].size()),
        outer(problem.packed[num::WeightTensor::Outer].size()),
        codebook(problem.packed[num::WeightTensor::Codebook].size()), bias(problem.bias.size()) {
    if (isPacked(spec))
      copyInto(weights, problem.packed[num::WeightTensor::Codes]);
    else
      std::memcpy(weights.data(), problem.w.data(), weightBytes());
    copyInto(scales, problem.packed[num::WeightTensor::Scales]);
    copyInto(zeros, problem.packed[num::WeightTensor::ZeroPoints]);
    copyInto(sums, problem.packed[num::WeightTensor::Sums]);
    copyInto(minima, problem.packed[num::WeightTensor::Minima]);
    copyInto(outer, problem.packed[num::WeightTensor::Outer]);
    copyInto(codebook, problem.packed[num::WeightTensor::Codebook]);
    copyInto(bias, problem.bias);
  }

  /// y starts as `initial` (M x N), is strided with guard values between its rows, and comes back
  /// dense.
  std::vector<float> operator()(const std::vector<float> &x, const num::QuantizedTokens &tokens,
                                const std::vector<float> &initial, int64_t threads) {
    int64_t m = tokens.rows, n = spec.n, all = spec.weightRows(), k = spec.k,
            padded = paddedColumns(k);
    int64_t yStride = n + 3, xStride = k + 5;
    constexpr float guard = -12345.0f;
    GuardedBuffer<float> y(m * yStride - 3), xs(m * xStride - 5);
    std::ranges::fill(y.span(), guard);
    std::ranges::fill(xs.span(), std::nanf(""));
    for (int64_t i = 0; i < m; ++i) {
      std::copy_n(&initial[i * n], n, y.data() + i * yStride);
      std::copy_n(&x[i * k], k, xs.data() + i * xStride);
    }
    GuardedBuffer<int8_t> codes(m * padded);
    copyInto(codes, tokens.codes);
    GuardedBuffer<float> tokenScales(tokens.scales.size());
    copyInto(tokenScales, tokens.scales);
    GuardedBuffer<int32_t> tokenSums(m * tokens.groups), tokenZeros(tokens.zeroPoints.size());
    copyInto(tokenSums, tokens.sums);
    copyInto(tokenZeros, tokens.zeroPoints);
    // The scratch is 64-byte aligned and holds junk; NaNs and large codes must not leak out of it.
    size_t bytes = threads * scratchBytes(spec, target);
    GuardedBuffer<uint8_t> scratch((bytes + 63) / 64 * 64);
    std::ranges::fill(scratch.span(), 0xff);

    auto output = MemRef<float, 2>::strided(y.data(), {m, n}, yStride);
    MemRef<uint8_t, 1> scratchView(scratch.data(), {static_cast<int64_t>(bytes)});
    auto withOffsets = [&](auto &...args) {
      std::vector<int32_t> copy = problem.offsets;
      MemRef<int32_t, 2> offsetsView(copy.data(), {1, spec.experts + 1});
      if (spec.experts)
        run(args..., offsetsView, output, scratchView, threads);
      else
        run(args..., output, scratchView, threads);
    };
    auto withBias = [&](auto &...args) {
      MemRef<float, 1> biasView(bias.data(), {all});
      if (spec.bias)
        withOffsets(args..., biasView);
      else
        withOffsets(args...);
    };
    auto withWeights = [&](auto &...args) {
      if (!isPacked(spec)) {
        MemRef<float, 2> w(reinterpret_cast<float *>(weights.data()), {all, k});
        return withBias(args..., w);
      }
      const int64_t groups = groupCount(k, spec.groupSize);
      const bool hasSums = spec.inputZeroPoints && !spec.inputGroup;
      std::array<int64_t, 3> params = {panelCount(all), groups, kPanelRows};
      std::array<int64_t, 3> scaleShape = params;
      if (spec.numbers.scales == ScaleFormat::UI6)
        scaleShape = {panelCount(all), 1, std::ssize(scales.span()) / panelCount(all)};
      MemRef<uint8_t, 4> w(weights.data(), packedShape(spec.weights, all, k));
      std::array<int64_t, 3> fields = {panelCount(all), groups, zeroBytes()};
      // The kernel sees bytes as elements of its own type.
      MemRef<uint8_t, 3> wScales(scales.data(), scaleShape), wZeros(zeros.data(), fields);
      MemRef<uint8_t, 3> wSums(sums.data(), params), wMinima(minima.data(), params);
      std::array<int64_t, 3> rows = {panelCount(all), 1, kPanelRows};
      MemRef<uint8_t, 3> wOuter(outer.data(), rows);
      MemRef<uint8_t, 1> values(codebook.data(), {std::ssize(codebook.span()) / 4});
      if (spec.numbers.codes == CodeFormat::Table && hasSums)
        return withBias(args..., w, wScales, values, wSums);
      if (spec.numbers.codes == CodeFormat::Table)
        return withBias(args..., w, wScales, values);
      if (spec.numbers.outer)
        return withBias(args..., w, wScales, wOuter);
      if (spec.numbers.minima && hasSums)
        return withBias(args..., w, wScales, wMinima, wSums);
      if (spec.numbers.minima)
        return withBias(args..., w, wScales, wMinima);
      if (spec.zeroPoints && hasSums)
        return withBias(args..., w, wScales, wZeros, wSums);
      if (spec.zeroPoints)
        return withBias(args..., w, wScales, wZeros);
      if (hasSums)
        return withBias(args..., w, wScales, wSums);
      withBias(args..., w, wScales);
    };
    auto input = MemRef<float, 2>::strided(xs.data(), {m, k}, xStride);
    MemRef<int8_t, 2> codesView(codes.data(), {m, padded});
    MemRef<float, 1> scalesView(tokenScales.data(), {m});
    MemRef<float, 2> ownScales(tokenScales.data(), {m, tokens.groups});
    MemRef<int32_t, 2> ownZeros(tokenZeros.data(), {m, tokens.groups});
    MemRef<int32_t, 2> sumsView(tokenSums.data(), {m, tokens.groups});
    MemRef<int32_t, 1> zerosView(tokenZeros.data(), {m});
    if (!spec.quantizedInput)
      withWeights(input);
    else if (spec.inputGroup && spec.inputZeroPoints)
      withWeights(codesView, ownScales, sumsView, ownZeros);
    else if (spec.inputGroup)
      withWeights(codesView, ownScales, sumsView);
    else if (spec.inputZeroPoints)
      withWeights(codesView, scalesView, sumsView, zerosView);
    else
      withWeights(codesView, scalesView, sumsView);

    std::vector<float> result(m * n);
    for (int64_t i = 0; i < m; ++i) {
      std::copy_n(y.data() + i * yStride, n, &result[i * n]);
      for (int64_t j = n; j < yStride && i + 1 < m; ++j)
        EXPECT_EQ(y.data()[i * yStride + j], guard) << "written beyond row " << i;
    }
    return result;
  }

private:
  size_t weightBytes() const {
    return isPacked(spec) ? problem.packed[num::WeightTensor::Codes].size()
                          : problem.w.size() * sizeof(float);
  }
  /// Bytes of the zero points of a group of a panel.
  int64_t zeroBytes() const { return num::panelFieldBytes(static_cast<int>(bitsOf(spec.weights))); }

  const Problem &problem;
  const LinearSpec spec;
  const Target target;
  const Kernel &run;
  GuardedBuffer<uint8_t> weights;
  GuardedBuffer<uint8_t> scales, zeros, sums, minima, outer, codebook;
  GuardedBuffer<float> bias;
};

inline void expectIntegerLinear(const Problem &p, const num::QuantizedTokens &tokens,
                                const std::vector<float> &initial,
                                const std::vector<float> &actual) {
  std::vector<float> expected = initial;
  auto done = num::reference::integerLinear(
      tokens, p.quantized, p.spec.bias ? p.bias.data() : nullptr, p.spec.accumulate,
      num::Matrix(expected.data(), tokens.rows, p.spec.n));
  ASSERT_TRUE(done) << done.error().message;
  int64_t wrong = 0;
  for (size_t i = 0; i < expected.size() && wrong < 5; ++i)
    if (!sameBits(expected[i], actual[i])) {
      ++wrong;
      ADD_FAILURE() << "y[" << i / p.spec.n << "," << i % p.spec.n << "] is " << actual[i]
                    << ", not " << expected[i];
    }
}

/// Calls the kernel with inputs of a kind, has `expect` judge what it wrote, and wants the same
/// bits of several threads.
inline void checkLinear(
    const LinearSpec &spec, const Target &target, const Kernel &run, int64_t m, Inputs kind,
    llvm::function_ref<void(const Problem &p, const std::vector<float> &x,
                            const num::QuantizedTokens &tokens, const std::vector<float> &initial,
                            const std::vector<float> &actual)>
        expect) {
  SCOPED_TRACE(symbolName(spec) + " " + target.name().str() +
               (target.emulateDot ? " (emulated dot)" : "") + " M=" + std::to_string(m) +
               " inputs=" + std::to_string(static_cast<int>(kind)));
  Problem p(spec, static_cast<uint32_t>(m * 7919 + spec.k * 31 + spec.n), kind == Inputs::Extreme);
  Call call(p, target, run);
  std::vector<float> x = p.makeX(m, kind), initial(m * spec.n);
  for (float &v : initial)
    v = std::normal_distribution<float>()(p.rng);
  num::QuantizedTokens tokens = p.makeTokens(x, m, kind);
  std::vector<float> one = call(x, tokens, initial, 1);
  expect(p, x, tokens, initial, one);
  for (int64_t threads : {2, 3}) {
    std::vector<float> more = call(x, tokens, initial, threads);
    EXPECT_EQ(std::memcmp(one.data(), more.data(), one.size() * sizeof(float)), 0)
        << "other bits with " << threads << " threads";
  }
}

} // namespace easyquant::cpu

#endif // EASYQUANT_TEST_CODEGEN_CPU_LINEARPROBLEM_H
