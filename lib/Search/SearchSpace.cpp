//===- SearchSpace.cpp - Which formats groups of sites may have -----------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "SearchSpace.h"

#include "easyquant/Dialect/Equant/Analysis/CheckpointSites.h"
#include "easyquant/Dialect/Equant/Analysis/RecipePlans.h"
#include "easyquant/Dialect/Equant/Analysis/RotatedValues.h"
#include "easyquant/Dialect/Equant/Analysis/StoredBytes.h"
#include "easyquant/Recipe/Presets.h"

#include "llvm/ADT/SetVector.h"
#include "llvm/ADT/StringExtras.h"

using namespace mlir;
using namespace easyquant;
using namespace easyquant::execution;
using namespace easyquant::search;
using equant::PlanAttr;
using equant::QuantizableOpInterface;
using recipe::OptionInfo;
using recipe::SiteRequest;
namespace option = easyquant::recipe::option;

static constexpr llvm::StringLiteral kAll = "all";
static constexpr llvm::StringLiteral kTwoLevelSuffix = "+two-level";
static constexpr char kPlain[] = "plain", kHadamard[] = "hadamard";
/// Larger groups have few bits of scales to save.
static constexpr int64_t kTwoLevelGroups = 32;

std::string SearchFormat::name() const {
  return (groupSize ? fmt::format("{} g{}", scheme, groupSize) : scheme) +
         (isTwoLevel ? " two-level" : "") + (isRotated ? " hadamard" : "") +
         (activationGroupSize ? fmt::format(" a{}", activationGroupSize) : "");
}

std::string SearchGroup::name() const {
  std::string name = sites.front().name();
  for (const PlannedSite &site : ArrayRef(sites).drop_front())
    name += "+" + StringRef(site.name()).rsplit('.').second.str();
  return name;
}

static int64_t elementsOf(const PlannedSite &site) {
  return cast<RankedTensorType>(site.weight().getType()).getNumElements();
}

int64_t SearchGroup::weights() const {
  int64_t count = 0;
  for (const PlannedSite &site : sites)
    count += elementsOf(site);
  return count;
}

SmallVector<Operation *> SearchGroup::linears() const {
  return llvm::map_to_vector(sites, [](PlannedSite site) -> Operation * { return site.op; });
}

int64_t SearchSpace::weights() const {
  int64_t count = 0;
  for (const SearchGroup &group : groups)
    count += group.isHead ? 0 : group.weights();
  return count;
}

const SearchGroup *SearchSpace::head() const {
  return groups.back().isHead ? &groups.back() : nullptr;
}

//===----------------------------------------------------------------------===//
// What the recipe asks of every site
//===----------------------------------------------------------------------===//

static recipe::OptionValue valueOf(Attribute attribute) {
  if (auto flag = dyn_cast<BoolAttr>(attribute))
    return flag.getValue();
  if (auto integer = dyn_cast<IntegerAttr>(attribute))
    return integer.getInt();
  if (auto number = dyn_cast<FloatAttr>(attribute))
    return number.getValueAsDouble();
  if (auto text = dyn_cast<StringAttr>(attribute))
    return text.str();
  std::vector<std::string> list;
  for (auto text : cast<ArrayAttr>(attribute).getAsValueRange<StringAttr>())
    list.push_back(text.str());
  return list;
}

/// The request of `equant.recipe` for sites without rules.
static FailureOr<SiteRequest> requestOf(ModuleOp module) {
  auto attribute = module->getAttrOfType<DictionaryAttr>(equant::kRecipeAttr);
  if (!attribute)
    return emitError(module.getLoc())
           << "no site has a plan: run equant-absmax or another pass that plans first";
  if (attribute.contains("sites"))
    return emitError(module.getLoc())
           << "the recipe has rules for sites, which a search is to find: give one scheme and one "
              "method for all";
  SiteRequest request;
  for (const OptionInfo &option : recipe::options())
    if (Attribute value =
            option.planned && !option.key.empty() ? attribute.get(option.key) : Attribute())
      request.options.set(option, valueOf(value));
  auto method =
      recipe::parseMethod(request.options[option::method], request.options[option::scheme]);
  if (!method)
    return emitError(module.getLoc()) << method.error().message;
  request.method = *method;
  return request;
}

