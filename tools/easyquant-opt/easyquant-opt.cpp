//===- easyquant-opt.cpp - Runs passes over IR ----------------------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "easyquant/Numerics/Blas.h"
#include "easyquant/Pipelines/RegisterPasses.h"
#include "easyquant/Support/OutOfMemory.h"
#include "easyquant/Support/Version.h"

#include "mlir/InitAllDialects.h"
#include "mlir/InitAllExtensions.h"
#include "mlir/InitAllPasses.h"
#include "mlir/Tools/mlir-opt/MlirOptMain.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/Support/CommandLine.h"

using llvm::StringRef;

/// Is only our part of the help asked for?
static bool asksForOurHelp(llvm::ArrayRef<const char *> arguments) {
  return llvm::any_of(arguments, [](StringRef argument) {
    return argument.consume_front("-") && (argument == "help" || argument == "-help" ||
                                           argument == "h" || argument == "-help-list");
  });
}

static int start(int argc, char **argv) {
  // What LLVM's libraries have registered is hundreds of options of code generators.
  for (auto &[name, option] : llvm::cl::getRegisteredOptions())
    if (!name.starts_with("help") && name != "version")
      option->setHiddenFlag(llvm::cl::Hidden);
  llvm::cl::SetVersionPrinter([](llvm::raw_ostream &os) {
    os << easyquant::versionOf("easyquant-opt", LLVM_VERSION_STRING) << '\n';
  });
  mlir::DialectRegistry registry;
  mlir::registerAllDialects(registry);
  mlir::registerAllExtensions(registry);
  easyquant::registerDialects(registry);

  if (!asksForOurHelp(llvm::ArrayRef(argv, argc)))
    mlir::registerAllPasses();
  easyquant::registerPasses();

  return mlir::asMainReturnCode(mlir::MlirOptMain(
      argc, argv,
      "EasyQuant: optimizer driver; --help-hidden lists the passes and options of MLIR, too\n",
      registry));
}

int main(int argc, char **argv) {
  easyquant::numerics::restartWithFittingBlas(argv);
  return easyquant::runTool([&] { return start(argc, argv); });
}
