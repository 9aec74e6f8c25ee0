//===- ExpertsTest.cpp - Mixtures of experts on a simulated GPU -----------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "LinearData.h"

#include "easyquant/Codegen/GPU/Experts.h"
#include "easyquant/Numerics/Quantize.h"
#include "easyquant/Numerics/Reference.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

using namespace easyquant;
using namespace easyquant::gpu;
using namespace easyquant::numerics;
using easyquant::gpu::paddedColumns;

namespace {

/// Choices of rows in the order of experts, as lm.route says it.
struct Sorted {
  Sorted(const std::vector<int32_t> &choices, int64_t experts, int64_t chosen)
      : places(choices.size()), order(choices.size()), counts(experts) {
    std::vector<int32_t> sorted(choices.size());
    std::iota(sorted.begin(), sorted.end(), 0);
    std::ranges::sort(sorted, {},
                      [&](int32_t choice) { return std::pair(choices[choice], choice); });
    for (int32_t place = 0; place < std::ssize(sorted); ++place) {
      places[sorted[place]] = place;
      order[place] = sorted[place] / static_cast<int32_t>(chosen);
      ++counts[choices[sorted[place]]];
    }
  }
  /// The choices of experts with so many rows each.
  explicit Sorted(std::vector<int64_t> counts) : counts(std::move(counts)) {}

  int64_t rows() const { return std::accumulate(counts.begin(), counts.end(), int64_t{0}); }
  /// The lists; what nobody reads is -1.
  std::vector<int32_t> items() const {
    std::vector<int32_t> items((rows() + 1) * kItemStride, -1);
    for (int64_t list = 0; list < std::ssize(kItemRows); ++list) {
      int64_t number = 0, first = 0;
      auto put = [&](int64_t row, std::array<int64_t, 4> fields) {
        std::ranges::copy(fields, items.begin() + row * kItemStride + kItemFields * list);
      };
      for (int64_t expert = 0; expert < std::ssize(counts); ++expert) {
        for (int64_t done = 0; done < counts[expert]; done += kItemRows[list])
          put(++number,
              {expert, first + done, std::min(kItemRows[list], counts[expert] - done), 0});
        first += counts[expert];
      }
      put(0, {number, 0, 0, 0});
    }
    return items;
  }

