//===- RecipePlans.cpp - Plans and attributes of recipes ------------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "easyquant/Dialect/Equant/Analysis/RecipePlans.h"

#include "easyquant/Numerics/Hadamard.h"
#include "easyquant/Numerics/ScaleRules.h"
#include "easyquant/Recipe/Mixes.h"
#include "easyquant/Recipe/Presets.h"

#include "mlir/IR/Builders.h"

using namespace mlir;
using namespace easyquant;
using namespace easyquant::equant;
using recipe::Kind;
using recipe::OptionInfo;
using recipe::OptionValue;
using recipe::SiteRequest;
namespace option = easyquant::recipe::option;

static Unexpected invalid(const Twine &message) {
  return Unexpected(Error{ErrorCode::InvalidArgument, message.str()});
}

//===----------------------------------------------------------------------===//
// Plans
//===----------------------------------------------------------------------===//

/// The rule by which a site's weights get scales.
static Result<numerics::ScaleRule> ruleOf(const SiteRequest &request,
                                          const numerics::Scheme &weight) {
  numerics::ScaleRule rule;
  std::string observer = request.options[option::weightObserver];
  bool isAll = observer == "absmax" || observer == "minmax";
  rule.kind = isAll ? numerics::extremesRule(weight) : *numerics::scaleRuleKind(observer);
  std::optional<double> percentile = request.options.get(option::weightPercentile);
  if (percentile && rule.kind != numerics::ScaleRuleKind::Percentile)
    return invalid("weight percentile " + fmt::format("{}", *percentile) +
                   " belongs to weight observer percentile");
  if (percentile)
    rule.percentile = *percentile;
  if (auto ok = numerics::checkScaleRule(rule, weight); !ok)
    return Unexpected(ok.error());
  return rule;
}

static Attribute attributeOf(Builder &builder, const OptionValue &value) {
  if (auto *flag = std::get_if<bool>(&value))
    return builder.getBoolAttr(*flag);
  if (auto *integer = std::get_if<int64_t>(&value))
    return builder.getI64IntegerAttr(*integer);
  if (auto *number = std::get_if<double>(&value))
    return builder.getF64FloatAttr(*number);
  if (auto *text = std::get_if<std::string>(&value))
    return builder.getStringAttr(*text);
  const auto &list = std::get<std::vector<std::string>>(value);
  return builder.getStrArrayAttr(SmallVector<StringRef>(list.begin(), list.end()));
}

/// The same, a number where a text is one.
static Attribute numberOrText(Builder &builder, const OptionInfo &option,
                              const OptionValue &value) {
  double number = 0;
  if (option.kind == Kind::TextOrNumber &&
      !StringRef(std::get<std::string>(value)).getAsDouble(number))
    return builder.getF64FloatAttr(number);
  return attributeOf(builder, value);
}

/// The options that a site has of its own; null if there are none.
static Result<DictionaryAttr> optionsOf(MLIRContext *context, const SiteRequest &request,
                                        bool isStatic) {
  Builder builder(context);
  NamedAttrList fields;
  for (const OptionInfo &option : recipe::options()) {
    const OptionValue *value = option.isOfPlan() ? request.options.find(option) : nullptr;
    if (!value)
      continue;
    StringRef key = option.key, owner = option.owner;
    if (recipe::findMethod(owner) && !llvm::is_contained(request.method.methods, owner))
      return invalid(key + " belongs to method " + owner + ", found method " +
                     request.method.str());
    if (auto ok = checkValue(option, *value); !ok)
      return Unexpected(ok.error());
    if (owner == "static" && !isStatic)
      return invalid(key + " " + std::get<std::string>(*value) + " belongs to static activations");
    fields.set(key, numberOrText(builder, option, *value));
  }
  return fields.empty() ? DictionaryAttr() : fields.getDictionary(context);
}

