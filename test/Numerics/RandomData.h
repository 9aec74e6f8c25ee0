//===- RandomData.h - Seeded data for the tests -----------------*- C++ -*-===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef EASYQUANT_TEST_NUMERICS_RANDOMDATA_H
#define EASYQUANT_TEST_NUMERICS_RANDOMDATA_H

#include <cstdint>
#include <random>
#include <vector>

namespace easyquant::numerics {

/// Standard normal values, one of them replaced by `outlier` unless that is 0.
inline std::vector<float> gaussian(int64_t count, unsigned seed, float outlier = 0.0f) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  std::vector<float> x(count);
  for (float &v : x)
    v = normal(random);
  if (outlier != 0.0f && count > 0)
    x[random() % count] = outlier;
  return x;
}

/// Uniform codes in [lo, hi].
inline std::vector<int8_t> randomCodes(int64_t count, unsigned seed, int lo, int hi) {
  std::mt19937 random(seed);
  std::uniform_int_distribution<int> uniform(lo, hi);
  std::vector<int8_t> codes(count);
  for (int8_t &c : codes)
    c = static_cast<int8_t>(uniform(random));
  return codes;
}

} // namespace easyquant::numerics

#endif // EASYQUANT_TEST_NUMERICS_RANDOMDATA_H
