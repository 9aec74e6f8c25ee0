//===- Awq.cpp - AutoAWQ's packed weights ---------------------------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Version "gemm" of AutoAWQ, 4 bits:
//
//   qweight  I32 [K, N/8]   the codes of 8 rows of W in one word
//   qzeros   I32 [G, N/8]   their zero points
//   scales   F16 [G, N]
//
// Nibble i of a word is that of row kOrder[i] of the eight. Codes and zero points count from 0 on.
//
//===----------------------------------------------------------------------===//

#include "BitString.h"
#include "CheckpointFormats.h"
#include "StoredFormats.h"

#include <algorithm>

using namespace easyquant;
using namespace easyquant::formats;
using numerics::QuantizedMatrix;
using numerics::WeightTensor;

namespace {

constexpr int kBits = 4;
constexpr int64_t kWordRows = 32 / kBits;
/// The nibble of a word that row n of its eight has: even rows lie in the lower half.
constexpr int64_t nibbleOf(int64_t n) { return n % 2 * 4 + n / 2; }
constexpr int64_t placeOfRow(int64_t n) {
  return n / kWordRows * kWordRows + nibbleOf(n % kWordRows);
}

class AwqCodec final : public WeightCodec {
public:
  using WeightCodec::WeightCodec;

  std::vector<CodecTensor> tensors() const override;
  void pack(int64_t firstRow, const QuantizedMatrix &block,
            numerics::PackedWeight &out) const override;

protected:
  void unpackRows(int64_t firstRow, const StoredParts &stored,
                  QuantizedMatrix &rows) const override;

private:
  /// The nibbles of column k, or of the zero points of group k.
  template <typename Byte> BitString<Byte> line(Byte *data, int64_t k) const {
    return {data + k * rows * kBits / 8, 1, kBits};
  }
};

} // namespace

std::vector<CodecTensor> AwqCodec::tensors() const {
  CodecTensor zeroPoints{"qzeros", DType::I32, {groups(), rows / kWordRows}};
  if (scheme.symmetric)
    zeroPoints.constant.assign(static_cast<size_t>(groups() * rows * kBits / 8),
                               static_cast<uint8_t>(fieldOf(0) * 0x11));
  else
    zeroPoints.part = WeightTensor::ZeroPoints;
  return {{"qweight", DType::I32, {columns, rows / kWordRows}, WeightTensor::Codes},
          std::move(zeroPoints),
          {"scales", scaleType(scheme.scales), {groups(), rows}, WeightTensor::Scales}};
}

void AwqCodec::pack(int64_t firstRow, const QuantizedMatrix &block,
                    numerics::PackedWeight &out) const {
  for (int64_t k = 0; k < columns; ++k)
    for (int64_t r = 0; r < block.rows; ++r)
      line(out[WeightTensor::Codes].data(), k)
          .put(placeOfRow(firstRow + r), fieldOf(block.codes[r * columns + k]));
  for (int64_t g = 0; g < groups(); ++g)
    for (int64_t r = 0; r < block.rows; ++r) {
      const int64_t index = paramIndex(block.params, r, g);
      storeScale(out[WeightTensor::Scales].data(), g * rows + firstRow + r,
                 block.params.scales[index], scheme.scales);
      if (!scheme.symmetric)
        line(out[WeightTensor::ZeroPoints].data(), g)
            .put(placeOfRow(firstRow + r), fieldOf(zeroPointOf(scheme, block.params, index)));
    }
}

void AwqCodec::unpackRows(int64_t firstRow, const StoredParts &stored,
                          QuantizedMatrix &block) const {
  for (int64_t k = 0; k < columns; ++k)
    for (int64_t r = 0; r < block.rows; ++r)
      block.codes[r * columns + k] = static_cast<int8_t>(
          codeOf(line(stored[WeightTensor::Codes], k).get(placeOfRow(firstRow + r))));
  for (int64_t r = 0; r < block.rows; ++r)
    for (int64_t g = 0; g < groups(); ++g) {
      const int64_t index = r * groups() + g;
      block.params.scales[index] =
          numerics::loadScale(stored[WeightTensor::Scales], g * rows + firstRow + r, scheme.scales);
      if (!scheme.symmetric)
        block.params.zeroPoints[index] =
            codeOf(line(stored[WeightTensor::ZeroPoints], g).get(placeOfRow(firstRow + r)));
    }
}

