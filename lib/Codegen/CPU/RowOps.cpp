//===- RowOps.cpp - Norms, activations, quantization of rows --------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// A row of a few thousand floats lives in the first-level cache, so that reading it two or three
// times (statistics, values, codes) costs little. When an operation is followed by quantization,
// its values go to a row buffer on the stack, from which the codes are made: the same values that
// the unfused kernel stores, hence the same codes.
//
//===----------------------------------------------------------------------===//

#include "../RowCodes.h"
#include "Hadamard.h"
#include "RowKernel.h"
#include "Sequences.h"
#include "VectorMath.h"

#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "llvm/Support/FormatVariadic.h"

using namespace mlir;

namespace easyquant::cpu {

static RowQuantization quantizationOf(const RowSpec &spec) {
  return effectiveQuantization(spec.op, spec.quantization);
}
static bool quantizes(const RowSpec &spec) { return quantizationOf(spec) != RowQuantization::None; }
static bool isStatic(const RowSpec &spec) {
  return quantizationOf(spec) == RowQuantization::Static;
}
static bool isOnline(const RowSpec &spec) {
  return quantizationOf(spec) == RowQuantization::Online;
}
static numerics::CodeRange staticRange(const RowSpec &spec) {
  return numerics::codeRange(8, !spec.zeroPoints && !spec.fullRange);
}

std::string symbolName(const RowSpec &spec) {
  std::string name = llvm::formatv("{0}_{1}", nameOf(spec.op), spec.columns);
  if (spec.op == RowOp::RmsNorm || spec.op == RowOp::LayerNorm)
    name +=
        llvm::formatv("_eps{0:x-}", llvm::bit_cast<uint32_t>(static_cast<float>(spec.constant)));
  if (spec.op == RowOp::Multiply || spec.op == RowOp::SoftCap)
    name += llvm::formatv("_by{0:x-}", llvm::bit_cast<uint32_t>(static_cast<float>(spec.constant)));
  if (spec.hadamard)
    name += llvm::formatv("_h{0}", spec.hadamard);
  if (quantizes(spec))
    name += spec.op == RowOp::Quantize ? "" : "_quantize";
  if (isStatic(spec))
    name += spec.zeroPoints ? "_static_zp" : spec.fullRange ? "_static_full" : "_static";
  if (spec.scaleGroup && spec.zeroPoints)
    name += "_zp";
  if (spec.sinks)
    name += "_sinks";
  if (isOnline(spec))
    name += llvm::formatv("_online{0}", spec.stateFields);
  if (spec.absMaxGiven)
    name += "_given";
  if (quantizes(spec) && spec.groupSize != 0)
    name += llvm::formatv(spec.scaleGroup ? "_own{0}" : "_g{0}", spec.groupSize);
  return name;
}

namespace {

/// Emits the body of one row.
class RowEmitter {
public:
  RowEmitter(KernelBuilder &b, const RowSpec &spec, const KernelArguments &in)
      : b(b), spec(spec), in(in) {}

