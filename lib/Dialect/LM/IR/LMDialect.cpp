//===- LMDialect.cpp - Language model dialect -----------------------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "easyquant/Dialect/LM/IR/LM.h"
#include "easyquant/Dialect/LM/IR/RopeTable.h"

#include "mlir/Dialect/MLProgram/IR/MLProgram.h"
#include "mlir/IR/Builders.h"
#include "mlir/IR/DialectImplementation.h"
#include "llvm/ADT/TypeSwitch.h"

using namespace mlir;
using namespace easyquant::lm;

#include "easyquant/Dialect/LM/IR/LMDialect.cpp.inc"
#include "easyquant/Dialect/LM/IR/LMEnums.cpp.inc"

#define GET_ATTRDEF_CLASSES
#include "easyquant/Dialect/LM/IR/LMAttributes.cpp.inc"

#define GET_TYPEDEF_CLASSES
#include "easyquant/Dialect/LM/IR/LMTypes.cpp.inc"

void LMDialect::initialize() {
  addAttributes<
#define GET_ATTRDEF_LIST
#include "easyquant/Dialect/LM/IR/LMAttributes.cpp.inc"
      >();
  addTypes<
#define GET_TYPEDEF_LIST
#include "easyquant/Dialect/LM/IR/LMTypes.cpp.inc"
      >();
  addOperations<
#define GET_OP_LIST
#include "easyquant/Dialect/LM/IR/LMOps.cpp.inc"
      >();
}

LogicalResult KVCacheType::verify(function_ref<InFlightDiagnostic()> emitError, int64_t layers,
                                  int64_t kvHeads, int64_t headDim) {
  if (layers < 1 || kvHeads < 1 || headDim < 1)
    return emitError() << "layers, kv_heads and head_dim must be positive, found " << layers << ", "
                       << kvHeads << " and " << headDim;
  return success();
}

LogicalResult LMDialect::verifyOperationAttribute(Operation *op, NamedAttribute attribute) {
  if (attribute.getName() != kRopeTableAttr)
    return success();
  auto global = dyn_cast<ml_program::GlobalOp>(op);
  auto type = global ? dyn_cast<RankedTensorType>(global.getType()) : RankedTensorType();
  if (!type || !type.hasStaticShape() || type.getRank() != 3 || type.getDimSize(2) != 2 ||
      !type.getElementType().isF32())
    return op->emitOpError() << kRopeTableAttr
                             << " belongs to an ml_program.global of type tensor<PxHx2xf32>";
  auto dictionary = dyn_cast<DictionaryAttr>(attribute.getValue());
  if (!dictionary)
    return op->emitOpError() << kRopeTableAttr << " must be a dictionary, found "
                             << attribute.getValue();
  if (auto params = ropeParams(dictionary, 2 * type.getDimSize(1)); !params)
    return op->emitOpError() << kRopeTableAttr << " " << attribute.getValue() << ": "
                             << params.error().message;
  return success();
}
