//===- WeightCodec.h - Weights as others store them ---------------*- C++ -*-===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// A codec knows how a format of quantized checkpoints stores a weight: which tensors there are, and
// how codes, scales and zero points lie in their bytes. It is a layout of weights as those of
// kernels are, so that the same evaluation fills it, and reads the bytes back, rows by rows.
//
//===----------------------------------------------------------------------===//

#ifndef EASYQUANT_FORMATS_CODECS_WEIGHTCODEC_H
#define EASYQUANT_FORMATS_CODECS_WEIGHTCODEC_H

#include "easyquant/Formats/DType.h"
#include "easyquant/Numerics/WeightLayout.h"

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace easyquant::formats {

/// A tensor of a checkpoint that says something of one linear.
struct CodecTensor {
  std::string name; ///< behind that of the linear: "qweight"
  DType dtype = DType::U8;
  std::vector<int64_t> shape;
  /// What of the weight it holds; nothing: it is `constant`, which scheme and sizes decide.
  std::optional<numerics::WeightTensor> part = {};
  std::vector<uint8_t> constant = {};
};

/// The parts of a stored weight, where they are.
struct StoredParts {
  std::array<const uint8_t *, numerics::kWeightTensors> bytes = {};

  const uint8_t *&operator[](numerics::WeightTensor part) {
    return bytes[static_cast<size_t>(part)];
  }
  const uint8_t *operator[](numerics::WeightTensor part) const {
    return bytes[static_cast<size_t>(part)];
  }
};

/// How codes, scales and zero points lie in the tensors of a file.
class WeightReader {
public:
  WeightReader(const numerics::Scheme &scheme, int64_t rows, int64_t columns)
      : scheme(scheme), rows(rows), columns(columns) {}
  virtual ~WeightReader();

  const numerics::Scheme scheme;
  const int64_t rows, columns;
  int64_t groups() const { return numerics::groupCount(columns, scheme.groupSize); }

  /// All tensors of the weight, in the order in which they are written.
  virtual std::vector<CodecTensor> tensors() const = 0;
  /// Where the parts are in `stored`, the bytes of tensors(). Errors: InvalidArgument (their
  /// number), Corrupt (a size), Unsupported (a constant that is another than this scheme's).
  Result<StoredParts> partsOf(std::span<const std::span<const uint8_t>> stored) const;
  /// Rows firstRow .. firstRow + count - 1. Errors: InvalidArgument (rows that there are not),
  /// Corrupt (a scale that is not finite, a code that is NaN).
  Result<numerics::QuantizedMatrix> unpack(int64_t firstRow, int64_t count,
                                           const StoredParts &stored) const;

protected:
  /// Fills codes, zero points and inner scales of rows from firstRow on, for which `rows` has room.
  virtual void unpackRows(int64_t firstRow, const StoredParts &stored,
                          numerics::QuantizedMatrix &rows) const = 0;

  /// The code or zero point as formats count it: from 0 on.
  uint32_t fieldOf(int32_t code) const {
    return static_cast<uint32_t>(code + (1 << (scheme.bits - 1)));
  }
  int32_t codeOf(uint32_t field) const {
    return static_cast<int32_t>(field) - (1 << (scheme.bits - 1));
  }
};

/// Both directions.
class WeightCodec : public WeightReader, public numerics::WeightLayout {
public:
  WeightCodec(const numerics::Scheme &scheme, int64_t rows, int64_t columns)
      : WeightReader(scheme, rows, columns), WeightLayout(scheme, rows, columns) {}
  using WeightReader::columns, WeightReader::groups, WeightReader::rows, WeightReader::scheme;

  /// The bytes that pack() has made of a part, or those of a constant. Errors: Unsupported, where
  /// there are numbers for which the format has no bits.
  virtual Result<std::vector<uint8_t>> take(const CodecTensor &tensor,
                                            numerics::PackedWeight &packed) const;

  /// In bytes, but for scales, as evaluation asks of layouts.
  std::vector<int64_t> shape(numerics::WeightTensor tensor) const override;
  int64_t blockRows() const override { return 32; } ///< so many zero points begin at a word
};

/// What every format asks of a weight: static scales of rows or of groups that divide the columns,
/// and, unless the format has them, no minima. Unsupported, naming `format`.
Result<void> checkStoredWeight(std::string_view format, const numerics::Scheme &scheme,
                               int64_t rows, int64_t columns, bool hasMinima = false);

//===- The codecs ---------------------------------------------------------===//
//
// Each fails with Unsupported on a weight that its format does not hold, saying what it holds.

using WeightCodecMaker = Result<std::unique_ptr<WeightCodec>>(const numerics::Scheme &scheme,
                                                              int64_t rows, int64_t columns);
WeightCodecMaker gptqCodec;   ///< zero points less 1
WeightCodecMaker gptqV2Codec; ///< zero points as they are
WeightCodecMaker awqCodec;    ///< "gemm"
WeightCodecMaker onnxCodec;   ///< operands of DequantizeLinear
// Those of compressed-tensors.
WeightCodecMaker packQuantizedCodec, intQuantizedCodec, floatQuantizedCodec, mxfp4PackCodec,
    nvfp4PackCodec;

} // namespace easyquant::formats

#endif // EASYQUANT_FORMATS_CODECS_WEIGHTCODEC_H
