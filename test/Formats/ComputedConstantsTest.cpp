//===- ComputedConstantsTest.cpp - Files of computed tensors --------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "easyquant/Formats/ComputedConstants.h"
#include "easyquant/Formats/SafetensorsWriter.h"

#include "TestFiles.h"

#include <gtest/gtest.h>
#include <limits>

using namespace easyquant;
using namespace easyquant::formats;
using namespace easyquant::formats::test;

namespace {
const std::vector<float> kScales = {0.5f, 2.0f, 1.0f, 4.0f, 8.0f, 16.0f};
const std::vector<int8_t> kCodes = {-8, 7, 0, 1};
const std::vector<int32_t> kZeroPoints = {-3, 2};

Result<void> writeSome(const ComputedConstants &work, std::string_view stamp) {
  const ComputedTensor tensors[] = {ComputedTensor::floats("q.weight_scale", {3, 2}, kScales),
                                    ComputedTensor::codes("q.weight_codes", {2, 2}, kCodes),
                                    ComputedTensor::integers("q.zero", {2}, kZeroPoints)};
  return work.write("layer_0.safetensors", stamp, tensors);
}

ComputedPlace scalePlace() {
  return {"layer_0.safetensors", "run 1", "q.weight_scale", DType::F32, {3, 2}};
}
} // namespace

TEST(ComputedConstants, AreReadBack) {
  TemporaryFolder folder;
  ComputedConstants work(folder / "work");
  EXPECT_FALSE(*work.has("layer_0.safetensors", "run 1"));
  ASSERT_VALUE(writeSome(work, "run 1"));
  EXPECT_TRUE(*work.has("layer_0.safetensors", "run 1"));
  EXPECT_FALSE(*work.has("layer_0.safetensors", "run 2"));
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(work.folder()), {}), 1);

  std::vector<float> scales(4);
  ASSERT_VALUE(work.readRows(scalePlace(), 1, 2, std::span<float>(scales)));
  EXPECT_EQ(scales, (std::vector<float>{1, 4, 8, 16}));
  std::vector<int8_t> codes(4);
  ASSERT_VALUE(work.readRows({"layer_0.safetensors", "run 1", "q.weight_codes", DType::I8, {2, 2}},
                             0, 2, std::span<int8_t>(codes)));
  EXPECT_EQ(codes, kCodes);
  std::vector<int32_t> zeroPoints(1);
  ASSERT_VALUE(work.readRows({"layer_0.safetensors", "", "q.zero", DType::I32, {2}}, 1, 1,
                             std::span<int32_t>(zeroPoints)));
  EXPECT_EQ(zeroPoints, std::vector<int32_t>{2});
}

TEST(ComputedConstants, AFileThatIsWrittenAgainIsReadAnew) {
  TemporaryFolder folder;
  ComputedConstants work(folder / "work");
  ASSERT_VALUE(writeSome(work, "run 1"));
  ASSERT_VALUE(work.check(scalePlace()));
  ASSERT_VALUE(writeSome(work, "run 2"));
  EXPECT_ERROR(work.check(scalePlace()), ErrorCode::Corrupt, "layer_0.safetensors",
               "q.weight_scale", "of another run", "run 2", "run 1");
}

TEST(ComputedConstants, WhatIsNotThereIsNamed) {
  TemporaryFolder folder;
  ComputedConstants work(folder / "work");
  EXPECT_ERROR(work.check(scalePlace()), ErrorCode::NotFound, "layer_0.safetensors",
               "q.weight_scale", "compute it again");
  ASSERT_VALUE(writeSome(work, "run 1"));
  ComputedPlace place = scalePlace();
  place.name = "k.weight_scale";
  EXPECT_ERROR(work.check(place), ErrorCode::NotFound, "layer_0.safetensors", "k.weight_scale");
  place = scalePlace();
  place.shape = {2, 3};
  EXPECT_ERROR(work.check(place), ErrorCode::Corrupt, "expected F32 [2, 3], found F32 [3, 2]");
  place.type = DType::I32;
  EXPECT_ERROR(work.check(place), ErrorCode::Corrupt, "expected I32");
  std::vector<int32_t> integers(2);
  EXPECT_ERROR(work.readRows(scalePlace(), 0, 1, std::span<int32_t>(integers)),
               ErrorCode::InvalidArgument, "read as I32");
  std::vector<float> floats(2);
  EXPECT_ERROR(work.readRows(scalePlace(), 3, 1, std::span<float>(floats)),
               ErrorCode::InvalidArgument, "1 rows from row 3: there are only 3");
  EXPECT_ERROR(work.readRows(scalePlace(), 0, 2, std::span<float>(floats)),
               ErrorCode::InvalidArgument, "a buffer of 8 bytes for 2 rows of 8 bytes");
}

