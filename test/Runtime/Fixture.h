//===- Fixture.h - An artifact around the fixture model ---------*- C++ -*-===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef EASYQUANT_TEST_RUNTIME_FIXTURE_H
#define EASYQUANT_TEST_RUNTIME_FIXTURE_H

#include "FixtureModel.h"

#include "easyquant/Formats/InstructionSets.h"

#include <cstdint>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace easyquant::runtime::test {

/// The last token's embedding is so large that its logits overflow; the others behave.
constexpr int32_t kOverflowingToken = FIXTURE_VOCAB - 1;

/// A folder of its own under the system's temporary one, removed with the object.
class TemporaryFolder {
public:
  TemporaryFolder();
  ~TemporaryFolder();
  TemporaryFolder(const TemporaryFolder &) = delete;
  TemporaryFolder &operator=(const TemporaryFolder &) = delete;
  const std::filesystem::path &path() const { return folder; }

private:
  std::filesystem::path folder;
};

std::string readFile(const std::filesystem::path &path);
void writeFile(const std::filesystem::path &path, const std::string &bytes);

/// The plainest instruction set of this processor, and the file of an artifact with its code.
inline const std::string kIsa = formats::instructionSetsOf(formats::hostProcessor()).front();
inline const std::string kProgramFile = formats::hostProcessor().programFile;

/// FIXTURE_VOCAB x FIXTURE_DIM floats each.
struct FixtureWeights {
  std::vector<float> embedding, unembedding;
  explicit FixtureWeights(uint32_t seed = 0);
};

/// Writes code, weights.safetensors and a tokenizer file; returns the manifest that goes with
/// them, not yet written.
nlohmann::json writeFixtureFiles(const std::filesystem::path &folder,
                                 const FixtureWeights &weights = FixtureWeights());

void writeManifest(const std::filesystem::path &folder, const nlohmann::json &manifest);

/// The "files" entry of a file as it is now.
nlohmann::json fileEntry(const std::filesystem::path &file);

/// A whole artifact.
void writeFixture(const std::filesystem::path &folder,
                  const FixtureWeights &weights = FixtureWeights());

/// A whole artifact whose layers have a recurrent state.
void writeRecurrentFixture(const std::filesystem::path &folder);

/// The logits after the last token, computed from the definition in double precision.
std::vector<double> referenceLogits(const FixtureWeights &weights,
                                    const std::vector<int32_t> &tokens, bool isRecurrent = false);

/// Seeded token ids without the overflowing one.
std::vector<int32_t> randomTokens(size_t count, uint32_t seed);

} // namespace easyquant::runtime::test

#endif // EASYQUANT_TEST_RUNTIME_FIXTURE_H
