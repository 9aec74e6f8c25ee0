//===- Fixture.cpp - An artifact around the fixture model -----------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Fixture.h"

#include "easyquant/Formats/SafetensorsWriter.h"
#include "easyquant/Support/Checksum.h"

#include <cstdlib>
#include <fstream>
#include <gtest/gtest.h>
#include <limits>
#include <random>
#include <sstream>

using namespace easyquant;
using namespace easyquant::runtime::test;
namespace fs = std::filesystem;

TemporaryFolder::TemporaryFolder() {
  std::string pattern = (fs::temp_directory_path() / "easyquant-runtime-XXXXXX").string();
  if (!::mkdtemp(pattern.data()))
    throw std::runtime_error("mkdtemp failed: " + pattern);
  folder = pattern;
}

TemporaryFolder::~TemporaryFolder() {
  std::error_code error;
  fs::remove_all(folder, error);
}

std::string easyquant::runtime::test::readFile(const fs::path &path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream bytes;
  bytes << file.rdbuf();
  EXPECT_TRUE(file.good()) << path;
  return bytes.str();
}

void easyquant::runtime::test::writeFile(const fs::path &path, const std::string &bytes) {
  std::ofstream file(path, std::ios::binary | std::ios::trunc);
  file.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  file.close();
  EXPECT_TRUE(file.good()) << path;
}

FixtureWeights::FixtureWeights(uint32_t seed) {
  std::mt19937 random(seed);
  std::uniform_real_distribution<float> uniform(-2.0f, 2.0f);
  for (std::vector<float> *matrix : {&embedding, &unembedding})
    for (int i = 0; i < FIXTURE_VOCAB * FIXTURE_DIM; ++i)
      matrix->push_back(uniform(random));
  for (int d = 0; d < FIXTURE_DIM; ++d)
    embedding[kOverflowingToken * FIXTURE_DIM + d] = std::numeric_limits<float>::max();
}

nlohmann::json easyquant::runtime::test::fileEntry(const fs::path &file) {
  return {{"bytes", fs::file_size(file)}, {"xxh3_128", checksumOfFile(file.string()).value()}};
}

nlohmann::json easyquant::runtime::test::writeFixtureFiles(const fs::path &folder,
                                                           const FixtureWeights &weights) {
  fs::copy_file(FIXTURE_MODEL, folder / kProgramFile, fs::copy_options::overwrite_existing);
  writeFile(folder / "tokenizer.json", "{}\n");
  std::vector<int64_t> shape = {FIXTURE_VOCAB, FIXTURE_DIM};
  auto writer = formats::SafetensorsWriter::create(
      folder / "weights.safetensors", {{"embedding", "F32", shape}, {"unembedding", "F32", shape}});
  EXPECT_TRUE(writer.has_value());
  EXPECT_TRUE(writer->write("embedding", std::as_bytes(std::span(weights.embedding))).has_value());
  EXPECT_TRUE(
      writer->write("unembedding", std::as_bytes(std::span(weights.unembedding))).has_value());
  EXPECT_TRUE(writer->finish().has_value());

  nlohmann::json manifest = nlohmann::json::parse(R"({
    "format": "easyquant-artifact", "format_version": 3, "easyquant_version": "0.1.0",
    "model": {"architecture": "fixture", "hidden_size": 5, "intermediate_size": 5, "num_layers": 1,
              "num_heads": 1, "num_kv_heads": 1, "head_dim": 5, "bos_token_id": null,
              "eos_token_ids": [2], "parameters": 190},
    "source": {"kind": "test", "name": "fixture", "xxh3_128": "00112233445566778899aabbccddeeff",
               "stored_types": {"F32": 2}},
    "quantization": {"method": "absmax", "scheme": "W8A8", "group_size": 0, "head": "float",
                     "ignore": ["lm_head"], "targets": []},
    "sites": [
      {"name": "lm_head", "out_features": 19, "in_features": 5, "tensor": "unembedding",
       "first_row": 0, "weight": null, "input": null, "bytes": 380, "weight_error": 0.0,
       "largest_error": 0.0},
      {"name": "a", "out_features": 19, "in_features": 5, "tensor": "a", "first_row": 0,
       "weight": {"bits": 8, "codes": "integer", "granularity": "channel", "group_size": 0, "scale_type": "f32",
                "symmetric": true},
       "input": {"bits": 8, "codes": "integer", "granularity": "token", "symmetric": true, "dynamic": true},
       "bytes": 380, "weight_error": 0.004, "largest_error": 0.001}],
    "program": {"abi": 8, "cache_type": "f32", "cache_scheme": null},
    "files": {}
  })");
  manifest["target"] = formats::hostProcessor().target;
  for (const std::string &isa : formats::instructionSetsOf(formats::hostProcessor()))
    manifest["program"]["entries"][isa] =
        "easyquant_step_" + formats::findInstructionSet(isa)->symbol();
  manifest["model"]["vocab_size"] = int(FIXTURE_VOCAB);
  manifest["model"]["max_context"] = int(FIXTURE_MAX_CONTEXT);
  manifest["program"]["max_rows"] = int(FIXTURE_MAX_ROWS);
  manifest["program"]["arena_bytes"] = int(FIXTURE_ARENA_BYTES);
  manifest["program"]["arena_bytes_per_thread"] = int(FIXTURE_ARENA_BYTES_PER_THREAD);
  manifest["program"]["cache"] = {{"page_tokens", int(FIXTURE_PAGE_TOKENS)},
                                  {"page_bytes", int(FIXTURE_PAGE_BYTES)},
                                  {"window_bytes", int(FIXTURE_WINDOW_BYTES)}};
  for (const char *name : {kProgramFile.c_str(), "weights.safetensors", "tokenizer.json"})
    manifest["files"][name] = fileEntry(folder / name);
  return manifest;
}

