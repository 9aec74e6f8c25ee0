//===- EquantDialect.cpp - Quantization dialect ---------------------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "easyquant/Dialect/Equant/IR/Equant.h"

using namespace mlir;
using namespace easyquant::equant;

#include "easyquant/Dialect/Equant/IR/EquantDialect.cpp.inc"

void EquantDialect::initialize() {
  registerAttributes();
  addOperations<
#define GET_OP_LIST
#include "easyquant/Dialect/Equant/IR/EquantOps.cpp.inc"
      >();
  attachLMModels(getContext());
}
