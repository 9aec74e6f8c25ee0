//===- LinearData.cpp - Weights and results of simulated linears ----------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "LinearData.h"

#include <bit>

namespace easyquant::gpu {

using namespace numerics;

static const Codebook *tableOf(const WeightCodec &codec, bool isInt8) {
  if (codec.bits == 4)
    return !isInt8           ? Codebook::nf4()
           : codec.unit == 1 ? Codebook::iq4nl()
                             : *Codebook::nf4()->inInt8();
  return isInt8 ? *Codebook::learned(codec.bits)->inInt8() : Codebook::learned(codec.bits);
}

Scheme schemeOf(const WeightCodec &codec, bool isInt8) {
  return {.bits = codec.bits,
          .symmetric = !codec.zeroPoints && !codec.minima,
          .granularity = codec.groupSize ? Granularity::Group : Granularity::Channel,
          .groupSize = codec.groupSize,
          .codes = codec.codes,
          .scales = codec.scales,
          .outer = codec.outer,
          .table = codec.isTable() ? tableOf(codec, isInt8) : nullptr,
          .minima = codec.minima};
}

static WeightCodec codec(int bits, int64_t group, ScaleFormat scales,
                         CodeFormat codes = CodeFormat::Integer) {
  WeightCodec codec;
  codec.bits = bits;
  codec.groupSize = group;
  codec.scales = scales;
  codec.codes = codes;
  return codec;
}

static WeightCodec withZeroPoints(WeightCodec codec) {
  codec.zeroPoints = true;
  return codec;
}
static WeightCodec withMinima(WeightCodec codec) {
  codec.minima = true;
  return codec;
}

std::vector<WeightCodec> floatCodecs() {
  using enum ScaleFormat;
  constexpr CodeFormat kFP4 = CodeFormat::F4E2M1FN, kFP8 = CodeFormat::F8E4M3FN;
  std::vector<WeightCodec> codecs = {
      codec(5, 0, F32),
      codec(6, 64, F16),
      withZeroPoints(codec(5, 64, F16)),
      withZeroPoints(codec(6, 32, F32)),
      codec(8, 0, F32, kFP8),
      codec(8, 128, F32, kFP8),
      codec(4, 32, F8E8M0FNU, kFP4),
      codec(4, 16, ScaleFormat::F8E4M3FN, kFP4),
      codec(4, 64, F16, CodeFormat::Table),
      codec(3, 32, F16, CodeFormat::Table),
      codec(2, 0, F32, CodeFormat::Table),
      codec(4, 32, UI6),
      withZeroPoints(codec(3, 32, UI6)),
      codec(4, 32, BF16),
      withMinima(codec(4, 32, F16)),
      withMinima(codec(5, 32, F32)),
      withMinima(codec(2, 16, F32)),
      codec(6, 16, F32),
      withZeroPoints(codec(4, 16, F16)),
  };
  codecs[7].outer = true;
  return codecs;
}

std::vector<WeightCodec> integerCodecs() {
  using enum ScaleFormat;
  std::vector<WeightCodec> codecs = {
      codec(3, 0, F32),
      codec(5, 64, F16),
      codec(6, 0, F32),
      withZeroPoints(codec(3, 64, F16)),
      withZeroPoints(codec(5, 32, F32)),
      withZeroPoints(codec(6, 64, F16)),
      codec(4, 64, F16, CodeFormat::Table),
      codec(4, 0, F32, CodeFormat::Table),
      codec(3, 64, F16, CodeFormat::Table),
      codec(2, 32, F16, CodeFormat::Table),
      codec(4, 32, UI6),
      withZeroPoints(codec(6, 32, UI6)),
      codec(4, 32, BF16),
      withMinima(codec(4, 32, F16)),
      withMinima(codec(5, 64, F32)),
  };
  for (WeightCodec &codec : codecs)
    if (codec.isTable() && codec.groupSize != 0)
      codec.unit = 1.0f / 128;
  return codecs;
}

QuantizedMatrix randomWeights(int64_t n, int64_t k, const Scheme &scheme, std::mt19937 &random) {
  QuantizedMatrix weights;
  weights.scheme = scheme;
  weights.rows = n;
  weights.columns = k;
  CodeRange range = codeRange(weights.scheme);
  std::uniform_int_distribution<int> code(range.min, range.max);
  for (int64_t i = 0; i < n * k; ++i) {
    auto drawn = static_cast<int8_t>(code(random));
    // The bits of NaN are no codes.
    if (scheme.codes == CodeFormat::F8E4M3FN && (drawn & 0x7f) == 0x7f)
      drawn = static_cast<int8_t>(drawn - 1);
    weights.codes.push_back(drawn);
  }
  QParams &params = weights.params;
  params.rows = n;
  params.groups = groupCount(k, scheme.groupSize);
  std::uniform_real_distribution<float> scale(0.001f, 0.02f);
  std::uniform_int_distribution<int> sixBits(1, 63);
  for (int64_t i = 0; scheme.outer && i < n; ++i)
    params.outer.push_back(1 + 50 * scale(random));
  for (int64_t i = 0; i < n * params.groups; ++i) {
    const int64_t row = i / params.groups, group = i % params.groups;
    if (scheme.scales == ScaleFormat::UI6) {
      // The largest of a super-group has all 63 steps.
      const float super =
          roundScale(0.004f * static_cast<float>(1 + group / kSuperGroups), ScaleFormat::F16);
      const int number = group % kSuperGroups == 0 ? 63 : sixBits(random);
      params.scales.push_back(super * (static_cast<float>(number) / 64));
    } else {
      params.scales.push_back(roundScale(scale(random), scheme.scales) * params.outerOf(row));
    }
    if (scheme.hasZeroPoints())
      params.zeroPoints.push_back(code(random));
    if (scheme.minima)
      params.minima.push_back(-roundScale(scale(random), scheme.scales));
  }
  return weights;
}

PackedWeight fragmentsOf(const QuantizedMatrix &weights, FragmentOrder order) {
  auto layout = fragmentLayout(weights.scheme, order, weights.rows, weights.columns);
  if (!layout) {
    ADD_FAILURE() << layout.error().message;
    return {};
  }
  layout->withSums = true;
  return pack(*layout, weights);
}

FloatRows::FloatRows(simt::Device &device, const std::vector<float> &values, int64_t rows,
                     int64_t columns, Float type, std::string name)
    : rows(rows), columns(columns), type(type),
      bytes(device, spread(values, rows, columns, type), std::move(name)) {}

std::vector<uint8_t> FloatRows::spread(const std::vector<float> &values, int64_t rows,
                                       int64_t columns, Float type) {
  int64_t size = bytesOf(type), stride = strideOf(columns);
  std::vector<uint8_t> result(((rows - 1) * stride + columns) * size);
  for (int64_t m = 0; m < rows; ++m)
    for (int64_t n = 0; n < columns; ++n) {
      float value = values[m * columns + n];
      uint32_t bits = type == Float::F32 ? std::bit_cast<uint32_t>(value) : toHalf(value, type);
      for (int64_t byte = 0; byte < size; ++byte)
        result[(m * stride + n) * size + byte] = static_cast<uint8_t>(bits >> (8 * byte));
    }
  return result;
}

std::vector<float> FloatRows::read() const {
  std::vector<uint8_t> found = bytes.read();
  std::vector<float> values;
  int64_t size = bytesOf(type);
  for (int64_t m = 0; m < rows; ++m)
    for (int64_t n = 0; n < columns; ++n) {
      uint32_t bits = 0;
      for (int64_t byte = 0; byte < size; ++byte)
        bits |= uint32_t{found[(m * stride() + n) * size + byte]} << (8 * byte);
      values.push_back(type == Float::F32 ? std::bit_cast<float>(bits)
                                          : fromHalf(static_cast<uint16_t>(bits), type));
    }
  return values;
}

float rounded(float value, Float type) {
  return type == Float::F32 ? value : fromHalf(toHalf(value, type), type);
}
std::vector<float> rounded(std::vector<float> values, Float type) {
  for (float &value : values)
    value = rounded(value, type);
  return values;
}

} // namespace easyquant::gpu