  std::vector<int32_t> places, order;
  std::vector<int64_t> counts;
};

/// Rows of an expert from `first` on, of y of all of them.
std::vector<float> rowsOf(const std::vector<float> &y, int64_t first, int64_t count, int64_t n) {
  return {y.begin() + first * n, y.begin() + (first + count) * n};
}

/// The weights of one of the experts that have `n` rows each.
QuantizedMatrix expertOf(const QuantizedMatrix &all, int64_t n, int64_t expert) {
  QuantizedMatrix own = all;
  auto cut = [&](auto &values, int64_t columns) {
    if (values.empty())
      return;
    auto begin = values.begin() + expert * n * columns;
    values = {begin, begin + n * columns};
  };
  own.rows = own.params.rows = n;
  cut(own.codes, all.columns);
  cut(own.params.scales, all.params.groups);
  cut(own.params.zeroPoints, all.params.groups);
  cut(own.params.minima, all.params.groups);
  cut(own.params.outer, 1);
  return own;
}

/// The codes of all experts, of which those without rows are never written: a kernel that reads
/// them is found out.
struct ExpertCodes {
  ExpertCodes(simt::Device &device, const std::vector<uint8_t> &all,
              const std::vector<int64_t> &counts)
      : buffer(device, all.size(), "w") {
    const size_t bytes = all.size() / counts.size();
    for (size_t expert = 0; expert < counts.size(); ++expert)
      if (counts[expert] > 0)
        EXPECT_TRUE(
            device.copyIn(buffer.address() + expert * bytes, all.data() + expert * bytes, bytes));
  }
  DeviceBuffer<uint8_t> buffer;
};

void addWeights(std::map<std::string, Argument> &arguments, simt::Device &device,
                const PackedWeight &packed, std::vector<DeviceBuffer<uint8_t>> &buffers,
                std::vector<std::pair<const char *, WeightTensor>> parts) {
  for (auto [name, part] : parts) {
    buffers.emplace_back(device, packed[part], name);
    arguments.emplace(name, buffers.back());
  }
}

/// A bound of lm.route's weights: exponentials, reciprocals and sums of a warp.
constexpr double kWeightBound = 1e-5;

/// Checks the choices and weights of rows.
void checkChoices(KernelLibrary &library, const ChooseExpertsSpec &spec,
                  const std::vector<float> &logits, const std::vector<float> &bias,
                  const std::vector<float> &factors) {
  const int64_t rows = std::ssize(logits) / spec.experts;
  simt::Device device;
  FloatRows x(device, logits, rows, spec.experts, Float::F32, "logits");
  DeviceBuffer<float> biases(device, bias, "bias"), numbers(device, factors, "factors");
  DeviceBuffer<int32_t> places(device, rows * spec.chosen, "places");
  DeviceBuffer<float> weights(device, rows * spec.chosen, "weights");
  std::map<std::string, Argument> arguments = {{"logits", Argument(x.address())},
                                               {"logits_stride", x.stride()},
                                               {"places", places},
                                               {"weights", weights}};
  if (spec.bias)
    arguments.emplace("bias", biases);
  if (spec.factors)
    arguments.emplace("factors", numbers);
  Description kernel = library.add(spec);
  run(device, library, kernel, rows, arguments);
  const std::vector<int32_t> found = places.read();
  const std::vector<float> parts = weights.read();
  for (int64_t m = 0; m < rows; ++m) {
    const float *row = logits.data() + m * spec.experts;
    auto sigmoid = [](double x) { return 1 / (1 + std::exp(-x)); };
    auto score = [&](int32_t e) {
      return spec.bias ? sigmoid(row[e]) + bias[e] : static_cast<double>(row[e]);
    };
    std::vector<int32_t> best(spec.experts);
    std::iota(best.begin(), best.end(), 0);
    std::ranges::sort(best, {}, [&](int32_t e) { return std::pair(-score(e), e); });
    best.resize(spec.chosen);
    EXPECT_EQ(std::vector(found.begin() + m * spec.chosen, found.begin() + (m + 1) * spec.chosen),
              best)
        << kernel.name << ", row " << m;
    auto part = [&](int32_t e) {
      return spec.sigmoid ? sigmoid(row[e]) : std::exp(row[e] - row[best[0]]);
    };
    double sum = spec.sigmoid ? 1 : 0;
    if (spec.renormalize) {
      sum = spec.sigmoid ? 1e-20 : 0;
      for (int32_t e : best)
        sum += part(e);
    } else if (!spec.sigmoid) {
      for (int32_t e = 0; e < spec.experts; ++e)
        sum += part(e);
    }
    for (int64_t j = 0; j < spec.chosen; ++j) {
      double expected = part(best[j]) / sum * spec.scale;
      if (spec.factors)
        expected *= factors[best[j]];
      EXPECT_NEAR(parts[m * spec.chosen + j], expected, kWeightBound * std::abs(expected))
          << kernel.name << ", row " << m;
    }
  }
}

ChooseExpertsSpec choosing(int64_t experts, int64_t chosen, bool renormalize) {
  ChooseExpertsSpec spec;
  spec.experts = experts;
  spec.chosen = chosen;
  spec.renormalize = renormalize;
  return spec;
}

} // namespace

//===- Routing ------------------------------------------------------------===//

