//===- CheckpointValues.h - The bytes of a checkpoint -----------*- C++ -*-===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef EASYQUANT_LIB_EXPORT_CHECKPOINTVALUES_H
#define EASYQUANT_LIB_EXPORT_CHECKPOINTVALUES_H

#include "CheckpointTensors.h"

#include "easyquant/Weights/WeightEvaluation.h"

namespace easyquant {

/// What takes the bytes of a tensor, piece by piece.
using TakeBytes = llvm::function_ref<Result<void>(std::span<const std::byte>)>;

/// A tensor that stays float, in the type that floats of the checkpoint have. Unsupported, naming
/// it, where a value is beyond its range.
Result<void> readFloats(const Checkpoint &checkpoint, const CheckpointTensor &tensor,
                        const equant::ConstantReader &reader, TakeBytes take);

/// The weight of a site, evaluated: one whole weight is in memory at a time. `take` gets the bytes
/// of each tensor that the codec makes of it.
Result<void>
readWeight(const StoredSite &site, const equant::ConstantReader &reader,
           llvm::ThreadPoolInterface &pool,
           llvm::function_ref<Result<void>(const formats::CodecTensor &, std::span<uint8_t>)> take);

} // namespace easyquant

#endif // EASYQUANT_LIB_EXPORT_CHECKPOINTVALUES_H
