//===- WeightCodecTest.cpp ------------------------------------------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// What is packed comes back, whole and in blocks. That the bytes are those which clients read,
// test/python/test_export.py checks.
//
//===----------------------------------------------------------------------===//

#include "easyquant/Formats/Codecs/CheckpointFormat.h"
#include "easyquant/Formats/Codecs/GGMLBlocks.h"
#include "easyquant/Formats/Codecs/OnnxWeight.h"
#include "easyquant/Numerics/SuperBlocks.h"

#include <gtest/gtest.h>

#include <random>

using namespace easyquant;
using namespace easyquant::formats;
using namespace easyquant::numerics;

namespace {

Scheme integers(int bits, bool symmetric, int64_t group, ScaleFormat scales = ScaleFormat::F16) {
  Scheme scheme;
  scheme.bits = bits;
  scheme.symmetric = symmetric;
  scheme.granularity = group ? Granularity::Group : Granularity::Channel;
  scheme.groupSize = group;
  scheme.scales = scales;
  return scheme;
}

Scheme floats(CodeFormat codes, int64_t group, ScaleFormat scales, bool outer = false) {
  Scheme scheme = integers(codes == CodeFormat::F8E4M3FN ? 8 : 4, true, group, scales);
  scheme.codes = codes;
  scheme.outer = outer;
  return scheme;
}

Scheme withMinima(int bits, int64_t group = 32) {
  Scheme scheme = integers(bits, false, group);
  scheme.minima = true;
  return scheme;
}

/// The K types and IQ4_XS.
Scheme superBlocks(int bits, int64_t group, bool minima, const Codebook *table = nullptr) {
  Scheme scheme = integers(bits, !minima, group, ScaleFormat::F32);
  scheme.codes = table ? CodeFormat::Table : CodeFormat::Integer;
  scheme.table = table;
  scheme.fullRange = !minima && !table;
  scheme.minima = minima;
  scheme.superBlocks = true;
  return scheme;
}

/// Integers of the whole range in units of an f16 of either sign, the farthest one in each block.
void addSuperBlocks(QParams &params, const Scheme &scheme, std::mt19937 &random) {
  const int64_t shared = kSuperBlock / scheme.groupSize;
  std::uniform_real_distribution<float> unit(-0.1f, 0.1f);
  float scaleUnit = 0, minimumUnit = 0;
  auto integer = [&](CodeRange range, bool isFirst) {
    return static_cast<float>(isFirst
                                  ? (range.min < 0 ? range.min : range.max)
                                  : std::uniform_int_distribution(range.min, range.max)(random));
  };
  for (int64_t i = 0; i < params.rows * params.groups; ++i) {
    const bool isFirst = i % shared == 0;
    if (isFirst) {
      scaleUnit = roundScale(unit(random), ScaleFormat::F16);
      minimumUnit = roundScale(unit(random), ScaleFormat::F16);
    }
    const SuperIntegers &integers = *superIntegers(scheme);
    params.scales.push_back(integer(integers.scales, isFirst) * scaleUnit);
    if (scheme.minima)
      params.minima.push_back(-(integer(integers.minima, isFirst) * minimumUnit));
  }
}

/// Codes of the whole range but for NaN, scales of the format, and zero points but for the least
/// code, which GPTQ's version 1 does not hold.
QuantizedMatrix randomMatrix(const Scheme &scheme, int64_t rows, int64_t columns) {
  std::mt19937 random(static_cast<unsigned>(97 * rows + columns + scheme.bits));
  const CodeRange range = codeRange(scheme);
  std::uniform_int_distribution<int> code(range.min, range.max), zero(range.min + 1, range.max);
  std::uniform_real_distribution<float> scale(0.01f, 4.0f);
  QuantizedMatrix matrix{scheme, rows, columns, {}, {}};
  for (int64_t i = 0; i < rows * columns; ++i) {
    const int any = code(random);
    const bool isNaN = scheme.codes == CodeFormat::F8E4M3FN && (any & 0x7f) == 0x7f;
    matrix.codes.push_back(static_cast<int8_t>(isNaN ? any - 1 : any));
  }
  matrix.params.rows = rows;
  matrix.params.groups = groupCount(columns, scheme.groupSize);
  if (scheme.outer)
    matrix.params.outer = {0.125f};
  if (scheme.superBlocks) {
    addSuperBlocks(matrix.params, scheme, random);
    return matrix;
  }
  for (int64_t i = 0; i < rows * matrix.params.groups; ++i) {
    matrix.params.scales.push_back(roundScale(scale(random), scheme.scales) *
                                   matrix.params.outerOf(0));
    if (scheme.hasZeroPoints())
      matrix.params.zeroPoints.push_back(zero(random));
    if (scheme.minima)
      matrix.params.minima.push_back(roundScale(scale(random) - 3, scheme.scales));
  }
  return matrix;
}

QuantizedMatrix rowsOf(const QuantizedMatrix &matrix, int64_t first, int64_t count) {
  QuantizedMatrix part{matrix.scheme, count, matrix.columns, {}, {}};
  const int64_t groups = matrix.params.groups;
  auto cut = [&](auto &to, const auto &from, int64_t width) {
    if (!from.empty())
      to.assign(from.begin() + first * width, from.begin() + (first + count) * width);
  };
  part.params.rows = count;
  part.params.groups = groups;
  part.params.outer = matrix.params.outer;
  cut(part.codes, matrix.codes, matrix.columns);
  cut(part.params.scales, matrix.params.scales, groups);
  cut(part.params.zeroPoints, matrix.params.zeroPoints, groups);
  cut(part.params.minima, matrix.params.minima, groups);
  return part;
}

void expectEqual(const QuantizedMatrix &a, const QuantizedMatrix &b) {
  EXPECT_EQ(a.codes, b.codes);
  EXPECT_EQ(a.params.scales, b.params.scales);
  EXPECT_EQ(a.params.zeroPoints, b.params.zeroPoints);
  EXPECT_EQ(a.params.minima, b.params.minima);
  EXPECT_EQ(a.params.outer, b.params.outer);
}

/// Packs in blocks, as evaluation does, takes the bytes and reads them.
void expectRoundTrip(WeightCodecMaker *make, const Scheme &scheme, int64_t rows, int64_t columns) {
  SCOPED_TRACE(toString(scheme) + ", " + std::to_string(rows) + " x " + std::to_string(columns));
  auto codec = make(scheme, rows, columns);
  ASSERT_TRUE(codec) << codec.error().message;
  const QuantizedMatrix matrix = randomMatrix(scheme, rows, columns);
  PackedWeight packed = (*codec)->allocate();
  const int64_t step = (*codec)->blockRows();
  for (int64_t row = 0; row < rows; row += step)
    (*codec)->pack(row, rowsOf(matrix, row, std::min(step, rows - row)), packed);
  std::vector<std::vector<uint8_t>> bytes;
  for (const CodecTensor &tensor : (*codec)->tensors()) {
    auto taken = (*codec)->take(tensor, packed);
    ASSERT_TRUE(taken) << taken.error().message;
    EXPECT_EQ(tensorBytes(tensor.dtype, tensor.shape), std::ssize(*taken)) << tensor.name;
    bytes.push_back(std::move(*taken));
  }
  const std::vector<std::span<const uint8_t>> stored(bytes.begin(), bytes.end());
  for (auto [first, count] : {std::pair<int64_t, int64_t>(0, rows), {rows / 2, rows - rows / 2}}) {
    auto back = (*codec)->unpack(first, count, *(*codec)->partsOf(stored));
    ASSERT_TRUE(back) << back.error().message;
    expectEqual(*back, rowsOf(matrix, first, count));
  }
}

std::string refusal(Result<std::unique_ptr<WeightCodec>> codec) {
  return codec ? "" : codec.error().message;
}

} // namespace

