//===- MatrixCore.h - Products of small matrices, and where their elements are - -*- C++ -*-===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// mma.sync and wmma differ in where a warp keeps the elements; the product is the same. A shape is
// M x N x K; A is M x K, B is K x N, C and D are M x N.
//
// Integers are exact (modulo 2^32, or clamped with .satfinite). Floats: the products of a row and a
// column and the addend are summed in double precision in the order of k and rounded once. Hardware
// keeps fewer bits between, so that its last places may differ.
//
//===----------------------------------------------------------------------===//

#ifndef EASYQUANT_LIB_SIMT_MATRIXCORE_H
#define EASYQUANT_LIB_SIMT_MATRIXCORE_H

#include "Types.h"

#include <array>
#include <cstdint>
#include <vector>

namespace easyquant::simt {

struct MatrixShape {
  unsigned m, n, k;
  bool operator==(const MatrixShape &) const = default;
};
/// "m16n8k32"
std::optional<MatrixShape> parseMatrixShape(std::string_view text);

/// Bits of an element in a register.
unsigned elementBits(Type type);

/// Values of a matrix, row after row.
struct MatrixValues {
  std::array<double, 64 * 64> floats;
  std::array<int32_t, 64 * 64> integers;
};

/// An element out of the bits of a register. Integers: decodeInteger.
double decodeFloat(uint64_t bits, Type type);
int32_t decodeInteger(uint64_t bits, Type type);
/// A float to the bits of its type, rounded to nearest even.
uint64_t encodeFloat(double value, Type type);

/// d = a · b + d, with d given as c. b is stored column after column.
void multiplyFloats(MatrixShape shape, const double *a, const double *b, double *d);
void multiplyIntegers(MatrixShape shape, const int32_t *a, const int32_t *b, int32_t *d,
                      bool saturate);
/// Bits: popcount of and, or of xor.
void multiplyBits(MatrixShape shape, const int32_t *a, const int32_t *b, int32_t *d, bool isXor);

/// Where an element of a fragment is: lane, register, and the shift within the register.
struct FragmentPlace {
  uint8_t lane, reg, shift;
};
/// Element (row, column) of A, B or C of an mma.sync instruction.
enum class Fragment { A, B, C };
FragmentPlace placeOf(Fragment fragment, MatrixShape shape, unsigned bits, unsigned row,
                      unsigned column);

} // namespace easyquant::simt

#endif // EASYQUANT_LIB_SIMT_MATRIXCORE_H
