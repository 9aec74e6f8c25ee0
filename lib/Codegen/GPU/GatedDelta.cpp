//===- GatedDelta.cpp - The recurrence of gated delta nets ----------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Columns of a head's state do not depend on each other. Those that a block's threads have room for
// are an item of work: a block takes their part of the state, in registers, through the tokens of a
// sequence. Lanes that share columns have four rows of them in turns, so that a warp reads keys
// from shared memory at once, and columns side by side from the state.
//
// Some tokens at a time are brought to shared memory. There each warp has made unit vectors of
// other tokens' keys and queries, and of their numbers decay and strength, so that the loop over
// tokens is products alone.
//
//===----------------------------------------------------------------------===//

#include "ScalarMath.h"
#include "SequenceRuns.h"

#include "easyquant/Codegen/GPU/Recurrent.h"

#include <array>
#include <cmath>

using namespace mlir;

namespace easyquant::gpu {
namespace {

constexpr int64_t kDeltaLanes = 32, kDeltaWarps = 4, kDeltaThreads = kDeltaLanes * kDeltaWarps;
constexpr int64_t kRowVector = 4;  ///< rows of a lane, side by side
constexpr int64_t kMostRows = 16;  ///< of a lane
constexpr int64_t kOwnColumns = 2; ///< of a lane: each key that it reads is for both
/// Under the root of lengths, as in lm.gated_delta.
constexpr double kLengthEpsilon = 1e-6;

/// How a head's state lies in registers, and tokens in shared memory.
struct DeltaShape {
  explicit DeltaShape(const GatedDeltaSpec &spec) {
    lanes = 8;
    while (lanes < kDeltaLanes && lanes * kMostRows < spec.keyDim)
      lanes *= 2;
    rows = divideCeil(divideCeil(spec.keyDim, lanes), kRowVector) * kRowVector;
    columns = kDeltaThreads / lanes * kOwnColumns;
    parts = divideCeil(spec.valueDim, columns);
    value = 2 * keys();
    decay = value + columns;
    strength = decay + 1;
    tokenFloats = decay + kRowVector;
    tokens = std::clamp<int64_t>(kSharedFloats / tokenFloats, 1, 2 * kDeltaWarps);
  }
  /// Rows with those of zeros behind the head's.
  int64_t keys() const { return lanes * rows; }

  int64_t lanes;   ///< that share their columns
  int64_t rows;    ///< of a lane
  int64_t columns; ///< of an item of work
  int64_t parts;   ///< items of a head
  /// Floats of a token in shared memory: its key, its query, then these.
  int64_t value, decay, strength, tokenFloats;
  int64_t tokens; ///< that are there at a time

private:
  static constexpr int64_t kSharedFloats = 4096;
};

/// log(1 + e^x) = max(x, 0) + 2 artanh(u / (2 + u)), u = e^-|x|; the series ends at (1/3)^15.
Value softplus(KernelBuilder &b, Value x) {
  Value u = preciseExp(b, b.negate(b.magnitude(x)));
  Value s = b.divf(u, b.addf(u, b.constant(b.f32(), 2.0))), square = b.mulf(s, s);
  Value series = b.constant(b.f32(), 1.0 / 15);
  for (int odd = 13; odd > 0; odd -= 2)
    series = b.fma(series, square, b.constant(b.f32(), 1.0 / odd));
  Value twice = b.mulf(b.addf(s, s), series);
  return b.addf(b.larger(x, b.constant(b.f32(), 0.0)), twice);
}

/// 1 / (1 + e^-x), by e^-|x|.
Value preciseLogistic(KernelBuilder &b, Value x) {
  Value one = b.constant(b.f32(), 1.0), zero = b.constant(b.f32(), 0.0);
  Value u = preciseExp(b, b.negate(b.magnitude(x)));
  Value isNegative = b.compare(arith::CmpFPredicate::OLT, x, zero);
  return b.divf(b.select(isNegative, u, one), b.addf(u, one));
}

/// Emits what a block does for one item of work.
class RecurrenceEmitter {
public:
  using Values = KernelBuilder::Values;

