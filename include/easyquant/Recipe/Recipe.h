//===- Recipe.h - What is asked of a model's sites --------------*- C++ -*-===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// A recipe says in the words of the command line how each site is to be quantized; a plan
// (#equant.plan) says the same in schemes. docs/guide/recipes.md describes the file.
//
//===----------------------------------------------------------------------===//

#ifndef EASYQUANT_DIALECT_EQUANT_ANALYSIS_RECIPE_H
#define EASYQUANT_DIALECT_EQUANT_ANALYSIS_RECIPE_H

#include "easyquant/Dialect/Equant/IR/Equant.h"

#include "easyquant/Support/Result.h"
#include "mlir/IR/BuiltinOps.h"

#include <optional>
#include <string>
#include <vector>

namespace easyquant::equant {

/// A method as users write it, "smoothquant+gptq": a base that fixes the kind of codes and scales,
/// and what later passes do, in order.
struct MethodExpression {
  std::string base; ///< absmax, zeropoint, symmetric or zeroquant
  std::vector<std::string> methods;

  /// The base is left out where methods are named: "smoothquant+gptq", "zeroquant+lkd".
  std::string str() const;
};

/// Parses a method for a scheme; empty: round to nearest. Without a base it is zeropoint for
/// asymmetric schemes and for awq (whose clipped ranges are asymmetric; Lin et al., 2024), absmax
/// otherwise. InvalidArgument on a name that is none, a base that is not first, a name twice, two
/// roundings, and a rounding before a transform.
Result<MethodExpression> parseMethod(llvm::StringRef text, llvm::StringRef scheme);
/// The same from its parts.
Result<MethodExpression> makeMethod(llvm::StringRef base, llvm::ArrayRef<std::string> methods);

/// Options of methods that a site may have of its own; empty: those of the pass.
struct SiteOptions {
  std::string alpha;    ///< SmoothQuant: a number, or search
  std::string observer; ///< of static activations
  std::optional<double> damping;
  std::optional<bool> actOrder, staticGroups, clip;
};

/// What is asked of a site, unchecked.
struct SiteRequest {
  MethodExpression method{"absmax", {}};
  std::string scheme = "W8A8"; ///< W{2,3,4,8}A16, W4A8, W8A8, each with _ASYM if need be, or none
  std::optional<int64_t> groupSize;    ///< 0: a scale per channel; unset: the scheme's default
  std::string activations = "dynamic"; ///< or static; of schemes that quantize them
  /// How the range of weights that share a scale is found: absmax or minmax (all values),
  /// percentile, mse, entropy.
  std::string weightObserver = "absmax";
  std::optional<double> percentile; ///< of weightObserver percentile; 99.99 by default
  SiteOptions options;              ///< only of a rule

  /// The group size that is meant: 128 by default below 8 bits and with zeroquant, else 0.
  int64_t effectiveGroupSize() const;
};

/// Does the scheme leave everything float?
inline bool isFloat(const SiteRequest &request) { return request.scheme == "none"; }

/// The plan that the request means; null if it leaves the site float. InvalidArgument, in the words
/// of options, on what there is not: a scheme, a group size, an asymmetric scheme for a base
/// without zero points, ...
Result<PlanAttr> makePlan(mlir::MLIRContext *context, const SiteRequest &request);

/// The request for the output head: int8 per channel, inputs per token, and no methods.
SiteRequest headRequest(const SiteRequest &request);

/// A rule of a recipe: a request for the sites that `match` names.
struct SiteRule {
  std::string match; ///< a site's name, or re: and a regular expression
  SiteRequest request;
};

/// Options of the passes of methods; empty: the pass's default.
struct MethodOptions : SiteOptions {
  std::optional<double> percentile; ///< of observer percentile
  std::optional<int64_t> searchSamples, epochs;
};

/// SmoothQuant's alpha that is searched for.
inline constexpr llvm::StringLiteral kSearch = "search";
/// Is it the name of an observer of activations: minmax, absmax, percentile, mse, entropy or ema?
/// Errors: InvalidArgument.
Result<void> checkObserver(llvm::StringRef name);

/// Options of equant-simquant-kv. No scheme: a float cache.
struct KVOptions {
  std::string scheme, keys, keyScales;
  std::optional<int64_t> group, residual, sinks;
};

/// A whole recipe.
struct Recipe {
  std::string file;    ///< that it was read from; empty: made of options
  SiteRequest request; ///< of the sites without a rule of their own
  bool mixed = false;  ///< zeroquant: MLP weights of 4 bits
  std::string head;    ///< int8 or float; empty: the default
  std::vector<std::string> ignore, targets;
  std::vector<SiteRule> sites;
  MethodOptions options;
  KVOptions kv;

  /// The names of all methods that occur, each once, in the order of their first mention.
  std::vector<std::string> methods() const;
  /// The observers of static activations that occur, each once; the default one is "".
  std::vector<std::string> observers() const;
  /// Is alpha searched for anywhere?
  bool searchesAlpha() const;
};

/// Reads a recipe from JSON. InvalidArgument, naming `file`, the key, what was found and what was
/// expected: on a syntax error, an unknown key, a value of another type.
Result<Recipe> parseRecipe(llvm::StringRef text, llvm::StringRef file);
/// Reads the file. Also NotFound and IO.
Result<Recipe> readRecipe(llvm::StringRef file);

/// The recipe as an attribute of the module, `equant.recipe`, whose JSON parseRecipe reads back to
/// the same recipe.
mlir::DictionaryAttr toAttribute(mlir::MLIRContext *context, const Recipe &recipe);

/// Notes in the module's `equant.recipe`, if it has one, what a pass did: its options under the
/// keys that parseRecipe reads.
void recordOptions(mlir::ModuleOp module, llvm::ArrayRef<mlir::NamedAttribute> options);

} // namespace easyquant::equant

#endif // EASYQUANT_DIALECT_EQUANT_ANALYSIS_RECIPE_H
