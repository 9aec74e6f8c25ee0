//===- RowGradients.cpp - Gradients of row-wise operations ----------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The formulas are those of the `lm` dialect's gradient ops (LMGradientOps.td).
//
//===----------------------------------------------------------------------===//

#include "RowKernel.h"
#include "VectorMath.h"

#include "mlir/Dialect/Math/IR/Math.h"
#include "llvm/Support/FormatVariadic.h"

#include <numbers>

using namespace mlir;

namespace easyquant::cpu {

static bool isNorm(RowOp op) { return op == RowOp::RmsNorm || op == RowOp::LayerNorm; }

std::string symbolName(const RowGradientSpec &spec) {
  std::string name = llvm::formatv("{0}_gradient_{1}", nameOf(spec.op), spec.columns);
  if (isNorm(spec.op))
    name += llvm::formatv("_by{0}_eps{1:x-}{2}", spec.width,
                          llvm::bit_cast<uint32_t>(static_cast<float>(spec.constant)),
                          spec.weight ? "" : "_plain");
  if (spec.op == RowOp::SoftCap)
    name += llvm::formatv("_by{0:x-}", llvm::bit_cast<uint32_t>(static_cast<float>(spec.constant)));
  return name;
}

namespace {

/// Emits the body of one row.
class RowGradientEmitter {
public:
  RowGradientEmitter(KernelBuilder &b, const RowGradientSpec &spec, const KernelArguments &in,
                     Value row)
      : b(b), spec(spec), in(in), row(row) {}

  void emit();

private:
  Value load(StringRef name, Value column, int64_t lanes) {
    return b.loadVector(lanes, in[name], {row, column});
  }
  void store(Value value, StringRef name, Value column) {
    b.storeVector(value, in[name], {row, column});
  }
  /// The mean over the columns of a norm.
  Value mean(llvm::function_ref<Value(Value, int64_t)> term);
  void emitNorm(Value first);
  void emitGated(Value column, int64_t lanes);
  void emitUnary(Value column, int64_t lanes);
  /// What an activation is at x, and its slope there.
  struct Point {
    Value value, slope;
  };
  Point silu(Value x);
  Point sigmoid(Value x);
  Point gelu(Value x);
  Value softCapSlope(Value x);

