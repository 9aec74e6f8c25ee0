//===- Unpack.cpp - Packed weights in registers ---------------------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Unpack.h"

using namespace mlir;

namespace easyquant::gpu {

SmallVector<std::array<Value, 2>> unpackBytes(KernelBuilder &b, int bits, ArrayRef<Value> words) {
  SmallVector<std::array<Value, 2>> tiles;
  if (bits == 8)
    return {{words[0], words[1]}, {words[2], words[3]}};
  // The field from bit `bit` on of each byte, at the top of the byte.
  int64_t top = 0x01010101 * int64_t((0xff << (8 - bits)) & 0xff);
  auto field = [&](Value word, int64_t bit) {
    Value moved = bit + bits == 8 ? word : b.shl(word, 8 - bits - bit);
    return b.andi(moved, static_cast<int32_t>(top));
  };
  for (int64_t bit = 0; bit < 8; bit += 2 * bits)
    for (Value word : words)
      tiles.push_back({field(word, bit), field(word, bit + bits)});
  return tiles;
}

} // namespace easyquant::gpu
