//===- StoredFormats.h - The readers of configurations ------------*- C++ -*-===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef EASYQUANT_LIB_FORMATS_CODECS_STOREDFORMATS_H
#define EASYQUANT_LIB_FORMATS_CODECS_STOREDFORMATS_H

#include "easyquant/Formats/Codecs/StoredWeight.h"
#include "easyquant/Support/FieldReader.h"

#include <regex>

namespace easyquant::formats {

/// Each reads a configuration of its `quant_method`.
using ConfigurationReader = Result<std::unique_ptr<StoredWeights>>(const Json &config,
                                                                   std::string_view file);
ConfigurationReader readGptq, readAwq, readCompressedTensors, readFP8, readModelOpt, readMXFP4;

/// A regular expression on names, matched from their beginning on as Python's re.match does.
class NamePattern {
public:
  /// Corrupt: `text` is none; `place` says where it stands.
  static Result<NamePattern> compile(const std::string &text, const std::string &place);
  bool matches(const std::string &name) const;

private:
  std::regex expression;
};

/// The format of scales in a tensor of this type. Unsupported, naming the tensor.
Result<numerics::ScaleFormat> scalesOfType(const std::string &site, const char *tensor,
                                           std::string_view typeName);
/// The one number that tensor `name` beside a linear holds: positive, or a zero point of I8.
/// Errors: NotFound, Corrupt and Unsupported, naming the tensor.
Result<double> readNumber(const std::string &site, const char *name, const TensorFinder &tensor);
/// A linear of FP8 with one scale of the tensor (`weight`, `weight_scale`), on activations of FP8,
/// static ones by `input_scale`, else dynamic per token.
Result<std::optional<StoredWeight>> tensorFP8(const std::string &name, int64_t rows,
                                              int64_t columns, numerics::ScaleFormat scales,
                                              bool isStatic, const TensorFinder &tensor);
/// The group of each column, as tensor `name` has it; empty where columns are in the order of
/// groups. Errors: Corrupt, naming the tensor.
Result<std::vector<int32_t>> readGroupIndex(const std::string &name, const numerics::Scheme &scheme,
                                            int64_t columns, const FileTensorView &index);
/// A weight scheme of integers, with a scale a row where groups have all columns.
/// Symmetric ones have all codes.
numerics::Scheme storedIntegers(int bits, bool symmetric, int64_t groupSize, int64_t columns,
                                numerics::ScaleFormat scales);
/// The codec of a linear whose `scales` and `qzeros` lie beside its codes, made for a scheme of
/// integers. With all zero points in the middle the scheme is symmetric, whatever the configuration
/// says: some writers forget it, and others search zero points nevertheless.
Result<std::unique_ptr<WeightCodec>> codecBesideZeroPoints(
    const std::string &name, int bits, int64_t groupSize, int64_t columns,
    const TensorFinder &tensor,
    const std::function<Result<std::unique_ptr<WeightCodec>>(const numerics::Scheme &)> &make);

} // namespace easyquant::formats

#endif // EASYQUANT_LIB_FORMATS_CODECS_STOREDFORMATS_H