  KernelBuilder &b;
  const RowGradientSpec &spec;
  const KernelArguments &in;
  Value row;
};

} // namespace

Value RowGradientEmitter::mean(llvm::function_ref<Value(Value, int64_t)> term) {
  Value sum = reduceColumns(b, 0, spec.width, 2 * b.target.lanes(), b.f32(), Combine::Add, term);
  return b.divf(sum, b.constant(b.f32(), static_cast<double>(spec.width)));
}

/// The gradient of the columns from `first` on, which are normalized together.
void RowGradientEmitter::emitNorm(Value first) {
  bool isCentred = spec.op == RowOp::LayerNorm;
  Value centre;
  auto centred = [&](Value column, int64_t lanes) {
    Value x = load("x", b.add(first, column), lanes);
    return isCentred ? b.subf(x, b.broadcast(centre, lanes)) : x;
  };
  auto weighted = [&](Value column, int64_t lanes) {
    Value dy = load("dy", b.add(first, column), lanes);
    return spec.weight ? b.mulf(dy, b.loadVector(lanes, in["weight"], {column})) : dy;
  };
  if (isCentred)
    centre =
        mean([&](Value column, int64_t lanes) { return load("x", b.add(first, column), lanes); });
  Value square = mean([&](Value column, int64_t lanes) {
    Value x = centred(column, lanes);
    return b.mulf(x, x);
  });
  Value shifted = b.addf(square, b.constant(b.f32(), spec.constant));
  Value rate = b.divf(b.constant(b.f32(), 1.0), math::SqrtOp::create(b, shifted));
  Value along = mean([&](Value column, int64_t lanes) {
    return b.mulf(weighted(column, lanes), centred(column, lanes));
  });
  Value slope = b.mulf(b.mulf(rate, rate), along);
  Value offset = isCentred ? mean(weighted) : Value();
  forColumns(b, 0, spec.width, 2 * b.target.lanes(), [&](Value column, int64_t lanes) {
    Value g = weighted(column, lanes);
    if (isCentred)
      g = b.subf(g, b.broadcast(offset, lanes));
    g = b.subf(g, b.mulf(b.broadcast(slope, lanes), centred(column, lanes)));
    store(b.mulf(b.broadcast(rate, lanes), g), "dx", b.add(first, column));
  });
}

void RowGradientEmitter::emitGated(Value column, int64_t lanes) {
  Value dy = load("dy", column, lanes), gate = load("gate", column, lanes);
  Value up = load("up", column, lanes);
  Point point = spec.op == RowOp::SiluMul      ? silu(gate)
                : spec.op == RowOp::SigmoidMul ? sigmoid(gate)
                : spec.op == RowOp::Mul        ? Point{gate, b.constant(gate.getType(), 1.0)}
                                               : gelu(gate);
  store(b.mulf(b.mulf(dy, up), point.slope), "dgate", column);
  store(b.mulf(dy, point.value), "dup", column);
}

RowGradientEmitter::Point RowGradientEmitter::silu(Value x) {
  Value s = logistic(b, x), one = b.constant(s.getType(), 1.0);
  return {b.mulf(x, s), b.mulf(s, b.fma(x, b.subf(one, s), one))};
}

RowGradientEmitter::Point RowGradientEmitter::sigmoid(Value x) {
  Value s = logistic(b, x);
  return {s, b.mulf(s, b.subf(b.constant(s.getType(), 1.0), s))};
}

RowGradientEmitter::Point RowGradientEmitter::gelu(Value x) {
  Type type = x.getType();
  Value square = b.mulf(x, x);
  if (spec.op == RowOp::GeluErf) {
    Value power = exp(b, b.mulf(square, b.constant(type, -0.5)));
    double density = 1 / std::sqrt(2 * std::numbers::pi);
    Value part = normalCdf(b, x);
    return {b.mulf(x, part), b.fma(b.mulf(x, b.constant(type, density)), power, part)};
  }
  // x logistic(v) for v = x (rate + cubic x^2), whose slope is rate + 3 cubic x^2.
  double rate = 2 * std::sqrt(2 / std::numbers::pi), cubic = 0.044715 * rate;
  Value v = b.mulf(x, b.fma(square, b.constant(type, cubic), b.constant(type, rate)));
  Value s = logistic(b, v), rest = b.subf(b.constant(type, 1.0), s);
  Value inner = b.fma(square, b.constant(type, 3 * cubic), b.constant(type, rate));
  return {b.mulf(x, s), b.fma(b.mulf(b.mulf(x, inner), s), rest, s)};
}

Value RowGradientEmitter::softCapSlope(Value x) {
  // 1 - tanh^2(u) = 4 s (1 - s), s = logistic(2u)
  Type type = x.getType();
  Value s = logistic(b, b.mulf(x, b.constant(type, 2 / spec.constant)));
  return b.mulf(b.mulf(s, b.constant(type, 4.0)), b.subf(b.constant(type, 1.0), s));
}

void RowGradientEmitter::emitUnary(Value column, int64_t lanes) {
  Value x = load("x", column, lanes);
  Value slope = spec.op == RowOp::SoftCap ? softCapSlope(x) : gelu(x).slope;
  store(b.mulf(load("dy", column, lanes), slope), "dx", column);
}

void RowGradientEmitter::emit() {
  if (isNorm(spec.op)) {
    b.forLoop(0, spec.columns, spec.width, [&](Value first) { emitNorm(first); });
    return;
  }
  forColumns(b, 0, spec.columns, 2 * b.target.lanes(), [&](Value column, int64_t lanes) {
    if (isGated(spec.op))
      emitGated(column, lanes);
    else
      emitUnary(column, lanes);
  });
}

Description describe(const RowGradientSpec &spec, MLIRContext *context) {
  Describer d(context, symbolName(spec), Describer::Over::Rows);
  Type rows = d.rows(spec.columns);
  d.reads("dy", rows);
  if (isGated(spec.op)) {
    d.reads("gate", rows);
    d.reads("up", rows);
    d.writes("dgate", rows);
    d.writes("dup", rows);
    return std::move(d.kernel);
  }
  d.reads("x", rows);
  d.reads("weight", d.memory({spec.width}, d.getF32Type()), isNorm(spec.op) && spec.weight);
  d.writes("dx", rows);
  return std::move(d.kernel);
}

func::FuncOp getOrEmitRowGradient(ModuleOp module, const RowGradientSpec &spec,
                                  const Target &target) {
  return getOrEmitRowKernel(
      module, spec, target,
      [&](KernelBuilder &b, const KernelArguments &in, Value begin, Value end) {
        b.forLoop(begin, end, 1, [&](Value row) { RowGradientEmitter(b, spec, in, row).emit(); });
      });
}

} // namespace easyquant::cpu
