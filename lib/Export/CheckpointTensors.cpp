//===- CheckpointTensors.cpp - What a checkpoint is made of ---------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "CheckpointTensors.h"

#include "easyquant/Export/ExportCheckpoint.h"

#include "llvm/ADT/SetVector.h"

using namespace mlir;
using namespace easyquant;
using namespace easyquant::equant;

/// Is the weight all of one tensor, as it is before linears are fused and shared out?
static bool isWhole(const ConstantWeight &weight) {
  const WeightPart &part = weight.parts.front();
  return weight.parts.size() == 1 && !part.weight.isPart() && part.firstRow == 0 &&
         part.rows == part.weight.shape.front() && part.hasAllColumns();
}

bool easyquant::isKept(const ConstantWeight &weight) {
  return llvm::all_of(weight.parts,
                      [](const WeightPart &part) { return part.codes && part.codes->isStored; });
}

LogicalResult Checkpoint::collectSite(const WeightUse &use) {
  const std::string &name = use.weight->parts.front().site;
  auto fail = [&] { return emitError(use.op->getLoc()) << "site '" << name << "': "; };
  auto linear = dyn_cast<equant::LinearOp>(use.op);
  if (!linear && !format.isGGUF())
    return fail() << whyNoEmbedding(format);
  if (!isWhole(*use.weight))
    return fail() << "its weight is not all of one tensor of the checkpoint; export before linears "
                     "are fused or sharded";
  // Names of sites are those of modules, but for a head that is tied to the embedding.
  const std::string tensor =
      format.isGGUF() ? use.weight->parts.front().weight.global : name + ".weight";
  if (const StoredSite *known = siteOf.lookup(tensor))
    return format.isGGUF() && known->weight == use.weight
               ? success()
               : LogicalResult(fail() << "another site has the tensor '" << tensor << "', too");
  auto stored =
      checkpointSite(format, name, use.weight->rows, use.weight->columns, use.weight->scheme,
                     linear ? linear.getInputSchemeAttr() : nullptr, isKept(*use.weight));
  if (!stored)
    return fail() << stored.error().message;
  if (FloatAttr scale = linear ? linear.getInputScaleAttr() : nullptr)
    stored->site.inputScale = scale.getValue().convertToFloat();
  if (IntegerAttr zeroPoint = linear ? linear.getInputZeroPointAttr() : nullptr)
    stored->site.inputZeroPoint = static_cast<int32_t>(zeroPoint.getInt());
  // Where the basis of attention's output is folded into its values, nothing is rotated online.
  stored->site.rotatesInput =
      stored->site.weight.hadamard != 0 && linear.getInput().getDefiningOp<HadamardOp>();
  described.push_back(stored->site);
  sites.push_back({std::move(*stored), use.weight, use.op->getLoc(), tensor});
  siteOf[tensor] = &sites.back();
  return success();
}

LogicalResult Checkpoint::collectFloat(const FloatConstant &constant) {
  if (constant.rope)
    return success();
  const ConstantTensor &part = constant.parts.front();
  if (constant.parts.size() == 1 && floatOf.try_emplace(part.global, &constant).second)
    return success();
  return emitError(constant.loc) << "site '" << constant.site << "': it reads '" << part.global
                                 << "' otherwise than another site does, and a checkpoint holds it "
                                    "once";
}

/// Is the tensor a number that is an attribute of an op in the module?
static bool isNumber(const formats::ExpectedTensor &tensor,
                     const formats::Architecture &architecture) {
  const char *scalar = architecture.layer.scalar.name;
  return scalar && tensor.name.ends_with(scalar);
}

LogicalResult Checkpoint::collectTensor(ModuleOp module, const formats::ExpectedTensor &expected,
                                        const formats::Architecture &architecture) {
  CheckpointTensor tensor{.name = expected.name, .shape = expected.shape};
  tensor.offset = expected.offset;
  if (const StoredSite *site = siteOf.lookup(expected.name)) {
    tensor.site = site;
    siteOf.erase(expected.name);
  } else if (const FloatConstant *constant = floatOf.lookup(expected.name)) {
    tensor.floats = &constant->parts.front();
    if (tensor.floats->shape != expected.shape)
      return emitError(constant->loc)
             << "site '" << constant->site << "': the module reads a part of '" << expected.name
             << "'; import the model with its own context";
  } else if (isNumber(expected, architecture)) {
    ConstantTensor &number = numbers.emplace_back();
    number.global = expected.name;
    number.stored.assign(expected.shape.begin(), expected.shape.end());
    number.first.assign(expected.shape.size(), 0);
    number.shape = number.stored;
    tensor.floats = &number;
  } else {
    return module.emitError() << "nothing in the module reads the tensor '" << expected.name
                              << "' of the checkpoint";
  }
  tensors.push_back(std::move(tensor));
  return success();
}

