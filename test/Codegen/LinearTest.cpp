//===- LinearTest.cpp - Linear kernels against lib/Numerics ---------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Quantized input: the bits of reference::integerLinear. Float input: kernels may add in any order,
// so each output must lie within the bound of recursive summation, gamma_{K+8} * sum |x w| (+
// |bias|
// + |y|), of the double-precision reference; both also the same bits for every number of threads.
// Buffers end at a page that must not be touched.
//
//===----------------------------------------------------------------------===//

#include "GuardedBuffer.h"
#include "KernelRunner.h"

#include "easyquant/Numerics/Packing.h"
#include "easyquant/Numerics/Reference.h"
#include "easyquant/Numerics/ScaleRules.h"

#include <cmath>
#include <gtest/gtest.h>
#include <random>
#include <span>

using namespace easyquant;
using namespace easyquant::cpu;
namespace num = easyquant::numerics;

namespace {

template <typename T, typename U>
void copyInto(GuardedBuffer<T> &buffer, const std::vector<U> &values) {
  static_assert(sizeof(T) == sizeof(U));
  ASSERT_EQ(values.size(), buffer.elementCount());
  if (!values.empty())
    std::memcpy(buffer.data(), values.data(), values.size() * sizeof(T));
}

enum class Inputs { Gaussian, ZeroRows, Outliers, Extreme };

struct Problem {
  LinearSpec spec;
  std::vector<float> w, bias;
  num::QuantizedMatrix quantized; ///< not for F32
  num::PackedWeights packed;
  std::mt19937 rng;

  Problem(const LinearSpec &spec, uint32_t seed, bool extreme = false) : spec(spec), rng(seed) {
    std::normal_distribution<float> gauss;
    w.resize(spec.n * spec.k);
    for (float &v : w)
      v = extreme ? (rng() % 4 ? 1.0f : -1.0f) : 0.05f * gauss(rng);
    bias.resize(spec.n);
    for (float &v : bias)
      v = gauss(rng);
    if (spec.weights == WeightFormat::F32)
      return;
    num::Scheme scheme;
    scheme.bits = spec.weights == WeightFormat::I8 ? 8 : 4;
    scheme.granularity = spec.groupSize ? num::Granularity::Group : num::Granularity::Channel;
    scheme.groupSize = spec.groupSize;
    quantized = *num::quantize({w.data(), spec.n, spec.k}, scheme, {});
    packed = num::packPanels(*num::panelLayout(scheme, spec.n, spec.k), quantized);
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
        if (kind == Inputs::Extreme) // every code +-127: the largest accumulators there are
          v = i % 2 ? 1.0f : -1.0f;
      }
    return x;
  }
};

bool sameBits(float a, float b) { return std::bit_cast<uint32_t>(a) == std::bit_cast<uint32_t>(b); }

/// A kernel with memory laid out at its limits.
class Call {
public:
  Call(const Problem &problem, const Target &target, const KernelRunner &run)
      : problem(problem), spec(problem.spec), target(target), run(run), weights(weightBytes()),
        scales(problem.packed.scales.size()), bias(spec.n) {
    bool isFloat = spec.weights == WeightFormat::F32;
    if (isFloat)
      std::memcpy(weights.data(), problem.w.data(), weightBytes());
    else
      copyInto(weights, problem.packed.codes);
    copyInto(scales, problem.packed.scales);
    copyInto(bias, problem.bias);
  }

  /// y starts as `initial` (M x N), is strided with guard values between its rows, and comes back
  /// dense.
  std::vector<float> operator()(const std::vector<float> &x, const num::QuantizedTokens &tokens,
                                const std::vector<float> &initial, int64_t threads) {
    int64_t m = tokens.rows, n = spec.n, k = spec.k, padded = paddedColumns(k);
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
    GuardedBuffer<float> tokenScales(m);
    copyInto(tokenScales, tokens.scales);
    GuardedBuffer<int32_t> sums(m * tokens.groups);
    copyInto(sums, tokens.sums);
    // The scratch is 64-byte aligned and holds junk; NaNs and large codes must not leak out of it.
    size_t bytes = threads * scratchBytes(spec, target);
    GuardedBuffer<uint8_t> scratch((bytes + 63) / 64 * 64);
    std::ranges::fill(scratch.span(), 0xff);

    auto input = MemRef<float, 2>::strided(xs.data(), {m, k}, xStride);
    MemRef<int8_t, 2> codesView(codes.data(), {m, padded});
    MemRef<float, 1> scalesView(tokenScales.data(), {m});
    MemRef<int32_t, 2> sumsView(sums.data(), {m, tokens.groups});
    auto output = MemRef<float, 2>::strided(y.data(), {m, n}, yStride);
    MemRef<uint8_t, 1> scratchView(scratch.data(), {static_cast<int64_t>(bytes)});
    auto withWeights = [&](auto &...first) {
      auto rest = [&](auto &...weightArgs) {
        MemRef<float, 1> biasView(bias.data(), {n});
        if (spec.bias)
          run(first..., weightArgs..., biasView, output, scratchView, threads);
        else
          run(first..., weightArgs..., output, scratchView, threads);
      };
      if (spec.weights == WeightFormat::F32) {
        MemRef<float, 2> w(reinterpret_cast<float *>(weights.data()), {n, k});
        return rest(w);
      }
      int64_t panels = panelCount(n), blocks = padded / (spec.weights == WeightFormat::I8 ? 4 : 8);
      MemRef<uint8_t, 4> w(weights.data(), {panels, blocks, kPanelRows, 4});
      MemRef<float, 3> wScales(scales.data(), {panels, tokens.groups, kPanelRows});
      rest(w, wScales);
    };
    if (spec.quantizedInput)
      withWeights(codesView, scalesView, sumsView);
    else
      withWeights(input);

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
    return spec.weights == WeightFormat::F32 ? problem.w.size() * sizeof(float)
                                             : problem.packed.codes.size();
  }

