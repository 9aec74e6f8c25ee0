//===- PassOptions.h - Between passes and values of options -----*- C++ -*-===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Passes have members for the rows of the table that their definition names. What is here finds
// them by these names, so that nobody has to list them a second time.
//
//===----------------------------------------------------------------------===//

#ifndef EASYQUANT_RECIPE_PASSOPTIONS_H
#define EASYQUANT_RECIPE_PASSOPTIONS_H

#include "easyquant/Recipe/OptionValues.h"

#include <type_traits>

namespace easyquant::recipe {

/// Gives a member of a struct of pass options its value.
template <typename Member, typename T> void assignTo(Member &member, const T &value) {
  if constexpr (std::is_same_v<T, std::vector<std::string>>)
    member.assign(value.begin(), value.end());
  else
    member = static_cast<Member>(value);
}

/// The options of a pass, of the struct that TableGen makes, as far as they were given.
template <typename PassOptions> PassOptions passOptions(const OptionValues &values) {
  PassOptions options;
#define EASYQUANT_OPTION(name)                                                                     \
  if constexpr (requires { options.name; })                                                        \
    if (auto value = values.get(option::name))                                                     \
      assignTo(options.name, *value);
#include "easyquant/Recipe/Options.inc"
  return options;
}

/// Notes the value of a pass's option; not one that stands for none (empty, or -1, where the table
/// has no default).
template <typename Option, typename T>
void noteValue(OptionValues &values, Key<T> key, const Option &option) {
  if constexpr (std::is_same_v<T, std::vector<std::string>>) {
    if (!option.empty())
      values.set(key, T(option.begin(), option.end()));
  } else {
    T value = static_cast<T>(option.getValue());
    if (key.info().ownDefault.empty()) {
      if constexpr (std::is_same_v<T, std::string>)
        if (value.empty())
          return;
      if constexpr (std::is_same_v<T, int64_t>)
        if (value == -1)
          return;
    }
    values.set(key, std::move(value));
  }
}

/// A pass that can tell its options. BaseT is the class that TableGen makes of its definition.
template <typename BaseT> struct WithOptionValues : BaseT {
  using BaseT::BaseT;

protected:
  OptionValues optionValues() const {
    OptionValues values;
#define EASYQUANT_OPTION(name)                                                                     \
  if constexpr (requires { this->name.getArgStr(); })                                              \
    noteValue(values, option::name, this->name);
#include "easyquant/Recipe/Options.inc"
    return values;
  }
};

} // namespace easyquant::recipe

#endif // EASYQUANT_RECIPE_PASSOPTIONS_H
