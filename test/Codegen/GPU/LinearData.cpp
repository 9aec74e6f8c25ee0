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

QuantizedMatrix randomWeights(int64_t n, int64_t k, const Scheme &scheme, std::mt19937 &random) {
  QuantizedMatrix weights;
  weights.scheme = scheme;
  weights.rows = n;
  weights.columns = k;
  CodeRange range = codeRange(weights.scheme);
  std::uniform_int_distribution<int> code(range.min, range.max);
  for (int64_t i = 0; i < n * k; ++i)
    weights.codes.push_back(static_cast<int8_t>(code(random)));
  weights.params.rows = n;
  weights.params.groups = groupCount(k, scheme.groupSize);
  std::uniform_real_distribution<float> scale(0.001f, 0.02f);
  for (int64_t i = 0; i < n * weights.params.groups; ++i) {
    weights.params.scales.push_back(roundScale(scale(random), scheme.scales));
    if (!scheme.symmetric)
      weights.params.zeroPoints.push_back(code(random));
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
