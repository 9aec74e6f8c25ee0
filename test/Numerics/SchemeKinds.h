//===- SchemeKinds.h - Schemes that tests go through ------------*- C++ -*-===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef EASYQUANT_TEST_NUMERICS_SCHEMEKINDS_H
#define EASYQUANT_TEST_NUMERICS_SCHEMEKINDS_H

#include "easyquant/Numerics/Scheme.h"

#include <utility>
#include <vector>

namespace easyquant::numerics {

inline constexpr Granularity kTensor = Granularity::Tensor, kChannel = Granularity::Channel,
                             kGroup = Granularity::Group;

inline constexpr Scheme kInt8{8, true, kChannel, 0, false};

inline constexpr Scheme grouped(int bits, int64_t groupSize) {
  return {bits, true, kGroup, groupSize, false};
}

/// Every kind of scheme of every width: symmetric, with the full range too, and asymmetric.
inline std::vector<Scheme> allKinds(Granularity granularity = Granularity::Channel,
                                    int64_t groupSize = 0) {
  std::vector<Scheme> schemes;
  for (int bits : {2, 3, 4, 5, 6, 8})
    for (auto [symmetric, full] : {std::pair(true, false), {true, true}, {false, false}})
      schemes.push_back({bits, symmetric, granularity, groupSize, false, full});
  return schemes;
}

} // namespace easyquant::numerics

#endif // EASYQUANT_TEST_NUMERICS_SCHEMEKINDS_H
