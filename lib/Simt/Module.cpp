//===- Module.cpp - Parsed modules as users see them ----------------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Parser.h"

#include "easyquant/Simt/Simt.h"

using namespace easyquant;
using namespace easyquant::simt;

Module::Module() = default;
Module::~Module() = default;

Result<std::shared_ptr<const Module>> Module::parse(std::string text, std::string name) {
  auto tree = parseModule(std::move(text), std::move(name));
  if (!tree)
    return Unexpected(tree.error());
  std::shared_ptr<Module> module(new Module());
  module->tree = std::move(*tree);
  for (const auto &function : module->tree->functions) {
    if (!function->isEntry)
      continue;
    KernelInfo info{
        std::string(function->name), {}, function->maxThreads, function->requiredThreads};
    for (const ast::Variable &parameter : function->parameters)
      info.parameters.push_back({std::string(parameter.name),
                                 std::string(infoOf(parameter.type).name),
                                 static_cast<uint32_t>(parameter.bytes()), parameter.alignment(),
                                 parameter.pointeeAlign});
    module->kernelInfos.push_back(std::move(info));
  }
  return std::shared_ptr<const Module>(std::move(module));
}

const KernelInfo *Module::find(std::string_view kernel) const {
  for (const KernelInfo &info : kernelInfos)
    if (info.name == kernel)
      return &info;
  return nullptr;
}

std::string_view Module::target() const { return tree->target; }
