//===- Recipe.cpp - What is asked of a model's sites ----------------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "easyquant/Dialect/Equant/Analysis/Recipe.h"

#include "easyquant/Numerics/ScaleRules.h"
#include "easyquant/Support/DidYouMean.h"

#include "mlir/IR/Builders.h"
#include "llvm/ADT/StringExtras.h"

using namespace mlir;
using namespace easyquant;
using namespace easyquant::equant;

static constexpr int64_t kDefaultGroupSize = 128;
static constexpr StringLiteral kAsymmetric = "_ASYM";

static std::string inQuotes(StringRef text) { return ("'" + text + "'").str(); }

static Unexpected invalid(const Twine &message) {
  return Unexpected(Error{ErrorCode::InvalidArgument, message.str()});
}

/// There is no such `what`; `legal` says which there are.
template <typename Names>
static Unexpected unknown(StringRef what, StringRef found, StringRef legal, const Names &names) {
  return invalid("unknown " + what + " " + inQuotes(found) + "; legal are " + legal +
                 didYouMean(found, names));
}

//===----------------------------------------------------------------------===//
// Methods
//===----------------------------------------------------------------------===//

namespace {
/// Stages of the pipeline: what is done before what.
enum class Stage { Base, Transform, Rounding };
struct Method {
  StringLiteral name;
  Stage stage;
};
constexpr Method kMethods[] = {
    {"absmax", Stage::Base},    {"zeropoint", Stage::Base}, {"symmetric", Stage::Base},
    {"zeroquant", Stage::Base}, {"awq", Stage::Transform},  {"smoothquant", Stage::Transform},
    {"gptq", Stage::Rounding},  {"lkd", Stage::Rounding},
};
} // namespace

/// The names of methods, of all or of those that come after a base.
static SmallVector<StringRef> methodNames(bool bases) {
  SmallVector<StringRef> names;
  for (const Method &method : kMethods)
    if (bases || method.stage != Stage::Base)
      names.push_back(method.name);
  return names;
}

static const Method *findMethod(StringRef name) {
  const Method *method = llvm::find_if(kMethods, [&](const Method &m) { return m.name == name; });
  return method == std::end(kMethods) ? nullptr : method;
}

std::string MethodExpression::str() const {
  if (methods.empty())
    return base;
  return (base == "zeroquant" ? base + "+" : "") + llvm::join(methods, "+");
}

Result<MethodExpression> easyquant::equant::makeMethod(StringRef base,
                                                       ArrayRef<std::string> methods) {
  MethodExpression expression{base.str(), {}};
  Stage stage = Stage::Base;
  for (const std::string &name : methods) {
    const Method *method = findMethod(name);
    if (!method || method->stage == Stage::Base)
      return unknown("method", name, "smoothquant, awq, gptq and lkd",
                     methodNames(/*bases=*/false));
    if (llvm::is_contained(expression.methods, name))
      return invalid("method " + inQuotes(name) + " is named twice");
    if (method->stage < stage)
      return invalid("method " + inQuotes(name) + " transforms weights and comes before " +
                     inQuotes(expression.methods.back()) + ", which rounds them");
    if (method->stage == Stage::Rounding && stage == Stage::Rounding)
      return invalid("methods " + inQuotes(expression.methods.back()) + " and " + inQuotes(name) +
                     " both round the weights: take one of them");
    stage = method->stage;
    expression.methods.push_back(name);
  }
  return expression;
}

Result<MethodExpression> easyquant::equant::parseMethod(StringRef text, StringRef scheme) {
  SmallVector<StringRef> names;
  if (!text.empty())
    text.split(names, '+');
  for (StringRef name : names)
    if (!findMethod(name))
      return unknown("method", name,
                     "absmax, zeropoint, symmetric, zeroquant, smoothquant, awq, gptq, lkd, and "
                     "such joined by +",
                     methodNames(/*bases=*/true));
  std::string base;
  if (!names.empty() && findMethod(names.front())->stage == Stage::Base) {
    base = names.front().str();
    names.erase(names.begin());
  } else {
    base =
        scheme.ends_with(kAsymmetric) || llvm::is_contained(names, "awq") ? "zeropoint" : "absmax";
  }
  for (StringRef name : names)
    if (findMethod(name)->stage == Stage::Base)
      return invalid("method " + inQuotes(name) +
                     " chooses the codes and comes first: " + inQuotes(text));
  return makeMethod(base, SmallVector<std::string>(names.begin(), names.end()));
}

