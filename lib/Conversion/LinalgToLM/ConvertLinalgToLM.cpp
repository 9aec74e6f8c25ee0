//===- ConvertLinalgToLM.cpp - Upstream ops to models ---------------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "MatchLlama.h"

#include "easyquant/Conversion/EquantToLinalg/CompiledModule.h"
#include "easyquant/Conversion/LinalgToLM/LinalgToLM.h"
#include "easyquant/Dialect/LM/IR/LM.h"
#include "easyquant/Export/HuggingFaceWriter.h"
#include "easyquant/Formats/ModelTensors.h"
#include "easyquant/Formats/ShardedSafetensors.h"
#include "easyquant/Import/ImportModel.h"
#include "easyquant/Support/StagedFolder.h"
#include "easyquant/Support/WriteFile.h"

#include "mlir/Dialect/MLProgram/IR/MLProgram.h"

#include <fmt/ranges.h>

namespace easyquant {
#define GEN_PASS_DEF_CONVERTLINALGTOLM
#include "easyquant/Conversion/LinalgToLM/Passes.h.inc"
} // namespace easyquant

using namespace mlir;
using namespace easyquant;
using formats::ExpectedTensor;

/// The values of a tensor of the model, N x K.
static Result<std::vector<float>> read(const FoundWeight &weight) {
  Result<std::vector<float>> values = weight.constant.read(ParameterFiles());
  if (!values || !weight.isTransposed)
    return values;
  const int64_t columns = weight.shape[0], rows = weight.shape[1];
  std::vector<float> turned(values->size());
  for (int64_t column = 0; column < columns; ++column)
    for (int64_t row = 0; row < rows; ++row)
      turned[row * columns + column] = (*values)[column * rows + row];
  return turned;
}

/// Do the shapes that were found fit one another?
static Result<void> checkShapes(const FoundModel &model, ArrayRef<ExpectedTensor> tensors) {
  for (const ExpectedTensor &tensor : tensors) {
    auto found = model.weights.find(tensor.name);
    SmallVector<int64_t, 2> shape = found->second.shape;
    if (found->second.isTransposed)
      std::swap(shape[0], shape[1]);
    if (ArrayRef<int64_t>(shape) != ArrayRef<int64_t>(tensor.shape))
      return makeError(ErrorCode::InvalidArgument, "{}: expected a constant of {}, found {}",
                       tensor.name, fmt::join(tensor.shape, "x"), fmt::join(shape, "x"));
  }
  return {};
}

static Result<void> writeModel(const FoundModel &model, const std::string &output) {
  const std::vector<ExpectedTensor> tensors = expectedTensors(model.config);
  if (Result<void> done = checkShapes(model, tensors); !done)
    return done;
  auto folder = StagedFolder::create(output, {false, "", "remove it or choose another output"});
  if (!folder)
    return Unexpected(folder.error());
  std::vector<formats::SafetensorsWriter::Tensor> declarations;
  for (const ExpectedTensor &tensor : tensors)
    declarations.push_back({tensor.name, "F32", tensor.shape});
  auto writer =
      formats::ShardedSafetensorsWriter::create(folder->path(), "model", std::move(declarations),
                                                formats::kDefaultShardBytes, {{"format", "pt"}});
  if (!writer)
    return Unexpected(writer.error());
  for (const ExpectedTensor &tensor : tensors) {
    Result<std::vector<float>> values = read(model.weights.at(tensor.name));
    if (!values)
      return makeError(values.error().code, "{}: {}", tensor.name, values.error().message);
    if (Result<void> done = writer->write(tensor.name, std::as_bytes(std::span(*values))); !done)
      return done;
  }
  if (Result<void> done = writer->finish(); !done)
    return done;
  const std::filesystem::path path = folder->path();
  if (Result<void> done =
          writeFile(path / "config.json", formats::huggingFaceConfigText(model.config));
      !done)
    return done;
  return folder->commit();
}

namespace {
struct ConvertLinalgToLM : easyquant::impl::ConvertLinalgToLMBase<ConvertLinalgToLM> {
  using ConvertLinalgToLMBase::ConvertLinalgToLMBase;

  void getDependentDialects(DialectRegistry &registry) const override {
    ConvertLinalgToLMBase::getDependentDialects(registry);
    CompiledModule::getDependentDialects(registry);
  }
  void runOnOperation() override {
    if (failed(convert()))
      signalPassFailure();
  }

private:
  InFlightDiagnostic fail() { return emitError(getOperation().getLoc()); }

  LogicalResult convert() {
    ModuleOp module = getOperation();
    if (output.empty())
      return fail() << "option output is missing: the folder of the model";
    if (longestContext < 0)
      return fail() << "option context: expected 0 or more, found " << longestContext;
    auto functions = llvm::to_vector(module.getOps<func::FuncOp>());
    if (functions.size() != 1 || functions.front().isExternal())
      return fail() << "expected one function, from tokens to logits; found " << functions.size()
                    << "; run inline and symbol-dce before";
    FailureOr<FoundModel> model = matchLlama(functions.front());
    if (failed(model))
      return failure();
    if (longestContext != 0)
      model->config.maxContext = longestContext;
    if (Result<void> written = writeModel(*model, output); !written)
      return fail() << written.error().message;
    Result<formats::ModelSource> source = formats::ModelSource::open(output.getValue());
    if (!source)
      return fail() << source.error().message;
    OwningOpRef<ModuleOp> imported = importModel(getContext(), *source);
    if (!imported)
      return failure();
    module->setAttrs((*imported)->getAttrDictionary());
    module.getBodyRegion().takeBody(imported->getBodyRegion());
    return success();
  }
};
} // namespace
