//===- ArtifactTest.cpp - Artifacts that are not as their manifest says -===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "easyquant/Runtime/Artifact.h"
#include "Fixture.h"
#include "easyquant/Formats/SafetensorsWriter.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

using namespace easyquant;
using namespace easyquant::runtime;
using namespace easyquant::runtime::test;
namespace fs = std::filesystem;

namespace {

class ArtifactTest : public testing::Test {
protected:
  void SetUp() override { writeFixture(folder.path()); }

  fs::path file(const std::string &name) const { return folder.path() / name; }

  void expectError(ErrorCode code, const std::string &part, bool skipChecksums = false) const {
    Result<Artifact> artifact = Artifact::open(folder.path().string(), skipChecksums);
    ASSERT_FALSE(artifact.has_value()) << "expected: " << part;
    EXPECT_EQ(artifact.error().code, code) << artifact.error().message;
    EXPECT_NE(artifact.error().message.find(part), std::string::npos) << artifact.error().message;
  }

  TemporaryFolder folder;
};

TEST_F(ArtifactTest, MapsTheWeights) {
  Result<Artifact> artifact = Artifact::open(folder.path().string(), false);
  ASSERT_TRUE(artifact.has_value()) << artifact.error().message;
  std::span<const std::byte> weights = artifact->weights();
  ASSERT_EQ(weights.size(), size_t(FIXTURE_WEIGHTS_BYTES));
  EXPECT_EQ(
      reinterpret_cast<uintptr_t>(weights.data()) % formats::SafetensorsWriter::kDataAlignment, 0u);
  FixtureWeights expected;
  EXPECT_EQ(std::memcmp(weights.data(), expected.embedding.data(), weights.size() / 2), 0);
  EXPECT_EQ(std::memcmp(weights.data() + weights.size() / 2, expected.unembedding.data(),
                        weights.size() / 2),
            0);
}

/// The fixture's two tensors in a shard each.
nlohmann::json shardFixture(const fs::path &folder) {
  nlohmann::json manifest = writeFixtureFiles(folder);
  fs::remove(folder / "weights.safetensors");
  manifest["files"].erase("weights.safetensors");
  FixtureWeights weights;
  std::vector<int64_t> shape = {FIXTURE_VOCAB, FIXTURE_DIM};
  auto writer = formats::ShardedSafetensorsWriter::create(
      folder, "weights", {{"embedding", "F32", shape}, {"unembedding", "F32", shape}}, 1);
  EXPECT_TRUE(writer->write("embedding", std::as_bytes(std::span(weights.embedding))));
  EXPECT_TRUE(writer->write("unembedding", std::as_bytes(std::span(weights.unembedding))));
  EXPECT_TRUE(writer->finish());
  for (const char *name : {"weights-00001-of-00002.safetensors",
                           "weights-00002-of-00002.safetensors", "weights.safetensors.index.json"})
    manifest["files"][name] = fileEntry(folder / name);
  writeManifest(folder, manifest);
  return manifest;
}

TEST_F(ArtifactTest, MapsShardsBehindEachOther) {
  shardFixture(folder.path());
  Result<Artifact> artifact = Artifact::open(folder.path().string(), false);
  ASSERT_TRUE(artifact.has_value()) << artifact.error().message;
  std::span<const std::byte> weights = artifact->weights();
  const size_t bytes = FIXTURE_WEIGHTS_BYTES / 2;
  ASSERT_EQ(weights.size(), 4096 + bytes);
  FixtureWeights expected;
  EXPECT_EQ(std::memcmp(weights.data(), expected.embedding.data(), bytes), 0);
  EXPECT_EQ(std::memcmp(weights.data() + 4096, expected.unembedding.data(), bytes), 0);
}

TEST_F(ArtifactTest, FindsWhatIsWrongWithShards) {
  nlohmann::json manifest = shardFixture(folder.path());
  const std::string second = "weights-00002-of-00002.safetensors";
  std::string original = readFile(folder.path() / second);
  for (size_t at : {size_t(9), original.size() - 1}) { // its header, its data
    std::string damaged = original;
    damaged[at] = static_cast<char>(damaged[at] ^ 1);
    writeFile(folder.path() / second, damaged);
    expectError(ErrorCode::Corrupt, second);
  }
  fs::remove(folder.path() / second);
  expectError(ErrorCode::NotFound, second, /*skipChecksums=*/true);
  manifest["files"].erase(second);
  writeManifest(folder.path(), manifest);
  expectError(ErrorCode::Corrupt, "files: found no entry for " + second);

  manifest = shardFixture(folder.path());
  manifest["files"]["weights.safetensors"] = manifest["files"][second];
  writeManifest(folder.path(), manifest);
  expectError(ErrorCode::Corrupt, "weights.safetensors among weights of other shards");
}

TEST_F(ArtifactTest, NamesAMissingFolderOrFile) {
  for (const char *name :
       {kProgramFile.c_str(), "weights.safetensors", "tokenizer.json", "manifest.json"}) {
    writeFixture(folder.path());
    fs::remove(file(name));
    expectError(ErrorCode::NotFound, name);
    expectError(ErrorCode::NotFound, name, /*skipChecksums=*/true);
  }
  Result<Artifact> artifact = Artifact::open("/nonexistent/artifact", false);
  ASSERT_FALSE(artifact.has_value());
  EXPECT_EQ(artifact.error().code, ErrorCode::NotFound);
  EXPECT_EQ(artifact.error().message, "/nonexistent/artifact: no such folder; expected an artifact "
                                      "that `easyquant compile` wrote");
}

TEST_F(ArtifactTest, RefusesWhatIsNoFolderOrNoFile) {
  Result<Artifact> artifact = Artifact::open(file(kProgramFile).string(), false);
  ASSERT_FALSE(artifact.has_value());
  EXPECT_EQ(artifact.error().code, ErrorCode::Unsupported);

  // A pipe must not be waited for.
  fs::remove(file("tokenizer.json"));
  ASSERT_EQ(::mkfifo(file("tokenizer.json").c_str(), 0600), 0);
  expectError(ErrorCode::Unsupported, "tokenizer.json: not a regular file");
  fs::remove(file("tokenizer.json"));
  fs::create_directory(file("tokenizer.json"));
  expectError(ErrorCode::Unsupported, "tokenizer.json: not a regular file");
  fs::remove(file("manifest.json"));
  fs::create_directory(file("manifest.json"));
  expectError(ErrorCode::Unsupported, "manifest.json");
}

TEST_F(ArtifactTest, FindsAFlippedBitAnywhere) {
  for (const char *name : {kProgramFile.c_str(), "weights.safetensors", "tokenizer.json"}) {
    std::string original = readFile(file(name));
    for (size_t at : {size_t(0), original.size() / 2, original.size() - 1}) {
      std::string damaged = original;
      damaged[at] = static_cast<char>(damaged[at] ^ 1);
      writeFile(file(name), damaged);
      expectError(ErrorCode::Corrupt, file(name).string());
    }
    writeFile(file(name), original);
  }
  ASSERT_TRUE(Artifact::open(folder.path().string(), false).has_value());
}

TEST_F(ArtifactTest, FindsFlippedBytesOfTheManifest) {
  for (const char *name : {"manifest.json", "manifest.xxh128"}) {
    const std::string original = readFile(file(name));
    // Behind the checksum stands the file's name, which is for people.
    const size_t end = name == std::string("manifest.json") ? original.size() : 33;
    for (size_t at = 0; at < end; at += 3) {
      std::string damaged = original;
      damaged[at] = static_cast<char>(damaged[at] ^ 4);
      writeFile(file(name), damaged);
      EXPECT_FALSE(Artifact::open(folder.path().string(), false)) << name << " at " << at;
    }
    writeFile(file(name), original);
  }
  fs::remove(file("manifest.xxh128"));
  expectError(ErrorCode::NotFound, "manifest.xxh128");
}

TEST_F(ArtifactTest, ComparesTheManifestsChecksumBeforeItsFields) {
  nlohmann::json manifest = nlohmann::json::parse(readFile(file("manifest.json")));
  manifest["program"]["arena_bytes"] = -1;
  writeFile(file("manifest.json"), manifest.dump());
  expectError(ErrorCode::Corrupt, "manifest.json: damaged: found checksum ");
  expectError(ErrorCode::Corrupt, "program.arena_bytes: found -1", /*skipChecksums=*/true);
  writeManifest(folder.path(), manifest);
  expectError(ErrorCode::Corrupt, "program.arena_bytes: found -1");
}

TEST_F(ArtifactTest, ComparesSizesEvenWithoutChecksums) {
  for (const char *name : {kProgramFile.c_str(), "weights.safetensors"}) {
    std::string original = readFile(file(name));
    for (const std::string &other :
         {original.substr(0, original.size() - 1), original + '\0', std::string()}) {
      writeFile(file(name), other);
      expectError(ErrorCode::Corrupt,
                  fmt::format("{}: found {} bytes, expected {} (manifest)", file(name).string(),
                              other.size(), original.size()),
                  /*skipChecksums=*/true);
    }
    writeFile(file(name), original);
  }
}

TEST_F(ArtifactTest, SkipsChecksumsWhenAsked) {
  std::string tokenizer = readFile(file("tokenizer.json"));
  tokenizer[0] ^= 1;
  writeFile(file("tokenizer.json"), tokenizer);
  expectError(ErrorCode::Corrupt, "tokenizer.json: damaged: found checksum ");
  EXPECT_TRUE(Artifact::open(folder.path().string(), true).has_value());
}

TEST_F(ArtifactTest, RefusesWeightsThatBreakTheirFormat) {
  nlohmann::json manifest = nlohmann::json::parse(readFile(file("manifest.json")));
  std::string original = readFile(file("weights.safetensors"));
  auto install = [&](const std::string &bytes) {
    writeFile(file("weights.safetensors"), bytes);
    manifest["files"]["weights.safetensors"] = fileEntry(file("weights.safetensors"));
    writeManifest(folder.path(), manifest);
  };
  // Truncated by someone who also wrote the manifest.
  install(original.substr(0, original.size() - 4));
  expectError(ErrorCode::Corrupt, "weights.safetensors");
  install(original.substr(0, 5));
  expectError(ErrorCode::Corrupt, "weights.safetensors");
  install("");
  expectError(ErrorCode::Corrupt, "weights.safetensors");

  // Well-formed, but not padded as mapped weights have to be.
  std::string header = R"({"w":{"dtype":"U8","shape":[4],"data_offsets":[0,4]}})";
  std::string unaligned(8, '\0');
  unaligned[0] = static_cast<char>(header.size());
  install(unaligned + header + "1234");
  expectError(ErrorCode::Corrupt, "data section: found at byte 61, expected at a multiple of 4096");
}

} // namespace
