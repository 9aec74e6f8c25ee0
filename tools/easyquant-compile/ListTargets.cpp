//===- ListTargets.cpp - Which scheme runs where --------------------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "ListTargets.h"

#include "easyquant/Dialect/Equant/Analysis/RecipePlans.h"
#include "easyquant/Recipe/Mixes.h"
#include "easyquant/Recipe/Presets.h"
#include "easyquant/Target/Target.h"

#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/raw_ostream.h"

namespace easyquant {

using targets::Family;

/// A shape that every group size divides.
static constexpr int64_t kRows = 4096, kColumns = 4096;

/// Why the family does not run a scheme with the default options; empty if it does.
static std::string whyNot(mlir::MLIRContext &context, const Family &family,
                          const std::string &scheme) {
  recipe::SiteRequest request;
  request.options.set(recipe::option::scheme, scheme);
  if (auto problem = family.checkOptions(request.options, family.names, scheme))
    return *problem;
  Result<recipe::MethodExpression> method = recipe::parseMethod("", scheme);
  if (!method)
    return method.error().message;
  request.method = *method;
  request = recipe::resolveMix(request, recipe::SiteKind::Down, /*isAtEnd=*/true);
  Result<equant::PlanAttr> plan = equant::makePlan(&context, request);
  if (!plan)
    return plan.error().message;
  return *plan ? targets::whyNoKernel(family, kRows, kColumns, plan->getWeight(), plan->getInput())
               : "";
}

void listTargets() {
  mlir::MLIRContext context;
  context.loadDialect<equant::EquantDialect>();
  llvm::raw_ostream &os = llvm::outs();
  os << "| `--target` | compiles for |\n|---|---|\n";
  for (const Family *family : targets::families()) {
    for (const targets::TargetGroup &group : family->groups)
      os << "| `" << group.request << "` | " << group.title << " |\n";
    if (family->groups.empty())
      for (const std::string &name : family->names)
        os << "| `" << name << "` | " << family->title << " of that chip |\n";
  }
  os << "\n| scheme |";
  for (const Family *family : targets::families())
    os << " " << family->title << " |";
  os << "\n|---|";
  for ([[maybe_unused]] const Family *family : targets::families())
    os << "---|";
  os << "\n";
  std::vector<std::string> schemes = recipe::schemeNames();
  llvm::erase(schemes, recipe::kKeepScheme); // which are what a checkpoint has
  llvm::erase(schemes, recipe::kKeepA8Scheme);
  for (const recipe::Mix &mix : recipe::mixes())
    schemes.emplace_back(mix.name);
  for (const std::string &scheme : schemes) {
    os << "| `" << scheme << "` |";
    for (const Family *family : targets::families()) {
      const std::string reason = whyNot(context, *family, scheme);
      os << (reason.empty() ? " yes |" : " no: " + reason + " |");
    }
    os << "\n";
  }
  os.flush();
}

} // namespace easyquant
