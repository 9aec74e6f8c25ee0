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

} // namespace easyquant::equant

#endif // EASYQUANT_DIALECT_EQUANT_ANALYSIS_SITEPATTERNS_H
