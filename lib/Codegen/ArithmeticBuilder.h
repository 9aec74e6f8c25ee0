//===- ArithmeticBuilder.h - Arithmetic and loops of kernels ----*- C++ -*-===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// What the builders of kernels for CPUs and for GPUs have in common. Constants are folded on the
// way.
//
//===----------------------------------------------------------------------===//

#ifndef EASYQUANT_LIB_CODEGEN_ARITHMETICBUILDER_H
#define EASYQUANT_LIB_CODEGEN_ARITHMETICBUILDER_H

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/IR/ImplicitLocOpBuilder.h"
#include "llvm/ADT/STLFunctionalExtras.h"
#include "llvm/ADT/SmallVector.h"
#include "llvm/ADT/StringMap.h"

namespace easyquant {

/// An integer operand: a value, or a constant.
class ValueOrConstant {
public:
  ValueOrConstant(mlir::Value value) : value(value) {}
  template <std::integral T> ValueOrConstant(T constant) : constant(constant) {}

  mlir::Value value;
  int64_t constant = 0;
};

class ArithmeticBuilder : public mlir::ImplicitLocOpBuilder {
public:
  using Int = ValueOrConstant;
  using Value = mlir::Value;
  using Values = llvm::SmallVector<mlir::Value>;
  using ImplicitLocOpBuilder::ImplicitLocOpBuilder;

  //===- Types --------------------------------------------------------------===//
  mlir::Type i8() { return getI8Type(); }
  mlir::Type i32() { return getI32Type(); }
  mlir::Type i64() { return getI64Type(); }
  mlir::Type f32() { return getF32Type(); }
  mlir::VectorType vec(int64_t lanes, mlir::Type element) {
    return mlir::VectorType::get({lanes}, element);
  }

  //===- Integers of the kind that addresses are computed in ----------------===//
  Value add(Int a, Int b) { return fold<mlir::arith::AddIOp>(a, b); }
  Value sub(Int a, Int b) { return fold<mlir::arith::SubIOp>(a, b); }
  Value mul(Int a, Int b) { return fold<mlir::arith::MulIOp>(a, b); }
  Value div(Int a, int64_t b) { return fold<mlir::arith::DivUIOp>(a, b); } ///< floor, a >= 0
  Value rem(Int a, int64_t b) { return fold<mlir::arith::RemUIOp>(a, b); } ///< a >= 0
  Value equal(Int a, Int b) { return compare(mlir::arith::CmpIPredicate::eq, a, b); }

  //===- Floats, scalars and vectors ----------------------------------------===//
  /// A constant, the same in all lanes.
  Value constant(mlir::Type type, double value) {
    mlir::TypedAttr attr = getFloatAttr(mlir::getElementTypeOrSelf(type), value);
    if (auto vector = llvm::dyn_cast<mlir::VectorType>(type))
      attr = mlir::DenseElementsAttr::get(vector, attr);
    return mlir::arith::ConstantOp::create(*this, attr);
  }
  Value zero(mlir::Type type) {
    return mlir::arith::ConstantOp::create(*this, llvm::cast<mlir::TypedAttr>(getZeroAttr(type)));
  }
  Value addf(Value a, Value b) { return createOrFold<mlir::arith::AddFOp>(a, b); }
  Value subf(Value a, Value b) { return createOrFold<mlir::arith::SubFOp>(a, b); }
  Value mulf(Value a, Value b) { return createOrFold<mlir::arith::MulFOp>(a, b); }
  Value divf(Value a, Value b) { return createOrFold<mlir::arith::DivFOp>(a, b); }
  Value negate(Value x) { return mlir::arith::NegFOp::create(*this, x); }
  Value compare(mlir::arith::CmpFPredicate predicate, Value x, Value y) {
    return mlir::arith::CmpFOp::create(*this, predicate, x, y);
  }
  /// A null condition is true.
  Value select(Value condition, Value x, Value y) {
    return condition ? createOrFold<mlir::arith::SelectOp>(condition, x, y) : x;
  }
  /// x if x > y, respectively x < y, else y, which may be because one of them is NaN.
  Value larger(Value x, Value y) {
    return select(compare(mlir::arith::CmpFPredicate::OGT, x, y), x, y);
  }
  Value smaller(Value x, Value y) {
    return select(compare(mlir::arith::CmpFPredicate::OLT, x, y), x, y);
  }
  /// a and b, of i1; either may be null, which is true.
  Value both(Value a, Value b) {
    if (!a || !b)
      return a ? a : b;
    return createOrFold<mlir::arith::AndIOp>(a, b);
  }
  /// a or b, of i1.
  Value either(Value a, Value b) { return createOrFold<mlir::arith::OrIOp>(a, b); }
  /// To f32, from signed integers.
  Value toFloat(Value integers) {
    return mlir::arith::SIToFPOp::create(*this, withElement(integers, f32()), integers);
  }

