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

#ifndef EASYQUANT_RECIPE_RECIPE_H
#define EASYQUANT_RECIPE_RECIPE_H

#include "easyquant/Recipe/MethodExpression.h"
#include "easyquant/Recipe/OptionValues.h"
#include "easyquant/Recipe/Presets.h"

namespace easyquant::recipe {

/// What is asked of a site, unchecked.
struct SiteRequest {
  MethodExpression method{"absmax", {}};
  /// Options that are planned. A rule also has the site's own options of methods.
  OptionValues options;

  std::string scheme() const { return options[option::scheme]; }
  /// Does the scheme leave everything float?
  bool isFloat() const { return scheme() == "none"; }
  /// Sites have the codes of the source.
  bool isKept() const { return scheme() == kKeepScheme || scheme() == kKeepA8Scheme; }
  /// The group size that is meant: that of the scheme's name, or 128 by default below 8 bits and
  /// with zeroquant, else 0.
  int64_t groupSize() const;
  /// How scales of activations come to be, if these are quantized, or "float" where a mix leaves
  /// them so: an option's value, or what the scheme's name fixes.
  std::string activations() const;
  /// Do they follow from calibration, at least in the beginning?
  bool isCalibrated() const { return isStatic() || isOnline(); }
  bool isStatic() const { return activations() == "static"; }
  bool isOnline() const { return activations().starts_with("online"); }
  /// Are activations codes of int8? In a mix they are at every site, or float at every one.
  bool hasInt8Activations() const;
  /// Are rows rotated? By default where activations are int8.
  bool isRotated() const;
  /// Do tokens that tower above the others stay out of the range of all? By default wherever they
  /// can: int8 by an observer of channels, which is the site's own or `observer`.
  bool keepsSinks(std::string_view observer) const;
  /// Asks for one scale a token.
  void resetActivationGroups();
};

/// The request for the output head, which no method touches. By the option head of the recipe:
/// int8 per channel, inputs per token; a scheme of its own, with the scale rule of the others; or
/// float. Beside gptq, int8 has no ranges by weighted error.
SiteRequest headRequest(const SiteRequest &request);

/// The request of a weight of so many columns: where the scheme has super-blocks that do not divide
/// them, its fallback, with a base that this has.
SiteRequest requestForColumns(SiteRequest request, int64_t columns);

/// A rule of a recipe: a request for the sites that `match` names.
struct SiteRule {
  std::string match; ///< a site's name, or re: and a regular expression
  SiteRequest request;
};

/// SmoothQuant's alpha that is searched for.
inline constexpr std::string_view kSearch = "search";

/// A whole recipe.
struct Recipe {
  std::string file;    ///< that it was read from; empty: made of options
  SiteRequest request; ///< of the sites without a rule of their own
  std::vector<SiteRule> sites;
  OptionValues options; ///< of the passes of methods and of the KV cache

  /// The names of all methods that occur, each once, in the order of their first mention.
  std::vector<std::string> methods() const;
  /// The observers of static activations that occur, each once.
  std::vector<std::string> observers() const;
  /// Are any of their ranges those of rotated values?
  bool rotatesRanges() const;
  /// Notes at each request that keeps sinks by default that it does.
  void settleSinks();
  /// Are sinks kept apart from any static range? InvalidArgument where an observer cannot.
  Result<bool> keepsSinks() const;
  /// Is alpha searched for anywhere?
  bool searchesAlpha() const;
  /// Is the weight observer of any site hessian-diagonal, which needs calibration text?
  bool weighsErrors() const;
  /// Has any site a table that is learned from its weights?
  bool learnsTables() const;
};

/// Reads a recipe from JSON. InvalidArgument, naming `file`, the key, what was found and what was
/// expected: on a syntax error, an unknown key, a value of another type.
Result<Recipe> parseRecipe(llvm::StringRef text, llvm::StringRef file);
/// Reads the file. Also NotFound and IO.
Result<Recipe> readRecipe(llvm::StringRef file);

} // namespace easyquant::recipe

#endif // EASYQUANT_RECIPE_RECIPE_H
