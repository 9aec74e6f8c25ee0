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
/// Scale and zero point of a static one come before the outputs, or state, sequences and site.
static int64_t parameterCount(const RowSpec &spec) {
  if (isOnline(spec))
    return 3;
  return isStatic(spec) ? 1 + spec.zeroPoints : 0;
}

std::string symbolName(const RowSpec &spec) {
  std::string name = llvm::formatv("{0}_{1}", nameOf(spec.op), spec.columns);
  if (spec.op == RowOp::RmsNorm || spec.op == RowOp::LayerNorm)
    name += llvm::formatv("_eps{0:x-}", llvm::bit_cast<uint32_t>(static_cast<float>(spec.epsilon)));
  if (quantizes(spec))
    name += spec.op == RowOp::Quantize ? "" : "_quantize";
  if (isStatic(spec))
    name += spec.zeroPoints ? "_static_zp" : spec.fullRange ? "_static_full" : "_static";
  if (isOnline(spec))
    name += llvm::formatv("_online{0}", spec.stateFields);
  if (quantizes(spec) && spec.groupSize != 0)
    name += llvm::formatv("_g{0}", spec.groupSize);
  return name;
}

namespace {

/// Emits the body of one row.
class RowEmitter {
public:
  RowEmitter(KernelBuilder &b, const RowSpec &spec, ValueRange arguments)
      : b(b), spec(spec), arguments(arguments) {}

  static int64_t inputCount(RowOp op);
  void emit(Value begin, Value end);

private:
  Value loadRow(int64_t argument, Value column, int64_t lanes) {
    return b.loadVector(lanes, arguments[argument], {row, column});
  }
  /// The elements of a weight or bias that belong to these columns.
  Value loadColumns(int64_t argument, Value column, int64_t lanes) {
    return b.loadVector(lanes, arguments[argument], {column});
  }
  Value sum(llvm::function_ref<Value(Value, int64_t)> term) {
    return reduceColumns(b, 0, spec.columns, wide(), b.f32(), Combine::Add, term);
  }
  /// 1 / sqrt(sum / columns + epsilon)
  Value reciprocalDeviation(Value sumOfSquares);
  void emitStatistics();
  /// The result of the operation for some columns.
  Value emitValue(Value column, int64_t lanes);
  Value gelu(Value x);
  void emitCodes(Value source, bool sourceIsRow, Value absMax);
  Value emitCodesOfGroup(Value source, bool sourceIsRow, Value inverse, Index begin, int64_t count);
  void emitStaticCodes();
  /// Codes of values that `valueAt` gives, with a scale and a zero point (or null) that are given.
  void emitClampedCodes(Value scale, Value zero,
                        llvm::function_ref<Value(Value column, int64_t lanes)> valueAt);
  /// Of the row: the least and the greatest value, of `buffer` once it is filled.
  void emitExtrema();
  void emitRow();
  /// Stores the sum that `sumOf` yields for each weight group of columns.
  void emitGroups(llvm::function_ref<Value(Index begin, int64_t count)> sumOf);
  Value output(int64_t i) { return arguments[inputCount(spec.op) + parameterCount(spec) + i]; }

  /// Vectors worked on together: enough to hide latencies, few enough for their temporaries to
  /// stay in registers.
  int64_t wide() const {
    bool transcendental =
        spec.op == RowOp::SiluMul || spec.op == RowOp::GeluTanh || spec.op == RowOp::GeluErf;
    return (transcendental ? 2 : 4) * b.target.lanes();
  }

  KernelBuilder &b;
  const RowSpec &spec;
  ValueRange arguments;
  Value row;
  Value mean, deviation; ///< of the norms, for this row
  Value buffer;          ///< of the row's values, where they are read again
  Value scale;           ///< online: of the rows of a sequence
};

} // namespace

int64_t RowEmitter::inputCount(RowOp op) {
  switch (op) {
  case RowOp::Quantize:
  case RowOp::Copy:
  case RowOp::GeluTanh:
  case RowOp::GeluErf:
    return 1;
  case RowOp::RmsNorm:
  case RowOp::SiluMul:
  case RowOp::Add:
    return 2;
  case RowOp::LayerNorm:
    return 3;
  }
  llvm_unreachable("all row operations are counted");
}

Value RowEmitter::reciprocalDeviation(Value sumOfSquares) {
  Value variance = b.divf(sumOfSquares, b.constant(b.f32(), static_cast<double>(spec.columns)));
  Value shifted = b.addf(variance, b.constant(b.f32(), spec.epsilon));
  return b.divf(b.constant(b.f32(), 1.0), math::SqrtOp::create(b, shifted));
}

