//===- KeepLogits.cpp - Rows of logits that stay on the device ------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// A thread has eight logits, which it reads before it writes any. What comes first among those of a
// warp goes to memory by an atomic maximum, whose order is of no account.
//
//===----------------------------------------------------------------------===//

#include "LogitOps.h"

#include "easyquant/Codegen/GPU/Choose.h"

#include "mlir/Dialect/LLVMIR/LLVMDialect.h"

using namespace mlir;

namespace easyquant::gpu {
namespace {

constexpr int64_t kBlockThreads = 256, kOfThread = 8;
constexpr int64_t kNotFinite = -1;

class KeepEmitter {
public:
  KeepEmitter(KernelBuilder &b, const KeepLogitsSpec &spec, const KernelArguments &arguments)
      : b(b), spec(spec), arguments(arguments) {}
  void emit();

private:
  /// In the order of floats, all bits set for an infinity or NaN.
  Value orderOf(Value x) {
    constexpr int64_t exponent = 0x7f800000;
    Value isFinite = b.less(b.andi(b.bitcast(x, b.i32()), exponent), exponent);
    return b.select(isFinite, orderedBits(b, x), b.i32(kNotFinite));
  }
  void report(Value slot, Value order, Value token);

  KernelBuilder &b;
  const KeepLogitsSpec &spec;
  const KernelArguments &arguments;
};

} // namespace

void KeepEmitter::report(Value slot, Value order, Value token) {
  Value most = b.warpMaxUnsigned(order);
  // Among equal ones the first token counts, whose complement is the greatest.
  Value behind = b.select(b.equal(order, most), b.xori(token, -1), b.i32(0));
  Value low = b.warpMaxUnsigned(behind);
  low = b.select(b.equal(most, kNotFinite), b.i32(kNotFinite), low);
  b.ifThen(b.equal(b.rem(b.thread(), 32), 0), [&] {
    Value place = b.rowOf(arguments["greatest"], slot, 1, b.i64());
    LLVM::AtomicRMWOp::create(b, LLVM::AtomicBinOp::umax, place,
                              b.bitcast(b.join({low, most}), b.i64()),
                              LLVM::AtomicOrdering::monotonic, "device");
  });
}

void KeepEmitter::emit() {
  Value row = b.add(b.block(0), arguments["first_row"]);
  Value slot = b.add(b.block(0), arguments["first_slot"]);
  Value from = b.rowOf(arguments["logits"], row, spec.vocabulary, b.f32());
  Value to = b.rowOf(arguments["kept"], slot, formats::keptLogits(spec.vocabulary), b.f32());
  Value first = b.add(b.mul(b.block(1), kBlockThreads * kOfThread), b.thread());
  const bool isWhole = spec.vocabulary % (kBlockThreads * kOfThread) == 0;
  KernelBuilder::Values tokens, inside, values;
  for (int64_t i = 0; i < kOfThread; ++i) {
    tokens.push_back(b.add(first, i * kBlockThreads));
    inside.push_back(isWhole ? Value() : b.less(tokens[i], spec.vocabulary));
    values.push_back(b.guarded(inside[i], b.constant(b.f32(), 0.0), [&] {
      return b.load(b.advance(from, tokens[i], b.f32()), b.f32());
    }));
  }
  Value order = b.i32(0), token = b.i32(0);
  for (int64_t i = 0; i < kOfThread; ++i) {
    b.ifThen(inside[i], [&] { b.store(values[i], b.advance(to, tokens[i], b.f32())); });
    Value own = b.select(inside[i], orderOf(values[i]), b.i32(0));
    Value isLess = reaches(b, order, own);
    token = b.select(isLess, token, tokens[i]);
    order = b.select(isLess, order, own);
  }
  report(slot, order, token);
}

Description getOrEmit(mlir::gpu::GPUModuleOp module, const KeepLogitsSpec &spec, const Chip &) {
  Description kernel;
  kernel.name = fmt::format("keep_logits_{}", spec.vocabulary);
  kernel.threads = kBlockThreads;
  kernel.grid[0].rowsPerBlock = 1;
  kernel.grid[1].factor = divideCeil(spec.vocabulary, kBlockThreads * kOfThread);
  kernel.parameters = Parameters()
                          .reads("logits")
                          .writes("kept")
                          .writes("greatest")
                          .number("first_row")
                          .number("first_slot")
                          .rows();
  return getOrEmitKernel(module, kernel, [&](KernelBuilder &b, const KernelArguments &arguments) {
    KeepEmitter(b, spec, arguments).emit();
  });
}

} // namespace easyquant::gpu
