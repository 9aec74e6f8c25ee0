//===- easyquant-opt.cpp - Runs passes over IR ----------------------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "easyquant/Dialect/Equant/IR/Equant.h"
#include "easyquant/Dialect/Equant/Transforms/Passes.h"
#include "easyquant/Dialect/LM/IR/LM.h"

#include "mlir/InitAllDialects.h"
#include "mlir/InitAllExtensions.h"
#include "mlir/InitAllPasses.h"
#include "mlir/Tools/mlir-opt/MlirOptMain.h"

int main(int argc, char **argv) {
  mlir::DialectRegistry registry;
  mlir::registerAllDialects(registry);
  mlir::registerAllExtensions(registry);
  registry.insert<easyquant::lm::LMDialect, easyquant::equant::EquantDialect>();

  mlir::registerAllPasses();
  easyquant::equant::registerEquantPasses();

  return mlir::asMainReturnCode(
      mlir::MlirOptMain(argc, argv, "EasyQuant: optimizer driver\n", registry));
}