/// The same for a format. Methods are those of the recipe; a base that follows from the scheme's
/// zero points follows from the format's. Behind the layers sites are rounded by the base alone:
/// what transforms and rounds is for sites of layers.
static Result<SiteRequest> withFormat(const SiteRequest &base, const SearchFormat &format,
                                      bool baseAlone) {
  SiteRequest request = base;
  request.options.set(option::scheme, format.scheme);
  request.options.set(option::groupSize, format.groupSize);
  if (format.isTwoLevel)
    request.options.set(option::scaleType, std::string("two-level"));
  request.options.set(option::activationBasis, std::string(format.isRotated ? kHadamard : kPlain));
  request.options.set(option::activationGroupSize, format.activationGroupSize);
  if (format.activationGroupSize == 0)
    request.options.reset(option::activationZeroPoints);
  const recipe::MethodExpression &method = base.method;
  const bool follows = method.base == "absmax" || method.base == "zeropoint";
  Result<recipe::MethodExpression> derived = method;
  if (baseAlone)
    derived = recipe::parseMethod(follows ? "" : method.base, format.scheme);
  else if (follows)
    derived = recipe::parseMethod(llvm::join(method.methods, "+"), format.scheme);
  if (!derived)
    return Unexpected(derived.error());
  request.method = *derived;
  request.options.set(option::method, derived->str());
  return request;
}

//===----------------------------------------------------------------------===//
// Formats
//===----------------------------------------------------------------------===//

/// All schemes whose activations are those of the recipe's, with two-level scales, too, where the
/// recipe does not say what scales are. Those of super-blocks are for files: in artifacts their
/// scales are f32.
static std::vector<std::string> schemesLike(const SiteRequest &base, bool isCheckpoint) {
  const std::string scheme = base.scheme();
  auto input = [](std::string_view name) {
    auto preset = recipe::findPreset(name);
    return preset && !preset->isFloat() ? std::optional(std::pair(preset->input, preset->isStatic))
                                        : std::nullopt;
  };
  std::vector<std::string> names;
  for (const std::string &name : recipe::schemeNames())
    if (input(name) && input(name) == input(scheme) &&
        (isCheckpoint || !recipe::findPreset(name)->superBlocks)) {
      names.push_back(name);
      if (!recipe::findPreset(name)->scales && !base.options.has(option::scaleType))
        names.push_back(name + kTwoLevelSuffix.str());
    }
  return names;
}

/// The bases of a scheme, and the groups of its activations, beside a group size of its weights.
static std::vector<SearchFormat> inBases(const SearchFormat &format, const SiteRequest &base,
                                         const SearchSpaceRequest &asked) {
  SiteRequest request = base;
  request.options.set(option::scheme, format.scheme);
  request.options.reset(option::activationBasis);
  const bool isDynamic = request.hasInt8Activations() && !request.isCalibrated();
  std::vector<std::string> bases = asked.bases;
  if (bases.empty() && isDynamic)
    bases = {kPlain, kHadamard};
  if (bases.empty())
    bases = {request.isRotated() ? kHadamard : kPlain};
  std::vector<SearchFormat> formats;
  for (const std::string &basis : bases)
    for (int64_t size : isDynamic ? asked.activationGroupSizes : std::vector<int64_t>{0}) {
      if (size != 0 && !numerics::fitsGroups(size, format.groupSize))
        continue;
      SearchFormat &own = formats.emplace_back(format);
      own.isRotated = basis == kHadamard;
      own.activationGroupSize = size;
    }
  return formats;
}

