//===- LinearTest.cpp - Integer linears on a simulated GPU ----------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "LinearData.h"

#include "easyquant/Numerics/Quantize.h"
#include "easyquant/Numerics/Reference.h"

#include <algorithm>

using namespace easyquant;
using namespace easyquant::gpu;
using namespace easyquant::numerics;
using easyquant::gpu::paddedColumns;

namespace {

/// A linear with data: random weights, and tokens with a row of zeros and one with an outlier among
/// them when there are enough.
struct Problem {
  Problem(const LinearSpec &spec, int64_t rows) : spec(spec), rows(rows) {
    std::mt19937 random(static_cast<unsigned>(spec.n * 31 + spec.k * 7 + rows));
    std::normal_distribution<float> normal;
    weights = randomWeights(spec.n, spec.k, schemeOf(spec, /*isInt8=*/true), random);
    std::vector<float> x(rows * spec.k);
    for (int64_t i = 0; i < std::ssize(x); ++i)
      x[i] = rows > 2 && i / spec.k == 1 ? 0.0f : normal(random);
    if (rows > 2)
      x[2 * spec.k + spec.k / 2] = 1e4f;
    ConstMatrix matrix{x.data(), rows, spec.k, spec.k};
    tokens =
        spec.inputGroup ? *quantizeTokensInGroups(matrix, spec.inputGroup, !spec.inputZeroPoints)
        : spec.inputZeroPoints
            ? *quantizeTokens(matrix, {8, false, Granularity::Tensor}, 0.02f, -11, spec.groupSize)
            : *quantizeTokens(matrix, spec.groupSize);
    bias.resize(spec.n);
    for (float &v : bias)
      v = normal(random);
    y.resize(rows * spec.n);
    for (float &v : y)
      v = rounded(normal(random), spec.output);
  }

  std::vector<float> expected() const {
    std::vector<float> result = y;
    auto ok =
        reference::integerLinear(tokens, weights, spec.bias ? bias.data() : nullptr,
                                 spec.accumulate, Matrix{result.data(), rows, spec.n, spec.n});
    EXPECT_TRUE(ok) << ok.error().message;
    return rounded(result, spec.output);
  }

  /// Codes with the kernels' row length.
  std::vector<int8_t> paddedCodes() const {
    int64_t stride = paddedColumns(spec.k);
    std::vector<int8_t> padded(rows * stride);
    for (int64_t m = 0; m < rows; ++m)
      std::copy_n(tokens.codes.begin() + m * tokens.paddedColumns, spec.k,
                  padded.begin() + m * stride);
    return padded;
  }

