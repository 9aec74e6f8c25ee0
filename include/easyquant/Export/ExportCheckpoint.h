//===- ExportCheckpoint.h - What checkpoints hold ---------------*- C++ -*-===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef EASYQUANT_EXPORT_EXPORTCHECKPOINT_H
#define EASYQUANT_EXPORT_EXPORTCHECKPOINT_H

#include "easyquant/Formats/Codecs/CheckpointFormat.h"
#include "easyquant/Formats/ModelConfig.h"

namespace easyquant {

/// Why no quantized checkpoint of this format can be made of the model; empty if one can.
std::string whyNotExportable(const formats::ModelConfig &config,
                             const formats::CheckpointFormat &format);

} // namespace easyquant

#endif // EASYQUANT_EXPORT_EXPORTCHECKPOINT_H
