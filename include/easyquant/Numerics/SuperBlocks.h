//===- SuperBlocks.h - Scales that are integers -----------------*- C++ -*-===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The K types of llama.cpp and its IQ4_XS (ggml/src/ggml-quants.c): the scale of a group is an
// integer in units of an f16 that the groups of a super-block, 256 columns, share, and so is the
// minimum, in units of another one, from which it is subtracted:
//
// clang-format off
//      codes            groups      scales         minima
//      2 bits, minima   16 of 16    0 to 15        0 to 15         Q2_K
//      3 bits           16 of 16    -32 to 31                      Q3_K
//      4 bits, minima   8 of 32     0 to 63        0 to 63         Q4_K
//      5 bits, minima   8 of 32     0 to 63        0 to 63         Q5_K
//      6 bits           16 of 16    -128 to 127                    Q6_K
//      table IQ4_NL     8 of 32     -32 to 31                      IQ4_XS
// clang-format on
//
// A product has at most 18 bits, so that f32 holds it as it is: QParams and artifacts have
// products. The f16 may be subnormal. What is quantized here has scales of 1 and more.
//
//===----------------------------------------------------------------------===//

#ifndef EASYQUANT_NUMERICS_SUPERBLOCKS_H
#define EASYQUANT_NUMERICS_SUPERBLOCKS_H

#include "easyquant/Numerics/Scheme.h"

#include <optional>
#include <span>

namespace easyquant::numerics {

/// What the integers are, both ends included.
struct SuperIntegers {
  CodeRange scales;
  CodeRange minima = {}; ///< of schemes that have them
};

/// The integers of a scheme; null where no type has its codes and groups. Whether the scheme has
/// super-blocks is not asked.
const SuperIntegers *superIntegers(const Scheme &scheme);

/// The f16 that integers up to `greatest` are in units of, so that the largest of them stands for
/// `largest` > 0: the least f16 at least, and an infinity where f16 does not hold it.
float superUnit(float largest, int32_t greatest);

/// The f16 of which all `products` are multiples by integers of the range, the one with the largest
/// integers where there are several; 0 where all are 0, and nothing where there is none.
std::optional<float> superUnitOf(std::span<const float> products, CodeRange range);

/// The integer of a product.
int32_t superInteger(float product, float unit);

} // namespace easyquant::numerics

#endif // EASYQUANT_NUMERICS_SUPERBLOCKS_H
