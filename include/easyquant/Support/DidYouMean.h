//===- DidYouMean.h - The name that a misspelling stands for ----*- C++ -*-===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef EASYQUANT_SUPPORT_DIDYOUMEAN_H
#define EASYQUANT_SUPPORT_DIDYOUMEAN_H

#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace easyquant {

/// "; did you mean 'gptq'?" for 'gtpq': the nearest of `known` to what was found, whatever the case
/// of its letters; nothing where none is near. A name with other digits is another thing, not a
/// misspelling. A name is near that begins with what was found ('sm_90' is 'sm_90a'). Where none
/// is, one is meant that the other begins or ends with as a word ('Q4_K_M' is 'Q4').
std::string nearestName(std::string_view found, std::span<const std::string_view> known);

template <typename Names> std::string didYouMean(std::string_view found, const Names &known) {
  return nearestName(found, std::vector<std::string_view>(std::begin(known), std::end(known)));
}

} // namespace easyquant

#endif // EASYQUANT_SUPPORT_DIDYOUMEAN_H
