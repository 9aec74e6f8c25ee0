//===- Reduce.cpp - Sums, minima and maxima in a fixed order --------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Reduce.h"

#include <bit>

namespace easyquant::comm {

template <typename T, Reduction op> static T apply(T left, T right) {
  if constexpr (op == Reduction::Sum) {
    if constexpr (std::is_integral_v<T>) {
      using Unsigned = std::make_unsigned_t<T>;
      return static_cast<T>(static_cast<Unsigned>(left) + static_cast<Unsigned>(right));
    } else {
      return left + right;
    }
  } else {
    // A NaN on the left is taken as it is; one on the right compares false.
    if (left != left)
      return left;
    return (op == Reduction::Min ? left < right : left > right) ? left : right;
  }
}

template <typename T, Reduction op>
static void combineAll(int64_t count, void *into, const void *left, const void *right) {
  T *result = static_cast<T *>(into);
  const T *a = static_cast<const T *>(left), *b = static_cast<const T *>(right);
  for (int64_t i = 0; i < count; ++i)
    result[i] = apply<T, op>(a[i], b[i]);
}

template <typename T>
static void combineAs(Reduction reduction, int64_t count, void *into, const void *left,
                      const void *right) {
  switch (reduction) {
  case Reduction::Sum:
    return combineAll<T, Reduction::Sum>(count, into, left, right);
  case Reduction::Min:
    return combineAll<T, Reduction::Min>(count, into, left, right);
  case Reduction::Max:
    return combineAll<T, Reduction::Max>(count, into, left, right);
  }
}

void combine(ElementType type, Reduction reduction, int64_t count, void *into, const void *left,
             const void *right) {
  switch (type) {
  case ElementType::I32:
    return combineAs<int32_t>(reduction, count, into, left, right);
  case ElementType::I64:
    return combineAs<int64_t>(reduction, count, into, left, right);
  case ElementType::F32:
    return combineAs<float>(reduction, count, into, left, right);
  case ElementType::F64:
    return combineAs<double>(reduction, count, into, left, right);
  case ElementType::Byte:
    return; // refused where it is asked for
  }
}

void reduceInOrder(ElementType type, Reduction reduction, int64_t count,
                   std::span<void *const> contributions) {
  std::vector<void *> parts(contributions.begin(), contributions.end());
  const auto merge = [&](size_t to, size_t left, size_t right) {
    combine(type, reduction, count, parts[left], parts[left], parts[right]);
    parts[to] = parts[left];
  };
  const size_t power = std::bit_floor(parts.size()), extra = parts.size() - power;
  for (size_t i = 0; i < extra; ++i)
    merge(i, 2 * i, 2 * i + 1);
  for (size_t i = extra; i < power; ++i)
    parts[i] = parts[i + extra];
  for (size_t left = power; left > 1; left /= 2)
    for (size_t i = 0; i < left / 2; ++i)
      merge(i, 2 * i, 2 * i + 1);
}

} // namespace easyquant::comm
