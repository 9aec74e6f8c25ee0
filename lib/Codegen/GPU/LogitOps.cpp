//===- LogitOps.cpp - Logits, their order and their weights ---------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "LogitOps.h"

#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/LLVMIR/NVVMDialect.h"

#include <cstddef>
#include <limits>

using namespace mlir;

namespace easyquant::gpu {

static constexpr int64_t kSignBit = std::numeric_limits<int32_t>::min();

Value orderedBits(KernelBuilder &b, Value x) {
  Value bits = b.bitcast(b.addf(x, b.constant(b.f32(), 0.0)), b.i32()); // -0 + 0 is 0
  return b.xori(bits, b.ori(b.shrArithmetic(bits, 31), kSignBit));
}
Value floatOfOrderedBits(KernelBuilder &b, Value bits) {
  Value isPositive = b.shrArithmetic(bits, 31);
  return b.bitcast(b.xori(bits, b.ori(b.xori(isPositive, -1), kSignBit)), b.f32());
}
Value reaches(KernelBuilder &b, Value x, Value y) {
  return b.createOrFold<arith::CmpIOp>(arith::CmpIPredicate::uge, x, y);
}

Value ballot(KernelBuilder &b, Value condition) {
  return b.intrinsic("llvm.nvvm.vote.ballot.sync", b.i32(), {b.i32(-1), condition});
}
Value fromLane(KernelBuilder &b, Value value, Value lane) {
  return NVVM::ShflOp::create(b, value.getType(), b.i32(-1), value, lane, b.i32(31),
                              NVVM::ShflKind::idx, UnitAttr());
}
Value countBits(KernelBuilder &b, Value bits) { return LLVM::CtPopOp::create(b, bits); }
Value toDouble(KernelBuilder &b, Value x) { return arith::ExtFOp::create(b, b.getF64Type(), x); }

Value warpSumWide(KernelBuilder &b, Value value) {
  VectorType words = b.vec(2, b.i32());
  for (int64_t mask = 16; mask > 0; mask /= 2) {
    Value halves = b.bitcast(value, words);
    Value others = b.join(
        {b.shuffleXor(b.extract(halves, 0), mask), b.shuffleXor(b.extract(halves, 1), mask)});
    value = arith::AddIOp::create(b, value, b.bitcast(others, b.i64()));
  }
  return value;
}

//===----------------------------------------------------------------------===//
// Weights
//===----------------------------------------------------------------------===//

/// numerics::exponentialInRange, operation by operation.
static Value exponentialInRange(KernelBuilder &b, Value x) {
  auto number = [&](float value) { return b.constant(b.f32(), value); };
  auto line = [&](float factor, Value of, float offset) {
    return b.addf(b.mulf(number(factor), of), number(offset));
  };
  Value shifted = b.addf(b.mulf(x, number(1.44269504f)), number(12582912.0f));
  Value whole = b.subf(shifted, number(12582912.0f));
  Value r = b.subf(b.subf(x, b.mulf(whole, number(0.693359375f))),
                   b.mulf(whole, number(-2.12194440e-4f)));
  Value square = b.mulf(r, r);
  Value high = line(1.9875691500e-4f, r, 1.3981999507e-3f);
  Value middle = line(8.3334519073e-3f, r, 4.1665795894e-2f);
  Value low = line(1.6666665459e-1f, r, 5.0000001201e-1f);
  Value p = b.addf(b.mulf(high, square), middle);
  p = b.addf(b.mulf(p, square), low);
  p = b.addf(b.addf(b.mulf(p, square), r), number(1.0f));
  Value exponent = b.sub(b.bitcast(shifted, b.i32()), 0x4b400000);
  return b.mulf(p, b.bitcast(b.shl(b.add(exponent, 127), 23), b.f32()));
}

ChoiceOfRow::ChoiceOfRow(KernelBuilder &b, const KernelArguments &arguments, Value row) {
  using formats::ChoiceSetting;
  using formats::TokenChoice;
  constexpr int64_t word = sizeof(int32_t), drawBits = TokenChoice::kDrawBits - 32;
  Value choice = b.rowOf(arguments["choices"], row, sizeof(TokenChoice) / word, b.i32());
  auto field = [&](Value of, size_t byte, Type type) {
    return b.load(b.advance(of, byte / word, b.i32()), type);
  };
  slot = field(choice, offsetof(TokenChoice, slot), b.i32());
  drawLow = field(choice, offsetof(TokenChoice, drawLow), b.i32());
  Value high = field(choice, offsetof(TokenChoice, drawHigh), b.i32());
  drawHigh = b.andi(high, (1 << drawBits) - 1);
  Value setting =
      b.rowOf(arguments["settings"], b.shr(high, drawBits), sizeof(ChoiceSetting) / word, b.i32());
  scale = field(setting, offsetof(ChoiceSetting, scale), b.f32());
  least = field(setting, offsetof(ChoiceSetting, least), b.f32());
  topK = field(setting, offsetof(ChoiceSetting, topK), b.i32());
  topP = field(setting, offsetof(ChoiceSetting, topP), b.getF64Type());
  // The high word.
  Value first = b.rowOf(arguments["greatest"], slot, 2, b.i32());
  top = floatOfOrderedBits(b, b.load(b.advance(first, 1, b.i32()), b.i32()));
  hasTopK = b.less(0, topK);
  isWhole = b.both(b.equal(topK, 0),
                   b.compare(arith::CmpFPredicate::OEQ, topP, b.constant(b.getF64Type(), 1.0)));
}

Value ChoiceOfRow::exponent(KernelBuilder &b, Value x) const {
  return b.mulf(b.subf(x, top), scale);
}
Value ChoiceOfRow::weight(KernelBuilder &b, Value x, Value leastExponent) const {
  Value z = exponent(b, x);
  return b.select(b.compare(arith::CmpFPredicate::OLT, z, leastExponent), b.constant(b.f32(), 0.0),
                  exponentialInRange(b, z));
}

LogitPair::LogitPair(KernelBuilder &b, Value row, Value block, Value lane, int64_t vocabulary) {
  Value none = b.constant(b.f32(), -std::numeric_limits<double>::infinity());
  for (int64_t i = 0; i < 2; ++i) {
    token[i] = b.add(b.add(b.mul(block, formats::kLogitBlock), lane), 32 * i);
    if (vocabulary % formats::kLogitBlock != 0)
      isThere[i] = b.less(token[i], vocabulary);
    x[i] = b.guarded(isThere[i], none,
                     [&] { return b.load(b.advance(row, token[i], b.f32()), b.f32()); });
  }
}

} // namespace easyquant::gpu
