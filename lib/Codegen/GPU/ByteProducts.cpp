//===- ByteProducts.cpp - Matrix products of bytes ------------------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "ByteProducts.h"

using namespace mlir;

namespace easyquant::gpu {

ByteProducts::Values ByteProducts::operand(ValueRange registers) {
  if (!converts)
    return Values(registers);
  // Registers of the first half of the columns, then of the second: each half has the pairs of the
  // first product, then those eight columns on.
  Values found;
  const size_t ofHalf = registers.size() / 2;
  for (size_t first = 0; first < registers.size(); first += ofHalf)
    for (int64_t half = 0; half < 2; ++half)
      for (Value word : registers.slice(first, ofHalf))
        found.push_back(pairs.pairOfBytes(word, half));
  return found;
}

ByteProducts::Values ByteProducts::multiply(ValueRange a, ValueRange w, ValueRange c) {
  if (!isFP8)
    return b.multiplyBytes(a, w, c);
  if (!converts)
    return b.multiplyFP8(a, w, c);
  const Values sums = b.multiplyFloats(Float::F16, a.take_front(4), w.take_front(2), c);
  return b.multiplyFloats(Float::F16, a.drop_front(4), w.drop_front(2), sums);
}

} // namespace easyquant::gpu
