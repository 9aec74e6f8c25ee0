//===- SitePlans.cpp - What the plan passes share -------------------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "SitePlans.h"

#include "KeptSites.h"
#include "SiteKinds.h"

#include "easyquant/Dialect/Equant/Analysis/FloatByDefault.h"
#include "easyquant/Dialect/Equant/Analysis/NothingToDo.h"
#include "easyquant/Dialect/Equant/Analysis/RotatedValues.h"
#include "easyquant/Dialect/Equant/Analysis/SitePatterns.h"
#include "easyquant/Dialect/Equant/Transforms/FoldScale.h"
#include "easyquant/Dialect/LM/Analysis/Calls.h"
#include "easyquant/Numerics/Hadamard.h"

#include "llvm/ADT/SetVector.h"

#include <map>

using namespace mlir;
using namespace easyquant;
using namespace easyquant::equant;
using recipe::Recipe;
using recipe::SiteRequest;
namespace option = easyquant::recipe::option;

namespace {

/// Gives sites their requests.
class SitePlanner {
public:
  SitePlanner(ModuleOp module, Recipe recipe)
      : module(module), recipe(std::move(recipe)), kinds(module) {
    module.walk([&](QuantizableOpInterface op) {
      ops.push_back(op);
      sites.push_back(op.getSite());
    });
    embeddings = untiedEmbeddings(module);
    for (lm::EmbeddingOp op : embeddings)
      sites.push_back(embeddingSite(op.getTable()));
  }

  LogicalResult run(StringRef pass, bool requireSites);

private:
  /// What is wrong with a recipe is said with its file.
  InFlightDiagnostic onModule() {
    InFlightDiagnostic diagnostic = emitError(module.getLoc());
    if (!recipe.file.empty())
      diagnostic << recipe.file << ": ";
    return diagnostic;
  }
  LogicalResult checkHead();
  LogicalResult checkMixed();
  LogicalResult checkMix();
  LogicalResult matchRules();
  /// The rule of a site, or what is asked of those without.
  const SiteRequest &askedOf(StringRef site) const;
  /// Puts rules of one format in place of a mix, so that the recipe keeps what it means.
  void expandMixes(const SitePatterns &ignored, const SitePatterns &targeted);
  SiteRequest requestFor(QuantizableOpInterface op);
  /// Empty, or what is asked of a site that no model of `lm` has, and needs one; puts the plain
  /// basis in the place of a rotated one that nobody asked for.
  static std::string whyNoModel(QuantizableOpInterface op, SiteRequest &request);
  /// Error: activations of experts whose ranges calibration text would give.
  static Result<void> checkExperts(const SiteRequest &request);
  /// What is left of it for the head that drafts, through which no text is run.
  SiteRequest withoutText(StringRef site, SiteRequest request);
  void reportTextless();
  /// What a rule asks of a site outside the layers.
  SiteRequest requestOutside(const SiteRequest &rule) const;
  LogicalResult planEmbedding(lm::EmbeddingOp op);
  /// The plan of a site of so many columns, whose scheme may be another one then.
  Result<PlanAttr> planFor(StringRef site, const SiteRequest &request, int64_t columns);
  void reportFallbacks();

  ModuleOp module;
  Recipe recipe;
  SmallVector<QuantizableOpInterface> ops;
  SmallVector<lm::EmbeddingOp> embeddings; ///< that are sites
  SmallVector<StringRef> sites;            ///< of both
  llvm::StringMap<size_t> ruleOf;          ///< index in recipe.sites
  SiteKinds kinds;
  /// Sites whose scheme has super-blocks that do not fit, by both schemes.
  std::map<std::pair<std::string, std::string>, SmallVector<StringRef>> fallbacks;
  /// Sites of the head that drafts, by the method that they go without.
  std::map<std::string, SmallVector<StringRef>> textless;
};

} // namespace