/// Is anything asked for that the scheme's name fixes otherwise?
static Result<void> checkFixed(const SiteRequest &request, const recipe::Preset &preset) {
  const std::string &base = request.method.base;
  if (!preset.isInteger() && base != "absmax")
    return invalid("scheme " + Twine(request.scheme()) + " has no integers, which method " + base +
                   " is for; take method absmax, or smoothquant, gptq or lkd");
  if (std::optional<int64_t> asked = request.options.get(option::groupSize);
      asked && preset.groupSize && *asked != *preset.groupSize)
    return invalid("scheme " + Twine(request.scheme()) + " has " +
                   (*preset.groupSize ? "groups of " + Twine(*preset.groupSize)
                                      : Twine("a scale for each row")) +
                   ", found group size " + Twine(*asked));
  if (request.options.has(option::scaleType) && preset.scales)
    return invalid("scheme " + Twine(request.scheme()) + " has scales of " +
                   numerics::toString(*preset.scales) + ", found scale type " +
                   request.options[option::scaleType]);
  std::optional<std::string> activations = request.options.get(option::activations);
  if (request.activations() == "float" && preset.input != recipe::InputCodes::None)
    return invalid("activations float: scheme " + Twine(request.scheme()) +
                   " quantizes activations; take one such as W8A16 or W4A16");
  if (request.isOnline() && preset.input != recipe::InputCodes::Int8)
    return invalid("activations " + Twine(request.activations()) +
                   " need int8 activations, but scheme " + request.scheme() +
                   " has none; take one such as W8A8 or W4A8, or other activations");
  if (activations && preset.isStatic && *activations != request.activations())
    return invalid("scheme " + Twine(request.scheme()) + " has " +
                   (*preset.isStatic ? "static" : "dynamic") + " activations, found " +
                   *activations);
  return {};
}

/// Can activations have the groups that are asked for, beside weights in groups of `weightGroup`?
static Result<void> checkActivationGroups(const SiteRequest &request, const recipe::Preset &preset,
                                          int64_t weightGroup) {
  const int64_t group = request.options[option::activationGroupSize];
  if (group == 0 && request.options[option::activationZeroPoints])
    return invalid("activation-zero-points needs activations in groups, found "
                   "activation-group-size 0; take 32, 64 or 128, or leave zero points out");
  if (group == 0)
    return {};
  const std::string found = "activation-group-size " + std::to_string(group);
  if (!numerics::isTokenGroup(group))
    return invalid("activation-group-size must be 32, 64 or 128, or 0 for one scale a token; "
                   "found " +
                   Twine(group));
  if (preset.input != recipe::InputCodes::Int8)
    return invalid(Twine(found) + " needs int8 activations, but scheme " + request.scheme() +
                   " has none; take one such as W8A8 or W4A8, or activation-group-size 0");
  if (request.isCalibrated())
    return invalid(Twine(found) + " needs dynamic activations, found " +
                   Twine(request.activations()) + "; take these, or activation-group-size 0");
  if (!numerics::fitsGroups(group, weightGroup))
    return invalid(Twine(found) + " does not divide the groups of " + Twine(weightGroup) +
                   " of the weights; take one that does, another group-size, or "
                   "activation-group-size 0");
  return {};
}

/// The format of scales: f16 of groups by default, f32 of rows.
static numerics::ScaleFormat scalesOf(const SiteRequest &request, const recipe::Preset &preset) {
  if (preset.scales)
    return *preset.scales;
  if (auto asked = request.options.get(option::scaleType))
    return *asked == "two-level" ? numerics::ScaleFormat::UI6
           : *asked == "f16"     ? numerics::ScaleFormat::F16
                                 : numerics::ScaleFormat::F32;
  return request.groupSize() ? numerics::ScaleFormat::F16 : numerics::ScaleFormat::F32;
}

