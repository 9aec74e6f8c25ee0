//===- StatisticsFileTest.cpp ---------------------------------------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "easyquant/Formats/StatisticsFile.h"
#include "easyquant/Formats/SafetensorsWriter.h"
#include "easyquant/Formats/SealedFile.h"

#include "TestFiles.h"

#include <gtest/gtest.h>

using namespace easyquant;
using namespace easyquant::formats;
using formats::test::TemporaryFolder;

namespace {

const CalibrationStamp kStamp{"abc", "def", "012", 64, 1024, -3, true};
constexpr int64_t kTwo[] = {2}, kOne[] = {1};

struct Written {
  Written() {
    const ComputedTensor tensors[] = {
        ComputedTensor::floats("up/absmax", {2}, floats),
        {"up/tokens", DType::I64, {1}, std::as_bytes(std::span(integers))}};
    auto done = writeSealed(path, tensors, kStamp.toMetadata());
    EXPECT_TRUE(done) << done.error().message;
  }
  TemporaryFolder folder;
  std::filesystem::path path = folder / "statistics.safetensors";
  const std::vector<float> floats = {1.5f, 2.5f};
  const std::vector<int64_t> integers = {int64_t(1) << 40};
};

TEST(StatisticsFile, ComesBack) {
  Written written;
  auto file = StatisticsFile::open(written.path);
  ASSERT_TRUE(file) << file.error().message;
  EXPECT_EQ(file->stamp(), kStamp);
  EXPECT_TRUE(file->checkModel("abc"));
  EXPECT_TRUE(file->has("up/absmax"));
  EXPECT_FALSE(file->has("up/hessian"));
  EXPECT_EQ(*file->floats("up/absmax", kTwo), written.floats);
  EXPECT_EQ(*file->integers("up/tokens", kOne), written.integers);
  // Nothing else is left in the folder.
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(written.folder.path), {}), 1);
}

TEST(StatisticsFile, RefusesWhatIsNotThere) {
  Written written;
  auto file = StatisticsFile::open(written.path);
  ASSERT_TRUE(file);
  auto other = file->checkModel("xyz").error();
  EXPECT_EQ(other.code, ErrorCode::InvalidArgument);
  EXPECT_NE(other.message.find("another model"), std::string::npos) << other.message;
  auto missing = file->floats("down/absmax", kTwo).error();
  EXPECT_EQ(missing.code, ErrorCode::NotFound);
  EXPECT_NE(missing.message.find("down/absmax"), std::string::npos);
  EXPECT_EQ(file->floats("up/absmax", kOne).error().code, ErrorCode::Corrupt);
  EXPECT_EQ(file->integers("up/absmax", kTwo).error().code, ErrorCode::Corrupt);
  EXPECT_EQ(StatisticsFile::open(written.folder / "none").error().code, ErrorCode::NotFound);
}

TEST(StatisticsFile, RefusesFilesWithoutAStamp) {
  TemporaryFolder folder;
  auto metadata = kStamp.toMetadata();
  auto openWith = [&](const std::map<std::string, std::string> &fields) {
    auto writer = SafetensorsWriter::create(folder / "s", {}, fields);
    EXPECT_TRUE(writer && writer->finish());
    auto file = StatisticsFile::open(folder / "s");
    return file ? std::string() : file.error().message;
  };
  EXPECT_EQ(openWith(metadata), "");
  EXPECT_NE(openWith({}).find("not a statistics file"), std::string::npos);
  for (const char *key : {"samples", "length", "seed", "bos"}) {
    auto broken = metadata;
    broken[key] = "12x";
    EXPECT_NE(openWith(broken).find(key), std::string::npos);
    broken.erase(key);
    EXPECT_NE(openWith(broken).find(key), std::string::npos);
  }
  formats::test::putFile(folder / "text", "not a safetensors file");
  EXPECT_EQ(StatisticsFile::open(folder / "text").error().code, ErrorCode::Corrupt);
}

TEST(StatisticsFile, RefusesADamagedFile) {
  Written written;
  std::string text = easyquant::test::readFile(written.path);
  text.back() ^= 4;
  easyquant::test::putFile(written.path, text);
  auto damaged = StatisticsFile::open(written.path).error();
  EXPECT_EQ(damaged.code, ErrorCode::Corrupt);
  EXPECT_NE(damaged.message.find("damaged"), std::string::npos) << damaged.message;
}

} // namespace
