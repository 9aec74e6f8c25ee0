//===- CheckpointSites.h - Sites as checkpoints have them -------*- C++ -*-===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Known from schemes alone, before anything is quantized.
//
//===----------------------------------------------------------------------===//

#ifndef EASYQUANT_DIALECT_EQUANT_ANALYSIS_CHECKPOINTSITES_H
#define EASYQUANT_DIALECT_EQUANT_ANALYSIS_CHECKPOINTSITES_H

#include "easyquant/Dialect/Equant/IR/Equant.h"
#include "easyquant/Formats/Codecs/CheckpointFormat.h"

#include "mlir/IR/BuiltinTypes.h"

namespace easyquant::equant {

/// A linear and how its weight is stored. `site` is without the scale of static activations.
struct CheckpointSite {
  formats::QuantizedSite site;
  std::unique_ptr<formats::WeightCodec> codec;
};

/// A null input stays float. The codes of a weight that is kept may lie there in another scheme
/// (codecForCodes). Unsupported, without the site's name, on what the format does not hold.
Result<CheckpointSite> checkpointSite(const formats::CheckpointFormat &format, llvm::StringRef name,
                                      int64_t rows, int64_t columns, SchemeAttr weight,
                                      SchemeAttr input, bool isKept);
/// Why an embedding is not quantized there.
std::string whyNoEmbedding(const formats::CheckpointFormat &format);

/// Bytes of a linear's weight in a checkpoint; a null scheme, and one that the format does not
/// hold, is float.
int64_t checkpointBytes(const formats::CheckpointFormat &format, llvm::StringRef name,
                        mlir::RankedTensorType weight, SchemeAttr scheme, SchemeAttr input,
                        bool isKept);

} // namespace easyquant::equant

#endif // EASYQUANT_DIALECT_EQUANT_ANALYSIS_CHECKPOINTSITES_H
