//===- FailingAllocation.h - Memory that is refused on purpose --*- C++ -*-===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Whatever a program that links this takes from the system is counted: malloc and its kin, operator
// new, mmap and the creation of threads; under AddressSanitizer, which has the others, operator new
// alone. One of them can be made to fail. LLVM's OpenMP runtime, which aborts where it is refused
// something, is spared and measured apart.
//
//===----------------------------------------------------------------------===//

#ifndef EASYQUANT_TEST_RUNTIME_FAILINGALLOCATION_H
#define EASYQUANT_TEST_RUNTIME_FAILINGALLOCATION_H

#include <cstddef>
#include <cstdint>

namespace easyquant::runtime::test {

/// From its construction on the `number`-th allocation fails (from 1; 0: none does); until its
/// destruction they are counted.
class FailingAllocation {
public:
  explicit FailingAllocation(int64_t number);
  ~FailingAllocation();
  FailingAllocation(const FailingAllocation &) = delete;
  FailingAllocation &operator=(const FailingAllocation &) = delete;

  /// Whether there were as many.
  static bool hasFailed();
  /// The bytes of the largest one of LLVM's OpenMP runtime; a thread counts as its stack.
  static size_t largestOfOpenMP();
};

} // namespace easyquant::runtime::test

#endif // EASYQUANT_TEST_RUNTIME_FAILINGALLOCATION_H
