//===- MatrixCore.h - Products of small matrices in registers - -*- C++ -*-===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// mma.sync and wmma differ in where a warp keeps the elements; the product is the same. A shape is
// M x N x K; A is M x K, B is K x N, C and D are M x N. Where the elements are is worked out when
// the instruction is decoded; to execute it is to gather three matrices, to add up products of
// columns of A, and to scatter one matrix.
//
// Integers are exact (modulo 2^32, or clamped with .satfinite). Floats: the products of a row and a
// column and the addend are summed in double precision in the order of k and rounded once. Hardware
// keeps fewer bits between, so that its last places may differ.
//
// With scales of blocks (PTX ISA, "Block Scaling for mma.sync") an element is multiplied with the
// scale of its 16 columns of K first, which is exact in double precision. A lane's word has the
// scales of a row's four blocks, the first in its lowest byte. Row i < 16 of A has those of lane
// 4 (i mod 8) + i / 8 + 2 t, column j of B those of lane 4 j + t, t being what thread-id says.
//
//===----------------------------------------------------------------------===//

#ifndef EASYQUANT_LIB_SIMT_MATRIXCORE_H
#define EASYQUANT_LIB_SIMT_MATRIXCORE_H

#include "Decoder.h"

#include <algorithm>

namespace easyquant::simt {

struct MatrixShape {
  unsigned m, n, k;
  bool operator==(const MatrixShape &) const = default;
};
/// "m16n8k32"
std::optional<MatrixShape> parseMatrixShape(std::string_view text);

enum class Fragment { A, B, C };

/// Bits of an element in a register.
unsigned elementBits(Type type);
/// The registers that hold elements of a type, and how many each holds.
inline Type registerType(Type element) { return element == Type::F64 ? Type::F64 : Type::B32; }
inline unsigned elementsPerRegister(Type element) {
  return std::max(32 / elementBits(element), 1u);
}

/// A matrix in the registers of a warp. A line is a row, of B a column; neighbours in a line share
/// a register. Words are counted across the lines: the first of each line, the second of each, and
/// so on; so are elements once they are gathered. Word k is in register words[k] / kLanes of lane
/// words[k] % kLanes.
struct MatrixLayout {
  Type type = Type::B32;
  unsigned registers = 0; ///< Also those without words: wmma has more for f16 than it needs.
  unsigned lines = 0;
  std::vector<uint16_t> words;
  bool operator==(const MatrixLayout &) const = default;
};

/// d = a · b + c
struct MatrixProduct {
  MatrixShape shape;
  MatrixLayout d, a, b, c;
  bool saturate = false, isXor = false; ///< isXor, of single bits: popcount of xor, not of and.
  bool isScaled = false;                ///< ue4m3 scales of blocks of 16 columns
  bool operator==(const MatrixProduct &) const = default;
};

/// Decodes the operands d, a, b, c of an instruction that computes this, and, where it is scaled,
/// scale-a-data, {byte-id-a, thread-id-a}, and the same of b.
void decodeProduct(Decoder &d, MatrixProduct product);

} // namespace easyquant::simt

#endif // EASYQUANT_LIB_SIMT_MATRIXCORE_H
