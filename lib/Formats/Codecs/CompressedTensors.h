//===- CompressedTensors.h - What its codecs share ----------------*- C++ -*-===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef EASYQUANT_LIB_FORMATS_CODECS_COMPRESSEDTENSORS_H
#define EASYQUANT_LIB_FORMATS_CODECS_COMPRESSEDTENSORS_H

#include "easyquant/Formats/Codecs/WeightCodec.h"

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

/// What all of its formats ask of a weight.
Result<void> checkCompressedTensors(const numerics::Scheme &scheme, int64_t rows, int64_t columns);

} // namespace easyquant::formats

#endif // EASYQUANT_LIB_FORMATS_CODECS_COMPRESSEDTENSORS_H
