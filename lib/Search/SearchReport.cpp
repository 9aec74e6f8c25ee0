//===- SearchReport.cpp - What a search for formats found -----------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "SearchReport.h"

#include "easyquant/Dialect/Equant/Analysis/SitePatterns.h"
#include "easyquant/Support/AttributeJson.h"

#include "llvm/ADT/MapVector.h"
#include "llvm/ADT/StringExtras.h"

#include <cmath>

using namespace mlir;
using namespace easyquant;
using namespace easyquant::execution;
using namespace easyquant::search;

//===----------------------------------------------------------------------===//
// Recipes
//===----------------------------------------------------------------------===//

std::string easyquant::search::kindOf(const SearchGroup &group) {
  auto [before, number, after] = equant::splitAtNumber(group.name());
  return StringRef(number.empty() ? before : after).ltrim('.').str();
}

static StringRef basisOf(const SearchFormat &format) {
  return format.isRotated ? "hadamard" : "plain";
}

DictionaryAttr easyquant::search::recipeOf(ModuleOp module, const SearchSpace &space,
                                           ArrayRef<size_t> candidates) {
  Builder builder(module.getContext());
  NamedAttrList recipe(module->getAttrOfType<DictionaryAttr>(equant::kRecipeAttr));
  auto known = dyn_cast_or_null<StringAttr>(recipe.get("activation_basis"));
  const StringRef basisOfRecipe = known ? known.getValue() : "";
  // Sites of one kind that get one format share a rule.
  using Key = std::tuple<std::string, std::string, size_t>; // around the number, and the format
  llvm::MapVector<Key, std::pair<std::string, SmallVector<std::string>>, std::map<Key, unsigned>>
      rules;
  for (auto [group, chosen] : llvm::zip_equal(space.groups, candidates))
    for (const PlannedSite &site : group.sites) {
      auto [before, number, after] = equant::splitAtNumber(site.name());
      const FormatCandidate &candidate = group.candidates[chosen];
      auto &[method, numbers] = rules[{before, after, candidate.format}];
      method = candidate.method;
      numbers.push_back(number);
    }
  SmallVector<Attribute> entries;
  for (const auto &[key, rule] : rules) {
    const auto &[before, after, format] = key;
    NamedAttrList entry;
    entry.set("match", builder.getStringAttr(equant::patternOf({before, after}, rule.second)));
    entry.set("scheme", builder.getStringAttr(space.formats[format].scheme));
    entry.set("group_size", builder.getI64IntegerAttr(space.formats[format].groupSize));
    if (space.formats[format].isTwoLevel)
      entry.set("scale_type", builder.getStringAttr("two-level"));
    if (const StringRef basis = basisOf(space.formats[format]); basis != basisOfRecipe)
      entry.set("activation_basis", builder.getStringAttr(basis));
    if (int64_t size = space.formats[format].activationGroupSize)
      entry.set("activation_group_size", builder.getI64IntegerAttr(size));
    entry.set("method", builder.getStringAttr(rule.first));
    entries.push_back(entry.getDictionary(module.getContext()));
  }
  recipe.set("sites", builder.getArrayAttr(entries));
  return recipe.getDictionary(module.getContext());
}

//===----------------------------------------------------------------------===//
// The report
//===----------------------------------------------------------------------===//

/// Adds the times that were measured.
static void addTimes(Json::Object &object, const numerics::Milliseconds &milliseconds) {
  if (milliseconds.decode > 0)
    object["decode_ms"] = milliseconds.decode;
  if (milliseconds.prefill > 0)
    object["prefill_ms"] = milliseconds.prefill;
}

static Json::Array groupsAsJson(const SearchSpace &space, const SearchRun *run,
                                const SearchTable &table) {
  Json::Array groups;
  std::vector<size_t> next(run ? run->findings().size() : 0);
  for (auto [index, group] : llvm::enumerate(space.groups)) {
    const GroupFindings *found =
        run ? &run->findings()[group.layer].groups[next[group.layer]++] : nullptr;
    Json::Array sites;
    std::vector<Json::Object> choices;
    for (const PlannedSite &site : group.sites)
      sites.push_back(site.name());
    for (auto [i, candidate] : llvm::enumerate(group.candidates)) {
      Json::Object choice{{"format", candidate.format}, {"bytes", candidate.bytes}};
      addTimes(choice, candidate.milliseconds);
      if (found)
        choice["weight_error"] = found->weightErrors[i];
      if (found && found->errors[i] >= 0)
        choice["error"] = found->errors[i];
      choices.push_back(std::move(choice));
    }
    for (auto [i, cost] : llvm::zip_equal(table.candidates[index], table.costs[index]))
      choices[i]["loss"] = cost.loss;
    groups.push_back(Json::Object{{"name", group.name()},
                                  {"kind", kindOf(group)},
                                  {"layer", group.isHead ? Json() : Json(group.layer)},
                                  {"sites", std::move(sites)},
                                  {"weights", group.weights()},
                                  {"choices", std::move(choices)}});
  }
  return groups;
}

