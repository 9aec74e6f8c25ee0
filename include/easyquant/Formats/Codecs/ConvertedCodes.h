//===- ConvertedCodes.h - Codes of one format in another ----------*- C++ -*-===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// A checkpoint that is quantized goes into another format with the codes that it has. Scales may
// lie there otherwise: that of a group once for each of several smaller groups, or in another type.
// The first changes nothing. The second may, and what it changes is measured by reading back what
// has been written.
//
//===----------------------------------------------------------------------===//

#ifndef EASYQUANT_FORMATS_CODECS_CONVERTEDCODES_H
#define EASYQUANT_FORMATS_CODECS_CONVERTEDCODES_H

#include "easyquant/Formats/Codecs/CheckpointFormat.h"

namespace easyquant::formats {

/// The codec of a weight whose codes are there, for its own scheme where the format holds that,
/// else for the closest with the same codes. `site.weight` becomes the codec's scheme. Errors:
/// those of CheckpointFormat::codecFor for the scheme that it has.
Result<std::unique_ptr<WeightCodec>> codecForCodes(const CheckpointFormat &format,
                                                   QuantizedSite &site);

/// May the numbers of a weight be others behind the codec? Known from schemes alone.
bool mayChange(const numerics::Scheme &from, const WeightCodec &codec);

/// Takes rows in any scheme with the same codes to a codec.
class ConvertingLayout final : public numerics::WeightLayout {
public:
  explicit ConvertingLayout(const WeightCodec &codec);

  bool has(numerics::WeightTensor tensor) const override { return codec.has(tensor); }
  std::vector<int64_t> shape(numerics::WeightTensor tensor) const override {
    return codec.shape(tensor);
  }
  int64_t blockRows() const override { return codec.blockRows(); }
  void pack(int64_t firstRow, const numerics::QuantizedMatrix &block,
            numerics::PackedWeight &out) const override;

private:
  const WeightCodec &codec;
};

/// By how much weights differ.
struct WeightChange {
  /// max |w' - w| / |w|; where w is 0, in units of its scale.
  double largest = 0;
  double squares = 0; ///< the sum of (w' - w)^2
  double weights = 0; ///< the sum of w^2

  void add(const WeightChange &other);
  /// sqrt(squares / weights)
  double relative() const;
};

/// Beside rows firstRow .. of a weight, what the codec reads of `stored`. Errors: those of
/// WeightReader::unpack.
Result<WeightChange> changeOf(const numerics::QuantizedMatrix &rows, int64_t firstRow,
                              const WeightCodec &codec, const StoredParts &stored);

} // namespace easyquant::formats

#endif // EASYQUANT_FORMATS_CODECS_CONVERTEDCODES_H
