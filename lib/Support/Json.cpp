//===- Json.cpp - JSON documents ------------------------------------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "easyquant/Support/Json.h"

#include <nlohmann/json.hpp>

#include <limits>

using namespace easyquant;

/// Deeper than any document that means something, and not so deep that a destructor runs out of
/// stack.
static constexpr size_t kMaxDepth = 64;

/// What nlohmann::json calls for each part of a text.
class easyquant::JsonBuilder final : public nlohmann::json_sax<nlohmann::json> {
public:
  /// Without a visitor all of the document is kept in `root`.
  JsonBuilder(Json &root, std::string_view path, size_t length, Json::Limits limits,
              const Json::Visitor *visitor = nullptr)
      : root(root), path(path), length(length), limits(limits), visitor(visitor) {}

  bool null() override { return put(Json()); }
  bool boolean(bool value) override { return put(Json(value)); }
  bool number_integer(int64_t value) override { return put(Json(value)); }
  bool number_unsigned(uint64_t value) override { return put(Json(value)); }
  bool number_float(double value, const std::string &) override { return put(Json(value)); }
  bool string(std::string &value) override { return put(Json(std::move(value))); }
  bool binary(nlohmann::json::binary_t &) override { return false; } // not in a text
  bool start_object(size_t) override { return open(Json(Json::Object())); }
  bool start_array(size_t) override { return open(Json(Json::Array())); }
  bool end_object() override { return close(); }
  bool end_array() override { return close(); }
  bool key(std::string &name) override {
    member = std::move(name);
    return true;
  }
  bool parse_error(size_t position, const std::string &,
                   const nlohmann::json::exception &error) override {
    if (error.id == 406) // a number beyond double, such as 1e999
      message = fmt::format("{}: not valid JSON: a number is out of range", path);
    else
      message = fmt::format("{}: not valid JSON at byte {} of {}", path, position, length);
    return false;
  }

  std::string message;
  std::optional<Error> refusal; ///< of the visitor

private:
  /// The value at its place, or null after saying what is wrong with it.
  Json *place(Json value) {
    if (ancestors.empty())
      return &(root = std::move(value));
    Json &parent = *ancestors.back();
    if (visitor && ++values > limits.values) {
      message = fmt::format("{}: {}: found more than {} values", path, Json::describe(outermost),
                            limits.values);
      return nullptr;
    }
    if (parent.isArray())
      return &std::get<Json::Array>(parent.value).emplace_back(std::move(value));
    auto &members = std::get<Json::Object>(parent.value);
    if (visitor && members.contains(member)) {
      message = fmt::format("{}: {}: the key {} appears twice", path, Json::describe(outermost),
                            Json::describe(member));
      return nullptr;
    }
    if (ancestors.size() == 1)
      outermost = member;
    return &(members[std::move(member)] = std::move(value));
  }
  bool put(Json value) { return place(std::move(value)) && handOver(); }
  bool open(Json container) {
    if (ancestors.size() == limits.depth) {
      message = fmt::format("{}: found JSON nested more than {} levels deep", path, limits.depth);
      return false;
    }
    Json *placed = place(std::move(container));
    if (placed)
      ancestors.push_back(placed);
    return placed;
  }
  bool close() {
    ancestors.pop_back();
    return handOver();
  }
  /// To the visitor, if a member of the document is complete.
  bool handOver() {
    if (!visitor || ancestors.size() != 1 || !root.isObject())
      return true;
    auto &members = std::get<Json::Object>(root.value);
    auto whole = members.extract(members.begin());
    values = 0;
    Result<void> done = (*visitor)(whole.key(), whole.mapped());
    if (!done)
      refusal = done.error();
    return done.has_value();
  }

