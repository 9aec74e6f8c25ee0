//===- SitePatterns.h - Choosing sites by name ------------------*- C++ -*-===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef EASYQUANT_DIALECT_EQUANT_ANALYSIS_SITEPATTERNS_H
#define EASYQUANT_DIALECT_EQUANT_ANALYSIS_SITEPATTERNS_H

#include "mlir/IR/Diagnostics.h"
#include "llvm/ADT/StringSet.h"

#include <array>
#include <string>
#include <utility>

namespace easyquant::equant {

/// The sites that a list of patterns names. A pattern is the exact name of a site, or `re:` and a
/// POSIX extended regular expression that matches anywhere in the name unless it is anchored.
class SitePatterns {
public:
  /// Fails on an expression that is none and on a pattern that matches none of `sites`, which is
  /// a mistake in its spelling more often than not: the diagnostic names the closest sites.
  /// `option` is the name of the option that the patterns come from.
  static mlir::FailureOr<SitePatterns>
  get(llvm::ArrayRef<std::string> patterns, llvm::ArrayRef<llvm::StringRef> sites,
      llvm::StringRef option, llvm::function_ref<mlir::InFlightDiagnostic()> emitError);

  bool contains(llvm::StringRef site) const { return matched.contains(site); }

private:
  llvm::StringSet<> matched;
};

/// "model.layers.3.mlp.up_proj": "model.layers.", "3", ".mlp.up_proj". A name without a number is
/// all prefix.
std::array<std::string, 3> splitAtNumber(llvm::StringRef site);

/// The pattern of the sites that have these numbers between a prefix and a suffix:
/// "re:^model\\.layers\\.([03])\\.mlp\\.up_proj$", or the name of a single one.
std::string patternOf(const std::pair<std::string, std::string> &around,
                      llvm::ArrayRef<std::string> numbers);

} // namespace easyquant::equant

#endif // EASYQUANT_DIALECT_EQUANT_ANALYSIS_SITEPATTERNS_H
