//===- BindWeights.cpp - Where upstream programs find weights -------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "easyquant/Conversion/EquantToLinalg/EquantToLinalg.h"

#include "easyquant/Dialect/Equant/IR/Equant.h"
#include "easyquant/Formats/Safetensors.h"
#include "easyquant/Support/DidYouMean.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/MLProgram/IR/MLProgram.h"

#include <fmt/ranges.h>

namespace easyquant {
#define GEN_PASS_DEF_BINDWEIGHTS
#include "easyquant/Conversion/EquantToLinalg/Passes.h.inc"
} // namespace easyquant

using namespace mlir;
using namespace easyquant;
using ml_program::GlobalLoadConstOp;
using ml_program::GlobalOp;

namespace {
struct BindWeights : easyquant::impl::BindWeightsBase<BindWeights> {
  using BindWeightsBase::BindWeightsBase;

  /// Before any pass of the pipeline runs, and writes anything.
  LogicalResult initialize(MLIRContext *context) override;
  void runOnOperation() override {
    if (failed(run()))
      signalPassFailure();
  }

private:
  using Loads = SmallVector<GlobalLoadConstOp>;

  LogicalResult run();
  LogicalResult collect();
  LogicalResult bindArguments();
  LogicalResult bindConstants();
  LogicalResult bindParameters();
  /// Puts what `make` builds in the place of each load.
  void replace(Loads &loads, llvm::function_ref<Value(OpBuilder &, GlobalLoadConstOp)> make);

  /// External globals in their order, with their loads.
  llvm::MapVector<GlobalOp, Loads> globals;
};
} // namespace

LogicalResult BindWeights::collect() {
  ModuleOp module = getOperation();
  globals.clear();
  for (auto global : module.getOps<GlobalOp>())
    if (isa_and_nonnull<ml_program::ExternAttr>(global.getValueAttr())) {
      if (!isa<RankedTensorType>(global.getType()))
        return global.emitOpError("expected a tensor, found ")
               << global.getType() << "; run convert-equant-to-linalg before";
      globals[global];
    }
  SymbolTable symbols(module);
  module.walk([&](GlobalLoadConstOp load) {
    auto global = symbols.lookup<GlobalOp>(load.getGlobal().getLeafReference());
    if (auto *found = globals.find(global); global && found != globals.end())
      found->second.push_back(load);
  });
  return success();
}

void BindWeights::replace(Loads &loads,
                          llvm::function_ref<Value(OpBuilder &, GlobalLoadConstOp)> make) {
  for (GlobalLoadConstOp load : loads) {
    OpBuilder builder(load);
    load.replaceAllUsesWith(make(builder, load));
    load.erase();
  }
}

LogicalResult BindWeights::bindArguments() {
  for (auto &[global, loads] : globals)
    for (GlobalLoadConstOp load : loads) {
      auto function = load->getParentOfType<func::FuncOp>();
      if (!function || !SymbolTable::symbolKnownUseEmpty(function, getOperation()))
        return load.emitOpError("is in no function, or in one that another calls; expected layers "
                                "in the place of their calls: run inline first");
    }
  for (auto &[global, loads] : globals) {
    llvm::DenseMap<func::FuncOp, Value> arguments;
    Builder attributes(&getContext());
    const NamedAttribute name(kTensorAttr, global.getSymNameAttr());
    replace(loads, [&](OpBuilder &, GlobalLoadConstOp load) {
      auto function = load->getParentOfType<func::FuncOp>();
      Value &argument = arguments[function];
      if (!argument) {
        const unsigned index = function.getNumArguments();
        (void)function.insertArgument(index, load.getType(), attributes.getDictionaryAttr(name),
                                      global.getLoc());
        argument = function.getArgument(index);
      }
      return argument;
    });
  }
  return success();
}

static std::string namesOf(const formats::SafetensorsFile &file, StringRef name) {
  std::vector<std::string> known;
  for (const formats::SafetensorsTensor &tensor : file.tensors())
    known.push_back(tensor.name);
  return didYouMean(name.str(), known);
}