/// What no site by itself shows.
LogicalResult Checkpoint::checkSites(ModuleOp module) {
  if (sites.empty())
    return module.emitError() << "no site is quantized; a scheme other than none makes a "
                              << format.name << " checkpoint of the model";
  for (const StoredSite &site : sites)
    if (siteOf.contains(site.tensor))
      return emitError(site.loc) << "site '" << site.name()
                                 << "': the model's checkpoint has no weight of this name; where "
                                    "it is tied to the embedding, take --head float";
  if (auto ok = format.checkTogether(described); !ok)
    return module.emitError() << ok.error().message;
  return success();
}

LogicalResult Checkpoint::collect(ModuleOp module, const ConstantReader &reader) {
  const formats::ModelSource &source = reader.source();
  if (std::string reason = whyNotExportable(source.config(), format); !reason.empty())
    return module.emitError() << reason;
  if (failed(weights.collect(module, /*rank=*/0)) || failed(weights.check(module, reader)))
    return failure();
  for (const WeightUse &use : weights.uses())
    if (failed(collectSite(use)))
      return failure();
  for (const FloatConstant &constant : weights.floats())
    if (failed(collectFloat(constant)))
      return failure();
  llvm::SetVector<StringRef> sites; // a head that drafts has the model's output head, too
  module.walk([&](QuantizableOpInterface op) { sites.insert(op.getSite()); });
  for (StringRef site : sites)
    floatSites.push_back(site.str());
  for (const formats::ExpectedTensor &expected : formats::expectedTensors(source.config()))
    if (failed(collectTensor(module, expected, *source.config().architecture)))
      return failure();
  if (failed(checkSites(module)))
    return failure();
  auto any = [&](auto is) { return llvm::any_of(described, is); };
  if (any([](const formats::QuantizedSite &site) { return site.rotatesInput; }))
    emitRemark(module.getLoc())
        << "the checkpoint is in a rotated basis: clients have to heed its "
           "transform_config, as vLLM does; transformers 5.24 does not, and "
           "computes something else";
  const bool isHalf = format.isHalf || any([](const formats::QuantizedSite &site) {
                        return site.weight.scales == numerics::ScaleFormat::F16;
                      });
  // The library of compressed-tensors makes bf16 of FP4 in any model.
  const bool hasFP4 = any([](const formats::QuantizedSite &site) {
    return site.weight.codes == numerics::CodeFormat::F4E2M1FN;
  });
  if (!isHalf && (hasFP4 || source.storedTypes().contains("BF16")))
    floats = formats::DType::BF16;
  return success();
}

std::string easyquant::whyNotExportable(const formats::ModelConfig &config,
                                        const formats::CheckpointFormat &format) {
  if (config.experts != 0 && !format.isGGUF())
    return fmt::format("models of the architecture {} have mixtures of experts, which are not "
                       "exported as {} yet; compile an artifact instead",
                       config.architecture->name, format.name);
  const formats::LayerKinds kinds = config.architecture->layerKinds;
  if (kinds != formats::LayerKinds::Attention && !format.isGGUF())
    return fmt::format("models of the architecture {} have {}, which {} checkpoints are not "
                       "written with yet; compile an artifact instead",
                       config.architecture->name,
                       kinds == formats::LayerKinds::Convolution ? "short convolutions"
                                                                 : "gated delta nets",
                       format.name);
  if (!config.architecture->conv1D || format.isGGUF() || format.isGraph())
    return {};
  return fmt::format("models of the architecture {} keep the weights of their linears transposed "
                     "(Conv1D), which clients of {} checkpoints do not read; compile an artifact "
                     "instead",
                     config.architecture->name, format.name);
}
