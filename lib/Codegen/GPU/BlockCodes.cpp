//===- BlockCodes.cpp - Rows as FP4 with scales of blocks -----------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// A block of threads has a row, a thread a group of 16 columns: it makes the group's scale, and
// stores eight bytes of codes and a byte of scales.
//
//===----------------------------------------------------------------------===//

#include "FloatCodes.h"

#include "easyquant/Codegen/GPU/BlockScaled.h"

#include <numeric>

using namespace mlir;

namespace easyquant::gpu {

static constexpr int64_t kCodeThreads = 128, kCodeAccess = 4;

/// Column c(i) of a group, which is in the low bits of byte i.
static constexpr int64_t kColumnsOfGroup[] = {0, 1, 4, 5, 2, 3, 6, 7};

static void emitBlockCodes(KernelBuilder &b, const BlockCodesSpec &spec,
                           const KernelArguments &arguments) {
  using Values = KernelBuilder::Values;
  const numerics::FloatFormat &format = *numerics::floatFormat(CodeFormat::F4E2M1FN);
  const int64_t width = std::gcd(spec.columns, kCodeAccess), steps = blockSteps(spec.columns);
  Value row = b.block(0);
  Value x = b.rowOf(arguments["x"], row, arguments["x_stride"], b.f32());
  Value codes = b.rowOf(arguments["codes"], row, blockCodeBytes(spec.columns), b.i8());
  Value scales = b.rowOf(arguments["scales"], row, 4 * steps, b.i8());
  Value outer = b.load(arguments["scale"], b.f32(), /*constant=*/true);
  b.ifThen(b.equal(b.thread(), 0),
           [&] { b.store(outer, b.advance(arguments["outer"], row, b.f32())); });
  Type access = width == 1 ? b.f32() : Type(b.vec(width, b.f32()));
  constexpr int64_t ofStep = kBlockStep / kBlockColumns;
  b.forLoop(b.thread(), steps * ofStep, kCodeThreads, [&](Value group) {
    Value begin = b.mul(group, kBlockColumns), most = b.i32(0);
    Values values;
    for (int64_t i = 0; i < kBlockColumns; i += width) {
      Value column = b.add(begin, i);
      Value inside = spec.columns % kBlockStep ? b.less(column, spec.columns) : Value();
      llvm::append_range(values, b.elements(b.guarded(inside, b.zero(access), [&] {
        return b.load(b.advance(x, column, b.f32()), access, /*constant=*/true);
      })));
    }
    for (Value value : values)
      most = b.createOrFold<arith::MaxUIOp>(most, b.bitcast(b.magnitude(value), b.i32()));
    BlockScale scale = blockScale(b, format, b.bitcast(most, b.f32()), outer);
    Values words;
    for (int64_t word = 0; word < 2; ++word) {
      Value bits = b.i32(0);
      for (int64_t i = 0; i < 8; ++i) {
        const int64_t column = kColumnsOfGroup[4 * word + i / 2] + i % 2 * 8;
        Value code = fp4CodeOf(b, roundTo(b, format, b.divf(values[column], scale.whole)));
        bits = b.ori(bits, b.shl(code, 4 * i));
      }
      words.push_back(bits);
    }
    b.store(b.join(words), b.advance(codes, b.mul(group, 8), b.i8()));
    Value byte = arith::TruncIOp::create(b, b.i8(), fp8CodeOf(b, scale.inner));
    b.store(byte, b.advance(scales, group, b.i8()));
  });
}

Description getOrEmit(mlir::gpu::GPUModuleOp module, const BlockCodesSpec &spec, const Chip &) {
  Description kernel;
  kernel.name = fmt::format("block_codes_{}", spec.columns);
  kernel.threads = kCodeThreads;
  kernel.grid[0].rowsPerBlock = 1;
  kernel.parameters = Parameters()
                          .readsRows("x")
                          .constants("scale")
                          .writes("codes")
                          .writes("scales")
                          .writes("outer")
                          .rows();
  return getOrEmitKernel(module, kernel, [&](KernelBuilder &b, const KernelArguments &arguments) {
    emitBlockCodes(b, spec, arguments);
  });
}

} // namespace easyquant::gpu
