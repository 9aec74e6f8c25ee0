//===- FP8Weights.cpp - Reading fp8 ---------------------------------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// `quant_method` fp8, of DeepSeek-V3 and those who follow it, and of vLLM. FP8 (E4M3) with scales
// of blocks:
//
//   weight            F8_E4M3 [N, K]
//   weight_scale_inv  [⌈N/B⌉, ⌈K/C⌉]   what codes of B rows and C columns are multiplied with
//
// or, without a weight_block_size, of the tensor:
//
//   weight_scale      [1]
//   input_scale       [1]              of static activations
//
// Activations are FP8, too: dynamic per token in groups of C columns, or per token; or static.
//
//===----------------------------------------------------------------------===//

#include "CheckpointFormats.h"
#include "StoredFormats.h"

#include <fmt/ranges.h>

using namespace easyquant;
using namespace easyquant::formats;
using numerics::CodeFormat;
using numerics::Granularity;
using numerics::QuantizedMatrix;
using numerics::ScaleFormat;
using numerics::Scheme;
using numerics::WeightTensor;

namespace {

constexpr const char *kBlockScales = "weight_scale_inv";

/// Rows of a block share a scale, which each of them has then.
class BlockFP8Reader final : public WeightReader {
public:
  BlockFP8Reader(const Scheme &scheme, int64_t rows, int64_t columns, int64_t blockRows)
      : WeightReader(scheme, rows, columns), blockRows(blockRows) {}

  std::vector<CodecTensor> tensors() const override {
    return {{"weight", DType::F8E4M3, {rows, columns}, WeightTensor::Codes},
            {kBlockScales,
             scaleType(scheme.scales),
             {numerics::groupCount(rows, blockRows), groups()},
             WeightTensor::Scales}};
  }

protected:
  void unpackRows(int64_t firstRow, const StoredParts &stored,
                  QuantizedMatrix &block) const override {
    const uint8_t *codes = stored[WeightTensor::Codes] + firstRow * columns;
    for (size_t i = 0; i < block.codes.size(); ++i)
      block.codes[i] = static_cast<int8_t>(codeOf(codes[i]));
    for (int64_t r = 0; r < block.rows; ++r)
      for (int64_t g = 0; g < groups(); ++g)
        block.params.scales[r * groups() + g] = numerics::loadScale(
            stored[WeightTensor::Scales], (firstRow + r) / blockRows * groups() + g, scheme.scales);
  }

private:
  const int64_t blockRows;
};

class FP8Weights final : public StoredWeights {
public:
  Result<void> read(const Json &config, std::string_view file);
  Result<std::optional<StoredWeight>> find(const std::string &name, int64_t rows, int64_t columns,
                                           const TensorFinder &tensor) const override;
  std::span<const std::string_view> tensorNames() const override {
    static constexpr std::string_view names[] = {kBlockScales, "weight_scale", "input_scale"};
    return names;
  }

private:
  std::vector<int64_t> block; ///< rows and columns; empty: a scale of the tensor
  bool isStatic = false;
};

} // namespace

Result<void> FP8Weights::read(const Json &config, std::string_view file) {
  const std::string place = fmt::format("{}: quantization_config", file);
  FieldReader fields(config, place, {.nullIsAbsent = true});
  std::string activations = "dynamic", type = "e4m3";
  fields.optional("activation_scheme", activations);
  fields.optional("fmt", type);
  fields.optional("weight_block_size", block);
  fields.checkText(activations == "dynamic" || activations == "static", "activation_scheme",
                   activations, "\"dynamic\" or \"static\"");
  fields.checkText(type == "e4m3", "fmt", type, "\"e4m3\"");
  const bool areSizes = block.empty() || (block.size() == 2 && block[0] > 0 && block[1] > 0 &&
                                          block[0] <= kMaxInt32 && block[1] <= kMaxInt32);
  fields.check(areSizes, "weight_block_size", fmt::format("[{}]", fmt::join(block, ", ")),
               "two positive integers");
  isStatic = activations == "static";
  if (isStatic && !block.empty())
    fields.failInWords(ErrorCode::Unsupported,
                       "activation_scheme \"static\" beside a weight_block_size is not supported; "
                       "expected \"dynamic\"");
  return fields.result();
}

