//===- KernelRunner.h - Compiles a kernel and calls it ----------*- C++ -*-===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Kernel tests take the road that artifacts take: kernel IR, object, shared object, dlopen. Those
// of another processor are called in an emulator.
//
//===----------------------------------------------------------------------===//

#ifndef EASYQUANT_TEST_CODEGEN_CPU_KERNELRUNNER_H
#define EASYQUANT_TEST_CODEGEN_CPU_KERNELRUNNER_H

#include "Emulated/Emulator.h"

#include "easyquant/Codegen/CPU/Kernels.h"
#include "easyquant/Emit/EmitObject.h"

#include <array>
#include <bit>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
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
/// the CPU has it, else with the dot product emulated and compiled for AVX2. With
/// EASYQUANT_TEST_PROCESSOR=aarch64 those of Arm, in an emulator.
std::array<Target, 2> testTargets();

/// A compiled kernel. Arguments: MemRef by reference, index as int64_t, f32 and i32 as they are; in
/// place of the team the number of its threads.
class Kernel {
public:
  explicit Kernel(void *entry) : entry(entry) {}
  Kernel(emulated::Emulator *emulator, std::string symbol)
      : emulator(emulator), symbol(std::move(symbol)) {}

  template <typename... Args> void operator()(Args &&...args) const {
    if (emulator)
      return emulator->call(symbol, {send(args)...});
    reinterpret_cast<void (*)(decltype(pass(args))...)>(entry)(pass(args)...);
  }

private:
  template <typename T, int Rank> static MemRef<T, Rank> *pass(MemRef<T, Rank> &view) {
    return &view;
  }
  static int64_t pass(int64_t value) { return value; }
  static int32_t pass(int32_t value) { return value; }
  static float pass(float value) { return value; }

  template <typename T, int Rank> static emulated::Passed send(const MemRef<T, Rank> &view) {
    int64_t last = 0;
    bool isEmpty = false;
    for (int d = 0; d < Rank; ++d) {
      last += (view.sizes[d] - 1) * view.strides[d];
      isEmpty |= view.sizes[d] <= 0;
    }
    const auto begin = reinterpret_cast<uintptr_t>(view.aligned + view.offset);
    return {{emulated::Kind::Memory, sizeof(view)},
            &view,
            begin,
            isEmpty ? begin : begin + (last + 1) * sizeof(T)};
  }
  static emulated::Passed send(int64_t value) {
    return {{emulated::Kind::Integer, static_cast<uint64_t>(value)}};
  }
  static emulated::Passed send(int32_t value) { return send(int64_t(value)); }
  static emulated::Passed send(float value) {
    return {{emulated::Kind::Float, std::bit_cast<uint32_t>(value)}};
  }

  void *entry = nullptr;
  emulated::Emulator *emulator = nullptr;
  std::string symbol;
};

/// Kernels, and other functions, that are compiled together, which costs less than one after
/// another.
class KernelLibrary {
public:
  /// Compiles the kernels that `build` puts into an empty module; a failure is a test failure.
  KernelLibrary(const Target &target,
                llvm::function_ref<llvm::SmallVector<mlir::func::FuncOp>(mlir::ModuleOp)> build);
  ~KernelLibrary();
  KernelLibrary(const KernelLibrary &) = delete;
  KernelLibrary &operator=(const KernelLibrary &) = delete;

  /// The kernel of this symbol name, which `build` returned.
  Kernel kernel(llvm::StringRef symbol) const;

  /// The object file of the first kernel, for tests that look at machine code.
  const std::string &objectPath() const { return object; }

private:
  // A constructor cannot hold fatal assertions.
  void compile(const Target &target,
               llvm::function_ref<llvm::SmallVector<mlir::func::FuncOp>(mlir::ModuleOp)> build);

  std::map<std::string, std::string, std::less<>> entries; ///< of each symbol
  std::string folder, object;
  void *library = nullptr;
  std::unique_ptr<emulated::Emulator> emulator;
};

/// One kernel.
class KernelRunner {
public:
  KernelRunner(const Target &target, llvm::function_ref<mlir::func::FuncOp(mlir::ModuleOp)> build)
      : library(target,
                [&](mlir::ModuleOp module) {
                  mlir::func::FuncOp function = build(module);
                  symbol = function.getSymName().str();
                  return llvm::SmallVector<mlir::func::FuncOp>{function};
                }),
        kernel(library.kernel(symbol)) {}

  template <typename... Args> void operator()(Args &&...args) const {
    kernel(std::forward<Args>(args)...);
  }
  const std::string &objectPath() const { return library.objectPath(); }

private:
  std::string symbol;
  KernelLibrary library;
  Kernel kernel;
};

} // namespace easyquant::cpu

#endif // EASYQUANT_TEST_CODEGEN_CPU_KERNELRUNNER_H
