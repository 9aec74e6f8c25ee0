//===- DescribeOptions.cpp - The table of options, for others -------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "DescribeOptions.h"

#include "easyquant/Pipelines/Compile.h"

#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/JSON.h"

#include <array>

namespace easyquant {

using recipe::Kind;
using recipe::OptionInfo;

/// With the name of the method that reads it in front.
static std::string helpWithOwner(const OptionInfo &option) {
  std::string help(option.help);
  if (const recipe::MethodInfo *method = recipe::findMethod(option.owner))
    return std::string(method->title) + ": " + help;
  help.front() = llvm::toUpper(help.front());
  return help;
}

/// "yes" and "no" of a switch; empty: none.
static std::string defaultOf(const OptionInfo &option) {
  if (!option.defaultWords.empty())
    return std::string(option.defaultWords);
  if (option.kind == Kind::Switch && !option.ownDefault.empty())
    return option.ownDefault == "true" ? "yes" : "no";
  return std::string(option.ownDefault);
}

std::string helpOf(const OptionInfo &option) {
  std::string help = helpWithOwner(option);
  if (option.kind != Kind::TextOrNumber)
    if (std::vector<std::string> choices = legalNames(option); !choices.empty())
      help += ": " + llvm::join(choices, ", ");
  if (option.kind == Kind::List)
    help += "; repeatable";
  if (std::string words = defaultOf(option); !words.empty())
    help += " (default: " + words + ")";
  return help;
}

static llvm::StringRef nameOf(Kind kind) {
  static constexpr std::array<llvm::StringLiteral, 7> names = {
      "switch", "integer", "number", "text", "text or number", "choice", "list"};
  return names[size_t(kind)];
}

static llvm::StringRef nameOf(recipe::Stage stage) {
  static constexpr std::array<llvm::StringLiteral, 3> names = {"base", "transform", "rounding"};
  return names[size_t(stage)];
}

static void describe(llvm::json::OStream &json, const OptionInfo &option) {
  auto text = [&](llvm::StringRef name, llvm::StringRef value) {
    if (!value.empty())
      json.attribute(name, value);
  };
  auto number = [&](llvm::StringRef name, llvm::StringRef value) {
    if (double parsed = 0; !value.getAsDouble(parsed))
      json.attribute(name, parsed);
  };
  auto flag = [&](llvm::StringRef name, bool value) {
    if (value)
      json.attribute(name, true);
  };
  json.object([&] {
    json.attribute("name", llvm::StringRef(option.flag));
    json.attribute("kind", nameOf(option.kind));
    json.attribute("help", helpWithOwner(option));
    text("default", defaultOf(option));
    // A switch without one has no opposite.
    flag("negatable", option.kind == Kind::Switch && !option.ownDefault.empty());
    if (std::vector<std::string> choices = legalNames(option); !choices.empty())
      json.attribute("choices", llvm::json::Array(choices));
    text("joint", option.joint);
    number("least", option.least);
    number("most", option.most);
    text("value", option.value);
    text("group", option.group);
    text("owner", option.owner);
    text("section", option.section);
    text("key", option.key);
    flag("per_site", option.perSite);
    flag("internal", option.internal);
  });
}

void describeOptions() {
  llvm::json::OStream json(llvm::outs(), /*IndentSize=*/2);
  json.object([&] {
    json.attributeArray("methods", [&] {
      for (const recipe::MethodInfo &method : recipe::methods())
        json.object([&] {
          json.attribute("name", llvm::StringRef(method.name));
          json.attribute("stage", nameOf(method.stage));
        });
    });
    json.attributeArray("options", [&] {
      for (const OptionInfo &option : recipe::options())
        if (!option.flag.empty())
          describe(json, option);
    });
  });
  llvm::outs() << "\n";
  llvm::outs().flush();
}

} // namespace easyquant
