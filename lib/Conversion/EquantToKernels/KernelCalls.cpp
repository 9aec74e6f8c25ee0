//===- KernelCalls.cpp - What the call of a kernel is for -----------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "easyquant/Conversion/EquantToKernels/KernelCalls.h"

#include "easyquant/Dialect/Equant/IR/Equant.h"

using namespace mlir;
using namespace easyquant;

std::string easyquant::siteOf(Operation *op) {
  if (auto linear = dyn_cast<equant::LinearOp>(op)) {
    std::string site;
    for (StringRef name : linear.getSites().getAsValueRange<StringAttr>())
      site += site.empty() ? name.str() : "+" + name.substr(name.rfind('.') + 1).str();
    return site;
  }
  if (auto quantizable = dyn_cast<equant::QuantizableOpInterface>(op))
    return quantizable.getSite().str();
  if (auto name = dyn_cast<NameLoc>(op->getLoc()))
    return name.getName().str();
  return op->getName().getStringRef().str();
}
