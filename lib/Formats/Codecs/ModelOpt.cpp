//===- ModelOpt.cpp - Reading what NVIDIA ModelOpt exports ----------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// `quant_method` modelopt of a config.json, or hf_quant_config.json beside it, of `quant_algo`
// NVFP4:
//
//   weight          U8 [N, K/2]        two codes of FP4 a byte, the first one in the lower nibble
//   weight_scale    F8_E4M3 [N, K/16]
//   weight_scale_2  F32 [1]            what scales are multiplied with
//   input_scale     F32 [1]            the same of the activations, in groups of 16
//
// and of FP8, with one scale of the tensor and static activations.
//
//===----------------------------------------------------------------------===//

#include "CompressedTensors.h"
#include "StoredFormats.h"

using namespace easyquant;
using namespace easyquant::formats;
using numerics::CodeFormat;
using numerics::Granularity;
using numerics::ScaleFormat;
using numerics::Scheme;
using numerics::WeightTensor;

namespace {

constexpr int64_t kModelOptGroup = 16;
constexpr const char *kSecondScale = "weight_scale_2";

class NVFP4Reader final : public WeightReader {
public:
  using WeightReader::WeightReader;

  std::vector<CodecTensor> tensors() const override {
    return {{"weight", DType::U8, {rows, columns / 2}, WeightTensor::Codes},
            {"weight_scale", DType::F8E4M3, {rows, groups()}, WeightTensor::Scales},
            {kSecondScale, DType::F32, {1}, WeightTensor::Outer}};
  }

protected:
  void unpackRows(int64_t firstRow, const StoredParts &stored,
                  numerics::QuantizedMatrix &block) const override {
    unpackFP4(scheme, firstRow, stored,
              numerics::loadScale(stored[WeightTensor::Outer], 0, ScaleFormat::F32), block);
  }
};

class ModelOptWeights final : public StoredWeights {
public:
  Result<void> read(const Json &config, std::string_view file);
  Result<std::optional<StoredWeight>> find(const std::string &name, int64_t rows, int64_t columns,
                                           const TensorFinder &tensor) const override;
  std::span<const std::string_view> tensorNames() const override {
    static constexpr std::string_view names[] = {"weight_scale", kSecondScale, "input_scale",
                                                 "k_scale", "v_scale"};
    return names;
  }

private:
  bool isFP4 = true;
};

} // namespace

Result<void> ModelOptWeights::read(const Json &config, std::string_view file) {
  const std::string place = fmt::format("{}: quantization_config", file);
  FieldReader fields(config, place, {.nullIsAbsent = true});
  std::string algorithm;
  int64_t groupSize = kModelOptGroup;
  fields.required("quant_algo", algorithm);
  fields.optional("group_size", groupSize, Bounds{kModelOptGroup, kModelOptGroup});
  if (!fields.failed() && algorithm != "NVFP4" && algorithm != "FP8")
    fields.failInWords(ErrorCode::Unsupported,
                       "quant_algo {} is not supported; expected \"NVFP4\" or \"FP8\"",
                       Json::describe(algorithm));
  isFP4 = algorithm == "NVFP4";
  if (fields.has("kv_cache_quant_algo") || fields.has("kv_cache_scheme"))
    notes.emplace_back("quantization_config has a format of the KV cache, which is not taken: the "
                       "cache is what --kv-scheme says");
  return fields.result();
}

Result<std::optional<StoredWeight>> ModelOptWeights::find(const std::string &name, int64_t rows,
                                                          int64_t columns,
                                                          const TensorFinder &tensor) const {
  const auto scales = tensor("weight_scale");
  if (!scales) {
    for (const char *beside : {kSecondScale, "input_scale"})
      if (tensor(beside))
        return makeError(ErrorCode::NotFound, "tensor '{}.weight_scale' is missing", name);
    return std::nullopt;
  }
  if (!isFP4) {
    auto type = scalesOfType(name, "weight_scale", scales->typeName);
    if (!type)
      return Unexpected(type.error());
    return tensorFP8(name, rows, columns, *type, /*isStatic=*/true, tensor);
  }
  if (columns % kModelOptGroup != 0)
    return makeError(ErrorCode::Unsupported,
                     "site '{}': NVFP4 holds whole groups: {} columns are no multiple of {}", name,
                     columns, kModelOptGroup);
  QuantizedSite site{.name = name,
                     .rows = rows,
                     .columns = columns,
                     .weight = {.bits = 4,
                                .granularity = Granularity::Group,
                                .groupSize = kModelOptGroup,
                                .codes = CodeFormat::F4E2M1FN,
                                .scales = ScaleFormat::F8E4M3FN,
                                .outer = true}};
  site.input = site.weight;
  site.input->dynamic = true; // of groups, in units of a static scale
  auto outer = readNumber(name, kSecondScale, tensor);
  if (!outer)
    return Unexpected(outer.error());
  auto inputScale = readNumber(name, "input_scale", tensor);
  if (!inputScale)
    return Unexpected(inputScale.error());
  site.inputScale = static_cast<float>(*inputScale);
  auto codec = std::make_unique<NVFP4Reader>(site.weight, rows, columns);
  auto weight = StoredWeight::open(std::move(site), std::move(codec), tensor);
  if (!weight)
    return Unexpected(weight.error());
  return std::optional(std::move(*weight));
}

Result<std::unique_ptr<StoredWeights>> formats::readModelOpt(const Json &config,
                                                             std::string_view file) {
  auto weights = std::make_unique<ModelOptWeights>();
  if (auto read = weights->read(config, file); !read)
    return Unexpected(read.error());
  return std::unique_ptr<StoredWeights>(std::move(weights));
}
