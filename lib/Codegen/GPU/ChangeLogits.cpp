//===- ChangeLogits.cpp - Penalties and biases of tokens ------------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// A thread has one change, and does what formats::LogitChange::of does, operation by operation.
//
//===----------------------------------------------------------------------===//

#include "LogitOps.h"

#include "easyquant/Codegen/GPU/Choose.h"

#include <cstddef>
#include <limits>

using namespace mlir;

namespace easyquant::gpu {

static void emitChange(KernelBuilder &b, const ChangeLogitsSpec &spec, Value change, Value logits) {
  using formats::LogitChange;
  Type f64 = b.getF64Type();
  auto field = [&](size_t offset, Type type) {
    return b.load(b.advance(change, static_cast<int64_t>(offset), b.i8()), type);
  };
  auto number = [&](double value) { return b.constant(f64, value); };
  Value row = b.rowOf(logits, field(offsetof(LogitChange, row), b.i32()), spec.vocabulary, b.f32());
  Value place = b.advance(row, field(offsetof(LogitChange, token), b.i32()), b.f32());
  Value x = b.load(place, b.f32()), wide = toDouble(b, x);
  Value repetition = field(offsetof(LogitChange, repetition), f64);
  Value isPositive = b.compare(arith::CmpFPredicate::OGT, x, b.constant(b.f32(), 0.0));
  Value value = b.select(isPositive, b.divf(wide, repetition),
                         arith::MulFOp::create(b, wide, repetition).getResult());
  value = b.subf(value, field(offsetof(LogitChange, shift), f64));
  constexpr double most = std::numeric_limits<float>::max();
  auto bounded = [&](arith::CmpFPredicate isBeyond, double bound) {
    value = b.select(b.compare(isBeyond, value, number(bound)), number(bound), value);
  };
  bounded(arith::CmpFPredicate::OLT, -most);
  bounded(arith::CmpFPredicate::OGT, most);
  Value rounded = arith::TruncFOp::create(b, b.f32(), value);
  b.store(b.addf(rounded, field(offsetof(LogitChange, bias), b.f32())), place);
}

Description getOrEmit(mlir::gpu::GPUModuleOp module, const ChangeLogitsSpec &spec, const Chip &) {
  constexpr int64_t kBlockThreads = 128;
  Description kernel;
  kernel.name = fmt::format("change_logits_{}", spec.vocabulary);
  kernel.threads = kBlockThreads;
  kernel.grid[0].rowsPerBlock = kBlockThreads;
  kernel.parameters = Parameters().writes("logits").reads("changes").rows();
  return getOrEmitKernel(module, kernel, [&](KernelBuilder &b, const KernelArguments &arguments) {
    Value index = b.add(b.mul(b.block(0), kBlockThreads), b.thread());
    b.ifThen(b.less(index, arguments["rows"]), [&] {
      emitChange(b, spec,
                 b.rowOf(arguments["changes"], index, sizeof(formats::LogitChange), b.i8()),
                 arguments["logits"]);
    });
  });
}

} // namespace easyquant::gpu