  LinearSpec spec;
  int64_t rows;
  QuantizedMatrix weights;
  QuantizedTokens tokens;
  std::vector<float> bias, y;
};

/// y of one kernel. Its counters are zero again afterwards.
std::vector<float> compute(KernelLibrary &library, const LinearKernel &kernel, const Problem &p,
                           simt::Statistics *statistics = nullptr,
                           simt::Checks checks = simt::Checks::All, int launches = 1) {
  const LinearSpec &spec = p.spec;
  PackedWeight packed = fragmentsOf(p.weights, FragmentOrder::M16N8K32);
  simt::Device device;
  DeviceBuffer<int8_t> codes(device, p.paddedCodes(), "codes");
  DeviceBuffer<float> scales(device, p.tokens.scales, "scales");
  DeviceBuffer<int32_t> sums(device, p.tokens.sums, "sums");
  DeviceBuffer<int32_t> zeros(device, p.tokens.zeroPoints, "zeros");
  DeviceBuffer<uint8_t> w(device, packed[WeightTensor::Codes], "w");
  DeviceBuffer<uint8_t> wscales(device, packed[WeightTensor::Scales], "wscales");
  DeviceBuffer<uint8_t> wzeros(device, packed[WeightTensor::ZeroPoints], "wzeros");
  DeviceBuffer<uint8_t> wsums(device, packed[WeightTensor::Sums], "wsums");
  DeviceBuffer<uint8_t> wminima(device, packed[WeightTensor::Minima], "wminima");
  DeviceBuffer<uint8_t> codebook(device, packed[WeightTensor::Codebook], "codebook");
  DeviceBuffer<float> bias(device, p.bias, "bias");
  FloatRows y(device, p.y, p.rows, spec.n, spec.output, "y");
  std::map<std::string, Argument> arguments = {
      {"codes", codes},     {"scales", scales},           {"w", w},
      {"wscales", wscales}, {"y", Argument(y.address())}, {"y_stride", y.stride()}};
  if (spec.readsSums())
    arguments.emplace("sums", sums);
  if (spec.zeroPoints)
    arguments.emplace("wzeros", wzeros);
  if (spec.minima)
    arguments.emplace("wminima", wminima);
  if (spec.isTable())
    arguments.emplace("codebook", codebook);
  if (spec.inputZeroPoints)
    arguments.emplace("zeros", zeros);
  if (spec.inputZeroPoints && !spec.sumsWeights())
    arguments.emplace("wsums", wsums);
  if (spec.bias)
    arguments.emplace("bias", bias);
  const int64_t counterCount = kernel.counterCount(p.rows);
  DeviceBuffer<int32_t> partials(device, kernel.partialBytes(p.rows) / 4, "partials");
  DeviceBuffer<int32_t> counters(device, std::vector<int32_t>(counterCount), "counters");
  if (counterCount > 0) {
    arguments.emplace("partials", partials);
    arguments.emplace("counters", counters);
  }
  for (int i = 0; i < launches; ++i) {
    // Every other one from the last block on: whichever block ends last adds up.
    simt::Statistics found = run(device, library, kernel.description, p.rows, arguments, checks,
                                 /*backwards=*/i % 2 == 1);
    if (statistics)
      *statistics = found;
    EXPECT_EQ(counters.read(), std::vector<int32_t>(counterCount));
  }
  return y.read();
}

/// A kernel takes what it is for and one row more.
bool isFor(const LinearKernel &kernel, int64_t rows) {
  if (kernel.form == LinearKernel::Dot)
    return rows <= kernel.rows + 1;
  return kernel.tile.rows <= std::max<int64_t>(2 * rows, 16);
}

/// Every kernel of every spec, on those of `rows` that it could be taken for.
void checkAll(const std::vector<LinearSpec> &specs, const std::vector<int64_t> &rows,
              ChipId chip = ChipId::SM80) {
  KernelLibrary library(chip);
  for (const LinearSpec &spec : specs)
    for (const LinearKernel &kernel : linearKernels(spec, library.target()))
      if (std::ranges::any_of(rows, [&](int64_t m) { return isFor(kernel, m); }))
        library.add(spec, kernel);
  for (const LinearSpec &spec : specs)
    for (int64_t m : rows) {
      Problem problem(spec, m);
      std::vector<float> expected = problem.expected();
      for (const LinearKernel &kernel : linearKernels(spec, library.target())) {
        if (!isFor(kernel, m))
          continue;
        EXPECT_EQ(compute(library, kernel, problem), expected)
            << kernel.description.name << " on " << m << " rows";
      }
    }
}

LinearSpec spec(int64_t n, int64_t k, int bits, int64_t group = 0) {
  LinearSpec spec;
  spec.n = n;
  spec.k = k;
  spec.bits = bits;
  spec.groupSize = group;
  return spec;
}

} // namespace

TEST(GPULinear, EightBitsPerChannel) {
  checkAll({spec(128, 128, 8), spec(1, 1, 8), spec(33, 100, 8), spec(130, 260, 8)}, {1, 2, 3, 17});
}

TEST(GPULinear, LargeTiles) { checkAll({spec(128, 192, 8), spec(150, 80, 4)}, {65, 130}); }

TEST(GPULinear, FourBitsInGroups) {
  checkAll(
      {spec(64, 128, 4, 32), spec(33, 200, 4, 64), spec(128, 300, 4, 96), spec(40, 384, 4, 256)},
      {1, 3, 17, 70});
}