TEST(GPUExperts, Choices) {
  std::vector<ChooseExpertsSpec> specs = {choosing(8, 2, true),   choosing(5, 3, false),
                                          choosing(1, 1, true),   choosing(40, 40, true),
                                          choosing(128, 8, true), choosing(70, 33, false)};
  specs[1].factors = true;
  specs[4].scale = 2.5;
  for (bool renormalize : {false, true})
    for (bool bias : {false, true}) {
      ChooseExpertsSpec sigmoid = choosing(37, 4, renormalize);
      sigmoid.sigmoid = true;
      sigmoid.bias = bias;
      sigmoid.scale = renormalize ? 1.5 : 1;
      specs.push_back(sigmoid);
    }
  KernelLibrary library;
  for (const ChooseExpertsSpec &spec : specs)
    library.add(spec);
  std::mt19937 random(5);
  std::normal_distribution<float> normal;
  for (const ChooseExpertsSpec &spec : specs)
    for (int64_t rows : {1, 6}) {
      std::vector<float> logits(rows * spec.experts), bias(spec.experts), factors(spec.experts);
      // Rows of equal logits, and of few values; the first of equal ones is chosen.
      for (int64_t i = 0; i < std::ssize(logits); ++i) {
        const int64_t row = i / spec.experts;
        logits[i] = row == 1   ? 0.5f
                    : row == 2 ? std::floor(2 * normal(random))
                               : 3 * normal(random);
      }
      for (int64_t e = 0; e < spec.experts; ++e) {
        bias[e] = std::floor(8 * normal(random)) / 16;
        factors[e] = 1 + normal(random) / 4;
      }
      if (rows > 5 && spec.chosen < spec.experts)
        logits[5 * spec.experts] = -std::numeric_limits<float>::infinity();
      checkChoices(library, spec, logits, bias, factors);
    }
}

TEST(GPUExperts, LogitsThatAreNoNumbersChooseExpertsThatThereAre) {
  const ChooseExpertsSpec spec = choosing(5, 2, true);
  KernelLibrary library;
  Description kernel = library.add(spec);
  simt::Device device;
  FloatRows logits(device, std::vector<float>(5, std::nanf("")), 1, 5, Float::F32, "logits");
  DeviceBuffer<int32_t> places(device, 2, "places");
  DeviceBuffer<float> weights(device, 2, "weights");
  run(device, library, kernel, 1,
      {{"logits", Argument(logits.address())},
       {"logits_stride", logits.stride()},
       {"places", places},
       {"weights", weights}});
  for (int32_t expert : places.read())
    EXPECT_TRUE(expert >= 0 && expert < 5) << expert;
}

TEST(GPUExperts, SortedChoices) {
  struct Case {
    int64_t experts, chosen;
    std::vector<int64_t> rows;
  };
  KernelLibrary library;
  std::vector<std::pair<SortChoicesSpec, std::vector<int64_t>>> cases;
  for (const auto &[experts, chosen, rows] :
       {Case{5, 2, {1, 3, 64, 90}}, {40, 3, {1, 42, 700}}, {1, 1, {200}}, {4096, 2, {33}}})
    for (bool few : {false, true})
      cases.push_back({{experts, chosen, few}, rows});
  for (const auto &[spec, rows] : cases)
    library.add(spec);
  std::mt19937 random(7);
  for (const auto &[spec, allRows] : cases)
    for (int64_t rows : allRows)
      for (int64_t kind = 0; kind < 2; ++kind) {
        if (spec.few && rows * spec.chosen > kFewChoices)
          continue;
        // All of few experts, or one expert of all rows among others.
        std::vector<int32_t> choices;
        for (int64_t row = 0; row < rows; ++row) {
          std::vector<int32_t> own(spec.experts);
          std::iota(own.begin(), own.end(), 0);
          std::ranges::shuffle(own.begin() + kind, own.end(), random);
          choices.insert(choices.end(), own.begin(), own.begin() + spec.chosen);
        }
        const Sorted expected(choices, spec.experts, spec.chosen);
        simt::Device device;
        DeviceBuffer<int32_t> places(device, choices, "places");
        DeviceBuffer<int32_t> order(device, choices.size(), "order");
        std::vector<int32_t> lists = expected.items();
        DeviceBuffer<int32_t> items(device, lists.size(), "items");
        Description kernel = library.add(spec);
        run(device, library, kernel, rows,
            {{"places", places}, {"order", order}, {"items", items}});
        EXPECT_EQ(places.read(), expected.places) << kernel.name << ", rows " << rows;
        EXPECT_EQ(order.read(), expected.order);
        const size_t unread = std::ranges::count(lists, -1);
        EXPECT_EQ(items.unwritten(), unread);
        std::vector<int32_t> found = items.read();
        for (size_t i = 0; i < lists.size(); ++i)
          if (lists[i] != -1)
            ASSERT_EQ(found[i], lists[i]) << kernel.name << ", rows " << rows << ", word " << i;
      }
}

