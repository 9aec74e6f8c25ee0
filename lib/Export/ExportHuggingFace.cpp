//===- ExportHuggingFace.cpp - lm IR to Hugging Face folders --------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "easyquant/Export/ExportHuggingFace.h"

#include "easyquant/Dialect/LM/IR/LM.h"
#include "easyquant/Export/HuggingFaceWriter.h"
#include "easyquant/Import/ImportModel.h"

#include "mlir/Dialect/MLProgram/IR/MLProgram.h"

using namespace mlir;
using namespace easyquant;

/// Whether the global is a weight of the source, as the source has it.
static LogicalResult checkWeight(ml_program::GlobalOp global, const formats::ModelSource &source) {
  if (global->hasAttr("equant.offset"))
    return global.emitError() << "the weight '" << global.getSymName()
                              << "' is quantized; export the module as imported";
  const formats::ModelTensor *tensor = source.find(global.getSymName().str());
  if (!tensor)
    return global.emitError() << source.path().string() << " has no weight '" << global.getSymName()
                              << "'";
  auto expected = RankedTensorType::get(tensor->shape, Float32Type::get(global.getContext()));
  if (global.getType() != expected)
    return global.emitError() << "the weight '" << global.getSymName() << "' has the type "
                              << global.getType() << ", in " << source.path().string() << " it is "
                              << expected;
  return success();
}

LogicalResult easyquant::exportHuggingFace(ModuleOp module, StringRef folder) {
  auto path = module->getAttrOfType<StringAttr>(lm::kSourceAttr);
  if (!path)
    return module.emitError() << "the module has no attribute '" << lm::kSourceAttr
                              << "' with the path of its weights; import a model first";
  if (module->hasAttr(lm::kAssistantAttr))
    return module.emitError() << "a checkpoint has no place for the assistant of another one; "
                                 "import the model without --assistant";
  Result<formats::ModelSource> source = formats::ModelSource::open(path.str());
  if (!source)
    return module.emitError() << source.error().message;
  size_t count = 0;
  for (auto global : module.getOps<ml_program::GlobalOp>()) {
    if (global->hasAttr(lm::kRopeTableAttr))
      continue;
    if (failed(checkWeight(global, *source)))
      return failure();
    ++count;
  }
  if (count != source->tensors().size())
    return module.emitError() << "the module has " << count << " weights, " << path.getValue()
                              << " has " << source->tensors().size();
  if (Result<void> written = formats::writeHuggingFace(*source, folder.str()); !written)
    return module.emitError() << written.error().message;
  return success();
}