TEST(ComputedConstants, ATruncatedFileIsDamaged) {
  TemporaryFolder folder;
  ComputedConstants work(folder / "work");
  ASSERT_VALUE(writeSome(work, "run 1"));
  auto path = work.folder() / "layer_0.safetensors";
  std::filesystem::resize_file(path, std::filesystem::file_size(path) - 1);
  EXPECT_ERROR(work.has("layer_0.safetensors", "run 1"), ErrorCode::Corrupt, path.string());
  EXPECT_ERROR(ComputedConstants(work.folder()).check(scalePlace()), ErrorCode::Corrupt,
               "layer_0.safetensors", "q.weight_scale");
}

TEST(ComputedConstants, AFlippedBitIsDamage) {
  TemporaryFolder folder;
  ComputedConstants work(folder / "work");
  ASSERT_VALUE(writeSome(work, "run 1"));
  const auto path = work.folder() / "layer_0.safetensors";
  const std::string whole = readFile(path);
  int damaged = 0;
  for (size_t i = 0; i < whole.size(); ++i) {
    if (whole[i] == ' ') // pads the header, and means nothing
      continue;
    std::string flipped = whole;
    flipped[i] = static_cast<char>(flipped[i] ^ 1 << i % 7);
    putFile(path, flipped);
    Result<bool> found = work.has("layer_0.safetensors", "run 1");
    ASSERT_FALSE(found.value_or(false)) << "byte " << i;
    damaged += !found;
    if (i + 32 > whole.size()) // the data
      EXPECT_ERROR(ComputedConstants(work.folder()).check(scalePlace()), ErrorCode::Corrupt,
                   path.string(), "checksum", "damaged", "compute it again");
  }
  // What has another stamp is another file's.
  EXPECT_GT(damaged, 100);
}

TEST(ComputedConstants, NothingThatIsNotFiniteGetsInOrOut) {
  TemporaryFolder folder;
  ComputedConstants work(folder / "work");
  for (float bad :
       {std::numeric_limits<float>::quiet_NaN(), -std::numeric_limits<float>::infinity()}) {
    const std::vector<float> values = {1, 2, bad, 4};
    const ComputedTensor tensor = ComputedTensor::floats("s", {2, 2}, values);
    EXPECT_ERROR(work.write("f", "run", {&tensor, 1}), ErrorCode::InvalidArgument, "\"s\"",
                 "element 2 is ", "only finite numbers");
    EXPECT_FALSE(std::filesystem::exists(work.folder() / "f"));

    auto writer = SafetensorsWriter::create(folder / "g", {{"s", "F32", {2, 2}}});
    ASSERT_VALUE(writer);
    ASSERT_VALUE(writer->write("s", std::as_bytes(std::span(values))));
    ASSERT_VALUE(writer->finish());
    std::vector<float> out(2);
    EXPECT_ERROR(ComputedConstants(folder / "")
                     .readRows({"g", "", "s", DType::F32, {2, 2}}, 1, 1, std::span<float>(out)),
                 ErrorCode::Corrupt, "\"s\"", "element 0 of row 1 is not finite");
  }
}

TEST(ComputedConstants, WritingRefusesWhatItCannotMean) {
  TemporaryFolder folder;
  ComputedConstants work(folder / "work");
  EXPECT_ERROR(writeSome(work, ""), ErrorCode::InvalidArgument, "stamp");
  const ComputedTensor tooFew = ComputedTensor::floats("s", {7}, kScales);
  EXPECT_ERROR(work.write("f", "run", {&tooFew, 1}), ErrorCode::InvalidArgument, "24 bytes", "[7]");
}
