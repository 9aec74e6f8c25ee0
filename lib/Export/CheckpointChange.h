//===- CheckpointChange.h - What a checkpoint changes -----------*- C++ -*-===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef EASYQUANT_LIB_EXPORT_CHECKPOINTCHANGE_H
#define EASYQUANT_LIB_EXPORT_CHECKPOINTCHANGE_H

#include "CheckpointValues.h"

#include "easyquant/Formats/Codecs/ConvertedCodes.h"

namespace easyquant {

/// What becomes of codes that are kept, in a format that does not hold all of their numbers.
struct CheckpointChange {
  formats::WeightChange weights;
  std::string site; ///< where the largest change is

  bool isAny() const { return weights.largest > 0; }
  /// "weights change by up to 0.048 % (site 'a') and by 2.1e-05 altogether (‖W' - W‖ / ‖W‖)"
  std::string describe() const;
};

/// Makes the bytes of all sites whose numbers may change, reads them back and compares. Nothing is
/// written; a whole weight is in memory at a time. Errors: those of readWeight and
/// WeightReader::unpack.
Result<CheckpointChange> measureChange(const Checkpoint &checkpoint,
                                       const equant::ConstantReader &reader,
                                       llvm::ThreadPoolInterface &pool);

} // namespace easyquant

#endif // EASYQUANT_LIB_EXPORT_CHECKPOINTCHANGE_H