/// The type of the tensor in the file; null for elements that the conversion makes none of.
static RankedTensorType typeOf(MLIRContext *context, const formats::SafetensorsTensor &tensor) {
  Builder b(context);
  switch (tensor.dtype) {
  case formats::DType::I8:
    return RankedTensorType::get(tensor.shape, b.getI8Type());
  case formats::DType::I32: // orders of columns
    return RankedTensorType::get(tensor.shape, b.getI32Type());
  case formats::DType::F32:
    return RankedTensorType::get(tensor.shape, b.getF32Type());
  default:
    return {};
  }
}

LogicalResult BindWeights::bindConstants() {
  ModuleOp module = getOperation();
  if (file.empty())
    return module.emitError() << "option file is missing: the safetensors file of the constants";
  auto opened = formats::SafetensorsFile::open(file.getValue());
  if (!opened)
    return module.emitError() << opened.error().message;
  for (auto &[global, loads] : globals) {
    const formats::SafetensorsTensor *tensor = opened->find(std::string_view(global.getSymName()));
    if (!tensor)
      return global.emitOpError("names no tensor of ")
             << file << namesOf(*opened, global.getSymName());
    auto type = cast<RankedTensorType>(global.getType());
    if (typeOf(&getContext(), *tensor) != type)
      return global.emitOpError("is ") << type << ", but in " << file << " it is "
                                       << std::string(formats::dtypeName(tensor->dtype)) << " of "
                                       << fmt::format("{}", fmt::join(tensor->shape, "x"));
    auto bytes = opened->data(*tensor);
    auto value = DenseElementsAttr::getFromRawBuffer(
        type, ArrayRef(reinterpret_cast<const char *>(bytes.data()), bytes.size()));
    replace(loads, [&](OpBuilder &builder, GlobalLoadConstOp load) -> Value {
      return arith::ConstantOp::create(builder, load.getLoc(), type, value);
    });
  }
  return success();
}

LogicalResult BindWeights::bindParameters() {
  MLIRContext *context = &getContext();
  for (auto &[global, loads] : globals)
    replace(loads, [&](OpBuilder &builder, GlobalLoadConstOp load) {
      std::string text;
      llvm::raw_string_ostream stream(text);
      stream << "parameter.named<\"model\"::\"";
      llvm::printEscapedString(global.getSymName(), stream);
      stream << "\">";
      OperationState state(load.getLoc(), "flow.tensor.constant");
      state.addAttribute("value",
                         OpaqueAttr::get(StringAttr::get(context, "flow"), text, load.getType()));
      state.addTypes(load.getType());
      return builder.create(state)->getResult(0);
    });
  return success();
}

void easyquant::dropModelAttributes(ModuleOp module) {
  for (NamedAttribute attribute : llvm::to_vector(module->getDiscardableAttrs()))
    if (isa_and_nonnull<equant::EquantDialect, lm::LMDialect>(attribute.getNameDialect()))
      module->removeAttr(attribute.getName());
}

LogicalResult BindWeights::initialize(MLIRContext *context) {
  if (!llvm::is_contained({"arguments", "constants", "iree"}, weights.getValue()))
    return emitError(UnknownLoc::get(context))
           << "unknown value '" << weights
           << "' of option weights; expected arguments, constants or iree";
  if (weights == "iree" && !context->allowsUnregisteredDialects())
    return emitError(UnknownLoc::get(context)) << "weights=iree writes ops of IREE, whose dialects "
                                                  "are unknown here; run easyquant-opt with "
                                                  "--allow-unregistered-dialect";
  return success();
}

LogicalResult BindWeights::run() {
  ModuleOp module = getOperation();
  if (failed(collect()) || failed(weights == "arguments"   ? bindArguments()
                                  : weights == "constants" ? bindConstants()
                                                           : bindParameters()))
    return failure();
  for (auto &[global, loads] : globals)
    global.erase();
  dropModelAttributes(module);
  return success();
}