Result<PlanAttr> easyquant::equant::makePlan(MLIRContext *context, const SiteRequest &request) {
  for (const OptionInfo &option : recipe::options())
    if (const OptionValue *value = option.planned && option.perSite && option.kind == Kind::Choice
                                       ? request.options.find(option)
                                       : nullptr)
      if (auto ok = checkValue(option, *value); !ok)
        return Unexpected(ok.error());
  std::optional<recipe::Preset> preset = recipe::findPreset(request.scheme());
  if (!preset)
    return invalid("scheme " + Twine(request.scheme()) +
                   " has a format for each kind of site; name one, such as W4A16_ASYM");
  int64_t groupSize = request.groupSize();
  if (preset->isFloat() && request.options[option::groupSize] != 0)
    return invalid("group size " + Twine(groupSize) + " needs a scheme, but scheme is " +
                   request.scheme());
  if (groupSize < 0 || groupSize % 8 != 0)
    return invalid("group size must be a positive multiple of 8, or 0 for a scale per channel; "
                   "found " +
                   Twine(groupSize));
  if (groupSize > lm::kMaxExtent)
    return invalid("group size must be at most " + Twine(lm::kMaxExtent) + ", found " +
                   Twine(groupSize));
  if (auto ok = checkActivationGroups(request, *preset, groupSize); !ok)
    return Unexpected(ok.error());
  if (preset->isFloat())
    return PlanAttr();
  const std::string &base = request.method.base;
  if (auto ok = checkFixed(request, *preset); !ok)
    return Unexpected(ok.error());
  if (preset->asymmetric && base != "zeropoint")
    return invalid("scheme " + Twine(request.scheme()) + " has " +
                   (preset->minima ? "minima" : "zero points") + ", but " + base +
                   " chooses none; take method zeropoint");

  if (preset->superBlocks && !preset->asymmetric && base == "zeropoint")
    return invalid("scheme " + Twine(request.scheme()) +
                   " has no zero points, which method zeropoint chooses; take method symmetric or "
                   "absmax");

  numerics::Scheme weight;
  weight.bits = preset->weightBits;
  weight.codes = preset->codes;
  weight.table = preset->table;
  weight.scales = scalesOf(request, *preset);
  weight.symmetric = base != "zeropoint";
  weight.fullRange = base == "symmetric";
  weight.granularity =
      groupSize == 0 ? numerics::Granularity::Channel : numerics::Granularity::Group;
  weight.groupSize = groupSize;
  weight.outer = preset->outer;
  weight.minima = preset->minima;
  weight.superBlocks = preset->superBlocks;
  const int64_t block = request.options[option::hadamardBlock];
  if (!numerics::isHadamardBlock(block))
    return invalid("hadamard-block must be a power of two from " + Twine(numerics::kLeastHadamard) +
                   " to " + Twine(numerics::kLargestHadamard) + ", found " + Twine(block));
  weight.hadamard = request.isRotated() ? block : 0;
  if (weight.scales == numerics::ScaleFormat::UI6 && groupSize == 0)
    return invalid("scale type two-level needs groups, but scheme " + Twine(request.scheme()) +
                   " has a scale for each row; give a group size, or scale type f32");
  Result<numerics::ScaleRule> rule = ruleOf(request, weight);
  if (!rule)
    return Unexpected(rule.error());

  Builder builder(context);
  SchemeAttr input;
  if (preset->input == recipe::InputCodes::F4E2M1FN) {
    // The scheme of the weights, with scales of groups from the values of each row.
    numerics::Scheme scheme = weight;
    scheme.dynamic = true;
    input = SchemeAttr::get(context, scheme);
  } else if (preset->input != recipe::InputCodes::None) {
    numerics::Scheme scheme{.bits = 8, .hadamard = weight.hadamard};
    bool isInteger = preset->input == recipe::InputCodes::Int8;
    scheme.codes = isInteger ? numerics::CodeFormat::Integer : numerics::CodeFormat::F8E4M3FN;
    scheme.dynamic = !request.isCalibrated();
    scheme.granularity =
        scheme.dynamic ? numerics::Granularity::Token : numerics::Granularity::Tensor;
    scheme.groupSize = request.options[option::activationGroupSize];
    scheme.symmetric =
        scheme.dynamic ? !request.options[option::activationZeroPoints] : weight.symmetric;
    scheme.fullRange = !scheme.dynamic && weight.fullRange;
    scheme.sinks = request.options[option::sinks] == "keep";
    if (scheme.sinks && (!isInteger || scheme.dynamic))
      return invalid(Twine("sinks keep belongs to static or online activations of int8, found ") +
                     (scheme.dynamic ? "dynamic ones" : numerics::toString(scheme.codes)));
    input = request.isOnline()
                ? SchemeAttr::perTensorOnline(context, scheme.sinks).inBasis(scheme.hadamard)
                : SchemeAttr::get(context, scheme);
  }
  Result<DictionaryAttr> options = optionsOf(context, request, input && input.isCalibrated());
  if (!options)
    return Unexpected(options.error());
  SmallVector<StringRef> methods(request.method.methods.begin(), request.method.methods.end());
  bool isPercentile = rule->kind == numerics::ScaleRuleKind::Percentile;
  return PlanAttr::get(builder.getStrArrayAttr(methods), static_cast<ScaleRule>(rule->kind),
                       isPercentile ? builder.getF64FloatAttr(rule->percentile) : FloatAttr(),
                       SchemeAttr::get(context, weight), input, *options);
}