  void emit(Value begin, Value end);

private:
  Value loadRow(Value rows, Value column, int64_t lanes) {
    return b.loadVector(lanes, rows, {row, column});
  }
  /// The elements of a weight, bias or order that belong to these columns.
  Value loadColumns(StringRef name, Value column, int64_t lanes) {
    return b.loadVector(lanes, in[name], {column});
  }
  Value sum(llvm::function_ref<Value(Value, int64_t)> term) {
    return reduceColumns(b, 0, spec.columns, wide(), b.f32(), Combine::Add, term);
  }
  /// 1 / sqrt(sum / columns + epsilon)
  Value reciprocalDeviation(Value sumOfSquares);
  void emitStatistics();
  /// The result of the operation for some columns.
  Value emitValue(Value column, int64_t lanes);
  Value emitOperation(Value column, int64_t lanes);
  /// The result of the operation, rotated: in the buffer, or the result of the kernel.
  void emitRotation();
  Value gelu(Value x);
  void emitCodes(Value source, bool sourceIsRow, Value absMax);
  Value emitCodesOfGroup(Value source, bool sourceIsRow, Value inverse, Index begin, int64_t count);
  void emitStaticCodes();
  /// The row's own parameters, if it leaves the range of the given ones.
  void chooseOwn(StaticParams &params, Value absMax);
  void emitClampedCodes(const StaticParams &params);
  /// What x * inverse is clamped to, and what is added to it when it is rounded, or null.
  struct Clamp {
    Value inverse, lo, hi, zero;
  };
  /// Stores the codes of columns, which are read again. Returns their sum.
  Value clampedCodes(const Clamp &clamp, Index begin, int64_t count);
  /// Codes of a group by its own extrema. Returns their sum.
  Value emitOwnRange(Index group, Index begin, int64_t count);
  /// The same as emitValue, from the buffer if the row is there.
  Value valueAgain(Value column, int64_t lanes) {
    return buffer ? b.loadVector(lanes, buffer, {column}) : emitValue(column, lanes);
  }
  /// What `buffer` is to have, if there is one.
  Value valueKept(Value column, int64_t lanes);
  Value emitAbsMax();
  /// Stores the least and the greatest value of the row. Returns the largest magnitude.
  Value emitExtrema();
  void emitRow();
  /// Codes of groups, each by itself.
  void emitOwnGroups();
  /// `body` for each group of columns.
  void forGroups(llvm::function_ref<void(Index group, Index begin, int64_t count)> body);
  /// Stores the sum that `sumOf` yields for each of them.
  void emitGroups(llvm::function_ref<Value(Index begin, int64_t count)> sumOf);

  /// Vectors worked on together: enough to hide latencies, few enough for their temporaries to
  /// stay in registers.
  int64_t wide() const {
    bool transcendental = isGated(spec.op) || spec.op == RowOp::GeluTanh ||
                          spec.op == RowOp::GeluErf || spec.op == RowOp::SoftCap;
    return (transcendental ? 2 : 4) * b.target.lanes();
  }