//===----------------------------------------------------------------------===//
// Plans
//===----------------------------------------------------------------------===//

namespace {
struct Preset {
  StringLiteral name;
  int weightBits; ///< 0: float
  bool quantizedInput;
};
constexpr Preset kPresets[] = {{"W8A8", 8, true}, {"W8A16", 8, false}, {"W4A16", 4, false},
                               {"W4A8", 4, true}, {"W3A16", 3, false}, {"W2A16", 2, false},
                               {"none", 0, false}};
} // namespace

/// The preset of a scheme with or without _ASYM; null if there is none.
static const Preset *findPreset(StringRef scheme) {
  bool asymmetric = scheme.consume_back(kAsymmetric);
  const Preset *preset = llvm::find_if(kPresets, [&](const Preset &p) { return p.name == scheme; });
  if (preset == std::end(kPresets) || (asymmetric && preset->weightBits == 0))
    return nullptr;
  return preset;
}

int64_t SiteRequest::effectiveGroupSize() const {
  if (groupSize)
    return *groupSize;
  const Preset *preset = findPreset(scheme);
  if (!preset || preset->weightBits == 0)
    return 0;
  return preset->weightBits < 8 || method.base == "zeroquant" ? kDefaultGroupSize : 0;
}

/// The rule by which a site's weights get scales.
static Result<numerics::ScaleRule> ruleOf(const SiteRequest &request,
                                          const numerics::Scheme &weight) {
  numerics::ScaleRule rule;
  StringRef observer = request.weightObserver;
  if (observer == "absmax" || observer == "minmax") {
    rule.kind = numerics::extremesRule(weight);
  } else if (observer == "percentile" || observer == "mse" || observer == "entropy") {
    rule.kind = *numerics::scaleRuleKind(request.weightObserver);
  } else {
    static constexpr StringLiteral kObservers[] = {"absmax", "minmax", "percentile", "mse",
                                                   "entropy"};
    return unknown("weight observer", observer, "absmax, minmax, percentile, mse and entropy",
                   kObservers);
  }
  if (request.percentile && rule.kind != numerics::ScaleRuleKind::Percentile)
    return invalid("percentile " + fmt::format("{}", *request.percentile) +
                   " belongs to weight observer percentile");
  if (request.percentile)
    rule.percentile = *request.percentile;
  if (auto ok = numerics::checkScaleRule(rule, weight); !ok)
    return Unexpected(ok.error());
  return rule;
}

Result<void> easyquant::equant::checkObserver(StringRef name) {
  static constexpr StringLiteral kObservers[] = {"minmax", "absmax",  "percentile",
                                                 "mse",    "entropy", "ema"};
  if (llvm::is_contained(kObservers, name))
    return {};
  return unknown("observer", name, "minmax, absmax, percentile, mse, entropy and ema", kObservers);
}

/// The options that a site has of its own; null if there are none.
static Result<DictionaryAttr> optionsOf(MLIRContext *context, const SiteRequest &request,
                                        bool isStatic) {
  Builder builder(context);
  NamedAttrList fields;
  const SiteOptions &options = request.options;
  auto checkMethod = [&](StringRef option, StringRef method) -> Result<void> {
    if (llvm::is_contained(request.method.methods, method))
      return {};
    return invalid(option + " belongs to method " + method + ", found method " +
                   request.method.str());
  };
  if (!options.alpha.empty()) {
    double alpha = 0;
    if (auto ok = checkMethod("alpha", "smoothquant"); !ok)
      return Unexpected(ok.error());
    if (options.alpha == kSearch)
      fields.set("alpha", builder.getStringAttr(kSearch));
    else if (!StringRef(options.alpha).getAsDouble(alpha) && alpha >= 0 && alpha <= 1)
      fields.set("alpha", builder.getF64FloatAttr(alpha));
    else
      return invalid("alpha " + inQuotes(options.alpha) +
                     ": expected a number from 0 to 1, or search");
  }
  if (options.damping) {
    if (auto ok = checkMethod("damping", "gptq"); !ok)
      return Unexpected(ok.error());
    if (!(*options.damping > 0))
      return invalid("damping " + fmt::format("{}", *options.damping) +
                     ": expected a positive number");
    fields.set("damping", builder.getF64FloatAttr(*options.damping));
  }
  struct Flag {
    StringLiteral option, method;
    std::optional<bool> value;
  };
  for (const Flag &flag :
       {Flag{"act_order", "gptq", options.actOrder},
        Flag{"static_groups", "gptq", options.staticGroups}, Flag{"clip", "awq", options.clip}}) {
    if (!flag.value)
      continue;
    if (auto ok = checkMethod(flag.option, flag.method); !ok)
      return Unexpected(ok.error());
    fields.set(flag.option, builder.getBoolAttr(*flag.value));
  }
  if (!options.observer.empty()) {
    if (auto ok = checkObserver(options.observer); !ok)
      return Unexpected(ok.error());
    if (!isStatic)
      return invalid("observer " + options.observer + " belongs to static activations");
    fields.set("observer", builder.getStringAttr(options.observer));
  }
  return fields.empty() ? DictionaryAttr() : fields.getDictionary(context);
}

