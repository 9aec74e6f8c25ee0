//===- OptionValues.h - What options were given -----------------*- C++ -*-===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef EASYQUANT_RECIPE_OPTIONVALUES_H
#define EASYQUANT_RECIPE_OPTIONVALUES_H

#include "easyquant/Recipe/Options.h"
#include "easyquant/Support/Result.h"

#include <map>
#include <optional>
#include <variant>

namespace easyquant::recipe {

/// A switch, an integer, a number, a text (also a choice, and a text or number), or a list.
using OptionValue = std::variant<bool, int64_t, double, std::string, std::vector<std::string>>;

/// The text as a value of that kind. InvalidArgument says what was expected.
Result<OptionValue> parseValue(const OptionInfo &option, std::string_view text);
/// Is the value legal? InvalidArgument, with the option's noun, what was found and what is legal.
Result<void> checkValue(const OptionInfo &option, const OptionValue &value);
/// "'int5'", "3": as messages quote it.
std::string quoted(const OptionValue &value);

/// Every bit of it, for stamps.
std::string exactText(const OptionValue &value);

/// Values of options that were given, and defaults of all others.
class OptionValues {
public:
  const OptionValue *find(const OptionInfo &option) const;
  bool has(const OptionInfo &option) const { return find(option); }
  template <typename T> bool has(Key<T> key) const { return has(key.info()); }
  void set(const OptionInfo &option, OptionValue value);
  template <typename T> void set(Key<T> key, T value) {
    set(key.info(), OptionValue(std::move(value)));
  }
  template <typename T> void reset(Key<T> key) { given.erase(key.row); }

  /// What was given.
  template <typename T> std::optional<T> get(Key<T> key) const {
    const OptionValue *value = find(key.info());
    return value ? std::optional<T>(std::get<T>(*value)) : std::nullopt;
  }
  /// What was given, or the table's default, or T() where there is none.
  template <typename T> T operator[](Key<T> key) const {
    return std::get<T>(valueOrDefault(key.info()));
  }
  OptionValue valueOrDefault(const OptionInfo &option) const;

  /// Takes what is not given here.
  void addMissing(const OptionValues &others);

private:
  std::map<unsigned, OptionValue> given; ///< by row
};

} // namespace easyquant::recipe

#endif // EASYQUANT_RECIPE_OPTIONVALUES_H
