//===- GGUFTest.cpp - Reading GGUF files ----------------------------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "easyquant/Formats/GGUF.h"

#include "TestFiles.h"

#include <gtest/gtest.h>

using namespace easyquant;
using namespace easyquant::formats;
using namespace easyquant::formats::test;

static Result<GGUFHeader> parseGGUF(const std::string &file) {
  return parseGGUFHeader(bytesOf(file), "file");
}

TEST(GGUF, ReadsMetadataOfEveryType) {
  GGUFBuilder builder;
  builder.pair("u8", GGUFType::U8, raw<uint8_t>(200))
      .pair("i8", GGUFType::I8, raw<int8_t>(-3))
      .pair("u16", GGUFType::U16, raw<uint16_t>(60000))
      .pair("i16", GGUFType::I16, raw<int16_t>(-30000))
      .u32("u32", 4000000000u)
      .pair("i32", GGUFType::I32, raw<int32_t>(-5))
      .pair("u64", GGUFType::U64, raw<uint64_t>(~0ull))
      .pair("i64", GGUFType::I64, raw<int64_t>(-(1ll << 40)))
      .f32("f32", 1e-5f)
      .pair("f64", GGUFType::F64, raw(0.1))
      .pair("true", GGUFType::Bool, raw<uint8_t>(1))
      .text("text", "héllo")
      .pair("integers", GGUFType::Array,
            raw(GGUFType::I16) + raw<uint64_t>(3) + rawAll<int16_t>({1, -2, 3}))
      .pair("strings", GGUFType::Array,
            raw(GGUFType::String) + raw<uint64_t>(2) + GGUFBuilder::string("a") +
                GGUFBuilder::string(""))
      .pair("floats", GGUFType::Array, raw(GGUFType::F32) + raw<uint64_t>(1) + raw(0.5f));
  std::string file = builder.build();
  Result<GGUFHeader> header = parseGGUF(file);
  ASSERT_VALUE(header);
  auto value = [&](const char *key) -> const GGUFValue & {
    return header->metadata.find(key)->second;
  };
  EXPECT_EQ(header->metadata.size(), 15u);
  EXPECT_EQ(value("u8").asInteger(), 200);
  EXPECT_EQ(value("i8").asInteger(), -3);
  EXPECT_EQ(value("u16").asInteger(), 60000);
  EXPECT_EQ(value("i16").asInteger(), -30000);
  EXPECT_EQ(value("u32").asInteger(), 4000000000);
  EXPECT_EQ(value("i32").asInteger(), -5);
  EXPECT_EQ(value("u64").asInteger(), std::nullopt) << "does not fit";
  EXPECT_EQ(value("i64").asInteger(), -(1ll << 40));
  EXPECT_EQ(value("f32").asNumber(), 1e-5) << "the double that was meant";
  EXPECT_EQ(value("f32").asInteger(), std::nullopt);
  EXPECT_EQ(value("f64").asNumber(), 0.1);
  EXPECT_EQ(value("true").asBool(), true);
  EXPECT_EQ(value("text").asString(), "héllo");
  EXPECT_EQ(value("text").asNumber(), std::nullopt);
  EXPECT_EQ(integersOf(*value("integers").asArray()), (std::vector<int64_t>{1, -2, 3}));
  EXPECT_EQ(integersOf(*value("floats").asArray()), std::nullopt);
  EXPECT_EQ(integersOf(*value("strings").asArray()), std::nullopt);
  EXPECT_EQ(stringsOf(*value("strings").asArray()), (std::vector<std::string_view>{"a", ""}));
  EXPECT_EQ(stringsOf(*value("integers").asArray()), std::nullopt);
}

TEST(GGUF, PlacesTensors) {
  GGUFBuilder builder;
  builder.alignment = 64;
  builder.u32("general.alignment", 64)
      .tensor("matrix", {32, 2}, GGMLType::Q8_0, std::string(68, 'm'))
      .tensor("vector", {3}, GGMLType::F32, std::string(12, 'v'));
  std::string file = builder.build();
  Result<GGUFHeader> header = parseGGUF(file);
  ASSERT_VALUE(header);
  ASSERT_EQ(header->tensors.size(), 2u);
  const GGUFTensor &matrix = header->tensors[0], &vector = header->tensors[1];
  EXPECT_EQ(matrix.shape, (std::vector<int64_t>{2, 32})) << "outermost first";
  EXPECT_EQ(matrix.type, GGMLType::Q8_0);
  EXPECT_EQ(matrix.bytes, 68);
  EXPECT_EQ(file.substr(matrix.offset, matrix.bytes), std::string(68, 'm'));
  EXPECT_EQ(file.substr(vector.offset, vector.bytes), std::string(12, 'v'));
  EXPECT_EQ(vector.offset % 64, 0);
}

TEST(GGUF, RefusesOtherFilesAndVersions) {
  EXPECT_ERROR(parseGGUF(""), ErrorCode::Corrupt, "file", "magic");
  EXPECT_ERROR(parseGGUF("GGML" + std::string(40, '\0')), ErrorCode::Corrupt, "not a GGUF file");
  GGUFBuilder builder;
  builder.version = 1;
  EXPECT_ERROR(parseGGUF(builder.build()), ErrorCode::Unsupported, "version 1", "2 or 3");
  builder.version = 4;
  EXPECT_ERROR(parseGGUF(builder.build()), ErrorCode::Unsupported, "version 4");
  builder.version = 0x03000000;
  EXPECT_ERROR(parseGGUF(builder.build()), ErrorCode::Unsupported, "big-endian");
}