Result<PlanAttr> easyquant::equant::makePlan(MLIRContext *context, const SiteRequest &request) {
  const Preset *preset = findPreset(request.scheme);
  if (!preset) {
    SmallVector<std::string> names;
    for (const Preset &known : kPresets)
      names.push_back((known.name + (known.weightBits == 0 ? "" : kAsymmetric)).str());
    for (const Preset &known : kPresets)
      names.push_back(known.name.str());
    return unknown("scheme", request.scheme,
                   "W8A8, W8A16, W4A16, W4A8, W3A16 and W2A16, the same with _ASYM, and none",
                   names);
  }
  static constexpr StringLiteral kActivations[] = {"dynamic", "static"};
  if (!llvm::is_contained(kActivations, request.activations))
    return unknown("activations", request.activations, "dynamic and static", kActivations);
  int64_t groupSize = request.effectiveGroupSize();
  if (preset->weightBits == 0 && request.groupSize.value_or(0) != 0)
    return invalid("group size " + Twine(groupSize) + " needs a scheme, but scheme is none");
  if (groupSize < 0 || groupSize % 8 != 0)
    return invalid("group size must be a positive multiple of 8, or 0 for a scale per channel; "
                   "found " +
                   Twine(groupSize));
  if (groupSize > lm::kMaxExtent)
    return invalid("group size must be at most " + Twine(lm::kMaxExtent) + ", found " +
                   Twine(groupSize));
  if (preset->weightBits == 0)
    return PlanAttr();
  const std::string &base = request.method.base;
  if (StringRef(request.scheme).ends_with(kAsymmetric) && base != "zeropoint")
    return invalid("scheme " + Twine(request.scheme) + " has zero points, but " + base +
                   " chooses none; take method zeropoint");

  numerics::Scheme weight;
  weight.bits = preset->weightBits;
  weight.symmetric = base != "zeropoint";
  weight.fullRange = base == "symmetric";
  weight.granularity =
      groupSize == 0 ? numerics::Granularity::Channel : numerics::Granularity::Group;
  weight.groupSize = groupSize;
  Result<numerics::ScaleRule> rule = ruleOf(request, weight);
  if (!rule)
    return Unexpected(rule.error());

  Builder builder(context);
  SchemeAttr input;
  if (preset->quantizedInput && request.activations == "dynamic")
    input = SchemeAttr::perToken(context, 8);
  if (preset->quantizedInput && request.activations == "static")
    input = SchemeAttr::get(context, {.bits = 8,
                                      .symmetric = weight.symmetric,
                                      .granularity = numerics::Granularity::Tensor,
                                      .fullRange = weight.fullRange});
  Result<DictionaryAttr> options =
      optionsOf(context, request, input && input.getGranularity() == Granularity::Tensor);
  if (!options)
    return Unexpected(options.error());
  SmallVector<StringRef> methods(request.method.methods.begin(), request.method.methods.end());
  bool isPercentile = rule->kind == numerics::ScaleRuleKind::Percentile;
  return PlanAttr::get(context, builder.getStrArrayAttr(methods),
                       static_cast<ScaleRule>(rule->kind),
                       isPercentile ? builder.getF64FloatAttr(rule->percentile) : FloatAttr(),
                       SchemeAttr::get(context, weight), input, *options, /*codes=*/{},
                       /*scale=*/{}, /*zero_point=*/{});
}