TEST(WeightCodec, PackQuantizedHoldsAllWidths) {
  for (int bits : {2, 3, 4, 5, 6, 8})
    for (bool symmetric : {true, false})
      for (auto [rows, columns, group] : {std::tuple<int64_t, int64_t, int64_t>(1, 1, 0),
                                          {33, 7, 0},
                                          {70, 24, 8},
                                          {64, 96, 32},
                                          {5, 41, 0}}) {
        expectRoundTrip(packQuantizedCodec, integers(bits, symmetric, group), rows, columns);
        expectRoundTrip(packQuantizedCodec, integers(bits, symmetric, group, ScaleFormat::F32),
                        rows, columns);
      }
}

TEST(WeightCodec, GptqHoldsItsWidths) {
  for (WeightCodecMaker *make : {gptqCodec, gptqV2Codec})
    for (int bits : {2, 3, 4, 8})
      for (bool symmetric : {true, false})
        for (int64_t group : {0, 8, 32}) {
          expectRoundTrip(make, integers(bits, symmetric, group), 32, 96);
          expectRoundTrip(make, integers(bits, symmetric, group), 96, 32);
        }
}

TEST(WeightCodec, AwqHoldsFourBits) {
  for (bool symmetric : {true, false})
    for (int64_t group : {0, 8}) {
      expectRoundTrip(awqCodec, integers(4, symmetric, group), 40, 24);
      expectRoundTrip(awqCodec, integers(4, symmetric, group), 8, 8);
    }
}

