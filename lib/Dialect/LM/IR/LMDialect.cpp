//===- LMDialect.cpp - Language model dialect -----------------------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "easyquant/Dialect/LM/IR/LM.h"

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