/// `isAsked`: schemes are named, and get all groups.
static std::vector<SearchFormat> formatsOf(ArrayRef<std::string> schemes, bool isAsked,
                                           const SiteRequest &base,
                                           const SearchSpaceRequest &request) {
  std::vector<SearchFormat> formats;
  auto add = [&](const SearchFormat &format) {
    for (const SearchFormat &own : inBases(format, base, request))
      if (!llvm::is_contained(formats, own))
        formats.push_back(own);
  };
  for (StringRef name : schemes) {
    const bool isTwoLevel = name.consume_back(kTwoLevelSuffix);
    const std::string scheme = name.str();
    auto preset = recipe::findPreset(scheme);
    if (preset && preset->groupSize)
      add({scheme, *preset->groupSize, isTwoLevel});
    else
      for (int64_t groupSize : request.groupSizes)
        if (!isTwoLevel || isAsked || groupSize <= kTwoLevelGroups)
          add({scheme, groupSize, isTwoLevel});
  }
  return formats;
}

/// Why a site cannot have a plan on a target; empty if it can.
static std::string whyNot(const PlannedSite &site, PlanAttr plan, const targets::Family &family) {
  auto weight = cast<RankedTensorType>(site.weight().getType());
  std::string reason = targets::whyNoKernel(family, weight.getDimSize(0), weight.getDimSize(1),
                                            plan.getWeight(), plan.getInput());
  return reason.empty() ? equant::whyNotQuantizable(site.op, plan)
                        : "no kernel for " + family.title + ": " + reason;
}

/// The format of checkpoints that is asked for, if it is one.
static const formats::CheckpointFormat *checkpointOf(const SearchSpaceRequest &request) {
  if (request.schemes.size() != 1)
    return nullptr;
  auto format = formats::findCheckpointFormat(request.schemes.front());
  return format ? *format : nullptr;
}

namespace {
/// Gives groups their candidates.
class CandidateFinder {
public:
  CandidateFinder(const SearchSpaceRequest &request, SiteRequest base, SearchSpace &space)
      : request(request), base(std::move(base)), space(space), checkpoint(checkpointOf(request)),
        isAll(checkpoint || llvm::is_contained(request.schemes, kAll)) {}
  LogicalResult find(SearchGroup &group) const;
  /// Bytes of the site's weight, in the checkpoint or else in the file of the first target.
  int64_t bytesOf(StringRef site, Value weight, PlanAttr plan) const;

private:
  Result<FormatCandidate> candidate(const SearchGroup &group, size_t format) const;
  Result<std::string> methodOfRule(const SiteRequest &asked, bool isHead) const;

  const SearchSpaceRequest &request;
  SiteRequest base;
  SearchSpace &space;
  const formats::CheckpointFormat *checkpoint; ///< null: what is chosen is compiled
  bool isAll;
};
} // namespace

int64_t CandidateFinder::bytesOf(StringRef site, Value weight, PlanAttr plan) const {
  auto type = cast<RankedTensorType>(weight.getType());
  auto scheme = plan ? plan.getWeight() : equant::SchemeAttr();
  auto input = plan ? plan.getInput() : equant::SchemeAttr();
  return checkpoint ? equant::checkpointBytes(*checkpoint, site, type, scheme, input,
                                              /*isKept=*/false)
                    : equant::storedBytes(*weight.user_begin(), type, scheme, input,
                                          *request.families.front());
}

/// With what fits integers and tables; float formats are rounded as they were measured.
Result<std::string> CandidateFinder::methodOfRule(const SiteRequest &asked, bool isHead) const {
  recipe::MethodExpression method = asked.method;
  std::optional<recipe::Preset> preset = recipe::findPreset(asked.scheme());
  const bool isFitted = preset && (preset->isInteger() || preset->table) && !isHead;
  if (!isFitted || request.fit.empty())
    return method.str();
  for (const std::string &name : request.fit)
    if (!llvm::is_contained(method.methods, name))
      method.methods.push_back(name);
  if (auto ok = recipe::makeMethod(method.base, method.methods); !ok)
    return Unexpected(ok.error());
  return method.spelledOut(asked.scheme()); // a method may imply another base
}

