//===- StatisticsFile.cpp - What calibration has gathered -----------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "easyquant/Formats/StatisticsFile.h"

#include "easyquant/Formats/SealedFile.h"

#include "Text.h"

#include <charconv>
#include <cmath>
#include <cstring>

using namespace easyquant;
using namespace easyquant::formats;
namespace fs = std::filesystem;

static constexpr const char *kFormat = "easyquant-statistics";

//===----------------------------------------------------------------------===//
// Stamp
//===----------------------------------------------------------------------===//

std::map<std::string, std::string> CalibrationStamp::toMetadata() const {
  return {{"format", kFormat},
          {"format_version", "1"},
          {"model_hash", model},
          {"text_hash", text},
          {"tokenizer_hash", tokenizer},
          {"samples", std::to_string(samples)},
          {"length", std::to_string(length)},
          {"seed", std::to_string(seed)},
          {"bos", bos ? "1" : "0"}};
}

Result<CalibrationStamp>
CalibrationStamp::fromMetadata(const std::map<std::string, std::string> &metadata,
                               std::string_view fileName) {
  auto value = [&](const char *key) {
    auto found = metadata.find(key);
    return found == metadata.end() ? std::string() : found->second;
  };
  if (value("format") != kFormat || value("format_version") != "1")
    return makeError(ErrorCode::Corrupt,
                     "{}: not a statistics file of this version (format {}, version {}): "
                     "calibrate again",
                     fileName, quote(value("format")), quote(value("format_version")));
  CalibrationStamp stamp{value("model_hash"), value("text_hash"), value("tokenizer_hash")};
  int64_t bos = 0;
  for (auto [key, number] : {std::pair("samples", &stamp.samples),
                             {"length", &stamp.length},
                             {"seed", &stamp.seed},
                             {"bos", &bos}}) {
    std::string text = value(key);
    auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), *number);
    if (error != std::errc() || end != text.data() + text.size())
      return makeError(ErrorCode::Corrupt,
                       "{}: its metadata say {} for \"{}\", expected a number: calibrate again",
                       fileName, quote(text), key);
  }
  stamp.bos = bos != 0;
  return stamp;
}

//===----------------------------------------------------------------------===//
// Reading
//===----------------------------------------------------------------------===//

Result<StatisticsFile> StatisticsFile::open(const fs::path &path) {
  auto opened = openSealed(path);
  if (!opened)
    return Unexpected(opened.error());
  auto stamp = CalibrationStamp::fromMetadata(opened->metadata(), path.string());
  if (!stamp)
    return Unexpected(stamp.error());
  StatisticsFile file;
  file.file = std::move(*opened);
  file.mark = std::move(*stamp);
  if (auto hash = file.file.metadata().find("tokens_hash"); hash != file.file.metadata().end())
    file.tokens = hash->second;
  return file;
}

Result<void> StatisticsFile::checkModel(std::string_view model) const {
  if (mark.model == model)
    return {};
  return makeError(ErrorCode::InvalidArgument,
                   "{}: statistics of another model: they were gathered with the model of checksum "
                   "{}, this one has {}; calibrate this model",
                   path().string(), quote(mark.model), quote(model));
}

static std::string describe(const CalibrationStamp &stamp) {
  return fmt::format("{} x {} tokens{}, seed {}, of the text of checksum {}", stamp.samples,
                     stamp.length, stamp.bos ? " that begin with BOS" : "", stamp.seed,
                     quote(stamp.text));
}

Result<void> StatisticsFile::checkText(const CalibrationStamp &text,
                                       std::string_view tokensHash) const {
  if (tokens == tokensHash && mark.bos == text.bos)
    return {};
  return makeError(ErrorCode::InvalidArgument,
                   "{}: statistics of another text: they were gathered on {}, and this run has {}; "
                   "give both the same text, --nsamples, --seqlen and --seed",
                   path().string(), describe(mark), describe(text));
}

template <typename T>
Result<std::vector<T>> StatisticsFile::read(std::string_view name, DType type,
                                            std::span<const int64_t> shape,
                                            std::optional<int64_t> part) const {
  const std::string where = path().string() + ": tensor " + quote(name);
  const SafetensorsTensor *tensor = file.find(name);
  if (!tensor)
    return makeError(ErrorCode::NotFound,
                     "{} is not in the file: that statistic was not gathered at that site; "
                     "calibrate again with it",
                     where);
  if (tensor->dtype != type ||
      !std::equal(tensor->shape.begin(), tensor->shape.end(), shape.begin(), shape.end()))
    return makeError(ErrorCode::Corrupt, "{}: expected {} {}, found {} {}", where, dtypeName(type),
                     shapeText(shape), dtypeName(tensor->dtype), shapeText(tensor->shape));
  std::span<const std::byte> bytes = file.data(*tensor);
  size_t before = 0; // elements
  if (part) {
    const size_t size = bytes.size() / static_cast<size_t>(shape.front());
    bytes = bytes.subspan(static_cast<size_t>(*part) * size, size);
    before = static_cast<size_t>(*part) * size / sizeof(T);
  }
  std::vector<T> values(bytes.size() / sizeof(T));
  if (!bytes.empty())
    std::memcpy(values.data(), bytes.data(), bytes.size());
  if constexpr (std::is_same_v<T, float>)
    for (size_t i = 0; i < values.size(); ++i)
      if (!std::isfinite(values[i]))
        return makeError(ErrorCode::Corrupt, "{}: element {} is {}: calibrate again", where,
                         before + i, values[i]);
  return values;
}

Result<std::vector<float>> StatisticsFile::floats(std::string_view name,
                                                  std::span<const int64_t> shape) const {
  return read<float>(name, DType::F32, shape);
}

Result<std::vector<float>>
StatisticsFile::floats(std::string_view name, std::span<const int64_t> shape, int64_t part) const {
  return read<float>(name, DType::F32, shape, part);
}

Result<std::vector<int64_t>> StatisticsFile::integers(std::string_view name,
                                                      std::span<const int64_t> shape) const {
  return read<int64_t>(name, DType::I64, shape);
}

Result<std::vector<int64_t>> StatisticsFile::basis(std::string_view site) const {
  const std::string name = fmt::format("{}/basis", site);
  const SafetensorsTensor *tensor = file.find(name);
  if (!tensor)
    return std::vector<int64_t>();
  const int64_t steps = tensor->shape.empty() ? 1 : tensor->shape.front();
  return integers(name, std::span(&steps, 1));
}