TEST(GPUExperts, CombinedRows) {
  KernelLibrary library;
  std::vector<CombineSpec> specs = {{96, 2, false}, {50, 9, true}, {7, 1, true}, {130, 17, false}};
  for (const CombineSpec &spec : specs)
    library.add(spec);
  std::mt19937 random(9);
  std::normal_distribution<float> normal;
  auto draw = [&](int64_t count) {
    std::vector<float> values(count);
    for (float &value : values)
      value = normal(random);
    return values;
  };
  for (const CombineSpec &spec : specs) {
    const int64_t rows = 3, n = spec.columns, k = spec.chosen;
    const std::vector<float> x = draw(rows * k * n), shared = draw(rows * n), gate = draw(rows),
                             weights = draw(rows * k);
    std::vector<int32_t> places(rows * k);
    std::iota(places.begin(), places.end(), 0);
    std::ranges::shuffle(places, random);
    simt::Device device;
    DeviceBuffer<int32_t> where(device, places, "places");
    DeviceBuffer<float> parts(device, weights, "weights");
    FloatRows in(device, x, rows * k, n, Float::F32, "x");
    FloatRows others(device, shared, rows, n, Float::F32, "shared");
    FloatRows gates(device, gate, rows, 1, Float::F32, "gate");
    FloatRows out(device, std::vector<float>(rows * n), rows, n, Float::F32, "y");
    std::map<std::string, Argument> arguments = {{"places", where},
                                                 {"weights", parts},
                                                 {"x", Argument(in.address())},
                                                 {"x_stride", in.stride()},
                                                 {"y", Argument(out.address())},
                                                 {"y_stride", out.stride()}};
    if (spec.shared) {
      arguments.emplace("shared", Argument(others.address()));
      arguments.emplace("shared_stride", others.stride());
      arguments.emplace("gate", Argument(gates.address()));
      arguments.emplace("gate_stride", gates.stride());
    }
    run(device, library, library.add(spec), rows, arguments);
    const std::vector<float> found = out.read();
    for (int64_t m = 0; m < rows; ++m)
      for (int64_t c = 0; c < n; ++c) {
        // In one order, each term rounded once; the gate has a bound of its own.
        float sum = 0;
        for (int64_t j = 0; j < k; ++j)
          sum = std::fma(weights[m * k + j], x[places[m * k + j] * n + c], sum);
        if (!spec.shared) {
          ASSERT_EQ(found[m * n + c], sum);
          continue;
        }
        const double term = shared[m * n + c] / (1 + std::exp(-double(gate[m])));
        ASSERT_NEAR(found[m * n + c], sum + term, 1e-6 * (std::abs(sum) + std::abs(term) + 1));
      }
  }
}

//===- Linears ------------------------------------------------------------===//

