//===- DidYouMean.cpp - The name that a misspelling stands for ------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "easyquant/Support/DidYouMean.h"

#include <algorithm>
#include <numeric>

namespace easyquant {

static std::string lowerCase(std::string_view text) {
  std::string lower(text);
  for (char &c : lower)
    c = c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  return lower;
}

static std::string digitsOf(std::string_view text) {
  std::string digits(text);
  std::erase_if(digits, [](char c) { return c < '0' || c > '9'; });
  return digits;
}

/// Levenshtein's distance.
static size_t editDistance(std::string_view from, std::string_view to) {
  std::vector<size_t> row(to.size() + 1);
  std::iota(row.begin(), row.end(), size_t(0));
  for (size_t i = 0; i < from.size(); ++i) {
    size_t diagonal = row[0];
    row[0] = i + 1;
    for (size_t j = 0; j < to.size(); ++j) {
      size_t replaced = diagonal + (from[i] == to[j] ? 0 : 1);
      diagonal = row[j + 1];
      row[j + 1] = std::min({replaced, row[j] + 1, diagonal + 1});
    }
  }
  return row.back();
}

/// Is one of the names what the other begins or ends with, as Q4 of Q4_K_M?
static bool isPartOf(std::string_view part, std::string_view whole) {
  auto isJoint = [](char c) { return c == '-' || c == '_' || c == '.' || c == ' '; };
  if (part.size() >= whole.size())
    return false;
  return (whole.starts_with(part) && isJoint(whole[part.size()])) ||
         (whole.ends_with(part) && isJoint(whole[whole.size() - part.size() - 1]));
}

std::string nearestName(std::string_view found, std::span<const std::string_view> known) {
  const std::string lower = lowerCase(found);
  std::string_view nearest, part;
  size_t least = (found.size() + 2) / 3 + 1;
  for (std::string_view name : known) {
    if (digitsOf(name) != digitsOf(found))
      continue;
    const std::string lowerName = lowerCase(name);
    size_t distance = lowerName.starts_with(lower) ? 0 : editDistance(lower, lowerName);
    if (distance < least) {
      least = distance;
      nearest = name;
    }
    if (part.empty() && (isPartOf(lower, lowerName) || isPartOf(lowerName, lower)))
      part = name;
  }
  if (nearest.empty())
    nearest = part;
  return nearest.empty() || found.empty() ? std::string()
                                          : "; did you mean '" + std::string(nearest) + "'?";
}

} // namespace easyquant
