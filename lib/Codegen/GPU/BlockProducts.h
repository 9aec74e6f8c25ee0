//===- BlockProducts.h - Operands of products of FP4 ------------*- C++ -*-===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// What the kernels of BlockScaled.h share: registers of weights from packed words, and scales in
// the lanes where mma.block_scale looks for them. Lane l brings the scales of row 8 (l mod 4) + l /
// 4 among 32 rows. Selectors of the instruction say whose it takes: four tiles of eight rows of
// weights share a word, and two tiles of sixteen rows of activations.
//
//===----------------------------------------------------------------------===//

#ifndef EASYQUANT_LIB_CODEGEN_GPU_BLOCKPRODUCTS_H
#define EASYQUANT_LIB_CODEGEN_GPU_BLOCKPRODUCTS_H

#include "UnpackedWeights.h"
#include "WeightParams.h"

#include "easyquant/Codegen/GPU/BlockScaled.h"

namespace easyquant::gpu {

class BlockProducts {
public:
  using Values = KernelBuilder::Values;
  static constexpr int64_t kScaleRows = 32; ///< whose scales the lanes of a warp bring

  BlockProducts(KernelBuilder &b, const BlockScaledSpec &spec, const KernelArguments &arguments,
                mlir::Value lane);

  /// The words of all tiles of a block of packed weights, as PackedBlocks::load has them.
  Values load(mlir::Value pointer, bool constant, mlir::Value valid) {
    return packed.load(pointer, lane, constant, valid);
  }
  /// The B operand of eight rows and 64 columns: their words of two blocks side by side.
  Values weights(mlir::Value first, mlir::Value second);

  /// The row of 32 whose scales this lane brings.
  mlir::Value scaleRow() const { return ownRow; }
  /// The word of step `step` of row n of the weights; n may be beyond N. Steps may be beyond K,
  /// where codes are 0: there is some scale.
  mlir::Value weightScales(mlir::Value step, mlir::Value n);
  /// Likewise of row m of the activations, which is there.
  mlir::Value activationScales(mlir::Value step, mlir::Value m);

  /// c + a w of tile i of activations and tile j of weights, with words of scales of the 32 rows
  /// that each is in.
  Values multiply(mlir::ValueRange a, mlir::ValueRange w, mlir::ValueRange c, mlir::Value aScales,
                  int64_t i, mlir::Value wScales, int64_t j) {
    return b.multiplyBlocks(a, w, c, aScales, i % 2, wScales, j % 4);
  }

  /// The outer scales of columns n .. n + count - 1 of y, and of row m, which is there.
  Values outerOfColumns(mlir::Value n, int64_t count);
  mlir::Value outerOfRow(mlir::Value m);

private:
  KernelBuilder &b;
  const BlockScaledSpec &spec;
  const KernelArguments &arguments;
  const mlir::Value lane, ownRow;
  UnpackedBytes packed;
  WeightParams params;
  mlir::Value given;               ///< selector of the bytes that the other lane needs
  std::array<mlir::Value, 2> kept; ///< of those of each block with the ones that come
};

} // namespace easyquant::gpu

#endif // EASYQUANT_LIB_CODEGEN_GPU_BLOCKPRODUCTS_H
