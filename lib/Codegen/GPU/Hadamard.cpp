//===- Hadamard.cpp - Columns in a rotated basis --------------------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// A rotation adds and subtracts elements of a thread, then of the lanes of a warp, then the vectors
// that lie one behind the other in the warp's columns: the block of columns never leaves the warp.
//
//===----------------------------------------------------------------------===//

#include "Hadamard.h"

#include <cmath>

using namespace mlir;

namespace easyquant::gpu {

static void addAndSubtract(KernelBuilder &b, Value &low, Value &high) {
  Value sum = b.addf(low, high);
  high = b.subf(low, high);
  low = sum;
}

void emitHadamard(KernelBuilder &b, MutableArrayRef<KernelBuilder::Values> vectors, Value lane,
                  int64_t lanes, int64_t block) {
  const auto width = static_cast<int64_t>(vectors.front().size());
  const int64_t inWarp = lanes * width;
  for (int64_t distance = 1; distance < block; distance *= 2) {
    if (distance < width) {
      for (KernelBuilder::Values &y : vectors)
        for (int64_t i = 0; i < width; ++i)
          if (!(i & distance))
            addAndSubtract(b, y[i], y[i + distance]);
    } else if (distance < inWarp) {
      // The upper lane subtracts its own element: a product with -1 or 1 rounds nothing.
      const int64_t between = distance / width;
      Value isLower = b.equal(b.andi(lane, between), 0);
      Value sign = b.select(isLower, b.constant(b.f32(), 1.0), b.constant(b.f32(), -1.0));
      for (KernelBuilder::Values &y : vectors)
        for (Value &x : y)
          x = b.fma(x, sign, b.shuffleXor(x, between));
    } else {
      const auto between = static_cast<size_t>(distance / inWarp);
      for (size_t v = 0; v < vectors.size(); ++v)
        if (!(v & between))
          for (auto [low, high] : llvm::zip_equal(vectors[v], vectors[v + between]))
            addAndSubtract(b, low, high);
    }
  }
  Value factor = b.constant(b.f32(), 1 / std::sqrt(static_cast<double>(block)));
  for (KernelBuilder::Values &y : vectors)
    for (Value &x : y)
      x = b.mulf(x, factor);
}

} // namespace easyquant::gpu
