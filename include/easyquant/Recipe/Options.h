//===- Options.h - The table of methods and options -------------*- C++ -*-===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The rows of Options.td as plain data.
//
//===----------------------------------------------------------------------===//

#ifndef EASYQUANT_RECIPE_OPTIONS_H
#define EASYQUANT_RECIPE_OPTIONS_H

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace easyquant::recipe {

/// What a value is. A choice is one of some names; a list one of texts.
enum class Kind { Switch, Integer, Number, Text, TextOrNumber, Choice, List };

struct OptionInfo {
  Kind kind;
  std::string_view name;    ///< of the member of a pass, and of its Key
  std::string_view key;     ///< in recipes; empty: they have it not
  std::string_view section; ///< the object of a recipe that the key is in; empty: the recipe itself
  std::string_view flag;    ///< of command lines, without dashes; empty: they have it not
  std::string_view noun;    ///< in messages
  std::string_view value;   ///< what help calls the value
  std::string_view group;   ///< heading of the help
  std::string_view owner;   ///< the method that reads it; "static", "online": such activations do
  std::string_view joint;   ///< where several names may be given, what stands between them
  std::string_view help;    ///< begins in lower case and ends without a full stop
  std::string_view ownDefault;   ///< of the pass; empty: none, or it depends on other options
  std::string_view defaultWords; ///< what command lines say instead, if anything
  std::string_view least, most;  ///< of numbers; empty: any
  bool exclusive;                ///< greater than `least`, not equal to it
  bool planned;  ///< read where plans are made: a recipe says it instead of the command line
  bool perSite;  ///< a rule of a recipe may say it for its sites
  bool internal; ///< of easyquant-compile alone; the front desk has it not
  /// The names that are legal, unless other rooms know them (choicesOf).
  std::span<const std::string_view> choices;

  /// May a site have a value of its own, which its plan carries? (The plan also carries that a type
  /// of scales was asked for, since one by default may be widened.)
  bool isOfPlan() const { return perSite && (!planned || name == "scaleType"); }
};

/// Stages of methods: what is done before what.
enum class Stage { Base, Transform, Rounding };

struct MethodInfo {
  Stage stage;
  std::string_view name, title;
  /// What its pass reads of the statistics file; empty: a base, or it runs the model itself.
  std::string_view statistics;
};

/// In the order in which help lists them.
std::span<const OptionInfo> options();
std::span<const MethodInfo> methods();
/// Null if there is none.
const OptionInfo *findOption(std::string_view key, std::string_view section = "");
const MethodInfo *findMethod(std::string_view name);
/// The names that are legal, those of schemes and methods included; empty where any text is, or
/// where rooms above know them: targets.
std::vector<std::string> choicesOf(const OptionInfo &option);

/// Names an option whose values are of type T.
template <typename T> struct Key {
  unsigned row;
  const OptionInfo &info() const { return options()[row]; }
};

/// A key for each option, under the name that passes have it under: option::damping.
namespace option {
#define GET_OPTION_KEYS
#include "easyquant/Recipe/Options.inc"
} // namespace option

} // namespace easyquant::recipe

#endif // EASYQUANT_RECIPE_OPTIONS_H
