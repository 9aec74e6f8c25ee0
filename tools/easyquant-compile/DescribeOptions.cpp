//===- DescribeOptions.cpp - The table of options, for others -------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "DescribeOptions.h"

#include "easyquant/Numerics/SiteStatistics.h"
#include "easyquant/Pipelines/Compile.h"
#include "easyquant/Recipe/MethodExpression.h"
#include "easyquant/Recipe/Presets.h"
#include "easyquant/Support/Json.h"

#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/raw_ostream.h"

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

static Json describe(const OptionInfo &option) {
  Json::Object row{
      {"name", option.flag}, {"kind", nameOf(option.kind)}, {"help", helpWithOwner(option)}};
  auto text = [&](const char *name, llvm::StringRef value) {
    if (!value.empty())
      row[name] = value;
  };
  auto number = [&](const char *name, llvm::StringRef value) {
    if (double parsed = 0; !value.getAsDouble(parsed))
      row[name] = parsed;
  };
  auto flag = [&](const char *name, bool value) {
    if (value)
      row[name] = true;
  };
  text("default", defaultOf(option));
  // A switch without one has no opposite.
  flag("negatable", option.kind == Kind::Switch && !option.ownDefault.empty());
  if (std::vector<std::string> choices = legalNames(option); !choices.empty())
    row["choices"] = choices;
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
  return row;
}

void describeOptions() {
  Json::Array methods, options, statistics, schemes;
  Json::Object calibratedMethods;
  for (const numerics::StatisticInfo &statistic : numerics::statistics())
    statistics.push_back(Json::Object{{"name", statistic.name}, {"holds", statistic.holds}});
  for (const recipe::NamedScheme &scheme : recipe::namedSchemes())
    schemes.push_back(Json::Object{
        {"name", scheme.name}, {"weights", scheme.weights}, {"activations", scheme.activations}});
  for (const recipe::MethodInfo &method : recipe::methods())
    methods.push_back(Json::Object{{"name", method.name}, {"stage", nameOf(method.stage)}});
  // The compiler takes them for mixes by itself.
  for (const std::string &scheme : recipe::schemeNames())
    if (llvm::StringRef method = recipe::calibratedMethod(scheme); !method.empty())
      calibratedMethods[scheme] = method;
  for (const OptionInfo &option : recipe::options())
    if (!option.flag.empty())
      options.push_back(describe(option));
  const Json table = Json::Object{{"methods", methods},
                                  {"calibrated_methods", calibratedMethods},
                                  {"named_schemes", schemes},
                                  {"options", options},
                                  {"statistics", statistics}};
  llvm::outs() << table.document();
  llvm::outs().flush();
}

} // namespace easyquant
