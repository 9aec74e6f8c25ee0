//===- LinearTest.cpp - Linear kernels against lib/Numerics ---------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Quantized input: the bits of reference::integerLinear. Float input: kernels may add in any order,
// so each output must lie within the bound of recursive summation, gamma_{K+8} * sum |x w|
// (+ |bias| + |y|), of the double-precision reference, and be the same bits for every number of
// rows; both also the same bits for every number of threads. Buffers end at a page that must not be
// touched.
//
//===----------------------------------------------------------------------===//

#include "LinearProblem.h"

#include <set>

using namespace easyquant;
using namespace easyquant::cpu;

namespace {

double weightAt(const Problem &p, int64_t n, int64_t k) {
  int64_t at = n * p.spec.k + k;
  if (!isPacked(p.spec))
    return p.w[at];
  const num::QParams &params = p.quantized.params;
  int64_t group = n * params.groups + (p.spec.groupSize ? k / p.spec.groupSize : 0);
  return static_cast<double>(params.scales[group]) *
         num::codeValue(p.quantized.scheme, p.quantized.codes[at],
                        num::zeroPointOf(p.quantized.scheme, params, group));
}

/// What is added to that in each product.
double minimumAt(const Problem &p, int64_t n, int64_t k) {
  if (!p.spec.numbers.minima)
    return 0;
  const num::QParams &params = p.quantized.params;
  return params.minima[n * params.groups + k / p.spec.groupSize];
}

void expectFloatLinear(const Problem &p, const std::vector<float> &x, int64_t m,
                       const std::vector<float> &initial, const std::vector<float> &actual) {
  int64_t n = p.spec.n, k = p.spec.k;
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
        addTerm(weightAt(p, j, c) * x[i * k + c]);
        addTerm(minimumAt(p, j, c) * x[i * k + c]);
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

void check(const LinearSpec &spec, const Target &target, const Kernel &run, int64_t m,
           Inputs kind) {
  checkLinear(spec, target, run, m, kind,
              [m](const Problem &p, const std::vector<float> &x, const num::QuantizedTokens &tokens,
                  const std::vector<float> &initial, const std::vector<float> &actual) {
                if (p.spec.quantizedInput)
                  expectIntegerLinear(p, tokens, initial, actual);
                else
                  expectFloatLinear(p, x, m, initial, actual);
              });
}

/// Each of 13 rows of floats gets the bits that it gets alone, or with one or two others.
void checkRows(const LinearSpec &spec, const Target &target, const Kernel &run) {
  SCOPED_TRACE(target.name().str() + " " + symbolName(spec));
  constexpr int64_t kRows = 13;
  Problem p(spec, 5, /*extreme=*/false);
  const std::vector<float> x = p.makeX(kRows, Inputs::Gaussian);
  std::vector<float> initial(kRows * spec.n);
  for (size_t i = 0; i < initial.size(); ++i)
    initial[i] = static_cast<float>(i % 13) - 6.0f;
  Call call(p, target, run);
  auto rows = [&](int64_t first, int64_t count) {
    auto of = [&](const std::vector<float> &matrix, int64_t columns) {
      return std::vector<float>(matrix.begin() + first * columns,
                                matrix.begin() + (first + count) * columns);
    };
    const std::vector<float> part = of(x, spec.k);
    return call(part, p.makeTokens(part, count, Inputs::Gaussian), of(initial, spec.n), 1);
  };
  const std::vector<float> together = rows(0, kRows);
  for (int64_t count : {1, 2, 3})
    for (int64_t first = 0; first + count <= kRows; first += count) {
      const std::vector<float> alone = rows(first, count);
      ASSERT_EQ(std::memcmp(alone.data(), &together[first * spec.n], alone.size() * sizeof(float)),
                0)
          << count << " rows from " << first << " on";
    }
}

/// Minima in place of zero points, those of the weights of Q4_1, Q5_1 and the K types among them.
std::vector<LinearSpec> minimaSpecsOf(WeightFormat weights, bool quantized) {
  auto make = [&](int64_t n, int64_t k, int64_t groupSize, ScaleFormat scales) {
    LinearSpec spec{n, k, weights, groupSize, quantized};
    spec.numbers.scales = scales;
    spec.numbers.minima = true;
    return spec;
  };
  std::vector<LinearSpec> specs = {make(33, 257, 32, ScaleFormat::F16),
                                   make(37, 90, 16, ScaleFormat::F32)};
  specs[1].bias = specs[1].accumulate = true;
  specs[1].inputZeroPoints = quantized;
  if (bitsOf(weights) == 4 || bitsOf(weights) == 8)
    specs.push_back(make(65, 9, 8, ScaleFormat::F32));
  return specs;
}

/// Shapes around every boundary (vectors, groups, panels, padding) with every option of the spec;
/// compiled together.
std::vector<LinearSpec> specsOf(WeightFormat weights, bool quantized) {
  LinearSpec spec;
  spec.weights = weights;
  spec.quantizedInput = quantized;
  auto make = [&](int64_t n, int64_t k, int64_t groupSize, bool bias, bool accumulate,
                  bool zeroPoints) {
    LinearSpec made = spec;
    made.n = n;
    made.k = k;
    made.bias = bias;
    made.accumulate = accumulate;
    made.groupSize = isPacked(spec) ? groupSize : 0;
    made.zeroPoints = isPacked(spec) && zeroPoints;
    made.inputZeroPoints = quantized && zeroPoints;
    return made;
  };
  std::vector<LinearSpec> specs = {make(33, 257, 32, true, false, false),
                                   make(65, 9, 8, true, true, true)};
  // No preset has integer activations below int4: what is theirs alone is how a block unpacks.
  if (quantized && bitsOf(weights) < 4) {
    llvm::append_range(specs, minimaSpecsOf(weights, quantized));
    return specs;
  }
  specs.push_back(make(70, 104, 0, false, false, false));
  specs.push_back(make(40, 130, 48, false, true, true));
  specs.back().inputZeroPoints = false;
  specs.push_back(make(1, 1, 0, false, false, true));
  specs.push_back(make(31, 200, 0, true, true, false));
  specs.back().fullRange = isPacked(spec);
  if (!isPacked(spec))
    return specs;
  llvm::append_range(specs, minimaSpecsOf(weights, quantized));
  const std::vector<LinearSpec> integers = specs;
  for (auto [scales, zeroPoints] : {std::pair(ScaleFormat::F16, false),
                                    {ScaleFormat::BF16, true},
                                    {ScaleFormat::F8E4M3FN, false},
                                    {ScaleFormat::F8E8M0FNU, true}}) {
    specs.push_back(make(37, 90, 16, false, false, zeroPoints));
    specs.back().numbers.scales = scales;
  }
  // One short super-group, and whole ones before a short one.
  for (auto [k, zeroPoints] : {std::pair<int64_t, bool>{90, false}, {300, true}}) {
    specs.push_back(make(37, k, 16, false, false, zeroPoints));
    specs.back().numbers.scales = ScaleFormat::UI6;
  }
  // What is no integer meets floats, and has no zero points; there is none of 5 or 6 bits.
  bool onlyIntegers = quantized || weights == WeightFormat::I6 || weights == WeightFormat::I5;
  for (LinearSpec made : onlyIntegers ? std::vector<LinearSpec>() : integers) {
    if (made.zeroPoints || made.fullRange || made.numbers.minima)
      continue;
    made.numbers.codes = weights == WeightFormat::I8 ? CodeFormat::F8E4M3FN : CodeFormat::Table;
    specs.push_back(made);
    if (weights == WeightFormat::I4) {
      specs.back().numbers = {CodeFormat::F4E2M1FN, made.numbers.scales};
      specs.push_back(specs.back());
      specs.back().numbers = {CodeFormat::F4E2M1FN, ScaleFormat::F8E4M3FN, true};
    }
  }
  return specs;
}

/// The same for tables beside quantized input, which have no zero points.
std::vector<LinearSpec> tableSpecsOf(WeightFormat weights) {
  auto make = [&](int64_t n, int64_t k, int64_t groupSize, ScaleFormat scales) {
    LinearSpec spec{n, k, weights, groupSize, true};
    spec.numbers = {CodeFormat::Table, scales};
    return spec;
  };
  std::vector<LinearSpec> specs = {make(33, 257, 32, ScaleFormat::F16),
                                   make(65, 9, 8, ScaleFormat::F32)};
  specs[0].bias = specs[1].bias = specs[1].accumulate = specs[1].inputZeroPoints = true;
  if (weights == WeightFormat::I4)
    specs.insert(specs.end(),
                 {make(37, 300, 16, ScaleFormat::UI6), make(70, 104, 0, ScaleFormat::F32),
                  make(1, 1, 0, ScaleFormat::F32)});
  return specs;
}

struct Form {
  WeightFormat weights;
  bool quantizedInput;
  bool isTable = false; ///< beside quantized input
};

class Linear : public testing::TestWithParam<std::tuple<Form, int>> {
protected:
  Form form() const { return std::get<0>(GetParam()); }
  Target target() const { return testTargets()[std::get<1>(GetParam())]; }
  KernelLibrary compile(const std::vector<LinearSpec> &specs) const {
    return KernelLibrary(target(), [&](mlir::ModuleOp module) {
      return llvm::map_to_vector(
          specs, [&](const LinearSpec &spec) { return getOrEmitLinear(module, spec, target()); });
    });
  }
};

// Row counts from a lone row over all register-tile remainders to several tiles.
TEST_P(Linear, ShapesRowCountsAndInputs) {
  std::vector<LinearSpec> specs = form().isTable ? tableSpecsOf(form().weights)
                                                 : specsOf(form().weights, form().quantizedInput);
  KernelLibrary library = compile(specs);
  for (const LinearSpec &spec : specs) {
    Kernel run = library.kernel(symbolName(spec));
    for (int64_t m : {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 17, 25, 40})
      check(spec, target(), run, m, Inputs::Gaussian);
    if (!spec.quantizedInput)
      checkRows(spec, target(), run);
    for (int64_t m : {1, 3, 17})
      for (Inputs kind : {Inputs::ZeroRows, Inputs::Outliers, Inputs::Extreme})
        check(spec, target(), run, m, kind);
  }
}

// More than one slab of K, several chunks of panels, and the largest accumulators.
TEST_P(Linear, LongRows) {
  LinearSpec spec{96, 1500, form().weights, 0, form().quantizedInput, true, true};
  spec.zeroPoints = isPacked(spec) && !form().isTable;
  spec.inputZeroPoints = spec.quantizedInput;
  if (form().isTable)
    spec.numbers.codes = CodeFormat::Table;
  KernelLibrary library = compile({spec});
  for (int64_t m : {1, 3, 13})
    for (Inputs kind : {Inputs::Outliers, Inputs::Extreme})
      check(spec, target(), library.kernel(symbolName(spec)), m, kind);
  if (!spec.quantizedInput)
    checkRows(spec, target(), library.kernel(symbolName(spec)));
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
  // Zero points belong to the sums: the dot products are the same.
  LinearSpec asymmetric = w8a8;
  asymmetric.zeroPoints = asymmetric.inputZeroPoints = true;
  EXPECT_GE(countLines(disassemble(asymmetric, avx512), "vpdpbusd", "%zmm"), 12 * 13);
}

// Codes become bytes by one look-up. In the GEMV AVX2 gives them the signs of the activations.
TEST(LinearMachineCode, LooksUpBytesOfTables) {
  LinearSpec spec{64, 64, WeightFormat::I4, 32, true};
  spec.numbers.codes = CodeFormat::Table;
  const std::string avx2 = disassemble(spec, {Isa::AVX2});
  const std::string avx512 = disassemble(spec, {Isa::AVX512VNNI});
  EXPECT_GE(countLines(avx512, "vpshufb", "%zmm"), 7 * 4);
  EXPECT_GE(countLines(avx512, "vpdpbusd", "%zmm"), 6 * 7);
  EXPECT_GE(countLines(avx2, "vpshufb", "%ymm"), 2 * 8);
  EXPECT_GE(countLines(avx2, "vpsignb", "%ymm"), 8);
  EXPECT_GE(countLines(avx2, "vpmaddwd", "%ymm"), 2 * 6 * 2);
}

// Codes of two and three bits become floats by table, 32 a step in the GEMV of either form.
TEST(LinearMachineCode, LooksUpSmallCodes) {
  // LLVM writes vpermps as vpermd here and there.
  for (auto [format, permutation] :
       {std::pair(WeightFormat::I2, "vpermilps"), {WeightFormat::I3, "vperm"}}) {
    LinearSpec spec{64, 64, format, 32};
    EXPECT_GE(countLines(disassemble(spec, {Isa::AVX2}), permutation, "%ymm"), 4 * 8);
    EXPECT_GE(countLines(disassemble(spec, {Isa::AVX512VNNI}), permutation, "%zmm"), 2 * 8);
  }
}

// Wider ones become mantissas, 32 a step: no conversion is left.
TEST(LinearMachineCode, TakesIntegersAsMantissas) {
  for (WeightFormat format :
       {WeightFormat::I4, WeightFormat::I5, WeightFormat::I6, WeightFormat::I8}) {
    LinearSpec spec{64, 64, format, 32};
    std::string avx2 = disassemble(spec, {Isa::AVX2});
    std::string avx512 = disassemble(spec, {Isa::AVX512VNNI});
    EXPECT_EQ(countLines(avx2, "vcvtdq2ps", ""), 0);
    EXPECT_EQ(countLines(avx512, "vcvtdq2ps", ""), 0);
    EXPECT_GE(countLines(avx512, "vpternlogd", "%zmm"), 2 * 8);
    EXPECT_GE(countLines(avx512, "prefetcht0", ""), bitsOf(format) / 2);
  }
}

TEST(LinearSpec, SpecsHaveNamesOfTheirOwn) {
  std::set<std::string> names;
  size_t count = 0;
  for (WeightFormat format : {WeightFormat::I8, WeightFormat::I6, WeightFormat::I5,
                              WeightFormat::I4, WeightFormat::I3, WeightFormat::I2})
    for (int64_t group : {0, 32})
      for (int bits = 0; bits < 64; ++bits, ++count) {
        auto bit = [&](int i) { return (bits >> i & 1) != 0; };
        if (bit(4) && !bit(0)) { // only quantized input has zero points
          --count;
          continue;
        }
        names.insert(symbolName(
            LinearSpec{64, 64, format, group, bit(0), bit(1), bit(2), bit(3), bit(4), bit(5)}));
      }
  EXPECT_EQ(names.size(), count);
}

constexpr Form forms[] = {
    {WeightFormat::F32, false},    {WeightFormat::I8, false},      {WeightFormat::I6, false},
    {WeightFormat::I5, false},     {WeightFormat::I4, false},      {WeightFormat::I3, false},
    {WeightFormat::I2, false},     {WeightFormat::I8, true},       {WeightFormat::I6, true},
    {WeightFormat::I5, true},      {WeightFormat::I4, true},       {WeightFormat::I3, true},
    {WeightFormat::I2, true},      {WeightFormat::I4, true, true}, {WeightFormat::I3, true, true},
    {WeightFormat::I2, true, true}};

INSTANTIATE_TEST_SUITE_P(Forms, Linear,
                         testing::Combine(testing::ValuesIn(forms), testing::Values(0, 1)),
                         [](const auto &info) {
                           Form form = std::get<0>(info.param);
                           Target target = testTargets()[std::get<1>(info.param)];
                           return llvm::StringRef(nameOf(form.weights)).upper() +
                                  (form.isTable ? "table" : "") +
                                  (form.quantizedInput ? "q_" : "_") +
                                  instructionSetOf(target.isa).symbol() +
                                  (target.emulateDot ? "_emulated" : "");
                         });

} // namespace
