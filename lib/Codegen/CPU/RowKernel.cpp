//===- RowKernel.cpp - Kernels that do one token after another ------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "RowKernel.h"

#include "VectorMath.h"

#include <limits>
#include <numeric>

using namespace mlir;

namespace easyquant::cpu {

/// The rest of `count` columns after those in wide vectors, as pieces (offset, lanes).
static SmallVector<std::pair<int64_t, int64_t>> remainder(int64_t count, int64_t wide,
                                                          int64_t lanes) {
  SmallVector<std::pair<int64_t, int64_t>> pieces;
  for (int64_t offset = count / wide * wide; offset < count; offset += lanes)
    pieces.push_back({offset, std::min(lanes, count - offset)});
  return pieces;
}

void forColumns(KernelBuilder &b, Index begin, int64_t count, int64_t wide,
                llvm::function_ref<void(Value, int64_t)> body) {
  int64_t inWide = count / wide * wide;
  if (inWide == wide)
    body(b.index(begin), wide);
  else if (inWide > 0)
    b.forLoop(begin, b.add(begin, inWide), wide, [&](Value column) { body(column, wide); });
  for (auto [offset, lanes] : remainder(count, wide, b.target.lanes()))
    body(b.add(begin, offset), lanes);
}

Value padWithZeros(KernelBuilder &b, Value vector, int64_t lanes) {
  auto type = cast<VectorType>(vector.getType());
  int64_t count = type.getNumElements();
  if (count == lanes)
    return vector;
  SmallVector<int64_t> mask(lanes, count);
  for (int64_t i = 0; i < count; ++i)
    mask[i] = i;
  return b.shuffle(vector, b.zero(type), mask);
}

/// The vector with its last lane behind it, `lanes` long in all.
static Value padWithLast(KernelBuilder &b, Value vector, int64_t lanes) {
  int64_t count = cast<VectorType>(vector.getType()).getNumElements();
  SmallVector<int64_t> mask(lanes, count - 1);
  std::iota(mask.begin(), mask.begin() + count, 0);
  return count == lanes ? vector : b.shuffle(vector, vector, mask);
}

Value reduceColumns(KernelBuilder &b, Index begin, int64_t count, int64_t wide, Type element,
                    Combine combine, llvm::function_ref<Value(Value, int64_t)> term) {
  auto join = [&](Value x, Value y) {
    if (combine != Combine::Add)
      return b.larger(x, y);
    return isa<FloatType>(element) ? b.addf(x, y) : b.addi(x, y);
  };
  // Halves the vector until `lanes` are left.
  auto fold = [&](Value x, int64_t lanes) {
    for (int64_t n = cast<VectorType>(x.getType()).getNumElements(); n > lanes; n /= 2)
      x = join(b.slice(x, 0, n / 2), b.slice(x, n / 2, n / 2));
    return x;
  };

  int64_t lanes = b.target.lanes(), inWide = count / wide * wide;
  Value sum;
  if (inWide == wide) {
    sum = fold(term(b.index(begin), wide), lanes);
  } else if (inWide > 0) {
    VectorType type = b.vec(wide, element);
    constexpr double infinity = std::numeric_limits<double>::infinity();
    Value first = combine == Combine::Greatest ? b.constant(type, -infinity) : b.zero(type);
    auto sums =
        b.forLoop(begin, b.add(begin, inWide), wide, first, [&](Value column, ValueRange carried) {
          return KernelBuilder::Values{join(term(column, wide), carried[0])};
        });
    sum = fold(sums[0], lanes);
  }
  for (auto [offset, pieceLanes] : remainder(count, wide, lanes)) {
    Value piece = term(b.add(begin, offset), pieceLanes);
    piece =
        combine == Combine::Greatest ? padWithLast(b, piece, lanes) : padWithZeros(b, piece, lanes);
    sum = sum ? join(piece, sum) : piece;
  }
  return b.extract(fold(sum, 1), 0);
}

} // namespace easyquant::cpu
