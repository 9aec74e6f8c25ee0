//===- StoredWeight.cpp - Weights that a checkpoint has in codes ----------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "StoredFormats.h"

#include "easyquant/Numerics/Hadamard.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>

using namespace easyquant;
using namespace easyquant::formats;
using numerics::QuantizedMatrix;

StoredWeights::~StoredWeights() = default;

/// Powers of two are bytes for some writers, and numbers of a type of their own for others.
static bool isOfType(const FileTensorView &found, DType type) {
  return found.typeName == dtypeName(type) ||
         (type == DType::U8 && found.typeName == dtypeName(DType::F8E8M0));
}

Result<StoredWeight> StoredWeight::open(QuantizedSite site, std::unique_ptr<WeightReader> codec,
                                        const TensorFinder &find) {
  std::vector<std::span<const uint8_t>> bytes;
  std::vector<uint8_t> scales;
  for (const CodecTensor &tensor : codec->tensors()) {
    auto found = find(tensor.name);
    if (!found)
      return makeError(ErrorCode::NotFound,
                       "tensor '{}.{}' is missing; expected {} of shape {} for {}", site.name,
                       tensor.name, dtypeName(tensor.dtype), fmt::join(tensor.shape, "x"),
                       numerics::toString(site.weight));
    const bool isOfTensor = found && tensor.part == numerics::WeightTensor::Scales &&
                            codec->groups() == 1 && elementCount(found->shape) == 1 &&
                            isOfType(*found, tensor.dtype);
    if (isOfTensor) {
      for (int64_t i = 0; i < elementCount(tensor.shape).value_or(0); ++i)
        scales.insert(scales.end(), found->bytes.begin(), found->bytes.end());
      found = FileTensorView{found->typeName, tensor.shape, scales};
    }
    const bool isNumber = elementCount(found->shape) == 1 && elementCount(tensor.shape) == 1;
    if (!isOfType(*found, tensor.dtype) || (found->shape != tensor.shape && !isNumber))
      return makeError(ErrorCode::Corrupt,
                       "tensor '{}.{}': expected {} of shape {} for {}, found {} of shape {}",
                       site.name, tensor.name, dtypeName(tensor.dtype),
                       fmt::join(tensor.shape, "x"), numerics::toString(site.weight),
                       found->typeName, fmt::join(found->shape, "x"));
    bytes.push_back(found->bytes);
  }
  auto parts = codec->partsOf(bytes);
  if (!parts)
    return makeError(parts.error().code, "site '{}': {}", site.name, parts.error().message);
  StoredWeight weight(std::move(site), std::move(codec));
  weight.parts = *parts;
  weight.scales = std::move(scales); // where the part points to
  return weight;
}

/// Rows in the order of the model.
Result<QuantizedMatrix> StoredWeight::unpack(int64_t firstRow, int64_t count) const {
  auto stored = [&](int64_t first, int64_t rows) -> Result<QuantizedMatrix> {
    auto found = codec->unpack(first, rows, parts);
    if (!found)
      return makeError(found.error().code, "site '{}': {}", quantized.name, found.error().message);
    return found;
  };
  if (rowOrder.isSame() && rowParts == 1)
    return stored(firstRow, count);
  auto join = [](auto &to, const auto &from) { to.insert(to.end(), from.begin(), from.end()); };
  QuantizedMatrix all{codec->scheme, count, codec->columns, {}, {}};
  all.params.rows = count;
  all.params.groups = codec->groups();
  for (int64_t row = 0; row < count; ++row) {
    const int64_t own = rowOrder.stored(firstRow + row);
    auto found = stored((own / rowRun * rowParts + rowPart) * rowRun + own % rowRun, 1);
    if (!found)
      return found;
    all.params.outer = found->params.outer;
    join(all.codes, found->codes);
    join(all.params.scales, found->params.scales);
    join(all.params.zeroPoints, found->params.zeroPoints);
    join(all.params.minima, found->params.minima);
  }
  return all;
}

Result<QuantizedMatrix> StoredWeight::codes(int64_t firstRow, int64_t count) const {
  if (!whyNotKept.empty())
    return makeError(ErrorCode::Unsupported, "site '{}': {}", quantized.name, whyNotKept);
  auto rows = unpack(firstRow, count);
  if (!rows || columnOrder.empty())
    return rows;
  const std::vector<int8_t> stored = rows->codes;
  for (int64_t r = 0; r < count; ++r)
    for (int64_t k = 0; k < quantized.columns; ++k)
      rows->codes[r * quantized.columns + k] = stored[r * quantized.columns + columnOrder[k]];
  return rows;
}

void StoredWeight::takePart(int64_t parts, int64_t part, int64_t run) {
  quantized.rows /= parts;
  rowParts = parts;
  rowPart = part;
  rowRun = run;
}