namespace {

/// Experts with none, one, some and many rows.
const std::vector<int64_t> kCounts = {0, 1, 17, 0, 20};

/// Both kernels of each spec, against the linears of the experts, to the bit.
void checkCodes(const std::vector<LinearSpec> &specs, const std::vector<int64_t> &counts,
                ChipId chip = ChipId::SM80) {
  KernelLibrary library(chip);
  for (const LinearSpec &spec : specs)
    library.add(spec);
  for (const LinearSpec &spec : specs) {
    const Sorted sorted(counts);
    const int64_t rows = sorted.rows();
    std::mt19937 random(static_cast<unsigned>(spec.n + spec.k));
    std::normal_distribution<float> normal;
    const QuantizedMatrix all =
        randomWeights(spec.weightRows(), spec.k, schemeOf(spec, /*isInt8=*/true), random);
    std::vector<float> x(rows * spec.k), bias(spec.weightRows());
    for (std::vector<float> *values : {&x, &bias})
      for (float &value : *values)
        value = normal(random);
    const ConstMatrix matrix{x.data(), rows, spec.k, spec.k};
    const QuantizedTokens tokens =
        spec.inputGroup ? *quantizeTokensInGroups(matrix, spec.inputGroup, !spec.inputZeroPoints)
        : spec.inputZeroPoints
            ? *quantizeTokens(matrix, {8, false, Granularity::Tensor}, 0.02f, -11, spec.groupSize)
            : *quantizeTokens(matrix, spec.groupSize);
    std::vector<float> expected;
    for (int64_t expert = 0; expert < spec.experts; ++expert) {
      std::vector<float> y(rows * spec.n);
      EXPECT_TRUE(reference::integerLinear(tokens, expertOf(all, spec.n, expert),
                                           spec.bias ? bias.data() + expert * spec.n : nullptr,
                                           false, Matrix{y.data(), rows, spec.n, spec.n}));
      auto own = rowsOf(y, std::ssize(expected) / spec.n, counts[expert], spec.n);
      expected.insert(expected.end(), own.begin(), own.end());
    }
    std::vector<int8_t> padded(rows * paddedColumns(spec.k));
    for (int64_t m = 0; m < rows; ++m)
      std::copy_n(tokens.codes.begin() + m * tokens.paddedColumns, spec.k,
                  padded.begin() + m * paddedColumns(spec.k));
    const PackedWeight packed = fragmentsOf(all, FragmentOrder::M16N8K32);
    for (const LinearKernel &kernel : linearKernels(spec, library.target())) {
      simt::Device device;
      DeviceBuffer<int8_t> codes(device, padded, "codes");
      DeviceBuffer<float> scales(device, tokens.scales, "scales"), biases(device, bias, "bias");
      DeviceBuffer<int32_t> sums(device, tokens.sums, "sums"),
          zeros(device, tokens.zeroPoints, "zeros"), items(device, sorted.items(), "items");
      ExpertCodes w(device, packed[WeightTensor::Codes], counts);
      FloatRows y(device, std::vector<float>(rows * spec.n), rows, spec.n, spec.output, "y");
      std::map<std::string, Argument> arguments = {
          {"codes", codes}, {"scales", scales},           {"w", w.buffer},
          {"items", items}, {"y", Argument(y.address())}, {"y_stride", y.stride()}};
      std::vector<DeviceBuffer<uint8_t>> parts;
      std::vector<std::pair<const char *, WeightTensor>> needed = {
          {"wscales", WeightTensor::Scales}};
      if (spec.zeroPoints)
        needed.emplace_back("wzeros", WeightTensor::ZeroPoints);
      if (spec.minima)
        needed.emplace_back("wminima", WeightTensor::Minima);
      if (spec.isTable())
        needed.emplace_back("codebook", WeightTensor::Codebook);
      if (spec.inputZeroPoints && !spec.sumsWeights())
        needed.emplace_back("wsums", WeightTensor::Sums);
      addWeights(arguments, device, packed, parts, needed);
      if (spec.readsSums())
        arguments.emplace("sums", sums);
      if (spec.inputZeroPoints)
        arguments.emplace("zeros", zeros);
      if (spec.bias)
        arguments.emplace("bias", biases);
      const simt::Statistics found = run(device, library, kernel.description, rows, arguments);
      if (spec.k % 32 == 0) // else rows end amid a sector
        expectSmoothCopies(found);
      EXPECT_EQ(y.read(), expected) << kernel.description.name;
    }
  }
}

LinearSpec codes(int64_t n, int64_t k, int bits, int64_t group = 0) {
  LinearSpec spec;
  spec.n = n;
  spec.k = k;
  spec.bits = bits;
  spec.groupSize = group;
  spec.experts = std::ssize(kCounts);
  return spec;
}

} // namespace

