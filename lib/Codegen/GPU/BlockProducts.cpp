//===- BlockProducts.cpp - Operands of products of FP4 --------------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "BlockProducts.h"

#include "easyquant/Numerics/FragmentPacking.h"

using namespace mlir;

namespace easyquant::gpu {

BlockProducts::BlockProducts(KernelBuilder &b, const BlockScaledSpec &spec,
                             const KernelArguments &arguments, Value lane)
    : b(b), spec(spec), arguments(arguments), lane(lane),
      ownRow(b.add(b.mul(b.rem(lane, 4), 8), b.div(lane, 4))), packed(b, spec),
      params(b, spec, spec.weightRows(), spec.k, arguments) {
  Value isUpper = b.less(1, b.rem(lane, 4));
  auto choose = [&](int64_t lower, int64_t upper) {
    return b.select(isUpper, b.i32(upper), b.i32(lower));
  };
  // Lanes 0 and 1 of four have groups 0 and 2 of a step, lanes 2 and 3 groups 1 and 3. The even
  // bytes of a word are of its block's first group.
  given = choose(0x7531, 0x6420);
  // The bytes of lane 0 or 1 before those of the lane two behind it.
  kept = {choose(0x5420, 0x3154), choose(0x7620, 0x3176)};
}

BlockProducts::Values BlockProducts::weights(Value first, Value second) {
  Value received = b.shuffleXor(b.permute(first, second, given), 2);
  return {b.permute(first, received, kept[0]), b.permute(second, received, kept[1])};
}

Value BlockProducts::weightScales(Value step, Value n) {
  const int64_t padded = numerics::fragmentScaleRows(spec.weightRows());
  const int64_t groups = groupCount(spec.k, kBlockColumns);
  // A tile may reach beyond the padding.
  n = params.rowOf(b.min(n, numerics::fragmentScaleRows(spec.n) - 1));
  Values bytes;
  for (int64_t i = 0; i < 4; ++i) {
    Value group = b.min(b.add(b.mul(step, 4), i), groups - 1);
    Value pointer = b.advance(arguments["wscales"], b.add(b.mul(group, padded), n), b.i8());
    Value byte = b.load(pointer, b.i8(), /*constant=*/true);
    bytes.push_back(arith::ExtUIOp::create(b, b.i32(), byte));
  }
  Value low = b.permute(bytes[0], bytes[1], 0x5540), high = b.permute(bytes[2], bytes[3], 0x5540);
  return b.permute(low, high, 0x5410);
}

Value BlockProducts::activationScales(Value step, Value m) {
  Value row = b.rowOf(arguments["scales"], m, spec.steps(), b.i32());
  return b.load(b.advance(row, b.min(step, spec.steps() - 1), b.i32()), b.i32(),
                /*constant=*/true);
}

BlockProducts::Values BlockProducts::outerOfColumns(Value n, int64_t count) {
  return spec.outer ? params.outer(n, count) : Values(count, b.constant(b.f32(), 1.0));
}

Value BlockProducts::outerOfRow(Value m) {
  return b.load(b.advance(arguments["outer"], m, b.f32()), b.f32(), /*constant=*/true);
}

} // namespace easyquant::gpu
