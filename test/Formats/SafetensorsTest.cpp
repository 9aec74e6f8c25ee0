//===- SafetensorsTest.cpp - Reading safetensors files --------------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "easyquant/Formats/Safetensors.h"

#include "TestFiles.h"

#include <gtest/gtest.h>

using namespace easyquant;
using namespace easyquant::formats;
using namespace easyquant::formats::test;

/// Parses a header before a data section of `dataBytes` zeros.
static Result<SafetensorsHeader> parseSafetensors(std::string_view header, size_t dataBytes = 0) {
  return parseSafetensorsHeader(bytesOf(safetensors(header, std::string(dataBytes, '\0'))), "file");
}

TEST(Safetensors, ReadsTensorsInTheOrderOfTheirBytes) {
  Result<SafetensorsHeader> header =
      parseSafetensors(R"({"__metadata__":{"format":"pt","note":"\u00e4"},)"
                       R"("b":{"dtype":"BF16","shape":[3],"data_offsets":[24,30]},)"
                       R"("a":{"data_offsets":[0,24],"shape":[2,3],"dtype":"F32"},)"
                       R"("empty":{"dtype":"I64","shape":[4,0],"data_offsets":[24,24]},)"
                       R"("scalar":{"dtype":"U8","shape":[],"data_offsets":[30,31]}}   )",
                       31);
  ASSERT_VALUE(header);
  ASSERT_EQ(header->tensors.size(), 4u);
  EXPECT_EQ(header->tensors[0].name, "a");
  EXPECT_EQ(header->tensors[0].dtype, DType::F32);
  EXPECT_EQ(header->tensors[0].shape, (std::vector<int64_t>{2, 3}));
  EXPECT_EQ(header->tensors[1].name, "empty");
  EXPECT_EQ(header->tensors[2].name, "b");
  EXPECT_EQ(header->tensors[2].begin, 24);
  EXPECT_EQ(header->tensors[3].shape, std::vector<int64_t>());
  for (size_t i = 0; i < 4; ++i)
    EXPECT_EQ(header->indexByName.at(header->tensors[i].name), i);
  EXPECT_EQ(header->metadata.at("format"), "pt");
  EXPECT_EQ(header->metadata.at("note"), "\xc3\xa4");
}

TEST(Safetensors, ReadsAFileWithoutTensors) {
  Result<SafetensorsHeader> header = parseSafetensors("{}");
  ASSERT_VALUE(header);
  EXPECT_TRUE(header->tensors.empty());
}

TEST(Safetensors, RefusesFilesThatAreTooShort) {
  for (size_t size : {0, 1, 7}) {
    EXPECT_ERROR(parseSafetensorsHeader(bytesOf(std::string(size, '\0')), "file"),
                 ErrorCode::Corrupt, "file", "too few");
  }
}

TEST(Safetensors, RefusesHeaderLengthsBeyondTheFile) {
  EXPECT_ERROR(parseSafetensorsHeader(bytesOf(raw<uint64_t>(3) + "{}"), "file"), ErrorCode::Corrupt,
               "3 bytes", "only 2", "truncated");
  EXPECT_ERROR(parseSafetensorsHeader(bytesOf(raw<uint64_t>(~0ull) + "{}"), "file"),
               ErrorCode::Corrupt, "18446744073709551615");
  EXPECT_ERROR(parseSafetensorsHeader(bytesOf(raw<uint64_t>(1ull << 40) + "{}"), "file"),
               ErrorCode::Corrupt, "1099511627776");
}

TEST(Safetensors, RefusesWhatIsNotTheFormatsJson) {
  for (const char *header :
       {"",
        " {}",
        "[]",
        "{",
        "{}x",
        "{\"a\":",
        "{\"a\":1}",
        "{\"a\":null}",
        "{\"a\":[]}",
        "{\"a\":{\"dtype\":1,\"shape\":[],\"data_offsets\":[0,4]}}",
        "{\"a\":{\"dtype\":\"F32\",\"shape\":{},\"data_offsets\":[0,4]}}",
        "{\"a\":{\"dtype\":\"F32\",\"shape\":[[1]],\"data_offsets\":[0,4]}}",
        "{\"a\":{\"dtype\":\"F32\",\"shape\":[\"1\"],\"data_offsets\":[0,4]}}",
        "{\"a\":{\"dtype\":\"F32\",\"shape\":[1.0],\"data_offsets\":[0,4]}}",
        "{\"a\":{\"dtype\":\"F32\",\"shape\":[-1],\"data_offsets\":[0,4]}}",
        "{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0]}}",
        "{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4,4]}}",
        "{\"a\":{\"dtype\":\"F32\",\"shape\":[1]}}",
        "{\"a\":{\"shape\":[1],\"data_offsets\":[0,4]}}",
        "{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4],\"extra\":1}}",
        "{\"a\":{\"dtype\":\"F32\",\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]}}",
        "{\"__metadata__\":{\"a\":1}}",
        "{\"__metadata__\":{\"a\":{}}}",
        "{\"__metadata__\":1}",
        "{\"__metadata__\":{},\"__metadata__\":{}}",
        "{\"__metadata__\":{\"a\":\"\",\"a\":\"\"}}",
        "{\"a\xff\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]}}"}) {
    SCOPED_TRACE(header);
    EXPECT_ERROR(parseSafetensors(header, 4), ErrorCode::Corrupt, "file");
  }
}

