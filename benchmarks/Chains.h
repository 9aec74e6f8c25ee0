//===- Chains.h - Loops that roofs are measured by --------------*- C++ -*-===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Written for one processor each: ChainsX86.cpp and ChainsAArch64.cpp, of which one is built.
//
//===----------------------------------------------------------------------===//

#ifndef EASYQUANT_BENCHMARKS_CHAINS_H
#define EASYQUANT_BENCHMARKS_CHAINS_H

#include "Roofs.h"

#include <cstdint>

namespace easyquant::bench {

/// A loop of `operations` operations a turn.
struct Chain {
  void (*run)(int64_t turns);
  int64_t operations;
};
/// The chain of a roof that isHere() and is not Roof::Read.
Chain chainOf(Roof roof);

/// Reads the bytes from `begin` to `end`; a rest of less than 128 may be left out.
void readBytes(const char *begin, const char *end);

} // namespace easyquant::bench

#endif // EASYQUANT_BENCHMARKS_CHAINS_H
