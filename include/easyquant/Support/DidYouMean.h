//===- DidYouMean.h - The name that a misspelling stands for ----*- C++ -*-===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef EASYQUANT_SUPPORT_DIDYOUMEAN_H
#define EASYQUANT_SUPPORT_DIDYOUMEAN_H

#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/ADT/StringRef.h"

#include <iterator>
#include <string>

namespace easyquant {

/// "; did you mean 'gptq'?" for 'gtpq': the nearest of `known` to what was found, whatever the case
/// of its letters; nothing where none is near. A name with other digits is another thing, not a
/// misspelling, but one that begins with what was found is meant: 'sm_90' is 'sm_90a'.
template <typename Names> std::string didYouMean(llvm::StringRef found, const Names &known) {
  auto digits = [](llvm::StringRef name) {
    std::string kept;
    llvm::copy_if(name, std::back_inserter(kept), llvm::isDigit);
    return kept;
  };
  llvm::StringRef nearest;
  unsigned least = (found.size() + 2) / 3 + 1;
  for (llvm::StringRef name : known) {
    if (digits(name) != digits(found))
      continue;
    unsigned distance = name.starts_with_insensitive(found)
                            ? 0
                            : llvm::StringRef(found.lower()).edit_distance(name.lower());
    if (distance < least) {
      least = distance;
      nearest = name;
    }
  }
  return nearest.empty() || found.empty() ? "" : ("; did you mean '" + nearest + "'?").str();
}

} // namespace easyquant

#endif // EASYQUANT_SUPPORT_DIDYOUMEAN_H
