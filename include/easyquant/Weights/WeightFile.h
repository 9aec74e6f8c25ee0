//===- WeightFile.h - The artifact's weights --------------------*- C++ -*-===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Writes weights.safetensors, or its shards: packed weights, and what stays float; and the same for
// GPUs, weights.gpu.safetensors.
//
//===----------------------------------------------------------------------===//

#ifndef EASYQUANT_WEIGHTS_WEIGHTFILE_H
#define EASYQUANT_WEIGHTS_WEIGHTFILE_H

#include "easyquant/Weights/ModelWeights.h"
#include "easyquant/Weights/WeightEvaluation.h"

#include "easyquant/Formats/DType.h"
#include "easyquant/Numerics/FragmentPacking.h"
#include "easyquant/Numerics/Packing.h"

#include <filesystem>

namespace easyquant::equant {

/// A tensor of the file. The codes of a weight come before its scales, zero points and sums, and
/// those before the codes of another.
struct FileTensor {
  enum class Kind {
    Packed,    ///< `part` of `weight`
    Float,     ///< `constant`: f32
    RopeTable, ///< `constant`: f32, shape[0] positions
    Halves,    ///< `constant`, a matrix, as fragments of bf16
  };
  Kind kind = Kind::Float;
  std::string name;
  /// With zeros behind a packed tensor that would end inside a line of 64 bytes, but for codes.
  std::vector<int64_t> shape;
  const ConstantWeight *weight = nullptr;                      ///< of Packed, else null
  numerics::WeightTensor part = numerics::WeightTensor::Codes; ///< of Packed
  const FloatConstant *constant = nullptr;                     ///< of the other kinds, else null
  /// In the file for GPUs, where every tensor has a multiple of kGPUAlignment bytes, if need be
  /// with zeros behind it.
  std::vector<int64_t> gpuShape;
  bool onlyCpu = false, onlyGpu = false; ///< not in the other file

  bool isIn(bool gpu) const { return gpu ? !onlyCpu : !onlyGpu; }
};

/// The type of a tensor's elements in the files, where fields of bits are bytes.
formats::DType dtypeOf(const FileTensor &tensor);

/// Every tensor of the file for GPUs begins at a multiple of this many bytes.
constexpr int64_t kGPUAlignment = 64;

/// Which files there are to be.
struct WeightFiles {
  bool cpu = true, gpu = false;
};

/// Where the tensors lie, and what quantizing cost.
struct WrittenWeights {
  /// Of each tensor in the mapped data sections, -1 if the file is without it; empty where that
  /// file was not asked for.
  std::vector<int64_t> offsets, gpuOffsets;
  int64_t gpuBytes = 0; ///< of all data sections for GPUs
  /// Of each weight, the quantization error of its parts.
  llvm::DenseMap<const ConstantWeight *, std::vector<numerics::ErrorSums>> errors;
};

/// An order in which every tensor whose size is a multiple of 64 bytes lies at a multiple of 64
/// bytes, and that is otherwise the given one: all packed tensors are such, but for int3 codes of
/// an odd number of blocks, whose weights come last.
void sortForAlignment(std::vector<FileTensor> &tensors);

/// How a CPU wants a weight. Fails (Unsupported) on schemes and layouts that there are no panels
/// for.
Result<numerics::PanelLayout> panelLayoutOf(const ConstantWeight &weight);
/// The order in which a GPU wants the codes of a weight: that of the linears which read it.
numerics::FragmentOrder fragmentOrderOf(const ConstantWeight &weight);
/// How a GPU wants a weight. Fails (Unsupported) on schemes that there are no fragments for, and on
/// a weight that linears on int8 and on float activations share.
Result<numerics::FragmentLayout> fragmentLayoutOf(const ConstantWeight &weight);

/// One packed weight is in memory at a time, evaluated once for all files. threads 0: as many as
/// there are cores. The bytes depend on the tensors and what `reader` reads alone. On failure there
/// is no file: Corrupt (a value that is not finite), IO, Unsupported (a scheme that is not packed);
/// messages name file, tensor and site. `progress` hears how many tensors are written.
Result<WrittenWeights> writeWeights(const std::filesystem::path &folder, int64_t maxShardBytes,
                                    WeightFiles files, const std::vector<FileTensor> &tensors,
                                    const ConstantReader &reader, unsigned threads,
                                    llvm::function_ref<void(int64_t)> progress);

} // namespace easyquant::equant

#endif // EASYQUANT_WEIGHTS_WEIGHTFILE_H
