//===- SitePatterns.cpp - Choosing sites by name --------------------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "easyquant/Dialect/Equant/Analysis/SitePatterns.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/Regex.h"

using namespace mlir;
using namespace easyquant::equant;

/// Up to three names of `sites` that are spelled most like `pattern`.
static std::string closest(StringRef pattern, ArrayRef<StringRef> sites) {
  std::string letters;
  for (char c : pattern)
    if (llvm::isAlnum(c) || c == '_' || c == '.')
      letters += c;
  SmallVector<std::pair<unsigned, StringRef>> ranked;
  for (StringRef site : sites)
    ranked.emplace_back(site.edit_distance(letters), site);
  llvm::sort(ranked);
  if (ranked.size() > 3)
    ranked.truncate(3);
  return llvm::join(
      llvm::map_range(ranked, [](auto &entry) { return "'" + entry.second.str() + "'"; }), ", ");
}

FailureOr<SitePatterns> SitePatterns::get(ArrayRef<std::string> patterns, ArrayRef<StringRef> sites,
                                          StringRef option,
                                          function_ref<InFlightDiagnostic()> emitError) {
  SitePatterns result;
  for (StringRef pattern : patterns) {
    StringRef expression = pattern;
    bool isRegex = expression.consume_front("re:");
    llvm::Regex regex(expression);
    std::string problem;
    if (isRegex && !regex.isValid(problem))
      return emitError() << option << " pattern '" << pattern
                         << "' is no regular expression: " << problem;
    bool any = false;
    for (StringRef site : sites) {
      if (isRegex ? !regex.match(site) : site != pattern)
        continue;
      result.matched.insert(site);
      any = true;
    }
    if (!any && sites.empty())
      return emitError() << option << " pattern '" << pattern
                         << "' matches no site: the model has none left to quantize";
    if (!any)
      return emitError() << option << " pattern '" << pattern
                         << "' matches no site; the closest names are "
                         << closest(expression, sites)
                         << (isRegex ? "" : " (use re: for a regular expression)");
  }
  return result;
}