TEST(WeightCodec, BytesAndFP4) {
  for (int bits : {3, 4, 8})
    for (bool symmetric : {true, false})
      expectRoundTrip(intQuantizedCodec, integers(bits, symmetric, 0, ScaleFormat::F32), 33, 41);
  expectRoundTrip(floatQuantizedCodec, floats(CodeFormat::F8E4M3FN, 0, ScaleFormat::F32), 33, 41);
  expectRoundTrip(mxfp4PackCodec, floats(CodeFormat::F4E2M1FN, 32, ScaleFormat::F8E8M0FNU), 33, 96);
  expectRoundTrip(nvfp4PackCodec, floats(CodeFormat::F4E2M1FN, 16, ScaleFormat::F8E4M3FN, true), 33,
                  48);
}

TEST(WeightCodec, OnnxHoldsIntegersAndFP8) {
  for (int bits : {2, 3, 4, 5, 6, 8})
    for (bool symmetric : {true, false})
      for (auto [rows, columns, group] : {std::tuple<int64_t, int64_t, int64_t>(1, 1, 0),
                                          {33, 7, 0},
                                          {70, 24, 8},
                                          {64, 96, 32},
                                          {5, 42, 0}})
        expectRoundTrip(onnxCodec, integers(bits, symmetric, group, ScaleFormat::F32), rows,
                        columns);
  expectRoundTrip(onnxCodec, floats(CodeFormat::F8E4M3FN, 0, ScaleFormat::F32), 33, 41);
  EXPECT_EQ(refusal(onnxCodec(floats(CodeFormat::F4E2M1FN, 32, ScaleFormat::F8E8M0FNU), 33, 96)),
            "onnx holds integers, and FP8 with a scale a row, found f4E2M1FN, groups of 32, "
            "f8E8M0FNU scales; take an integer scheme: ONNX Runtime has no kernels for FP4, nor "
            "ONNX tables of values");
}

TEST(WeightCodec, OnnxNeedsAVersionOfOperators) {
  auto least = [](const Scheme &weight, std::optional<Scheme> input = {}) {
    return leastOpset({.name = "q", .rows = 32, .columns = 32, .weight = weight, .input = input});
  };
  EXPECT_EQ(least(integers(8, false, 0)), 18);
  EXPECT_EQ(least(integers(8, true, 8)), 21);
  EXPECT_EQ(least(integers(3, true, 0)), 21);
  EXPECT_EQ(least(integers(2, true, 0)), 25);
  EXPECT_EQ(least(floats(CodeFormat::F8E4M3FN, 0, ScaleFormat::F32)), 19);
  Scheme input = integers(8, true, 0, ScaleFormat::F32);
  input.granularity = Granularity::Tensor;
  EXPECT_EQ(least(integers(8, true, 0), input), 18);
  input.granularity = Granularity::Token;
  input.dynamic = true;
  EXPECT_EQ(least(integers(8, true, 0), input), 21);
  EXPECT_EQ(checkOpset(26).error().message, "opset 26: expected one of 18 to 25");
}

