//===- MutateIR.h - Damaged modules -----------------------------*- C++ -*-===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef EASYQUANT_TEST_PIPELINES_MUTATEIR_H
#define EASYQUANT_TEST_PIPELINES_MUTATEIR_H

#include "mlir/IR/BuiltinOps.h"

#include <random>
#include <string>

namespace easyquant::test {

class Random {
public:
  explicit Random(uint64_t seed) : engine(seed) {}
  /// 0 .. limit - 1; 0 of nothing.
  size_t below(size_t limit) { return limit == 0 ? 0 : engine() % limit; }
  bool oneIn(size_t n) { return below(n) == 0; }
  template <typename Range> decltype(auto) pick(Range &&range) {
    return range[below(std::size(range))];
  }

private:
  std::mt19937_64 engine;
};

/// A number at the edge of some type or limit, in decimal.
std::string edgeNumber(Random &random);

/// Replaces a number of the text by one from an edge.
void mutateNumber(std::string &text, Random &random);

/// Damages the text in one place: a number, a word, a line.
void mutateText(std::string &text, Random &random);

/// Damages the module in one place: attributes, types, operands, ops, functions and their calls.
/// What comes out can be printed in the generic form, and need not verify.
void mutateModule(mlir::ModuleOp module, Random &random);

} // namespace easyquant::test

#endif // EASYQUANT_TEST_PIPELINES_MUTATEIR_H
