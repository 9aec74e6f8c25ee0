//===- ReadRecipe.cpp - Recipes from JSON ---------------------------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "easyquant/Recipe/Recipe.h"

#include "easyquant/Support/DidYouMean.h"

#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/JSON.h"
#include "llvm/Support/MemoryBuffer.h"

using namespace easyquant;
using namespace easyquant::recipe;
using llvm::StringRef;
using llvm::Twine;

namespace {

/// The value, if it is of that kind.
std::optional<OptionValue> valueOf(Kind kind, const llvm::json::Value &found) {
  switch (kind) {
  case Kind::Switch:
    return found.getAsBoolean();
  case Kind::Integer:
    return found.getAsInteger();
  case Kind::Number:
    return found.getAsNumber();
  case Kind::TextOrNumber:
    if (auto number = found.getAsNumber())
      return fmt::format("{}", *number);
    [[fallthrough]];
  case Kind::Text:
  case Kind::Choice:
    if (auto text = found.getAsString())
      return text->str();
    return std::nullopt;
  case Kind::List: {
    const llvm::json::Array *array = found.getAsArray();
    std::vector<std::string> list;
    for (size_t i = 0; array && i < array->size(); ++i)
      if (auto text = (*array)[i].getAsString())
        list.push_back(text->str());
    if (!array || list.size() != array->size())
      return std::nullopt;
    return list;
  }
  }
  llvm_unreachable("every kind is named");
}

StringRef expected(Kind kind) {
  switch (kind) {
  case Kind::Switch:
    return "true or false";
  case Kind::Integer:
    return "an integer";
  case Kind::Number:
    return "a number";
  case Kind::Text:
  case Kind::Choice:
    return "a text";
  case Kind::TextOrNumber:
    return "a text or a number";
  case Kind::List:
    return "a list of texts";
  }
  llvm_unreachable("every kind is named");
}

/// Takes the keys out of an object one by one; what is left over is an error.
class Fields {
public:
  /// `where` is "FILE" or "FILE: sites[2]".
  Fields(const llvm::json::Object &object, std::string where)
      : object(object), where(std::move(where)) {}

  void read(StringRef key, std::string &value) {
    if (const llvm::json::Value *found = take(key)) {
      if (auto text = found->getAsString())
        value = text->str();
      else
        fail(key, "a text", *found);
    }
  }
  void read(const OptionInfo &option, OptionValues &values) {
    const llvm::json::Value *found = take(option.key);
    if (!found)
      return;
    if (std::optional<OptionValue> value = valueOf(option.kind, *found))
      values.set(option, std::move(*value));
    else
      fail(option.key, expected(option.kind), *found);
  }
  const llvm::json::Object *readObject(StringRef key) {
    const llvm::json::Value *found = take(key);
    if (found && !found->getAsObject())
      fail(key, "an object", *found);
    return found ? found->getAsObject() : nullptr;
  }
  const llvm::json::Array *readList(StringRef key) {
    const llvm::json::Value *found = take(key);
    if (found && !found->getAsArray())
      fail(key, "a list", *found);
    return found ? found->getAsArray() : nullptr;
  }
  void require(StringRef key) {
    if (!object.get(key))
      fail("key '" + key + "' is missing");
  }

  /// The first problem, an unknown key being the last to be looked for.
  Result<void> finish() {
    for (const auto &[key, value] : object)
      if (!llvm::is_contained(known, StringRef(key)))
        fail("unknown key '" + StringRef(key) + "'; legal are " + llvm::join(known, ", ") +
             didYouMean(StringRef(key), known));
    if (problem)
      return Unexpected(Error{ErrorCode::InvalidArgument, where + ": " + *problem});
    return {};
  }
  void fail(const Twine &message) {
    if (!problem)
      problem = message.str();
  }

private:
  const llvm::json::Value *take(StringRef key) {
    known.push_back(key);
    return object.get(key);
  }
  void fail(StringRef key, StringRef expected, const llvm::json::Value &found) {
    std::string text;
    llvm::raw_string_ostream(text) << found;
    fail("'" + key + "' must be " + expected + ", found " + text);
  }

