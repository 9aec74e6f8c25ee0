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

#include <map>
#include <set>

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

std::array<std::string, 3> easyquant::equant::splitAtNumber(StringRef name) {
  SmallVector<StringRef> parts;
  name.split(parts, '.');
  for (size_t i = 0; i < parts.size(); ++i)
    if (!parts[i].empty() && llvm::all_of(parts[i], llvm::isDigit)) {
      const std::string before = llvm::join(ArrayRef(parts).take_front(i), "."),
                        after = llvm::join(ArrayRef(parts).drop_front(i + 1), ".");
      return {before.empty() ? "" : before + ".", parts[i].str(), after.empty() ? "" : "." + after};
    }
  return {name.str(), "", ""};
}

/// A literal of POSIX expressions.
static std::string literal(StringRef text) {
  std::string escaped;
  for (char c : text) {
    if (!llvm::isAlnum(c) && c != '_' && c != '-')
      escaped += '\\';
    escaped += c;
  }
  return escaped;
}

/// "3", "[37]", "[0-9]".
static std::string classOf(const std::string &digits) {
  if (digits.size() == 1)
    return digits;
  std::string runs;
  for (size_t first = 0, last = 0; first < digits.size(); first = last + 1) {
    for (last = first; last + 1 < digits.size() && digits[last + 1] == digits[last] + 1;)
      ++last;
    runs += digits[first];
    if (last > first + 1)
      runs += '-';
    if (last > first)
      runs += digits[last];
  }
  return "[" + runs + "]";
}

/// An expression for these numbers and no others, those with the same last digits together: 0 to 29
/// are [0-9]|[12][0-9].
static std::string expressionOf(const std::set<std::string> &numbers) {
  std::map<std::string, std::string> lastDigits; // of those that begin alike
  for (const std::string &number : numbers)
    lastDigits[number.substr(0, number.size() - 1)] += number.back();
  std::map<std::string, std::set<std::string>> beginnings; // of those that end alike
  for (const auto &[beginning, digits] : lastDigits)
    beginnings[digits].insert(beginning);
  std::vector<std::string> alternatives;
  for (auto &[digits, all] : beginnings) {
    if (all.erase(""))
      alternatives.push_back(classOf(digits));
    if (all.empty())
      continue;
    const std::string beginning = expressionOf(all);
    const bool isOne = !StringRef(beginning).contains('|');
    alternatives.push_back((isOne ? beginning : "(" + beginning + ")") + classOf(digits));
  }
  return llvm::join(alternatives, "|");
}

std::string easyquant::equant::patternOf(const std::pair<std::string, std::string> &around,
                                         ArrayRef<std::string> numbers) {
  if (numbers.size() == 1)
    return around.first + numbers.front() + around.second;
  return "re:^" + literal(around.first) + "(" +
         expressionOf(std::set<std::string>(numbers.begin(), numbers.end())) + ")" +
         literal(around.second) + "$";
}