Result<FormatCandidate> CandidateFinder::candidate(const SearchGroup &group, size_t format) const {
  MLIRContext *context = group.activation.getContext();
  FormatCandidate found{format, "", {}, 0};
  Result<SiteRequest> asked = withFormat(base, space.formats[format], group.isHead);
  if (!asked)
    return Unexpected(asked.error());
  Result<std::string> method = methodOfRule(*asked, group.isHead);
  if (!method)
    return Unexpected(method.error());
  found.method = std::move(*method);
  Result<PlanAttr> plan = equant::makePlan(context, *asked);
  if (!plan)
    return Unexpected(plan.error());
  if (!*plan)
    return makeError(ErrorCode::InvalidArgument, "scheme none is no format to choose from");
  for (const PlannedSite &site : group.sites) {
    const PlanAttr own = equant::inFittingBasis(site.op, *plan);
    for (const targets::Family *family : request.families)
      if (std::string reason = whyNot(site, own, *family); !reason.empty())
        return makeError(ErrorCode::Unsupported, "site '{}': {}; take it out of the formats",
                         site.name(), reason);
    auto weight = cast<RankedTensorType>(site.weight().getType());
    const int64_t rows = weight.getDimSize(0), columns = weight.getDimSize(1);
    if (own.getWeight().getSuperBlocks() && columns % numerics::kSuperBlock != 0)
      return makeError(
          ErrorCode::Unsupported,
          "site '{}': its {} columns are no multiple of {}; take it out of the formats",
          site.name(), columns, numerics::kSuperBlock);
    if (checkpoint) {
      if (auto stored = equant::checkpointSite(*checkpoint, site.name(), rows, columns,
                                               own.getWeight(), own.getInput(), /*isKept=*/false);
          !stored)
        return Unexpected(stored.error());
    }
    found.plans.push_back(own);
    found.bytes += bytesOf(site.name(), site.weight(), own);
  }
  return found;
}

LogicalResult CandidateFinder::find(SearchGroup &group) const {
  for (size_t format = 0; format < space.formats.size(); ++format) {
    Result<FormatCandidate> found = candidate(group, format);
    if (!found && isAll)
      continue;
    if (!found)
      return emitError(group.sites.front().loc())
             << "format " << space.formats[format].name() << ": " << found.error().message;
    // Two names of one plan: a group larger than the row, or zero points that a method brings
    // along.
    if (llvm::none_of(group.candidates, [&](const FormatCandidate &known) {
          return known.plans.front() == found->plans.front();
        }))
      group.candidates.push_back(std::move(*found));
  }
  if (group.candidates.empty())
    return emitError(group.sites.front().loc())
           << "site '" << group.sites.front().name() << "': none of the formats fits it";
  return success();
}

/// Sites that read one activation, and all linears of the same experts.
static SmallVector<SiteGroup> sitesTogether(func::FuncOp layer) {
  SmallVector<SiteGroup> together;
  for (SiteGroup &group : siteGroups(layer)) {
    SiteGroup *known = llvm::find_if(together, [&](const SiteGroup &other) {
      return group.offsets && other.offsets == group.offsets;
    });
    if (known == together.end())
      together.push_back(std::move(group));
    else
      llvm::append_range(known->sites, group.sites);
  }
  return together;
}

