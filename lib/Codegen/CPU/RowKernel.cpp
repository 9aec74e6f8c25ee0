//===- RowKernel.cpp - Kernels that do one token after another ------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "RowKernel.h"

#include "VectorMath.h"

#include "mlir/Dialect/SCF/IR/SCF.h"

using namespace mlir;

namespace easyquant::cpu {

/// Elements below which entering and leaving a parallel region, one or two microseconds, costs more
/// than the other threads save.
static constexpr int64_t kParallelWork = 16384;

func::FuncOp getOrEmitFunction(ModuleOp module, StringRef name, const Target &target,
                               llvm::function_ref<SmallVector<Type>(KernelBuilder &)> arguments,
                               llvm::function_ref<void(KernelBuilder &, ValueRange)> build) {
  if (auto existing = module.lookupSymbol<func::FuncOp>(name))
    return existing;
  KernelBuilder b(module.getLoc(), module.getContext(), target);
  b.setInsertionPointToEnd(module.getBody());
  auto function = func::FuncOp::create(b, name, b.getFunctionType(arguments(b), {}));
  function.setPrivate();
  b.setInsertionPointToStart(function.addEntryBlock());
  build(b, function.getArguments());
  func::ReturnOp::create(b);
  return function;
}

void callForRows(KernelBuilder &b, func::FuncOp function, ValueRange arguments, Value rows,
                 int64_t workPerRow, Value threads) {
  auto call = [&](Value begin, Value end) {
    SmallVector<Value> operands(arguments);
    operands.append({begin, end});
    func::CallOp::create(b, function, operands);
  };
  // A single row is not split.
  int64_t enough = std::max<int64_t>(2, llvm::divideCeil(kParallelWork, workPerRow));
  Value serial = arith::OrIOp::create(b, b.less(rows, enough), b.less(threads, 2));
  b.ifThenElse(
      serial, [&] { call(b.index(0), rows); },
      [&] {
        auto parallel = scf::ParallelOp::create(b, ValueRange{b.index(0)}, ValueRange{threads},
                                                ValueRange{b.index(1)});
        OpBuilder::InsertionGuard guard(b);
        b.setInsertionPointToStart(parallel.getBody());
        auto [begin, end] = shareOf(b, rows, parallel.getInductionVars()[0], threads);
        call(begin, end);
      });
}

func::FuncOp
getOrEmitRowKernel(ModuleOp module, StringRef name, const Target &target,
                   llvm::function_ref<SmallVector<Type>(KernelBuilder &)> inputs,
                   int64_t workPerRow,
                   llvm::function_ref<void(KernelBuilder &, ValueRange, Value, Value)> build) {
  if (auto existing = module.lookupSymbol<func::FuncOp>(name))
    return existing;
  auto withIndices = [&](int64_t count) {
    return [&inputs, count](KernelBuilder &b) {
      SmallVector<Type> types = inputs(b);
      types.append(count, b.getIndexType());
      return types;
    };
  };
  func::FuncOp rows =
      getOrEmitFunction(module, (name + "_rows").str(), target, withIndices(2),
                        [&](KernelBuilder &b, ValueRange args) {
                          build(b, args.drop_back(2), args[args.size() - 2], args.back());
                        });
  return getOrEmitFunction(
      module, name, target, withIndices(1), [&](KernelBuilder &b, ValueRange args) {
        callForRows(b, rows, args.drop_back(), b.size(args[0], 0), workPerRow, args.back());
      });
}

/// What is left of `count` columns after those in wide vectors, as pieces (offset, lanes).
static SmallVector<std::pair<int64_t, int64_t>> remainder(int64_t count, int64_t wide,
                                                          int64_t lanes) {
  SmallVector<std::pair<int64_t, int64_t>> pieces;
  for (int64_t offset = count / wide * wide; offset < count; offset += lanes)
    pieces.push_back({offset, std::min(lanes, count - offset)});
  return pieces;
}

void forColumns(KernelBuilder &b, Index begin, int64_t count, int64_t wide,
                llvm::function_ref<void(Value, int64_t)> body) {
  int64_t inWide = count / wide * wide;
  if (inWide == wide)
    body(b.index(begin), wide);
  else if (inWide > 0)
    b.forLoop(begin, b.add(begin, inWide), wide, [&](Value column) { body(column, wide); });
  for (auto [offset, lanes] : remainder(count, wide, b.target.lanes()))
    body(b.add(begin, offset), lanes);
}

Value padWithZeros(KernelBuilder &b, Value vector, int64_t lanes) {
  auto type = cast<VectorType>(vector.getType());
  int64_t count = type.getNumElements();
  if (count == lanes)
    return vector;
  SmallVector<int64_t> mask(lanes, count);
  for (int64_t i = 0; i < count; ++i)
    mask[i] = i;
  return b.shuffle(vector, b.zero(type), mask);
}

Value reduceColumns(KernelBuilder &b, Index begin, int64_t count, int64_t wide, Type element,
                    Combine combine, llvm::function_ref<Value(Value, int64_t)> term) {
  auto join = [&](Value x, Value y) {
    if (combine == Combine::Max)
      return maxNumber(b, x, y);
    return isa<FloatType>(element) ? b.addf(x, y) : b.addi(x, y);
  };
  // Halves the vector until `lanes` are left.
  auto fold = [&](Value x, int64_t lanes) {
    for (int64_t n = cast<VectorType>(x.getType()).getNumElements(); n > lanes; n /= 2)
      x = join(b.slice(x, 0, n / 2), b.slice(x, n / 2, n / 2));
    return x;
  };

  int64_t lanes = b.target.lanes(), inWide = count / wide * wide;
  Value sum;
  if (inWide == wide) {
    sum = fold(term(b.index(begin), wide), lanes);
  } else if (inWide > 0) {
    auto sums = b.forLoop(begin, b.add(begin, inWide), wide, b.zero(b.vec(wide, element)),
                          [&](Value column, ValueRange carried) {
                            return KernelBuilder::Values{join(term(column, wide), carried[0])};
                          });
    sum = fold(sums[0], lanes);
  }
  for (auto [offset, pieceLanes] : remainder(count, wide, lanes)) {
    Value piece = padWithZeros(b, term(b.add(begin, offset), pieceLanes), lanes);
    sum = sum ? join(piece, sum) : piece;
  }
  return b.extract(fold(sum, 1), 0);
}

} // namespace easyquant::cpu