  RecurrenceEmitter(KernelBuilder &b, const GatedDeltaSpec &spec, const DeltaShape &shape,
                    const KernelArguments &arguments, Value sequence, Value head, Value part);
  void emit();

private:
  Value number(double value) { return b.constant(b.f32(), value); }
  Value at(Value pointer, Int count) { return b.advance(pointer, count, b.f32()); }
  /// Element `column` of a row of the step.
  Value element(StringRef rows, Value row, Int column) {
    Value from = b.rowOf(arguments[rows], row, arguments[(rows + "_stride").str()], b.f32());
    return at(from, column);
  }
  Value constantOf(StringRef name) {
    return b.load(at(arguments[name], head), b.f32(), /*constant=*/true);
  }
  Value floatsOf(Value token) { return at(shared, b.mul(token, shape.tokenFloats)); }
  /// body(place, inside): the numbers of the state that the lane has, its columns row by row.
  void forState(Value slot, llvm::function_ref<void(Value place, Value inside)> body);
  Values takeState();
  void leaveState(Value slot, ValueRange state);
  /// Brings a token to shared memory; all lanes of a warp.
  void stage(Value row, Value token);
  /// Adds up what the lanes of a column have: products of the state with the lane's part of a
  /// vector, for each of its columns.
  Values columnSums(ValueRange state, ValueRange vector);
  /// Takes the state through the rows of one entry of the table.
  Values emitRows(const StepSequence &rows, ValueRange state);
  Values emitToken(Value row, Value token, ValueRange state);