FailureOr<SearchSpace> easyquant::search::findSearchSpace(ModuleOp module,
                                                          ArrayRef<func::FuncOp> layers,
                                                          const SearchSpaceRequest &request) {
  FailureOr<SiteRequest> base = requestOf(module);
  if (failed(base))
    return failure();
  SearchSpace space;
  std::vector<std::string> schemes = request.schemes;
  for (const std::string &basis : request.bases)
    if (basis != kPlain && basis != kHadamard)
      return emitError(module.getLoc()) << "unknown activation basis '" << basis
                                        << "' to choose from; expected plain or hadamard";
  for (int64_t size : request.activationGroupSizes)
    if (size != 0 && !numerics::isTokenGroup(size))
      return emitError(module.getLoc()) << "groups of " << size
                                        << " activations to choose from; expected 32, 64 or 128, "
                                           "or 0 for one scale a token";
  const bool isCheckpoint = checkpointOf(request);
  const bool isAll = isCheckpoint || llvm::is_contained(schemes, kAll);
  if (isAll)
    schemes = schemesLike(*base, isCheckpoint);
  if (isCheckpoint) { // the first of several names of one plan stays: the format's own
    std::vector<std::string> ordered;
    for (const bool fixesGroups : {true, false})
      llvm::copy_if(schemes, std::back_inserter(ordered), [&](const std::string &name) {
        auto preset = recipe::findPreset(name);
        return (preset && preset->groupSize) == fixesGroups;
      });
    schemes = std::move(ordered);
  }
  space.formats = formatsOf(schemes, !isAll, *base, request);
  CandidateFinder finder(request, *base, space);
  int64_t searched = 0;
  auto add = [&](SearchGroup group) -> LogicalResult {
    for (const PlannedSite &site : group.sites) {
      if (equant::rotationOf(site.weight()))
        return emitError(site.loc()) << "site '" << site.name()
                                     << "' is in a rotated basis already, which the search is to "
                                        "find: run equant-rotate behind it";
      searched += finder.bytesOf(site.name(), site.weight(), site.plan);
    }
    space.groups.push_back(std::move(group));
    return finder.find(space.groups.back());
  };
  for (auto [index, layer] : llvm::enumerate(layers)) {
    llvm::SetVector<Value> cuts;
    for (SiteGroup &sites : sitesTogether(layer)) {
      // What was computed for a format is not that of another.
      for (PlannedSite &site : sites.sites)
        site.plan = site.plan.withResults({});
      cuts.insert(nextCut(layer, sites.sites.front().op));
      const size_t block = cuts.size() - 1; // sites come in the order of execution
      SmallVector<SearchGroup> groups;
      if (!request.perSite && !isCheckpoint)
        groups.push_back({index, false, block, sites.activation, sites.sites, {}});
      else
        for (const PlannedSite &site : sites.sites)
          groups.push_back({index, false, block, site.activation(), {site}, {}});
      for (SearchGroup &group : groups)
        if (failed(add(std::move(group))))
          return failure();
    }
  }
  if (space.groups.empty())
    return emitError(module.getLoc()) << "the layers have no site with a plan to change";
  if (request.head)
    for (SiteGroup &sites : siteGroups(module.lookupSymbol<func::FuncOp>("forward"))) {
      for (PlannedSite &site : sites.sites)
        site.plan = site.plan.withResults({});
      if (failed(add({layers.size(), true, 0, sites.activation, sites.sites, {}})))
        return failure();
    }
  module.walk([&](QuantizableOpInterface op) {
    space.fixedBytes +=
        finder.bytesOf(op.getSite(), op.getWeightOperand().get(), equant::getPlan(op));
  });
  module.walk([&](lm::EmbeddingOp op) {
    if (PlanAttr plan = equant::getPlan(op))
      space.fixedBytes += finder.bytesOf(equant::embeddingSite(op.getTable()), op.getTable(), plan);
  });
  // Floats of checkpoints are halves.
  space.fixedBytes += isCheckpoint ? equant::otherBytes(module, equant::Holder::Checkpoint) / 2
                                   : equant::otherBytes(module);
  space.fixedBytes += equant::headerBytes(module) - searched;
  return space;
}