  //===- Control flow -------------------------------------------------------===//
  void forLoop(Int begin, Int end, Int step, llvm::function_ref<void(Value)> body) {
    forLoop(begin, end, step, mlir::ValueRange(), [&](Value i, mlir::ValueRange) {
      body(i);
      return Values();
    });
  }
  Values forLoop(Int begin, Int end, Int step, mlir::ValueRange inits,
                 llvm::function_ref<Values(Value, mlir::ValueRange)> body) {
    Value lower = integer(begin), upper = integer(end), stride = integer(step);
    auto loop =
        mlir::scf::ForOp::create(*this, lower, upper, stride, inits,
                                 [](mlir::OpBuilder &, mlir::Location, Value, mlir::ValueRange) {});
    mlir::OpBuilder::InsertionGuard guard(*this);
    setInsertionPointToEnd(loop.getBody());
    Values results = body(loop.getInductionVar(), loop.getRegionIterArgs());
    mlir::scf::YieldOp::create(*this, results);
    return Values(loop.getResults());
  }
  /// A null condition is true.
  void ifThen(Value condition, llvm::function_ref<void()> body) {
    if (!condition)
      return body();
    auto op = mlir::scf::IfOp::create(*this, condition, /*withElseRegion=*/false);
    mlir::OpBuilder::InsertionGuard guard(*this);
    setInsertionPointToStart(op.thenBlock());
    body();
  }

protected:
  virtual Value integer(Int i) = 0;
  template <typename OpT> Value fold(Int a, Int b) {
    Value left = integer(a), right = integer(b);
    return createOrFold<OpT>(left, right);
  }
  Value compare(mlir::arith::CmpIPredicate predicate, Int a, Int b) {
    Value left = integer(a), right = integer(b);
    return createOrFold<mlir::arith::CmpIOp>(predicate, left, right);
  }
  /// The type of `like` with other elements.
  static mlir::Type withElement(Value like, mlir::Type element) {
    auto vector = llvm::dyn_cast<mlir::VectorType>(like.getType());
    return vector ? vector.clone(element) : element;
  }
};

/// The arguments of a kernel by the names that its description has for its parameters.
class KernelArguments {
public:
  template <typename Description>
  KernelArguments(const Description &kernel, mlir::ValueRange arguments)
      : front(arguments.front()) {
    for (auto [parameter, argument] : llvm::zip_equal(kernel.parameters, arguments))
      values[parameter.name] = argument;
  }

  mlir::Value operator[](llvm::StringRef name) const {
    mlir::Value value = find(name);
    assert(value && "the kernel's description has no such parameter");
    return value;
  }
  /// Null where the kernel has no such parameter.
  mlir::Value find(llvm::StringRef name) const { return values.lookup(name); }
  mlir::Value first() const { return front; }
  /// Puts another value in the place of an argument, or one beside them.
  void set(llvm::StringRef name, mlir::Value value) { values[name] = value; }

private:
  mlir::Value front;
  llvm::StringMap<mlir::Value> values;
};

} // namespace easyquant

#endif // EASYQUANT_LIB_CODEGEN_ARITHMETICBUILDER_H
