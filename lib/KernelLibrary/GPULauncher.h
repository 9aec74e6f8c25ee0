//===- GPULauncher.h - Launches of the kernels of a GPU ---------*- C++ -*-===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef EASYQUANT_LIB_KERNELLIBRARY_GPULAUNCHER_H
#define EASYQUANT_LIB_KERNELLIBRARY_GPULAUNCHER_H

#include "RowLaunches.h"

#include "easyquant/Codegen/GPU/Attention.h"
#include "easyquant/Codegen/GPU/BlockScaled.h"
#include "easyquant/Codegen/GPU/Embedding.h"
#include "easyquant/Codegen/GPU/Experts.h"
#include "easyquant/Codegen/GPU/F32Linear.h"
#include "easyquant/Codegen/GPU/WeightOnly.h"
#include "easyquant/Dialect/LM/Analysis/ExpertWeights.h"

namespace easyquant {

/// Float activations of linears on a GPU: as wide a range as f32.
inline constexpr gpu::Float kBF16 = gpu::Float::BF16;

/// Launches kernels of one gpu.module and chip.
struct GPULauncher {
  mlir::gpu::GPUModuleOp kernels;
  const gpu::Chip &chip;

  /// For launches of which each is for a range of rows.
  mlir::LogicalResult launch(LaunchBuilder &b, mlir::Operation *op, const gpu::Description &kernel,
                             Arguments &arguments, Phase phase,
                             std::optional<RowRange> rows = std::nullopt) const;
  /// body(kernel, range, most) for the kernels of a spec, which are for ever more rows: from
  /// `range` the rows for which each is taken, `most` of them in any call.
  template <typename Kernel, typename Body>
  static mlir::LogicalResult forRowRanges(LaunchBuilder &b, const std::vector<Kernel> &choices,
                                          Body body) {
    RowRange range = {1, 0};
    for (const Kernel &kernel : choices) {
      bool isLast = &kernel == &choices.back();
      range.second = isLast ? 0 : kernel.maxRows;
      if (mlir::failed(
              body(kernel, range, isLast ? b.maxRows() : std::min(b.maxRows(), kernel.maxRows))))
        return mlir::failure();
      range.first = range.second + 1;
    }
    return mlir::success();
  }

  /// Where a linear weighs experts, its kernels that sum floats in one order, which are the tiles:
  /// other rows of a step send no row to other experts.
  template <typename Kernel>
  static std::vector<Kernel> inOneOrder(std::vector<Kernel> choices, mlir::Operation *op) {
    if (lm::weighExperts(op->getResult(0)))
      llvm::erase_if(choices, [](const Kernel &kernel) { return kernel.form != Kernel::Matrix; });
    return choices;
  }

  mlir::LogicalResult copy(LaunchBuilder &b, mlir::Value from, mlir::Value to) const;
  mlir::LogicalResult rowOp(LaunchBuilder &b, const KernelOps &kernel, RowOp op, double constant,
                            Arguments &arguments) const;
  /// What is made of rows that are to be quantized.
  static gpu::RowSpec codesOf(equant::QuantizeRowsOp op, int64_t columns);
  mlir::LogicalResult advance(LaunchBuilder &b, equant::AdvanceOp op) const;
  mlir::LogicalResult linear(LaunchBuilder &b, equant::PackedLinearOp op,
                             const KernelOps &kernel) const;
  /// A float linear that nobody gave input of bf16.
  mlir::LogicalResult f32Linear(LaunchBuilder &b, lm::LinearOp op, const KernelOps &kernel) const;
  /// Codes with scales of blocks, and a linear on them (GPUBlockKernels.cpp).
  mlir::LogicalResult blockCodes(LaunchBuilder &b, equant::QuantizeRowsOp op,
                                 const KernelOps &kernel) const;
  mlir::LogicalResult blockScaledLinear(LaunchBuilder &b, equant::PackedLinearOp op,
                                        const KernelOps &kernel) const;
  mlir::LogicalResult floatLinear(LaunchBuilder &b, mlir::Operation *op, const KernelOps &kernel,
                                  gpu::WeightOnlySpec spec, mlir::Value experts,
                                  Arguments &arguments) const;
  mlir::LogicalResult embedding(LaunchBuilder &b, mlir::Operation *op,
                                const gpu::EmbeddingSpec &spec, Arguments &arguments) const;
  mlir::LogicalResult heads(LaunchBuilder &b, mlir::Operation *op, gpu::HeadsSpec spec,
                            Arguments &arguments, const KernelOps &kernel,
                            const LaunchBuilder::Copy &copy) const;
  mlir::LogicalResult append(LaunchBuilder &b, mlir::Operation *op, Arguments &arguments,
                             const KernelOps &kernel) const;
  mlir::LogicalResult takeToBasis(LaunchBuilder &b, const KernelOps &kernel,
                                  int64_t hadamard) const;
  mlir::FailureOr<mlir::Value> inBasis(LaunchBuilder &b, mlir::Operation *op, mlir::Value heads,
                                       int64_t hadamard) const;
  mlir::LogicalResult attention(LaunchBuilder &b, mlir::Operation *op, gpu::AttentionSpec spec,
                                Arguments &arguments, const KernelOps &kernel) const;

  void addRowOps(KernelLibrary &library) const;
  /// A linear of experts (GPUExpertKernels.cpp), which its operand tells.
  template <typename Spec>
  mlir::LogicalResult expertLinear(LaunchBuilder &b, mlir::Operation *op, const KernelOps &kernel,
                                   Spec spec, mlir::Value experts, Arguments &arguments) const;

  void addExperts(KernelLibrary &library) const;
  void addLinears(KernelLibrary &library) const;
  void addHeads(KernelLibrary &library) const;
  void addRecurrent(KernelLibrary &library) const;
};

} // namespace easyquant

#endif // EASYQUANT_LIB_KERNELLIBRARY_GPULAUNCHER_H