Result<std::unique_ptr<WeightCodec>> formats::awqCodec(const numerics::Scheme &scheme, int64_t rows,
                                                       int64_t columns) {
  if (auto ok = checkStoredWeight("awq", scheme, rows, columns); !ok)
    return Unexpected(ok.error());
  if (!scheme.isInteger() || scheme.bits != kBits)
    return makeError(ErrorCode::Unsupported,
                     "awq holds integers of 4 bits, found {}; take W4A16_ASYM or W4A16, or another "
                     "format",
                     numerics::toString(scheme));
  if (rows % kWordRows != 0)
    return makeError(ErrorCode::Unsupported,
                     "awq packs 8 rows into a word: {} rows are no multiple; leave the site float, "
                     "or take compressed-tensors",
                     rows);
  return std::make_unique<AwqCodec>(scheme, rows, columns);
}

//===----------------------------------------------------------------------===//
// The format
//===----------------------------------------------------------------------===//

namespace {

class AwqFormat final : public CheckpointFormat {
public:
  AwqFormat() : CheckpointFormat("awq", /*isHalf=*/true) {}

  Result<std::unique_ptr<WeightCodec>> codecFor(const QuantizedSite &site) const override {
    if (auto ok = checkWeightOnly(name, site); !ok)
      return Unexpected(ok.error());
    if (auto ok = checkHalfScales(name, site); !ok)
      return Unexpected(ok.error());
    return awqCodec(site.weight, site.rows, site.columns);
  }
  Result<void> checkTogether(std::span<const QuantizedSite> sites) const override;
  Json configuration(std::span<const QuantizedSite> sites,
                     std::span<const std::string> floats) const override;
};

} // namespace

Result<void> AwqFormat::checkTogether(std::span<const QuantizedSite> sites) const {
  for (const QuantizedSite &site : sites)
    if (site.weight.groupSize != sites.front().weight.groupSize)
      return makeError(ErrorCode::Unsupported,
                       "site '{}': awq has one group size for all sites, found {} here and {} in "
                       "'{}'; give all sites one, or take compressed-tensors",
                       site.name, configuredGroup(site.weight),
                       configuredGroup(sites.front().weight), sites.front().name);
  return {};
}

Json AwqFormat::configuration(std::span<const QuantizedSite> sites,
                              std::span<const std::string> floats) const {
  // Files have zero points in any case, as clients want them.
  return Json::Object{{"quant_method", "awq"},
                      {"version", "gemm"},
                      {"bits", kBits},
                      {"group_size", configuredGroup(sites.front().weight)},
                      {"zero_point", true},
                      {"modules_to_not_convert", Json::Array(floats.begin(), floats.end())}};
}

const CheckpointFormat *formats::awqFormat() {
  static const AwqFormat format;
  return &format;
}

//===----------------------------------------------------------------------===//
// Reading: `quantization_config` of AutoAWQ and llm-awq
//===----------------------------------------------------------------------===//

namespace {

class AwqWeights final : public StoredWeights {
public:
  explicit AwqWeights(int64_t groupSize) : groupSize(groupSize) {}

  Result<std::optional<StoredWeight>> find(const std::string &name, int64_t rows, int64_t columns,
                                           const TensorFinder &tensor) const override;
  std::span<const std::string_view> tensorNames() const override {
    static constexpr std::string_view names[] = {"qweight", "qzeros", "scales"};
    return names;
  }

private:
  const int64_t groupSize;
};

} // namespace

Result<std::optional<StoredWeight>> AwqWeights::find(const std::string &name, int64_t rows,
                                                     int64_t columns,
                                                     const TensorFinder &tensor) const {
  if (!tensor("qweight"))
    return std::nullopt;
  auto codec = codecBesideZeroPoints(
      name, kBits, groupSize, columns, tensor,
      [&](const numerics::Scheme &scheme) { return awqCodec(scheme, rows, columns); });
  if (!codec)
    return Unexpected(codec.error());
  const numerics::Scheme scheme = (*codec)->scheme;
  auto weight =
      StoredWeight::open({.name = name, .rows = rows, .columns = columns, .weight = scheme},
                         std::move(*codec), tensor);
  if (!weight)
    return Unexpected(weight.error());
  return std::optional(std::move(*weight));
}

Result<std::unique_ptr<StoredWeights>> formats::readAwq(const Json &config, std::string_view file) {
  const std::string place = fmt::format("{}: quantization_config", file);
  FieldReader fields(config, place, {.nullIsAbsent = true});
  std::string version = "gemm";
  int64_t bits = kBits, groupSize = -1;
  fields.optional("version", version);
  fields.optional("bits", bits, Bounds{kBits, kBits});
  fields.optional("group_size", groupSize, Bounds{-1, kMaxInt32});
  std::ranges::transform(version, version.begin(), [](unsigned char c) { return std::tolower(c); });
  if (version != "gemm")
    fields.failInWords(ErrorCode::Unsupported, "version {} is not supported; expected \"gemm\"",
                       Json::describe(version));
  if (fields.failed())
    return Unexpected(fields.result().error());
  return std::make_unique<AwqWeights>(groupSize);
}
