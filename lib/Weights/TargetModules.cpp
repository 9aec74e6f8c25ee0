//===- TargetModules.cpp - A module for each kind of target ---------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "easyquant/Weights/TargetModules.h"

#include "mlir/IR/Builders.h"

using namespace mlir;
using namespace easyquant::equant;

StringRef easyquant::equant::targetName(Target target) {
  return target == Target::CPU ? "cpu" : "gpu";
}

std::optional<Target> easyquant::equant::findTarget(StringRef name) {
  for (Target target : {Target::CPU, Target::GPU})
    if (name == targetName(target))
      return target;
  return std::nullopt;
}

SmallVector<ModuleOp> easyquant::equant::splitTargets(ModuleOp module, ArrayRef<Target> targets) {
  Builder attributes(module.getContext());
  SmallVector<ModuleOp> modules;
  if (targets.size() == 1)
    modules.push_back(module);
  else
    for (Target target : targets) {
      ModuleOp copy = module.clone();
      copy.setSymName(targetName(target));
      modules.push_back(copy);
    }
  if (targets.size() > 1) {
    module.getBodyRegion().dropAllReferences();
    module.getBody()->clear();
    for (ModuleOp copy : modules)
      module.push_back(copy);
  }
  for (auto [target, copy] : llvm::zip_equal(targets, modules))
    copy->setAttr(kTargetAttr, attributes.getStringAttr(targetName(target)));
  return modules;
}

ModuleOp easyquant::equant::moduleOf(ModuleOp module, Target target) {
  for (ModuleOp inner : module.getOps<ModuleOp>())
    if (auto name = inner->getAttrOfType<StringAttr>(kTargetAttr);
        name && name.getValue() == targetName(target))
      return inner;
  return module;
}
