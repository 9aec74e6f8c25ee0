//===- MethodExpression.cpp - Methods as users write them -----------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "easyquant/Recipe/MethodExpression.h"

#include "Messages.h"

#include "easyquant/Recipe/Mixes.h"
#include "easyquant/Recipe/Options.h"
#include "easyquant/Recipe/Presets.h"

#include "llvm/ADT/StringExtras.h"
#include "llvm/ADT/StringSwitch.h"

using namespace easyquant;
using namespace easyquant::recipe;
using llvm::StringRef;

/// The names of methods, of all or of those that come after a base.
static std::vector<std::string> methodNames(bool bases) {
  std::vector<std::string> names;
  for (const MethodInfo &method : methods())
    if (bases || method.stage != Stage::Base)
      names.emplace_back(method.name);
  return names;
}

std::string MethodExpression::str() const {
  if (methods.empty())
    return base;
  return (base == "zeroquant" ? base + "+" : "") + llvm::join(methods, "+");
}

std::string MethodExpression::spelledOut(StringRef scheme) const {
  Result<MethodExpression> implied = parseMethod(str(), scheme);
  return implied && implied->base == base ? str() : base + "+" + str();
}

Result<MethodExpression> recipe::makeMethod(StringRef base, llvm::ArrayRef<std::string> names) {
  MethodExpression expression{base.str(), {}};
  Stage stage = Stage::Base;
  for (const std::string &name : names) {
    const MethodInfo *method = findMethod(name);
    if (!method || method->stage == Stage::Base)
      return unknown("method", name, methodNames(/*bases=*/false));
    if (llvm::is_contained(expression.methods, name))
      return invalid("method '{}' is named twice", name);
    if (method->stage < stage)
      return invalid("method '{}' transforms weights and comes before '{}', which rounds them",
                     name, expression.methods.back());
    if (method->stage == Stage::Rounding && stage == Stage::Rounding)
      return invalid("methods '{}' and '{}' both round the weights: take one of them",
                     expression.methods.back(), name);
    stage = method->stage;
    expression.methods.push_back(name);
  }
  return expression;
}

StringRef recipe::calibratedMethod(StringRef scheme) {
  if (findMix(scheme))
    return "awq+signround";
  return llvm::StringSwitch<StringRef>(scheme)
      .Case("W8A8", "smoothquant")
      .Cases({"W4A16", "W4A16_ASYM"}, "awq+signround")
      .Case("T4A16", "awq")
      .Case("W3A16_ASYM", "signround")
      .Default("");
}

Result<MethodExpression> recipe::parseMethod(StringRef text, StringRef scheme) {
  llvm::SmallVector<StringRef> names;
  if (!text.empty())
    text.split(names, '+');
  for (StringRef name : names)
    if (!findMethod(name)) {
      std::vector<std::string> known = methodNames(/*bases=*/true);
      return invalid("unknown method '{}'; legal are {}, and such joined by +{}", name.str(),
                     llvm::join(known, ", "), didYouMean(name, known));
    }
  std::string base;
  if (!names.empty() && findMethod(names.front())->stage == Stage::Base) {
    base = names.front().str();
    names.erase(names.begin());
  } else {
    std::optional<Preset> preset = findPreset(scheme);
    bool mayClip = llvm::is_contained(names, "awq") &&
                   (!preset || (preset->isInteger() && !preset->withoutZeroPoints));
    base = findMix(scheme) || mayClip ? "zeropoint" : preset ? preset->base() : "absmax";
  }
  for (StringRef name : names)
    if (findMethod(name)->stage == Stage::Base)
      return invalid("method '{}' chooses the codes and comes first: '{}'", name.str(), text.str());
  return makeMethod(base, std::vector<std::string>(names.begin(), names.end()));
}
