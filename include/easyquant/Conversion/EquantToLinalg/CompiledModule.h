//===- CompiledModule.h - A module of upstream ops, run here ----*- C++ -*-===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef EASYQUANT_CONVERSION_EQUANTTOLINALG_COMPILEDMODULE_H
#define EASYQUANT_CONVERSION_EQUANTTOLINALG_COMPILEDMODULE_H

#include "easyquant/Support/Result.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/ExecutionEngine/ExecutionEngine.h"

#include <functional>
#include <memory>
#include <span>

namespace easyquant {

/// One argument of a run: the elements of a tensor, row-major.
struct ModuleArgument {
  llvm::SmallVector<int64_t> shape;
  std::vector<char> bytes;
};

/// A function of a module, as machine code of this process: loops over buffers, as upstream passes
/// make them.
class CompiledModule {
public:
  /// What the module hands out as it runs: values in the order of memory, by the number that
  /// `addObserver` was given.
  using Observer = std::function<void(int64_t number, std::span<const float> values)>;

  /// Adds what passes and translations need.
  static void getDependentDialects(mlir::DialectRegistry &registry);
  /// Hands the values of a tensor of floats out, at this place of the module.
  static void addObserver(mlir::OpBuilder &builder, mlir::Location loc, mlir::ModuleOp module,
                          int64_t number, mlir::Value tensor);
  /// Compiles the module, which is consumed, to call `function`. Fails with a diagnostic where
  /// upstream passes do.
  static mlir::FailureOr<CompiledModule> compile(mlir::ModuleOp module, llvm::StringRef function);

  /// Calls the function; its results go. Arguments are of its types, which the caller has checked.
  /// InvalidArgument where the program ended itself: by an assertion, or beyond the end of a
  /// tensor.
  Result<void> run(llvm::MutableArrayRef<ModuleArgument> arguments, const Observer &observer);

private:
  std::unique_ptr<mlir::ExecutionEngine> engine;
};

} // namespace easyquant

#endif // EASYQUANT_CONVERSION_EQUANTTOLINALG_COMPILEDMODULE_H