  const llvm::json::Object &object;
  std::string where;
  llvm::SmallVector<StringRef> known;
  std::optional<std::string> problem;
};

} // namespace

/// Reads the options that `isMeant` says are legal here.
static void readOptions(Fields &fields, OptionValues &values,
                        llvm::function_ref<bool(const OptionInfo &)> isMeant) {
  for (const OptionInfo &option : options())
    if (!option.key.empty() && isMeant(option))
      fields.read(option, values);
}

/// The method is what its text means for the scheme.
static void parseMethodOf(SiteRequest &request, Fields &fields) {
  Result<MethodExpression> parsed = parseMethod(request.options[option::method], request.scheme());
  if (parsed)
    request.method = *parsed;
  else
    fields.fail(parsed.error().message);
}

static Result<SiteRule> readRule(const llvm::json::Value &value, const SiteRequest &defaults,
                                 const std::string &where) {
  const llvm::json::Object *object = value.getAsObject();
  if (!object)
    return makeError(ErrorCode::InvalidArgument, "{}: expected an object with the key 'match'",
                     where);
  SiteRule rule;
  rule.request = defaults;
  // A rule with a scheme of its own has that scheme's default groups.
  if (object->get("scheme"))
    rule.request.options.reset(option::groupSize);
  if (object->get("weight_observer"))
    rule.request.options.reset(option::percentile);
  Fields fields(*object, where);
  fields.require("match");
  fields.read("match", rule.match);
  readOptions(fields, rule.request.options, [](const OptionInfo &o) { return o.perSite; });
  parseMethodOf(rule.request, fields);
  if (auto done = fields.finish(); !done)
    return Unexpected(done.error());
  return rule;
}

static Result<void> readKV(const llvm::json::Object &object, OptionValues &values,
                           const std::string &where) {
  Fields fields(object, where);
  fields.require("scheme");
  readOptions(fields, values, [](const OptionInfo &o) { return o.section == "kv"; });
  return fields.finish();
}

Result<Recipe> recipe::parseRecipe(StringRef text, StringRef file) {
  llvm::Expected<llvm::json::Value> json = llvm::json::parse(text);
  if (!json)
    return makeError(ErrorCode::InvalidArgument, "{}: is no JSON: {}", file.str(),
                     llvm::toString(json.takeError()));
  const llvm::json::Object *object = json->getAsObject();
  if (!object)
    return makeError(ErrorCode::InvalidArgument, "{}: a recipe is an object", file.str());
  Recipe recipe;
  recipe.file = file.str();
  Fields fields(*object, recipe.file);
  OptionValues &planned = recipe.request.options;
  readOptions(fields, planned, [](const OptionInfo &o) { return o.planned; });
  parseMethodOf(recipe.request, fields);
  readOptions(fields, recipe.options,
              [](const OptionInfo &o) { return !o.planned && o.section.empty(); });
  // One key for weights and activations, as on the command line.
  if (auto percentile = planned.get(option::percentile);
      percentile && recipe.options[option::observer] == "percentile") {
    recipe.options.set(option::percentile, *percentile);
    if (planned[option::weightObserver] != "percentile")
      planned.reset(option::percentile);
  }
  const llvm::json::Object *kv = fields.readObject("kv");
  const llvm::json::Array *rules = fields.readList("sites");
  if (auto done = fields.finish(); !done)
    return Unexpected(done.error());
  if (kv)
    if (auto read = readKV(*kv, recipe.options, file.str() + ": kv"); !read)
      return Unexpected(read.error());
  for (size_t i = 0; rules && i < rules->size(); ++i) {
    std::string where = file.str() + ": sites[" + std::to_string(i) + "]";
    Result<SiteRule> rule = readRule((*rules)[i], recipe.request, where);
    if (!rule)
      return Unexpected(rule.error());
    recipe.sites.push_back(std::move(*rule));
  }
  return recipe;
}

Result<Recipe> recipe::readRecipe(StringRef file) {
  auto buffer = llvm::MemoryBuffer::getFile(file, /*IsText=*/true);
  if (!buffer)
    return makeError(ErrorCode::NotFound, "{}: cannot be read: {}", file.str(),
                     buffer.getError().message());
  return parseRecipe((*buffer)->getBuffer(), file);
}
