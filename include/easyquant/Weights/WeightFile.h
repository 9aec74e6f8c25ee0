//===- WeightFile.h - The artifact's weights --------------------*- C++ -*-===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Writes what a target's kernels read of a model: packed weights, and what stays float. A CPU's
// weights.safetensors, or its shards, and a GPU's weights.gpu.safetensors.
//
//===----------------------------------------------------------------------===//

#ifndef EASYQUANT_WEIGHTS_WEIGHTFILE_H
#define EASYQUANT_WEIGHTS_WEIGHTFILE_H

#include "easyquant/Formats/DType.h"
#include "easyquant/Weights/ModelWeights.h"
#include "easyquant/Weights/TargetModules.h"
#include "easyquant/Weights/WeightEvaluation.h"

#include <deque>
#include <filesystem>

namespace easyquant::equant {

/// A tensor of the file. The codes of a weight come before its scales, zero points and sums, and
/// those before the codes of another.
struct FileTensor {
  enum class Kind {
    Packed,    ///< `part` of `weight`
    Float,     ///< `constant`: f32, or its least type
    RopeTable, ///< `constant`: f32, shape[0] positions
    Order,     ///< `constant`: i32, numbers of columns
    BF16,      ///< `constant`, a matrix, as fragments of bf16
  };
  Kind kind = Kind::Float;
  std::string name;
  formats::DType dtype = formats::DType::F32; ///< fields of bits are bytes
  /// With zeros behind what would end inside a line of 64 bytes: packed tensors but for codes, and
  /// all that GPUs read.
  std::vector<int64_t> shape;
  const ConstantWeight *weight = nullptr;                      ///< of Packed, else null
  numerics::WeightTensor part = numerics::WeightTensor::Codes; ///< of Packed
  const FloatConstant *constant = nullptr;                     ///< of the other kinds, else null
};

/// What one target reads of a model, and where it lies.
struct TargetWeights {
  TargetWeights(const targets::WeightForm &form, mlir::ModuleOp module, std::string stem)
      : form(form), module(module), stem(std::move(stem)) {}

  const targets::WeightForm &form;
  mlir::ModuleOp module;
  std::string stem; ///< of its file: "weights", "weights.gpu", of rank 1 "weights.1"
  ModelWeights weights;
  std::vector<FileTensor> tensors; ///< of its file, in their order
  // Where each tensor of the written file lies in the mapped data sections, and their bytes.
  std::vector<int64_t> offsets;
  int64_t bytes = 0;
  /// The quantization errors of the parts of each weight.
  llvm::DenseMap<const ConstantWeight *, std::vector<numerics::ErrorSums>> errors;
};

/// Writes the file of each target. One packed weight is in memory at a time, evaluated once for all
/// files whose next one it is. threads 0: as many as there are cores. The bytes depend on the
/// tensors and what `reader` reads alone. On failure there is no file: Corrupt (a value that is not
/// finite), IO, Unsupported (a scheme that is not packed); messages name file, tensor and site.
/// `progress` hears how many tensors are written.
Result<void> writeWeights(const std::filesystem::path &folder, int64_t maxShardBytes,
                          std::deque<TargetWeights> &targets, const ConstantReader &reader,
                          unsigned threads, llvm::function_ref<void(int64_t)> progress);

} // namespace easyquant::equant

#endif // EASYQUANT_WEIGHTS_WEIGHTFILE_H
