//===- ModelConstants.cpp - Values of a model's constants -----------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "easyquant/Execution/ModelConstants.h"

#include "easyquant/Dialect/LM/IR/RopeTable.h"
#include "easyquant/Numerics/Rope.h"

#include <algorithm>

using namespace mlir;
using namespace easyquant;
using namespace easyquant::execution;
using ml_program::GlobalOp;

FailureOr<ModelConstants> ModelConstants::open(ModuleOp module) {
  FailureOr<equant::ConstantReader> reader = equant::ConstantReader::open(module);
  if (failed(reader))
    return failure();
  return ModelConstants(module, std::move(*reader));
}

LogicalResult ModelConstants::check() const {
  equant::ConstantMatcher matcher(module);
  ModuleOp model = module; // a handle whose methods are not const
  WalkResult walk = model.walk([&](ml_program::GlobalLoadConstOp load) {
    GlobalOp global = matcher.getExternGlobal(load);
    bool bad = global && failed(equant::checkGlobal(global, reader));
    return bad ? WalkResult::interrupt() : WalkResult::advance();
  });
  return failure(walk.wasInterrupted());
}

static Result<void> readRopeTable(GlobalOp global, DictionaryAttr attribute, std::span<float> out) {
  Result<numerics::RopeParams> params =
      lm::ropeParams(attribute, cast<RankedTensorType>(global.getType()));
  if (!params)
    return Unexpected(params.error());
  Result<std::vector<float>> table =
      numerics::ropeTable(*params, static_cast<int64_t>(out.size()) / params->dims);
  if (!table)
    return Unexpected(table.error());
  std::copy(table->begin(), table->end(), out.begin());
  return {};
}

LogicalResult ModelConstants::readRows(Value constant, StringRef name, int64_t first,
                                       std::span<float> out) const {
  // Methods declare globals as they go, so symbols are looked up anew.
  equant::ConstantMatcher matcher(module);
  Result<void> done;
  GlobalOp global = matcher.getExternGlobal(constant);
  auto rope = global ? global->getAttrOfType<DictionaryAttr>(lm::kRopeTableAttr) : nullptr;
  if (rope) {
    done = readRopeTable(global, rope, out);
  } else {
    FailureOr<equant::ConstantTensor> tensor = matcher.match(constant.getLoc(), name, constant);
    if (failed(tensor))
      return failure();
    done =
        reader.readRows(*tensor, first, static_cast<int64_t>(out.size()) / tensor->columns(), out);
  }
  if (!done)
    return emitError(constant.getLoc()) << "weight '" << name << "': " << done.error().message;
  return success();
}
