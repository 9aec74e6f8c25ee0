//===- CPULauncher.h - Launches of kernels of CPUs ---------------*- C++ -*-===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef EASYQUANT_LIB_KERNELLIBRARY_CPULAUNCHER_H
#define EASYQUANT_LIB_KERNELLIBRARY_CPULAUNCHER_H

#include "RowLaunches.h"

namespace easyquant {

/// Launches kernels of one module and target.
struct CPULauncher {
  mlir::ModuleOp module;
  cpu::Target target;
  bool halfCache;

  template <typename Spec>
  using Emit = mlir::func::FuncOp (*)(mlir::ModuleOp, const Spec &, const cpu::Target &);
  /// Makes the kernel of a spec, unless it is there, and launches it.
  template <typename Spec>
  mlir::LogicalResult launch(LaunchBuilder &b, mlir::Operation *op, Emit<Spec> emit,
                             const std::type_identity_t<Spec> &spec, Arguments &arguments,
                             Phase phase) const {
    return launch(b, op, emit(module, spec, target), describe(spec, b.context()), arguments, phase);
  }
  mlir::LogicalResult launch(LaunchBuilder &b, mlir::Operation *op, mlir::func::FuncOp function,
                             const cpu::Description &kernel, Arguments &arguments,
                             Phase phase) const;

  mlir::LogicalResult copy(LaunchBuilder &b, mlir::Value from, mlir::Value to) const;
  mlir::LogicalResult advance(LaunchBuilder &b, equant::AdvanceOp op) const;
  mlir::LogicalResult rowOp(LaunchBuilder &b, const KernelOps &kernel, RowOp op, double constant,
                            Arguments &arguments) const;
  mlir::LogicalResult linear(LaunchBuilder &b, const KernelOps &kernel, cpu::LinearSpec spec,
                             Arguments &arguments) const;
  mlir::LogicalResult linear(LaunchBuilder &b, const KernelOps &kernel,
                             equant::PackedLinearOp op) const;
  mlir::LogicalResult embedding(LaunchBuilder &b, mlir::Operation *op,
                                const cpu::EmbeddingSpec &spec, Arguments &arguments) const;
  template <typename RopeLike>
  mlir::LogicalResult rope(LaunchBuilder &b, RopeLike op, bool inverse) const;
  mlir::LogicalResult rowGradient(LaunchBuilder &b, mlir::Operation *op, cpu::RowGradientSpec spec,
                                  llvm::ArrayRef<llvm::StringRef> names) const;
  template <typename AttentionLike>
  mlir::LogicalResult attention(LaunchBuilder &b, AttentionLike op, cpu::AttentionSpec spec,
                                Arguments &arguments) const;
  mlir::LogicalResult attention(LaunchBuilder &b, lm::AttentionOp op,
                                const KernelOps &kernel) const;
  mlir::LogicalResult attention(LaunchBuilder &b, lm::CachedAttentionOp op) const;
  mlir::LogicalResult attention(LaunchBuilder &b, equant::AttentionOp op) const;

  void addRowOps(KernelLibrary &library) const;
  void addLinears(KernelLibrary &library) const;
  void addExperts(KernelLibrary &library) const;
  void addHeads(KernelLibrary &library) const;
  void addGradients(KernelLibrary &library) const;
};

} // namespace easyquant

#endif // EASYQUANT_LIB_KERNELLIBRARY_CPULAUNCHER_H
