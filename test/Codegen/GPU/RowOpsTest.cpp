//===- RowOpsTest.cpp - Row operations on a simulated GPU -----------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "RowOpData.h"

#include "easyquant/Numerics/Hadamard.h"
#include "easyquant/Numerics/Quantize.h"

#include <cmath>
#include <cstring>

using namespace easyquant;
using namespace easyquant::gpu;
using namespace easyquant::numerics;
using easyquant::gpu::paddedColumns;

namespace {

constexpr RowOp kOps[] = {RowOp::Quantize, RowOp::RmsNorm, RowOp::LayerNorm,  RowOp::SiluMul,
                          RowOp::GeluMul,  RowOp::Mul,     RowOp::SigmoidMul, RowOp::GeluTanh,
                          RowOp::GeluErf,  RowOp::Add,     RowOp::Multiply,   RowOp::SoftCap,
                          RowOp::Copy,     RowOp::AddBias, RowOp::Gather,     RowOp::ClampedMul};
/// One warp a row, several warps, a register-resident row of 1024 threads, a row read again.
constexpr int64_t kColumns[] = {1, 7, 16, 64, 100, 578, 4096, 36868};

/// body(inputs, rows, columns), of the widest rows only one.
template <typename Body> void forInputs(Body body) {
  for (int64_t columns : kColumns)
    for (int64_t rows : {1, 7})
      if (rows == 1 || rows * columns <= 40000)
        body(RowInputs(rows, columns), rows, columns);
}

/// y of the kernel without quantization.
std::vector<float> runFloat(KernelLibrary &library, const RowSpec &spec, const RowInputs &in) {
  simt::Device device;
  DeviceRows inputs(device, in, spec.op);
  DeviceBuffer<float> y(device, in.rows * in.columns, "y");
  inputs.arguments.emplace("y", y);
  inputs.arguments.emplace("y_stride", in.columns);
  run(device, library, library.add(spec), in.rows, inputs.arguments);
  EXPECT_EQ(y.unwritten(), 0u);
  return y.read();
}

struct Codes {
  std::vector<int8_t> codes;
  std::vector<float> scales;
  std::vector<int32_t> sums, zeros;
};

Codes runQuantized(KernelLibrary &library, const RowSpec &spec, const RowInputs &in,
                   float scale = 1, int32_t zero = 0) {
  simt::Device device;
  DeviceRows inputs(device, in, spec.op);
  int64_t groups = groupCount(in.columns, spec.groupSize);
  bool isStatic = spec.quantization == RowQuantization::Static;
  DeviceBuffer<int8_t> codes(device, in.rows * paddedColumns(in.columns), "codes");
  DeviceBuffer<float> scales(device, in.rows * groupCount(in.columns, spec.scaleGroup), "scales");
  DeviceBuffer<int32_t> sums(device, in.rows * groups, "sums"),
      zeros(device, in.rows * groupCount(in.columns, spec.scaleGroup), "zeros");
  DeviceBuffer<float> scaleIn(device, std::vector<float>{scale});
  DeviceBuffer<int32_t> zeroIn(device, std::vector<int32_t>{zero});
  inputs.arguments.emplace("codes", codes);
  inputs.arguments.emplace("scales", scales);
  if (isStatic)
    inputs.arguments.emplace("scale", scaleIn);
  if (spec.zeroPoints && isStatic)
    inputs.arguments.emplace("zero", zeroIn);
  if (spec.zeroPoints)
    inputs.arguments.emplace("zeros", zeros);
  if (spec.sums)
    inputs.arguments.emplace("sums", sums);
  run(device, library, library.add(spec), in.rows, inputs.arguments);
  EXPECT_EQ(codes.unwritten() + scales.unwritten(), 0u);
  EXPECT_TRUE(!spec.sums || sums.unwritten() == 0);
  EXPECT_TRUE(!spec.zeroPoints || zeros.unwritten() == 0);
  return {codes.read(), scales.read(), spec.sums ? sums.read() : std::vector<int32_t>(),
          spec.zeroPoints ? zeros.read() : std::vector<int32_t>()};
}

void expectEqual(const Codes &found, const QuantizedTokens &expected, bool sums) {
  EXPECT_EQ(found.scales, expected.scales);
  EXPECT_EQ(found.zeros, expected.zeroPoints);
  if (sums)
    EXPECT_EQ(found.sums, expected.sums);
  int64_t stride = paddedColumns(expected.columns), wrong = 0;
  for (int64_t m = 0; m < expected.rows; ++m)
    for (int64_t k = 0; k < stride; ++k)
      wrong += found.codes[m * stride + k] !=
               (k < expected.columns ? expected.codes[m * expected.paddedColumns + k] : 0);
  EXPECT_EQ(wrong, 0) << "codes of " << expected.rows << " x " << expected.columns;
}

} // namespace