static Json::Object pointAsJson(ModuleOp module, const SearchSpace &space,
                                const SearchPoint &point) {
  Json::Array formats;
  int64_t layerBytes = 0;
  numerics::Milliseconds milliseconds = space.fixedMilliseconds;
  for (auto [group, chosen] : llvm::zip_equal(space.groups, point.candidates)) {
    formats.push_back(group.candidates[chosen].format);
    layerBytes += group.isHead ? 0 : group.candidates[chosen].bytes;
    milliseconds += group.candidates[chosen].milliseconds;
  }
  Json::Object result{
      {"budget", Json::Object{{"kind", point.budget}, {"value", point.value}}},
      {"formats", std::move(formats)},
      {"bytes", point.bytes},
      {"weights_bytes", point.bytes + space.fixedBytes},
      {"avg_bits", 8.0 * static_cast<double>(layerBytes) / static_cast<double>(space.weights())},
      {"predicted", point.predicted},
      {"verified", point.verified ? Json(point.verified->objective) : Json()},
      {"evaluations", point.evaluations},
      {"recipe", toJson(recipeOf(module, space, point.candidates))}};
  if (point.verified && point.verified->nextToken >= 0) {
    result["perplexity"] = std::exp(point.verified->nextToken);
    result["float_perplexity"] = std::exp(point.verified->floatNextToken);
  }
  addTimes(result, milliseconds);
  if (point.isLocalOptimum)
    result["local_optimum"] = *point.isLocalOptimum;
  if (!point.weights.empty()) {
    Json::Object weights;
    for (const auto &[kind, weight] : point.weights)
      weights[kind] = weight;
    result["coefficients"] = std::move(weights);
  }
  return result;
}

Json::Object easyquant::search::reportOf(ModuleOp module, const SearchSpace &space,
                                         const SearchRun *run, const SearchTable &table,
                                         ArrayRef<SearchPoint> points) {
  const bool isMeasured = run && !run->findings().empty();
  Json::Array formats, layers, checks, found;
  for (const SearchFormat &format : space.formats)
    formats.push_back(Json::Object{{"name", format.name()},
                                   {"scheme", format.scheme},
                                   {"group_size", format.groupSize},
                                   {"two_level", format.isTwoLevel},
                                   {"basis", basisOf(format)},
                                   {"activation_group_size", format.activationGroupSize}});
  std::vector<double> predicted, measured;
  if (isMeasured) {
    for (const LayerFindings &layer : run->findings().drop_back(space.head() ? 1 : 0))
      layers.push_back(Json::Object{{"losses", Json(layer.losses)}});
    for (const CheckedPair &pair : run->checkedPairs()) {
      predicted.push_back(pair.predicted);
      measured.push_back(pair.measured);
      checks.push_back(
          Json::Object{{"group", pair.group},
                       {"format", space.groups[pair.group].candidates[pair.candidate].format},
                       {"predicted", pair.predicted},
                       {"measured", pair.measured}});
    }
  }
  for (const SearchPoint &point : points)
    found.push_back(pointAsJson(module, space, point));
  Json::Object report{{"format", "easyquant-search"},
                      {"format_version", 1},
                      {"formats", std::move(formats)},
                      {"groups", groupsAsJson(space, isMeasured ? run : nullptr, table)},
                      {"layers", std::move(layers)},
                      {"checks", std::move(checks)},
                      {"points", std::move(found)},
                      {"weights", space.weights()},
                      {"fixed_bytes", space.fixedBytes}};
  if (run)
    report["forwards"] = run->forwards();
  if (predicted.size() > 1)
    report["rank_correlation"] = numerics::rankCorrelation(predicted, measured);
  return report;
}
