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

#include "RowEmitter.h"

#include "Hadamard.h"
#include "ScalarMath.h"

using namespace mlir;

namespace easyquant::gpu {
//===- Elements of the row ------------------------------------------------===//

RowEmitter::Values RowEmitter::loadVector(Value row, Type element, const Piece &piece) {
  Type type = shape.vector == 1 ? element : Type(b.vec(shape.vector, element));
  Value loaded = b.guarded(piece.inside, b.zero(type), [&] {
    return b.load(b.advance(row, piece.column, element), type, /*constant=*/isKernel);
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
  case RowOp::ClampedMul: {
    Values up = readRow("up", spec.input, piece);
    for (auto [v, u] : llvm::zip_equal(x, up))
      y.push_back(clampedGate(b, v, u));
    return y;
  }
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

Value RowEmitter::sumOfSquares() {
  if (spec.squares == RowSpec::OfRow::Given)
    return b.load(b.advance(arguments["squares"], row, b.f32()), b.f32(), /*constant=*/isKernel);
  return sum([&](Value x) { return b.mulf(x, x); });
}

Value RowEmitter::reciprocalDeviation(Value sumOfSquares) {
  const int64_t columns = spec.squares == RowSpec::OfRow::Given ? spec.wholeColumns : spec.columns;
  Value variance = b.divf(sumOfSquares, b.constant(b.f32(), static_cast<double>(columns)));
  Value shifted = b.addf(variance, b.constant(b.f32(), spec.constant));
  // Exact roots and quotients are calls, around which ptxas may spill the row.
  return b.reciprocalRootApproximate(shifted);
}

void RowEmitter::emitStatistics() {
  if (spec.op == RowOp::RmsNorm) {
    deviation = reciprocalDeviation(sumOfSquares());
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

//===- The kernel ---------------------------------------------------------===//

int64_t RowEmitter::groupBytes(const RowSpec &spec) {
  const int64_t groups = groupCount(spec.columns, spec.groupSize);
  const bool isQuantized = spec.effectiveQuantization() != RowQuantization::None;
  return spec.sums && isQuantized && groups > 1 ? groups * 4 : 0;
}

int64_t RowEmitter::sharedBytes(const RowSpec &spec, const RowShape &shape) {
  return reductionBytes(spec, shape) + shape.rows * groupBytes(spec);
}

void RowEmitter::emit() {
  Value thread = b.thread();
  row = b.block(0);
  lane = thread;
  Value warp = b.div(thread, kWarp);
  if (shape.rows > 1) {
    row = b.add(b.mul(row, shape.rows), warp);
    lane = b.rem(thread, kWarp);
  }
  if (const int64_t bytes = sharedBytes(spec, shape); bytes > 0)
    shared = b.sharedMemory(bytes);
  if (groupBytes(spec) > 0) {
    groupSums = b.advance(shared, reductionBytes(spec, shape), b.i8());
    if (shape.rows > 1)
      groupSums = b.advance(groupSums, b.mul(warp, groups), b.i32());
  }
  // A block has one row, or every warp one of its own: either all lanes leave or none.
  b.ifThen(shape.rows > 1 ? b.less(row, arguments["rows"]) : Value(), [&] { emitRow(); });
}

void RowEmitter::emitMadeRow(Value madeRow, Value memory) {
  row = madeRow;
  lane = b.thread();
  shared = memory;
  if (groupBytes(spec) > 0)
    groupSums = b.advance(shared, reductionBytes(spec, shape), b.i8());
  emitRow();
}

void RowEmitter::emitRow() {
  ownVector = shape.run == 1
                  ? lane
                  : b.add(b.mul(b.div(lane, kWarp), kWarp * shape.run), b.rem(lane, kWarp));
  if (spec.squares == RowSpec::OfRow::Result) {
    Value squares = sumOfSquares();
    return once([&] { b.store(squares, b.advance(arguments["squares"], row, b.f32())); });
  }
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
}

Description getOrEmit(mlir::gpu::GPUModuleOp module, const RowSpec &spec, const Chip &) {
  return getOrEmitKernel(module, describe(spec),
                         [&](KernelBuilder &b, const KernelArguments &arguments) {
                           RowEmitter(b, spec, arguments).emit();
                         });
}

} // namespace easyquant::gpu
