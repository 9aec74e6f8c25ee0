//===- SameAbi.h - Are two functions called alike? --------------*- C++ -*-===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Function types that name other types for the same arguments: handles as pointers to structs of
// one's own, enumerations as int. A call through one of a function of the other works if each
// argument is passed in the same way.
//
//===----------------------------------------------------------------------===//

#ifndef EASYQUANT_TEST_RUNTIME_SAMEABI_H
#define EASYQUANT_TEST_RUNTIME_SAMEABI_H

#include <type_traits>

namespace easyquant {

/// Pointers to numbers or to pointers are alike if these are; those to void and to structs, which
/// only the other side looks into, are like any pointer to void or struct.
template <typename A, typename B> constexpr bool passedAlike() {
  if constexpr (std::is_pointer_v<A> && std::is_pointer_v<B>) {
    using ToA = std::remove_cv_t<std::remove_pointer_t<A>>;
    using ToB = std::remove_cv_t<std::remove_pointer_t<B>>;
    if constexpr (std::is_scalar_v<ToA> && std::is_scalar_v<ToB>)
      return passedAlike<ToA, ToB>();
    else
      return !std::is_arithmetic_v<ToA> && !std::is_arithmetic_v<ToB>;
  } else if constexpr (std::is_pointer_v<A> || std::is_pointer_v<B>) {
    return false;
  } else {
    return sizeof(A) == sizeof(B) && std::is_floating_point_v<A> == std::is_floating_point_v<B>;
  }
}

template <typename F, typename G> constexpr bool kSameAbi = false;
template <typename R, typename... A, typename S, typename... B>
  requires(sizeof...(A) == sizeof...(B))
constexpr bool kSameAbi<R(A...), S(B...)> = passedAlike<R, S>() && (passedAlike<A, B>() && ...);

static_assert(kSameAbi<int(struct X *, unsigned), unsigned(void *, int)>);
static_assert(!kSameAbi<int(unsigned *), int(unsigned long *)>);
static_assert(!kSameAbi<int(int), int(long)> && !kSameAbi<int(int), int(float)>);
static_assert(!kSameAbi<int(int), int(int, int)> && !kSameAbi<int(int), int(int *)>);

} // namespace easyquant

#endif // EASYQUANT_TEST_RUNTIME_SAMEABI_H