Result<std::optional<StoredWeight>> FP8Weights::find(const std::string &name, int64_t rows,
                                                     int64_t columns,
                                                     const TensorFinder &tensor) const {
  const char *suffix = block.empty() ? "weight_scale" : kBlockScales;
  const auto stored = tensor(suffix);
  if (!stored) {
    const auto weight = tensor("weight");
    if (weight && weight->typeName == dtypeName(DType::F8E4M3))
      return makeError(ErrorCode::NotFound, "tensor '{}.{}' is missing", name, suffix);
    return std::nullopt;
  }
  auto scales = scalesOfType(name, suffix, stored->typeName);
  if (!scales)
    return Unexpected(scales.error());
  if (block.empty())
    return tensorFP8(name, rows, columns, *scales, isStatic, tensor);
  Scheme scheme = storedIntegers(8, /*symmetric=*/true, block[1], columns, *scales);
  scheme.codes = CodeFormat::F8E4M3FN;
  scheme.fullRange = false;
  if (auto ok = numerics::checkPackedWeight(scheme, rows, columns); !ok)
    return makeError(ok.error().code, "site '{}': {}", name, ok.error().message);
  QuantizedSite site{.name = name, .rows = rows, .columns = columns, .weight = scheme};
  site.input = Scheme{.bits = 8,
                      .granularity = Granularity::Token,
                      .groupSize = block[1],
                      .dynamic = true,
                      .codes = CodeFormat::F8E4M3FN};
  std::string whyNotKept;
  if (auto ok = numerics::checkScheme(*site.input); !ok) {
    whyNotKept = "its activations are those of blocks: " + ok.error().message;
    site.input.reset();
  }
  auto weight = StoredWeight::open(
      std::move(site), std::make_unique<BlockFP8Reader>(scheme, rows, columns, block[0]), tensor);
  if (!weight)
    return Unexpected(weight.error());
  weight->whyNotKept = std::move(whyNotKept);
  return std::optional(std::move(*weight));
}

Result<std::optional<StoredWeight>> formats::tensorFP8(const std::string &name, int64_t rows,
                                                       int64_t columns, ScaleFormat scales,
                                                       bool isStatic, const TensorFinder &tensor) {
  QuantizedSite site{.name = name,
                     .rows = rows,
                     .columns = columns,
                     .weight = {.bits = 8, .codes = CodeFormat::F8E4M3FN, .scales = scales}};
  site.input = Scheme{.bits = 8,
                      .granularity = isStatic ? Granularity::Tensor : Granularity::Token,
                      .dynamic = !isStatic,
                      .codes = CodeFormat::F8E4M3FN};
  if (isStatic) {
    auto scale = readNumber(name, "input_scale", tensor);
    if (!scale)
      return Unexpected(scale.error());
    site.inputScale = static_cast<float>(*scale);
  }
  auto codec = floatQuantizedCodec(site.weight, rows, columns);
  if (!codec)
    return makeError(codec.error().code, "site '{}': {}", name, codec.error().message);
  auto weight = StoredWeight::open(std::move(site), std::move(*codec), tensor);
  if (!weight)
    return Unexpected(weight.error());
  return std::optional(std::move(*weight));
}

Result<std::unique_ptr<StoredWeights>> formats::readFP8(const Json &config, std::string_view file) {
  auto weights = std::make_unique<FP8Weights>();
  if (auto read = weights->read(config, file); !read)
    return Unexpected(read.error());
  return std::unique_ptr<StoredWeights>(std::move(weights));
}