TEST(Safetensors, RefusesDeepNestingWithoutRecursion) {
  EXPECT_ERROR(parseSafetensors("{\"a\":" + std::string(5'000'000, '[')), ErrorCode::Corrupt,
               "nested more than 3 levels");
  std::string nested;
  for (int i = 0; i < 500'000; ++i)
    nested += "{\"a\":";
  EXPECT_ERROR(parseSafetensors(nested), ErrorCode::Corrupt, "file");
}

TEST(Safetensors, NamesTheTensorThatIsWrong) {
  EXPECT_ERROR(parseSafetensors(R"({"w":{"dtype":"F31","shape":[1],"data_offsets":[0,4]}})", 4),
               ErrorCode::Corrupt, "file: tensor \"w\": unknown dtype \"F31\"");
  EXPECT_ERROR(parseSafetensors(R"({"w":{"dtype":"F32","shape":[2],"data_offsets":[0,4]}})", 4),
               ErrorCode::Corrupt, "\"w\"", "span 4 bytes", "F32 of shape [2] takes 8");
  EXPECT_ERROR(parseSafetensors(R"({"w":{"dtype":"F32","shape":[1],"data_offsets":[4,0]}})", 4),
               ErrorCode::Corrupt, "\"w\"", "the end lies before the begin");
  EXPECT_ERROR(parseSafetensors(R"({"w":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})", 4),
               ErrorCode::Corrupt, "\"w\"", "reach beyond the data section of 4 bytes");
}

TEST(Safetensors, RefusesSizesThatOverflow) {
  for (const char *shape :
       {"[4611686018427387904,4]", "[9223372036854775807]", "[4294967296,4294967296]",
        "[0,9223372036854775807,9223372036854775807]", "[18446744073709551615]",
        "[18446744073709551616]"}) {
    SCOPED_TRACE(shape);
    EXPECT_ERROR(parseSafetensors(fmt::format(
                     R"({{"w":{{"dtype":"F32","shape":{},"data_offsets":[0,0]}}}})", shape)),
                 ErrorCode::Corrupt, "file");
  }
  EXPECT_ERROR(parseSafetensors(R"({"w":{"dtype":"U8","shape":[9223372036854775807],)"
                                R"("data_offsets":[0,9223372036854775807]}})",
                                4),
               ErrorCode::Corrupt, "reach beyond");
}

TEST(Safetensors, RefusesOverlapsHolesAndLeftovers) {
  EXPECT_ERROR(parseSafetensors(R"({"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]},)"
                                R"("b":{"dtype":"U8","shape":[4],"data_offsets":[3,7]}})",
                                7),
               ErrorCode::Corrupt, "\"b\"", "overlap", "ends at 4");
  EXPECT_ERROR(parseSafetensors(R"({"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]},)"
                                R"("b":{"dtype":"U8","shape":[4],"data_offsets":[0,4]}})",
                                4),
               ErrorCode::Corrupt, "\"b\"", "overlap");
  EXPECT_ERROR(parseSafetensors(R"({"a":{"dtype":"U8","shape":[4],"data_offsets":[1,5]}})", 5),
               ErrorCode::Corrupt, "\"a\"", "hole after byte 0");
  EXPECT_ERROR(parseSafetensors(R"({"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]}})", 5),
               ErrorCode::Corrupt, "take 4 bytes, but the data section has 5");
}

TEST(Safetensors, RefusesNamesThatCannotBe) {
  const char *rest = R"(":{"dtype":"U8","shape":[0],"data_offsets":[0,0]})";
  EXPECT_ERROR(parseSafetensors(std::string("{\"") + rest + "}"), ErrorCode::Corrupt,
               "the name \"\"");
  EXPECT_ERROR(parseSafetensors(std::string("{\"a\\u0000b") + rest + "}"), ErrorCode::Corrupt,
               "a\\x00b");
  EXPECT_ERROR(parseSafetensors("{\"" + std::string(2000, 'x') + rest + "}"), ErrorCode::Corrupt,
               "...");
  EXPECT_ERROR(parseSafetensors(std::string("{\"a") + rest + ",\"a" + rest + "}"),
               ErrorCode::Corrupt, "\"a\"", "twice");
}

TEST(Safetensors, OpensFiles) {
  TemporaryFolder folder;
  putFile(folder / "model.safetensors",
          safetensors(R"({"w":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})", raw(1.5f)));
  Result<SafetensorsFile> file = SafetensorsFile::open(folder / "model.safetensors");
  ASSERT_VALUE(file);
  SafetensorsFile moved = std::move(*file);
  const SafetensorsTensor *tensor = moved.find("w");
  ASSERT_NE(tensor, nullptr);
  EXPECT_EQ(moved.find("v"), nullptr);
  float value = 0;
  ASSERT_EQ(moved.data(*tensor).size(), 4u);
  std::memcpy(&value, moved.data(*tensor).data(), 4);
  EXPECT_EQ(value, 1.5f);

  EXPECT_ERROR(SafetensorsFile::open(folder / "nothing"), ErrorCode::NotFound, "nothing");
  EXPECT_ERROR(SafetensorsFile::open(folder.path), ErrorCode::Unsupported, "not a regular file");
  putFile(folder / "empty", "");
  EXPECT_ERROR(SafetensorsFile::open(folder / "empty"), ErrorCode::Corrupt, "empty");
}
