//===- RowOps.cpp - Norms, activations, quantization of rows --------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// A row belongs to a warp or to a block. Its elements are read once, 16 bytes a thread and access,
// and stay in registers through statistics, largest magnitude and codes; a row too long for that is
// read again for each of these. Reductions go through the warp and then through shared memory, in
// an order that depends on the shape only.
//
// A rotated block of columns is a warp's: the vectors of a run lie one behind the other in its
// columns.
//
//===----------------------------------------------------------------------===//

#include "../RowCodes.h"
#include "Hadamard.h"
#include "KernelBuilder.h"
#include "ScalarMath.h"

using namespace mlir;

namespace easyquant::gpu {
namespace {

/// Emits the body of one row.
class RowEmitter {
public:
  RowEmitter(KernelBuilder &b, const RowSpec &spec, const KernelArguments &arguments)
      : b(b), spec(spec), arguments(arguments), shape(rowShape(spec)),
        groups(groupCount(spec.columns, spec.groupSize)),
        quantization(spec.effectiveQuantization()) {}

  void emit();

private:
  using Values = KernelBuilder::Values;
  static constexpr int64_t kWarp = 32;            ///< lanes
  static constexpr int64_t kReductionBytes = 128; ///< a word of each of 32 warps
  /// Most of one kernel: two of a LayerNorm, those of the scale or the extrema, and the sum of the
  /// codes.
  static int64_t reductionsOf(const RowSpec &spec) {
    return spec.sinks || spec.effectiveQuantization() == RowQuantization::Online ? 5 : 4;
  }

  /// Elements of the row that a thread has in one vector: W values of f32, 0 beyond the row's end.
  struct Piece {
    Value column; ///< of the first element
    Value inside; ///< i1; null: certainly
    Values values;
  };

  Values loadVector(Value row, Type element, const Piece &piece);
  Values readRow(StringRef name, Float type, const Piece &piece);
  /// Reads f32 or i32.
  Values readColumns(StringRef name, Type element, const Piece &piece);
  Values readColumns(StringRef name, const Piece &piece) {
    return readColumns(name, b.f32(), piece);
  }
  /// Elements of the row in the order that is given.
  Values gatherRow(const Piece &piece);
  /// Vector `i` of the thread in a run.
  Piece piece(Int run, int64_t i);
  /// The result of the operation for the elements of a piece.
  Values compute(const Piece &piece);
  Values activation(const Values &x, llvm::function_ref<Value(Value)> function);
  Value geluTanh(Value x);
  /// body for every piece of the thread, the carried value going from one to the next.
  Value forPieces(Value init, llvm::function_ref<Value(int64_t, const Piece &, Value)> body);
  /// The values of the operation, rotated: those of a kept piece, which are kept likewise.
  const Values &results(int64_t vector);

  Value blockSum(Value value);
  Value blockMaxUnsigned(Value value);
  Value acrossWarps(Value value, llvm::function_ref<Value(Value)> inWarp, Value neutral);
  /// Sum over the row of term(x), x the input.
  Value sum(llvm::function_ref<Value(Value)> term);
  Value reciprocalDeviation(Value sumOfSquares);
  void emitStatistics();

  void emitFloats();
  void emitDynamicCodes();
  void emitStaticCodes();
  /// The scale that the row's sequence keeps.
  Value onlineScale();
  /// The largest over the row of term(y), y its values.
  Value largestOf(llvm::function_ref<Value(Value)> term);
  void noteExtrema(Value scale);
  /// The largest magnitude over the row of term(y), y its values.
  Value absMaxOf(llvm::function_ref<Value(Value)> term);
  /// The largest magnitude of y itself, unless it is given.
  Value absMaxOfRow();
  /// Stores the code words (f32 whose low byte is the code) of a piece; the sum of the codes.
  Value storeCodes(const Piece &piece, const Values &codes);
  void emitCodes(llvm::function_ref<Value(Value)> codeOf);
  void addToGroup(const Piece &piece, Value sum);
  void writeGroups();
  /// body in the first thread of the row.
  void once(llvm::function_ref<void()> body) { b.ifThen(b.equal(lane, 0), body); }