//===----------------------------------------------------------------------===//
// Recipes as attributes
//===----------------------------------------------------------------------===//

/// What is planned, of a recipe or of one of its rules.
static void describe(Builder &builder, const SiteRequest &request, bool ofRule,
                     NamedAttrList &fields) {
  for (const OptionInfo &option : recipe::options()) {
    if (ofRule ? !option.perSite : !option.planned)
      continue;
    StringRef key = option.key;
    if (&option == &option::method.info()) {
      fields.set(key, builder.getStringAttr(request.method.spelledOut(request.scheme())));
    } else if (&option == &option::groupSize.info()) {
      // A mix has one for each kind of site.
      if (!recipe::findMix(request.scheme()) || request.options.has(option))
        fields.set(key, builder.getI64IntegerAttr(request.groupSize()));
    } else if (&option == &option::activations.info()) {
      fields.set(key, builder.getStringAttr(request.activations()));
    } else if (&option == &option::mixed.info()) {
      if (request.options[option::mixed])
        fields.set(key, builder.getBoolAttr(true));
    } else if (&option == &option::dequantize.info()) {
      if (request.options[option::dequantize])
        fields.set(key, builder.getBoolAttr(true));
    } else if (&option == &option::sinks.info()) {
      if (request.isCalibrated() && request.options.has(option::sinks))
        fields.set(key, builder.getStringAttr(request.options[option::sinks]));
    } else if (&option == &option::activationBasis.info()) {
      fields.set(key, builder.getStringAttr(request.isRotated() ? "hadamard" : "plain"));
    } else if (&option == &option::activationZeroPoints.info()) {
      if (request.options[option::activationZeroPoints])
        fields.set(key, builder.getBoolAttr(true));
    } else if (&option == &option::activationGroupSize.info()) {
      // Where codes are kept, 0 is not the default.
      const int64_t size = request.options[option::activationGroupSize];
      if (size != 0 || (request.isKept() && request.options.has(option)))
        fields.set(key, builder.getI64IntegerAttr(size));
    } else if (&option == &option::hadamardBlock.info()) {
      if (request.isRotated())
        fields.set(key, builder.getI64IntegerAttr(request.options[option::hadamardBlock]));
    } else if (const OptionValue *value = request.options.find(option)) {
      fields.set(key, attributeOf(builder, *value));
    } else if (option.planned && &option != &option::weightPercentile.info() &&
               &option != &option::scaleType.info() && &option != &option::headGroupSize.info()) {
      fields.set(key, attributeOf(builder, request.options.valueOrDefault(option)));
    }
  }
}

DictionaryAttr easyquant::equant::toAttribute(MLIRContext *context, const recipe::Recipe &recipe) {
  Builder builder(context);
  NamedAttrList fields;
  describe(builder, recipe.request, /*ofRule=*/false, fields);
  SmallVector<Attribute> rules;
  for (const recipe::SiteRule &rule : recipe.sites) {
    NamedAttrList entry;
    entry.set("match", builder.getStringAttr(rule.match));
    describe(builder, rule.request, /*ofRule=*/true, entry);
    rules.push_back(entry.getDictionary(context));
  }
  if (!rules.empty())
    fields.set("sites", builder.getArrayAttr(rules));
  return fields.getDictionary(context);
}

void easyquant::equant::recordOptions(ModuleOp module, const recipe::OptionValues &values,
                                      StringRef method) {
  auto known = module->getAttrOfType<DictionaryAttr>(kRecipeAttr);
  if (!known)
    return;
  Builder builder(module.getContext());
  NamedAttrList fields(known);
  std::map<StringRef, NamedAttrList> sections;
  for (const OptionInfo &option : recipe::options()) {
    const OptionValue *value = values.find(option);
    if (!value || option.key.empty() || (!method.empty() && method != StringRef(option.owner)))
      continue;
    NamedAttrList &place = option.section.empty() ? fields : sections[option.section];
    place.set(option.key, numberOrText(builder, option, *value));
  }
  for (auto &[name, section] : sections)
    fields.set(name, section.getDictionary(module.getContext()));
  module->setAttr(kRecipeAttr, fields.getDictionary(module.getContext()));
}
