//===- HuggingFaceWriterTest.cpp - Models as Hugging Face folders ---------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "easyquant/Export/HuggingFaceWriter.h"

#include "easyquant/Formats/SafetensorsWriter.h"

#include "../Formats/TestFiles.h"

#include <cmath>
#include <gtest/gtest.h>

using namespace easyquant;
using namespace easyquant::formats;
using namespace easyquant::formats::test;

namespace {

/// A GPT-2 of one layer, width 2 and one head; element i of each weight is i, or `last` at the end.
void writeGPT2(const std::filesystem::path &folder, float last = 1) {
  std::filesystem::create_directory(folder);
  putFile(folder / "config.json", R"({"model_type": "gpt2", "vocab_size": 3, "n_embd": 2,
    "n_inner": 4, "n_layer": 1, "n_head": 1, "n_positions": 4})");
  const std::vector<std::pair<std::string, std::vector<int64_t>>> shapes = {
      {"wte.weight", {3, 2}},
      {"wpe.weight", {4, 2}},
      {"h.0.ln_1.weight", {2}},
      {"h.0.ln_1.bias", {2}},
      {"h.0.attn.c_attn.weight", {2, 6}},
      {"h.0.attn.c_attn.bias", {6}},
      {"h.0.attn.c_proj.weight", {2, 2}},
      {"h.0.attn.c_proj.bias", {2}},
      {"h.0.ln_2.weight", {2}},
      {"h.0.ln_2.bias", {2}},
      {"h.0.mlp.c_fc.weight", {2, 4}},
      {"h.0.mlp.c_fc.bias", {4}},
      {"h.0.mlp.c_proj.weight", {4, 2}},
      {"h.0.mlp.c_proj.bias", {2}},
      {"ln_f.weight", {2}},
      {"ln_f.bias", {2}}};
  std::vector<SafetensorsWriter::Tensor> declarations;
  for (const auto &[name, shape] : shapes)
    declarations.push_back({name, "F32", shape});
  Result<SafetensorsWriter> writer =
      SafetensorsWriter::create(folder / "model.safetensors", declarations);
  ASSERT_VALUE(writer);
  for (const auto &[name, shape] : shapes) {
    std::vector<float> values(static_cast<size_t>(*elementCount(shape)));
    for (size_t i = 0; i < values.size(); ++i)
      values[i] = static_cast<float>(i);
    values.back() = last;
    ASSERT_TRUE(writer->write(name, std::as_bytes(std::span(values))));
  }
  ASSERT_TRUE(writer->finish());
}

size_t entries(const std::filesystem::path &folder) {
  return static_cast<size_t>(std::distance(std::filesystem::directory_iterator(folder), {}));
}

} // namespace