  KernelBuilder &b;
  const RowSpec &spec;
  const KernelArguments &arguments;
  const RowShape shape;
  const int64_t groups;
  const RowQuantization quantization;
  Value row, lane; ///< of the row: thread 0 .. shape.threads - 1
  Value ownVector; ///< the thread's first one, of the vectors of the row
  Value shared, groupSums;
  int64_t reductions = 0;
  Value mean, deviation;
  Value absMax;                 ///< of the row, where its extrema are known
  SmallVector<Piece> kept;      ///< in registers: the row, or a run of it
  SmallVector<Values> computed; ///< likewise
};

} // namespace

//===- Elements of the row ------------------------------------------------===//

RowEmitter::Values RowEmitter::loadVector(Value row, Type element, const Piece &piece) {
  Type type = shape.vector == 1 ? element : Type(b.vec(shape.vector, element));
  Value loaded = b.guarded(piece.inside, b.zero(type), [&] {
    return b.load(b.advance(row, piece.column, element), type, /*constant=*/true);
  });
  Values values;
  for (int64_t i = 0; i < shape.vector; ++i)
    values.push_back(b.toF32(b.extract(loaded, i)));
  return values;
}

RowEmitter::Values RowEmitter::readRow(StringRef name, Float type, const Piece &piece) {
  Value first = b.rowOf(arguments[name], row, arguments[(name + "_stride").str()], b.type(type));
  return loadVector(first, b.type(type), piece);
}

RowEmitter::Values RowEmitter::readColumns(StringRef name, Type element, const Piece &piece) {
  // Parameters of columns are words, two accesses to a vector of 16-bit floats.
  Values values;
  constexpr int64_t kWords = 4;
  int64_t width = std::min(shape.vector, kWords);
  for (int64_t i = 0; i < shape.vector; i += width) {
    Type type = width == 1 ? element : Type(b.vec(width, element));
    Value loaded = b.guarded(piece.inside, b.zero(type), [&] {
      return b.load(b.advance(arguments[name], b.add(piece.column, i), element), type, true);
    });
    llvm::append_range(values, b.elements(loaded));
  }
  return values;
}

RowEmitter::Values RowEmitter::gatherRow(const Piece &piece) {
  Type element = b.type(spec.input);
  Value first = b.rowOf(arguments["x"], row, arguments["x_stride"], element);
  Values values;
  // Beyond the end the order is 0, which every row has.
  for (Value column : readColumns("order", b.i32(), piece)) {
    Value x = b.toF32(b.load(b.advance(first, column, element), element, /*constant=*/true));
    values.push_back(piece.inside ? b.select(piece.inside, x, b.zero(b.f32())) : x);
  }
  return values;
}

RowEmitter::Piece RowEmitter::piece(Int run, int64_t i) {
  Piece piece;
  const int64_t vectorsOfRun = shape.threads * shape.run;
  Value index = b.add(b.add(b.mul(run, vectorsOfRun), kWarp * i), ownVector);
  piece.column = b.mul(index, shape.vector);
  bool certain = !run.value && (run.constant + 1) * vectorsOfRun * shape.vector <= spec.columns;
  if (!certain)
    piece.inside = b.less(piece.column, spec.columns);
  StringRef name = isGated(spec.op) ? "gate" : spec.op == RowOp::Add ? "a" : "x";
  piece.values = spec.op == RowOp::Gather ? gatherRow(piece) : readRow(name, spec.input, piece);
  return piece;
}

Value RowEmitter::forPieces(Value init,
                            llvm::function_ref<Value(int64_t, const Piece &, Value)> body) {
  auto forKept = [&](Value carried) {
    for (auto [v, piece] : llvm::enumerate(kept))
      carried = body(static_cast<int64_t>(v), piece, carried);
    return carried;
  };
  auto keepRun = [&](Int run) {
    for (int64_t i = 0; i < shape.run; ++i)
      kept.push_back(piece(run, i));
  };
  const int64_t runs = shape.vectors / shape.run;
  if (shape.inRegisters) {
    if (kept.empty())
      for (int64_t run = 0; run < runs; ++run)
        keepRun(run);
    return forKept(init);
  }
  SmallVector<Value> inits;
  if (init)
    inits.push_back(init);
  Values carried = b.forLoop(0, runs, 1, inits, [&](Value run, ValueRange carried) {
    kept.clear();
    computed.clear();
    keepRun(run);
    Value next = forKept(init ? carried.front() : Value());
    return init ? Values{next} : Values();
  });
  return init ? carried.front() : Value();
}

const RowEmitter::Values &RowEmitter::results(int64_t vector) {
  while (std::ssize(computed) <= vector) {
    SmallVector<Values> run;
    for (int64_t i = 0; i < shape.run; ++i)
      run.push_back(compute(kept[computed.size() + i]));
    if (spec.hadamard)
      emitHadamard(b, run, lane, kWarp, spec.hadamard);
    llvm::append_range(computed, run);
  }
  return computed[vector];
}

RowEmitter::Values RowEmitter::activation(const Values &x,
                                          llvm::function_ref<Value(Value)> function) {
  return llvm::map_to_vector(x, function);
}

Value RowEmitter::geluTanh(Value x) {
  // (1 + tanh(u)) / 2 = logistic(2u), u = sqrt(2 / pi) (x + 0.044715 x^3).
  Value inner = b.fma(b.mulf(x, x), b.constant(b.f32(), 0.044715 * 1.5957691216057308),
                      b.constant(b.f32(), 1.5957691216057308));
  return b.mulf(x, logistic(b, b.mulf(x, inner)));
}

RowEmitter::Values RowEmitter::compute(const Piece &piece) {
  const Values &x = piece.values;
  Values y;
  switch (spec.op) {
  case RowOp::Quantize:
  case RowOp::Copy:
  case RowOp::Gather:
    return x;
  case RowOp::RmsNorm: {
    Values weight = readColumns("weight", piece);
    for (auto [v, w] : llvm::zip_equal(x, weight))
      y.push_back(b.mulf(b.mulf(v, deviation), w));
    return y;
  }
  case RowOp::LayerNorm: {
    Values weight = readColumns("weight", piece), bias = readColumns("bias", piece);
    for (auto [v, w, c] : llvm::zip_equal(x, weight, bias))
      y.push_back(b.fma(b.mulf(b.subf(v, mean), deviation), w, c));
    return y;
  }
  case RowOp::SiluMul: {
    Values up = readRow("up", spec.input, piece);
    for (auto [v, u] : llvm::zip_equal(x, up))
      y.push_back(b.mulf(b.mulf(v, logistic(b, v)), u));
    return y;
  }
  case RowOp::GeluMul: {
    Values up = readRow("up", spec.input, piece);
    for (auto [v, u] : llvm::zip_equal(x, up))
      y.push_back(b.mulf(geluTanh(v), u));
    return y;
  }
  case RowOp::ClampedMul:
    break; // refused before: GPUKernels.cpp
  case RowOp::Mul: {
    Values up = readRow("up", spec.input, piece);
    for (auto [v, u] : llvm::zip_equal(x, up))
      y.push_back(b.mulf(v, u));
    return y;
  }
  case RowOp::SigmoidMul: {
    Values up = readRow("up", spec.input, piece);
    for (auto [v, u] : llvm::zip_equal(x, up))
      y.push_back(b.mulf(logistic(b, v), u));
    return y;
  }
  case RowOp::GeluTanh:
    return activation(x, [&](Value v) { return geluTanh(v); });
  case RowOp::Multiply:
    return activation(x, [&](Value v) { return b.mulf(v, b.constant(b.f32(), spec.constant)); });
  case RowOp::SoftCap:
    return activation(x, [&](Value v) { return softCap(b, v, spec.constant); });
  case RowOp::GeluErf:
    return activation(x, [&](Value v) { return b.mulf(v, normalCdf(b, v)); });
  case RowOp::Add:
  case RowOp::AddBias: {
    Values other =
        spec.op == RowOp::Add ? readRow("b", spec.input, piece) : readColumns("bias", piece);
    for (auto [v, u] : llvm::zip_equal(x, other))
      y.push_back(b.addf(v, u));
    return y;
  }
  }
  llvm_unreachable("all row operations are emitted");
}

//===- Reductions ---------------------------------------------------------===//

Value RowEmitter::acrossWarps(Value value, llvm::function_ref<Value(Value)> inWarp, Value neutral) {
  value = inWarp(value);
  int64_t warps = shape.threads / 32;
  if (warps == 1)
    return value;
  assert(reductions < reductionsOf(spec) && "each reduction has words of its own");
  Value words = b.advance(shared, reductions++ * kReductionBytes, b.i8());
  Value laneInWarp = b.rem(lane, 32);
  b.ifThen(b.equal(laneInWarp, 0),
           [&] { b.store(value, b.advance(words, b.div(lane, 32), value.getType())); });
  b.barrier();
  Value there = warps == 32 ? Value() : b.less(laneInWarp, warps);
  Value partial = b.guarded(there, neutral, [&] {
    return b.load(b.advance(words, laneInWarp, value.getType()), value.getType());
  });
  return inWarp(partial);
}
Value RowEmitter::blockSum(Value value) {
  return acrossWarps(value, [&](Value v) { return b.warpSum(v); }, b.zero(value.getType()));
}
Value RowEmitter::blockMaxUnsigned(Value value) {
  return acrossWarps(value, [&](Value v) { return b.warpMaxUnsigned(v); }, b.zero(b.i32()));
}

Value RowEmitter::sum(llvm::function_ref<Value(Value)> term) {
  Value zero = b.zero(b.f32());
  return blockSum(forPieces(zero, [&](int64_t, const Piece &piece, Value carried) {
    Value total;
    for (Value x : piece.values) {
      Value t = term(x);
      total = total ? b.addf(total, t) : t;
    }
    // A term of what lies beyond the end need not be 0.
    return b.addf(carried, b.select(piece.inside, total, zero));
  }));
}

Value RowEmitter::reciprocalDeviation(Value sumOfSquares) {
  Value variance = b.divf(sumOfSquares, b.constant(b.f32(), static_cast<double>(spec.columns)));
  Value shifted = b.addf(variance, b.constant(b.f32(), spec.constant));
  // Exact roots and quotients are calls, around which ptxas may spill the row.
  return b.reciprocalRootApproximate(shifted);
}

void RowEmitter::emitStatistics() {
  if (spec.op == RowOp::RmsNorm) {
    deviation = reciprocalDeviation(sum([&](Value x) { return b.mulf(x, x); }));
  } else if (spec.op == RowOp::LayerNorm) {
    // Two passes: the sum of squares minus the square of the sum would cancel.
    Value total = sum([](Value x) { return x; });
    mean = b.divf(total, b.constant(b.f32(), static_cast<double>(spec.columns)));
    deviation = reciprocalDeviation(sum([&](Value x) {
      Value centred = b.subf(x, mean);
      return b.mulf(centred, centred);
    }));
  }
}

//===- Results ------------------------------------------------------------===//

void RowEmitter::emitFloats() {
  Type element = b.type(spec.output);
  Value first = b.rowOf(arguments["y"], row, arguments["y_stride"], element);
  int64_t width = std::min(shape.vector, 16 / bytesOf(spec.output));
  forPieces(Value(), [&](int64_t vector, const Piece &piece, Value) {
    const Values &y = results(vector);
    b.ifThen(piece.inside, [&] {
      for (int64_t i = 0; i < shape.vector; i += width)
        b.store(b.fromF32(b.join(ArrayRef(y).slice(i, width)), spec.output),
                b.advance(first, b.add(piece.column, i), element));
    });
    return Value();
  });
}

Value RowEmitter::storeCodes(const Piece &piece, const Values &codes) {
  Values bytes;
  for (Value code : codes)
    bytes.push_back(arith::TruncIOp::create(b, b.i8(), b.bitcast(code, b.i32())));
  // Columns beyond the end pad the codes with zeros, as far as rows go.
  Value packed = b.join(bytes);
  if (piece.inside)
    packed = b.select(piece.inside, packed, b.zero(packed.getType()));
  Value first = b.rowOf(arguments["codes"], row, paddedColumns(spec.columns), b.i8());
  Value beforeEnd = b.less(piece.column, paddedColumns(spec.columns));
  b.ifThen(beforeEnd, [&] { b.store(packed, b.advance(first, piece.column, b.i8())); });
  if (!spec.sums)
    return Value();
  Value sum = b.i32(0);
  if (shape.vector < 4) {
    for (int64_t i = 0; i < shape.vector; ++i)
      sum = b.add(sum, arith::ExtSIOp::create(b, b.i32(), b.extract(packed, i)).getResult());
    return sum;
  }
  Value ones = b.i32(0x01010101);
  for (int64_t i = 0; i < shape.vector; i += 4) {
    Values four;
    for (int64_t j = i; j < i + 4; ++j)
      four.push_back(b.extract(packed, j));
    sum = b.dp4a(b.bitcast(b.join(four), b.i32()), ones, sum);
  }
  return sum;
}

void RowEmitter::addToGroup(const Piece &piece, Value sum) {
  Value group = b.div(piece.column, spec.groupSize);
  Value words = b.advance(groupSums, group, b.i32());
  if (spec.groupSize % (32 * shape.vector) != 0)
    return b.ifThen(piece.inside, [&] { b.atomicAddShared(sum, words); });
  // All of the warp is in one group, if the first lane is inside at all.
  sum = b.warpSum(sum);
  Value first = b.equal(b.rem(lane, 32), 0);
  b.ifThen(b.both(first, piece.inside), [&] { b.atomicAddShared(sum, words); });
}

void RowEmitter::writeGroups() {
  auto synchronize = [&] { shape.threads == 32 ? b.warpBarrier() : b.barrier(); };
  synchronize();
  Value sums = b.rowOf(arguments["sums"], row, groups, b.i32());
  b.forLoop(lane, groups, shape.threads, [&](Value group) {
    b.store(b.load(b.advance(groupSums, group, b.i32()), b.i32()), b.advance(sums, group, b.i32()));
  });
}

void RowEmitter::emitCodes(llvm::function_ref<Value(Value)> codeOf) {
  bool grouped = spec.sums && groups > 1;
  if (grouped) {
    b.forLoop(lane, groups, shape.threads,
              [&](Value group) { b.store(b.i32(0), b.advance(groupSums, group, b.i32())); });
    shape.threads == 32 ? b.warpBarrier() : b.barrier();
  }
  Value init = spec.sums && !grouped ? b.i32(0) : Value();
  Value total = forPieces(init, [&](int64_t vector, const Piece &piece, Value carried) {
    Value sum = storeCodes(piece, llvm::map_to_vector(results(vector), codeOf));
    if (grouped)
      addToGroup(piece, sum);
    return init ? b.add(carried, sum) : Value();
  });
  if (grouped)
    return writeGroups();
  if (!spec.sums)
    return;
  total = blockSum(total);
  once([&] { b.store(total, b.advance(arguments["sums"], row, b.i32())); });
}

/// Added to |x| < 2^22 this rounds to the nearest integer, ties to even, whose low byte is then
/// that of the sum; a conversion to integer would be slower, and undefined on infinities and NaNs.
static constexpr double kRound = 0x1.8p23;

Value RowEmitter::absMaxOf(llvm::function_ref<Value(Value)> term) {
  // Magnitudes compare like the integers of their bits.
  Value most =
      blockMaxUnsigned(forPieces(b.i32(0), [&](int64_t vector, const Piece &piece, Value carried) {
        for (Value y : results(vector)) {
          Value bits = b.bitcast(b.magnitude(term(y)), b.i32());
          carried = b.createOrFold<arith::MaxUIOp>(carried, bits);
        }
        return carried;
      }));
  return b.bitcast(most, b.f32());
}

Value RowEmitter::absMaxOfRow() {
  if (spec.absMax == RowSpec::AbsMax::Given)
    return b.load(b.advance(arguments["absmax"], row, b.f32()), b.f32(), true);
  if (absMax)
    return absMax;
  return absMaxOf([](Value y) { return y; });
}

void RowEmitter::emitDynamicCodes() {
  Value absMax = absMaxOfRow();
  if (spec.absMax == RowSpec::AbsMax::Result)
    return once([&] { b.store(absMax, b.advance(arguments["absmax"], row, b.f32())); });
  OwnScale own(b, absMax);
  once([&] { b.store(own.scale, b.advance(arguments["scales"], row, b.f32())); });
  emitCodes([&](Value y) { return b.addf(b.mulf(y, own.inverse), b.constant(b.f32(), kRound)); });
}

Value RowEmitter::onlineScale() {
  Type f64 = b.getF64Type();
  Value place = b.load(b.advance(arguments["row_states"], row, b.i64()), b.i64(), true);
  Value site = b.advance(b.advance(arguments["states"], place, b.i8()), arguments["first"], f64);
  return arith::TruncFOp::create(b, b.f32(), b.load(b.advance(site, 1, f64), f64, true));
}

Value RowEmitter::largestOf(llvm::function_ref<Value(Value)> term) {
  constexpr int64_t kSign = int64_t(1) << 31;
  // With its sign turned, or all bits of what is negative, a float compares like an integer. What
  // lies beyond the end is below all numbers.
  Value most =
      blockMaxUnsigned(forPieces(b.i32(0), [&](int64_t vector, const Piece &piece, Value carried) {
        for (Value y : results(vector)) {
          Value bits = b.bitcast(term(y), b.i32());
          Value key = b.xori(bits, b.ori(b.shrArithmetic(bits, 31), kSign));
          if (piece.inside)
            key = b.select(piece.inside, key, b.i32(0));
          carried = b.createOrFold<arith::MaxUIOp>(carried, key);
        }
        return carried;
      }));
  Value isNegative = b.xori(b.shrArithmetic(most, 31), -1);
  return b.bitcast(b.xori(most, b.ori(isNegative, kSign)), b.f32());
}

void RowEmitter::noteExtrema(Value scale) {
  auto negated = [&](Value y) -> Value { return b.negate(y); };
  Value ends[] = {largestOf(negated), largestOf([](Value y) { return y; })};
  absMax = b.maxf(ends[0], ends[1]);
  if (spec.sinks)
    for (Value &end : ends)
      end = withoutSinks(b, end, scale);
  once([&] {
    Value to = b.rowOf(arguments["extrema"], row, arguments["extrema_stride"], b.f32());
    b.store(ends[0], to);
    b.store(ends[1], b.advance(to, 1, b.f32()));
  });
}

void RowEmitter::emitStaticCodes() {
  Value given;
  if (quantization == RowQuantization::Online)
    noteExtrema(given = onlineScale());
  else
    given = b.load(arguments["scale"], b.f32(), true);
  StaticParams params(b, numerics::codeRange(8, !spec.zeroPoints && !spec.fullRange), given);
  if (spec.zeroPoints)
    params.setZero(b, b.load(arguments["zero"], b.i32(), true));
  // Columns beyond the end are 0, which every range holds.
  if (spec.sinks)
    params.chooseOwn(b, absMaxOfRow(), [&](Value centre) {
      return absMaxOf([&](Value y) { return b.subf(b.mulf(y, params.inverse), centre); });
    });
  once([&] {
    b.store(params.scale, b.advance(arguments["scales"], row, b.f32()));
    if (params.zero)
      b.store(params.zero, b.advance(arguments["zeros"], row, b.i32()));
  });
  Value round = b.constant(b.f32(), kRound);
  emitCodes([&](Value y) -> Value {
    Value inside = b.minf(b.maxf(b.mulf(y, params.inverse), params.lo), params.hi);
    Value code = b.addf(inside, round);
    return params.zero ? b.add(b.bitcast(code, b.i32()), params.zero) : code;
  });
}

//===- The kernel ---------------------------------------------------------===//

void RowEmitter::emit() {
  Value thread = b.thread();
  row = b.block(0);
  lane = thread;
  Value warp = b.div(thread, 32);
  if (shape.rows > 1) {
    row = b.add(b.mul(row, shape.rows), warp);
    lane = b.rem(thread, 32);
  }
  bool grouped = spec.sums && quantization != RowQuantization::None && groups > 1;
  int64_t reductionBytes = shape.threads == 32 ? 0 : reductionsOf(spec) * kReductionBytes;
  int64_t sharedBytes = reductionBytes + (grouped ? shape.rows * groups * 4 : 0);
  if (sharedBytes > 0)
    shared = b.sharedMemory(sharedBytes);
  if (grouped) {
    groupSums = b.advance(shared, reductionBytes, b.i8());
    if (shape.rows > 1)
      groupSums = b.advance(groupSums, b.mul(warp, groups), b.i32());
  }
  ownVector = shape.run == 1
                  ? lane
                  : b.add(b.mul(b.div(lane, kWarp), kWarp * shape.run), b.rem(lane, kWarp));
  // A block has one row, or every warp one of its own: either all lanes leave or none.
  b.ifThen(shape.rows > 1 ? b.less(row, arguments["rows"]) : Value(), [&] {
    emitStatistics();
    switch (quantization) {
    case RowQuantization::None:
      return emitFloats();
    case RowQuantization::Dynamic:
      return emitDynamicCodes();
    case RowQuantization::Static:
    case RowQuantization::Online:
      return emitStaticCodes();
    }
  });
}

Description getOrEmit(mlir::gpu::GPUModuleOp module, const RowSpec &spec, const Chip &) {
  return getOrEmitKernel(module, describe(spec),
                         [&](KernelBuilder &b, const KernelArguments &arguments) {
                           RowEmitter(b, spec, arguments).emit();
                         });
}

} // namespace easyquant::gpu