LogicalResult SitePlanner::checkHead() {
  recipe::OptionValues &options = recipe.request.options;
  std::string head = options[option::head];
  const recipe::Mix *mix = recipe::findMix(recipe.request.scheme());
  if (mix && head.empty()) {
    const SiteRequest own = recipe::resolveMix(recipe.request, recipe::SiteKind::Head, false);
    head = own.scheme();
    if (!options.has(option::headGroupSize))
      options.set(option::headGroupSize, own.groupSize());
  } else if (head.empty()) {
    head = recipe.request.isFloat() ? "float" : recipe.request.isKept() ? "keep" : "int8";
  }
  const bool isScheme = head != "int8" && head != "float" && head != "keep";
  if (auto ok = checkValue(option::head.info(), head); !ok)
    return onModule() << ok.error().message << "; without the option it is int8, or float "
                      << "where the scheme is none";
  if ((recipe.request.isFloat() || recipe.request.isKept()) && head == "int8")
    return onModule() << "head=int8 needs a scheme that quantizes, but scheme is "
                      << recipe.request.scheme() << "; leave head out or give a scheme";
  if (options.has(option::headGroupSize) && !isScheme)
    return onModule() << "head-group-size " << options[option::headGroupSize]
                      << " needs a head with a scheme of its own, such as W4A16, but head is "
                      << head;
  options.set(option::head, head);
  return success();
}

LogicalResult SitePlanner::checkMixed() {
  if (!recipe.request.options[option::mixed])
    return success();
  if (recipe.request.method.base != "zeroquant")
    return onModule() << "mixed precision by blocks belongs to zeroquant, found method "
                      << recipe.request.method.str();
  if (!StringRef(recipe.request.scheme()).starts_with("W8"))
    return onModule() << "mixed means MLP weights of 4 bits beside attention weights of 8: give "
                         "scheme W8A8 or W8A16, found "
                      << recipe.request.scheme();
  return success();
}

/// Checks every format that a mix has.
LogicalResult SitePlanner::checkMix() {
  for (recipe::SiteKind kind :
       {recipe::SiteKind::Head, recipe::SiteKind::QueryKeyValue, recipe::SiteKind::AttentionOutput,
        recipe::SiteKind::GateUp, recipe::SiteKind::Down})
    if (Result<PlanAttr> plan =
            makePlan(module.getContext(), recipe::resolveMix(recipe.request, kind, false));
        !plan)
      return onModule() << plan.error().message;
  return success();
}

LogicalResult SitePlanner::matchRules() {
  for (size_t i = 0; i < recipe.sites.size(); ++i) {
    const std::string &match = recipe.sites[i].match;
    std::string name = "sites[" + std::to_string(i) + "]";
    FailureOr<SitePatterns> matched =
        SitePatterns::get({match}, sites, name, [&] { return onModule(); });
    if (failed(matched))
      return failure();
    for (StringRef site : sites) {
      if (!matched->contains(site))
        continue;
      auto [entry, isNew] = ruleOf.try_emplace(site, i);
      if (!isNew && entry->second != i)
        return onModule() << "site '" << site << "' has two rules: sites[" << entry->second
                          << "], '" << recipe.sites[entry->second].match << "', and " << name
                          << ", '" << match << "'; let one of them name fewer sites";
    }
  }
  return success();
}

const SiteRequest &SitePlanner::askedOf(StringRef site) const {
  auto rule = ruleOf.find(site);
  return rule == ruleOf.end() ? recipe.request : recipe.sites[rule->second].request;
}

void SitePlanner::expandMixes(const SitePatterns &ignored, const SitePatterns &targeted) {
  std::vector<recipe::SiteRule> rules;
  llvm::StringMap<size_t> ruleAfter;
  std::vector<size_t> kept(recipe.sites.size());
  for (auto [i, rule] : llvm::enumerate(recipe.sites))
    if (!recipe::findMix(rule.request.scheme())) {
      kept[i] = rules.size();
      rules.push_back(rule);
    }
  for (const auto &entry : ruleOf)
    if (!recipe::findMix(recipe.sites[entry.second].request.scheme()))
      ruleAfter[entry.first()] = kept[entry.second];

  // Sites of one kind that ask for the same share a rule.
  std::map<std::tuple<std::string, std::string, std::string, int64_t, size_t>,
           std::pair<size_t, SmallVector<std::string>>>
      shared;
  auto expand = [&](StringRef site, const SiteRequest &request) {
    auto rule = ruleOf.find(site);
    auto [before, number, after] = splitAtNumber(site);
    auto [entry, isNew] =
        shared.try_emplace({before, after, request.scheme(), request.groupSize(),
                            rule == ruleOf.end() ? recipe.sites.size() : rule->second},
                           rules.size(), SmallVector<std::string>());
    auto &[index, numbers] = entry->second;
    if (isNew)
      rules.push_back({site.str(), request});
    numbers.push_back(number);
    rules[index].match = patternOf({before, after}, numbers);
    ruleAfter[site] = index;
  };
  auto isMeant = [&](StringRef site) {
    const bool isTarget = recipe.request.options[option::targets].empty();
    return recipe::findMix(askedOf(site).scheme()) && !ignored.contains(site) &&
           (isTarget || targeted.contains(site));
  };
  for (QuantizableOpInterface op : ops)
    if (StringRef site = op.getSite();
        isMeant(site) &&
        ((site != kHeadSite && whyFloatByDefault(op).empty()) || ruleOf.contains(site)))
      expand(site, recipe::resolveMix(askedOf(site), kinds.kindOf(op), kinds.isAtEnd(op)));
  for (lm::EmbeddingOp op : embeddings)
    if (StringRef site = embeddingSite(op.getTable()); isMeant(site)) {
      SiteRequest request = recipe::resolveMix(askedOf(site), recipe::SiteKind::Head, false);
      request.method.methods.clear();
      // It reads no activations that errors could be weighed by.
      if (request.options[option::weightObserver] == "hessian-diagonal")
        request.options.reset(option::weightObserver);
      expand(site, request);
    }
  recipe.sites = std::move(rules);
  ruleOf = std::move(ruleAfter);
}