void StoredWeight::setGroups(std::vector<int32_t> groups) {
  groupOfColumn = std::move(groups);
  if (groupOfColumn.empty())
    return;
  columnOrder.resize(groupOfColumn.size());
  std::iota(columnOrder.begin(), columnOrder.end(), 0);
  std::ranges::sort(columnOrder, {},
                    [&](int32_t column) { return std::pair(groupOfColumn[column], column); });
  for (int64_t k = 0; k < quantized.columns; ++k)
    if (const int32_t group = groupOfColumn[columnOrder[k]];
        group != k / quantized.weight.groupSize) {
      whyNotKept =
          fmt::format("group {} of its columns has {}, and the others do not have {} each "
                      "(g_idx)",
                      group, std::ranges::count(groupOfColumn, group), quantized.weight.groupSize);
      return;
    }
}

/// One column after the other is a group of its own: its scale is that of its group.
static void dequantizeColumns(const QuantizedMatrix &rows, std::span<const int32_t> groupOfColumn,
                              std::span<float> out) {
  QuantizedMatrix column{rows.scheme, rows.rows, 1, {}, {}};
  column.scheme.granularity = numerics::Granularity::Channel;
  column.scheme.groupSize = 0;
  column.params.rows = rows.rows;
  column.params.groups = 1;
  column.codes.resize(rows.rows);
  column.params.scales.resize(rows.rows);
  if (!rows.params.zeroPoints.empty())
    column.params.zeroPoints.resize(rows.rows);
  std::vector<float> values(rows.rows);
  for (int64_t k = 0; k < rows.columns; ++k) {
    for (int64_t r = 0; r < rows.rows; ++r) {
      const int64_t from = paramIndex(rows.params, r, groupOfColumn[k]);
      column.codes[r] = rows.codes[r * rows.columns + k];
      column.params.scales[r] = rows.params.scales[from];
      if (!column.params.zeroPoints.empty())
        column.params.zeroPoints[r] = rows.params.zeroPoints[from];
    }
    numerics::dequantize(column, {values.data(), rows.rows, 1});
    for (int64_t r = 0; r < rows.rows; ++r)
      out[r * rows.columns + k] = values[r];
  }
}

Result<void> StoredWeight::dequantize(int64_t firstRow, int64_t count, std::span<float> out) const {
  auto rows = unpack(firstRow, count);
  if (!rows)
    return Unexpected(rows.error());
  if (groupOfColumn.empty())
    numerics::dequantize(*rows, {out.data(), count, quantized.columns});
  else
    dequantizeColumns(*rows, groupOfColumn, out);
  // The rotation is its own inverse.
  if (const int64_t block = quantized.weight.hadamard)
    numerics::rotateConstant(out, quantized.columns, /*rowBlock=*/1, block);
  return {};
}

//===----------------------------------------------------------------------===//
// What the readers share
//===----------------------------------------------------------------------===//

Result<NamePattern> NamePattern::compile(const std::string &text, const std::string &place) {
  // The library goes a level of its stack deeper with every bracket.
  constexpr size_t kLongest = 1000;
  if (text.size() > kLongest)
    return makeError(ErrorCode::Corrupt,
                     "{}: a regular expression of {} characters; expected at most {}", place,
                     text.size(), kLongest);
  NamePattern pattern;
  try {
    // In time that does not grow exponentially, whatever it is.
    pattern.expression =
        std::regex(text, std::regex::ECMAScript | std::regex_constants::__polynomial);
  } catch (const std::regex_error &error) {
    return makeError(ErrorCode::Corrupt, "{}: {} is no regular expression", place,
                     Json::describe(text));
  }
  return pattern;
}

bool NamePattern::matches(const std::string &name) const {
  return std::regex_search(name, expression, std::regex_constants::match_continuous);
}

Result<numerics::ScaleFormat> formats::scalesOfType(const std::string &site, const char *tensor,
                                                    std::string_view typeName) {
  for (auto [type, format] : {std::pair(DType::F16, numerics::ScaleFormat::F16),
                              {DType::BF16, numerics::ScaleFormat::BF16},
                              {DType::F32, numerics::ScaleFormat::F32}})
    if (typeName == dtypeName(type))
      return format;
  return makeError(ErrorCode::Unsupported, "tensor '{}.{}': expected F16, BF16 or F32, found {}",
                   site, tensor, typeName);
}

numerics::Scheme formats::storedIntegers(int bits, bool symmetric, int64_t groupSize,
                                         int64_t columns, numerics::ScaleFormat scales) {
  const bool hasGroups = groupSize > 0 && groupSize < columns;
  return {.bits = bits,
          .symmetric = symmetric,
          .granularity = hasGroups ? numerics::Granularity::Group : numerics::Granularity::Channel,
          .groupSize = hasGroups ? groupSize : 0,
          .fullRange = symmetric,
          .scales = scales};
}

