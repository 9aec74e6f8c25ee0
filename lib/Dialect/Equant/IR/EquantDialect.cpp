//===- EquantDialect.cpp - Quantization dialect ---------------------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "easyquant/Dialect/Equant/IR/Equant.h"

#include "mlir/Dialect/MLProgram/IR/MLProgram.h"
#include "mlir/IR/BuiltinOps.h"
#include "mlir/Transforms/InliningUtils.h"

using namespace mlir;
using namespace easyquant::equant;

#include "easyquant/Dialect/Equant/IR/EquantDialect.cpp.inc"

namespace {
struct EquantInliner : DialectInlinerInterface {
  using DialectInlinerInterface::DialectInlinerInterface;
  bool isLegalToInline(Operation *, Region *, bool, IRMapping &) const final { return true; }
};
} // namespace

void EquantDialect::initialize() {
  addInterfaces<EquantInliner>();
  registerAttributes();
  addOperations<
#define GET_OP_LIST
#include "easyquant/Dialect/Equant/IR/EquantOps.cpp.inc"
      >();
  attachLMModels(getContext());
}

PlanAttr easyquant::equant::getPlan(QuantizableOpInterface op) {
  return op->getAttrOfType<PlanAttr>(kPlanAttr);
}

LogicalResult EquantDialect::verifyOperationAttribute(Operation *op, NamedAttribute attribute) {
  StringRef name = attribute.getName();
  if (name == kPlanAttr) {
    auto site = dyn_cast<QuantizableOpInterface>(op);
    auto plan = dyn_cast<PlanAttr>(attribute.getValue());
    if (!site || !plan)
      return op->emitOpError() << kPlanAttr << " belongs to a quantizable op and is a #equant.plan";
  } else if (name == kFileAttr || name == kStampAttr) {
    if (!isa<ml_program::GlobalOp>(op) || !isa<StringAttr>(attribute.getValue()))
      return op->emitOpError() << name << " belongs to an ml_program.global and is a string";
    if (name == kStampAttr && !op->hasAttr(kFileAttr))
      return op->emitOpError() << kStampAttr << " needs " << kFileAttr;
  } else if (name == kOffsetAttr) {
    auto offset = dyn_cast<IntegerAttr>(attribute.getValue());
    if (!isa<ml_program::GlobalOp>(op) || !offset || !offset.getType().isSignlessInteger(64) ||
        offset.getInt() < 0)
      return op->emitOpError() << name
                               << " belongs to an ml_program.global and is a byte, an i64 "
                                  "that is not negative; found "
                               << attribute.getValue();
  } else if (name == kWorkAttr) {
    if (!isa<ModuleOp>(op) || !isa<StringAttr>(attribute.getValue()))
      return op->emitOpError() << kWorkAttr << " belongs to the module and is a path";
  }
  return success();
}
