//===- Target.cpp - What a model is compiled for --------------------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "easyquant/Target/Target.h"

#include "easyquant/Numerics/FragmentPacking.h"
#include "easyquant/Support/DidYouMean.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringExtras.h"

#include <fmt/format.h>

using namespace mlir;
using namespace easyquant;
using namespace easyquant::targets;
using equant::SchemeAttr;

WeightForm::WeightForm(std::string title, WeightsFile file)
    : title(std::move(title)), file(std::move(file)) {}

WeightForm::~WeightForm() = default;

Family::Family(Facts facts)
    : WeightForm(std::move(facts.title), std::move(facts.file)), name(std::move(facts.name)),
      names(std::move(facts.names)), groups(std::move(facts.groups)), fusions(facts.fusions),
      expertUnits(facts.expertUnits) {}

std::vector<std::string> Family::requests() const {
  if (groups.empty())
    return names;
  std::vector<std::string> requests;
  for (const TargetGroup &group : groups)
    requests.push_back(group.request);
  return requests;
}

std::vector<std::string> Family::targetsOf(StringRef request) const {
  for (const TargetGroup &group : groups)
    if (group.request == request)
      return group.targets;
  if (groups.empty() && has(request))
    return {request.str()};
  return {};
}

std::optional<std::string> Family::checkOptions(const recipe::OptionValues &, ArrayRef<std::string>,
                                                StringRef) const {
  return std::nullopt;
}

static std::vector<std::unique_ptr<const Family>> &registry() {
  static std::vector<std::unique_ptr<const Family>> families;
  return families;
}

void targets::addFamily(std::unique_ptr<const Family> family) {
  registry().push_back(std::move(family));
}

std::vector<const Family *> targets::families() {
  std::vector<const Family *> all;
  for (const auto &family : registry())
    all.push_back(family.get());
  return all;
}

static Unexpected unknownTarget(StringRef name, const std::vector<std::string> &known,
                                bool isOneOfSeveral) {
  const std::string names = llvm::join(known, ", ");
  return makeError(ErrorCode::InvalidArgument, "unknown target '{}'; expected {}{}", name.str(),
                   isOneOfSeveral ? "some of " + names + ", joined by commas" : names,
                   didYouMean(name.str(), known));
}

Result<const Family *> targets::findFamily(StringRef name) {
  std::vector<std::string> known;
  for (const Family *family : families()) {
    if (name == family->name || family->has(name) || !family->targetsOf(name).empty())
      return family;
    known.push_back(family->name);
    for (const std::vector<std::string> &names : {family->requests(), family->names})
      llvm::copy_if(names, std::back_inserter(known),
                    [&](const std::string &each) { return !llvm::is_contained(known, each); });
  }
  return unknownTarget(name, known, /*isOneOfSeveral=*/false);
}

Result<std::vector<const Family *>> targets::findFamilies(ArrayRef<std::string> names) {
  if (names.empty())
    return std::vector{families().front()};
  std::vector<const Family *> found;
  for (const std::string &name : names) {
    Result<const Family *> family = findFamily(name);
    if (!family)
      return Unexpected(family.error());
    if (!llvm::is_contained(found, *family))
      found.push_back(*family);
  }
  return found;
}

std::vector<std::string> targets::requestNames() {
  std::vector<std::string> names;
  for (const Family *family : families())
    llvm::append_range(names, family->requests());
  return names;
}

Result<std::vector<Request>> targets::parseRequests(StringRef text) {
  SmallVector<StringRef> names;
  text.split(names, ',');
  std::vector<Request> requests;
  for (const Family *family : families()) {
    Request request{family, {}};
    for (StringRef name : names)
      for (const std::string &target : family->targetsOf(name))
        if (!llvm::is_contained(request.targets, target))
          request.targets.push_back(target);
    if (!request.targets.empty())
      requests.push_back(std::move(request));
  }
  const std::vector<std::string> known = requestNames();
  for (StringRef name : names)
    if (!llvm::is_contained(known, name))
      return unknownTarget(name, known, /*isOneOfSeveral=*/true);
  return requests;
}

bool targets::multipliesCodes(SchemeAttr weight, SchemeAttr input) {
  if (!input || input.isInteger())
    return bool(input);
  constexpr auto kFP8 = numerics::CodeFormat::F8E4M3FN;
  const numerics::Scheme codes = weight.toNumerics(), rows = input.toNumerics();
  return codes.codes == kFP8 && codes.groupSize % numerics::kFragmentColumns == 0 &&
         rows.codes == kFP8 && rows.groupSize == 0;
}

std::string targets::whyNoKernel(const Family &family, int64_t n, int64_t k, SchemeAttr weight,
                                 SchemeAttr input) {
  auto packer = family.layoutFor(weight, Readers::of(weight, input)).getPacker(weight, n, k);
  return packer ? "" : packer.error().message;
}

std::string targets::whyNoExperts(const Family &family, int64_t n, bool isPacked) {
  const auto &[packed, floats] = family.expertUnits;
  const int64_t unit = isPacked ? packed : floats;
  if (n % unit == 0)
    return "";
  return fmt::format("it has experts of {} outputs, and {} read {} weights of experts {} outputs "
                     "at a time; {}",
                     n, family.title, isPacked ? "packed" : "float", unit,
                     isPacked && n % floats == 0 ? "leave it float"
                                                 : "compile it with --target cpu");
}

std::string targets::otherFamily(const WeightForm &family, int64_t n, int64_t k, SchemeAttr weight,
                                 SchemeAttr input) {
  for (const Family *other : families())
    if (other != &family && whyNoKernel(*other, n, k, weight, input).empty())
      return "; compile it with --target " + other->requests().front();
  return "";
}
