//===- CheckpointFormats.h - The formats that there are -----------*- C++ -*-===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef EASYQUANT_LIB_FORMATS_CODECS_CHECKPOINTFORMATS_H
#define EASYQUANT_LIB_FORMATS_CODECS_CHECKPOINTFORMATS_H

#include "easyquant/Formats/Codecs/CheckpointFormat.h"

namespace easyquant::formats {

/// The type of a tensor of scales; powers of two are bytes.
inline DType scaleType(numerics::ScaleFormat format) {
  switch (format) {
  case numerics::ScaleFormat::F32:
    return DType::F32;
  case numerics::ScaleFormat::F16:
    return DType::F16;
  case numerics::ScaleFormat::BF16:
    return DType::BF16;
  case numerics::ScaleFormat::F8E4M3FN:
    return DType::F8E4M3;
  case numerics::ScaleFormat::F8E8M0FNU:
  case numerics::ScaleFormat::UI6: // refused by checkCompressedTensors
    return DType::U8;
  }
  return DType::U8;
}

const CheckpointFormat *compressedTensorsFormat();
const CheckpointFormat *gptqFormat(int version);
const CheckpointFormat *awqFormat();
const CheckpointFormat *ggufFormat();
const CheckpointFormat *onnxFormat();

/// What formats that quantize weights alone, in the plain basis, ask of a site.
Result<void> checkWeightOnly(std::string_view format, const QuantizedSite &site);
/// Unsupported where scales are not f16, as its clients want them.
Result<void> checkHalfScales(std::string_view format, const QuantizedSite &site);
/// The group size of a configuration; -1: a scale a row.
inline int64_t configuredGroup(const numerics::Scheme &scheme) {
  return scheme.groupSize ? scheme.groupSize : -1;
}

} // namespace easyquant::formats

#endif // EASYQUANT_LIB_FORMATS_CODECS_CHECKPOINTFORMATS_H
