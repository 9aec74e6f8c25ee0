//===- MixedOps.cpp - Sums in f32 of f16 and bf16 -------------------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// add, sub and fma whose last term and result are f32, and whose others are halves (PTX ISA 8.6,
// from sm_100 on). The result is rounded once, to nearest.
//
//===----------------------------------------------------------------------===//

#include "Decoder.h"
#include "FloatLanes.h"
#include "Half.h"

using namespace easyquant;
using namespace easyquant::simt;

template <typename H, bool subtracts>
static void addSingles(Warp &w, const Instruction &i, Mask m) {
  const uint16_t *a = w.reg<uint16_t>(i.a);
  const float *b = w.reg<float>(i.b);
  storeLanes(w.reg<float>(i.dst), m, [&](unsigned lane) {
    const float x = H::widen(a[lane]);
    return finish<false, false>(subtracts ? x - b[lane] : x + b[lane]);
  });
}

template <typename H> static void multiplyAddSingles(Warp &w, const Instruction &i, Mask m) {
  const uint16_t *a = w.reg<uint16_t>(i.a), *b = w.reg<uint16_t>(i.b);
  const float *c = w.reg<float>(i.c);
  storeLanes(w.reg<float>(i.dst), m, [&](unsigned lane) {
    return finish<false, false>(std::fma(H::widen(a[lane]), H::widen(b[lane]), c[lane]));
  });
}

void simt::decodeMixed(Decoder &d) {
  d.expect("f32");
  const Type half = d.type();
  if (half != Type::F16 && half != Type::BF16)
    d.unknown();
  const bool isF16 = half == Type::F16;
  if (d.opcode == "fma") {
    d.operate(OpClass::Float, Type::F32, {half, half, Type::F32});
    d.i.run = isF16 ? multiplyAddSingles<Half> : multiplyAddSingles<BFloat>;
    return;
  }
  if (d.opcode != "add" && d.opcode != "sub")
    d.unknown();
  d.operate(OpClass::Float, Type::F32, {half, Type::F32});
  if (d.opcode == "add")
    d.i.run = isF16 ? addSingles<Half, false> : addSingles<BFloat, false>;
  else
    d.i.run = isF16 ? addSingles<Half, true> : addSingles<BFloat, true>;
}