  KernelBuilder &b;
  const RowSpec &spec;
  const KernelArguments &in;
  Value row;
  Value buffer;           ///< values of the row that are read again; null: they are the input's
  bool isRotated = false; ///< `buffer` has the results of the row
  Value mean, deviation;  ///< of the norms, for this row
  Value scale;            ///< the online scale of the rows of a sequence
};

} // namespace

Value RowEmitter::reciprocalDeviation(Value sumOfSquares) {
  Value variance = b.divf(sumOfSquares, b.constant(b.f32(), static_cast<double>(spec.columns)));
  Value shifted = b.addf(variance, b.constant(b.f32(), spec.constant));
  return b.divf(b.constant(b.f32(), 1.0), math::SqrtOp::create(b, shifted));
}

void RowEmitter::emitStatistics() {
  if (spec.op == RowOp::RmsNorm) {
    deviation = reciprocalDeviation(sum([&](Value column, int64_t lanes) {
      Value x = loadRow(in["x"], column, lanes);
      return b.mulf(x, x);
    }));
  } else if (spec.op == RowOp::LayerNorm) {
    // Two passes: the sum of squares minus the square of the sum would cancel.
    Value total = sum([&](Value column, int64_t lanes) { return loadRow(in["x"], column, lanes); });
    mean = b.divf(total, b.constant(b.f32(), static_cast<double>(spec.columns)));
    deviation = reciprocalDeviation(sum([&](Value column, int64_t lanes) {
      Value centred = b.subf(loadRow(in["x"], column, lanes), b.broadcast(mean, lanes));
      return b.mulf(centred, centred);
    }));
  }
}

Value RowEmitter::gelu(Value x) {
  if (spec.op == RowOp::GeluErf)
    return b.mulf(x, normalCdf(b, x));
  // (1 + tanh(u)) / 2 = logistic(2u), u = sqrt(2 / pi) (x + 0.044715 x^3).
  Type type = x.getType();
  Value inner = b.fma(b.mulf(x, x), b.constant(type, 0.044715 * 1.5957691216057308),
                      b.constant(type, 1.5957691216057308));
  return b.mulf(x, logistic(b, b.mulf(x, inner)));
}

Value RowEmitter::emitValue(Value column, int64_t lanes) {
  return isRotated ? b.loadVector(lanes, buffer, {column}) : emitOperation(column, lanes);
}

void RowEmitter::emitRotation() {
  auto load = [&](Value column) { return emitOperation(column, b.target.lanes()); };
  auto at = [&](Value column) {
    return buffer ? SmallVector<Index>{column} : SmallVector<Index>{row, column};
  };
  emitHadamard(b, {spec.columns, spec.hadamard, std::min(wide(), spec.hadamard), load,
                   buffer ? buffer : in["y"], at});
}

Value RowEmitter::emitOperation(Value column, int64_t lanes) {
  if (spec.op == RowOp::Gather)
    return b.gather(in["x"], {row, 0}, loadColumns("order", column, lanes));
  Value x = loadRow(in.first(), column, lanes);
  switch (spec.op) {
  case RowOp::Quantize:
  case RowOp::Copy:
    return x;
  case RowOp::RmsNorm:
    return b.mulf(b.mulf(x, b.broadcast(deviation, lanes)), loadColumns("weight", column, lanes));
  case RowOp::LayerNorm: {
    Value centred = b.subf(x, b.broadcast(mean, lanes));
    return b.fma(b.mulf(centred, b.broadcast(deviation, lanes)),
                 loadColumns("weight", column, lanes), loadColumns("bias", column, lanes));
  }
  case RowOp::SiluMul:
    return b.mulf(b.mulf(x, logistic(b, x)), loadRow(in["up"], column, lanes));
  case RowOp::GeluMul:
    return b.mulf(gelu(x), loadRow(in["up"], column, lanes));
  case RowOp::ClampedMul: {
    // Numbers that are none stay so, as sums of them would.
    auto clamp = [&](Value v, arith::CmpFPredicate beyond, double bound) {
      Value limit = b.constant(v.getType(), bound);
      return b.select(b.compare(beyond, v, limit), limit, v);
    };
    Value gate = clamp(x, arith::CmpFPredicate::OGT, kGateClamp);
    Value up = clamp(loadRow(in["up"], column, lanes), arith::CmpFPredicate::OGT, kGateClamp);
    up = clamp(up, arith::CmpFPredicate::OLT, -kGateClamp);
    Value slope = b.constant(gate.getType(), kGateSlope), one = b.constant(up.getType(), 1.0);
    return b.mulf(b.mulf(gate, logistic(b, b.mulf(gate, slope))), b.addf(up, one));
  }
  case RowOp::Mul:
    return b.mulf(x, loadRow(in["up"], column, lanes));
  case RowOp::SigmoidMul:
    return b.mulf(logistic(b, x), loadRow(in["up"], column, lanes));
  case RowOp::GeluTanh:
  case RowOp::GeluErf:
    return gelu(x);
  case RowOp::Multiply:
    return b.mulf(x, b.constant(x.getType(), spec.constant));
  case RowOp::SoftCap:
    return softCap(b, x, spec.constant);
  case RowOp::Add:
    return b.addf(x, loadRow(in["b"], column, lanes));
  case RowOp::AddBias:
    return b.addf(x, loadColumns("bias", column, lanes));
  case RowOp::Gather:
    break; // above
  }
  llvm_unreachable("all row operations are emitted");
}

/// rne(x), ties to even, of |x| < 2^22. 1.5 * 2^23 added rounds and leaves the integer in the low
/// bits: defined for whatever a row may hold, while a conversion of NaN to integer is not.
static Value roundToInt(KernelBuilder &b, Value x) {
  Value rounded = b.addf(x, b.constant(x.getType(), 0x1.8p23));
  VectorType type = cast<VectorType>(x.getType()).clone(b.i32());
  return b.subi(b.bitcast(rounded, type),
                b.constant(type, int64_t{llvm::bit_cast<int32_t>(0x1.8p23f)}));
}

Value RowEmitter::emitCodesOfGroup(Value source, bool sourceIsRow, Value inverse, Index begin,
                                   int64_t count) {
  return reduceColumns(b, begin, count, 4 * b.target.lanes(), b.i32(), Combine::Add,
                       [&](Value column, int64_t lanes) {
                         Value x = sourceIsRow ? b.loadVector(lanes, source, {row, column})
                                               : b.loadVector(lanes, source, {column});
                         // The codes of the last columns come with the zeros that pad them.
                         int64_t padded = paddedColumns(lanes);
                         x = padWithZeros(b, x, padded);
                         Value scaled = b.mulf(x, b.broadcast(inverse, padded));
                         Value code = roundToInt(b, scaled);
                         Value narrow = arith::TruncIOp::create(b, b.vec(padded, b.i8()), code);
                         b.storeVector(narrow, in["codes"], {row, column});
                         return code;
                       });
}

void RowEmitter::emitCodes(Value source, bool sourceIsRow, Value absMax) {
  OwnScale own(b, absMax);
  b.store(own.scale, in["scales"], {row});
  emitGroups([&](Index begin, int64_t count) {
    return emitCodesOfGroup(source, sourceIsRow, own.inverse, begin, count);
  });
}

void RowEmitter::forGroups(llvm::function_ref<void(Index group, Index begin, int64_t count)> body) {
  int64_t groupSize = spec.groupSize == 0 ? spec.columns : spec.groupSize;
  int64_t fullGroups = spec.columns / groupSize, rest = spec.columns % groupSize;
  auto group = [&](Index index, int64_t count) { body(index, b.mul(index, groupSize), count); };
  if (fullGroups == 1)
    group(0, groupSize);
  else if (fullGroups > 1)
    b.forLoop(0, fullGroups, 1, [&](Value index) { group(index, groupSize); });
  if (rest != 0)
    group(fullGroups, rest);
}

void RowEmitter::emitGroups(llvm::function_ref<Value(Index begin, int64_t count)> sumOf) {
  forGroups([&](Index group, Index begin, int64_t count) {
    b.store(sumOf(begin, count), in["sums"], {row, group});
  });
}

void RowEmitter::emitOwnGroups() {
  const int64_t vectors = std::min(wide(), spec.scaleGroup);
  forGroups([&](Index group, Index begin, int64_t count) {
    if (spec.zeroPoints) {
      b.store(emitOwnRange(group, begin, count), in["sums"], {row, group});
      return;
    }
    Value absMax = reduceColumns(b, begin, count, vectors, b.f32(), Combine::Max,
                                 [&](Value column, int64_t lanes) -> Value {
                                   return math::AbsFOp::create(b, valueKept(column, lanes));
                                 });
    OwnScale own(b, absMax);
    b.store(own.scale, in["scales"], {row, group});
    Value sum = emitCodesOfGroup(buffer ? buffer : in["x"], /*sourceIsRow=*/!buffer, own.inverse,
                                 begin, count);
    b.store(sum, in["sums"], {row, group});
  });
}

Value RowEmitter::valueKept(Value column, int64_t lanes) {
  Value value = emitValue(column, lanes);
  if (buffer && !isRotated)
    b.storeVector(value, buffer, {column});
  return value;
}

Value RowEmitter::emitAbsMax() {
  return reduceColumns(b, 0, spec.columns, wide(), b.f32(), Combine::Max,
                       [&](Value column, int64_t lanes) -> Value {
                         return math::AbsFOp::create(b, valueKept(column, lanes));
                       });
}

void RowEmitter::chooseOwn(StaticParams &params, Value absMax) {
  if (spec.absMaxGiven)
    absMax = b.load(in["absmax"], {row});
  params.chooseOwn(b, absMax, [&](Value centre) {
    return reduceColumns(
        b, 0, spec.columns, wide(), b.f32(), Combine::Max,
        [&](Value column, int64_t lanes) -> Value {
          Value scaled = b.mulf(valueAgain(column, lanes), b.broadcast(params.inverse, lanes));
          return math::AbsFOp::create(b, b.subf(scaled, b.broadcast(centre, lanes)));
        });
  });
}

void RowEmitter::emitStaticCodes() {
  StaticParams params(b, staticRange(spec), in["scale"]);
  if (Value zero = in.find("zero"))
    params.setZero(b, zero);
  if (spec.sinks)
    chooseOwn(params, spec.absMaxGiven ? Value() : emitAbsMax());
  emitClampedCodes(params);
}

Value RowEmitter::clampedCodes(const Clamp &clamp, Index begin, int64_t count) {
  return reduceColumns(
      b, begin, count, wide(), b.i32(), Combine::Add, [&](Value column, int64_t lanes) {
        Value scaled = b.mulf(valueAgain(column, lanes), b.broadcast(clamp.inverse, lanes));
        Value inside = b.larger(scaled, b.broadcast(clamp.lo, lanes));
        Value code = roundToInt(b, b.smaller(inside, b.broadcast(clamp.hi, lanes)));
        if (clamp.zero)
          code = b.addi(code, b.broadcast(clamp.zero, lanes));
        // Zeros pad the last codes, whatever the code of a real zero is.
        code = padWithZeros(b, code, paddedColumns(lanes));
        auto narrow = cast<VectorType>(code.getType()).clone(b.i8());
        b.storeVector(arith::TruncIOp::create(b, narrow, code), in["codes"], {row, column});
        return code;
      });
}

void RowEmitter::emitClampedCodes(const StaticParams &params) {
  b.store(params.scale, in["scales"], {row});
  if (params.zero)
    b.store(params.zero, in["zeros"], {row});
  emitGroups([&](Index begin, int64_t count) {
    return clampedCodes({params.inverse, params.lo, params.hi, params.zero}, begin, count);
  });
}

Value RowEmitter::emitOwnRange(Index group, Index begin, int64_t count) {
  const int64_t vectors = std::min(wide(), spec.scaleGroup);
  Value greatest =
      reduceColumns(b, begin, count, vectors, b.f32(), Combine::Greatest,
                    [&](Value column, int64_t lanes) { return valueKept(column, lanes); });
  Value negated = reduceColumns(
      b, begin, count, vectors, b.f32(), Combine::Greatest,
      [&](Value column, int64_t lanes) { return b.negate(valueAgain(column, lanes)); });
  OwnRange own(b, greatest, negated);
  Value zero = b.extract(roundToInt(b, b.broadcast(own.zeroPoint, b.target.lanes())), 0);
  Value shift = b.toFloat(zero);
  b.store(own.scale, in["scales"], {row, group});
  b.store(zero, in["zeros"], {row, group});
  return clampedCodes({own.inverse, b.subf(b.constant(b.f32(), -128.0), shift),
                       b.subf(b.constant(b.f32(), 127.0), shift), zero},
                      begin, count);
}

Value RowEmitter::emitExtrema() {
  Value greatest =
      reduceColumns(b, 0, spec.columns, wide(), b.f32(), Combine::Greatest,
                    [&](Value column, int64_t lanes) { return valueKept(column, lanes); });
  auto negated = [&](Value column, int64_t lanes) -> Value {
    return b.negate(valueAgain(column, lanes));
  };
  Value least =
      reduceColumns(b, 0, spec.columns, 4 * b.target.lanes(), b.f32(), Combine::Greatest, negated);
  auto note = [&](Value value, int64_t column) {
    if (spec.sinks)
      value = withoutSinks(b, value, scale);
    b.store(value, in["extrema"], {row, column});
  };
  note(least, 0);
  note(greatest, 1);
  return b.larger(least, greatest);
}

void RowEmitter::emitRow() {
  isRotated = false;
  emitStatistics();
  if (spec.hadamard)
    emitRotation();
  isRotated = spec.hadamard != 0;
  if (!quantizes(spec)) {
    if (!isRotated)
      forColumns(b, 0, spec.columns, wide(), [&](Value column, int64_t lanes) {
        b.storeVector(emitValue(column, lanes), in["y"], {row, column});
      });
    return;
  }
  if (isStatic(spec))
    return emitStaticCodes();
  if (isOnline(spec)) {
    Value absMax = emitExtrema();
    StaticParams params(b, staticRange(spec), scale);
    if (spec.sinks)
      chooseOwn(params, absMax);
    return emitClampedCodes(params);
  }
  if (spec.scaleGroup)
    return emitOwnGroups();
  Value absMax = spec.absMaxGiven ? b.load(in["absmax"], {row}) : emitAbsMax();
  emitCodes(buffer ? buffer : in["x"], /*sourceIsRow=*/!buffer, absMax);
}

void RowEmitter::emit(Value begin, Value end) {
  bool readsAgain = !isStatic(spec) || spec.sinks;
  if (quantizes(spec) && (spec.hadamard || (readsAgain && spec.op != RowOp::Quantize)))
    buffer =
        memref::AllocaOp::create(b, b.memref({spec.columns}, b.f32()), b.getI64IntegerAttr(64));
  auto forRows = [&](Value from, Value to, Value first) {
    b.forLoop(from, to, 1, [&](Value index) {
      row = first ? b.add(first, index) : index;
      emitRow();
    });
  };
  if (!isOnline(spec))
    return forRows(begin, end, nullptr);
  forSequences(b, in["sequences"], [&](const Sequence &sequence) {
    auto [from, to] = sequence.part(b, begin, end);
    Value kept = b.load(in["state"], {sequence.slot, b.add(in["first"], 1)});
    scale = arith::TruncFOp::create(b, b.f32(), kept);
    forRows(from, to, sequence.firstRow);
  });
}

static void describeOutputs(Describer &d, const RowSpec &spec) {
  constexpr int64_t dynamic = ShapedType::kDynamic;
  if (!quantizes(spec)) {
    d.writes("y", d.rows(spec.columns));
    return;
  }
  const int64_t groups = groupCount(spec.columns, spec.groupSize);
  d.writes("codes", d.memory({dynamic, paddedColumns(spec.columns)}, d.getI8Type()));
  d.writes("scales", spec.scaleGroup ? d.memory({dynamic, groups}, d.getF32Type())
                                     : d.vector(d.getF32Type()));
  d.writes("sums", d.memory({dynamic, groups}, d.getI32Type()));
  if (spec.zeroPoints)
    d.writes("zeros", spec.scaleGroup ? d.memory({dynamic, groups}, d.getI32Type())
                                      : d.vector(d.getI32Type()));
  if (isOnline(spec))
    d.writes("extrema", d.rows(2));
}

Description describe(const RowSpec &spec, MLIRContext *context) {
  Describer d(context, symbolName(spec), Describer::Over::Rows);
  Type rows = d.rows(spec.columns), columns = d.memory({spec.columns}, d.getF32Type());
  if (isGated(spec.op)) {
    d.reads("gate", rows);
    d.reads("up", rows);
  } else if (spec.op == RowOp::Add) {
    d.reads("a", rows);
    d.reads("b", rows);
  } else {
    d.reads("x", rows);
  }
  d.reads("weight", columns, spec.op == RowOp::RmsNorm || spec.op == RowOp::LayerNorm);
  d.reads("bias", columns, spec.op == RowOp::LayerNorm || spec.op == RowOp::AddBias);
  d.reads("order", d.memory({spec.columns}, d.getI32Type()), spec.op == RowOp::Gather);
  d.reads("absmax", d.vector(d.getF32Type()), spec.absMaxGiven);
  d.reads("scale", d.getF32Type(), isStatic(spec));
  d.reads("zero", d.getI32Type(), isStatic(spec) && spec.zeroPoints);
  if (isOnline(spec)) {
    d.reads("state", d.memory({ShapedType::kDynamic, spec.stateFields}, d.getF64Type()));
    d.reads("sequences", sequencesType(d));
    d.reads("first", d.getIndexType());
  }
  describeOutputs(d, spec);
  return std::move(d.kernel);
}

func::FuncOp getOrEmitRowOp(ModuleOp module, const RowSpec &spec, const Target &target) {
  assert(isStatic(spec) || ((!spec.zeroPoints || spec.scaleGroup) && !spec.fullRange));
  assert(!spec.sinks || isStatic(spec) || isOnline(spec));
  assert(!spec.absMaxGiven ||
         (spec.op == RowOp::Quantize &&
          (spec.sinks ? !spec.zeroPoints && !spec.fullRange : !isStatic(spec) && !isOnline(spec))));
  assert(spec.scaleGroup == 0 || (spec.scaleGroup == spec.groupSize && !spec.absMaxGiven &&
                                  quantizationOf(spec) == RowQuantization::Dynamic));
  return getOrEmitRowKernel(module, spec, target,
                            [&](KernelBuilder &b, const KernelArguments &in, Value begin,
                                Value end) { RowEmitter(b, spec, in).emit(begin, end); });
}

} // namespace easyquant::cpu
