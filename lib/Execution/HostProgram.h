//===- HostProgram.h - A module compiled for this machine -------*- C++ -*-===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef EASYQUANT_LIB_CALIBRATION_HOSTPROGRAM_H
#define EASYQUANT_LIB_CALIBRATION_HOSTPROGRAM_H

#include "easyquant/Formats/Cache.h"
#include "easyquant/Runtime/Program.h"
#include "easyquant/Support/Result.h"

#include "mlir/IR/BuiltinOps.h"
#include "mlir/IR/DialectRegistry.h"

namespace easyquant::execution {

/// MLIR's descriptor of a memref<...xT> of rank N.
template <typename T, int N> struct MemRef {
  T *allocated = nullptr;
  T *aligned = nullptr;
  int64_t offset = 0;
  int64_t sizes[N] = {};
  int64_t strides[N] = {};
};

template <typename T> MemRef<T, 1> memRef1D(T *data, int64_t size) {
  return {data, data, 0, {size}, {1}};
}

/// A shared object made of a module with a function @forward, loaded into this process.
class HostProgram {
public:
  /// Consumes the module's body. Errors are diagnostics.
  static mlir::FailureOr<std::shared_ptr<const HostProgram>>
  compile(mlir::ModuleOp module, const std::string &isa, int64_t maxRows);
  static void getDependentDialects(mlir::DialectRegistry &registry);
  /// The instruction set to compile for: `asked`, or for "" the best that this machine has. Errors:
  /// those of runtime::selectIsa, which names `purpose` in them.
  static Result<std::string> chooseIsa(llvm::StringRef asked, llvm::StringRef purpose);

  HostProgram(const HostProgram &) = delete;
  ~HostProgram();

  int64_t arenaBytes = 0, arenaBytesPerThread = 0;
  formats::CacheSizes cache;

  /// Calls the entry. Every argument is a pointer to a memref's descriptor, an integer, or a
  /// pointer. Errors: those of OpenMP::prepare.
  Result<void> call(llvm::ArrayRef<uintptr_t> arguments, int32_t threads) const;
  /// More arguments than call() can pass.
  static constexpr size_t kMaxArguments = 64;

private:
  HostProgram() = default;
  void *library = nullptr;
  void *entry = nullptr;
  const runtime::OpenMP *openmp = nullptr;
};

} // namespace easyquant::execution

#endif // EASYQUANT_LIB_CALIBRATION_HOSTPROGRAM_H