Result<std::unique_ptr<WeightCodec>> formats::codecBesideZeroPoints(
    const std::string &name, int bits, int64_t groupSize, int64_t columns,
    const TensorFinder &tensor,
    const std::function<Result<std::unique_ptr<WeightCodec>>(const numerics::Scheme &)> &make) {
  const auto storedScales = tensor("scales"), zeroPoints = tensor("qzeros");
  if (!storedScales || !zeroPoints)
    return makeError(ErrorCode::NotFound, "tensor '{}.{}' is missing", name,
                     storedScales ? "qzeros" : "scales");
  auto scales = scalesOfType(name, "scales", storedScales->typeName);
  if (!scales)
    return Unexpected(scales.error());
  auto codec = make(storedIntegers(bits, /*symmetric=*/true, groupSize, columns, *scales));
  if (codec && !std::ranges::equal((*codec)->tensors()[1].constant, zeroPoints->bytes))
    codec = make(storedIntegers(bits, /*symmetric=*/false, groupSize, columns, *scales));
  if (!codec)
    return makeError(codec.error().code, "site '{}': {}", name, codec.error().message);
  return codec;
}

Result<double> formats::readNumber(const std::string &site, const char *name,
                                   const TensorFinder &tensor) {
  const auto found = tensor(name);
  if (!found)
    return makeError(ErrorCode::NotFound, "tensor '{}.{}' is missing", site, name);
  auto refuse = [&](std::string_view expected) {
    return makeError(ErrorCode::Corrupt, "tensor '{}.{}': expected {}, found {} of {} elements",
                     site, name, expected, found->typeName, elementCount(found->shape).value_or(0));
  };
  if (elementCount(found->shape) != 1)
    return refuse("one number");
  if (found->typeName == dtypeName(DType::I8))
    return static_cast<int8_t>(found->bytes[0]);
  auto format = scalesOfType(site, name, found->typeName);
  if (!format)
    return Unexpected(format.error());
  const float value = numerics::loadScale(found->bytes.data(), 0, *format);
  if (!std::isnormal(value) || value < 0)
    return makeError(ErrorCode::Corrupt, "tensor '{}.{}': expected a positive number, found {}",
                     site, name, value);
  return value;
}

Result<std::vector<int32_t>> formats::readGroupIndex(const std::string &name,
                                                     const numerics::Scheme &scheme,
                                                     int64_t columns, const FileTensorView &index) {
  if (index.typeName != dtypeName(DType::I32) || index.shape != std::vector{columns})
    return makeError(ErrorCode::Corrupt,
                     "tensor '{}': expected I32 of shape {}, found {} of "
                     "shape {}",
                     name, columns, index.typeName, fmt::join(index.shape, "x"));
  std::vector<int32_t> groups(static_cast<size_t>(columns));
  std::memcpy(groups.data(), index.bytes.data(), index.bytes.size());
  const int64_t count = numerics::groupCount(columns, scheme.groupSize);
  bool isInOrder = true;
  for (int64_t k = 0; k < columns; ++k) {
    if (groups[k] < 0 || groups[k] >= count)
      return makeError(ErrorCode::Corrupt,
                       "tensor '{}': column {} is of group {}; expected 0 to {}", name, k,
                       groups[k], count - 1);
    isInOrder &= groups[k] == (scheme.groupSize ? k / scheme.groupSize : 0);
  }
  if (isInOrder)
    groups.clear();
  return groups;
}

Result<std::unique_ptr<StoredWeights>> formats::readQuantizationConfig(const Json &config,
                                                                       std::string_view file) {
  const std::string place = fmt::format("{}: quantization_config", file);
  FieldReader fields(config, place, {.nullIsAbsent = true});
  std::string method;
  fields.required("quant_method", method);
  if (fields.failed())
    return Unexpected(fields.result().error());
  if (method == "gptq")
    return readGptq(config, file);
  if (method == "awq")
    return readAwq(config, file);
  if (method == "compressed-tensors")
    return readCompressedTensors(config, file);
  if (method == "fp8")
    return readFP8(config, file);
  if (method == "modelopt")
    return readModelOpt(config, file);
  if (method == "mxfp4")
    return readMXFP4(config, file);
  return makeError(
      ErrorCode::Unsupported,
      "{}: quant_method {} is not supported; expected \"gptq\", \"awq\", "
      "\"compressed-tensors\", \"fp8\", \"modelopt\" or \"mxfp4\"; else import the float "
      "checkpoint that it was made from",
      place, Json::describe(method));
}
