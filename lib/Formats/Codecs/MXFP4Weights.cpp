//===- MXFP4Weights.cpp - Reading the codes of gpt-oss --------------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// `quant_method` mxfp4, of experts that lie in one stack:
//
//   blocks  U8 [E, N, K/32, 16]  two codes of FP4 a byte, the first one in the lower nibble
//   scales  U8 [E, N, K/32]      powers of two
//
// Activations are float.
//
//===----------------------------------------------------------------------===//

#include "CompressedTensors.h"
#include "StoredFormats.h"

using namespace easyquant;
using namespace easyquant::formats;
using numerics::WeightTensor;

namespace {

constexpr int64_t kMXFP4Group = 32;

class MXFP4Reader final : public WeightReader {
public:
  using WeightReader::WeightReader;

  std::vector<CodecTensor> tensors() const override {
    return {{"blocks", DType::U8, {rows, columns / 2}, WeightTensor::Codes},
            {"scales", DType::U8, {rows, groups()}, WeightTensor::Scales}};
  }

protected:
  void unpackRows(int64_t firstRow, const StoredParts &stored,
                  numerics::QuantizedMatrix &block) const override {
    unpackFP4(scheme, firstRow, stored, /*outer=*/1, block);
  }
};

class MXFP4Weights final : public StoredWeights {
public:
  Result<std::optional<StoredWeight>> find(const std::string &name, int64_t rows, int64_t columns,
                                           const TensorFinder &tensor) const override;
  std::span<const std::string_view> tensorNames() const override {
    static constexpr std::string_view names[] = {"blocks", "scales"};
    return names;
  }
};

} // namespace

Result<std::optional<StoredWeight>> MXFP4Weights::find(const std::string &name, int64_t rows,
                                                       int64_t columns,
                                                       const TensorFinder &tensor) const {
  if (!tensor("blocks") && !tensor("scales"))
    return std::nullopt;
  if (columns % kMXFP4Group != 0)
    return makeError(ErrorCode::Unsupported,
                     "site '{}': MXFP4 holds whole groups: {} columns are no multiple of {}", name,
                     columns, kMXFP4Group);
  QuantizedSite site{.name = name,
                     .rows = rows,
                     .columns = columns,
                     .weight = {.bits = 4,
                                .granularity = numerics::Granularity::Group,
                                .groupSize = kMXFP4Group,
                                .codes = numerics::CodeFormat::F4E2M1FN,
                                .scales = numerics::ScaleFormat::F8E8M0FNU}};
  auto codec = std::make_unique<MXFP4Reader>(site.weight, rows, columns);
  auto weight = StoredWeight::open(std::move(site), std::move(codec), tensor);
  if (!weight)
    return Unexpected(weight.error());
  return std::optional(std::move(*weight));
}

Result<std::unique_ptr<StoredWeights>> formats::readMXFP4(const Json &, std::string_view) {
  return std::unique_ptr<StoredWeights>(std::make_unique<MXFP4Weights>());
}
