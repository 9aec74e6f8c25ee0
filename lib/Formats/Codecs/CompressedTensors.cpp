//===- CompressedTensors.cpp - The format compressed-tensors --------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// What vLLM's llm-compressor writes (compressed-tensors 0.20): one codec for each kind of scheme,
// by the rules by which the library itself infers them, and a group of the configuration for each
// scheme.
//
//===----------------------------------------------------------------------===//

#include "CompressedTensors.h"

#include <algorithm>
#include <map>

using namespace easyquant;
using namespace easyquant::formats;
using numerics::CodeFormat;
using numerics::Granularity;
using numerics::ScaleFormat;
using numerics::Scheme;

Result<void> formats::checkCompressedTensors(const Scheme &scheme, int64_t rows, int64_t columns) {
  if (auto ok = checkStoredWeight("compressed-tensors", scheme, rows, columns); !ok)
    return ok;
  if (scheme.codes == CodeFormat::Table)
    return makeError(ErrorCode::Unsupported,
                     "compressed-tensors holds integers, FP8 and FP4, found {}, a table of values; "
                     "take an integer scheme",
                     numerics::toString(scheme));
  if (scheme.scales == ScaleFormat::UI6)
    return makeError(ErrorCode::Unsupported,
                     "compressed-tensors holds scales of one level, found {}; take --scale-type "
                     "f16",
                     numerics::toString(scheme));
  return {};
}

namespace {

/// A codec and its name in configurations.
class CompressedTensorsFormat final : public CheckpointFormat {
public:
  CompressedTensorsFormat() : CheckpointFormat("compressed-tensors", /*isHalf=*/false) {}

  Result<std::unique_ptr<WeightCodec>> codecFor(const QuantizedSite &site) const override;
  std::vector<CodecTensor> inputTensors(const QuantizedSite &site) const override;
  Json configuration(std::span<const QuantizedSite> sites,
                     std::span<const std::string> floats) const override;
  bool holdsHead() const override { return true; }
};

} // namespace

NamedCodec formats::compressedTensorsCodec(const QuantizedSite &site) {
  switch (site.weight.codes) {
  case CodeFormat::F8E4M3FN:
    return {"float-quantized", floatQuantizedCodec};
  case CodeFormat::F4E2M1FN:
    if (site.weight.outer)
      return {"nvfp4-pack-quantized", nvfp4PackCodec};
    return {"mxfp4-pack-quantized", mxfp4PackCodec};
  case CodeFormat::Integer:
  case CodeFormat::Table: // which both refuse
    break;
  }
  if (site.input)
    return {"int-quantized", intQuantizedCodec};
  return {"pack-quantized", packQuantizedCodec};
}

/// Activations of the kinds that the configuration has words for.
static Result<void> checkInput(const Scheme &input) {
  if (input.sinks)
    return makeError(ErrorCode::Unsupported,
                     "compressed-tensors holds static activations with one scale for all tokens, "
                     "found {}; take --sinks none",
                     numerics::toString(input));
  if (input.codes == CodeFormat::Table)
    return makeError(ErrorCode::Unsupported, "compressed-tensors has no activations in {}",
                     numerics::toString(input));
  return {};
}

Result<std::unique_ptr<WeightCodec>>
CompressedTensorsFormat::codecFor(const QuantizedSite &site) const {
  if (site.input)
    if (auto ok = checkInput(*site.input); !ok)
      return Unexpected(ok.error());
  return compressedTensorsCodec(site).make(site.weight, site.rows, site.columns);
}

std::vector<CodecTensor> CompressedTensorsFormat::inputTensors(const QuantizedSite &site) const {
  if (!site.input || (site.input->dynamic && !site.input->outer))
    return {};
  auto scale = [](const char *name, float value) {
    CodecTensor tensor{name, DType::F32, {1}};
    tensor.constant.resize(4);
    numerics::storeScale(tensor.constant.data(), 0, value, ScaleFormat::F32);
    return tensor;
  };
  if (site.input->outer)
    return {scale("input_global_scale", 1 / site.inputScale)};
  std::vector<CodecTensor> tensors = {scale("input_scale", site.inputScale)};
  if (!site.input->symmetric)
    tensors.push_back({"input_zero_point",
                       DType::I8,
                       {1},
                       {},
                       {static_cast<uint8_t>(static_cast<int8_t>(site.inputZeroPoint))}});
  return tensors;
}

