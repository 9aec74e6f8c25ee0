//===- EquantPlans.cpp - How sites are going to be quantized --------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "easyquant/Dialect/Equant/IR/Equant.h"
#include "easyquant/Numerics/ScaleRules.h"
#include "easyquant/Recipe/Options.h"

#include "mlir/IR/Builders.h"
#include "llvm/ADT/StringExtras.h"

using namespace mlir;
using namespace easyquant;
using namespace easyquant::equant;

bool PlanAttr::names(StringRef method) const {
  return llvm::is_contained(getMethods().getAsValueRange<StringAttr>(), method);
}

Attribute PlanAttr::option(StringRef name) const {
  return getOptions() ? getOptions().get(name) : Attribute();
}
bool PlanAttr::optionOr(recipe::Key<bool> key, bool otherwise) const {
  auto value = dyn_cast_or_null<BoolAttr>(option(key.info().key));
  return value ? value.getValue() : otherwise;
}
double PlanAttr::optionOr(recipe::Key<double> key, double otherwise) const {
  auto value = dyn_cast_or_null<FloatAttr>(option(key.info().key));
  return value ? value.getValueAsDouble() : otherwise;
}

bool PlanAttr::mayWidenScales() const {
  return getWeight().getScale().isF16() && !option(recipe::option::scaleType.info().key);
}

static PlanAttr withWeight(PlanAttr plan, const numerics::Scheme &weight) {
  return PlanAttr::get(plan.getMethods(), plan.getRule(), plan.getPercentile(),
                       SchemeAttr::get(plan.getContext(), weight), plan.getInput(),
                       plan.getOptions(), plan.getPlannedParts());
}

PlannedParts PlanAttr::getPlannedParts() const {
  return {getCodes(), getScale(), getZeroPoint(), getMinimum(), getOuter()};
}

PlanAttr PlanAttr::withWideScales() const {
  return withWeight(*this, numerics::withWideScales(getWeight().toNumerics()));
}

PlanAttr PlanAttr::inBasis(int64_t hadamard) const {
  return get(getMethods(), getRule(), getPercentile(), getWeight().inBasis(hadamard),
             getInput() ? getInput().inBasis(hadamard) : SchemeAttr(), getOptions(),
             getPlannedParts());
}

PlanAttr PlanAttr::withCodebook(const numerics::Codebook &codebook) const {
  numerics::Scheme weight = getWeight().toNumerics();
  weight.table = &codebook;
  return withWeight(*this, weight);
}

PlanAttr PlanAttr::withResults(const PlannedParts &parts) const {
  return get(getMethods(), getRule(), getPercentile(), getWeight(), getInput(), getOptions(),
             parts);
}

/// What an option of a site's plan takes instead of this; empty where it is legal.
static std::string whatOptionTakes(NamedAttribute named) {
  Attribute value = named.getValue();
  const recipe::OptionInfo *option = recipe::findOption(named.getName().getValue());
  if (!option || !option->isOfPlan()) {
    SmallVector<StringRef> legal;
    for (const recipe::OptionInfo &known : recipe::options())
      if (known.isOfPlan())
        legal.push_back(known.key);
    return "one of " + llvm::join(legal, ", ");
  }
  auto text = dyn_cast<StringAttr>(value);
  switch (option->kind) {
  case recipe::Kind::Switch:
    return isa<BoolAttr>(value) ? "" : "true or false";
  case recipe::Kind::Integer:
    return isa<IntegerAttr>(value) ? "" : "an integer";
  case recipe::Kind::Number:
    return isa<FloatAttr>(value) ? "" : "a number";
  case recipe::Kind::TextOrNumber:
    return isa<FloatAttr>(value) ||
                   (text && llvm::is_contained(option->choices, std::string_view(text.getValue())))
               ? ""
               : "a number or \"" + llvm::join(option->choices, "\" or \"") + "\"";
  case recipe::Kind::Text:
  case recipe::Kind::Choice:
    return text ? "" : "a name";
  case recipe::Kind::List:
    return isa<ArrayAttr>(value) ? "" : "a list";
  }
  llvm_unreachable("every kind is named");
}

LogicalResult PlanAttr::verify(function_ref<InFlightDiagnostic()> emitError, ArrayAttr methods,
                               ScaleRule rule, FloatAttr percentile, SchemeAttr weight,
                               SchemeAttr input, DictionaryAttr options, FlatSymbolRefAttr codes,
                               FlatSymbolRefAttr scale, FlatSymbolRefAttr zeroPoint,
                               FlatSymbolRefAttr minimum, FlatSymbolRefAttr outer) {
  if (!llvm::all_of(methods, llvm::IsaPred<StringAttr>))
    return emitError() << "methods must be names, found " << methods;
  if (!weight.isStatic())
    return emitError() << "weights have static scales, found " << weight;
  if (std::string problem = whyRuleCannotServe(rule, percentile, weight); !problem.empty())
    return emitError() << problem;
  bool isKnown = !input || input.getGranularity() == Granularity::Token ||
                 (input.getGranularity() == Granularity::Tensor && !input.getDynamic()) ||
                 (input.getOuter() && input.getDynamic() && !input.isInteger());
  if (!isKnown)
    return emitError() << "input must be quantized per token, per tensor with static or online "
                          "scales, or in groups with dynamic and outer scales, found "
                       << input;
  if (std::string reason = input ? whyGroupsDiffer(weight, input) : ""; !reason.empty())
    return emitError() << reason;
  // Whether a table is of int8 values is asked where the site has a name (whyNotQuantizable).
  const bool isIndexed = weight.getCodebook() != nullptr;
  if (input && (input.isInteger() ? !weight.isInteger() && !isIndexed : weight.isInteger()))
    return emitError() << "input and weight are multiplied as integers or as floats, both; found "
                       << input << " and " << weight;
  if (options)
    for (NamedAttribute option : options)
      if (std::string expected = whatOptionTakes(option); !expected.empty())
        return emitError() << "option " << option.getName() << " = " << option.getValue()
                           << ": expected " << expected;
  if (codes && !scale)
    return emitError() << "codes " << codes << " come without scales";
  if (bool(zeroPoint) != (scale && weight.hasZeroPoints()))
    return emitError() << "zero points belong to the scales of an asymmetric scheme, and to "
                          "nothing else; found "
                       << (zeroPoint ? "them" : "none") << " for " << weight;
  if (bool(minimum) != (scale && weight.getMinima()))
    return emitError() << "minima belong to the scales of a scheme that has them, and to nothing "
                          "else; found "
                       << (minimum ? "them" : "none") << " for " << weight;
  if (bool(outer) != (scale && weight.getOuter()))
    return emitError() << "outer scales belong to the scales of a scheme that has them, and to "
                          "nothing else; found "
                       << (outer ? "them" : "none") << " for " << weight;
  return success();
}
