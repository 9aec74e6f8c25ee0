//===- ExportOptions.cpp - Options of an exported checkpoint --------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "ExportOptions.h"

#include "easyquant/Export/ExportCheckpoint.h"
#include "easyquant/Formats/Codecs/CheckpointFormat.h"
#include "easyquant/Formats/ModelTensors.h"
#include "easyquant/Pipelines/Compile.h"
#include "easyquant/Recipe/Mixes.h"
#include "easyquant/Recipe/Presets.h"

#include <algorithm>

using namespace easyquant;
using recipe::OptionInfo;
using recipe::OptionValues;
namespace option = easyquant::recipe::option;

std::optional<std::string> easyquant::checkExport(const OptionValues &options) {
  if (!options.has(option::exportFormat))
    return options.has(option::opset)
               ? std::optional<std::string>("--opset is an option of --export onnx; leave it out")
               : std::nullopt;
  const std::string &format = options[option::exportFormat];
  auto ofArtifacts = [&](const OptionInfo &info) {
    return "--" + std::string(info.flag) + " is an option of artifacts, and --export " + format +
           " writes a checkpoint; leave one of the two out";
  };
  for (const OptionInfo *info :
       {&option::targetNames.info(), &option::isas.info(), &option::context.info(),
        &option::tensorParallel.info(), &option::force.info(), &option::kvCache.info()})
    if (options.has(*info))
      return ofArtifacts(*info);
  if (options.has(option::opset) && format != "onnx")
    return "--opset is an option of --export onnx, and " + format +
           " has no operators; leave it out";
  if (options.get(option::kvScheme).value_or("none") != "none")
    return ofArtifacts(option::kvScheme.info());
  if (std::string last = options.get(option::emitIRAfter).value_or("");
      last == "materialize" || last == "kernels")
    return "--emit-ir-after " + last + ": with --export there is no such phase; expected import " +
           "or quantize";
  return std::nullopt;
}

void easyquant::takeExportDefaults(OptionValues &options) {
  if (!options.has(option::exportFormat) || options.has(option::recipe))
    return;
  auto take = [&](auto key, const char *value) {
    if (!options.has(key))
      options.set(key, std::string(value));
  };
  const auto format = formats::findCheckpointFormat(options[option::exportFormat]);
  const bool isGGUF = format && (*format)->isGGUF();
  take(option::scheme, isGGUF ? "Q4_0" : "W4A16");
  take(option::activationBasis, "plain");
  const bool isKept = recipe::SiteRequest{{}, options}.isKept();
  take(option::head, !isGGUF ? "float" : isKept ? "keep" : "Q8_0");
  if (recipe::findMix(options[option::scheme]))
    take(option::activations, "float");
  else if (options[option::activations] == "static")
    take(option::sinks, "none");
  const auto preset = recipe::findPreset(options[option::scheme]);
  // Beside float activations clients take scales into the type of the model, f16.
  const bool isHalf = format && preset && !(*format)->isGraph() &&
                      ((*format)->isHalf || preset->input == recipe::InputCodes::None);
  if (isHalf && preset->isInteger() && !preset->isFloat() && !preset->scales)
    take(option::scaleType, "f16");
}

/// The columns of the linears in layers, whose weights are in groups.
static std::vector<int64_t> columnsOfLinears(const formats::ModelConfig &config) {
  std::vector<int64_t> columns;
  for (const formats::ExpectedTensor &tensor : formats::expectedTensors(config))
    if (tensor.shape.size() == 2 &&
        llvm::StringRef(tensor.name).starts_with(config.architecture->layerPrefix))
      columns.push_back(tensor.shape[1]);
  return columns;
}

std::optional<std::string> easyquant::fitExport(OptionValues &options,
                                                const formats::ModelConfig &config) {
  if (!options.has(option::exportFormat))
    return std::nullopt;
  const auto format = formats::findCheckpointFormat(options[option::exportFormat]);
  if (!format)
    return format.error().message;
  if (std::string reason = whyNotExportable(config, **format); !reason.empty())
    return reason;
  if (options.has(option::recipe))
    return std::nullopt;
  const bool isMix = recipe::findMix(options[option::scheme]);
  // Mixes have a format for the embedding, too; one that is tied has that of the head.
  if (isMix && !config.tieWordEmbeddings) {
    std::vector<std::string> ignored = options[option::ignore];
    ignored.push_back(config.architecture->embedding.name);
    options.set(option::ignore, std::move(ignored));
  }
  const auto method = recipe::parseMethod(options[option::method], options[option::scheme]);
  const auto preset = recipe::findPreset(options[option::scheme]);
  if (options.has(option::groupSize) || !method || (preset && preset->groupSize) ||
      (!isMix && recipe::SiteRequest{*method, options}.groupSize() == 0))
    return std::nullopt;
  const std::vector<int64_t> columns = columnsOfLinears(config);
  for (int64_t size : {128, 64, 32, 16, 8})
    if (std::ranges::all_of(columns, [&](int64_t count) { return count % size == 0; })) {
      // The groups of a mix are of 64 and 128 columns.
      if (!isMix || size < 128)
        options.set(option::groupSize, size);
      break;
    }
  return std::nullopt;
}
