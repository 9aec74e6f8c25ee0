//===- LinearSums.cpp - Sums of a weight's codes --------------------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Zero points of groups of the input are corrected by sums of the weight's codes over these groups.
// Beside weights of four bits in groups of 32 they would be a quarter of what is read, while a
// panel that has just been read gives them at a product with ones.
//
//===----------------------------------------------------------------------===//

#include "Linear.h"

#include "llvm/Support/MathExtras.h"

using namespace mlir;

namespace easyquant::cpu {

namespace {
struct WeightSums {
  LinearKernel &k;
  Value panel;
  KernelBuilder &b = k.b;
  int64_t lanes = b.target.lanes(), vectors = kPanelRows / lanes;

  /// 1 for the first `count` of the four columns in every lane, else 0.
  Value ones(int64_t count) {
    const int64_t word = (int64_t(1) << 8 * count) - 1;
    return b.bitcast(b.constant(b.vec(lanes, b.i32()), word & 0x01010101),
                     b.vec(4 * lanes, b.i8()));
  }

  /// acc + the sum of the first `count` columns of a step.
  Value add(Value acc, Value bytes, int64_t count) {
    if (k.tiling.dot == Dot::Vnni || k.isForArm())
      return k.dot(acc, bytes, ones(count));
    // Bytes of tables have signs, which the second factor of vpmaddubsw may have.
    Value one = ones(count), u8 = k.isTable() ? one : bytes, s8 = k.isTable() ? bytes : one;
    VectorType words = b.vec(2 * lanes, b.i16());
    Value pairs = b.intrinsic("llvm.x86.avx2.pmadd.ub.sw", words, {u8, s8});
    return b.addi(acc, b.intrinsic("llvm.x86.avx2.pmadd.wd", b.vec(lanes, b.i32()),
                                   {pairs, b.constant(words, int64_t(1))}));
  }

  /// The first `count` columns of the block that has number `index`.
  SmallVector<Value> addBlock(Value index, int64_t count, SmallVector<Value> acc) {
    PackedBlock block = k.block(panel, b.mul(index, PackedBlock::bytesOf(k.spec.weights)), lanes);
    for (int64_t half = 0; half < 2 && 4 * half < count; ++half) {
      block.load(half);
      for (int64_t v = 0; v < vectors; ++v)
        acc[v] = add(acc[v], k.dotBytes(block, half, v), std::min<int64_t>(count - 4 * half, 4));
    }
    return acc;
  }

  /// Group g, of `count` columns.
  void store(Value g, int64_t count, Value slot) {
    const int64_t size = k.spec.inputGroup;
    Value firstBlock = b.mul(g, size / 8);
    VectorType type = b.vec(lanes, b.i32());
    SmallVector<Value> acc(vectors, b.zero(type));
    if (count >= 8)
      acc = b.forLoop(0, count / 8, 1, acc, [&](Value i, ValueRange carried) {
        return addBlock(b.add(firstBlock, i), 8, SmallVector<Value>(carried));
      });
    if (count % 8)
      acc = addBlock(b.add(firstBlock, count / 8), count % 8, acc);
    Value weightGroup = k.spec.groupSize ? b.div(g, k.spec.groupSize / size) : b.index(0);
    for (int64_t v = 0; v < vectors; ++v) {
      Value sum = b.subi(acc[v], b.constant(type, count * (k.dotOffset() + k.commonZero())));
      if (k.wZeros)
        sum = b.subi(sum, b.muli(loadZeroPoints(k, panel, weightGroup, v * lanes, lanes),
                                 b.constant(type, count)));
      b.storeVector(sum, k.wSums, {slot, g, v * lanes});
    }
  }
};
} // namespace

void emitWeightSums(LinearKernel &k, Value panel, Value slot) {
  if (!k.tiling.sumsBytes)
    return;
  KernelBuilder &b = k.b;
  WeightSums sums{k, panel};
  const int64_t size = k.spec.inputGroup, full = k.spec.k / size, rest = k.spec.k % size;
  b.forLoop(0, full, 1, [&](Value g) { sums.store(g, size, slot); });
  if (rest)
    sums.store(b.index(full), rest, slot);
}

} // namespace easyquant::cpu