TEST(GPULinear, FewBits) {
  checkAll({spec(70, 96, 4), spec(70, 96, 2), spec(130, 200, 2, 64)}, {1, 3, 40});
}

TEST(GPULinear, BiasResidualAndZeroPoints) {
  std::vector<LinearSpec> specs;
  for (int64_t group : {0, 64}) {
    LinearSpec all = spec(50, 160, group ? 4 : 8, group);
    all.bias = all.accumulate = all.zeroPoints = all.inputZeroPoints = true;
    specs.push_back(all);
    all.inputZeroPoints = all.accumulate = false;
    specs.push_back(all);
    all.zeroPoints = all.bias = false;
    all.inputZeroPoints = all.accumulate = true;
    specs.push_back(all);
  }
  checkAll(specs, {3, 17});
}

TEST(GPULinear, ScalesOfHalfPrecisionAndPackedZeroPoints) {
  std::vector<LinearSpec> specs;
  for (int bits : {2, 4, 8})
    for (int64_t group : {0, 64})
      for (bool zeroPoints : {false, true}) {
        LinearSpec s = spec(50, 160, bits, group);
        s.zeroPoints = zeroPoints;
        s.scales = ScaleFormat::F16;
        specs.push_back(s);
        s.scales = ScaleFormat::F32;
        if (zeroPoints)
          specs.push_back(s);
      }
  checkAll(specs, {1, 3, 17});
  // Columns beyond the padding of the parameters.
  LinearSpec wide = spec(150, 128, 2, 64);
  wide.zeroPoints = true;
  wide.scales = ScaleFormat::F16;
  checkAll({wide}, {130});
}

TEST(GPULinear, EveryCodec) {
  std::vector<LinearSpec> specs, wide, withZeroPoints;
  for (const WeightCodec &codec : integerCodecs()) {
    LinearSpec s = spec(50, 360, codec.bits);
    static_cast<WeightCodec &>(s) = codec;
    specs.push_back(s);
    if (codec.isTable() || codec.zeroPoints || codec.minima) {
      withZeroPoints.push_back(s);
      withZeroPoints.back().inputZeroPoints = true;
    }
    // Columns beyond the padding of the parameters.
    s.n = 150;
    s.k = 128;
    wide.push_back(s);
  }
  checkAll(specs, {3, 33});
  checkAll(wide, {1, 130});
  checkAll(withZeroPoints, {17});
}

TEST(GPULinear, EveryCodecOnAnotherChip) {
  std::vector<LinearSpec> specs;
  for (const WeightCodec &codec : integerCodecs()) {
    specs.push_back(spec(70, 96, codec.bits));
    static_cast<WeightCodec &>(specs.back()) = codec;
  }
  checkAll(specs, {17}, ChipId::SM90a);
}

TEST(GPULinear, GroupsOfActivations) {
  // Groups of the weights are rows, those of the activations, and several of these.
  std::vector<LinearSpec> specs;
  for (int64_t group : {0, 64, 128})
    for (int64_t inputGroup : {32, 64, 128}) {
      if (group % inputGroup != 0)
        continue;
      LinearSpec s = spec(50, 328, group ? 4 : 8, group);
      s.inputGroup = inputGroup;
      s.accumulate = s.bias = group == 64;
      specs.push_back(s);
      s.bits = 4;
      s.zeroPoints = true;
      specs.push_back(s);
      if (group == 0)
        continue;
      s.zeroPoints = false;
      s.minima = true;
      specs.push_back(s);
    }
  specs.push_back(spec(130, 64, 8)); // one group in all
  specs.back().inputGroup = 64;
  for (LinearSpec s : std::vector(specs)) {
    s.inputZeroPoints = true;
    specs.push_back(s);
  }
  checkAll(specs, {3, 33});
  LinearSpec large = spec(150, 320, 4, 128), table = spec(70, 256, 4, 128);
  large.inputGroup = 32;
  large.zeroPoints = true;
  table.inputGroup = 64;
  table.codes = CodeFormat::Table;
  table.unit = 1.0f / 128;
  checkAll({large, table}, {130});
  // The last block of columns is not whole, whose padding a table has a value for.
  table.k = 200;
  table.inputZeroPoints = true;
  checkAll({table}, {1, 17, 33});
}

