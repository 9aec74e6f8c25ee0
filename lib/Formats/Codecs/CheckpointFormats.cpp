//===- CheckpointFormats.cpp - The formats that there are -----------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "CheckpointFormats.h"

#include <algorithm>

using namespace easyquant;
using namespace easyquant::formats;

CheckpointFormat::~CheckpointFormat() = default;

std::span<const CheckpointFormat *const> formats::checkpointFormats() {
  static const CheckpointFormat *const all[] = {compressedTensorsFormat(),
                                                gptqFormat(1),
                                                gptqFormat(2),
                                                awqFormat(),
                                                ggufFormat(),
                                                onnxFormat()};
  return all;
}

Result<const CheckpointFormat *> formats::findCheckpointFormat(std::string_view name) {
  const auto all = checkpointFormats();
  if (auto found = std::ranges::find(all, name, &CheckpointFormat::name); found != all.end())
    return *found;
  std::string names;
  for (const CheckpointFormat *format : all)
    names += (names.empty() ? "" : ", ") + format->name;
  return makeError(ErrorCode::InvalidArgument,
                   "there is no format '{}' of checkpoints; expected {}", name, names);
}

Result<void> formats::checkWeightOnly(std::string_view format, const QuantizedSite &site) {
  if (site.input)
    return makeError(ErrorCode::Unsupported,
                     "{} holds quantized weights beside float activations, found activations in "
                     "{}; take a scheme of float activations, such as W4A16, or compressed-tensors",
                     format, numerics::toString(*site.input));
  if (site.weight.hadamard != 0)
    return makeError(
        ErrorCode::Unsupported,
        "{} holds weights in the plain basis, found {}; take --activation-basis plain, "
        "or compressed-tensors",
        format, numerics::toString(site.weight));
  return {};
}

Result<void> formats::checkHalfScales(std::string_view format, const QuantizedSite &site) {
  if (site.weight.scales == numerics::ScaleFormat::F16)
    return {};
  return makeError(ErrorCode::Unsupported, "{} holds f16 scales, found {}; take --scale-type f16",
                   format, numerics::toString(site.weight));
}
