//===- FieldReaderTest.cpp - Structures from JSON documents and back --------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "easyquant/Support/FieldReader.h"

#include "TestFiles.h"

#include <gtest/gtest.h>

using namespace easyquant;

namespace {

enum class Color { Red, Green };
std::span<const char *const> namesOf(Color) {
  static constexpr const char *names[] = {"red", "green"};
  return names;
}

struct Part {
  std::string name;
  std::optional<int64_t> size;
  bool operator==(const Part &) const = default;
};
template <typename Fields> void mapFields(Fields &fields, Part &part) {
  fields.required("name", part.name);
  fields.required("size", part.size, Bounds{1, 9});
}

struct Whole {
  int64_t count = 0;
  double ratio = 0;
  bool flag = false;
  Color color = Color::Red;
  std::array<int64_t, 2> pair{};
  std::vector<Part> parts;
  std::map<std::string, int64_t> sizes;
  std::optional<Part> extra;
  Json any;
  std::string word = "default";
  bool operator==(const Whole &) const = default;
};
template <typename Fields> void mapFields(Fields &fields, Whole &whole) {
  fields.required("count", whole.count, Bounds{0, 100});
  fields.required("ratio", whole.ratio, Numbers::Positive);
  fields.required("flag", whole.flag);
  fields.required("color", whole.color);
  fields.required("pair", whole.pair);
  fields.required("parts", whole.parts);
  fields.required("sizes", whole.sizes);
  fields.optional("extra", whole.extra);
  fields.required("any", whole.any);
  fields.optional("word", whole.word);
}

const char *const kGood = R"({"count": 3, "ratio": 0.5, "flag": true, "color": "green",
  "pair": [1, 2], "parts": [{"name": "a", "size": 4}, {"name": "b", "size": null}],
  "sizes": {"x": 7}, "any": {"free": [1, "form"]}})";

Result<Whole> readWhole(std::string_view text, FieldReader::Options options = {}) {
  Whole whole;
  Result<Json> json = Json::parseObject(text, "f.json");
  if (!json)
    return Unexpected(json.error());
  if (Result<void> done = readFields(*json, "f.json", whole, options); !done)
    return Unexpected(done.error());
  return whole;
}

/// The good document with a part of its text replaced.
std::string with(std::string_view from, std::string_view to) {
  std::string text = kGood;
  size_t at = text.find(from);
  EXPECT_NE(at, text.npos) << from;
  return text.replace(at, from.size(), to);
}

TEST(FieldReader, ReadsWhatFieldWriterWrites) {
  Result<Whole> whole = readWhole(kGood);
  ASSERT_VALUE(whole);
  EXPECT_EQ(whole->color, Color::Green);
  EXPECT_EQ(whole->parts, (std::vector<Part>{{"a", 4}, {"b", std::nullopt}}));
  EXPECT_EQ(whole->word, "default");
  EXPECT_FALSE(whole->extra);
  Result<Whole> again = readWhole(FieldWriter::toJson(*whole).document());
  ASSERT_VALUE(again);
  EXPECT_EQ(*again, *whole);
}

TEST(FieldReader, NamesFieldFoundAndExpected) {
  auto expect = [](std::string_view from, std::string_view to, const std::string &message) {
    EXPECT_ERROR(readWhole(with(from, to)), ErrorCode::Corrupt, "f.json: " + message);
  };
  expect("3", "101", "count: found 101, expected an integer in 0..100");
  expect("3", "1.5", "count: found 1.5, expected an integer in 0..100");
  expect("\"count\": 3,", "", "count: found nothing, expected an integer in 0..100");
  expect("0.5", "0", "ratio: found 0, expected a positive number");
  expect("true", "1", "flag: found 1, expected true or false");
  expect("green", "blue", "color: found \"blue\", expected \"red\" or \"green\"");
  expect("[1, 2]", "[1]", "pair: found an array, expected an array of 2");
  expect("4", "0", "parts[0].size: found 0, expected an integer in 1..9");
  expect("null", "\"\"", "parts[1].size: found \"\", expected an integer in 1..9");
  expect("{\"name\": \"a\", \"size\": 4}", "[]", "parts[0]: found an array, expected an object");
  expect("7", "-7", "sizes.x: found -7");
  expect("\"x\": 7", "\"a/b\": -7", "sizes[\"a/b\"]: found -7");
  expect("\"any\"", "\"extra\": 3, \"any\"", "extra: found 3, expected an object or null");
}

TEST(FieldReader, RefusesUnknownKeysWhereAsked) {
  EXPECT_TRUE(readWhole(with("\"any\"", "\"wrod\": 1, \"any\"")));
  FieldReader::Options strict = {.code = ErrorCode::InvalidArgument, .refuseUnknown = true};
  EXPECT_TRUE(readWhole(kGood, strict));
  EXPECT_ERROR(readWhole(with("\"any\"", "\"wrod\": 1, \"any\""), strict),
               ErrorCode::InvalidArgument, "f.json: unknown key 'wrod'; legal are count, ratio,",
               "did you mean 'word'?");
  EXPECT_ERROR(readWhole(with("\"name\": \"a\"", "\"name\": \"a\", \"sise\": 1"), strict),
               ErrorCode::InvalidArgument, "f.json: parts[0]: unknown key 'sise'", "'size'");
}

TEST(FieldReader, TakesNullForAbsentWhereAsked) {
  const std::string text = R"({"name": "a", "size": 1, "word": null})";
  Result<Json> json = Json::parseObject(text, "f.json");
  ASSERT_VALUE(json);
  std::string word = "default";
  FieldReader lenient(*json, "f.json", {.nullIsAbsent = true});
  lenient.optional("word", word);
  EXPECT_TRUE(lenient.result());
  EXPECT_EQ(word, "default");
  EXPECT_TRUE(lenient.names("word"));
  EXPECT_FALSE(lenient.has("word"));
  lenient.required("word", word);
  EXPECT_ERROR(lenient.result(), ErrorCode::Corrupt, "f.json: word: found nothing");
  FieldReader strict(*json, "f.json");
  strict.optional("word", word);
  EXPECT_ERROR(strict.result(), ErrorCode::Corrupt, "f.json: word: found null, expected a string");
}

TEST(FieldReader, ReadsFieldByField) {
  Result<Json> json = Json::parseObject(
      R"({"alpha": 0.75, "beta": "search", "inner": {"x": 1}, "other": 2})", "f.json");
  ASSERT_VALUE(json);
  FieldReader fields(*json, "f.json", {.refuseUnknown = true});
  std::string alpha, beta;
  fields.optional("alpha", TextOrNumber{alpha});
  fields.optional("beta", TextOrNumber{beta});
  EXPECT_EQ(alpha, "0.75");
  EXPECT_EQ(beta, "search");
  EXPECT_FALSE(fields.has("gamma"));
  int64_t x = 0;
  fields.object("inner", [&](FieldReader &inner) {
    inner.required("x", x, Bounds());
    inner.check(x > 1, "x", "one", "more");
  });
  EXPECT_EQ(x, 1);
  Json::Object rest;
  fields.required("missing", x);
  fields.rest(rest);
  EXPECT_ERROR(fields.result(), ErrorCode::Corrupt, "f.json: inner.x: found one, expected more");

  FieldReader others(*json, "f.json", {.refuseUnknown = true});
  others.optional("alpha", TextOrNumber{alpha});
  others.rest(rest);
  others.finish();
  EXPECT_TRUE(others.result()) << "the rest is known";
  EXPECT_EQ(rest.size(), 3u);
}

} // namespace
