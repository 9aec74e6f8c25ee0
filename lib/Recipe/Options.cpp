//===- Options.cpp - The table of methods and options ---------------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "easyquant/Recipe/Options.h"

#include "easyquant/Numerics/SiteStatistics.h"
#include "easyquant/Recipe/Mixes.h"
#include "easyquant/Recipe/Presets.h"

#include <algorithm>

namespace easyquant::recipe {

namespace {
#define GET_OPTION_ROWS
#include "easyquant/Recipe/Options.inc"
} // namespace

std::span<const OptionInfo> options() { return kOptions; }
std::span<const MethodInfo> methods() { return kMethods; }

const OptionInfo *findOption(std::string_view key, std::string_view section) {
  auto is = [&](const OptionInfo &option) {
    return option.key == key && option.section == section;
  };
  const OptionInfo *found = std::ranges::find_if(kOptions, is);
  return key.empty() || found == std::end(kOptions) ? nullptr : found;
}

const MethodInfo *findMethod(std::string_view name) {
  const MethodInfo *found = std::ranges::find(kMethods, name, &MethodInfo::name);
  return found == std::end(kMethods) ? nullptr : found;
}

std::vector<std::string> choicesOf(const OptionInfo &option) {
  std::vector<std::string> names(option.choices.begin(), option.choices.end());
  if (&option == &option::scheme.info()) {
    names = schemeNames();
    for (const Mix &mix : mixes())
      names.emplace_back(mix.name);
  }
  if (&option == &option::observer.info())
    for (const numerics::RangeObserver &observer : numerics::rangeObservers())
      names.emplace_back(observer.name);
  if (&option == &option::head.info())
    for (std::string &scheme : weightSchemeNames())
      names.push_back(std::move(scheme));
  if (&option == &option::method.info())
    for (const MethodInfo &method : kMethods)
      names.emplace_back(method.name);
  return names;
}

} // namespace easyquant::recipe
