//===- ChooseTokens.cpp - Tokens of rows that are on the device -----------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// A block of threads has a row. Where all tokens may be drawn its first warp adds the blocks' sums
// in double, one after the other, as RowReader does, and looks into the block on which the random
// number falls. Where top_k or top_p takes tokens out, all warps put those into shared memory that
// can stay (the candidates, in the order of tokens), and the first warp takes out what does not:
// the border is the greatest key, of score and token, that so many candidates, or so much weight,
// reach, found bit by bit. Counts and weights are integers there, so that it does not matter which
// candidates there are besides.
//
//===----------------------------------------------------------------------===//

#include "LogitOps.h"

#include "easyquant/Codegen/GPU/Choose.h"

#include "mlir/Dialect/LLVMIR/LLVMDialect.h"

using namespace mlir;

namespace easyquant::gpu {
namespace {

constexpr int64_t kChoiceWarps = 8, kChoiceThreads = 32 * kChoiceWarps;
constexpr int64_t kMost = ChooseTokensSpec::kMostCandidates;

/// Bytes of shared memory.
constexpr int64_t kKeys = 0, kWeights = kKeys + 8 * kMost, kCounts = kWeights + 4 * kMost,
                  kWarpCounts = kCounts + 4 * 32, kTotal = kWarpCounts + 4 * kChoiceWarps,
                  kEnds = kTotal + 8;

class ChooseEmitter {
public:
  ChooseEmitter(KernelBuilder &b, const ChooseTokensSpec &spec, const KernelArguments &arguments)
      : b(b), vocabulary(spec.vocabulary), blocks(blocksOfLogits(vocabulary)),
        stretches(divideCeil(blocks, 32)), arguments(arguments), lane(b.rem(b.thread(), 32)),
        warp(b.warp()), isFirstWarp(b.equal(warp, 0)), choice(b, arguments, b.block(0)),
        row(b.rowOf(arguments["kept"], choice.slot, formats::keptLogits(vocabulary), b.f32())),
        tops(b.rowOf(arguments["tops"], b.block(0), blocks, b.f32())),
        sums(b.rowOf(arguments["sums"], b.block(0), blocks, b.f32())),
        shared(b.sharedMemory(kEnds + 8 * stretches)) {}
  void emit();

private:
  using Values = KernelBuilder::Values;
  using Compare = arith::CmpFPredicate;
  Type f64() { return b.getF64Type(); }
  Value number(double value) { return b.constant(f64(), value); }
  Value wide(int64_t value) { return arith::ConstantIntOp::create(b, b.i64(), value); }
  Value no() { return arith::ConstantIntOp::create(b, b.getI1Type(), 0); }
  Value yes() { return arith::ConstantIntOp::create(b, b.getI1Type(), 1); }
  Value notThe(Value condition) { return arith::XOrIOp::create(b, condition, yes()); }
  Value part(int64_t byte, Int index, Type element) {
    return b.advance(b.advance(shared, byte, b.i8()), index, element);
  }
  Value product(Value x, Value y) { return arith::MulFOp::create(b, x, y); }
  /// The lane that adds up, of 32 lanes in their order, and of those that `carried` is behind.
  Values inOrder(ValueRange carried, llvm::function_ref<Values(Value, ValueRange)> body) {
    return b.forLoop(0, 32, 1, carried, body);
  }
  Value sumInOrder(Value total, Value value) {
    return inOrder(total, [&](Value from, ValueRange so) -> Values {
      return {b.addf(so[0], toDouble(b, fromLane(b, value, from)))};
    })[0];
  }
  Value draw();
  Value totalOfRow() { return b.load(part(kTotal, 0, f64()), f64()); }
  void answer(Value token) {
    b.ifThen(b.equal(lane, 0),
             [&] { b.store(token, b.advance(arguments["tokens"], b.block(0), b.i32())); });
  }

  //===- The whole row ------------------------------------------------------===//
  Value sumOfBlock(Value block) {
    return b.guarded(b.less(block, blocks), b.constant(b.f32(), 0.0),
                     [&] { return b.load(b.advance(sums, block, b.f32()), b.f32()); });
  }
  /// The sum of all blocks, and those up to the end of each 32 of them in shared memory.
  Value addUp();
  void drawOfRow();
  Value drawOfBlock(Value block, Value before, Value reached);

