//===- SuperBlocks.cpp - Scales that are integers -------------------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "easyquant/Numerics/SuperBlocks.h"

#include <algorithm>
#include <cmath>

namespace easyquant::numerics {
namespace {

struct SuperBlockCodes {
  int bits;
  int64_t group;
  bool minima, table;
  SuperIntegers integers;
};
constexpr SuperBlockCodes kCodes[] = {
    {2, 16, /*minima=*/true, /*table=*/false, {{0, 15}, {0, 15}}},
    {3, 16, false, false, {{-32, 31}}},
    {4, 32, true, false, {{0, 63}, {0, 63}}},
    {5, 32, true, false, {{0, 63}, {0, 63}}},
    {6, 16, false, false, {{-128, 127}}},
    {4, 32, false, true, {{-32, 31}}},
};

constexpr float kLeastHalf = 0x1p-24f;

/// Is x an f16, subnormal ones and 0 among them?
bool isHalf(float x) {
  return std::isfinite(x) && x == decodeScale(encodeScale(x, ScaleFormat::F16), ScaleFormat::F16);
}

} // namespace

const SuperIntegers *superIntegers(const Scheme &scheme) {
  if (scheme.granularity != Granularity::Group || scheme.scales != ScaleFormat::F32 ||
      scheme.outer || scheme.dynamic || scheme.hasZeroPoints() ||
      (scheme.table ? scheme.table != Codebook::iq4nl() : !scheme.isInteger()))
    return nullptr;
  for (const SuperBlockCodes &known : kCodes)
    if (known.bits == scheme.bits && known.group == scheme.groupSize &&
        known.minima == scheme.minima && known.table == (scheme.table != nullptr))
      return &known.integers;
  return nullptr;
}

float superUnit(float largest, int32_t greatest) {
  const float unit = roundScale(largest / static_cast<float>(greatest), ScaleFormat::F16);
  return std::max(unit, kLeastHalf);
}

int32_t superInteger(float product, float unit) {
  return unit == 0 ? 0 : static_cast<int32_t>(std::nearbyint(product / unit));
}

std::optional<float> superUnitOf(std::span<const float> products, CodeRange range) {
  float largest = 0;
  for (float product : products) {
    if (!std::isfinite(product))
      return std::nullopt;
    if (std::fabs(product) > std::fabs(largest))
      largest = product;
  }
  if (largest == 0)
    return 0.0f;
  auto areMultiples = [&](float unit) {
    return std::ranges::all_of(products, [&](float product) {
      const float ratio = std::nearbyint(product / unit);
      return ratio >= static_cast<float>(range.min) && ratio <= static_cast<float>(range.max) &&
             ratio * unit == product;
    });
  };
  // llama.cpp gives the lowest integer to the largest scale where integers are signed.
  for (int32_t magnitude = std::max(-range.min, range.max); magnitude > 0; --magnitude)
    for (int32_t integer : {-magnitude, magnitude}) {
      const float unit = largest / static_cast<float>(integer);
      if (integer >= range.min && integer <= range.max && isHalf(unit) && areMultiples(unit))
        return unit;
    }
  return std::nullopt;
}

} // namespace easyquant::numerics