Result<PlanAttr> SitePlanner::planFor(StringRef site, const SiteRequest &request, int64_t columns) {
  const SiteRequest fitting = recipe::requestForColumns(request, columns);
  if (fitting.scheme() != request.scheme())
    fallbacks[{request.scheme(), fitting.scheme()}].push_back(site);
  return makePlan(module.getContext(), fitting);
}

/// As llama.cpp does, and says.
void SitePlanner::reportFallbacks() {
  for (const auto &[schemes, sites] : fallbacks) {
    InFlightDiagnostic remark = emitRemark(module.getLoc());
    remark << "site '" << sites.front() << "'";
    if (sites.size() > 1)
      remark << " and " << sites.size() - 1 << " more";
    remark << (sites.size() > 1 ? " have" : " has") << " the scheme " << schemes.second
           << ": the blocks of " << schemes.first << " are of " << numerics::kSuperBlock
           << " columns, which do not divide theirs";
  }
}

/// Says which sites stay in the plain basis though their plans had another.
static void reportPlain(ModuleOp module, ArrayRef<QuantizableOpInterface> plain) {
  if (plain.empty())
    return;
  SmallVector<int64_t> widths;
  for (QuantizableOpInterface op : plain)
    widths.push_back(op.getFeatures().inputs);
  llvm::sort(widths);
  widths.erase(llvm::unique(widths), widths.end());
  InFlightDiagnostic remark = emitRemark(module.getLoc());
  QuantizableOpInterface first = plain.front();
  remark << "site '" << first.getSite() << "'";
  if (plain.size() > 1)
    remark << " and " << plain.size() - 1 << " more";
  remark << (plain.size() > 1 ? " stay" : " stays") << " in the plain basis: no block of "
         << numerics::kLeastHadamard << " columns or more divides ";
  llvm::interleave(widths, remark, [&](int64_t width) { remark << width; }, " or ");
}

SiteRequest SitePlanner::requestFor(QuantizableOpInterface op) {
  StringRef site = op.getSite();
  SiteRequest request = askedOf(site);
  if (site != kHeadSite && lm::isOfDraft(op->getParentOfType<func::FuncOp>()))
    return withoutText(site, std::move(request));
  if (ruleOf.contains(site))
    return site == kHeadSite ? requestOutside(request) : request;
  if (site == kHeadSite)
    return headRequest(request);
  if (request.options[option::mixed] && !kinds.isAttention(op))
    request.options.set(option::scheme, "W4" + request.scheme().substr(2));
  return request;
}

std::string SitePlanner::whyNoModel(QuantizableOpInterface op, SiteRequest &request) {
  if (isa<lm::LinearOp>(op))
    return "";
  if (std::string reason = op.whyNoLinear(); !reason.empty())
    return reason;
  const std::string ofModels = ", which belongs to models of lm, and this is a " +
                               op->getName().getStringRef().str() + "; take ";
  if (!request.method.methods.empty())
    return "its plan has method " + request.method.methods.front() +
           ", which runs text through a model of lm, and this is a " +
           op->getName().getStringRef().str() +
           "; take absmax, symmetric, zeropoint or zeroquant alone";
  if (request.isKept())
    return "its plan has scheme " + request.scheme() + ofModels + "a scheme by name";
  if (request.isOnline())
    return "its plan has activations " + request.activations() + ofModels + "dynamic ones";
  if (request.isCalibrated() && !op->hasAttr(kInputScaleAttr))
    return "its plan has static activations, and the op has no " + kInputScaleAttr.str() +
           ", an f32; give it, or take dynamic activations";
  if (request.options[option::weightObserver] == "hessian-diagonal")
    return "its plan has weight observer hessian-diagonal" + ofModels + "another observer";
  if (request.isRotated() && request.options.has(option::activationBasis))
    return "its plan has activations in the basis hadamard" + ofModels + "basis plain";
  request.options.set(option::activationBasis, std::string("plain"));
  return "";
}