TEST(GPULinear, ManyGroupsInOneBlock) {
  // More groups than the dp4a kernels hold between two barriers.
  checkAll({spec(20, 32 * 70, 4, 32)}, {1, 2});
}

TEST(GPULinear, OtherChips) {
  for (ChipId chip : {ChipId::SM89, ChipId::SM90a})
    checkAll({spec(33, 100, 8), spec(128, 192, 4, 64)}, {3, 130}, chip);
}

TEST(GPULinear, MainLoopHasNoBankConflicts) {
  KernelLibrary library;
  std::vector<LinearSpec> specs = {spec(128, 512, 8), spec(128, 512, 4), spec(128, 512, 4, 128)};
  for (const LinearSpec &s : specs)
    library.add(s);
  for (const LinearSpec &s : specs) {
    Problem problem(s, 128);
    for (const LinearKernel &kernel : linearKernels(s, library.target())) {
      if (kernel.form != LinearKernel::Matrix)
        continue;
      SCOPED_TRACE(kernel.description.name);
      simt::Statistics statistics;
      compute(library, kernel, problem, &statistics, simt::Checks::None);
      EXPECT_GT(expectSmoothCopies(statistics), 0u);
    }
  }
}

TEST(GPULinear, SumsOfPartsOfColumnsAreScaledAsThoseOfAll) {
  // Two ranks have each one part of K: their int32 sums, added and scaled, are y to the bit.
  struct Case {
    LinearSpec whole;
    int64_t first; ///< columns of rank 0
    int64_t rows;
  };
  std::vector<Case> cases = {{spec(130, 260, 8), 100, 17}, {spec(33, 100, 8), 64, 3},
                             {spec(70, 96, 4), 64, 3},     {spec(70, 96, 4), 32, 17},
                             {spec(64, 96, 2), 32, 3},     {spec(50, 160, 8), 96, 3}};
  cases.back().whole.bias = cases.back().whole.accumulate = true;
  cases[2].whole.scales = ScaleFormat::F16;
  auto partOf = [](const LinearSpec &whole, int64_t columns) {
    LinearSpec part = whole;
    part.k = columns;
    part.isPartial = true;
    part.bias = part.accumulate = false;
    return part;
  };
  auto rescaleOf = [](const LinearSpec &whole) {
    return RescaleSpec{whole, whole.n, whole.bias, whole.accumulate};
  };
  KernelLibrary library;
  // Blocks of a rank share its part once more.
  auto kernelsOf = [&](const LinearSpec &part) {
    std::vector<LinearKernel> kernels = linearKernels(part, library.target());
    for (const LinearKernel &kernel : std::vector(kernels))
      if (kernel.form == LinearKernel::Matrix)
        kernels.push_back(shareColumns(part, kernel, 2));
    return kernels;
  };
  for (const Case &c : cases) {
    library.add(rescaleOf(c.whole));
    for (int64_t columns : {c.first, c.whole.k - c.first})
      for (const LinearKernel &kernel : kernelsOf(partOf(c.whole, columns)))
        if (isFor(kernel, c.rows))
          library.add(partOf(c.whole, columns), kernel);
  }
  for (const Case &c : cases) {
    SCOPED_TRACE(testing::Message() << c.whole.n << " x " << c.whole.k << ", " << c.rows);
    const LinearSpec &whole = c.whole;
    const Problem p(whole, c.rows);
    // By the number of the kernel, since each rank takes the one for its rows.
    std::map<size_t, std::vector<int32_t>> sums;
    simt::Device device;
    for (auto [from, count] : {std::pair<int64_t, int64_t>{0, c.first},
                               std::pair<int64_t, int64_t>{c.first, whole.k - c.first}}) {
      QuantizedMatrix weights = p.weights;
      weights.columns = count;
      weights.codes.clear();
      for (int64_t n = 0; n < whole.n; ++n)
        weights.codes.insert(weights.codes.end(), p.weights.codes.begin() + n * whole.k + from,
                             p.weights.codes.begin() + n * whole.k + from + count);
      std::vector<int8_t> rows(c.rows * paddedColumns(count));
      for (int64_t m = 0; m < c.rows; ++m)
        std::copy_n(p.tokens.codes.begin() + m * p.tokens.paddedColumns + from, count,
                    rows.begin() + m * paddedColumns(count));
      DeviceBuffer<int8_t> codes(device, rows, "codes");
      PackedWeight packed = fragmentsOf(weights, FragmentOrder::M16N8K32);
      DeviceBuffer<uint8_t> w(device, packed[WeightTensor::Codes], "w");
      const std::vector<LinearKernel> kernels = kernelsOf(partOf(whole, count));
      for (size_t i = 0; i < kernels.size(); ++i) {
        if (!isFor(kernels[i], c.rows))
          continue;
        DeviceBuffer<int32_t> y(device, c.rows * whole.n, "y");
        DeviceBuffer<int32_t> partials(device, kernels[i].partialBytes(c.rows) / 4, "partials");
        DeviceBuffer<int32_t> counters(
            device, std::vector<int32_t>(kernels[i].counterCount(c.rows)), "counters");
        std::map<std::string, Argument> arguments = {
            {"codes", codes}, {"w", w}, {"y", y}, {"y_stride", whole.n}};
        if (kernels[i].counterCount(c.rows) > 0) {
          arguments.emplace("partials", partials);
          arguments.emplace("counters", counters);
        }
        run(device, library, kernels[i].description, c.rows, arguments);
        EXPECT_EQ(y.unwritten(), 0u);
        const std::vector<int32_t> part = y.read();
        std::vector<int32_t> &sum = sums[i];
        sum.resize(part.size());
        for (size_t at = 0; at < part.size(); ++at)
          sum[at] += part[at];
      }
    }
    PackedWeight packed = fragmentsOf(p.weights, FragmentOrder::M16N8K32);
    DeviceBuffer<float> scales(device, p.tokens.scales, "scales"), bias(device, p.bias, "bias");
    DeviceBuffer<uint8_t> wscales(device, packed[WeightTensor::Scales], "wscales");
    EXPECT_FALSE(sums.empty());
    for (const auto &[number, sum] : sums) {
      DeviceBuffer<int32_t> added(device, sum, "sums");
      FloatRows y(device, p.y, c.rows, whole.n, Float::F32, "y");
      std::map<std::string, Argument> arguments = {
          {"sums", added},      {"sums_stride", whole.n},     {"scales", scales},
          {"wscales", wscales}, {"y", Argument(y.address())}, {"y_stride", y.stride()}};
      if (whole.bias)
        arguments.emplace("bias", bias);
      run(device, library, library.add(rescaleOf(whole)), c.rows, arguments);
      EXPECT_EQ(y.read(), p.expected()) << "kernel " << number;
    }
  }
}