TEST(GPUExperts, LinearsOnInt8) {
  LinearSpec biased = codes(192, 96, 4, 32);
  biased.bias = biased.zeroPoints = biased.inputZeroPoints = true;
  biased.scales = ScaleFormat::F16;
  checkCodes({codes(64, 100, 8), codes(128, 160, 4, 64), biased}, kCounts);
}

TEST(GPUExperts, LinearsOnInt8OfOtherSchemes) {
  std::vector<LinearSpec> specs = {codes(64, 96, 8), codes(64, 96, 3, 32), codes(64, 128, 4, 64)};
  specs[0].inputZeroPoints = true;
  specs[1].minima = true;
  specs[1].scales = ScaleFormat::F16;
  specs[2].inputGroup = 32;
  specs[2].inputZeroPoints = true;
  checkCodes(specs, kCounts);
}

TEST(GPUExperts, OneExpertHasAllRows) { checkCodes({codes(64, 64, 8)}, {0, 0, 0, 150, 0}); }

namespace {

/// Both kernels of each spec, within the bound of WeightOnly.h against the linears of the experts,
/// and with the same bits.
void checkFloats(const std::vector<WeightOnlySpec> &specs, const std::vector<int64_t> &counts,
                 ChipId chip = ChipId::SM80) {
  KernelLibrary library(chip);
  for (const WeightOnlySpec &spec : specs)
    library.add(spec);
  for (const WeightOnlySpec &spec : specs) {
    const Sorted sorted(counts);
    const int64_t rows = sorted.rows(), n = spec.weightRows(), xStride = (spec.k + 7) / 8 * 8 + 16;
    std::mt19937 random(static_cast<unsigned>(spec.n + spec.k));
    std::normal_distribution<float> normal;
    std::vector<uint16_t> x(rows * xStride, 0x7fff), floats;
    for (int64_t m = 0; m < rows; ++m)
      for (int64_t k = 0; k < spec.k; ++k)
        x[m * xStride + k] = toHalf(normal(random), spec.input);
    PackedWeight packed;
    std::vector<float> w(n * spec.k), bias(n);
    for (float &value : bias)
      value = normal(random);
    if (spec.isFloat()) {
      for (float &value : w) {
        floats.push_back(toHalf(normal(random), spec.input));
        value = fromHalf(floats.back(), spec.input);
      }
      packed[WeightTensor::Codes].resize(floatFragmentBytes(n, spec.k));
      packFloatFragments(n, spec.k, floats.data(), packed[WeightTensor::Codes].data());
    } else {
      const QuantizedMatrix all = randomWeights(n, spec.k, schemeOf(spec), random);
      dequantize(all, Matrix{w.data(), n, spec.k, spec.k});
      packed = fragmentsOf(all, FragmentOrder::M16N8K16);
    }
    std::vector<std::vector<float>> results;
    for (const WeightOnlyKernel &kernel : weightOnlyKernels(spec, library.target())) {
      simt::Device device;
      DeviceBuffer<uint16_t> tokens(device, x, "x");
      DeviceBuffer<int32_t> items(device, sorted.items(), "items");
      DeviceBuffer<float> biases(device, bias, "bias");
      ExpertCodes codes(device, packed[WeightTensor::Codes], counts);
      FloatRows y(device, std::vector<float>(rows * spec.n), rows, spec.n, spec.output, "y");
      std::map<std::string, Argument> arguments = {
          {"x", tokens},    {"x_stride", xStride},        {"w", codes.buffer},
          {"items", items}, {"y", Argument(y.address())}, {"y_stride", y.stride()}};
      std::vector<DeviceBuffer<uint8_t>> parts;
      std::vector<std::pair<const char *, WeightTensor>> needed;
      if (!spec.isFloat())
        needed.emplace_back("wscales", WeightTensor::Scales);
      if (spec.zeroPoints)
        needed.emplace_back("wzeros", WeightTensor::ZeroPoints);
      if (spec.minima)
        needed.emplace_back("wminima", WeightTensor::Minima);
      if (spec.outer)
        needed.emplace_back("wouter", WeightTensor::Outer);
      if (spec.isTable())
        needed.emplace_back("codebook", WeightTensor::Codebook);
      addWeights(arguments, device, packed, parts, needed);
      if (spec.bias)
        arguments.emplace("bias", biases);
      const simt::Statistics found = run(device, library, kernel.description, rows, arguments);
      if (spec.k % 32 == 0) // else rows end amid a sector
        expectSmoothCopies(found);
      results.push_back(y.read());
    }
    EXPECT_EQ(results.front(), results.back()) << "n " << spec.n << ", k " << spec.k;
    int64_t row = 0;
    for (int64_t expert = 0; expert < spec.experts; ++expert)
      for (int64_t end = row + counts[expert]; row < end; ++row)
        for (int64_t c = 0; c < spec.n; ++c) {
          const int64_t at = expert * spec.n + c;
          double sum = spec.bias ? bias[at] : 0, magnitude = std::abs(sum);
          for (int64_t k = 0; k < spec.k; ++k) {
            const double term =
                double(fromHalf(x[row * xStride + k], spec.input)) * w[at * spec.k + k];
            sum += term;
            magnitude += std::abs(term);
          }
          double bound = (static_cast<double>(spec.k) / 8 + 32) * 0x1p-22 * magnitude + 0x1p-25;
          if (spec.isTable()) // whose values are rounded
            bound += 0x1p-8 * magnitude;
          ASSERT_NEAR(results.front()[row * spec.n + c], sum, bound)
              << "row " << row << ", column " << c;
        }
  }
}

WeightOnlySpec floats(int64_t n, int64_t k, int bits, int64_t group = 0) {
  WeightOnlySpec spec;
  spec.n = n;
  spec.k = k;
  spec.bits = bits;
  spec.groupSize = group;
  spec.experts = std::ssize(kCounts);
  return spec;
}

} // namespace

