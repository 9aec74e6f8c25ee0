//===- CompressedTensors.h - What its codecs share ----------------*- C++ -*-===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef EASYQUANT_LIB_FORMATS_CODECS_COMPRESSEDTENSORS_H
#define EASYQUANT_LIB_FORMATS_CODECS_COMPRESSEDTENSORS_H

#include "CheckpointFormats.h"

namespace easyquant::formats {

/// What all of its formats ask of a weight.
Result<void> checkCompressedTensors(const numerics::Scheme &scheme, int64_t rows, int64_t columns);

/// pack-quantized as it was: 32 / bits fields in a word, none of which goes over into the next.
Result<std::unique_ptr<WeightReader>> paddedPackReader(const numerics::Scheme &scheme, int64_t rows,
                                                       int64_t columns);
/// The shape of its codes.
std::vector<int64_t> paddedShape(const numerics::Scheme &scheme, int64_t rows, int64_t columns);

/// Rows of FP4, two codes a byte, the first one in the lower nibble, and their scales, in units of
/// `outer` where the scheme has one. `rows` has room for them.
void unpackFP4(const numerics::Scheme &scheme, int64_t firstRow, const StoredParts &stored,
               float outer, numerics::QuantizedMatrix &rows);

/// One of its formats by name, for weights.
struct NamedCodec {
  const char *name;
  WeightCodecMaker *make;
};
/// The one that a site of this scheme has.
NamedCodec compressedTensorsCodec(const QuantizedSite &site);

} // namespace easyquant::formats

#endif // EASYQUANT_LIB_FORMATS_CODECS_COMPRESSEDTENSORS_H
