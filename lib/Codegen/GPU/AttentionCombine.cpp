//===- AttentionCombine.cpp - Stretches of tokens into one ----------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// A block has one head of one token. Every warp works out the factors of all stretches, and adds up
// those whose number is its own modulo the number of warps; then the warps' sums are added, in the
// order of warps. Only the stretches before the last one with a token in it have written anything.
//
//===----------------------------------------------------------------------===//

#include "AttentionBlock.h"

#include <numeric>

using namespace mlir;

namespace easyquant::gpu {

void emitCombine(KernelBuilder &b, const AttentionSpec &spec, int64_t splits,
                 const KernelArguments &arguments) {
  using Values = KernelBuilder::Values;
  constexpr int64_t kWarps = 4;
  const int64_t headDim = spec.headDim, width = std::gcd<int64_t>(headDim, 4);
  const int64_t passes = divideCeil(headDim, 32 * width);
  Type pair = b.vec(2, b.f32()), piece = width == 1 ? b.f32() : Type(b.vec(width, b.f32()));
  Value token = b.block(0), head = b.block(1);
  Value warp = b.div(b.thread(), 32), lane = b.rem(b.thread(), 32);
  Value first = b.mul(b.add(b.mul(token, spec.heads), head), splits);
  Value scratch = arguments["scratch"];
  Value values = b.rowOf(scratch, first, headDim, b.f32());
  Value merges =
      b.rowOf(b.rowOf(scratch, b.mul(arguments["rows"], spec.heads * splits), headDim, b.f32()),
              first, 2, b.f32());
  Value shared = b.sharedMemory(kWarps * (splits + headDim) * 4);
  Value factors = b.advance(shared, b.mul(warp, splits), b.f32());
  Value sums = b.advance(shared, kWarps * splits, b.f32());

  // Lanes have stretches.
  Values maxima, weights;
  Value maximum = b.constant(b.f32(), kLeastMaximum), count = b.i32(0);
  for (int64_t i = 0; i < splits; i += 32) {
    Value split = b.add(lane, i);
    Value inside = i + 32 > splits ? b.less(split, splits) : Value();
    Value none = arith::ConstantOp::create(
        b,
        DenseElementsAttr::get(cast<VectorType>(pair), {static_cast<float>(kLeastMaximum), 0.0f}));
    Value merge = b.guarded(inside, none, [&] {
      return b.load(b.advance(merges, b.mul(split, 2), b.f32()), pair, /*constant=*/true);
    });
    maxima.push_back(b.extract(merge, 0));
    weights.push_back(b.extract(merge, 1));
    maximum = b.maxf(maximum, maxima.back());
    Value some = b.compare(arith::CmpFPredicate::OGT, weights.back(), b.zero(b.f32()));
    count = b.max(count, b.select(some, b.add(split, 1), b.i32(0)));
  }
  maximum = warpMax(b, maximum);
  count = b.warpMaxUnsigned(count);
  Value total = b.zero(b.f32());
  for (auto [i, m, l] : llvm::enumerate(maxima, weights)) {
    Value factor = b.exp2Approximate(b.subf(m, maximum));
    total = b.fma(factor, l, total);
    Value split = b.add(lane, static_cast<int64_t>(i) * 32);
    b.ifThen(splits % 32 != 0 ? b.less(split, splits) : Value(),
             [&] { b.store(factor, b.advance(factors, split, b.f32())); });
  }
  total = b.warpSum(total);
  b.warpBarrier();

  auto columnOf = [&](int64_t pass) { return b.add(b.mul(lane, width), pass * 32 * width); };
  auto inside = [&](int64_t pass) {
    return (pass + 1) * 32 * width > headDim ? b.less(columnOf(pass), headDim) : Value();
  };
  Values accumulators(passes * width, b.zero(b.f32()));
  accumulators = b.forLoop(warp, count, kWarps, accumulators, [&](Value split, ValueRange carried) {
    Value factor = b.load(b.advance(factors, split, b.f32()), b.f32());
    Value row = b.rowOf(values, split, headDim, b.f32());
    Values next;
    for (int64_t pass = 0; pass < passes; ++pass) {
      Value x = b.guarded(inside(pass), b.zero(piece), [&] {
        return b.load(b.advance(row, columnOf(pass), b.f32()), piece, /*constant=*/true);
      });
      for (int64_t i = 0; i < width; ++i)
        next.push_back(b.fma(b.extract(x, i), factor, carried[pass * width + i]));
    }
    return next;
  });
  for (int64_t pass = 0; pass < passes; ++pass)
    b.ifThen(inside(pass), [&] {
      Value to = b.advance(sums, b.add(b.mul(warp, headDim), columnOf(pass)), b.f32());
      b.store(b.join(ArrayRef(accumulators).slice(pass * width, width)), to);
    });
  b.barrier();
  Value inverse = b.reciprocalApproximate(total);
  Type element = b.type(spec.output);
  Value y = b.rowOf(arguments["y"], token, arguments["y_stride"], element);
  y = b.advance(y, b.mul(head, headDim), element);
  b.forLoop(b.thread(), headDim, kWarps * 32, [&](Value column) {
    Value sum;
    for (int64_t w = 0; w < kWarps; ++w) {
      Value x = b.load(b.advance(sums, b.add(column, w * headDim), b.f32()), b.f32());
      sum = sum ? b.addf(sum, x) : x;
    }
    b.store(b.fromF32(b.mulf(sum, inverse), spec.output), b.advance(y, column, element));
  });
}

} // namespace easyquant::gpu
