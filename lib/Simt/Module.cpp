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

static const char *typeName(Type type) {
  switch (type) {
  case Type::U64:
    return "u64";
  case Type::S64:
    return "s64";
  case Type::B64:
    return "b64";
  case Type::F64:
    return "f64";
  case Type::U32:
    return "u32";
  case Type::S32:
    return "s32";
  case Type::F32:
    return "f32";
  case Type::U16:
    return "u16";
  case Type::S16:
    return "s16";
  case Type::B16:
    return "b16";
  case Type::F16:
    return "f16";
  case Type::BF16:
    return "bf16";
  case Type::U8:
    return "u8";
  case Type::S8:
    return "s8";
  case Type::B8:
    return "b8";
  case Type::F16x2:
    return "f16x2";
  default:
    return "b32";
  }
}

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
      info.parameters.push_back({std::string(parameter.name), typeName(parameter.type),
                                 static_cast<uint32_t>(parameter.bytes()), parameter.alignment()});
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
