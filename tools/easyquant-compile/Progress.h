//===- Progress.h - What easyquant-compile shows while it works -*- C++ -*-===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef EASYQUANT_TOOLS_EASYQUANT_COMPILE_PROGRESS_H
#define EASYQUANT_TOOLS_EASYQUANT_COMPILE_PROGRESS_H

#include "mlir/IR/MLIRContext.h"
#include "llvm/ADT/StringRef.h"

#include <cstdint>
#include <memory>

namespace easyquant {

/// None: silent. Text: a line a phase for people. JSON: a line an event on standard error, for the
/// front desk: {"phase": "materialize", "done": 12, "total": 211}.
enum class ProgressFormat { None, Text, JSON };

/// Reports progress to standard error, on its own and from what passes of `context` say.
class Progress {
public:
  Progress(mlir::MLIRContext &context, ProgressFormat format);
  ~Progress();

  void report(llvm::StringRef phase, int64_t done, int64_t total);

private:
  struct Impl;
  std::shared_ptr<Impl> impl;
};

} // namespace easyquant

#endif // EASYQUANT_TOOLS_EASYQUANT_COMPILE_PROGRESS_H