Result<void> SitePlanner::checkExperts(const SiteRequest &request) {
  if (!request.isFloat() && request.isCalibrated())
    return makeError(ErrorCode::Unsupported,
                     "its plan has activations {}, whose ranges come from calibration text, and "
                     "those of experts do not yet; give experts dynamic activations",
                     request.activations());
  return {};
}

SiteRequest SitePlanner::withoutText(StringRef site, SiteRequest request) {
  for (const std::string &method : request.method.methods)
    textless[method].push_back(site);
  request.method.methods.clear();
  if (request.options[option::weightObserver] == "hessian-diagonal")
    request.options.set(option::weightObserver, std::string("mse"));
  if (!request.isFloat() && (request.isCalibrated() || request.isOnline())) {
    request.options.set(option::activations, std::string("dynamic"));
    request.options.set(option::sinks, std::string("none")); // which static ones alone have
  }
  return request;
}

void SitePlanner::reportTextless() {
  static constexpr StringLiteral why = "no text is run through the head that drafts";
  Builder b(module.getContext());
  for (const auto &[method, sites] : textless) {
    InFlightDiagnostic remark = emitRemark(module.getLoc());
    remark << "site '" << sites.front() << "'";
    if (sites.size() > 1)
      remark << " and " << sites.size() - 1 << " more";
    remark << (sites.size() > 1 ? " go" : " goes") << " without " << method << ": " << why;
    NamedAttrList entry;
    entry.set("method", b.getStringAttr(method));
    entry.set("sites", b.getStrArrayAttr(sites));
    entry.set("skipped", b.getStringAttr(why));
    recordTransform(module, std::move(entry));
  }
}

/// Methods that all sites have are meant for those in layers, which is where they work; only
/// SmoothQuant asks no more than a norm before the site.
SiteRequest SitePlanner::requestOutside(const SiteRequest &rule) const {
  SiteRequest request = rule;
  if (request.method.methods == recipe.request.method.methods)
    llvm::erase_if(request.method.methods,
                   [](const std::string &name) { return name != "smoothquant"; });
  return request;
}

LogicalResult SitePlanner::planEmbedding(lm::EmbeddingOp op) {
  StringRef site = embeddingSite(op.getTable());
  SiteRequest request = requestOutside(recipe.sites[ruleOf.lookup(site)].request);
  llvm::erase(request.method.methods, "smoothquant");
  if (!request.method.methods.empty())
    return emitError(op.getLoc()) << "site '" << site << "' is an embedding, and method "
                                  << request.method.methods.front()
                                  << " works on linears; take it out of the site's rule";
  Result<PlanAttr> plan =
      planFor(site, request, cast<RankedTensorType>(op.getTable().getType()).getDimSize(1));
  if (!plan)
    return emitError(op.getLoc()) << "site '" << site << "': " << plan.error().message;
  // It reads tokens, no activations.
  if (*plan)
    op->setAttr(kPlanAttr,
                PlanAttr::get((*plan).getMethods(), (*plan).getRule(), (*plan).getPercentile(),
                              (*plan).getWeight().inBasis(0), SchemeAttr(), (*plan).getOptions()));
  return success();
}

/// Empty, or what of the layers lm-build-gradients refuses.
static StringRef whatHasNoGradients(ModuleOp module) {
  StringRef found;
  module.walk([&](Operation *op) {
    auto glu = dyn_cast<lm::GluOp>(op);
    auto attention = dyn_cast<lm::AttentionOp>(op);
    if (glu && glu.getActivation() == lm::GluActivation::Clamped)
      found = "clamped gates";
    else if (attention && attention.getSinkLogits())
      found = "sink logits of attention";
    return found.empty() ? WalkResult::advance() : WalkResult::interrupt();
  });
  return found;
}