  //===- Candidates ---------------------------------------------------------===//
  Value keyOf(Value i) { return b.load(part(kKeys, i, b.i64()), b.i64()); }
  Value weightPlace(Value i) { return part(kWeights, i, b.f32()); }
  Value unitsOf(Value weight);
  /// A score, by its ordered bits, that as many tokens reach as `top_k` says.
  Value scoreOfBlocks();
  /// The least score whose weight is not below.
  Value scoreOfWeight(Value weight);
  /// Calls body(pair, bits of the lanes that reach `score`, count so far) for the blocks of a warp
  /// that may have any. Their count.
  Value scan(Value score, llvm::function_ref<void(const LogitPair &, Values, Value)> body);
  void write(const LogitPair &pair, const Values &reaching, Value place);
  /// Candidates that reach a score, or how many they would be.
  Value collect(Value score);
  /// The greatest key such that the sum of those that reach it, by `amount`, is at least `target`.
  Value border(Value count, Value target, llvm::function_ref<Value(Value)> amount);
  void keepFrom(Value count, Value key);
  Value unitsOfCandidates(Value count);
  Value sumOfCandidates(Value count);
  Value target(Value total);
  Values collectEnough();
  void drawOfCandidates(Value count);

  KernelBuilder &b;
  const int64_t vocabulary, blocks, stretches;
  const KernelArguments &arguments;
  Value lane, warp, isFirstWarp;
  const ChoiceOfRow choice;
  Value row, tops, sums, shared;
};

} // namespace

Value ChooseEmitter::draw() {
  auto widen = [&](Value word) { return arith::ExtUIOp::create(b, b.i64(), word).getResult(); };
  Value high = arith::ShLIOp::create(b, widen(choice.drawHigh), wide(32));
  Value bits = arith::OrIOp::create(b, high, widen(choice.drawLow));
  return product(arith::SIToFPOp::create(b, f64(), bits), number(0x1p-53));
}

//===----------------------------------------------------------------------===//
// The whole row
//===----------------------------------------------------------------------===//

Value ChooseEmitter::addUp() {
  return b.forLoop(0, stretches, 1, number(0), [&](Value stretch, ValueRange so) -> Values {
    Value total = sumInOrder(so[0], sumOfBlock(b.add(b.mul(stretch, 32), lane)));
    b.ifThen(b.equal(lane, 0), [&] { b.store(total, part(kEnds, stretch, f64())); });
    return {total};
  })[0];
}

/// The first token of a block that takes a sum beyond `reached`.
Value ChooseEmitter::drawOfBlock(Value block, Value before, Value reached) {
  const LogitPair pair(b, row, block, lane, vocabulary);
  Value token = b.mul(block, formats::kLogitBlock);
  Values so = {before, token};
  for (int64_t i = 0; i < 2; ++i) {
    Value weight = choice.weight(b, pair.x[i], choice.least);
    so = inOrder(so, [&](Value from, ValueRange carried) -> Values {
      Value own = fromLane(b, weight, from);
      Value counts = b.both(b.compare(Compare::OLE, carried[0], reached),
                            b.compare(Compare::OGT, own, b.constant(b.f32(), 0.0)));
      return {b.select(counts, b.addf(carried[0], toDouble(b, own)), carried[0]),
              b.select(counts, b.add(b.add(token, from), 32 * i), carried[1])};
    });
  }
  return so[1];
}

void ChooseEmitter::drawOfRow() {
  b.warpBarrier();
  Value reached = product(draw(), totalOfRow());
  auto endOf = [&](Value stretch) { return b.load(part(kEnds, stretch, f64()), f64()); };
  // Sums only grow: those that are not beyond come first. All together always are.
  Value own = b.forLoop(lane, stretches, 32, b.i32(0), [&](Value stretch, ValueRange so) -> Values {
    Value isBefore = b.compare(Compare::OLE, endOf(stretch), reached);
    return {b.add(so[0], arith::ExtUIOp::create(b, b.i32(), isBefore).getResult())};
  })[0];
  Value stretch = b.min(b.warpSum(own), stretches - 1);
  Value before = b.guarded(b.less(0, stretch), number(0), [&] { return endOf(b.sub(stretch, 1)); });
  Value first = b.mul(stretch, 32), ownSum = sumOfBlock(b.add(first, lane));
  // What is behind the block that goes beyond is not looked at.
  Values found = inOrder({before, first, before, no()}, [&](Value from, ValueRange so) -> Values {
    Value next = b.addf(so[2], toDouble(b, fromLane(b, ownSum, from)));
    Value isIt = b.both(notThe(so[3]), b.compare(Compare::OGT, next, reached));
    return {b.select(isIt, so[2], so[0]), b.select(isIt, b.add(first, from), so[1]), next,
            arith::OrIOp::create(b, so[3], isIt)};
  });
  answer(drawOfBlock(found[1], found[0], reached));
}

//===----------------------------------------------------------------------===//
// Scores
//===----------------------------------------------------------------------===//

/// `top_k` where there are as many blocks: each has a token that reaches its greatest logit. Else
/// 0, which all reach.
Value ChooseEmitter::scoreOfBlocks() {
  return b.forLoop(0, 32, 1, b.i32(0), [&](Value i, ValueRange so) -> Values {
    Value trial = b.ori(so[0], b.shl(1, b.sub(31, i)));
    Value own = b.forLoop(
        b.thread(), blocks, kChoiceThreads, b.i32(0), [&](Value block, ValueRange sum) -> Values {
          Value top = orderedBits(b, b.load(b.advance(tops, block, b.f32()), b.f32()));
          Value reached = arith::ExtUIOp::create(b, b.i32(), reaches(b, top, trial));
          return {b.add(sum[0], reached)};
        })[0];
    Value all = b.warpSum(own), place = part(kCounts, i, b.i32());
    b.ifThen(b.equal(lane, 0), [&] { b.atomicAddShared(all, place); });
    b.barrier();
    Value isReached = b.less(b.sub(choice.topK, 1), b.load(place, b.i32()));
    return {b.select(isReached, trial, so[0])};
  })[0];
}

/// Weights only grow with scores. Bits that are no number's are below all of them, or above.
Value ChooseEmitter::scoreOfWeight(Value weight) {
  Value leastExponent = b.constant(b.f32(), formats::kLeastExponent);
  Value below = b.forLoop(0, 32, 1, b.i32(0), [&](Value i, ValueRange so) -> Values {
    Value trial = b.ori(so[0], b.shl(1, b.sub(31, i)));
    Value own = choice.weight(b, floatOfOrderedBits(b, trial), leastExponent);
    return {b.select(b.compare(Compare::OLT, own, weight), trial, so[0])};
  })[0];
  return b.add(below, 1);
}

//===----------------------------------------------------------------------===//
// Candidates
//===----------------------------------------------------------------------===//

Value ChooseEmitter::scan(Value score,
                          llvm::function_ref<void(const LogitPair &, Values, Value)> body) {
  const int64_t own = divideCeil(blocks, kChoiceWarps);
  Value first = b.mul(warp, own), end = b.min(b.add(first, own), blocks);
  return b.forLoop(first, end, 32, b.i32(0), [&](Value base, ValueRange so) -> Values {
    Value block = b.add(base, lane);
    Value has = b.guarded(b.less(block, end), no(), [&] {
      return reaches(b, orderedBits(b, b.load(b.advance(tops, block, b.f32()), b.f32())), score);
    });
    Value which = ballot(b, has);
    Values left = {which, so[0]};
    return {b.forLoop(0, countBits(b, which), 1, left, [&](Value, ValueRange carried) -> Values {
      Value bit = LLVM::CountTrailingZerosOp::create(b, b.i32(), carried[0], false);
      const LogitPair pair(b, row, b.add(base, bit), lane, vocabulary);
      Values reaching;
      Value count = carried[1];
      for (int64_t i = 0; i < 2; ++i)
        reaching.push_back(
            ballot(b, b.both(pair.isThere[i], reaches(b, orderedBits(b, pair.x[i]), score))));
      body(pair, reaching, count);
      for (Value bits : reaching)
        count = b.add(count, countBits(b, bits));
      return {b.andi(carried[0], b.sub(carried[0], 1)), count};
    })[1]};
  })[0];
}

void ChooseEmitter::write(const LogitPair &pair, const Values &reaching, Value place) {
  Value own = b.shl(1, lane), before = b.sub(own, 1);
  Value leastExponent = b.constant(b.f32(), formats::kLeastExponent);
  for (int64_t i = 0; i < 2; ++i) {
    b.ifThen(b.less(0, countBits(b, b.andi(reaching[i], own))), [&] {
      Value at = b.add(place, countBits(b, b.andi(reaching[i], before)));
      Value key = b.join({b.xori(pair.token[i], -1), orderedBits(b, pair.x[i])});
      b.store(b.bitcast(key, b.i64()), part(kKeys, at, b.i64()));
      b.store(choice.weight(b, pair.x[i], leastExponent), weightPlace(at));
    });
    place = b.add(place, countBits(b, reaching[i]));
  }
}

Value ChooseEmitter::collect(Value score) {
  Value own = scan(score, [](const LogitPair &, const Values &, Value) {});
  b.ifThen(b.equal(lane, 0), [&] { b.store(own, part(kWarpCounts, warp, b.i32())); });
  b.barrier();
  Value before = b.i32(0), count = b.i32(0);
  for (int64_t other = 0; other < kChoiceWarps; ++other) {
    Value theirs = b.load(part(kWarpCounts, other, b.i32()), b.i32());
    before = b.select(b.less(other, warp), b.add(before, theirs), before);
    count = b.add(count, theirs);
  }
  b.ifThen(b.less(count, kMost + 1), [&] {
    scan(score, [&](const LogitPair &pair, const Values &reaching, Value so) {
      write(pair, reaching, b.add(before, so));
    });
  });
  b.barrier();
  return count;
}

/// A weight as an integer, formats::kWeightBits below 1.
Value ChooseEmitter::unitsOf(Value weight) {
  Value unit = b.constant(b.f32(), static_cast<double>(int64_t(1) << formats::kWeightBits));
  return arith::FPToUIOp::create(b, b.i64(), b.mulf(weight, unit));
}

Value ChooseEmitter::unitsOfCandidates(Value count) {
  Value own = b.forLoop(lane, count, 32, wide(0), [&](Value i, ValueRange so) -> Values {
    return {b.createOrFold<arith::AddIOp>(so[0], unitsOf(b.load(weightPlace(i), b.f32())))};
  })[0];
  b.warpBarrier();
  return warpSumWide(b, own);
}

/// What a nucleus is to reach, at least its first token.
Value ChooseEmitter::target(Value total) {
  Value units = product(product(choice.topP, total),
                        number(static_cast<double>(int64_t(1) << formats::kWeightBits)));
  return b.createOrFold<arith::MaxUIOp>(wide(1), arith::FPToUIOp::create(b, b.i64(), units));
}

/// Where a nucleus is to be found: of 64, then 1024 tokens that are left out an equal part of what
/// it may lack. Two values: how many candidates there are, and whether they are all that is needed.
ChooseEmitter::Values ChooseEmitter::collectEnough() {
  const Values begin = {b.i32(0), no(), yes()}; // the last one: whether to go on
  // All tokens of a small vocabulary are candidates in the end.
  auto takesAll = [&](Value round, Value otherwise, Value all) {
    return vocabulary <= kMost ? b.select(b.equal(round, 0), otherwise, all) : otherwise;
  };
  Values found = b.forLoop(0, 2, 1, begin, [&](Value round, ValueRange so) -> Values {
    return b.guardedAll(so[2], so, [&]() -> Values {
      Value byBlocks = b.guarded(choice.hasTopK, b.i32(0), [&] { return scoreOfBlocks(); });
      Value score = b.guarded(notThe(choice.hasTopK), byBlocks, [&] {
        Value missing =
            product(b.createOrFold<arith::SubFOp>(number(1), choice.topP), totalOfRow());
        Value share = b.select(b.equal(round, 0), number(0x1p-6), number(0x1p-10));
        Value least =
            scoreOfWeight(arith::TruncFOp::create(b, b.f32(), product(missing, share)).getResult());
        return takesAll(round, least, b.i32(0));
      });
      Value count = collect(score);
      Value fits = b.less(count, kMost + 1);
      Value isNucleus = b.both(fits, notThe(choice.hasTopK));
      Value isEnough = b.guarded(isNucleus, fits, [&] {
        Value reached = reaches(b, unitsOfCandidates(count), target(totalOfRow()));
        return takesAll(round, reached, yes());
      });
      return {count, isEnough, b.both(isNucleus, notThe(isEnough))};
    });
  });
  return {found[0], found[1]};
}

Value ChooseEmitter::border(Value count, Value target, llvm::function_ref<Value(Value)> amount) {
  return b.forLoop(0, 64, 1, wide(0), [&](Value bit, ValueRange so) -> Values {
    Value one = arith::ShLIOp::create(
        b, wide(1), arith::ExtUIOp::create(b, b.i64(), b.sub(63, bit)).getResult());
    Value trial = arith::OrIOp::create(b, so[0], one);
    Value own = b.forLoop(lane, count, 32, wide(0), [&](Value i, ValueRange sum) -> Values {
      Value counted = b.select(reaches(b, keyOf(i), trial), amount(i), wide(0));
      return {b.createOrFold<arith::AddIOp>(sum[0], counted)};
    })[0];
    b.warpBarrier();
    return {b.select(reaches(b, warpSumWide(b, own), target), trial, so[0])};
  })[0];
}

/// What is out has no weight.
void ChooseEmitter::keepFrom(Value count, Value key) {
  b.forLoop(lane, count, 32, [&](Value i) {
    b.ifThen(notThe(reaches(b, keyOf(i), key)),
             [&] { b.store(b.constant(b.f32(), 0.0), weightPlace(i)); });
  });
  b.warpBarrier();
}

Value ChooseEmitter::sumOfCandidates(Value count) {
  return b.forLoop(0, count, 32, number(0), [&](Value base, ValueRange so) -> Values {
    Value i = b.add(base, lane);
    return {sumInOrder(so[0], b.guarded(b.less(i, count), b.constant(b.f32(), 0.0),
                                        [&] { return b.load(weightPlace(i), b.f32()); }))};
  })[0];
}

void ChooseEmitter::drawOfCandidates(Value count) {
  b.ifThen(b.both(choice.hasTopK, b.less(choice.topK, count)), [&] {
    Value most = arith::ExtUIOp::create(b, b.i64(), choice.topK);
    keepFrom(count, border(count, most, [&](Value) { return wide(1); }));
  });
  b.ifThen(b.compare(Compare::OLT, choice.topP, number(1)), [&] {
    Value ofRow = b.guarded(notThe(choice.hasTopK), number(0), [&] { return totalOfRow(); });
    Value total = b.guarded(choice.hasTopK, ofRow, [&] { return sumOfCandidates(count); });
    keepFrom(count, border(count, target(total),
                           [&](Value i) { return unitsOf(b.load(weightPlace(i), b.f32())); }));
  });
  auto words = [&](Value i) { return b.bitcast(keyOf(i), b.vec(2, b.i32())); };
  b.forLoop(lane, count, 32, [&](Value i) {
    Value z = choice.exponent(b, floatOfOrderedBits(b, b.extract(words(i), 1)));
    b.ifThen(b.compare(Compare::OLT, z, choice.least),
             [&] { b.store(b.constant(b.f32(), 0.0), weightPlace(i)); });
  });
  b.warpBarrier();
  Value reached = product(draw(), sumOfCandidates(count));
  Values drawn = b.forLoop(
      0, count, 32, {number(0), b.i32(0), no()}, [&](Value base, ValueRange so) -> Values {
        Value i = b.add(base, lane);
        Values own =
            b.guardedAll(b.less(i, count), {b.constant(b.f32(), 0.0), b.i32(0)}, [&]() -> Values {
              return {b.load(weightPlace(i), b.f32()), b.xori(b.extract(words(i), 0), -1)};
            });
        return inOrder(so, [&](Value from, ValueRange carried) -> Values {
          Value weight = fromLane(b, own[0], from), token = fromLane(b, own[1], from);
          Value counts =
              b.both(notThe(carried[2]), b.compare(Compare::OGT, weight, b.constant(b.f32(), 0.0)));
          Value sum = b.addf(carried[0], toDouble(b, weight));
          Value isLast = b.both(counts, b.compare(Compare::OGT, sum, reached));
          return {sum, b.select(counts, token, carried[1]),
                  arith::OrIOp::create(b, carried[2], isLast)};
        });
      });
  answer(drawn[1]);
}

void ChooseEmitter::emit() {
  b.ifThen(b.less(b.thread(), 32), [&] { b.store(b.i32(0), part(kCounts, b.thread(), b.i32())); });
  b.ifThen(isFirstWarp, [&] {
    Value total = b.guarded(notThe(choice.hasTopK), number(0), [&] { return addUp(); });
    b.ifThen(b.equal(lane, 0), [&] { b.store(total, part(kTotal, 0, f64())); });
  });
  b.ifThen(b.both(isFirstWarp, choice.isWhole), [&] { drawOfRow(); });
  b.ifThen(notThe(choice.isWhole), [&] {
    b.barrier();
    Values collected = collectEnough();
    b.barrier(); // all are through with the weights
    b.ifThen(b.both(isFirstWarp, collected[1]), [&] { drawOfCandidates(collected[0]); });
    b.ifThen(b.both(isFirstWarp, notThe(collected[1])),
             [&] { answer(b.i32(formats::kLeftToHost)); });
  });
}

Description getOrEmit(mlir::gpu::GPUModuleOp module, const ChooseTokensSpec &spec, const Chip &) {
  Description kernel;
  kernel.name = fmt::format("choose_tokens_{}", spec.vocabulary);
  kernel.threads = kChoiceThreads;
  kernel.grid[0].rowsPerBlock = 1;
  kernel.blocksPerSM = 1; // there are few, for which ptxas shall spill nothing
  kernel.parameters = Parameters()
                          .reads("kept")
                          .reads("greatest")
                          .reads("choices")
                          .reads("settings")
                          .reads("tops")
                          .reads("sums")
                          .writes("tokens")
                          .rows();
  return getOrEmitKernel(module, kernel, [&](KernelBuilder &b, const KernelArguments &arguments) {
    ChooseEmitter(b, spec, arguments).emit();
  });
}

} // namespace easyquant::gpu