TEST(HuggingFaceWriter, ConfigurationsComeBack) {
  ModelConfig llama = {.architecture = findArchitecture("llama"),
                       .vocabSize = 100,
                       .hiddenSize = 64,
                       .intermediateSize = 96,
                       .numLayers = 3,
                       .numHeads = 4,
                       .numKVHeads = 2,
                       .headDim = 32,
                       .maxContext = 77,
                       .normEpsilon = 1e-5,
                       .rope = {.dims = 32, .theta = 123456.5},
                       .longDivisors = {},
                       .rotatedLayers = {},
                       .slidingWindow = 0,
                       .windowedLayers = {},
                       .activation = Activation::SiLU,
                       .attentionScale = 1 / std::sqrt(32.0),
                       .tieWordEmbeddings = true,
                       .qkvBias = true,
                       .outputBias = true,
                       .mlpBias = true,
                       .bosTokenId = 1,
                       .eosTokenIds = {2, 3}};
  ModelConfig gpt2 = {.architecture = findArchitecture("gpt2"),
                      .vocabSize = 100,
                      .hiddenSize = 64,
                      .intermediateSize = 96,
                      .numLayers = 3,
                      .numHeads = 4,
                      .numKVHeads = 4,
                      .headDim = 16,
                      .maxContext = 77,
                      .normEpsilon = 1e-3,
                      .rope = {},
                      .longDivisors = {},
                      .rotatedLayers = {},
                      .slidingWindow = 0,
                      .windowedLayers = {},
                      .activation = Activation::GeluErf,
                      .attentionScale = 0.25,
                      .tieWordEmbeddings = false,
                      .qkvBias = true,
                      .outputBias = true,
                      .mlpBias = true,
                      .bosTokenId = {},
                      .eosTokenIds = {99}};
  ModelConfig linear = llama, llama3 = llama, yarn = llama;
  linear.rope.scaling = numerics::RopeScaling::Linear;
  linear.rope.factor = 2.5;
  llama3.rope = {32, 5e5, numerics::RopeScaling::Llama3, 8, 1.5, 4.5, 4096};
  yarn.rope = {32, 5e5, numerics::RopeScaling::Yarn, 4, 1, 4, 16, 30, 2, 1.25, false};
  ModelConfig mistral = llama;
  mistral.architecture = findArchitecture("mistral");
  mistral.qkvBias = mistral.outputBias = mistral.mlpBias = false;
  mistral.slidingWindow = 33;
  ModelConfig noWindow = mistral;
  noWindow.slidingWindow = 0;
  ModelConfig qwen2 = noWindow;
  qwen2.architecture = findArchitecture("qwen2");
  qwen2.qkvBias = true;
  ModelConfig someLayers = qwen2, allLayers = qwen2, qwen3 = llama;
  someLayers.slidingWindow = allLayers.slidingWindow = 9;
  someLayers.windowedLayers = {true, false, true};
  qwen3.architecture = findArchitecture("qwen3");
  qwen3.mlpBias = false;
  ModelConfig smolLM3 = llama, olmo2 = llama;
  smolLM3.architecture = findArchitecture("smollm3");
  smolLM3.rotatedLayers = {true, false, true};
  olmo2.architecture = findArchitecture("olmo2");
  olmo2.mlpBias = false;
  ModelConfig gemma2 = llama;
  gemma2.architecture = findArchitecture("gemma2");
  gemma2.activation = Activation::GeluTanh;
  gemma2.mlpBias = false;
  gemma2.slidingWindow = 9;
  gemma2.windowedLayers = {true, false, true};
  gemma2.embeddingFactor = 8;
  gemma2.attentionScale = 1 / std::sqrt(7.0);
  gemma2.attentionBound = 11;
  ModelConfig gemma3 = gemma2, granite = llama;
  gemma3.architecture = findArchitecture("gemma3_text");
  gemma3.attentionBound = 0;
  gemma3.rope.scaling = numerics::RopeScaling::Linear;
  gemma3.rope.factor = 8;
  gemma3.windowedRope = {.dims = 32, .theta = 777};
  granite.architecture = findArchitecture("granite");
  granite.embeddingFactor = 12;
  granite.residualFactor = 0.22;
  granite.attentionScale = 0.015625;
  granite.logitDivisor = 7;
  ModelConfig mixtral = llama, qwen3Moe = llama;
  mixtral.architecture = findArchitecture("mixtral");
  mixtral.qkvBias = mixtral.outputBias = mixtral.mlpBias = qwen3Moe.mlpBias = false;
  mixtral.experts = 6;
  mixtral.expertsPerRow = 2;
  mixtral.expertSize = mixtral.intermediateSize;
  qwen3Moe.architecture = findArchitecture("qwen3_moe");
  qwen3Moe.experts = 12;
  qwen3Moe.expertsPerRow = 3;
  qwen3Moe.expertSize = 40;
  qwen3Moe.renormalizesExperts = false;
  ModelConfig phi3 = llama;
  phi3.architecture = findArchitecture("phi3");
  phi3.qkvBias = phi3.outputBias = phi3.mlpBias = false;
  phi3.headDim = 22; // 6 / 22 * 22 is less than 6
  phi3.attentionScale = 1 / std::sqrt(22.0);
  phi3.rope = {.dims = 6, .scaling = numerics::RopeScaling::LongRope};
  phi3.rope.originalPositions = 40;
  phi3.rope.attentionFactor = numerics::longRopeAttentionFactor(77.0 / 40, 40);
  phi3.rope.divisors = {1.0f, 1.1f, 1e-3f};
  phi3.longDivisors = {1.0f, 30.7f, 1e6f};
  ModelConfig ministral = mistral, olmo3 = linear;
  ministral.architecture = findArchitecture("ministral");
  ministral.windowedLayers = {true, false, true};
  olmo3.architecture = findArchitecture("olmo3");
  olmo3.mlpBias = false;
  olmo3.slidingWindow = 9;
  olmo3.windowedLayers = {true, false, true};
  olmo3.windowedRope = {.dims = 32, .theta = olmo3.rope.theta};
  ModelConfig otherBase = olmo3;
  otherBase.windowedRope->theta = 777;
  ModelConfig louder = phi3;
  louder.rope.attentionFactor = 1.5;
  for (const ModelConfig &config :
       {llama,      gpt2,      linear,    llama3,  yarn,      mistral, noWindow, qwen2,
        someLayers, allLayers, qwen3,     smolLM3, olmo2,     gemma2,  gemma3,   granite,
        phi3,       louder,    ministral, olmo3,   otherBase, mixtral, qwen3Moe}) {
    SCOPED_TRACE(huggingFaceConfigText(config));
    Result<ModelConfig> back = parseHuggingFaceConfig(huggingFaceConfigText(config), "config.json");
    ASSERT_VALUE(back);
    EXPECT_EQ(back->architecture, config.architecture);
    EXPECT_EQ(back->vocabSize, config.vocabSize);
    EXPECT_EQ(back->hiddenSize, config.hiddenSize);
    EXPECT_EQ(back->intermediateSize, config.intermediateSize);
    EXPECT_EQ(back->numLayers, config.numLayers);
    EXPECT_EQ(back->numHeads, config.numHeads);
    EXPECT_EQ(back->numKVHeads, config.numKVHeads);
    EXPECT_EQ(back->headDim, config.headDim);
    EXPECT_EQ(back->maxContext, config.maxContext);
    EXPECT_EQ(back->normEpsilon, config.normEpsilon);
    EXPECT_TRUE(back->rope == config.rope);
    EXPECT_EQ(back->rotatedLayers, config.rotatedLayers);
    EXPECT_EQ(back->slidingWindow, config.slidingWindow);
    EXPECT_EQ(back->windowedLayers, config.windowedLayers);
    EXPECT_EQ(back->activation, config.activation);
    EXPECT_TRUE(back->windowedRope == config.windowedRope);
    EXPECT_EQ(back->embeddingFactor, config.embeddingFactor);
    EXPECT_EQ(back->residualFactor, config.residualFactor);
    EXPECT_EQ(back->attentionScale, config.attentionScale);
    EXPECT_EQ(back->attentionBound, config.attentionBound);
    EXPECT_EQ(back->logitDivisor, config.logitDivisor);
    EXPECT_EQ(back->logitBound, config.logitBound);
    EXPECT_EQ(back->tieWordEmbeddings, config.tieWordEmbeddings);
    EXPECT_EQ(back->experts, config.experts);
    EXPECT_EQ(back->expertsPerRow, config.expertsPerRow);
    EXPECT_EQ(back->expertSize, config.expertSize);
    EXPECT_EQ(back->renormalizesExperts, config.renormalizesExperts);
    EXPECT_EQ(back->qkvBias, config.qkvBias);
    EXPECT_EQ(back->outputBias, config.outputBias);
    EXPECT_EQ(back->mlpBias, config.mlpBias);
    EXPECT_EQ(back->bosTokenId, config.bosTokenId);
    EXPECT_EQ(back->eosTokenIds, config.eosTokenIds);
  }
}