void RowEmitter::emitStatistics() {
  if (spec.op == RowOp::RmsNorm) {
    deviation = reciprocalDeviation(sum([&](Value column, int64_t lanes) {
      Value x = loadRow(0, column, lanes);
      return b.mulf(x, x);
    }));
  } else if (spec.op == RowOp::LayerNorm) {
    // Two passes: the sum of squares minus the square of the sum would cancel.
    Value total = sum([&](Value column, int64_t lanes) { return loadRow(0, column, lanes); });
    mean = b.divf(total, b.constant(b.f32(), static_cast<double>(spec.columns)));
    deviation = reciprocalDeviation(sum([&](Value column, int64_t lanes) {
      Value centred = b.subf(loadRow(0, column, lanes), b.broadcast(mean, lanes));
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
  Value x = loadRow(0, column, lanes);
  switch (spec.op) {
  case RowOp::Quantize:
  case RowOp::Copy:
    return x;
  case RowOp::RmsNorm:
    return b.mulf(b.mulf(x, b.broadcast(deviation, lanes)), loadColumns(1, column, lanes));
  case RowOp::LayerNorm: {
    Value centred = b.subf(x, b.broadcast(mean, lanes));
    return b.fma(b.mulf(centred, b.broadcast(deviation, lanes)), loadColumns(1, column, lanes),
                 loadColumns(2, column, lanes));
  }
  case RowOp::SiluMul:
    return b.mulf(b.mulf(x, logistic(b, x)), loadRow(1, column, lanes));
  case RowOp::GeluTanh:
  case RowOp::GeluErf:
    return gelu(x);
  case RowOp::Add:
    return b.addf(x, loadRow(1, column, lanes));
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
                         b.storeVector(narrow, output(0), {row, column});
                         return code;
                       });
}

void RowEmitter::emitCodes(Value source, bool sourceIsRow, Value absMax) {
  Type f32 = b.f32();
  // Numerics/Quantize.h: below 2^-119 the scale or its reciprocal would leave the normal range.
  Value tiny =
      arith::CmpFOp::create(b, arith::CmpFPredicate::OLT, absMax, b.constant(f32, 0x1p-119));
  Value limit = b.constant(f32, 127.0);
  Value scale = arith::SelectOp::create(b, tiny, b.constant(f32, 1.0), b.divf(absMax, limit));
  Value inverse = arith::SelectOp::create(b, tiny, b.constant(f32, 0.0), b.divf(limit, absMax));
  b.store(scale, output(1), {row});
  emitGroups([&](Index begin, int64_t count) {
    return emitCodesOfGroup(source, sourceIsRow, inverse, begin, count);
  });
}

void RowEmitter::emitGroups(llvm::function_ref<Value(Index begin, int64_t count)> sumOf) {
  int64_t groupSize = spec.groupSize == 0 ? spec.columns : spec.groupSize;
  int64_t fullGroups = spec.columns / groupSize, rest = spec.columns % groupSize;
  auto group = [&](Index index, int64_t count) {
    b.store(sumOf(b.mul(index, groupSize), count), output(2), {row, index});
  };
  if (fullGroups == 1)
    group(0, groupSize);
  else if (fullGroups > 1)
    b.forLoop(0, fullGroups, 1, [&](Value index) { group(index, groupSize); });
  if (rest != 0)
    group(fullGroups, rest);
}

void RowEmitter::emitStaticCodes() {
  Value zero;
  if (spec.zeroPoints)
    zero = arguments[inputCount(spec.op) + 1];
  emitClampedCodes(arguments[inputCount(spec.op)], zero,
                   [&](Value column, int64_t lanes) { return emitValue(column, lanes); });
}

void RowEmitter::emitClampedCodes(Value scale, Value zero,
                                  llvm::function_ref<Value(Value, int64_t)> valueAt) {
  b.store(scale, output(1), {row});
  if (zero)
    b.store(zero, output(3), {row});
  Value inverse = b.divf(b.constant(b.f32(), 1.0), scale);
  numerics::CodeRange range = numerics::codeRange(8, !spec.zeroPoints && !spec.fullRange);
  // Clamping to integers before rounding is the same as after it, and takes any number.
  Value lo = b.constant(b.f32(), static_cast<double>(range.min));
  Value hi = b.constant(b.f32(), static_cast<double>(range.max));
  if (zero) {
    lo = b.subf(lo, b.toFloat(zero));
    hi = b.subf(hi, b.toFloat(zero));
  }
  emitGroups([&](Index begin, int64_t count) {
    return reduceColumns(
        b, begin, count, wide(), b.i32(), Combine::Add, [&](Value column, int64_t lanes) {
          Value scaled = b.mulf(valueAt(column, lanes), b.broadcast(inverse, lanes));
          Value inside = maxNumber(b, scaled, b.broadcast(lo, lanes));
          Value high = b.broadcast(hi, lanes);
          Value code = roundToInt(
              b, arith::SelectOp::create(
                     b, arith::CmpFOp::create(b, arith::CmpFPredicate::OLT, inside, high), inside,
                     high));
          if (zero)
            code = b.addi(code, b.broadcast(zero, lanes));
          // Zeros pad the last codes, whatever the code of a real zero is.
          code = padWithZeros(b, code, paddedColumns(lanes));
          auto narrow = cast<VectorType>(code.getType()).clone(b.i8());
          b.storeVector(arith::TruncIOp::create(b, narrow, code), output(0), {row, column});
          return code;
        });
  });
}

void RowEmitter::emitExtrema() {
  Value greatest = reduceColumns(b, 0, spec.columns, wide(), b.f32(), Combine::Greatest,
                                 [&](Value column, int64_t lanes) -> Value {
                                   Value value = emitValue(column, lanes);
                                   if (buffer)
                                     b.storeVector(value, buffer, {column});
                                   return value;
                                 });
  auto negated = [&](Value column, int64_t lanes) -> Value {
    Value value = buffer ? b.loadVector(lanes, buffer, {column}) : loadRow(0, column, lanes);
    return arith::NegFOp::create(b, value);
  };
  Value least =
      reduceColumns(b, 0, spec.columns, 4 * b.target.lanes(), b.f32(), Combine::Greatest, negated);
  b.store(arith::NegFOp::create(b, least), output(3), {row, 0});
  b.store(greatest, output(3), {row, 1});
}

void RowEmitter::emitRow() {
  emitStatistics();
  if (!quantizes(spec)) {
    forColumns(b, 0, spec.columns, wide(), [&](Value column, int64_t lanes) {
      b.storeVector(emitValue(column, lanes), output(0), {row, column});
    });
    return;
  }
  if (isStatic(spec))
    return emitStaticCodes();
  if (isOnline(spec)) {
    emitExtrema();
    return emitClampedCodes(scale, /*zero=*/nullptr, [&](Value column, int64_t lanes) {
      return buffer ? b.loadVector(lanes, buffer, {column}) : loadRow(0, column, lanes);
    });
  }
  Value absMax = reduceColumns(b, 0, spec.columns, wide(), b.f32(), Combine::Max,
                               [&](Value column, int64_t lanes) -> Value {
                                 Value value = emitValue(column, lanes);
                                 if (buffer)
                                   b.storeVector(value, buffer, {column});
                                 return math::AbsFOp::create(b, value);
                               });
  emitCodes(buffer ? buffer : arguments[0], /*sourceIsRow=*/!buffer, absMax);
}

void RowEmitter::emit(Value begin, Value end) {
  if (quantizes(spec) && !isStatic(spec) && spec.op != RowOp::Quantize)
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
  ValueRange parameters = arguments.slice(inputCount(spec.op), parameterCount(spec));
  forSequences(b, parameters[1], [&](const Sequence &sequence) {
    auto [from, to] = sequence.part(b, begin, end);
    Value kept = b.load(parameters[0], {sequence.slot, b.add(parameters[2], 1)});
    scale = arith::TruncFOp::create(b, b.f32(), kept);
    forRows(from, to, sequence.firstRow);
  });
}

func::FuncOp getOrEmitRowOp(ModuleOp module, const RowSpec &spec, const Target &target) {
  assert(isStatic(spec) || (!spec.zeroPoints && !spec.fullRange));
  auto inputs = [&](KernelBuilder &b) {
    Type rows = b.rows(spec.columns), columns = b.memref({spec.columns}, b.f32());
    SmallVector<Type> types = {rows};
    if (spec.op == RowOp::RmsNorm)
      types.push_back(columns);
    else if (spec.op == RowOp::LayerNorm)
      types.append(2, columns);
    else if (spec.op == RowOp::SiluMul || spec.op == RowOp::Add)
      types.push_back(rows);
    int64_t dynamic = ShapedType::kDynamic;
    if (isStatic(spec))
      types.push_back(b.f32());
    if (isStatic(spec) && spec.zeroPoints)
      types.push_back(b.i32());
    if (isOnline(spec))
      types.append({b.memref({dynamic, spec.stateFields}, b.getF64Type()), sequencesType(b),
                    b.getIndexType()});
    if (quantizes(spec))
      types.append({b.memref({dynamic, paddedColumns(spec.columns)}, b.i8()),
                    b.memref({dynamic}, b.f32()),
                    b.memref({dynamic, groupCount(spec.columns, spec.groupSize)}, b.i32())});
    else
      types.push_back(rows);
    if (isStatic(spec) && spec.zeroPoints)
      types.push_back(b.memref({dynamic}, b.i32()));
    if (isOnline(spec))
      types.push_back(b.rows(2));
    return types;
  };
  return getOrEmitRowKernel(module, symbolName(spec), target, inputs,
                            [&](KernelBuilder &b, ValueRange args, Value begin, Value end) {
                              RowEmitter(b, spec, args).emit(begin, end);
                            });
}

} // namespace easyquant::cpu