TEST(GPURowOps, FloatsAreWithinBounds) {
  KernelLibrary library;
  for (int64_t columns : kColumns)
    for (RowOp op : kOps)
      if (op != RowOp::Quantize)
        library.add(specOf(op, columns));
  forInputs([&](const RowInputs &in, int64_t rows, int64_t columns) {
    for (RowOp op : kOps) {
      if (op == RowOp::Quantize)
        continue;
      std::vector<float> y = runFloat(library, specOf(op, columns), in);
      std::vector<double> expected = expectedOf(op, in);
      double worst = 0;
      for (size_t i = 0; i < y.size(); ++i) {
        // Sums of C terms in f32 by halving, and exponentials whose error grows with |x|.
        double scale = std::max(std::abs(expected[i]), 1e-3);
        if (op == RowOp::LayerNorm) // cancellation where a row is almost constant
          scale = std::max(scale, std::abs(double(in.bias[i % columns])) + 1);
        worst = std::max(worst, std::abs(y[i] - expected[i]) / scale);
      }
      EXPECT_LT(worst, 2e-5) << int(op) << " on " << rows << " x " << columns;
    }
  });
}

TEST(GPURowOps, DynamicCodesAreThoseOfTheFloats) {
  KernelLibrary library;
  auto quantized = [](RowOp op, int64_t columns) {
    RowSpec spec = specOf(op, columns);
    spec.quantization = RowQuantization::Dynamic;
    spec.sums = columns % 3 != 0;
    spec.groupSize = columns > 100 ? (columns == 578 ? 48 : 128) : 0;
    return spec;
  };
  for (int64_t columns : kColumns)
    for (RowOp op : kOps) {
      library.add(quantized(op, columns));
      if (op != RowOp::Quantize)
        library.add(specOf(op, columns));
    }
  forInputs([&](const RowInputs &in, int64_t rows, int64_t columns) {
    for (RowOp op : kOps) {
      SCOPED_TRACE(testing::Message() << int(op) << " on " << rows << " x " << columns);
      RowSpec spec = quantized(op, columns);
      std::vector<float> y;
      ConstMatrix values = in.matrix(in.a);
      if (op != RowOp::Quantize) {
        y = runFloat(library, specOf(op, columns), in);
        values = {y.data(), rows, columns, columns};
      }
      auto expected = quantizeTokens(values, spec.groupSize);
      ASSERT_TRUE(expected) << expected.error().message;
      expectEqual(runQuantized(library, spec, in), *expected, spec.sums);
    }
  });
}

TEST(GPURowOps, GroupsOfColumnsHaveScalesOfTheirOwn) {
  KernelLibrary library;
  // Norms of rows that are spread in another way have other last bits.
  constexpr RowOp kTested[] = {RowOp::Quantize, RowOp::AddBias, RowOp::SiluMul};
  auto quantized = [](RowOp op, int64_t columns, int64_t group) {
    RowSpec spec = specOf(op, columns);
    spec.quantization = RowQuantization::Dynamic;
    spec.scaleGroup = group;
    spec.zeroPoints = op == RowOp::SiluMul || group == 64;
    spec.sums = columns % 3 != 0;
    spec.groupSize = spec.sums ? group : 0;
    if (columns % 64 == 0)
      spec.hadamard = 64;
    return spec;
  };
  auto floats = [&](RowOp op, int64_t columns) {
    RowSpec spec = specOf(op == RowOp::Quantize ? RowOp::Copy : op, columns);
    spec.hadamard = quantized(op, columns, 32).hadamard;
    return spec;
  };
  for (int64_t columns : kColumns)
    for (RowOp op : kTested) {
      library.add(floats(op, columns));
      for (int64_t group : kTokenGroups)
        library.add(quantized(op, columns, group));
    }
  forInputs([&](const RowInputs &in, int64_t rows, int64_t columns) {
    for (RowOp op : kTested) {
      const std::vector<float> y = runFloat(library, floats(op, columns), in);
      for (int64_t group : kTokenGroups) {
        SCOPED_TRACE(testing::Message()
                     << int(op) << " on " << rows << " x " << columns << " in " << group);
        const RowSpec spec = quantized(op, columns, group);
        auto expected =
            quantizeTokensInGroups({y.data(), rows, columns, columns}, group, !spec.zeroPoints);
        ASSERT_TRUE(expected) << expected.error().message;
        expectEqual(runQuantized(library, spec, in), *expected, spec.sums);
      }
    }
  });
}

