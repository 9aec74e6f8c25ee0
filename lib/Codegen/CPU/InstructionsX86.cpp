//===- InstructionsX86.cpp - AVX2 and AVX-512 VNNI ------------------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Instructions.h"

#include "mlir/Dialect/Arith/IR/Arith.h"

using namespace mlir;

namespace easyquant::cpu::x86 {

Value dotU8S8(KernelBuilder &b, Value acc, Value u8, Value s8) {
  if (!b.target.emulateDot)
    return b.intrinsic("llvm.x86.avx512.vpdpbusd.512", acc.getType(), {acc, u8, s8});
  // Bytes of even and of odd place as i16, whose products vpmaddwd adds exactly.
  VectorType words = b.vec(16, b.i16()), sums = b.vec(8, b.i32());
  SmallVector<Value> halves;
  for (int64_t half = 0; half < 2; ++half) {
    Value u = b.bitcast(b.slice(u8, 32 * half, 32), words),
          s = b.bitcast(b.slice(s8, 32 * half, 32), words);
    Value even = b.intrinsic("llvm.x86.avx2.pmadd.wd", sums,
                             {b.andi(u, 255), b.shrArithmetic(b.shl(s, 8), 8)});
    Value odd =
        b.intrinsic("llvm.x86.avx2.pmadd.wd", sums, {b.shrLogical(u, 8), b.shrArithmetic(s, 8)});
    halves.push_back(b.addi(b.addi(b.slice(acc, 8 * half, 8), even), odd));
  }
  return b.join(halves[0], halves[1]);
}

Value dotPairs(KernelBuilder &b, Value a, Value c) {
  const int64_t lanes = cast<VectorType>(a.getType()).getNumElements();
  const bool wide = lanes == 16;
  if (wide && b.target.emulateDot)
    return b.join(dotPairs(b, b.slice(a, 0, 8), b.slice(c, 0, 8)),
                  dotPairs(b, b.slice(a, 8, 8), b.slice(c, 8, 8)));
  VectorType words = b.vec(2 * lanes, b.i16());
  return b.intrinsic(wide ? "llvm.x86.avx512.pmaddw.d.512" : "llvm.x86.avx2.pmadd.wd", a.getType(),
                     {b.bitcast(a, words), b.bitcast(c, words)});
}

Value lookup(KernelBuilder &b, Value table, Value index) {
  const int64_t lanes = cast<VectorType>(index.getType()).getNumElements();
  const int64_t size = cast<VectorType>(table.getType()).getNumElements();
  const bool wide = lanes == 16;
  if (wide && b.target.emulateDot) {
    Value low = lookup(b, table, b.slice(index, 0, 8)),
          high = lookup(b, table, b.slice(index, 8, 8));
    return b.join(low, high);
  }
  if (size == 16 && !wide) {
    Value low = lookup(b, b.slice(table, 0, 8), index),
          high = lookup(b, b.slice(table, 8, 8), index);
    Value top = b.shl(index, 28); // its sign is the fourth bit
    Value isHigh =
        b.createOrFold<arith::CmpIOp>(arith::CmpIPredicate::slt, top, b.zero(top.getType()));
    return arith::SelectOp::create(b, isHigh, high, low);
  }
  SmallVector<int64_t> repeated(lanes);
  for (int64_t i = 0; i < lanes; ++i)
    repeated[i] = i % size;
  Value values = size == lanes ? table : b.shuffle(table, table, repeated);
  StringRef name =
      size == 4 ? (wide ? "llvm.x86.avx512.vpermilvar.ps.512" : "llvm.x86.avx.vpermilvar.ps.256")
                : (wide ? "llvm.x86.avx512.permvar.sf.512" : "llvm.x86.avx2.permps");
  return b.intrinsic(name, b.vec(lanes, b.f32()), {values, index});
}

Value lookupBytes(KernelBuilder &b, Value table, Value index) {
  const int64_t lanes = cast<VectorType>(index.getType()).getNumElements();
  const bool wide = lanes == 64;
  if (wide && b.target.emulateDot)
    return b.join(lookupBytes(b, table, b.slice(index, 0, 32)),
                  lookupBytes(b, table, b.slice(index, 32, 32)));
  // The instruction looks up in each 16 bytes by itself.
  SmallVector<int64_t> repeated(lanes);
  for (int64_t i = 0; i < lanes; ++i)
    repeated[i] = i % 16;
  return b.intrinsic(wide ? "llvm.x86.avx512.pshuf.b.512" : "llvm.x86.avx2.pshuf.b",
                     b.vec(lanes, b.i8()), {b.shuffle(table, table, repeated), index});
}

} // namespace easyquant::cpu::x86
