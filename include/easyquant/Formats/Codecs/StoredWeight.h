//===- StoredWeight.h - Weights that a checkpoint has in codes ----*- C++ -*-===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The reading side of CheckpointFormat: `quantization_config` of a config.json, and the tensors
// beside a linear, say in which codes its weight is. Nothing is converted: rows are unpacked where
// they are asked for.
//
//===----------------------------------------------------------------------===//

#ifndef EASYQUANT_FORMATS_CODECS_STOREDWEIGHT_H
#define EASYQUANT_FORMATS_CODECS_STOREDWEIGHT_H

#include "easyquant/Formats/Codecs/CheckpointFormat.h"
#include "easyquant/Formats/RowOrder.h"

#include <functional>

namespace easyquant::formats {

/// A tensor of a mapped file.
struct FileTensorView {
  std::string_view typeName; ///< "I32"; what is no DType fits nothing
  std::vector<int64_t> shape;
  std::span<const uint8_t> bytes;
};

/// The tensor of a name behind that of a linear ("qweight"), if it is there.
using TensorFinder = std::function<std::optional<FileTensorView>(std::string_view name)>;

/// The weight of one linear, in codes that lie in a file.
class StoredWeight {
public:
  /// Finds the tensors of the codec. One scale in place of those of all rows is that of each.
  /// Errors: NotFound, Corrupt and Unsupported, naming a tensor.
  static Result<StoredWeight> open(QuantizedSite site, std::unique_ptr<WeightReader> codec,
                                   const TensorFinder &find);

  const QuantizedSite &site() const { return quantized; }
  /// Why no scheme can have these codes; empty where one can.
  std::string whyNotKept;
  /// Where the file has the rows.
  RowOrder rowOrder;
  /// The file has `parts` weights, `run` rows of each in turns, of which this is number `part`.
  void takePart(int64_t parts, int64_t part, int64_t run);
  /// The group of each column, where columns are not in the order of groups; else nothing. With
  /// groups of other sizes than the scheme's, codes cannot be kept.
  void setGroups(std::vector<int32_t> groups);
  /// Column order()[i] of the weight is column i of codes(), where groups lie one behind the other.
  /// Empty where they do in the weight.
  std::span<const int32_t> order() const { return columnOrder; }

  /// Rows firstRow .. firstRow + count - 1, their columns in order(). Scales are those of the file:
  /// finite, and negative, 0 or subnormal in some. Errors: those of WeightReader::unpack;
  /// Unsupported (whyNotKept).
  Result<numerics::QuantizedMatrix> codes(int64_t firstRow, int64_t count) const;
  /// What the rows stand for, in f32 and the plain basis: scale * (code - zero point), rounded
  /// once, or with the minimum.
  Result<void> dequantize(int64_t firstRow, int64_t count, std::span<float> out) const;

private:
  StoredWeight(QuantizedSite site, std::unique_ptr<WeightReader> codec)
      : quantized(std::move(site)), codec(std::move(codec)) {}

  Result<numerics::QuantizedMatrix> unpack(int64_t firstRow, int64_t count) const;

  QuantizedSite quantized;
  std::unique_ptr<WeightReader> codec;
  StoredParts parts;
  int64_t rowParts = 1, rowPart = 0, rowRun = 1;
  std::vector<uint8_t> scales; ///< of all rows, where the file has one for them
  std::vector<int32_t> groupOfColumn, columnOrder;
};

/// What a checkpoint says of its linears.
class StoredWeights {
public:
  virtual ~StoredWeights();

  /// The weight of linear `name`; nothing where the file has it in floats. Errors: those of
  /// StoredWeight::open; Corrupt, Unsupported: what the configuration says of it.
  virtual Result<std::optional<StoredWeight>> find(const std::string &name, int64_t rows,
                                                   int64_t columns,
                                                   const TensorFinder &tensor) const = 0;
  /// What tensors of quantized linears may be called, behind the linear's name.
  virtual std::span<const std::string_view> tensorNames() const = 0;
  /// What the user should know of how the configuration is taken: sentences without a period.
  std::vector<std::string> notes;
};

/// Reads `quantization_config` of the file `file`. Errors: Corrupt, Unsupported; they name file and
/// field.
Result<std::unique_ptr<StoredWeights>> readQuantizationConfig(const Json &config,
                                                              std::string_view file);

} // namespace easyquant::formats

#endif // EASYQUANT_FORMATS_CODECS_STOREDWEIGHT_H