TEST(GPURowOps, StaticCodesAreThoseOfTheFloats) {
  KernelLibrary library;
  struct Case {
    bool zeroPoints, fullRange;
    float scale;
    int32_t zero;
    bool sinks = false;
  };
  const Case cases[] = {{false, false, 0.02f, 0},        {false, true, 0.01f, 0},
                        {true, false, 0.03f, -37},       {true, false, 0.03f, 127},
                        {false, false, 0.02f, 0, true},  {false, true, 0.01f, 0, true},
                        {true, false, 0.03f, -37, true}, {true, false, 0.03f, 127, true}};
  auto quantized = [](RowOp op, int64_t columns, const Case &c) {
    RowSpec spec = specOf(op, columns);
    spec.quantization = RowQuantization::Static;
    spec.zeroPoints = c.zeroPoints;
    spec.fullRange = c.fullRange;
    spec.sinks = c.sinks;
    spec.sums = true;
    return spec;
  };
  for (int64_t columns : {7, 100, 578})
    for (RowOp op : {RowOp::Quantize, RowOp::LayerNorm, RowOp::SiluMul}) {
      if (op != RowOp::Quantize)
        library.add(specOf(op, columns));
      for (const Case &c : cases)
        library.add(quantized(op, columns, c));
    }
  for (int64_t columns : {7, 100, 578})
    for (RowOp op : {RowOp::Quantize, RowOp::LayerNorm, RowOp::SiluMul})
      for (const Case &c : cases) {
        SCOPED_TRACE(testing::Message() << int(op) << ", " << columns << ", zero " << c.zero);
        RowInputs in(7, columns);
        std::vector<float> y;
        ConstMatrix values = in.matrix(in.a);
        if (op != RowOp::Quantize) {
          y = runFloat(library, specOf(op, columns), in);
          values = {y.data(), 7, columns, columns};
        }
        Scheme scheme{8, !c.zeroPoints, Granularity::Tensor, 0, false, c.fullRange};
        scheme.sinks = c.sinks;
        auto expected = quantizeTokens(values, scheme, c.scale, c.zero, 0);
        ASSERT_TRUE(expected) << expected.error().message;
        expectEqual(runQuantized(library, quantized(op, columns, c), in, c.scale, c.zero),
                    *expected, true);
      }
}