TEST(GPULinear, BlocksThatShareColumnsGiveTheSameBits) {
  // K is no multiple of the parts, or of a slab; with five parts of six slabs the last one has
  // none. Columns and rows end within a tile.
  struct Case {
    LinearSpec spec;
    std::vector<int64_t> splits;
  };
  std::vector<Case> cases = {{spec(130, 360, 8), {2, 5}}, {spec(70, 1100, 4), {3, 4}}};
  LinearSpec all = spec(150, 420, 8);
  all.bias = all.accumulate = all.zeroPoints = all.inputZeroPoints = true;
  cases.push_back({all, {2}});
  LinearSpec table = spec(50, 300, 4);
  table.codes = CodeFormat::Table;
  table.unit = 1.0f / 128;
  table.output = Float::BF16;
  cases.push_back({table, {3}});
  for (ChipId chip : {ChipId::SM80, ChipId::SM90a}) {
    KernelLibrary library(chip);
    std::vector<std::pair<LinearKernel, const Case *>> kernels;
    for (const Case &c : cases)
      for (const LinearKernel &kernel : linearKernels(c.spec, library.target()))
        for (int64_t splits : c.splits)
          if (kernel.form == LinearKernel::Matrix && kernel.tile.rows <= 64) {
            kernels.emplace_back(shareColumns(c.spec, kernel, splits), &c);
            library.add(c.spec, kernels.back().first);
          }
    EXPECT_GE(kernels.size(), 2 * cases.size());
    for (const auto &[kernel, c] : kernels) {
      SCOPED_TRACE(kernel.description.name);
      Problem problem(c->spec, kernel.tile.rows + 1);
      // Several launches in a row; what adds to y is launched once.
      EXPECT_EQ(
          compute(library, kernel, problem, nullptr, simt::Checks::All, c->spec.accumulate ? 1 : 3),
          problem.expected());
    }
  }
}