SiteRequest easyquant::equant::headRequest(const SiteRequest &request) {
  SiteRequest head = request;
  StringRef scheme = request.scheme;
  if (const Preset *preset = findPreset(scheme); preset && preset->weightBits != 0)
    head.scheme = std::string(preset->quantizedInput ? "W8A8" : "W8A16") +
                  (scheme.ends_with(kAsymmetric) ? kAsymmetric.str() : "");
  head.groupSize = 0;
  head.method.methods.clear();
  // No method smooths its input, whose outliers a scale for all tokens would not survive.
  head.activations = "dynamic";
  return head;
}

//===----------------------------------------------------------------------===//
// Recipes as attributes
//===----------------------------------------------------------------------===//

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
  auto add = [&](const SiteRequest &site, const std::string &name) {
    if (site.activations == "static" && !llvm::is_contained(names, name))
      names.push_back(name);
  };
  add(request, options.observer);
  for (const SiteRule &rule : sites) {
    const std::string &own = rule.request.options.observer;
    add(rule.request, own.empty() ? options.observer : own);
  }
  return names;
}

bool Recipe::searchesAlpha() const {
  return options.alpha == kSearch || llvm::any_of(sites, [](const SiteRule &rule) {
           return rule.request.options.alpha == kSearch;
         });
}

static void describe(Builder &builder, const SiteRequest &request, NamedAttrList &fields) {
  // The base is spelled out where the methods and the scheme do not imply it.
  std::string method = request.method.str();
  if (Result<MethodExpression> implied = parseMethod(method, request.scheme);
      !implied || implied->base != request.method.base)
    method = request.method.base + "+" + method;
  fields.set("method", builder.getStringAttr(method));
  fields.set("scheme", builder.getStringAttr(request.scheme));
  fields.set("group_size", builder.getI64IntegerAttr(request.effectiveGroupSize()));
  fields.set("activations", builder.getStringAttr(request.activations));
  fields.set("weight_observer", builder.getStringAttr(request.weightObserver));
  if (request.percentile)
    fields.set("percentile", builder.getF64FloatAttr(*request.percentile));
}

static void describe(Builder &builder, const SiteOptions &options, NamedAttrList &fields) {
  if (!options.alpha.empty())
    fields.set("alpha", builder.getStringAttr(options.alpha));
  if (!options.observer.empty())
    fields.set("observer", builder.getStringAttr(options.observer));
  if (options.damping)
    fields.set("damping", builder.getF64FloatAttr(*options.damping));
  auto setFlag = [&](StringRef name, std::optional<bool> value) {
    if (value)
      fields.set(name, builder.getBoolAttr(*value));
  };
  setFlag("act_order", options.actOrder);
  setFlag("static_groups", options.staticGroups);
  setFlag("clip", options.clip);
}

DictionaryAttr easyquant::equant::toAttribute(MLIRContext *context, const Recipe &recipe) {
  Builder builder(context);
  NamedAttrList fields;
  describe(builder, recipe.request, fields);
  if (recipe.mixed)
    fields.set("mixed", builder.getBoolAttr(true));
  fields.set("head", builder.getStringAttr(recipe.head));
  auto strings = [&](ArrayRef<std::string> list) {
    return builder.getStrArrayAttr(SmallVector<StringRef>(list.begin(), list.end()));
  };
  fields.set("ignore", strings(recipe.ignore));
  fields.set("targets", strings(recipe.targets));
  if (!recipe.sites.empty()) {
    SmallVector<Attribute> rules;
    for (const SiteRule &rule : recipe.sites) {
      NamedAttrList entry;
      entry.set("match", builder.getStringAttr(rule.match));
      describe(builder, rule.request, entry);
      describe(builder, rule.request.options, entry);
      rules.push_back(entry.getDictionary(context));
    }
    fields.set("sites", builder.getArrayAttr(rules));
  }
  return fields.getDictionary(context);
}

void easyquant::equant::recordOptions(ModuleOp module, ArrayRef<NamedAttribute> options) {
  auto known = module->getAttrOfType<DictionaryAttr>(kRecipeAttr);
  if (!known)
    return;
  NamedAttrList fields(known);
  for (NamedAttribute option : options)
    fields.set(option.getName(), option.getValue());
  module->setAttr(kRecipeAttr, fields.getDictionary(module.getContext()));
}