  const Problem &problem;
  const LinearSpec spec;
  const Target target;
  const KernelRunner &run;
  GuardedBuffer<uint8_t> weights;
  GuardedBuffer<float> scales, bias;
};

void expectIntegerLinear(const Problem &p, const num::QuantizedTokens &tokens,
                         const std::vector<float> &initial, const std::vector<float> &actual) {
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

void expectFloatLinear(const Problem &p, const std::vector<float> &x, int64_t m,
                       const std::vector<float> &initial, const std::vector<float> &actual) {
  int64_t n = p.spec.n, k = p.spec.k, size = p.spec.groupSize ? p.spec.groupSize : k;
  // Each product meets at most K additions, the scale, the bias and y: |error| <= gamma * sum |.|.
  double gamma = static_cast<double>(k + 8) * 0x1p-24 * 1.01;
  int64_t wrong = 0;
  for (int64_t i = 0; i < m; ++i)
    for (int64_t j = 0; j < n && wrong < 5; ++j) {
      double sum = 0.0, magnitude = 0.0;
      auto addTerm = [&](double term) {
        sum += term;
        magnitude += std::fabs(term);
      };
      for (int64_t c = 0; c < k; ++c) {
        double weight = p.w[j * k + c];
        if (p.spec.weights != WeightFormat::F32)
          weight = static_cast<double>(p.quantized.codes[j * k + c]) *
                   p.quantized.params.scales[j * p.quantized.params.groups + c / size];
        addTerm(weight * x[i * k + c]);
      }
      if (p.spec.bias)
        addTerm(p.bias[j]);
      if (p.spec.accumulate)
        addTerm(initial[i * n + j]);
      double error = std::fabs(actual[i * n + j] - sum);
      if (!(error <= gamma * magnitude)) {
        ++wrong;
        ADD_FAILURE() << "y[" << i << "," << j << "] is " << actual[i * n + j] << ", not " << sum
                      << ": off by " << error << ", bound " << gamma * magnitude;
      }
    }
}

void check(const LinearSpec &spec, const Target &target, const KernelRunner &run, int64_t m,
           Inputs kind) {
  SCOPED_TRACE(symbolName(spec) + " " + target.name().str() +
               (target.emulateDot ? " (emulated dot)" : "") + " M=" + std::to_string(m) +
               " inputs=" + std::to_string(static_cast<int>(kind)));
  Problem p(spec, static_cast<uint32_t>(m * 7919 + spec.k * 31 + spec.n), kind == Inputs::Extreme);
  Call call(p, target, run);
  std::vector<float> x = p.makeX(m, kind), initial(m * spec.n);
  for (float &v : initial)
    v = std::normal_distribution<float>()(p.rng);
  auto tokens = num::quantizeTokens({x.data(), m, spec.k}, spec.groupSize);
  ASSERT_TRUE(tokens) << tokens.error().message;
  std::vector<float> one = call(x, *tokens, initial, 1);
  if (spec.quantizedInput)
    expectIntegerLinear(p, *tokens, initial, one);
  else
    expectFloatLinear(p, x, m, initial, one);
  for (int64_t threads : {2, 3}) {
    std::vector<float> more = call(x, *tokens, initial, threads);
    EXPECT_EQ(std::memcmp(one.data(), more.data(), one.size() * sizeof(float)), 0)
        << "other bits with " << threads << " threads";
  }
}

struct Form {
  const char *name;
  WeightFormat weights;
  bool quantizedInput;
  int64_t groupSize;
};

class Linear : public testing::TestWithParam<std::tuple<Form, int>> {
protected:
  Target target() const { return testTargets()[std::get<1>(GetParam())]; }
  LinearSpec spec(int64_t n, int64_t k) const {
    const Form &form = std::get<0>(GetParam());
    return {n, k, form.weights, form.groupSize, form.quantizedInput, false, false};
  }
  void run(const LinearSpec &spec, std::initializer_list<int64_t> rowCounts,
           std::initializer_list<Inputs> kinds) const {
    KernelRunner runner(
        target(), [&](mlir::ModuleOp module) { return getOrEmitLinear(module, spec, target()); });
    for (int64_t m : rowCounts)
      for (Inputs kind : kinds)
        check(spec, target(), runner, m, kind);
  }
};

// Every row count from a lone row over all register-tile remainders to several tiles.
TEST_P(Linear, AllRowCounts) {
  run(spec(70, 104), {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 17, 25, 40}, {Inputs::Gaussian});
}

TEST_P(Linear, Inputs) {
  run(spec(33, 200), {1, 2, 3, 17}, {Inputs::ZeroRows, Inputs::Outliers, Inputs::Extreme});
}

TEST_P(Linear, BiasAndAccumulate) {
  for (auto [bias, accumulate] : {std::pair(true, false), {false, true}, {true, true}}) {
    LinearSpec s = spec(45, 64);
    s.bias = bias;
    s.accumulate = accumulate;
    run(s, {1, 2, 8}, {Inputs::Gaussian});
  }
}

// Shapes around every boundary: vectors, groups, panels, padding.
TEST_P(Linear, Shapes) {
  for (auto [n, k] : {std::pair<int64_t, int64_t>{1, 1}, {8, 7}, {31, 9}, {65, 257}, {40, 130}}) {
    LinearSpec s = spec(n, k);
    s.bias = k % 2;
    run(s, {1, 2, 7, 17}, {Inputs::Gaussian});
  }
}

// More than one slab of K, several chunks of panels, and the largest accumulators.
TEST_P(Linear, LongRows) {
  LinearSpec s = spec(96, 1500);
  s.bias = s.accumulate = true;
  run(s, {1, 3, 13}, {Inputs::Outliers, Inputs::Extreme});
}

/// The disassembly of a kernel, which this CPU need not be able to run.
std::string disassemble(const LinearSpec &spec, const Target &target) {
  KernelRunner runner(target,
                      [&](mlir::ModuleOp module) { return getOrEmitLinear(module, spec, target); });
  std::string command = EASYQUANT_OBJDUMP " -d --no-show-raw-insn " + runner.objectPath(), text;
  FILE *pipe = popen(command.c_str(), "r");
  if (!pipe)
    return text;
  char buffer[4096];
  while (size_t count = fread(buffer, 1, sizeof(buffer), pipe))
    text.append(buffer, count);
  EXPECT_EQ(pclose(pipe), 0) << command;
  return text;
}

/// Lines that hold both words.
int64_t countLines(const std::string &text, llvm::StringRef first, llvm::StringRef second) {
  llvm::SmallVector<llvm::StringRef> lines;
  llvm::StringRef(text).split(lines, '\n');
  return llvm::count_if(
      lines, [&](llvm::StringRef line) { return line.contains(first) && line.contains(second); });
}

// The instructions that the kernels stand on; all other tests run on the emulated dot product where
// the CPU lacks it.
TEST(LinearMachineCode, MultipliesWithTheInstructionsOfTheTarget) {
  Target avx2{Isa::AVX2}, avx512{Isa::AVX512VNNI};
  LinearSpec w8a8{64, 64, WeightFormat::I8, 0, true}, w4a8{64, 64, WeightFormat::I4, 32, true};
  for (const LinearSpec &spec : {w8a8, w4a8}) {
    std::string code = disassemble(spec, avx512);
    // Tiles of 1 to R rows by two vectors (R = 12, with groups 6), and the GEMV.
    EXPECT_GE(countLines(code, "vpdpbusd", "%zmm"), spec.groupSize ? 6 * 7 : 12 * 13);
    EXPECT_EQ(countLines(code, "vpmulld", ""), 0);
    EXPECT_EQ(countLines(disassemble(spec, avx2), "%zmm", ""), 0);
  }
  // In the largest tile, two steps of six rows by two vectors.
  EXPECT_GE(countLines(disassemble(w8a8, avx2), "vpmaddwd", "%ymm"), 2 * 6 * 2);
  EXPECT_GE(countLines(disassemble(w4a8, avx2), "vpmaddubsw", "%ymm"), 2 * 6 * 2);
}

constexpr Form forms[] = {
    {"F32", WeightFormat::F32, false, 0},     {"I8", WeightFormat::I8, false, 0},
    {"I8g32", WeightFormat::I8, false, 32},   {"I4", WeightFormat::I4, false, 0},
    {"I4g32", WeightFormat::I4, false, 32},   {"I4g48", WeightFormat::I4, false, 48},
    {"I4g128", WeightFormat::I4, false, 128}, {"I8q", WeightFormat::I8, true, 0},
    {"I8g64q", WeightFormat::I8, true, 64},   {"I4q", WeightFormat::I4, true, 0},
    {"I4g8q", WeightFormat::I4, true, 8},     {"I4g32q", WeightFormat::I4, true, 32},
    {"I4g48q", WeightFormat::I4, true, 48},   {"I4g128q", WeightFormat::I4, true, 128},
};

INSTANTIATE_TEST_SUITE_P(Forms, Linear,
                         testing::Combine(testing::ValuesIn(forms), testing::Values(0, 1)),
                         [](const auto &info) {
                           Target target = testTargets()[std::get<1>(info.param)];
                           return std::string(std::get<0>(info.param).name) + "_" +
                                  target.name().str() + (target.emulateDot ? "_emulated" : "");
                         });

} // namespace