TEST(GPULinear, KernelsOfOneNameAreOne) {
  for (const Chip &chip : chips())
    for (int64_t n : {96, 576, 4096, 11008})
      for (int64_t k : {64, 576, 4096, 11008})
        for (int bits : {2, 4, 8})
          for (int64_t group : {0, 64, 128})
            expectOneTileOfAName(linearKernels(spec(n, k, bits, group), chip), chip);
}

TEST(GPULinear, BlocksShareColumnsWhereThatGains) {
  const Chip h200 = chip(ChipId::SM90a);
  auto splitsOf = [](const LinearSpec &s, const Chip &chip) {
    std::vector<int64_t> splits;
    for (const LinearKernel &kernel : linearKernels(s, chip)) {
      splits.push_back(kernel.form == LinearKernel::Matrix ? kernel.tile.splits : 1);
      EXPECT_EQ(kernel.counterCount(7) > 0, splits.back() > 1) << kernel.description.name;
    }
    return splits;
  };
  const LinearSpec square = spec(4096, 4096, 8);
  const std::vector<LinearKernel> kernels = linearKernels(square, h200);
  for (int64_t rows : {32, 64, 128, 256}) {
    const LinearKernel &kernel = kernelFor(kernels, rows);
    EXPECT_GT(kernel.tile.splits, 1) << rows;
    // Every multiprocessor but a few has a block, and every part slabs.
    const std::array<uint32_t, 3> grid = kernel.description.gridFor(rows);
    EXPECT_GE(grid[0] * grid[1] * grid[2], h200.multiprocessors - 8) << rows;
    const int64_t slabs = divideCeil(square.k, kernel.tile.slab);
    EXPECT_LT(divideCeil(slabs, kernel.tile.splits) * (kernel.tile.splits - 1), slabs);
    EXPECT_EQ(kernel.partialBytes(rows),
              int64_t{4} * grid[0] * grid[1] * grid[2] * kernel.tile.rows * kernel.tile.columns);
  }
  EXPECT_EQ(kernelFor(kernels, 4096).tile.splits, 1);
  // Groups are added in their order, which blocks that share K could not do; nor is K shared where
  // there is little of it, or where memory is slow.
  LinearSpec grouped = spec(4096, 4096, 4, 128), tokens = square, fp8 = square;
  tokens.inputGroup = 128;
  fp8.codes = CodeFormat::F8E4M3FN;
  for (const LinearSpec &s : {grouped, tokens, fp8, spec(576, 576, 8)})
    EXPECT_EQ(splitsOf(s, h200), std::vector<int64_t>(splitsOf(s, h200).size(), 1));
  const std::vector<int64_t> ofSlowMemory = splitsOf(square, chip(ChipId::SM89));
  EXPECT_EQ(ofSlowMemory, std::vector<int64_t>(ofSlowMemory.size(), 1));
}

TEST(GPULinear, HalfPrecisionOutput) {
  std::vector<LinearSpec> specs;
  for (Float type : {Float::F16, Float::BF16}) {
    specs.push_back(spec(66, 64, 8));
    specs.back().output = type;
  }
  checkAll(specs, {5}, ChipId::SM90a);
}