TEST(GPUExperts, LinearsOnFloats) {
  WeightOnlySpec biased = floats(192, 96, 4, 32);
  biased.bias = biased.zeroPoints = true;
  biased.scales = ScaleFormat::F16;
  checkFloats({floats(64, 100, 16), floats(24, 96, 16), floats(64, 160, 8), biased}, kCounts);
}

TEST(GPUExperts, LinearsOnFloatsOfOtherSchemes) {
  std::vector<WeightOnlySpec> specs;
  for (const WeightCodec &codec : floatCodecs()) {
    // One of each kind: bits in two planes, FP4 of both scales, a table, two levels, minima.
    const bool isKind =
        (codec.bits == 5 && codec.zeroPoints) || codec.outer ||
        codec.scales == ScaleFormat::F8E8M0FNU || (codec.isTable() && codec.bits == 4) ||
        (codec.scales == ScaleFormat::UI6 && codec.zeroPoints) || (codec.minima && codec.bits == 4);
    if (!isKind)
      continue;
    WeightOnlySpec spec = floats(64, 96, codec.bits);
    static_cast<WeightCodec &>(spec) = codec;
    spec.bias = codec.outer;
    specs.push_back(spec);
  }
  ASSERT_EQ(specs.size(), 6u);
  checkFloats(specs, {0, 1, 3, 0, 18});
}

/// Which other rows chose an expert changes no bit of a row.
TEST(GPUExperts, RowsDoNotKnowEachOther) {
  // Beside LinearsOnFloats, where both kernels agree: the grid, and so who takes an item, is the
  // same for all numbers of rows.
  const WeightOnlySpec spec = floats(64, 64, 4, 32);
  for (const WeightOnlyKernel &kernel : weightOnlyKernels(spec, chip(ChipId::SM80)))
    EXPECT_EQ(kernel.description.gridFor(1), kernel.description.gridFor(4096));
}
