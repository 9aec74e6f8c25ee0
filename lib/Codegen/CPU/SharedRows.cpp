//===- SharedRows.cpp - Rows of which ranks have parts --------------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// What stands before and behind a sum over ranks: the magnitudes that a row's scale follows from,
// and the scaling of int32 sums, in the order in which LinearTile.cpp scales its own.
//
//===----------------------------------------------------------------------===//

#include "RowKernel.h"
#include "WeightParams.h"

#include "mlir/Dialect/Math/IR/Math.h"
#include "llvm/Support/FormatVariadic.h"

using namespace mlir;

namespace easyquant::cpu {

std::string symbolName(const TokenAbsMaxSpec &spec) {
  return llvm::formatv("token_absmax_{0}", spec.columns);
}

func::FuncOp getOrEmitTokenAbsMax(ModuleOp module, const TokenAbsMaxSpec &spec,
                                  const Target &target) {
  auto inputs = [&](KernelBuilder &b) {
    return SmallVector<Type>{b.rows(spec.columns), b.memref({ShapedType::kDynamic}, b.f32())};
  };
  return getOrEmitRowKernel(module, symbolName(spec), target, inputs,
                            [&](KernelBuilder &b, ValueRange args, Value begin, Value end) {
                              b.forLoop(begin, end, 1, [&](Value row) {
                                Value largest = reduceColumns(
                                    b, 0, spec.columns, 4 * b.target.lanes(), b.f32(), Combine::Max,
                                    [&](Value column, int64_t lanes) -> Value {
                                      Value x = b.loadVector(lanes, args[0], {row, column});
                                      return math::AbsFOp::create(b, x);
                                    });
                                b.store(largest, args[1], {row});
                              });
                            });
}

std::string symbolName(const RescaleSpec &spec) {
  std::string name = llvm::formatv("rescale_{0}", spec.n);
  name += nameOf(spec.numbers);
  if (spec.bias)
    name += "_bias";
  if (spec.accumulate)
    name += "_acc";
  return name;
}

func::FuncOp getOrEmitRescale(ModuleOp module, const RescaleSpec &spec, const Target &target) {
  auto inputs = [&](KernelBuilder &b) {
    int64_t panels = panelCount(spec.n);
    MemRefType rows = b.rows(spec.n);
    SmallVector<Type> types = {MemRefType::get(rows.getShape(), b.i32(), rows.getLayout()),
                               b.memref({ShapedType::kDynamic}, b.f32()),
                               scalesType(b, spec.numbers.scales, panels, 1)};
    if (spec.numbers.outer)
      types.push_back(outerType(b, panels));
    if (spec.bias)
      types.push_back(b.memref({spec.n}, b.f32()));
    types.push_back(rows);
    return types;
  };
  return getOrEmitRowKernel(
      module, symbolName(spec), target, inputs,
      [&](KernelBuilder &b, ValueRange args, Value begin, Value end) {
        Value outer = spec.numbers.outer ? args[3] : Value(), y = args.back();
        Value bias = spec.bias ? args.drop_back().back() : Value();
        const int64_t width = b.target.lanes();
        b.forLoop(begin, end, 1, [&](Value row) {
          Value rowScale = b.load(args[1], {row});
          forColumns(b, 0, spec.n, width, [&](Value column, int64_t lanes) {
            // Panels are padded: whole vectors of scales are there.
            Value panel = b.div(column, kPanelRows), first = b.rem(column, kPanelRows);
            auto cut = [&](Value vector) {
              return lanes == width ? vector : b.slice(vector, 0, lanes);
            };
            Value scale = cut(loadScales(b, spec.numbers.scales, width, args[2], panel, 0, first));
            Value result = b.mulf(scale, b.toFloat(b.loadVector(lanes, args[0], {row, column})));
            if (outer)
              result = b.mulf(cut(b.loadVector(width, outer, {panel, 0, first})), result);
            result = b.mulf(b.broadcast(rowScale, lanes), result);
            if (bias)
              result = b.addf(result, b.loadVector(lanes, bias, {column}));
            if (spec.accumulate)
              result = b.addf(result, b.loadVector(lanes, y, {row, column}));
            b.storeVector(result, y, {row, column});
          });
        });
      });
}

} // namespace easyquant::cpu