TEST(GGUF, RefusesEveryTruncation) {
  GGUFBuilder builder;
  builder.text("key", "value")
      .pair("array", GGUFType::Array,
            raw(GGUFType::String) + raw<uint64_t>(1) + GGUFBuilder::string("item"))
      .tensor("t", {4, 2}, GGMLType::F32, std::string(32, 'x'));
  std::string file = builder.build();
  ASSERT_TRUE(parseGGUF(file));
  for (size_t size = 0; size < file.size(); ++size)
    EXPECT_ERROR(parseGGUF(file.substr(0, size)), ErrorCode::Corrupt, "file");
}

TEST(GGUF, RefusesCountsBeyondTheFile) {
  GGUFBuilder builder;
  builder.tensorCount = 1ull << 60;
  EXPECT_ERROR(parseGGUF(builder.build()), ErrorCode::Corrupt, "1152921504606846976 tensors");
  builder.tensorCount = 0;
  builder.pairCount = ~0ull;
  EXPECT_ERROR(parseGGUF(builder.build()), ErrorCode::Corrupt,
               "18446744073709551615 metadata entries");

  for (GGUFType type : {GGUFType::U8, GGUFType::F64, GGUFType::String}) {
    GGUFBuilder array;
    array.pair("big", GGUFType::Array,
               raw(type) + raw<uint64_t>(1ull << 61) + std::string(64, '\0'));
    EXPECT_ERROR(parseGGUF(array.build()), ErrorCode::Corrupt, "\"big\"", "2305843009213693952");
  }
  GGUFBuilder text;
  text.pair("long", GGUFType::String, raw<uint64_t>(~0ull));
  EXPECT_ERROR(parseGGUF(text.build()), ErrorCode::Corrupt, "\"long\"",
               "18446744073709551615 bytes");
}

TEST(GGUF, RefusesBadMetadata) {
  EXPECT_ERROR(parseGGUF(GGUFBuilder().u32("a", 1).u32("a", 2).build()), ErrorCode::Corrupt,
               "\"a\"", "twice");
  EXPECT_ERROR(parseGGUF(GGUFBuilder().u32("", 1).build()), ErrorCode::Corrupt, "key \"\"");
  EXPECT_ERROR(parseGGUF(GGUFBuilder().u32("a\nb", 1).build()), ErrorCode::Corrupt, "a\\x0ab");
  EXPECT_ERROR(parseGGUF(GGUFBuilder().pair("a", static_cast<GGUFType>(13), raw(1)).build()),
               ErrorCode::Corrupt, "\"a\"", "unknown value type 13");
  EXPECT_ERROR(parseGGUF(GGUFBuilder()
                             .pair("a", GGUFType::Array, raw(GGUFType::Array) + raw<uint64_t>(1))
                             .build()),
               ErrorCode::Unsupported, "array of arrays");
  for (uint32_t alignment : {0u, 3u, 48u, 1u << 30})
    EXPECT_ERROR(parseGGUF(GGUFBuilder().u32("general.alignment", alignment).build()),
                 ErrorCode::Corrupt, "general.alignment", "power of two");
  EXPECT_ERROR(parseGGUF(GGUFBuilder().text("general.alignment", "32").build()), ErrorCode::Corrupt,
               "general.alignment", "string");
}

TEST(GGUF, RefusesBadTensors) {
  auto entry = [](std::vector<uint64_t> dimensions, uint32_t type = 0, uint64_t offset = 0) {
    GGUFBuilder builder;
    builder.entry("t", dimensions, type, offset);
    return parseGGUF(builder.build() + std::string(256, '\0'));
  };
  EXPECT_ERROR(entry({}), ErrorCode::Corrupt, "\"t\"", "1 to 4 dimensions, found 0");
  EXPECT_ERROR(entry({1, 1, 1, 1, 1}), ErrorCode::Corrupt, "found 5");
  EXPECT_ERROR(entry({0}), ErrorCode::Corrupt, "impossible size 0");
  EXPECT_ERROR(entry({1ull << 63}), ErrorCode::Corrupt, "impossible size");
  EXPECT_ERROR(entry({1ull << 40, 1ull << 40}), ErrorCode::Corrupt, "does not fit");
  EXPECT_ERROR(entry({1ull << 62, 4}), ErrorCode::Corrupt, "does not fit");
  EXPECT_ERROR(entry({1000}), ErrorCode::Corrupt, "F32 of shape [1000]", "does not fit");
  EXPECT_ERROR(entry({4}, 99), ErrorCode::Unsupported, "\"t\"", "type 99");
  EXPECT_ERROR(entry({4}, 4), ErrorCode::Unsupported, "type 4"); // Q4_2, removed from ggml
  EXPECT_ERROR(entry({48}, 8), ErrorCode::Corrupt, "48", "Q8_0");
  EXPECT_ERROR(entry({4}, 0, 8), ErrorCode::Corrupt, "offset 8", "alignment 32");
  EXPECT_ERROR(entry({4}, 0, 1ull << 63), ErrorCode::Corrupt, "offset 9223372036854775808");
  EXPECT_ERROR(entry({4}, 0, 288), ErrorCode::Corrupt, "\"t\"", "beyond the end");
  EXPECT_TRUE(entry({4}, 0, 224));

  GGUFBuilder twice;
  twice.entry("t", {4}, 0, 0).entry("t", {4}, 0, 32);
  EXPECT_ERROR(parseGGUF(twice.build() + std::string(64, '\0')), ErrorCode::Corrupt, "\"t\"",
               "twice");
  GGUFBuilder overlap;
  overlap.entry("a", {16}, 0, 0).entry("b", {4}, 0, 32);
  EXPECT_ERROR(parseGGUF(overlap.build() + std::string(64, '\0')), ErrorCode::Corrupt, "\"a\"",
               "\"b\"", "overlap");
}
