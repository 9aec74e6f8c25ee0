//===- KernelRunner.h - Compiles a kernel and calls it ----------*- C++ -*-===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Kernel tests take the road that artifacts take: kernel IR, object, shared object, dlopen.
//
//===----------------------------------------------------------------------===//

#ifndef EASYQUANT_TEST_CODEGEN_KERNELRUNNER_H
#define EASYQUANT_TEST_CODEGEN_KERNELRUNNER_H

#include "easyquant/Codegen/CPU/EmitObject.h"
#include "easyquant/Codegen/CPU/Kernels.h"

#include <array>
#include <cstdint>
#include <functional>
#include <string>

namespace easyquant::cpu {

/// MLIR's memref descriptor.
template <typename T, int Rank> struct MemRef {
  T *allocated;
  T *aligned;
  int64_t offset = 0;
  std::array<int64_t, Rank> sizes;
  std::array<int64_t, Rank> strides;

  /// A dense, row-major view of `data`.
  MemRef(T *data, std::array<int64_t, Rank> sizes) : allocated(data), aligned(data), sizes(sizes) {
    int64_t stride = 1;
    for (int d = Rank - 1; d >= 0; --d) {
      strides[d] = stride;
      stride *= sizes[d];
    }
  }
  /// A matrix whose rows are `rowStride` elements apart.
  static MemRef strided(T *data, std::array<int64_t, 2> sizes, int64_t rowStride) {
    MemRef view(data, sizes);
    view.strides[0] = rowStride;
    return view;
  }
};

/// True when this CPU runs `target`'s code.
bool cpuRuns(const Target &target);

/// The forms of a kernel that can be tested on this CPU: AVX2, and AVX-512 with VNNI natively where
/// the CPU has it, else with the dot product emulated and compiled for AVX2.
std::array<Target, 2> testTargets();

class KernelRunner {
public:
  /// Compiles the kernel that `build` puts into an empty module; a failure is a test failure.
  KernelRunner(const Target &target, llvm::function_ref<mlir::func::FuncOp(mlir::ModuleOp)> build);
  ~KernelRunner();
  KernelRunner(const KernelRunner &) = delete;
  KernelRunner &operator=(const KernelRunner &) = delete;

  /// Arguments: MemRef by reference, index as int64_t.
  template <typename... Args> void operator()(Args &&...args) const {
    reinterpret_cast<void (*)(decltype(pass(args))...)>(entry)(pass(args)...);
  }

  /// The object file, for tests that look at machine code.
  const std::string &objectPath() const { return object; }

private:
  // A constructor cannot hold fatal assertions.
  void compile(const Target &target, llvm::function_ref<mlir::func::FuncOp(mlir::ModuleOp)> build);

  template <typename T, int Rank> static MemRef<T, Rank> *pass(MemRef<T, Rank> &view) {
    return &view;
  }
  static int64_t pass(int64_t value) { return value; }

  std::string folder, object;
  void *library = nullptr;
  void *entry = nullptr;
};

} // namespace easyquant::cpu

#endif // EASYQUANT_TEST_CODEGEN_KERNELRUNNER_H