TEST(GPURowOps, HalvesAreReadAndWritten) {
  KernelLibrary library(ChipId::SM90a);
  constexpr int64_t kRows = 3, kWide = 1032;
  auto specs = [&](Float type) {
    RowSpec floats = specOf(RowOp::RmsNorm, kWide), codes = floats;
    floats.input = floats.output = codes.input = type;
    codes.quantization = RowQuantization::Dynamic;
    return std::pair(floats, codes);
  };
  for (Float type : {Float::F16, Float::BF16}) {
    library.add(specs(type).first);
    library.add(specs(type).second);
  }
  for (Float type : {Float::F16, Float::BF16}) {
    RowInputs in(kRows, kWide);
    std::vector<uint16_t> halves;
    for (float &x : in.a) {
      halves.push_back(toHalf(x, type));
      x = fromHalf(halves.back(), type);
    }
    std::vector<double> expected = expectedOf(RowOp::RmsNorm, in);
    simt::Device device;
    DeviceBuffer<uint16_t> x(device, halves), y(device, kRows * kWide, "y");
    DeviceBuffer<float> weight(device, in.weight), scales(device, kRows, "scales");
    DeviceBuffer<int8_t> codes(device, kRows * paddedColumns(kWide), "codes");
    run(device, library, library.add(specs(type).first), kRows,
        {{"x", x}, {"x_stride", in.stride}, {"weight", weight}, {"y", y}, {"y_stride", kWide}});
    run(device, library, library.add(specs(type).second), kRows,
        {{"x", x},
         {"x_stride", in.stride},
         {"weight", weight},
         {"codes", codes},
         {"scales", scales}});
    std::vector<uint16_t> result = y.read();
    std::vector<int8_t> quantized = codes.read();
    std::vector<float> scale = scales.read();
    double unit = type == Float::F16 ? 0x1p-11 : 0x1p-8;
    for (int64_t i = 0; i < kRows * kWide; ++i) {
      EXPECT_NEAR(fromHalf(result[i], type), expected[i],
                  1.01 * unit * std::abs(expected[i]) + 1e-7);
      int64_t m = i / kWide, k = i % kWide;
      EXPECT_NEAR(scale[m] * float(quantized[m * paddedColumns(kWide) + k]), expected[i],
                  scale[m] * 0.501);
    }
  }
}

/// Columns and blocks: within a warp's vector, in runs of two and of four of them, some beyond the
/// row's end, and a row that is read again.
constexpr std::pair<int64_t, int64_t> kRotated[] = {
    {16, 16}, {64, 64}, {96, 32}, {576, 64}, {768, 256}, {896, 128}, {1536, 512}, {36864, 512}};

/// The rows as numerics rotates them.
std::vector<float> rotated(ConstMatrix x, int64_t block) {
  std::vector<float> y;
  for (int64_t m = 0; m < x.rows; ++m) {
    y.insert(y.end(), x.row(m), x.row(m) + x.columns);
    rotateActivation(std::span(y).last(x.columns), block);
  }
  return y;
}

// What the kernel of the plain form stores, rotated by its definition: stored, and as codes.
TEST(GPURowOps, RotatedAreTheDefinition) {
  KernelLibrary library;
  struct Forms {
    RowSpec plain, stored, dynamic, fixed;
  };
  auto formsOf = [](RowOp op, int64_t columns, int64_t block) {
    Forms forms{specOf(op == RowOp::Quantize ? RowOp::Copy : op, columns), {}, {}, {}};
    forms.stored = forms.plain;
    forms.stored.hadamard = block;
    forms.dynamic = specOf(op, columns);
    forms.dynamic.hadamard = block;
    forms.dynamic.quantization = RowQuantization::Dynamic;
    forms.dynamic.sums = true;
    forms.dynamic.groupSize = columns % 128 == 0 ? 128 : 48;
    forms.fixed = forms.dynamic;
    forms.fixed.quantization = RowQuantization::Static;
    forms.fixed.zeroPoints = forms.fixed.sinks = true;
    return forms;
  };
  for (auto [columns, block] : kRotated)
    for (RowOp op : kOps)
      for (Forms forms = formsOf(op, columns, block);
           const RowSpec &spec : {forms.plain, forms.stored, forms.dynamic, forms.fixed})
        library.add(spec);
  for (auto [columns, block] : kRotated)
    for (int64_t rows : {1, 7})
      for (RowOp op : kOps) {
        if (rows * columns > 40000)
          continue;
        SCOPED_TRACE(testing::Message() << int(op) << " on " << rows << " x " << columns);
        const Forms forms = formsOf(op, columns, block);
        const RowInputs in(rows, columns);
        const std::vector<float> plain = runFloat(library, forms.plain, in);
        std::vector<float> y = rotated({plain.data(), rows, columns, columns}, block);
        const std::vector<float> stored = runFloat(library, forms.stored, in);
        const bool isNorm = op == RowOp::RmsNorm || op == RowOp::LayerNorm;
        if (isNorm && rowShape(forms.stored).run > 1) {
          // Statistics of a row that is cut into runs are sums in another order.
          for (size_t i = 0; i < y.size(); ++i)
            ASSERT_NEAR(stored[i], y[i], 1e-5 * std::max(1.0f, std::abs(y[i]))) << i;
          y = stored;
        }
        EXPECT_EQ(std::memcmp(stored.data(), y.data(), y.size() * sizeof(float)), 0);
        const ConstMatrix values{y.data(), rows, columns, columns};
        auto expected = quantizeTokens(values, forms.dynamic.groupSize);
        ASSERT_TRUE(expected) << expected.error().message;
        expectEqual(runQuantized(library, forms.dynamic, in), *expected, true);
        Scheme scheme{8, false, Granularity::Tensor};
        scheme.sinks = true;
        expected = quantizeTokens(values, scheme, 0.03f, -37, forms.fixed.groupSize);
        ASSERT_TRUE(expected) << expected.error().message;
        expectEqual(runQuantized(library, forms.fixed, in, 0.03f, -37), *expected, true);
      }
}

