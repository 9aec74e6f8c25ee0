//===- KernelLibrary.h - Which kernels an op becomes ------------*- C++ -*-===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// What a target offers: for every kind of op, a function that launches the kernels of an op of that
// kind, alone or as the first of a fusion.
//
//===----------------------------------------------------------------------===//

#ifndef EASYQUANT_KERNELLIBRARY_KERNELLIBRARY_H
#define EASYQUANT_KERNELLIBRARY_KERNELLIBRARY_H

#include "easyquant/KernelLibrary/LaunchBuilder.h"

#include "easyquant/Codegen/CPU/Kernels.h"
#include "easyquant/Codegen/GPU/Chip.h"

#include "mlir/Dialect/GPU/IR/GPUDialect.h"

namespace easyquant {

class KernelLibrary {
public:
  using Lowering = std::function<mlir::LogicalResult(LaunchBuilder &, const KernelOps &)>;

  /// `launch(builder, op, kernel)` is for ops of this kind.
  template <typename OpT, typename Launch> void add(Launch launch) {
    lowerings[OpT::getOperationName()] = lowering<OpT>(launch);
  }
  /// The same for what runs before the next call of a session that went back.
  template <typename OpT, typename Launch> void addRestore(Launch launch) {
    restores[OpT::getOperationName()] = lowering<OpT>(launch);
  }
  /// Null if the target has no kernel of the kind.
  const Lowering *find(mlir::Operation *op) const { return find(lowerings, op); }
  const Lowering *findRestore(mlir::Operation *op) const { return find(restores, op); }

  /// Copies rows, for the rare value that an op would overwrite while others still read it.
  LaunchBuilder::Copy copy;
  std::string missing; ///< what is said of an op that there is no kernel for

private:
  using Table = llvm::StringMap<Lowering>;
  template <typename OpT, typename Launch> static Lowering lowering(Launch launch) {
    return [launch](LaunchBuilder &builder, const KernelOps &kernel) -> mlir::LogicalResult {
      return launch(builder, llvm::cast<OpT>(kernel.first()), kernel);
    };
  }
  static const Lowering *find(const Table &table, mlir::Operation *op) {
    auto it = table.find(op->getName().getStringRef());
    return it == table.end() ? nullptr : &it->second;
  }

  Table lowerings, restores;
};

/// The kernels of a CPU, made in `module`.
KernelLibrary cpuKernels(mlir::ModuleOp module, const cpu::Target &target, bool halfCache);
/// The kernels of a GPU, made in `kernels`.
KernelLibrary gpuKernels(mlir::gpu::GPUModuleOp kernels, const gpu::Chip &chip);

} // namespace easyquant

#endif // EASYQUANT_KERNELLIBRARY_KERNELLIBRARY_H