TEST(WeightCodec, SaysWhatItDoesNotHold) {
  EXPECT_EQ(refusal(awqCodec(integers(3, true, 8), 8, 8)),
            "awq holds integers of 4 bits, found int3 symmetric, groups of 8, f16 scales; take "
            "W4A16_ASYM or W4A16, or another format");
  EXPECT_EQ(refusal(awqCodec(integers(4, true, 8), 12, 8)),
            "awq packs 8 rows into a word: 12 rows are no multiple; leave the site float, or take "
            "compressed-tensors");
  EXPECT_EQ(refusal(gptqCodec(integers(5, true, 8), 32, 32)),
            "gptq holds integers of 2, 3, 4 or 8 bits, found int5 symmetric, groups of 8, f16 "
            "scales; take another scheme, or compressed-tensors");
  EXPECT_EQ(refusal((*findCheckpointFormat("gptq_v2"))
                        ->codecFor({.name = "q_proj",
                                    .rows = 32,
                                    .columns = 32,
                                    .weight = integers(4, true, 8, ScaleFormat::F32)})),
            "gptq_v2 holds f16 scales, found int4 symmetric, groups of 8; take --scale-type f16");
  EXPECT_EQ(refusal(gptqCodec(integers(3, true, 8), 32, 24)),
            "gptq packs 3 bits into words of 32: 24 columns do not fill them; leave the site "
            "float, or take compressed-tensors");
  EXPECT_EQ(refusal(packQuantizedCodec(integers(4, true, 128), 32, 576)),
            "compressed-tensors holds whole groups: 576 columns are no multiple of 128; give a "
            "group size that divides them, or 0 for a scale a row");
  EXPECT_EQ(refusal(packQuantizedCodec(integers(4, true, 8, ScaleFormat::UI6), 32, 64)),
            "compressed-tensors holds scales of one level, found int4 symmetric, groups of 8, ui6 "
            "scales; take --scale-type f16");
  EXPECT_EQ(refusal(packQuantizedCodec(withMinima(4), 32, 64)),
            "compressed-tensors holds zero points, which are codes, and no minima, found int4 with "
            "minima, groups of 32, f16 scales");
  Scheme table = integers(4, true, 8);
  table.codes = CodeFormat::Table;
  table.table = Codebook::nf4();
  EXPECT_NE(refusal(packQuantizedCodec(table, 32, 64)).find("a table of values"),
            std::string::npos);
  EXPECT_NE(refusal(mxfp4PackCodec(floats(CodeFormat::F4E2M1FN, 16, ScaleFormat::F8E8M0FNU), 1, 32))
                .find("holds FP4 (E2M1) in groups of 32"),
            std::string::npos);
}

TEST(WeightCodec, GptqOfVersion1HasNoZeroPointOfZero) {
  for (auto [make, isHeld] : {std::pair(&gptqCodec, false), {&gptqV2Codec, true}}) {
    auto codec = make(integers(3, false, 0), 32, 32);
    ASSERT_TRUE(codec);
    QuantizedMatrix matrix = randomMatrix((*codec)->scheme, 32, 32);
    matrix.params.zeroPoints[5] = -4;
    PackedWeight packed = pack(**codec, matrix);
    auto taken = (*codec)->take((*codec)->tensors()[1], packed);
    ASSERT_EQ(taken.has_value(), isHeld);
    if (!isHeld)
      EXPECT_EQ(
          taken.error().message,
          "the zero point of row 5, group 0 is 0 (the least code), and gptq stores zero "
          "points less 1; take gptq_v2, which stores them as they are, or a symmetric scheme");
  }
}

TEST(WeightCodec, RefusesWhatIsNotOfTheWeight) {
  auto codec = packQuantizedCodec(integers(4, true, 8), 8, 16);
  ASSERT_TRUE(codec);
  QuantizedMatrix matrix = randomMatrix((*codec)->scheme, 8, 16);
  auto read = [&](auto damage) {
    PackedWeight packed = pack(**codec, matrix);
    std::vector<std::vector<uint8_t>> bytes;
    for (const CodecTensor &tensor : (*codec)->tensors())
      bytes.push_back(*(*codec)->take(tensor, packed));
    damage(bytes);
    auto parts =
        (*codec)->partsOf(std::vector<std::span<const uint8_t>>(bytes.begin(), bytes.end()));
    if (!parts)
      return parts.error().message;
    auto back = (*codec)->unpack(0, 8, *parts);
    return back ? "" : back.error().message;
  };
  EXPECT_EQ(read([](auto &) {}), "");
  EXPECT_EQ(read([](auto &bytes) { bytes[0].pop_back(); }),
            "'weight_packed' has 63 bytes, expected 64 for 8 x 16 weights");
  EXPECT_EQ(read([](auto &bytes) { bytes[1][3] = 0x7c, bytes[1][2] = 0; }),
            "the scale of row 0, group 1 is inf, which is no number");
  EXPECT_EQ(read([](auto &bytes) { bytes[1][1] |= 0x80; }), "") << "scales may be negative";
  EXPECT_EQ(read([](auto &bytes) { bytes[2][0] = 9; }),
            "'weight_shape' is not what it is for int4 symmetric, groups of 8, f16 scales");
}

TEST(CheckpointFormat, IsFoundByName) {
  for (const CheckpointFormat *format : checkpointFormats())
    EXPECT_EQ(*findCheckpointFormat(format->name), format);
  EXPECT_EQ(findCheckpointFormat("tflite").error().message,
            "there is no format 'tflite' of checkpoints; expected compressed-tensors, gptq, "
            "gptq_v2, awq, gguf, onnx");
}