// What linears on floats read: bf16 of what is stored as f32, and so from halves.
TEST(GPURowOps, RotatedHalves) {
  KernelLibrary library;
  constexpr int64_t kRows = 5;
  auto specOfHalves = [](int64_t columns, int64_t block, Float input) {
    RowSpec spec = specOf(RowOp::Copy, columns);
    spec.hadamard = block;
    spec.input = input;
    spec.output = Float::BF16;
    return spec;
  };
  constexpr Float kInputs[] = {Float::F32, Float::F16, Float::BF16};
  for (auto [columns, block] : kRotated)
    for (Float input : kInputs)
      library.add(specOfHalves(columns, block, input));
  for (auto [columns, block] : kRotated)
    for (Float input : kInputs) {
      const RowSpec spec = specOfHalves(columns, block, input);
      SCOPED_TRACE(library.add(spec).name);
      RowInputs in(kRows, columns);
      std::vector<uint16_t> halves;
      if (input != Float::F32)
        for (float &x : in.a) {
          halves.push_back(toHalf(x, input));
          x = fromHalf(halves.back(), input);
        }
      const std::vector<float> expected = rotated(in.matrix(in.a), block);
      simt::Device device;
      DeviceBuffer<float> floats(device, in.a);
      DeviceBuffer<uint16_t> x(device, halves), y(device, kRows * columns, "y");
      run(device, library, library.add(spec), kRows,
          {{"x", input == Float::F32 ? Argument(floats) : Argument(x)},
           {"x_stride", in.stride},
           {"y", y},
           {"y_stride", columns}});
      const std::vector<uint16_t> found = y.read();
      int64_t wrong = 0;
      for (size_t i = 0; i < found.size(); ++i)
        wrong += found[i] != toHalf(expected[i], Float::BF16);
      EXPECT_EQ(wrong, 0);
    }
}

TEST(GPURowOps, EachByteCrossesTheBusOnce) {
  // One read and one write, every sector full: what the roof of these kernels counts.
  constexpr int64_t kRows = 2, kWide = 4096;
  for (int64_t block : {0, 512}) {
    KernelLibrary library;
    RowSpec spec = specOf(RowOp::RmsNorm, kWide);
    spec.quantization = RowQuantization::Dynamic;
    spec.hadamard = block;
    RowInputs in(kRows, kWide);
    simt::Device device;
    DeviceRows inputs(device, in, spec.op);
    DeviceBuffer<int8_t> codes(device, kRows * kWide, "codes");
    DeviceBuffer<float> scales(device, kRows, "scales");
    inputs.arguments.emplace("codes", codes);
    inputs.arguments.emplace("scales", scales);
    simt::Statistics statistics = run(device, library, library.add(spec), kRows, inputs.arguments);
    const auto &loads = statistics.traffic.at("global load");
    EXPECT_EQ(loads.bytes, 2u * kRows * kWide * sizeof(float)); // the row and the weight
    EXPECT_EQ(loads.sectors * 32, loads.bytes);
    EXPECT_EQ(loads.requests, loads.bytes / 512); // 16 bytes a lane
    const auto &stores = statistics.traffic.at("global store");
    EXPECT_EQ(stores.bytes, kRows * (kWide + sizeof(float)));
    EXPECT_EQ(stores.sectors, kRows * (kWide / 32 + 1));
    EXPECT_EQ(statistics.traffic.at("shared load").conflicts, 0u);
    EXPECT_EQ(statistics.traffic.at("shared store").conflicts, 0u);
  }
}
