//===- FuzzSeeds.h - Good modules, and what is run on them ------*- C++ -*-===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef EASYQUANT_TEST_PIPELINES_FUZZSEEDS_H
#define EASYQUANT_TEST_PIPELINES_FUZZSEEDS_H

#include "mlir/IR/MLIRContext.h"
#include "mlir/Pass/PassManager.h"

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

namespace easyquant::test {

/// A pipeline and how often it is chosen; what starts a compiler or an assembler is rare.
struct Pipeline {
  const char *text;
  int weight = 10;
};
/// Together they hold every pass of this project.
llvm::ArrayRef<Pipeline> pipelines();
/// The flags of the passes in them.
std::vector<std::string> passesInPipelines();

/// What MLIR's own passes between all passes of a pipeline make of it.
inline constexpr const char *kCleanups = "canonicalize,cse,sccp";
std::string interleave(mlir::OpPassManager &pm, llvm::StringRef between);

/// A context with every dialect and no threads.
std::unique_ptr<mlir::MLIRContext> makeContext();

/// Ends the program with a message: what the tests need does not work.
[[noreturn]] void giveUp(const llvm::Twine &what);
/// A small checkpoint, `arguments` of make_checkpoint.py, the first of which is its folder.
void makeCheckpoint(const std::filesystem::path &tests, const std::string &arguments);

/// Modules as text: those of the test files below `tests` that parse, and small models, imported
/// and taken through the phases of a compilation. Writes what these need (checkpoints, tokens,
/// statistics) into the working directory, which the pipelines refer to.
std::vector<std::string> makeSeeds(const std::filesystem::path &tests);

} // namespace easyquant::test

#endif // EASYQUANT_TEST_PIPELINES_FUZZSEEDS_H
