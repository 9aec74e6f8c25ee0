//===- LinearModule.cpp - A module of one linear --------------------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "LinearModule.h"

#include "easyquant/Dialect/Equant/Analysis/StoredBytes.h"
#include "easyquant/Dialect/Launch/IR/Launch.h"
#include "easyquant/Target/CPU/CPUTarget.h"
#include "easyquant/Target/Target.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/MLProgram/IR/MLProgram.h"
#include "mlir/IR/Builders.h"

using namespace mlir;
using namespace easyquant;
using namespace easyquant::execution;

LinearModule LinearModule::of(Location loc, const TimedLinear &timed) {
  OpBuilder builder(loc.getContext());
  LinearModule result{ModuleOp::create(loc)};
  const int64_t rows = timed.weight.getDimSize(0), columns = timed.weight.getDimSize(1);
  const equant::SchemeAttr scheme = timed.scheme, input = timed.input;
  equant::LayoutAttr layout =
      (*targets::findFamily(cpu::kFamily))->layoutFor(scheme, targets::Readers::of(scheme, input));
  const bool isAsymmetric = input && !input.getSymmetric();

  auto type = equant::WeightType::get(rows, columns, scheme, layout,
                                      /*sums=*/input && input.readsWeightSums());
  SmallVector<int64_t> offsets;
  for (const auto &[part, tensor] : type.getParts()) {
    offsets.push_back(result.weightBytes);
    const int64_t bits = tensor.getNumElements() * tensor.getElementTypeBitWidth();
    result.weightBytes += launch::alignUp((bits + 7) / 8);
  }
  builder.setInsertionPointToEnd(result.module->getBody());
  auto global = ml_program::GlobalOp::create(
      builder, loc, "w", type, /*is_mutable=*/false,
      ml_program::ExternAttr::get(builder.getContext(), type), builder.getStringAttr("private"));
  global->setAttr(equant::kOffsetAttr, builder.getDenseI64ArrayAttr(offsets));
  auto activation = [&](int64_t channels) {
    return RankedTensorType::get({ShapedType::kDynamic, channels}, builder.getF32Type());
  };
  auto function = func::FuncOp::create(
      builder, loc, "forward", builder.getFunctionType({activation(columns)}, {activation(rows)}));
  builder.setInsertionPointToStart(function.addEntryBlock());
  Value loaded = ml_program::GlobalLoadConstOp::create(
      builder, loc, type, FlatSymbolRefAttr::get(global.getSymNameAttr()));
  Value activations = function.getArgument(0);
  if (const int64_t block = scheme.getHadamard(); block != 0 && !timed.comesRotated)
    activations =
        equant::HadamardOp::create(builder, loc, activations.getType(), activations,
                                   builder.getI64IntegerAttr(block), builder.getI64IntegerAttr(1));
  const bool isStatic = input && input.isCalibrated();
  auto linear = equant::PackedLinearOp::create(
      builder, loc, activation(rows), activations, loaded, /*bias=*/Value(),
      /*online=*/Value(), /*experts=*/Value(), builder.getStrArrayAttr({"timed"}), input,
      isStatic ? builder.getF32FloatAttr(1) : FloatAttr(),
      isStatic && isAsymmetric ? builder.getI32IntegerAttr(0) : IntegerAttr());
  func::ReturnOp::create(builder, loc, linear.getOutput());
  return result;
}