LogicalResult SitePlanner::run(StringRef pass, bool requireSites) {
  if (module->hasAttr(kRecipeAttr))
    return onModule() << "module is quantized already: it has " << kRecipeAttr;
  recipe.settleSinks();
  // What is wrong with the options is said once, not for every site.
  if (failed(checkMix()))
    return failure();
  std::vector<std::string> targets = recipe.request.options[option::targets];
  FailureOr<SitePatterns> ignored = SitePatterns::get(recipe.request.options[option::ignore], sites,
                                                      "ignore", [&] { return onModule(); });
  FailureOr<SitePatterns> targeted =
      SitePatterns::get(targets, sites, "targets", [&] { return onModule(); });
  if (failed(ignored) || failed(targeted) || failed(checkHead()) || failed(checkMixed()) ||
      failed(matchRules()))
    return failure();
  expandMixes(*ignored, *targeted);
  recipe.settleSinks();

  if (ops.empty())
    return reportNothingToDo(module, pass, "a quantizable op", requireSites);
  const std::vector<std::string> methods = recipe.methods();
  const auto trained =
      llvm::find_if(methods, [](StringRef name) { return name == "lkd" || name == "signround"; });
  if (StringRef missing = whatHasNoGradients(module); !missing.empty() && trained != methods.end())
    return onModule() << "method " << *trained << " trains layers by their gradients, which "
                      << missing << " have none of yet; take gptq or awq";
  SmallVector<QuantizableOpInterface> plain;    // though planned in a rotated basis
  bool isAnyPlanned = recipe.request.isFloat(); // where nothing is asked, nothing is missing
  KeptSites kept(module, recipe.request.options[option::dequantize]);
  for (QuantizableOpInterface op : ops) {
    StringRef site = op.getSite();
    if (ignored->contains(site) || (!targets.empty() && !targeted->contains(site)))
      continue;
    SiteRequest asked = requestFor(op);
    const bool isNamed = ruleOf.contains(site) || !targets.empty();
    if (!whyFloatByDefault(op).empty() && !isNamed && !asked.isKept())
      continue;
    if (std::string reason = whyNoModel(op, asked); !reason.empty())
      return emitError(op.getLoc()) << "site '" << site << "': " << reason;
    if (asked.isKept()) {
      FailureOr<bool> isCodes = kept.plan(op, asked);
      if (failed(isCodes))
        return failure();
      isAnyPlanned |= *isCodes;
      continue;
    }
    if (auto linear = dyn_cast<lm::LinearOp>(op.getOperation()); linear && linear.getExperts())
      if (auto checked = checkExperts(asked); !checked)
        return emitError(op.getLoc()) << "site '" << site << "': " << checked.error().message;
    Result<PlanAttr> plan = planFor(site, asked, op.getFeatures().inputs);
    if (!plan)
      return emitError(op.getLoc()) << "site '" << site << "': " << plan.error().message;
    if (!*plan)
      continue;
    PlanAttr fitting = inFittingBasis(op, *plan);
    if ((*plan).getWeight().getHadamard() && !fitting.getWeight().getHadamard())
      plain.push_back(op);
    op->setAttr(kPlanAttr, fitting);
    isAnyPlanned = true;
  }
  reportPlain(module, plain);
  kept.report();
  for (lm::EmbeddingOp op : embeddings) {
    StringRef site = embeddingSite(op.getTable());
    bool isMeant = targets.empty() || targeted->contains(site);
    if (!isMeant || ignored->contains(site))
      continue;
    // It goes the way of the head.
    const bool isNamed = ruleOf.contains(site);
    const bool isKept = !isNamed && recipe.request.options[option::head] == "keep";
    if (failed(isNamed  ? planEmbedding(op)
               : isKept ? kept.planEmbedding(op)
                        : kept.keepEmbedding(op)))
      return failure();
  }
  reportFallbacks();
  reportTextless();
  if (!isAnyPlanned &&
      failed(reportNothingToDo(
          module, pass, "a quantizable op that is a target, is not ignored and stays no float",
          requireSites)))
    return failure();
  module->setAttr(kRecipeAttr, toAttribute(module.getContext(), recipe));
  return success();
}

LogicalResult easyquant::equant::planSites(ModuleOp module, StringRef pass,
                                           const Result<Recipe> &recipe, bool requireSites) {
  if (!recipe)
    return emitError(module.getLoc()) << recipe.error().message;
  return SitePlanner(module, *recipe).run(pass, requireSites);
}