void easyquant::runtime::test::writeManifest(const fs::path &folder,
                                             const nlohmann::json &manifest) {
  const std::string text = manifest.dump(2) + "\n";
  writeFile(folder / "manifest.json", text);
  writeFile(folder / "manifest.xxh128",
            checksumOf(std::as_bytes(std::span(text))) + "  manifest.json\n");
}

void easyquant::runtime::test::writeFixture(const fs::path &folder, const FixtureWeights &weights) {
  writeManifest(folder, writeFixtureFiles(folder, weights));
}

void easyquant::runtime::test::writeRecurrentFixture(const fs::path &folder) {
  nlohmann::json manifest = writeFixtureFiles(folder);
  manifest["program"]["recurrent_values"] = int(FIXTURE_RECURRENT_VALUES);
  writeManifest(folder, manifest);
}

std::vector<double> easyquant::runtime::test::referenceLogits(const FixtureWeights &weights,
                                                              const std::vector<int32_t> &tokens,
                                                              bool isRecurrent) {
  std::vector<double> h(FIXTURE_DIM, 0.0), s(FIXTURE_DIM, 0.0), logits(FIXTURE_VOCAB, 0.0);
  for (size_t j = 0; j < tokens.size(); ++j)
    for (size_t d = 0; d < FIXTURE_DIM; ++d) {
      const double token = double(weights.embedding[size_t(tokens[j]) * FIXTURE_DIM + d]);
      s[d] = isRecurrent ? s[d] / 2 + token : 0;
      h[d] += (token * (1.0 + double(j) / 64.0) + s[d]) / double(tokens.size() - j);
    }
  for (size_t v = 0; v < FIXTURE_VOCAB; ++v)
    for (size_t d = 0; d < FIXTURE_DIM; ++d)
      logits[v] += double(weights.unembedding[v * FIXTURE_DIM + d]) * h[d];
  return logits;
}

std::vector<int32_t> easyquant::runtime::test::randomTokens(size_t count, uint32_t seed) {
  std::mt19937 random(seed);
  std::uniform_int_distribution<int32_t> uniform(0, kOverflowingToken - 1);
  std::vector<int32_t> tokens(count);
  for (int32_t &token : tokens)
    token = uniform(random);
  return tokens;
}