  Json &root;
  std::string_view path;
  size_t length;
  Json::Limits limits;
  const Json::Visitor *visitor;
  size_t values = 0;     ///< of the member of the document that is being read
  std::string outermost; ///< its name
  std::string member;    ///< the name of the value that comes next, in an object
  /// The containers that are open. They stay where they are: only the last one grows.
  std::vector<Json *> ancestors;
};

Result<Json> Json::parseObject(std::string_view text, std::string_view path) {
  Json root;
  JsonBuilder builder(root, path, text.size(), {kMaxDepth, 0});
  if (!nlohmann::json::sax_parse(text, &builder))
    return Unexpected(Error{ErrorCode::Corrupt, std::move(builder.message)});
  if (!root.isObject())
    return makeError(ErrorCode::Corrupt, "{}: found {}, expected an object", path, root.describe());
  return root;
}

Result<void> Json::parseMembers(std::string_view text, std::string_view path, Limits limits,
                                const Visitor &visitor) {
  Json root;
  JsonBuilder builder(root, path, text.size(), limits, &visitor);
  if (!nlohmann::json::sax_parse(text, &builder))
    return Unexpected(builder.refusal ? std::move(*builder.refusal)
                                      : Error{ErrorCode::Corrupt, std::move(builder.message)});
  if (!root.isObject())
    return makeError(ErrorCode::Corrupt, "{}: found {}, expected an object", path, root.describe());
  return {};
}

std::optional<int64_t> Json::integer() const {
  const int64_t *found = std::get_if<int64_t>(&value);
  return found ? std::optional(*found) : std::nullopt;
}

std::optional<double> Json::number() const {
  if (const auto *found = std::get_if<int64_t>(&value))
    return static_cast<double>(*found);
  if (const auto *found = std::get_if<uint64_t>(&value))
    return static_cast<double>(*found);
  const double *found = std::get_if<double>(&value);
  return found ? std::optional(*found) : std::nullopt;
}

const Json *Json::find(std::string_view key) const {
  if (!isObject())
    return nullptr;
  auto found = members().find(key);
  return found == members().end() ? nullptr : &found->second;
}

size_t Json::size() const {
  if (isObject())
    return members().size();
  return isArray() ? std::get<Array>(value).size() : 0;
}

std::string Json::text(int depth) const {
  auto scalar = [](const auto &value) {
    return nlohmann::json(value).dump(-1, ' ', /*ensure_ascii=*/true,
                                      nlohmann::json::error_handler_t::replace);
  };
  const bool isOneLine = depth == kOneLine;
  const int inner = isOneLine ? kOneLine : depth + 1;
  auto lineBreak = [&](int level) {
    return isOneLine ? std::string() : "\n" + std::string(2 * static_cast<size_t>(level), ' ');
  };
  std::string joined;
  auto join = [&](const std::string &part) {
    joined += (joined.empty() ? "" : ",") + lineBreak(inner) + part;
  };
  auto enclose = [&](char open, char close) {
    return open + joined + (joined.empty() ? "" : lineBreak(depth)) + close;
  };
  if (isArray()) {
    for (const Json &element : std::get<Array>(value))
      join(element.text(inner));
    return enclose('[', ']');
  }
  if (isObject()) {
    for (const auto &[name, member] : members())
      join(scalar(name) + (isOneLine ? ":" : ": ") + member.text(inner));
    return enclose('{', '}');
  }
  return std::visit(
      [&](const auto &value) -> std::string {
        using T = std::decay_t<decltype(value)>;
        if constexpr (std::is_same_v<T, Array> || std::is_same_v<T, Object>)
          return {};
        else
          return scalar(value);
      },
      value);
}

bool Json::isText(std::string_view text) {
  try {
    return !nlohmann::json(text).dump().empty();
  } catch (const nlohmann::json::exception &) {
    return false;
  }
}

std::string Json::describe() const {
  if (isObject())
    return "an object";
  if (isArray())
    return "an array";
  std::string found = text();
  return found.size() <= 80 ? found : found.substr(0, 77) + "...";
}
