//===- MethodExpression.h - Methods as users write them ---------*- C++ -*-===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef EASYQUANT_RECIPE_METHODEXPRESSION_H
#define EASYQUANT_RECIPE_METHODEXPRESSION_H

#include "easyquant/Support/Result.h"

#include "llvm/ADT/ArrayRef.h"
#include "llvm/ADT/StringRef.h"

#include <string>
#include <vector>

namespace easyquant::recipe {

/// A method as users write it, "smoothquant+gptq": a base that fixes the kind of codes and scales,
/// and what later passes do, in order.
struct MethodExpression {
  std::string base; ///< absmax, zeropoint, symmetric or zeroquant
  std::vector<std::string> methods;

  /// The base is left out where methods are named: "smoothquant+gptq", "zeroquant+lkd".
  std::string str() const;
  /// The same with the base where the methods and the scheme do not imply it: what parseMethod
  /// reads back.
  std::string spelledOut(llvm::StringRef scheme) const;
};

/// Parses a method for a scheme; empty: round to nearest. Without a base it is zeropoint for
/// asymmetric schemes and for awq (whose clipped ranges are asymmetric; Lin et al., 2024), absmax
/// otherwise. InvalidArgument on a name that is none, a base that is not first, a name twice, two
/// roundings, and a rounding before a transform.
Result<MethodExpression> parseMethod(llvm::StringRef text, llvm::StringRef scheme);
/// The method that keeps clearly more of a model at a scheme than round to nearest, where there is
/// calibration text; empty where none is known to. docs/benchmarks/methods.md has the figures.
llvm::StringRef calibratedMethod(llvm::StringRef scheme);
/// The same as parseMethod from its parts.
Result<MethodExpression> makeMethod(llvm::StringRef base, llvm::ArrayRef<std::string> methods);

} // namespace easyquant::recipe

#endif // EASYQUANT_RECIPE_METHODEXPRESSION_H
