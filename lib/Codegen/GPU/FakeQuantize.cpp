//===- FakeQuantize.cpp - Rows rounded to the values of a format ----------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// A block of threads has a row. Where the row has one scale of its own, it is read twice, the
// second time from the first-level cache. A group belongs to a thread.
//
//===----------------------------------------------------------------------===//

#include "FloatCodes.h"

#include <numeric>

using namespace mlir;

namespace easyquant::gpu {
namespace {

using numerics::FloatFormat;

constexpr int64_t kRowThreads = 128, kRowWarps = kRowThreads / 32; // of a row
constexpr int64_t kRowAccess = 4;                                  // elements of an access

class FakeQuantize {
public:
  FakeQuantize(KernelBuilder &b, const FakeQuantizeSpec &spec, const KernelArguments &arguments)
      : b(b), spec(spec), format(*numerics::floatFormat(spec.codes)), arguments(arguments),
        width(std::gcd(spec.columns, kRowAccess)) {}

  void emit();

private:
  using Values = KernelBuilder::Values;

  /// The larger of a magnitude, as the integer of its bits, and those of some values.
  Value larger(Value most, const Values &values);
  /// Elements from a column on; 0 where it is not `inside`.
  Values load(Value column, Value inside);
  void store(const Values &values, Value scale, Value column, Value inside);
  Value absMaxOfRow();
  void emitRow();
  void emitGroups();

  KernelBuilder &b;
  const FakeQuantizeSpec &spec;
  const FloatFormat &format;
  const KernelArguments &arguments;
  const int64_t width;
  Value x, y; ///< the row
};

} // namespace

Value FakeQuantize::larger(Value most, const Values &values) {
  for (Value value : values)
    most = b.createOrFold<arith::MaxUIOp>(most, b.bitcast(b.magnitude(value), b.i32()));
  return most;
}

FakeQuantize::Values FakeQuantize::load(Value column, Value inside) {
  Type type = width == 1 ? b.f32() : Type(b.vec(width, b.f32()));
  return b.elements(b.guarded(inside, b.zero(type), [&] {
    return b.load(b.advance(x, column, b.f32()), type, /*constant=*/true);
  }));
}

void FakeQuantize::store(const Values &values, Value scale, Value column, Value inside) {
  Values rounded = llvm::map_to_vector(
      values, [&](Value value) { return b.mulf(scale, roundTo(b, format, b.divf(value, scale))); });
  b.ifThen(inside, [&] {
    b.store(b.fromF32(b.join(rounded), spec.output), b.advance(y, column, b.type(spec.output)));
  });
}

Value FakeQuantize::absMaxOfRow() {
  Values most = b.forLoop(b.mul(b.thread(), width), spec.columns, kRowThreads * width, {b.i32(0)},
                          [&](Value column, ValueRange most) {
                            return Values{larger(most.front(), load(column, Value()))};
                          });
  Value shared = b.sharedMemory(kRowWarps * 4), ofWarp = b.warpMaxUnsigned(most.front());
  b.ifThen(b.equal(b.rem(b.thread(), 32), 0),
           [&] { b.store(ofWarp, b.advance(shared, b.div(b.thread(), 32), b.i32())); });
  b.barrier();
  Value all = b.i32(0);
  for (int64_t warp = 0; warp < kRowWarps; ++warp)
    all = b.createOrFold<arith::MaxUIOp>(all, b.load(b.advance(shared, warp, b.i32()), b.i32()));
  return b.bitcast(all, b.f32());
}

void FakeQuantize::emitRow() {
  Value scale = spec.isStatic ? b.load(arguments["scale"], b.f32(), /*constant=*/true)
                              : ownScale(b, format, absMaxOfRow());
  b.forLoop(b.mul(b.thread(), width), spec.columns, kRowThreads * width,
            [&](Value column) { store(load(column, Value()), scale, column, Value()); });
}

void FakeQuantize::emitGroups() {
  Value outer;
  if (spec.isStatic)
    outer = b.load(arguments["scale"], b.f32(), /*constant=*/true);
  b.forLoop(b.thread(), groupCount(spec.columns, spec.groupSize), kRowThreads, [&](Value group) {
    Value begin = b.mul(group, spec.groupSize), most = b.i32(0);
    SmallVector<Value> columns, inside;
    SmallVector<Values> values;
    for (int64_t i = 0; i < spec.groupSize; i += width) {
      columns.push_back(b.add(begin, i));
      inside.push_back(spec.columns % spec.groupSize ? b.less(columns.back(), spec.columns)
                                                     : Value());
      values.push_back(load(columns.back(), inside.back()));
      most = larger(most, values.back());
    }
    Value absMax = b.bitcast(most, b.f32());
    Value scale = outer ? blockScale(b, format, absMax, outer).whole : ownScale(b, format, absMax);
    for (auto [i, some] : llvm::enumerate(values))
      store(some, scale, columns[i], inside[i]);
  });
}

void FakeQuantize::emit() {
  Value row = b.block(0);
  x = b.rowOf(arguments["x"], row, arguments["x_stride"], b.f32());
  y = b.rowOf(arguments["y"], row, arguments["y_stride"], b.type(spec.output));
  spec.groupSize ? emitGroups() : emitRow();
}

Description getOrEmit(mlir::gpu::GPUModuleOp module, const FakeQuantizeSpec &spec, const Chip &) {
  Description kernel;
  kernel.name = fmt::format("fake_quantize_{}_{}", spec.columns, numerics::toString(spec.codes));
  if (spec.groupSize)
    kernel.name += fmt::format("_g{}", spec.groupSize);
  kernel.name += spec.isStatic ? "_static" : "";
  kernel.name += fmt::format("_{}", nameOf(spec.output));
  kernel.threads = kRowThreads;
  kernel.grid[0].rowsPerBlock = 1;
  kernel.parameters =
      Parameters().readsRows("x").constants("scale", spec.isStatic).writesRows("y").rows();
  return getOrEmitKernel(module, kernel, [&](KernelBuilder &b, const KernelArguments &arguments) {
    FakeQuantize(b, spec, arguments).emit();
  });
}

} // namespace easyquant::gpu
