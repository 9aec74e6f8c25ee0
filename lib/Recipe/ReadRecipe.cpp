//===- ReadRecipe.cpp - Recipes from JSON ---------------------------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "easyquant/Recipe/Presets.h"
#include "easyquant/Recipe/Recipe.h"

#include "easyquant/Support/FieldReader.h"

#include "llvm/ADT/STLFunctionalExtras.h"
#include "llvm/Support/MemoryBuffer.h"

using namespace easyquant;
using namespace easyquant::recipe;
using llvm::StringRef;

/// Unknown keys are mistakes in the recipe.
static constexpr FieldReader::Options kStrict{
    .code = ErrorCode::InvalidArgument, .nullIsAbsent = false, .refuseUnknown = true};

template <typename T>
static void readAs(FieldReader &fields, const OptionInfo &option, OptionValues &values) {
  T value{};
  fields.required(option.key.data(), value, Bounds{std::numeric_limits<int64_t>::min()});
  if (!fields.failed())
    values.set(option, std::move(value));
}

static void readOption(FieldReader &fields, const OptionInfo &option, OptionValues &values) {
  if (!fields.has(option.key.data()))
    return;
  switch (option.kind) {
  case Kind::Switch:
    return readAs<bool>(fields, option, values);
  case Kind::Integer:
    return readAs<int64_t>(fields, option, values);
  case Kind::Number:
    return readAs<double>(fields, option, values);
  case Kind::Text:
  case Kind::Choice:
    return readAs<std::string>(fields, option, values);
  case Kind::List:
    return readAs<std::vector<std::string>>(fields, option, values);
  case Kind::TextOrNumber: {
    std::string text;
    fields.required(option.key.data(), TextOrNumber{text});
    if (!fields.failed())
      values.set(option, std::move(text));
    return;
  }
  }
}

/// Reads the options that `isMeant` says are legal here.
static void readOptions(FieldReader &fields, OptionValues &values,
                        llvm::function_ref<bool(const OptionInfo &)> isMeant) {
  for (const OptionInfo &option : options())
    if (!option.key.empty() && isMeant(option))
      readOption(fields, option, values);
}

/// The method is what its text means for the scheme.
static void parseMethodOf(SiteRequest &request, FieldReader &fields) {
  if (fields.failed())
    return;
  Result<MethodExpression> parsed = parseMethod(request.options[option::method], request.scheme());
  if (parsed)
    request.method = *parsed;
  else
    fields.failInWords(ErrorCode::InvalidArgument, "{}", parsed.error().message);
}

static Result<SiteRule> readRule(const Json &value, const SiteRequest &defaults,
                                 const std::string &where) {
  if (!value.isObject())
    return makeError(ErrorCode::InvalidArgument,
                     "{}: found {}, expected an object with the key match", where,
                     value.describe());
  SiteRule rule;
  rule.request = defaults;
  FieldReader fields(value, where, kStrict);
  fields.required("match", rule.match);
  // A rule with a scheme of its own has that scheme's default groups.
  if (fields.names("scheme"))
    rule.request.options.reset(option::groupSize);
  if (fields.names("weight_observer"))
    rule.request.options.reset(option::weightPercentile);
  readOptions(fields, rule.request.options, [](const OptionInfo &o) { return o.perSite; });
  // Nor has one whose name says how activations are scaled those of the others.
  std::optional<Preset> preset = findPreset(rule.request.scheme());
  if (preset && preset->isStatic && !fields.names("activations"))
    rule.request.options.reset(option::activations);
  if (!rule.request.isCalibrated() && !fields.names("sinks"))
    rule.request.options.reset(option::sinks);
  const bool mayHaveGroups = rule.request.hasInt8Activations() && !rule.request.isCalibrated();
  if (!mayHaveGroups && !fields.names("activation_group_size"))
    rule.request.resetActivationGroups();
  if (rule.request.options[option::activationGroupSize] == 0 &&
      !fields.names("activation_zero_points"))
    rule.request.options.reset(option::activationZeroPoints);
  parseMethodOf(rule.request, fields);
  fields.finish();
  if (auto done = fields.result(); !done)
    return Unexpected(done.error());
  return rule;
}

Result<Recipe> recipe::parseRecipe(StringRef text, StringRef file) {
  Result<Json> json = Json::parseObject(std::string_view(text), std::string_view(file));
  if (!json)
    return Unexpected(Error{ErrorCode::InvalidArgument, json.error().message});
  Recipe recipe;
  recipe.file = file.str();
  FieldReader fields(*json, recipe.file, kStrict);
  OptionValues &planned = recipe.request.options;
  readOptions(fields, planned, [](const OptionInfo &o) { return o.planned; });
  parseMethodOf(recipe.request, fields);
  readOptions(fields, recipe.options,
              [](const OptionInfo &o) { return !o.planned && o.section.empty(); });
  fields.object("kv", [&](FieldReader &kv) {
    std::string scheme;
    kv.required("scheme", scheme);
    readOptions(kv, recipe.options, [](const OptionInfo &o) { return o.section == "kv"; });
  });
  Json rules(Json::Array{});
  fields.optional("sites", rules);
  fields.check(rules.isArray(), "sites", rules.describe(), "an array");
  fields.finish();
  if (auto done = fields.result(); !done)
    return Unexpected(done.error());
  for (size_t i = 0; i < rules.size(); ++i) {
    Result<SiteRule> rule =
        readRule(rules[i], recipe.request, fmt::format("{}: sites[{}]", recipe.file, i));
    if (!rule)
      return Unexpected(rule.error());
    recipe.sites.push_back(std::move(*rule));
  }
  return recipe;
}

Result<Recipe> recipe::readRecipe(StringRef file) {
  auto buffer = llvm::MemoryBuffer::getFile(file, /*IsText=*/true);
  if (!buffer)
    return makeError(ErrorCode::NotFound, "{}: cannot be read: {}", file.str(),
                     buffer.getError().message());
  return parseRecipe((*buffer)->getBuffer(), file);
}
