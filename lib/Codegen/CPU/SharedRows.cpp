//===- SharedRows.cpp - Rows of which ranks have parts --------------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// What stands before and behind a sum over ranks: the magnitudes that a row's scale follows from,
// the squares that its norm follows from, and the scaling of int32 sums, in the order in which
// LinearTile.cpp scales its own.
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

Description describe(const TokenAbsMaxSpec &spec, MLIRContext *context) {
  Describer d(context, symbolName(spec), Describer::Over::Rows);
  d.reads("x", d.rows(spec.columns));
  d.writes("absmax", d.vector(d.getF32Type()));
  return std::move(d.kernel);
}

/// One number of each row, which is written to `result`: of(x) of its columns, combined.
template <typename Spec>
static func::FuncOp emitOfRows(ModuleOp module, const Spec &spec, const Target &target,
                               StringRef result, Combine combine,
                               llvm::function_ref<Value(KernelBuilder &, Value x)> of) {
  return getOrEmitRowKernel(
      module, spec, target,
      [&](KernelBuilder &b, const KernelArguments &in, Value begin, Value end) {
        b.forLoop(begin, end, 1, [&](Value row) {
          Value number = reduceColumns(b, 0, spec.columns, 4 * b.target.lanes(), b.f32(), combine,
                                       [&](Value column, int64_t lanes) -> Value {
                                         return of(b, b.loadVector(lanes, in["x"], {row, column}));
                                       });
          b.store(number, in[result], {row});
        });
      });
}

func::FuncOp getOrEmitTokenAbsMax(ModuleOp module, const TokenAbsMaxSpec &spec,
                                  const Target &target) {
  return emitOfRows(module, spec, target, "absmax", Combine::Max,
                    [](KernelBuilder &b, Value x) { return Value(math::AbsFOp::create(b, x)); });
}

std::string symbolName(const TokenSquaresSpec &spec) {
  return llvm::formatv("token_squares_{0}", spec.columns);
}

Description describe(const TokenSquaresSpec &spec, MLIRContext *context) {
  Describer d(context, symbolName(spec), Describer::Over::Rows);
  d.reads("x", d.rows(spec.columns));
  d.writes("squares", d.vector(d.getF32Type()));
  return std::move(d.kernel);
}

func::FuncOp getOrEmitTokenSquares(ModuleOp module, const TokenSquaresSpec &spec,
                                   const Target &target) {
  return emitOfRows(module, spec, target, "squares", Combine::Add,
                    [](KernelBuilder &b, Value x) { return b.mulf(x, x); });
}

std::string symbolName(const PartNormSpec &spec) {
  return llvm::formatv("part_norm_{0}of{1}_eps{2:x-}", spec.columns, spec.all,
                       llvm::bit_cast<uint32_t>(static_cast<float>(spec.epsilon)));
}

Description describe(const PartNormSpec &spec, MLIRContext *context) {
  Describer d(context, symbolName(spec), Describer::Over::Rows);
  d.reads("x", d.rows(spec.columns));
  d.reads("weight", d.memory({spec.columns}, d.getF32Type()));
  d.reads("squares", d.vector(d.getF32Type()));
  d.writes("y", d.rows(spec.columns));
  return std::move(d.kernel);
}

func::FuncOp getOrEmitPartNorm(ModuleOp module, const PartNormSpec &spec, const Target &target) {
  return getOrEmitRowKernel(
      module, spec, target,
      [&](KernelBuilder &b, const KernelArguments &in, Value begin, Value end) {
        b.forLoop(begin, end, 1, [&](Value row) {
          Value mean = b.divf(b.load(in["squares"], {row}),
                              b.constant(b.f32(), static_cast<double>(spec.all)));
          Value shifted = b.addf(mean, b.constant(b.f32(), spec.epsilon));
          Value scale = b.divf(b.constant(b.f32(), 1.0), math::SqrtOp::create(b, shifted));
          forColumns(b, 0, spec.columns, 4 * b.target.lanes(), [&](Value column, int64_t lanes) {
            Value x = b.loadVector(lanes, in["x"], {row, column});
            Value weight = b.loadVector(lanes, in["weight"], {column});
            b.storeVector(b.mulf(b.mulf(x, b.broadcast(scale, lanes)), weight), in["y"],
                          {row, column});
          });
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

Description describe(const RescaleSpec &spec, MLIRContext *context) {
  Describer d(context, symbolName(spec), Describer::Over::Rows);
  d.reads("sums", rowsType(d, spec.n, d.getI32Type()));
  d.reads("scales", d.vector(d.getF32Type()));
  readRowScales(d, spec.numbers, spec.n);
  d.reads("bias", d.memory({spec.n}, d.getF32Type()), spec.bias);
  d.writes("y", d.rows(spec.n));
  return std::move(d.kernel);
}

func::FuncOp getOrEmitRescale(ModuleOp module, const RescaleSpec &spec, const Target &target) {
  return getOrEmitRowKernel(
      module, spec, target,
      [&](KernelBuilder &b, const KernelArguments &in, Value begin, Value end) {
        Value sums = in["sums"], wscales = in["wscales"], outer = in.find("wouter");
        Value bias = in.find("bias"), y = in["y"];
        const int64_t width = b.target.lanes();
        b.forLoop(begin, end, 1, [&](Value row) {
          Value rowScale = b.load(in["scales"], {row});
          forColumns(b, 0, spec.n, width, [&](Value column, int64_t lanes) {
            // Panels are padded: whole vectors of scales are there.
            Value panel = b.div(column, kPanelRows), first = b.rem(column, kPanelRows);
            auto cut = [&](Value vector) {
              return lanes == width ? vector : b.slice(vector, 0, lanes);
            };
            Value scale = cut(loadScales(b, spec.numbers.scales, width, wscales, panel, 0, first));
            Value result = b.mulf(scale, b.toFloat(b.loadVector(lanes, sums, {row, column})));
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