  KernelBuilder &b;
  const GatedDeltaSpec &spec;
  const DeltaShape &shape;
  const KernelArguments &arguments;
  const StepSequence sequence; ///< the first one of a run
  Value run;                   ///< its number
  Value head, shared;
  Value lane;                            ///< of the warp
  Value own;                             ///< number of the lane among those of its column
  Value part;                            ///< first column of the block in the head
  Value blockColumn;                     ///< the lane's first one, of the block
  std::array<Value, kOwnColumns> inside; ///< are they columns of the head? Null: certainly
  Value firstKey, rate, bias;
};

} // namespace

RecurrenceEmitter::RecurrenceEmitter(KernelBuilder &b, const GatedDeltaSpec &spec,
                                     const DeltaShape &shape, const KernelArguments &arguments,
                                     Value sequenceNumber, Value head, Value partNumber)
    : b(b), spec(spec), shape(shape), arguments(arguments), sequence(b, arguments, sequenceNumber),
      run(sequenceNumber), head(head),
      shared(b.sharedMemory(shape.tokens * shape.tokenFloats * bytesOf(Float::F32))),
      lane(b.rem(b.thread(), kDeltaLanes)) {
  const int64_t columnsOfWarp = kDeltaLanes / shape.lanes * kOwnColumns;
  own = b.div(lane, kDeltaLanes / shape.lanes);
  part = b.mul(partNumber, shape.columns);
  blockColumn = b.add(b.mul(b.div(b.thread(), kDeltaLanes), columnsOfWarp),
                      b.mul(b.rem(lane, kDeltaLanes / shape.lanes), kOwnColumns));
  for (int64_t i = 0; i < kOwnColumns; ++i)
    if (spec.valueDim % shape.columns != 0)
      inside[i] = b.less(b.add(b.add(part, blockColumn), i), spec.valueDim);
  Value keyHead =
      spec.tiled ? b.rem(head, spec.keyHeads) : b.div(head, spec.valueHeads / spec.keyHeads);
  firstKey = b.mul(keyHead, spec.keyDim);
  // e^x where x is positive: 1 / e^-x.
  Value logRate = constantOf("log_rate");
  Value power = preciseExp(b, b.negate(b.magnitude(logRate)));
  rate = b.select(b.compare(arith::CmpFPredicate::OGT, logRate, number(0.0)),
                  b.divf(number(1.0), power), power);
  bias = constantOf("bias");
}

void RecurrenceEmitter::forState(Value slot,
                                 llvm::function_ref<void(Value place, Value inside)> body) {
  Value first =
      at(b.rowOf(arguments["state"], slot, spec.stateValues, b.f32()), arguments["first"]);
  Value column = b.add(part, blockColumn);
  for (int64_t i = 0; i < shape.rows; ++i) {
    const int64_t four = i / kRowVector * kRowVector * shape.lanes + i % kRowVector;
    Value row = b.add(b.mul(own, kRowVector), four);
    Value isRow;
    if (four + (shape.lanes - 1) * kRowVector >= spec.keyDim)
      isRow = b.less(row, spec.keyDim);
    Value ofHead = b.add(b.mul(head, spec.keyDim), row);
    for (int64_t c = 0; c < kOwnColumns; ++c)
      body(at(first, b.add(b.add(b.mul(ofHead, spec.valueDim), column), c)),
           b.both(inside[c], isRow));
  }
}

/// Zeros at the beginning of a sequence.
RecurrenceEmitter::Values RecurrenceEmitter::takeState() {
  Values state;
  Value isThere = b.less(0, sequence.position);
  forState(sequence.slot, [&](Value place, Value isInside) {
    state.push_back(
        b.guarded(b.both(isThere, isInside), number(0.0), [&] { return b.load(place, b.f32()); }));
  });
  return state;
}

void RecurrenceEmitter::leaveState(Value slot, ValueRange state) {
  size_t i = 0;
  forState(slot, [&](Value place, Value isInside) {
    Value value = state[i++];
    b.ifThen(isInside, [&] { b.store(value, place); });
  });
}

void RecurrenceEmitter::stage(Value row, Value token) {
  Value to = floatsOf(token);
  for (StringRef name : {"k", "q"}) {
    Values parts;
    Value squares = number(0.0);
    for (int64_t i = 0; i < shape.keys(); i += kDeltaLanes) {
      Value key = b.add(lane, i);
      Value isKey = i + kDeltaLanes <= spec.keyDim ? Value() : b.less(key, spec.keyDim);
      parts.push_back(b.guarded(isKey, number(0.0), [&] {
        return b.load(element(name, row, b.add(firstKey, key)), b.f32());
      }));
      squares = b.fma(parts.back(), parts.back(), squares);
    }
    Value shifted = b.addf(b.warpSum(squares), number(kLengthEpsilon));
    Value inverse = b.reciprocalRootApproximate(shifted);
    // A step of Newton's: the approximation has two ulp.
    Value half = b.mulf(b.mulf(shifted, number(-0.5)), inverse);
    inverse = b.mulf(inverse, b.fma(half, inverse, number(1.5)));
    if (name == "q")
      inverse = b.mulf(inverse, number(1.0 / std::sqrt(static_cast<double>(spec.keyDim))));
    for (auto [i, value] : llvm::enumerate(parts)) {
      Value key = b.add(lane, static_cast<int64_t>(i) * kDeltaLanes);
      const bool isWhole = static_cast<int64_t>(i + 1) * kDeltaLanes <= shape.keys();
      b.ifThen(isWhole ? Value() : b.less(key, shape.keys()), [&] {
        b.store(b.mulf(value, inverse), at(to, b.add(key, name == "q" ? shape.keys() : 0)));
      });
    }
  }
  Value isColumn = shape.columns < kDeltaLanes ? b.less(lane, shape.columns) : Value();
  Value column = b.add(part, lane);
  Value isValue = spec.valueDim % shape.columns == 0 ? Value() : b.less(column, spec.valueDim);
  b.ifThen(isColumn, [&] {
    Value value = b.guarded(isValue, number(0.0), [&] {
      return b.load(element("v", row, b.add(b.mul(head, spec.valueDim), column)), b.f32());
    });
    b.store(value, at(to, b.add(lane, shape.value)));
  });
  b.ifThen(b.equal(lane, 0), [&] {
    Value step = softplus(b, b.addf(b.load(element("decay", row, head), b.f32()), bias));
    b.store(preciseExp(b, b.negate(b.mulf(rate, step))), at(to, shape.decay));
    b.store(preciseLogistic(b, b.load(element("beta", row, head), b.f32())),
            at(to, shape.strength));
  });
}

RecurrenceEmitter::Values RecurrenceEmitter::columnSums(ValueRange state, ValueRange vector) {
  Values results;
  for (int64_t c = 0; c < kOwnColumns; ++c) {
    Values sums(kRowVector, number(0.0)); // which do not wait for each other
    for (auto [i, value] : llvm::enumerate(vector)) {
      Value &sum = sums[i % kRowVector];
      sum = b.fma(state[i * kOwnColumns + c], value, sum);
    }
    Value sum = b.addf(b.addf(sums[0], sums[1]), b.addf(sums[2], sums[3]));
    for (int64_t mask = kDeltaLanes / 2; mask >= kDeltaLanes / shape.lanes; mask /= 2)
      sum = b.addf(sum, b.shuffleXor(sum, mask));
    results.push_back(sum);
  }
  return results;
}

RecurrenceEmitter::Values RecurrenceEmitter::emitToken(Value row, Value token, ValueRange state) {
  Value from = floatsOf(token), mine = at(from, b.mul(own, kRowVector));
  auto vectors = [&](int64_t first) {
    Values all;
    for (int64_t i = 0; i < shape.rows; i += kRowVector)
      llvm::append_range(
          all, b.elements(b.load(at(mine, first + i * shape.lanes), b.vec(kRowVector, b.f32()))));
    return all;
  };
  Value decay = b.load(at(from, shape.decay), b.f32());
  Value strength = b.load(at(from, shape.strength), b.f32());
  const Values values =
      b.elements(b.load(at(from, b.add(blockColumn, shape.value)), b.vec(kOwnColumns, b.f32())));
  const Values keys = vectors(0), queries = vectors(shape.keys());
  const Values known = columnSums(state, keys);
  Values next(state.begin(), state.end());
  for (int64_t c = 0; c < kOwnColumns; ++c) {
    Value change = b.mulf(strength, b.subf(values[c], b.mulf(decay, known[c])));
    for (auto [i, key] : llvm::enumerate(keys)) {
      Value &s = next[i * kOwnColumns + c];
      s = b.fma(key, change, b.mulf(decay, s));
    }
  }
  const Values seen = columnSums(next, queries);
  Value to = element("y", row, b.add(b.mul(head, spec.valueDim), b.add(part, blockColumn)));
  for (int64_t c = 0; c < kOwnColumns; ++c)
    b.ifThen(b.both(b.equal(own, 0), inside[c]), [&] { b.store(seen[c], at(to, c)); });
  return next;
}

RecurrenceEmitter::Values RecurrenceEmitter::emitRows(const StepSequence &rows, ValueRange state) {
  Value warp = b.warp(), end = b.add(rows.firstRow, rows.rows);
  return b.forLoop(rows.firstRow, end, shape.tokens, state, [&](Value first, ValueRange before) {
    Value last = b.min(end, b.add(first, shape.tokens));
    b.forLoop(b.add(first, warp), last, kDeltaWarps,
              [&](Value row) { stage(row, b.sub(row, first)); });
    b.barrier();
    auto token = [&](Value row, ValueRange now) { return emitToken(row, b.sub(row, first), now); };
    // Two at a time: sums of the first one for its result are beside those of the second.
    Value pairs = b.add(first, b.andi(b.sub(last, first), -2));
    Values behind = b.forLoop(first, pairs, 2, before, [&](Value row, ValueRange now) {
      return token(b.add(row, 1), token(row, now));
    });
    behind = b.forLoop(pairs, last, 1, behind, token);
    b.barrier(); // before others are brought there
    return behind;
  });
}

void RecurrenceEmitter::emit() {
  b.forLoop(run, endOfRun(b, arguments, run), 1, takeState(), [&](Value n, ValueRange before) {
    const StepSequence rows(b, arguments, n);
    Values behind = emitRows(rows, before);
    b.ifThen(leavesState(b, rows), [&] { leaveState(rows.nextSlot, behind); });
    return behind;
  });
}

Description getOrEmit(mlir::gpu::GPUModuleOp module, const GatedDeltaSpec &spec, const Chip &chip) {
  const DeltaShape shape(spec);
  Description kernel;
  kernel.name =
      fmt::format("gated_delta_{}x{}_{}x{}{}_of{}", spec.keyHeads, spec.keyDim, spec.valueHeads,
                  spec.valueDim, spec.tiled ? "_tiled" : "", spec.stateValues);
  kernel.threads = kDeltaThreads;
  // All of a grid's blocks are resident: they take turns with the items of a step. Longer keys than
  // 128 take more registers on their way to shared memory.
  kernel.blocksPerSM = shape.lanes == 8 ? 4 : 2;
  kernel.beginsNext = false;
  kernel.grid[0].factor = kernel.blocksPerSM * chip.multiprocessors;
  const int64_t anywhere = bytesOf(Float::F32); // perhaps columns of wider rows
  kernel.parameters = Parameters()
                          .readsRows("q", true, anywhere)
                          .readsRows("k", true, anywhere)
                          .readsRows("v", true, anywhere)
                          .readsRows("decay", true, anywhere)
                          .readsRows("beta", true, anywhere)
                          .constants("log_rate")
                          .constants("bias")
                          .writes("state")
                          .number("first")
                          .constants("sequences")
                          .constants("row_places")
                          .writesRows("y")
                          .rows();
  return getOrEmitKernel(module, kernel, [&](KernelBuilder &b, const KernelArguments &arguments) {
    const int64_t ofSequence = spec.valueHeads * shape.parts;
    Value items = b.mul(countOfSequences(b, arguments), ofSequence);
    b.forLoop(b.block(0), items, kernel.grid[0].factor, [&](Value item) {
      Value number = b.div(item, ofSequence);
      Value ofIt = b.sub(item, b.mul(number, ofSequence));
      Value head = b.div(ofIt, shape.parts);
      Value part = b.sub(ofIt, b.mul(head, shape.parts));
      Value isFirst = b.less(formats::kGoesOn, StepSequence(b, arguments, number).slot);
      b.ifThen(isFirst,
               [&] { RecurrenceEmitter(b, spec, shape, arguments, number, head, part).emit(); });
    });
  });
}

} // namespace easyquant::gpu
