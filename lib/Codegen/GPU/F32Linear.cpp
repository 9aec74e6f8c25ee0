//===- F32Linear.cpp - Float linears that keep the bits of f32 ------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "easyquant/Codegen/GPU/F32Linear.h"

#include "KernelBuilder.h"

#include <numeric>

using namespace mlir;

namespace easyquant::gpu {
namespace {

constexpr int64_t kLanes = 32, kWarps = 4;

class F32LinearEmitter {
public:
  F32LinearEmitter(KernelBuilder &b, const F32LinearSpec &spec, const F32LinearKernel &kernel,
                   const KernelArguments &arguments)
      : b(b), spec(spec), kernel(kernel), arguments(arguments), width(std::gcd(spec.k, 4)),
        stepColumns(kLanes * width), lane(b.rem(b.thread(), kLanes)),
        firstRow(b.mul(b.block(1), kernel.rows)),
        firstOutput(b.mul(b.add(b.mul(b.block(0), kWarps), b.warp()), kernel.outputs)) {}
  void emit();

private:
  using Values = KernelBuilder::Values;

  void place();
  /// The lane's columns of one step: `width` numbers of each row of x, and of each of w.
  Values load(KernelBuilder::Int step, Value valid);
  Values multiply(ValueRange operands, ValueRange sums);
  void write(ValueRange totals);

  KernelBuilder &b;
  const F32LinearSpec &spec;
  const F32LinearKernel &kernel;
  const KernelArguments &arguments;
  const int64_t width, stepColumns;
  Value lane, firstRow, firstOutput;
  SmallVector<Value> inputs, weights; ///< the lane's first columns
};

} // namespace

void F32LinearEmitter::place() {
  Value column = b.mul(lane, width);
  // Rows and outputs that are not there are others' once more.
  for (int64_t i = 0; i < kernel.rows; ++i) {
    Value row = b.min(b.add(firstRow, i), b.sub(arguments["rows"], 1));
    inputs.push_back(
        b.advance(b.rowOf(arguments["x"], row, arguments["x_stride"], b.f32()), column, b.f32()));
  }
  for (int64_t i = 0; i < kernel.outputs; ++i) {
    Value output = b.min(b.add(firstOutput, i), spec.n - 1);
    weights.push_back(b.advance(b.rowOf(arguments["w"], output, spec.k, b.f32()), column, b.f32()));
  }
}

F32LinearEmitter::Values F32LinearEmitter::load(KernelBuilder::Int step, Value valid) {
  Type access = width == 1 ? b.f32() : Type(b.vec(width, b.f32()));
  Values zeros((kernel.rows + kernel.outputs) * width, b.constant(b.f32(), 0.0));
  Value column = b.mul(step, stepColumns);
  return b.guardedAll(valid, zeros, [&] {
    Values operands;
    for (auto [pointers, isConstant] : {std::pair(&inputs, false), std::pair(&weights, true)})
      for (Value pointer : *pointers)
        llvm::append_range(
            operands, b.elements(b.load(b.advance(pointer, column, b.f32()), access, isConstant)));
    return operands;
  });
}

F32LinearEmitter::Values F32LinearEmitter::multiply(ValueRange operands, ValueRange sums) {
  Values results(sums);
  for (int64_t v = 0; v < width; ++v)
    for (int64_t i = 0; i < kernel.rows; ++i)
      for (int64_t j = 0; j < kernel.outputs; ++j) {
        Value &sum = results[i * kernel.outputs + j];
        sum = b.fma(operands[i * width + v], operands[(kernel.rows + j) * width + v], sum);
      }
  return results;
}

void F32LinearEmitter::write(ValueRange totals) {
  // A lane writes one of them.
  Value total = totals[0];
  for (auto [i, other] : llvm::enumerate(totals.drop_front()))
    total = b.select(b.equal(lane, static_cast<int64_t>(i) + 1), other, total);
  Value row = b.add(firstRow, b.div(lane, kernel.outputs));
  Value output = b.add(firstOutput, b.rem(lane, kernel.outputs));
  Value isThere = b.both(b.less(row, arguments["rows"]), b.less(output, spec.n));
  if (std::ssize(totals) < kLanes)
    isThere = b.both(isThere, b.less(lane, std::ssize(totals)));
  b.ifThen(isThere, [&] {
    Value y =
        b.advance(b.rowOf(arguments["y"], row, arguments["y_stride"], b.f32()), output, b.f32());
    Value value = total;
    if (spec.bias)
      value = b.addf(value, b.load(b.advance(arguments["bias"], output, b.f32()), b.f32(),
                                   /*constant=*/true));
    if (spec.accumulate)
      value = b.addf(value, b.load(y, b.f32()));
    b.store(value, y);
  });
}

void F32LinearEmitter::emit() {
  place();
  const int64_t whole = spec.k / stepColumns, looped = whole / kernel.atOnce * kernel.atOnce;
  Values sums(kernel.rows * kernel.outputs, b.constant(b.f32(), 0.0));
  sums = b.forLoop(0, looped, kernel.atOnce, sums, [&](Value step, ValueRange carried) {
    SmallVector<Values> operands;
    for (int64_t i = 0; i < kernel.atOnce; ++i)
      operands.push_back(load(b.add(step, i), Value()));
    Values added(carried);
    for (const Values &each : operands)
      added = multiply(each, added);
    return added;
  });
  for (int64_t step = looped; step * stepColumns < spec.k; ++step) {
    Value valid;
    if (step == whole)
      valid = b.less(b.mul(lane, width), spec.k - step * stepColumns);
    sums = multiply(load(step, valid), sums);
  }
  Values totals;
  for (Value sum : sums)
    totals.push_back(b.warpSum(sum));
  write(totals);
}

std::vector<F32LinearKernel> f32LinearKernels(const F32LinearSpec &spec, const Chip &) {
  // With few rows what a warp has under way bounds its time, with many what it loads again.
  const F32LinearKernel kinds[] = {{1, 1, 1, 8, {}}, {16, 4, 1, 4, {}}, {0, 8, 4, 1, {}}};
  std::vector<F32LinearKernel> kernels;
  for (F32LinearKernel kernel : kinds) {
    kernel.description.name =
        fmt::format("f32_linear_{}x{}{}{}_rows{}", spec.n, spec.k, spec.bias ? "_bias" : "",
                    spec.accumulate ? "_accumulate" : "", kernel.rows);
    kernel.description.parameters = Parameters()
                                        .readsRows("x")
                                        .constants("w")
                                        .constants("bias", spec.bias)
                                        .writesRows("y", true, sizeof(float))
                                        .rows();
    kernel.description.grid[0].factor = divideCeil(spec.n, kWarps * kernel.outputs);
    kernel.description.grid[1] = {1, kernel.rows};
    kernel.description.threads = kLanes * kWarps;
    if (kernel.maxRows == 0) // which has registers in the place of warps
      kernel.description.blocksPerSM = 4;
    kernels.push_back(std::move(kernel));
  }
  return kernels;
}

Description getOrEmit(mlir::gpu::GPUModuleOp module, const F32LinearSpec &spec,
                      const F32LinearKernel &kernel) {
  return getOrEmitKernel(module, kernel.description,
                         [&](KernelBuilder &b, const KernelArguments &arguments) {
                           F32LinearEmitter(b, spec, kernel, arguments).emit();
                         });
}

} // namespace easyquant::gpu
