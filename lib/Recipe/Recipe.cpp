//===- Recipe.cpp - What is asked of a model's sites ----------------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "easyquant/Recipe/Recipe.h"

#include "easyquant/Numerics/Scheme.h"
#include "easyquant/Numerics/SiteStatistics.h"
#include "easyquant/Recipe/Mixes.h"
#include "easyquant/Recipe/Presets.h"

#include "llvm/ADT/STLExtras.h"

using namespace easyquant;
using namespace easyquant::recipe;

static constexpr int64_t kDefaultGroupSize = 128;

int64_t SiteRequest::groupSize() const {
  if (auto asked = options.get(option::groupSize))
    return *asked;
  std::optional<Preset> preset = findPreset(scheme());
  if (!preset || preset->isFloat())
    return 0;
  if (preset->groupSize)
    return *preset->groupSize;
  return preset->weightBits < 8 || method.base == "zeroquant" ? kDefaultGroupSize : 0;
}

std::string SiteRequest::activations() const {
  std::optional<Preset> preset = findPreset(scheme());
  if (preset && preset->isStatic)
    return *preset->isStatic ? "static" : "dynamic";
  return options.get(option::activations).value_or("dynamic");
}

bool SiteRequest::hasInt8Activations() const {
  if (findMix(scheme()))
    return activations() != "float";
  std::optional<Preset> preset = findPreset(scheme());
  return preset && preset->input == InputCodes::Int8;
}

bool SiteRequest::isRotated() const {
  if (auto asked = options.get(option::activationBasis))
    return *asked == "hadamard";
  return hasInt8Activations() && !isKept();
}

bool SiteRequest::keepsSinks(std::string_view observer) const {
  if (auto asked = options.get(option::sinks))
    return *asked == "keep";
  const numerics::RangeObserver *how =
      numerics::findRangeObserver(options.get(option::observer).value_or(std::string(observer)));
  return hasInt8Activations() && isCalibrated() && how && how->isOfChannels;
}

void SiteRequest::resetActivationGroups() {
  options.reset(option::activationGroupSize);
  options.reset(option::activationZeroPoints);
}

/// Another scheme has another base where its codes need that.
static void takeBaseOf(const Preset &preset, SiteRequest &request) {
  const bool losesZeroPoints = preset.withoutZeroPoints && request.method.base == "zeropoint";
  if (preset.asymmetric || !preset.isInteger() || preset.superBlocks || losesZeroPoints)
    request.method.base = preset.base();
}

SiteRequest recipe::headRequest(const SiteRequest &request) {
  SiteRequest head = request;
  head.method.methods.clear();
  // No method smooths its input, whose outliers a scale for all tokens would not survive.
  const bool isFloat = request.activations() == "float";
  if (!isFloat)
    head.options.set(option::activations, std::string("dynamic"));
  head.options.reset(option::sinks);
  auto withItsGroups = [&] {
    const Preset preset = findPreset(head.scheme()).value_or(Preset());
    if (preset.input != InputCodes::Int8)
      head.resetActivationGroups();
    return head;
  };
  const std::string kind = request.options[option::head];
  if (kind == "int8") {
    // GPTQ weighs its own ranges; eight bits of the head are not worth a pass of the model.
    if (llvm::is_contained(request.method.methods, "gptq") &&
        head.options[option::weightObserver] == "hessian-diagonal")
      head.options.reset(option::weightObserver);
    head.options.set(option::scheme, !findMix(request.scheme()) ? headScheme(request.scheme())
                                     : isFloat                  ? "W8A16"
                                                                : "W8A8");
    head.options.set(option::groupSize, int64_t(0));
    head.options.reset(option::scaleType);
    return withItsGroups();
  }
  head.options.set(option::scheme, kind == "float" ? std::string("none") : kind);
  head.options.reset(option::groupSize);
  if (auto size = request.options.get(option::headGroupSize))
    head.options.set(option::groupSize, *size);
  const Preset preset = findPreset(head.scheme()).value_or(Preset());
  if (preset.scales || head.groupSize() == 0)
    head.options.reset(option::scaleType);
  takeBaseOf(preset, head);
  return withItsGroups();
}

SiteRequest recipe::requestForColumns(SiteRequest request, int64_t columns) {
  const Preset preset = findPreset(request.scheme()).value_or(Preset());
  if (!preset.superBlocks || columns % numerics::kSuperBlock == 0)
    return request;
  request.options.set(option::scheme, std::string(preset.fallback));
  request.options.reset(option::groupSize); // the scheme's own, if any
  const Preset fallback = *findPreset(preset.fallback);
  if (request.method.base == preset.base())
    request.method.base = fallback.base();
  takeBaseOf(fallback, request);
  return request;
}

std::vector<std::string> Recipe::methods() const {
  std::vector<std::string> names = request.method.methods;
  for (const SiteRule &rule : sites)
    for (const std::string &name : rule.request.method.methods)
      if (!llvm::is_contained(names, name))
        names.push_back(name);
  return names;
}

std::vector<std::string> Recipe::observers() const {
  std::vector<std::string> names;
  auto add = [&](const SiteRequest &site) {
    std::string own = site.options.get(option::observer).value_or(options[option::observer]);
    if (site.isCalibrated() && !llvm::is_contained(names, own))
      names.push_back(own);
  };
  add(request);
  for (const SiteRule &rule : sites)
    add(rule.request);
  return names;
}

bool Recipe::rotatesRanges() const {
  auto rotates = [](const SiteRequest &site) { return site.isCalibrated() && site.isRotated(); };
  return rotates(request) ||
         llvm::any_of(sites, [&](const SiteRule &rule) { return rotates(rule.request); });
}

void Recipe::settleSinks() {
  auto settle = [&](SiteRequest &site) {
    if (site.keepsSinks(options[option::observer]))
      site.options.set(option::sinks, std::string("keep"));
  };
  settle(request);
  for (SiteRule &rule : sites)
    settle(rule.request);
}

Result<bool> Recipe::keepsSinks() const {
  bool anySite = false;
  auto check = [&](const SiteRequest &site) -> Result<void> {
    if (!site.isCalibrated() || !site.keepsSinks(options[option::observer]))
      return {};
    anySite = true;
    std::string own = site.options.get(option::observer).value_or(options[option::observer]);
    if (const numerics::RangeObserver *how = numerics::findRangeObserver(own);
        how && how->isOfChannels)
      return {};
    return makeError(ErrorCode::InvalidArgument,
                     "sinks keep goes with observer minmax or absmax, which leave sinks out of "
                     "ranges; found {}",
                     own);
  };
  Result<void> done = check(request);
  for (const SiteRule &rule : sites)
    if (done)
      done = check(rule.request);
  return done ? Result<bool>(anySite) : Result<bool>(Unexpected(done.error()));
}

bool Recipe::weighsErrors() const {
  auto weighs = [](const SiteRequest &site) {
    return site.options[option::weightObserver] == "hessian-diagonal";
  };
  return weighs(request) ||
         llvm::any_of(sites, [&](const SiteRule &rule) { return weighs(rule.request); });
}

bool Recipe::learnsTables() const {
  auto learns = [](const SiteRequest &site) {
    const Preset preset = findPreset(site.scheme()).value_or(Preset());
    return preset.table && preset.table->isToBeLearned();
  };
  return learns(request) || learns(headRequest(request)) ||
         llvm::any_of(sites, [&](const SiteRule &rule) { return learns(rule.request); });
}

bool Recipe::searchesAlpha() const {
  return options[option::alpha] == kSearch || llvm::any_of(sites, [](const SiteRule &rule) {
           return rule.request.options[option::alpha] == kSearch;
         });
}
