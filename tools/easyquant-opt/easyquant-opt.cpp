//===- easyquant-opt.cpp - Runs passes over IR ----------------------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "easyquant/Pipelines/RegisterPasses.h"
#include "easyquant/Support/OutOfMemory.h"

#include "mlir/InitAllDialects.h"
#include "mlir/InitAllExtensions.h"
#include "mlir/InitAllPasses.h"
#include "mlir/Tools/mlir-opt/MlirOptMain.h"

static int start(int argc, char **argv) {
  mlir::DialectRegistry registry;
  mlir::registerAllDialects(registry);
  mlir::registerAllExtensions(registry);
  easyquant::registerDialects(registry);

  mlir::registerAllPasses();
  easyquant::registerPasses();

  return mlir::asMainReturnCode(
      mlir::MlirOptMain(argc, argv, "EasyQuant: optimizer driver\n", registry));
}

int main(int argc, char **argv) {
  return easyquant::runTool([&] { return start(argc, argv); });
}
