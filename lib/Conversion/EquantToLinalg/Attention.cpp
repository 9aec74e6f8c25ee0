//===- Attention.cpp - Attention of one sequence --------------------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Patterns.h"

#include "easyquant/Dialect/LM/IR/LM.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Math/IR/Math.h"

#include <limits>

using namespace mlir;
using namespace easyquant;
using arith::CmpIPredicate;

/// Does token m see token t: is it not behind it, and not before the window?
static Value sees(TensorBuilder &b, Value m, Value t, int64_t window) {
  Value isSeen = arith::CmpIOp::create(b, CmpIPredicate::ule, t, m);
  if (window == 0)
    return isSeen;
  Value end = arith::AddIOp::create(b, t, arith::ConstantIndexOp::create(b, window).getResult());
  Value isNew = arith::CmpIOp::create(b, CmpIPredicate::ugt, end, m);
  return arith::AndIOp::create(b, isSeen, isNew);
}

/// All keys and values are those of the rows: the cache of a sequence that begins here is empty.
/// Dimensions are kv heads h, query heads r of each, tokens m and t, columns d of a head.
static SmallVector<Value> lowerAttention(TensorBuilder &b, lm::AttentionOp op,
                                         FunctionPattern<lm::AttentionOp>::Adaptor adaptor) {
  const auto heads = static_cast<int64_t>(op.getNumHeads());
  const auto kvHeads = static_cast<int64_t>(op.getNumKvHeads());
  const auto headDim = static_cast<int64_t>(op.getHeadDim());
  const auto window = static_cast<int64_t>(op.getWindow());
  const double scale = op.getScale().convertToDouble(), bound = op.getBound().convertToDouble();
  Type f32 = b.getF32Type();
  Value q = b.split(one(adaptor.getQuery()), 1, {kvHeads, heads / kvHeads, headDim});
  Value k = b.split(one(adaptor.getKey()), 1, {kvHeads, headDim});
  Value v = b.split(one(adaptor.getValue()), 1, {kvHeads, headDim});
  OpFoldResult tokens = b.sizeOf(q, 0);
  const Sizes rows = {b.size(kvHeads), b.size(heads / kvHeads), tokens};
  Sizes pairs = rows;
  pairs.push_back(tokens);

  enum Dim { H, R, M, T, D = 4 };
  Value dots = b.contract(5, {q, {M, H, R, D}}, {k, {T, H, D}}, {H, R, M, T}, pairs, f32);
  Value scores =
      b.map(pairs, f32, {{dots, {H, R, M, T}}}, [&](TensorBuilder &in, ValueRange x) -> Value {
        Value score = arith::MulFOp::create(in, x[0], in.f32(scale));
        if (bound > 0)
          score = in.softCap(score, bound);
        Value isSeen = sees(in, in.index(M), in.index(T), window);
        Value none = in.f32(-std::numeric_limits<double>::infinity());
        return arith::SelectOp::create(in, isSeen, score, none);
      });
  Value lowest = b.f32(std::numeric_limits<float>::lowest());
  Value largest = b.reduce(4, {H, R, M}, rows, lowest, {{scores, {H, R, M, T}}},
                           [](TensorBuilder &in, ValueRange x) -> Value {
                             return arith::MaximumFOp::create(in, x[0], x[1]);
                           });
  Value powers = b.map(pairs, f32, {{scores, {H, R, M, T}}, {largest, {H, R, M}}},
                       [](TensorBuilder &in, ValueRange x) -> Value {
                         Value below = arith::SubFOp::create(in, x[0], x[1]);
                         return math::ExpOp::create(in, below);
                       });
  Value totals = b.reduce(4, {H, R, M}, rows, b.f32(0), {{powers, {H, R, M, T}}},
                          [](TensorBuilder &in, ValueRange x) -> Value {
                            return arith::AddFOp::create(in, x[1], x[0]);
                          });
  Sizes results = {tokens, rows[0], rows[1], b.size(headDim)};
  Value sums = b.contract(5, {powers, {H, R, M, T}}, {v, {T, H, D}}, {M, H, R, D}, results, f32);
  Value y = b.map(results, f32, {{sums, {0, 1, 2, 3}}, {totals, {1, 2, 0}}},
                  [](TensorBuilder &in, ValueRange x) -> Value {
                    return arith::DivFOp::create(in, x[0], x[1]);
                  });
  return {b.merge(y, 1, 3)};
}

void linalgform::addAttentionPatterns(RewritePatternSet &patterns, const TypeConverter &converter) {
  addPattern<lm::AttentionOp>(patterns, converter, lowerAttention);
}
