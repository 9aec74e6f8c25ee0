//===- MutationTest.cpp - Hostile artifacts end in errors ---------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Fixture.h"
#include "easyquant/Formats/Manifest.h"
#include "easyquant/Runtime/Session.h"

#include <gtest/gtest.h>
#include <limits>
#include <random>

using namespace easyquant;
using namespace easyquant::runtime;
using namespace easyquant::runtime::test;
using nlohmann::json;

namespace {

/// Seeded changes of a manifest, as text and as values.
class Mutator {
public:
  explicit Mutator(uint32_t seed) : random(seed) {}

  void mutateText(std::string &text) {
    for (size_t count = 1 + below(4); count != 0 && !text.empty(); --count) {
      size_t at = below(text.size());
      switch (below(5)) {
      case 0:
        text[at] = static_cast<char>(below(256));
        break;
      case 1:
        text.erase(at, 1 + below(16));
        break;
      case 2:
        text.insert(at, text.substr(below(text.size()), 1 + below(64)));
        break;
      case 3:
        text.resize(at);
        break;
      default:
        text.insert(at, 1, "{}[]\",:0-9e\\\0"[below(13)]);
      }
    }
  }

  /// Replaces one value, deep or shallow, by one of another kind or an extreme one.
  void mutateValue(json &root) {
    json *value = &root;
    while (value->is_structured() && !value->empty() && (value == &root || below(4) != 0)) {
      auto it = value->begin();
      std::advance(it, below(value->size()));
      value = &*it;
    }
    static const json replacements[] = {nullptr,
                                        true,
                                        0,
                                        -1,
                                        1,
                                        0.5,
                                        -0.0,
                                        1e308,
                                        std::numeric_limits<int64_t>::min(),
                                        std::numeric_limits<int64_t>::max(),
                                        std::numeric_limits<uint64_t>::max(),
                                        INT32_MAX,
                                        "",
                                        "x",
                                        "../../etc/passwd",
                                        std::string(5000, 'a'),
                                        json::array(),
                                        json::object(),
                                        {1, 2, 3},
                                        {{"a", {{"b", nullptr}}}}};
    *value = replacements[below(std::size(replacements))];
  }

  size_t below(size_t limit) { return random() % limit; }

private:
  std::mt19937 random;
};

/// A manifest that is accepted must be safe to use: whatever it says, either an error comes or a
/// session that works. The memory that a session may ask for is bounded by giving it one token.
void expectErrorOrManifest(const std::string &text) {
  Result<Manifest> result = formats::parseManifest(text, "m.json");
  if (!result.has_value()) {
    EXPECT_EQ(result.error().message.substr(0, 8), "m.json: ");
    EXPECT_LT(result.error().message.size(), 1000u);
    return;
  }
  EXPECT_GE(result->model.vocabSize, 1);
  EXPECT_GE(result->program.maxRows, 1);
  EXPECT_FALSE(result->program.entries.empty());
  EXPECT_TRUE(result->files.count(kProgramFile) && result->files.count("weights.safetensors"));
}

TEST(Mutation, ManifestText) {
  TemporaryFolder folder;
  const std::string original = writeFixtureFiles(folder.path()).dump();
  Mutator mutator(1);
  for (int i = 0; i < 4000; ++i) {
    std::string text = original;
    mutator.mutateText(text);
    expectErrorOrManifest(text);
  }
}

TEST(Mutation, ManifestValues) {
  TemporaryFolder folder;
  const json original = writeFixtureFiles(folder.path());
  Mutator mutator(2);
  for (int i = 0; i < 2000; ++i) {
    json changed = original;
    mutator.mutateValue(changed);
    expectErrorOrManifest(changed.dump());
  }
}

TEST(Mutation, WholeArtifacts) {
  TemporaryFolder folder;
  const json manifest = writeFixtureFiles(folder.path());
  const std::string weights = readFile(folder.path() / "weights.safetensors");
  Mutator mutator(3);
  for (int i = 0; i < 300; ++i) {
    // Weights that are damaged together with their manifest entry reach the header's reader.
    std::string bytes = weights;
    if (i % 3 == 0) {
      bytes[mutator.below(200)] = static_cast<char>(mutator.below(256));
    } else if (i % 3 == 1) {
      bytes.resize(mutator.below(bytes.size()));
    } else {
      std::string header = bytes.substr(0, 4096);
      mutator.mutateText(header);
      bytes = header + bytes.substr(4096);
    }
    writeFile(folder.path() / "weights.safetensors", bytes);
    json changed = manifest;
    changed["files"]["weights.safetensors"] = fileEntry(folder.path() / "weights.safetensors");
    writeManifest(folder.path(), changed);
    Result<Artifact> artifact = Artifact::open(folder.path().string(), false);
    if (!artifact.has_value())
      EXPECT_NE(artifact.error().message.find("weights.safetensors"), std::string::npos)
          << artifact.error().message;
  }
}

} // namespace
