//===- StatisticsFile.h - What calibration has gathered ---------*- C++ -*-===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// A safetensors file of tensors "<site>/<statistic>" (easyquant/Numerics/SiteStatistics.h lists
// them), F32 or I64, with a stamp as its metadata: which model they are of, and which text.
//
//===----------------------------------------------------------------------===//

#ifndef EASYQUANT_FORMATS_STATISTICSFILE_H
#define EASYQUANT_FORMATS_STATISTICSFILE_H

#include "easyquant/Formats/Safetensors.h"
#include "easyquant/Support/Result.h"

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace easyquant::formats {

/// What statistics follow from, besides the program.
struct CalibrationStamp {
  std::string model;     ///< checksum of the model's files
  std::string text;      ///< checksum of the calibration text
  std::string tokenizer; ///< checksum of the tokenizer
  int64_t samples = 0;   ///< sequences
  int64_t length = 0;    ///< of each, in tokens
  int64_t seed = 0;      ///< with which they were drawn from the text
  bool bos = false;      ///< each began with a token that is not counted

  friend bool operator==(const CalibrationStamp &, const CalibrationStamp &) = default;

  std::map<std::string, std::string> toMetadata() const;
  /// `fileName` is for messages. Corrupt when a field is missing or is no number.
  static Result<CalibrationStamp> fromMetadata(const std::map<std::string, std::string> &metadata,
                                               std::string_view fileName);
};

class StatisticsFile {
public:
  /// Errors: NotFound, Corrupt (no safetensors file, no statistics, no stamp), IO.
  static Result<StatisticsFile> open(const std::filesystem::path &path);

  const CalibrationStamp &stamp() const { return mark; }
  const std::filesystem::path &path() const { return file.path(); }

  /// InvalidArgument when these are statistics of another model than that of this checksum.
  Result<void> checkModel(std::string_view model) const;
  /// InvalidArgument when they are not of these tokens; `text` says what these are.
  Result<void> checkText(const CalibrationStamp &text, std::string_view tokensHash) const;

  bool has(std::string_view name) const { return file.find(name) != nullptr; }
  /// The values of a tensor of this shape. Errors, naming file and tensor: NotFound (with what to
  /// gather), Corrupt (another type or shape, a value that is not finite).
  Result<std::vector<float>> floats(std::string_view name, std::span<const int64_t> shape) const;
  /// The same of one part of its first dimension: those of an expert.
  Result<std::vector<float>> floats(std::string_view name, std::span<const int64_t> shape,
                                    int64_t part) const;
  Result<std::vector<int64_t>> integers(std::string_view name,
                                        std::span<const int64_t> shape) const;
  /// What had been done to the columns of a site's weight when its activations were observed: 0
  /// where factors scaled them, else the block in which they were rotated. Empty: nothing. Corrupt
  /// where it is no vector of integers.
  Result<std::vector<int64_t>> basis(std::string_view site) const;

private:
  template <typename T>
  Result<std::vector<T>> read(std::string_view name, DType type, std::span<const int64_t> shape,
                              std::optional<int64_t> part = std::nullopt) const;

  SafetensorsFile file;
  CalibrationStamp mark;
  std::string tokens; ///< checksum of the token ids
};

} // namespace easyquant::formats

#endif // EASYQUANT_FORMATS_STATISTICSFILE_H
