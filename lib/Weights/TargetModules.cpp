//===- TargetModules.cpp - A module for each target family ----------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "easyquant/Weights/TargetModules.h"

#include "mlir/IR/Builders.h"

using namespace mlir;
using namespace easyquant::equant;

SmallVector<ModuleOp> easyquant::equant::splitTargets(ModuleOp module,
                                                      ArrayRef<const targets::Family *> families) {
  SmallVector<ModuleOp> modules;
  if (families.size() == 1)
    modules.push_back(module);
  else
    for (const targets::Family *family : families) {
      ModuleOp copy = module.clone();
      copy.setSymName(family->name);
      modules.push_back(copy);
    }
  if (families.size() > 1) {
    module.getBodyRegion().dropAllReferences();
    module.getBody()->clear();
    for (ModuleOp copy : modules)
      module.push_back(copy);
  }
  for (auto [family, copy] : llvm::zip_equal(families, modules))
    copy->setAttr(kTargetAttr, StringAttr::get(module.getContext(), family->name));
  return modules;
}

ModuleOp easyquant::equant::moduleOf(ModuleOp module, StringRef family) {
  for (ModuleOp inner : module.getOps<ModuleOp>())
    if (auto name = inner->getAttrOfType<StringAttr>(kTargetAttr); name && name == family)
      return inner;
  return module;
}