TEST(HuggingFaceWriter, WritesWhatItReads) {
  TemporaryFolder folder;
  writeGPT2(folder / "in");
  putFile(folder / "in/tokenizer.json", "{}");
  Result<ModelSource> source = ModelSource::open(folder / "in");
  ASSERT_VALUE(source);
  ASSERT_TRUE(writeHuggingFace(*source, (folder / "out").string() + "/"));
  EXPECT_EQ(readFile(folder / "out/tokenizer.json"), "{}");
  Result<SafetensorsFile> in = SafetensorsFile::open(folder / "in/model.safetensors");
  Result<SafetensorsFile> out = SafetensorsFile::open(folder / "out/model.safetensors");
  ASSERT_VALUE(in);
  ASSERT_VALUE(out);
  ASSERT_EQ(out->tensors().size(), in->tensors().size());
  for (const SafetensorsTensor &tensor : in->tensors()) {
    const SafetensorsTensor *found = out->find(tensor.name);
    ASSERT_NE(found, nullptr) << tensor.name;
    EXPECT_EQ(found->shape, tensor.shape) << "Conv1D is K x N again";
    EXPECT_TRUE(std::ranges::equal(out->data(*found), in->data(tensor))) << tensor.name;
  }
  EXPECT_ERROR(writeHuggingFace(*source, folder / "out"), ErrorCode::InvalidArgument, "out",
               "exists");
  EXPECT_ERROR(writeHuggingFace(*source, folder / "out/config.json/in"), ErrorCode::IO,
               "config.json");
  EXPECT_EQ(entries(folder.path), 2u);
}

TEST(HuggingFaceWriter, LeavesNothingBehindOnFailure) {
  TemporaryFolder folder;
  writeGPT2(folder / "in", NAN);
  Result<ModelSource> source = ModelSource::open(folder / "in");
  ASSERT_VALUE(source);
  EXPECT_ERROR(writeHuggingFace(*source, folder / "out"), ErrorCode::Corrupt, "row 2, column 1");
  EXPECT_EQ(entries(folder.path), 1u);
}
