//===- ByteProducts.h - Matrix products of bytes ----------------*- C++ -*-===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// m16n8k32 on int8, with sums in i32, or on f8E4M3FN, with sums in f32. Where a chip has no
// products of FP8, each is two of f16, which hold all values of FP8. The first two of the four
// columns of a register are columns of such a product, and the others lie eight columns further on
// there. Sums do not mind, as both operands are taken apart alike.
//
//===----------------------------------------------------------------------===//

#ifndef EASYQUANT_LIB_CODEGEN_GPU_BYTEPRODUCTS_H
#define EASYQUANT_LIB_CODEGEN_GPU_BYTEPRODUCTS_H

#include "UnpackedWeights.h"

namespace easyquant::gpu {

class ByteProducts {
public:
  using Values = KernelBuilder::Values;

  ByteProducts(KernelBuilder &b, const LinearSpec &spec, bool converts)
      : b(b), isFP8(spec.isFP8()), converts(converts), pairs(b, spec, Float::F16) {}

  mlir::Type sumType() { return isFP8 ? mlir::Type(b.f32()) : mlir::Type(b.i32()); }
  mlir::Value zero() { return b.zero(sumType()); }
  mlir::Value add(mlir::Value x, mlir::Value y) { return isFP8 ? b.addf(x, y) : b.add(x, y); }
  /// Registers of A or B as what `multiply` takes: the same, or twice as many.
  Values operand(mlir::ValueRange registers);
  /// c + a w, of operands.
  Values multiply(mlir::ValueRange a, mlir::ValueRange w, mlir::ValueRange c);

private:
  KernelBuilder &b;
  const bool isFP8, converts;
  UnpackedWeights pairs;
};

} // namespace easyquant::gpu

#endif // EASYQUANT_LIB_CODEGEN_GPU_BYTEPRODUCTS_H
