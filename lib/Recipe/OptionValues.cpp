//===- OptionValues.cpp - What options were given -------------------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "easyquant/Recipe/OptionValues.h"

#include "Messages.h"

using namespace easyquant;
using namespace easyquant::recipe;
using llvm::StringRef;

static unsigned rowOf(const OptionInfo &option) { return &option - options().data(); }

std::string recipe::quoted(const OptionValue &value) {
  if (auto *text = std::get_if<std::string>(&value))
    return "'" + *text + "'";
  if (auto *list = std::get_if<std::vector<std::string>>(&value))
    return "'" + llvm::join(*list, ", ") + "'";
  if (auto *flag = std::get_if<bool>(&value))
    return *flag ? "true" : "false";
  if (auto *integer = std::get_if<int64_t>(&value))
    return std::to_string(*integer);
  return fmt::format("{}", std::get<double>(value));
}

std::string recipe::exactText(const OptionValue &value) {
  return std::visit(
      [](const auto &held) {
        using Held = std::decay_t<decltype(held)>;
        if constexpr (std::is_same_v<Held, double>)
          return fmt::format("{:a}", held);
        else if constexpr (std::is_same_v<Held, std::vector<std::string>>)
          return llvm::join(held, ",");
        else
          return fmt::format("{}", held);
      },
      value);
}

/// "a number from 0 to 1, or search".
static std::string expected(const OptionInfo &option) {
  std::string text = option.kind == Kind::Integer ? "an integer" : "a number";
  if (!option.most.empty())
    text += fmt::format(" from {} to {}", option.least, option.most);
  else if (option.exclusive)
    text =
        option.least == "0" ? "a positive number" : fmt::format("{} above {}", text, option.least);
  else if (!option.least.empty())
    text += fmt::format(" of at least {}", option.least);
  if (option.kind == Kind::TextOrNumber)
    for (std::string_view choice : option.choices)
      text += fmt::format(", or {}", choice);
  return text;
}

static Unexpected unexpected(const OptionInfo &option, const OptionValue &value) {
  return invalid("{} {}: expected {}", option.noun, quoted(value), expected(option));
}

Result<OptionValue> recipe::parseValue(const OptionInfo &option, std::string_view text) {
  int64_t integer = 0;
  double number = 0;
  switch (option.kind) {
  case Kind::Switch:
    if (text == "true" || text == "false")
      return OptionValue(text == "true");
    return invalid("{} '{}': expected true or false", option.noun, text);
  case Kind::Integer:
    if (!StringRef(text).getAsInteger(10, integer))
      return OptionValue(integer);
    return unexpected(option, OptionValue(std::string(text)));
  case Kind::Number:
    if (!StringRef(text).getAsDouble(number))
      return OptionValue(number);
    return unexpected(option, OptionValue(std::string(text)));
  case Kind::Text:
  case Kind::TextOrNumber:
  case Kind::Choice:
    return OptionValue(std::string(text));
  case Kind::List:
    return OptionValue(std::vector<std::string>{std::string(text)});
  }
  llvm_unreachable("every kind is named");
}

/// Is the number within the option's range?
static bool isInRange(const OptionInfo &option, double number) {
  double least = 0, most = 0;
  bool hasLeast = !StringRef(option.least).getAsDouble(least);
  bool hasMost = !StringRef(option.most).getAsDouble(most);
  bool isBelow = option.exclusive ? !(number > least) : !(number >= least);
  return !(hasLeast && isBelow) && !(hasMost && !(number <= most));
}

Result<void> recipe::checkValue(const OptionInfo &option, const OptionValue &value) {
  double number = 0;
  switch (option.kind) {
  case Kind::Switch:
  case Kind::Text:
    return {};
  case Kind::Integer:
    if (isInRange(option, std::get<int64_t>(value)))
      return {};
    return unexpected(option, value);
  case Kind::Number:
    if (isInRange(option, std::get<double>(value)))
      return {};
    return unexpected(option, value);
  case Kind::TextOrNumber: {
    const std::string &text = std::get<std::string>(value);
    if (llvm::is_contained(option.choices, text) ||
        (!StringRef(text).getAsDouble(number) && isInRange(option, number)))
      return {};
    return unexpected(option, value);
  }
  case Kind::Choice:
    if (std::vector<std::string> names = choicesOf(option);
        !llvm::is_contained(names, std::get<std::string>(value)))
      return unknown(option.noun, std::get<std::string>(value), names);
    return {};
  case Kind::List:
    for (const std::string &item : std::get<std::vector<std::string>>(value))
      if (std::vector<std::string> names = choicesOf(option);
          !names.empty() && !llvm::is_contained(names, item))
        return unknown(option.noun, item, names);
    return {};
  }
  llvm_unreachable("every kind is named");
}

const OptionValue *OptionValues::find(const OptionInfo &option) const {
  auto found = given.find(rowOf(option));
  return found == given.end() ? nullptr : &found->second;
}

void OptionValues::set(const OptionInfo &option, OptionValue value) {
  given.insert_or_assign(rowOf(option), std::move(value));
}

OptionValue OptionValues::valueOrDefault(const OptionInfo &option) const {
  if (const OptionValue *value = find(option))
    return *value;
  if (!option.ownDefault.empty())
    return *parseValue(option, option.ownDefault);
  switch (option.kind) {
  case Kind::Switch:
    return false;
  case Kind::Integer:
    return int64_t(0);
  case Kind::Number:
    return 0.0;
  case Kind::List:
    return std::vector<std::string>();
  default:
    return std::string();
  }
}

void OptionValues::addMissing(const OptionValues &others) {
  given.insert(others.given.begin(), others.given.end());
}