/// Members of a group that weights and activations have. The library refuses any that it does not
/// know.
static Json::Object describeArguments(const Scheme &scheme) {
  Json::Object json = {{"num_bits", scheme.bits},
                       {"type", scheme.isInteger() ? "int" : "float"},
                       {"symmetric", scheme.symmetric},
                       {"dynamic", scheme.dynamic}};
  const char *strategy = "";
  switch (scheme.granularity) {
  case Granularity::Tensor:
    strategy = "tensor";
    break;
  case Granularity::Channel:
    strategy = "channel";
    break;
  case Granularity::Group:
    strategy = "group";
    break;
  case Granularity::Token:
    strategy = scheme.groupSize ? "group" : "token";
    break;
  }
  json["strategy"] = strategy;
  if (scheme.groupSize)
    json["group_size"] = scheme.groupSize;
  if (scheme.codes == CodeFormat::F4E2M1FN && scheme.outer) {
    json["strategy"] = "tensor_group";
    json["scale_dtype"] = "torch.float8_e4m3fn";
    if (scheme.granularity != Granularity::Group || scheme.dynamic)
      json["dynamic"] = "local"; // the outer scale is static
  } else if (scheme.codes == CodeFormat::F4E2M1FN) {
    json["scale_dtype"] = "torch.uint8";
  }
  return json;
}

/// What the configuration says of a site whose weight is in another basis, as if it were not.
static QuantizedSite inPlainBasis(QuantizedSite site) {
  site.weight.hadamard = 0;
  if (site.input)
    site.input->hadamard = 0;
  return site;
}

/// Rotations of what linears read, one for each block of columns; null if there are none. The
/// library's matrix is that of Numerics/Hadamard.h. Its weights are in the file as they are in that
/// basis, and `weight_input` says so.
static Json transforms(std::span<const QuantizedSite> sites) {
  std::map<int64_t, Json::Array> rotated;
  for (const QuantizedSite &site : sites)
    if (site.rotatesInput)
      rotated[site.weight.hadamard].push_back(site.name);
  Json::Object groups;
  for (const auto &[block, targets] : rotated)
    groups["hadamard_" + std::to_string(block)] = Json::Object{
        {"type", "hadamard"},
        {"head_dim", block},
        {"apply",
         Json::Array{
             Json::Object{{"targets", targets}, {"location", "input"}},
             Json::Object{{"targets", targets}, {"location", "weight_input"}, {"inverse", true}}}}};
  return groups.empty() ? Json() : Json(Json::Object{{"config_groups", std::move(groups)}});
}

Json CompressedTensorsFormat::configuration(std::span<const QuantizedSite> sites,
                                            std::span<const std::string> floats) const {
  struct Group {
    QuantizedSite first;
    Json::Array targets;
  };
  std::vector<Group> groups;
  for (const QuantizedSite &site : sites) {
    const QuantizedSite plain = inPlainBasis(site);
    auto known = std::ranges::find_if(groups, [&](const Group &group) {
      return group.first.weight == plain.weight && group.first.input == plain.input;
    });
    if (known == groups.end())
      known = groups.insert(known, {plain, {}});
    known->targets.push_back(site.name);
  }
  Json::Object configured;
  std::string common;
  for (size_t i = 0; i < groups.size(); ++i) {
    const QuantizedSite &site = groups[i].first;
    const std::string codec = compressedTensorsCodec(site).name;
    common = common.empty() || common == codec ? codec : "mixed-precision";
    // A single scheme is that of all linears but those that are ignored.
    configured["group_" + std::to_string(i)] = Json::Object{
        {"targets", groups.size() == 1 ? Json::Array{"Linear"} : std::move(groups[i].targets)},
        {"weights", describeArguments(site.weight)},
        {"input_activations", site.input ? Json(describeArguments(*site.input)) : Json()},
        {"output_activations", nullptr},
        {"format", codec}};
  }
  Json::Object config = {{"quant_method", name},
                         {"format", common},
                         {"quantization_status", "compressed"},
                         {"config_groups", std::move(configured)},
                         {"ignore", Json::Array(floats.begin(), floats.end())},
                         {"kv_cache_scheme", nullptr},
                         {"global_compression_ratio", nullptr}};
  if (Json rotations = transforms(sites); !rotations.isNull())
    config["transform_config"] = std::move(rotations);
  return config;
}

const CheckpointFormat *formats::compressedTensorsFormat() {
  static const CompressedTensorsFormat format;
  return &format;
}
