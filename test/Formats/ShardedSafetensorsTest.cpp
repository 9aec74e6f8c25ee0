//===- ShardedSafetensorsTest.cpp - Weights in one file or in several -----===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "easyquant/Formats/ShardedSafetensors.h"

#include "TestFiles.h"

#include <algorithm>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>
#include <random>

using namespace easyquant;
using namespace easyquant::formats;
using namespace easyquant::formats::test;
namespace fs = std::filesystem;

namespace {

struct Case {
  std::vector<SafetensorsWriter::Tensor> tensors;
  std::vector<std::string> contents;
};

Case randomCase(uint32_t seed) {
  std::mt19937 random(seed);
  Case result;
  for (int i = 0, count = 1 + static_cast<int>(random() % 12); i < count; ++i) {
    size_t bytes = random() % 4 == 0 ? 0 : random() % 9000;
    result.tensors.push_back({fmt::format("t{}", i), "U8", {static_cast<int64_t>(bytes)}});
    std::string content(bytes, '\0');
    for (char &c : content)
      c = static_cast<char>(random());
    result.contents.push_back(content);
  }
  return result;
}

/// Writes the case and maps it; the names of the shards come first.
std::vector<fs::path> write(const fs::path &folder, const Case &c, int64_t maxShardBytes,
                            std::vector<int64_t> &offsets) {
  auto writer = ShardedSafetensorsWriter::create(folder, "w", c.tensors, maxShardBytes);
  EXPECT_TRUE(writer) << writer.error().message;
  for (size_t i = 0; i < c.tensors.size(); ++i)
    EXPECT_TRUE(writer->write(c.tensors[i].name, bytesOf(c.contents[i])));
  EXPECT_TRUE(writer->finish());
  offsets.assign(writer->offsets().begin(), writer->offsets().end());
  std::vector<fs::path> paths;
  for (size_t i = 0; i < writer->shardCount(); ++i)
    paths.push_back(folder / shardFileName("w", i, writer->shardCount()));
  return paths;
}

TEST(ShardedSafetensors, NamesFilesAsHuggingFaceDoes) {
  EXPECT_EQ(shardFileName("model", 0, 1), "model.safetensors");
  EXPECT_EQ(shardFileName("model", 1, 30), "model-00002-of-00030.safetensors");
  EXPECT_EQ(shardIndexName("model"), "model.safetensors.index.json");
}

TEST(ShardedSafetensors, MapsEveryTensorToItsOffset) {
  for (uint32_t seed = 0; seed < 60; ++seed) {
    SCOPED_TRACE(seed);
    TemporaryFolder folder;
    Case c = randomCase(seed);
    const int64_t limit = std::vector<int64_t>{1, 100, 4096, 9000, 20000, 1 << 30}[seed % 6];
    std::vector<int64_t> offsets;
    std::vector<fs::path> paths = write(folder.path, c, limit, offsets);
    Result<MappedShards> mapped = MappedShards::open(paths);
    ASSERT_VALUE(mapped);
    ASSERT_EQ(offsets.size(), c.tensors.size());
    for (size_t i = 0; i < offsets.size(); ++i) {
      auto bytes = mapped->bytes().subspan(offsets[i], c.contents[i].size());
      EXPECT_EQ(std::string(reinterpret_cast<const char *>(bytes.data()), bytes.size()),
                c.contents[i]);
    }
    size_t inShards = 0;
    for (size_t i = 0; i < paths.size(); ++i) {
      const SafetensorsFile &file = mapped->files()[i];
      inShards += file.tensors().size();
      auto isLarge = [](const SafetensorsTensor &tensor) { return tensor.begin != tensor.end; };
      EXPECT_TRUE(file.dataSection().size() <= size_t(limit) ||
                  std::ranges::count_if(file.tensors(), isLarge) == 1)
          << paths[i];
      EXPECT_EQ(reinterpret_cast<uintptr_t>(mapped->section(i).data()) % 4096, 0u);
    }
    EXPECT_EQ(inShards, c.tensors.size());
    EXPECT_EQ(fs::exists(folder / "w.safetensors.index.json"), paths.size() > 1);
  }
}

TEST(ShardedSafetensors, IndexSaysWhereTensorsAre) {
  TemporaryFolder folder;
  std::vector<int64_t> offsets;
  Case c = {{{"a", "U8", {5000}}, {"b", "U8", {3}}, {"c", "U8", {4999}}},
            {std::string(5000, 'a'), "bbb", std::string(4999, 'c')}};
  std::vector<fs::path> paths = write(folder.path, c, 5003, offsets);
  ASSERT_EQ(paths.size(), 2u);
  EXPECT_EQ(offsets, (std::vector<int64_t>{0, 5000, 8192}));
  auto index = nlohmann::json::parse(readFile(folder / "w.safetensors.index.json"));
  EXPECT_EQ(index, nlohmann::json::parse(R"({"metadata": {"total_size": 10002}, "weight_map": {
    "a": "w-00001-of-00002.safetensors", "b": "w-00001-of-00002.safetensors",
    "c": "w-00002-of-00002.safetensors"}})"));
}

TEST(ShardedSafetensors, RefusesBadDeclarationsAndLeavesNothing) {
  TemporaryFolder folder;
  auto create = [&](std::vector<SafetensorsWriter::Tensor> tensors, int64_t limit) {
    return ShardedSafetensorsWriter::create(folder.path, "w", std::move(tensors), limit);
  };
  EXPECT_ERROR(create({{"a", "U8", {1}}}, 0), ErrorCode::InvalidArgument, "shards of 0 bytes");
  EXPECT_ERROR(create({{"a", "U8", {9}}, {"a", "U8", {9}}}, 9), ErrorCode::InvalidArgument,
               "\"a\" is declared twice");
  EXPECT_ERROR(create({{"a", "U8", {9}}, {"b", "I4", {9}}}, 9), ErrorCode::InvalidArgument, "I4");
  EXPECT_ERROR(create({{"a", "U8", {9}}, {"b", "F32", {int64_t(1) << 61, 2}}}, 9),
               ErrorCode::InvalidArgument, "shape");
  EXPECT_TRUE(fs::is_empty(folder.path));
  {
    auto writer = create({{"a", "U8", {2}}, {"b", "U8", {2}}}, 2);
    ASSERT_VALUE(writer);
    EXPECT_EQ(writer->shardCount(), 2u);
    EXPECT_ERROR(writer->write("c", bytesOf("1")), ErrorCode::InvalidArgument, "\"c\"");
    ASSERT_TRUE(writer->write("a", bytesOf("12")));
    EXPECT_ERROR(writer->finish(), ErrorCode::InvalidArgument, "\"b\" is incomplete");
  }
  EXPECT_TRUE(fs::is_empty(folder.path)) << "some shards stay behind";
}

TEST(ShardedSafetensors, RefusesShardsThatCannotBeMapped) {
  TemporaryFolder folder;
  EXPECT_ERROR(MappedShards::open(std::vector<fs::path>{folder / "no.safetensors"}),
               ErrorCode::NotFound, "no.safetensors");
  putFile(folder / "bare",
          safetensors(R"({"w":{"dtype":"U8","shape":[4],"data_offsets":[0,4]}})", "1234"));
  EXPECT_ERROR(MappedShards::open(std::vector<fs::path>{folder / "bare"}), ErrorCode::Corrupt,
               "bare", "found at byte 61, expected at a multiple of 4096");
}

} // namespace
