//===- CombineExperts.cpp - What the experts of a row give together -------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// A block has a row. Its threads read the row's choices, of which several are under way, and add up
// in their order.
//
//===----------------------------------------------------------------------===//

#include "KernelBuilder.h"
#include "ScalarMath.h"

#include "easyquant/Codegen/GPU/Experts.h"

#include <numeric>

using namespace mlir;

namespace easyquant::gpu {

static constexpr int64_t kCombineThreads = 128; // of a row

static void emitCombine(KernelBuilder &b, const CombineSpec &spec,
                        const KernelArguments &arguments) {
  using Values = KernelBuilder::Values;
  constexpr int64_t kAtOnce = 8; // choices whose columns are loaded before they are added
  const int64_t width = std::gcd<int64_t>(spec.columns, 4);
  Type type = width == 1 ? b.f32() : Type(b.vec(width, b.f32()));
  Value row = b.block(0);
  auto rowOf = [&](StringRef name, Value number) {
    return b.rowOf(arguments[name], number, arguments[(name + "_stride").str()], b.f32());
  };
  Value places = b.rowOf(arguments["places"], row, spec.chosen, b.i32());
  Value weights = b.rowOf(arguments["weights"], row, spec.chosen, b.f32());
  Value gate, shared;
  if (spec.shared) {
    gate = logistic(b, b.load(rowOf("gate", row), b.f32(), /*constant=*/true));
    shared = rowOf("shared", row);
  }
  Value y = rowOf("y", row);
  auto load = [&](Value pointer, Type type) { return b.load(pointer, type, /*constant=*/true); };
  auto addTerm = [&](Value weight, Value x, ValueRange sums) {
    Values added;
    for (auto [i, sum] : llvm::enumerate(sums))
      added.push_back(b.fma(weight, b.extract(x, static_cast<int64_t>(i)), sum));
    return added;
  };
  b.forLoop(b.mul(b.thread(), width), spec.columns, kCombineThreads * width, [&](Value column) {
    auto addChoices = [&](Value first, int64_t count, Values sums) {
      Values terms, factors;
      for (int64_t i = 0; i < count; ++i) {
        Value choice = b.add(first, i);
        Value place = load(b.advance(places, choice, b.i32()), b.i32());
        factors.push_back(load(b.advance(weights, choice, b.f32()), b.f32()));
        terms.push_back(load(b.advance(rowOf("x", place), column, b.f32()), type));
      }
      for (auto [weight, x] : llvm::zip_equal(factors, terms))
        sums = addTerm(weight, x, sums);
      return sums;
    };
    Values sums(width, b.zero(b.f32()));
    const int64_t whole = spec.chosen / kAtOnce * kAtOnce;
    if (whole > 0)
      sums = b.forLoop(0, whole, kAtOnce, sums, [&](Value first, ValueRange sums) {
        return addChoices(first, kAtOnce, Values(sums));
      });
    sums = addChoices(b.i32(whole), spec.chosen - whole, sums);
    if (spec.shared)
      sums = addTerm(gate, load(b.advance(shared, column, b.f32()), type), sums);
    b.store(b.join(sums), b.advance(y, column, b.f32()));
  });
}

Description getOrEmit(mlir::gpu::GPUModuleOp module, const CombineSpec &spec, const Chip &) {
  Description kernel;
  kernel.name = fmt::format("combine_experts_{}x{}{}", spec.chosen, spec.columns,
                            spec.shared ? "_shared" : "");
  kernel.threads = kCombineThreads;
  kernel.grid[0].rowsPerBlock = 1;
  kernel.parameters = Parameters()
                          .reads("places")
                          .reads("weights")
                          .readsRows("x")
                          .readsRows("shared", spec.shared)
                          .readsRows("gate", spec.shared)
                          .writesRows("y")
                          .rows();
  return getOrEmitKernel(module, kernel, [&](KernelBuilder &b, const KernelArguments &arguments) {
    emitCombine(b, spec, arguments);
  });
}

} // namespace easyquant::gpu