TEST(WeightCodec, GGMLBlocksHoldTheirSchemes) {
  Scheme table = integers(4, true, 32);
  table.codes = CodeFormat::Table;
  table.table = Codebook::iq4nl();
  Scheme whole = integers(4, true, 32);
  whole.fullRange = true;
  for (const auto &[scheme, type] :
       {std::pair(integers(8, true, 32), GGMLType::Q8_0),
        {integers(5, true, 32), GGMLType::Q5_0},
        {integers(4, true, 32), GGMLType::Q4_0},
        {whole, GGMLType::Q4_0},
        {withMinima(5), GGMLType::Q5_1},
        {withMinima(4), GGMLType::Q4_1},
        {table, GGMLType::IQ4_NL},
        {floats(CodeFormat::F4E2M1FN, 32, ScaleFormat::F8E8M0FNU), GGMLType::MXFP4}}) {
    ASSERT_TRUE(ggmlTypeOf(scheme));
    EXPECT_EQ(ggmlTypeOf(scheme)->type, type);
    expectRoundTrip(ggmlCodec, scheme, 37, 96);
  }
}

TEST(WeightCodec, GGMLBlocksAreDequantizedAsTheyWereMeant) {
  for (const Scheme &scheme : {integers(4, true, 32), integers(5, true, 32), integers(8, true, 32),
                               withMinima(4), withMinima(5)}) {
    const QuantizedMatrix matrix = randomMatrix(scheme, 3, 64);
    auto codec = ggmlCodec(scheme, 3, 64);
    ASSERT_TRUE(codec) << codec.error().message;
    PackedWeight packed = pack(**codec, matrix);
    std::vector<float> values(3 * 64);
    auto done = dequantize(ggmlTypeOf(scheme)->type,
                           std::as_bytes(std::span(packed[WeightTensor::Codes])), values);
    ASSERT_TRUE(done) << done.error().message;
    std::vector<float> expected(values.size());
    dequantize(matrix, {expected.data(), 3, 64});
    EXPECT_EQ(values, expected);
  }
}

TEST(WeightCodec, GGMLSuperBlocksHoldTheirSchemes) {
  for (const auto &[scheme, type] :
       {std::pair(superBlocks(2, 16, true), GGMLType::Q2_K),
        {superBlocks(3, 16, false), GGMLType::Q3_K},
        {superBlocks(4, 32, true), GGMLType::Q4_K},
        {superBlocks(5, 32, true), GGMLType::Q5_K},
        {superBlocks(6, 16, false), GGMLType::Q6_K},
        {superBlocks(4, 32, false, Codebook::iq4nl()), GGMLType::IQ4_XS}}) {
    ASSERT_TRUE(ggmlTypeOf(scheme));
    EXPECT_EQ(ggmlTypeOf(scheme)->type, type);
    EXPECT_EQ(*schemeOf(type), scheme);
    expectRoundTrip(ggmlCodec, scheme, 37, 768);
    const QuantizedMatrix matrix = randomMatrix(scheme, 3, 512);
    auto codec = ggmlCodec(scheme, 3, 512);
    ASSERT_TRUE(codec) << codec.error().message;
    PackedWeight packed = pack(**codec, matrix);
    std::vector<float> values(3 * 512), expected(values.size());
    ASSERT_TRUE(dequantize(type, std::as_bytes(std::span(packed[WeightTensor::Codes])), values));
    dequantize(matrix, {expected.data(), 3, 512});
    EXPECT_EQ(values, expected);
    EXPECT_NE(refusal(ggmlCodec(scheme, 4, 576)).find("whole blocks of 256 columns"),
              std::string::npos);
  }
}

TEST(WeightCodec, GGUFRefusesOtherSchemes) {
  const char *held = "gguf holds the schemes Q4_0, Q4_1, Q5_0, Q5_1, Q8_0, IQ4_NL, MXFP4A16, Q2_K, "
                     "Q3_K, Q4_K, Q5_K, Q6_K and IQ4_XS";
  for (const Scheme &scheme :
       {integers(6, true, 32), integers(4, false, 32), withMinima(3), integers(4, true, 64),
        integers(4, true, 32, ScaleFormat::F32),
        floats(CodeFormat::F4E2M1FN, 16, ScaleFormat::F8E4M3FN, /*outer=*/true)})
    EXPECT_NE(refusal(ggmlCodec(scheme, 4, 64)).find(held), std::string::npos) << toString(scheme);
  EXPECT_NE(refusal(ggmlCodec(integers(4, true, 32), 4, 40)).find("whole groups"),
            std::string::npos);
}
