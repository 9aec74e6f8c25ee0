//===- GGUFCheckpoint.h - A quantized model as a GGUF file ------*- C++ -*-===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef EASYQUANT_LIB_EXPORT_GGUFCHECKPOINT_H
#define EASYQUANT_LIB_EXPORT_GGUFCHECKPOINT_H

#include "CheckpointTensors.h"

#include <filesystem>

namespace easyquant {

struct GGUFPaths {
  std::filesystem::path file;
  /// Whose keys `tokenizer.*` the file gets; empty: the source, which is then a GGUF file.
  std::filesystem::path vocabulary;
};

/// Writes the file that llama.cpp reads, one weight in memory at a time: blocks of what is
/// quantized, f16 matrices and f32 vectors of what is not, rows of q and k in its order. Errors
/// name tensor or key.
Result<void> writeGGUF(const Checkpoint &checkpoint, const equant::ConstantReader &reader,
                       const GGUFPaths &paths, unsigned threads,
                       llvm::function_ref<void(int64_t)> progress);

} // namespace easyquant

#endif // EASYQUANT_LIB_EXPORT_GGUFCHECKPOINT_H
