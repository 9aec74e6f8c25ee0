//===- ReadRecipe.cpp - Recipes from JSON ---------------------------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "easyquant/Dialect/Equant/Analysis/Recipe.h"

#include "easyquant/Support/DidYouMean.h"

#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/JSON.h"
#include "llvm/Support/MemoryBuffer.h"

using namespace easyquant;
using namespace easyquant::equant;
using llvm::StringRef;
using llvm::Twine;

namespace {

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
  void read(StringRef key, std::optional<int64_t> &value) {
    if (const llvm::json::Value *found = take(key)) {
      if (auto number = found->getAsInteger())
        value = *number;
      else
        fail(key, "an integer", *found);
    }
  }
  void read(StringRef key, std::optional<double> &value) {
    if (const llvm::json::Value *found = take(key)) {
      if (auto number = found->getAsNumber())
        value = *number;
      else
        fail(key, "a number", *found);
    }
  }
  void read(StringRef key, std::optional<bool> &value) {
    bool flag = false;
    read(key, flag);
    if (object.get(key))
      value = flag;
  }
  /// A text or a number, as text.
  void readTextOrNumber(StringRef key, std::string &value) {
    const llvm::json::Value *found = take(key);
    if (!found)
      return;
    if (auto text = found->getAsString())
      value = text->str();
    else if (auto number = found->getAsNumber())
      value = fmt::format("{}", *number);
    else
      fail(key, "a text or a number", *found);
  }
  const llvm::json::Object *readObject(StringRef key) {
    const llvm::json::Value *found = take(key);
    if (found && !found->getAsObject())
      fail(key, "an object", *found);
    return found ? found->getAsObject() : nullptr;
  }
  void read(StringRef key, bool &value) {
    if (const llvm::json::Value *found = take(key)) {
      if (auto flag = found->getAsBoolean())
        value = *flag;
      else
        fail(key, "true or false", *found);
    }
  }
  void read(StringRef key, std::vector<std::string> &value) {
    const llvm::json::Value *found = take(key);
    if (!found)
      return;
    const llvm::json::Array *array = found->getAsArray();
    if (!array)
      return fail(key, "a list of texts", *found);
    value.clear();
    for (const llvm::json::Value &item : *array) {
      if (auto text = item.getAsString())
        value.push_back(text->str());
      else
        return fail(key, "a list of texts", *found);
    }
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

/// The keys that a recipe and its rules share. `request` holds the defaults.
static void readRequest(Fields &fields, SiteRequest &request, const std::string &defaultMethod) {
  std::string method = defaultMethod;
  fields.read("method", method);
  fields.read("scheme", request.scheme);
  fields.read("group_size", request.groupSize);
  fields.read("activations", request.activations);
  fields.read("weight_observer", request.weightObserver);
  fields.read("percentile", request.percentile);
  if (Result<MethodExpression> parsed = parseMethod(method, request.scheme))
    request.method = *parsed;
  else
    fields.fail(parsed.error().message);
}

static void readOptions(Fields &fields, SiteOptions &options) {
  fields.readTextOrNumber("alpha", options.alpha);
  fields.read("observer", options.observer);
  fields.read("damping", options.damping);
  fields.read("act_order", options.actOrder);
  fields.read("static_groups", options.staticGroups);
  fields.read("clip", options.clip);
}

static Result<SiteRule> readRule(const llvm::json::Value &value, const SiteRequest &defaults,
                                 const std::string &defaultMethod, const std::string &where) {
  const llvm::json::Object *object = value.getAsObject();
  if (!object)
    return makeError(ErrorCode::InvalidArgument, "{}: expected an object with the key 'match'",
                     where);
  SiteRule rule;
  rule.request = defaults;
  // A rule with a scheme of its own has that scheme's default groups.
  if (object->get("scheme"))
    rule.request.groupSize.reset();
  if (object->get("weight_observer"))
    rule.request.percentile.reset();
  Fields fields(*object, where);
  fields.require("match");
  fields.read("match", rule.match);
  readRequest(fields, rule.request, defaultMethod);
  readOptions(fields, rule.request.options);
  if (auto done = fields.finish(); !done)
    return Unexpected(done.error());
  return rule;
}

static void readOptions(Fields &fields, MethodOptions &options) {
  readOptions(fields, static_cast<SiteOptions &>(options));
  fields.read("search_samples", options.searchSamples);
  fields.read("epochs", options.epochs);
}

static Result<KVOptions> readKV(const llvm::json::Object &object, const std::string &where) {
  KVOptions kv;
  Fields fields(object, where);
  fields.require("scheme");
  fields.read("scheme", kv.scheme);
  fields.read("group", kv.group);
  fields.read("residual", kv.residual);
  fields.read("sinks", kv.sinks);
  fields.read("keys", kv.keys);
  fields.read("key_scales", kv.keyScales);
  if (auto done = fields.finish(); !done)
    return Unexpected(done.error());
  return kv;
}

Result<Recipe> easyquant::equant::parseRecipe(StringRef text, StringRef file) {
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
  readRequest(fields, recipe.request, /*defaultMethod=*/"");
  fields.read("mixed", recipe.mixed);
  fields.read("head", recipe.head);
  fields.read("ignore", recipe.ignore);
  fields.read("targets", recipe.targets);
  readOptions(fields, recipe.options);
  // One key for weights and activations, as on the command line.
  if (recipe.options.observer == "percentile") {
    recipe.options.percentile = recipe.request.percentile;
    if (recipe.request.weightObserver != "percentile")
      recipe.request.percentile.reset();
  }
  const llvm::json::Object *kv = fields.readObject("kv");
  const llvm::json::Array *rules = fields.readList("sites");
  if (auto done = fields.finish(); !done)
    return Unexpected(done.error());
  if (kv) {
    Result<KVOptions> options = readKV(*kv, file.str() + ": kv");
    if (!options)
      return Unexpected(options.error());
    recipe.kv = std::move(*options);
  }
  std::string method = object->getString("method").value_or("").str();
  for (size_t i = 0; rules && i < rules->size(); ++i) {
    std::string where = file.str() + ": sites[" + std::to_string(i) + "]";
    Result<SiteRule> rule = readRule((*rules)[i], recipe.request, method, where);
    if (!rule)
      return Unexpected(rule.error());
    recipe.sites.push_back(std::move(*rule));
  }
  return recipe;
}

Result<Recipe> easyquant::equant::readRecipe(StringRef file) {
  auto buffer = llvm::MemoryBuffer::getFile(file, /*IsText=*/true);
  if (!buffer)
    return makeError(ErrorCode::NotFound, "{}: cannot be read: {}", file.str(),
                     buffer.getError().message());
  return parseRecipe((*buffer)->getBuffer(), file);
}
