//===- JsonTest.cpp - JSON documents ----------------------------------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "easyquant/Support/Json.h"

#include "TestFiles.h"

#include <gtest/gtest.h>

using namespace easyquant;

static Result<Json> parse(std::string_view text) { return Json::parseObject(text, "f.json"); }

TEST(Json, KeepsWhatItReads) {
  const std::string text = R"({"a":[1,-2.5,true,null,{}],"b":"\u00e9\n","c":18446744073709551615})";
  Result<Json> json = parse(text);
  ASSERT_VALUE(json);
  EXPECT_EQ(json->text(), text);
  EXPECT_EQ((*json->find("a"))[0].integer(), 1);
  EXPECT_EQ((*json->find("a"))[1].number(), -2.5);
  EXPECT_EQ(json->find("c")->integer(), std::nullopt) << "more than 64 bits with a sign";
  EXPECT_EQ(*parse(json->document()), *json);
}

TEST(Json, WritesLines) {
  Result<Json> json = parse(R"({"b": [], "a": {"x": [1, "y"]}})");
  ASSERT_VALUE(json);
  EXPECT_EQ(json->document(), R"({
  "a": {
    "x": [
      1,
      "y"
    ]
  },
  "b": []
}
)");
}

TEST(Json, SaysWhereATextIsNoJson) {
  EXPECT_ERROR(parse("{\"a\": 1,}"), ErrorCode::Corrupt, "f.json: not valid JSON at byte 9 of 9");
  EXPECT_ERROR(parse(""), ErrorCode::Corrupt, "f.json: not valid JSON");
  EXPECT_ERROR(parse("[1]"), ErrorCode::Corrupt, "f.json: found an array, expected an object");
  EXPECT_ERROR(parse("{\"a\": 1e999}"), ErrorCode::Corrupt, "a number is out of range");
}

TEST(Json, BoundsDepth) {
  auto nested = [](size_t levels) {
    return "{\"a\":" + std::string(levels - 1, '[') + std::string(levels - 1, ']') + "}";
  };
  EXPECT_TRUE(parse(nested(64)));
  EXPECT_ERROR(parse(nested(65)), ErrorCode::Corrupt, "nested more than 64 levels");
  EXPECT_ERROR(parse("{\"a\":" + std::string(1000000, '[')), ErrorCode::Corrupt, "f.json");
}

TEST(Json, HandsMembersOver) {
  std::string seen;
  auto read = [&](std::string_view text) {
    return Json::parseMembers(text, "f.json", {.depth = 3, .values = 4},
                              [&](const std::string &name, const Json &value) -> Result<void> {
                                seen += name + "=" + value.text() + ";";
                                if (name == "bad")
                                  return makeError(ErrorCode::Unsupported, "bad");
                                return {};
                              });
  };
  EXPECT_TRUE(read(R"({"a": 1, "b": {"x": [1, 2]}, "a": [], "c": "d"})"));
  EXPECT_EQ(seen, R"(a=1;b={"x":[1,2]};a=[];c="d";)");
  EXPECT_ERROR(read(R"({"bad": 1, "c": [})"), ErrorCode::Unsupported, "bad");
  EXPECT_ERROR(read(R"({"a": {"x": 1, "x": 2}})"), ErrorCode::Corrupt,
               "\"a\": the key \"x\" appears twice");
  EXPECT_ERROR(read(R"({"a": [1, 2, 3, 4]})"), ErrorCode::Corrupt,
               "\"a\": found more than 4 values");
  EXPECT_ERROR(read(R"({"a": [[[1]]]})"), ErrorCode::Corrupt, "nested more than 3 levels");
  EXPECT_ERROR(read("[1]"), ErrorCode::Corrupt, "found an array, expected an object");
  EXPECT_ERROR(read(R"({"a": 1)"), ErrorCode::Corrupt, "not valid JSON");
}

TEST(Json, ShowsUntrustedTextInAscii) {
  EXPECT_EQ(Json::describe("a\"\xff\n\xc3\xa9"), R"("a\"\ufffd\n\u00e9")");
  EXPECT_EQ(Json::describe(std::string(1000, 'x')).size(), 80u);
}
