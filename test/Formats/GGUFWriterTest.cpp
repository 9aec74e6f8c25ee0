//===- GGUFWriterTest.cpp - Streaming GGUF files --------------------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "easyquant/Formats/GGUFWriter.h"

#include "easyquant/Formats/ModelTensors.h"

#include "TestFiles.h"

#include <gtest/gtest.h>

using namespace easyquant;
using namespace easyquant::formats;
using namespace easyquant::formats::test;

static std::string textOf(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char *>(bytes.data()), bytes.size()};
}

static Result<GGUFWriter> writerOf(const TemporaryFolder &folder,
                                   std::vector<GGUFWriter::Tensor> tensors) {
  return GGUFWriter::create(folder / "out.gguf", GGUFMetadata(), tensors);
}

TEST(GGUFWriter, IsReadBack) {
  TemporaryFolder folder;
  GGUFMetadata metadata;
  metadata.add("general.name", std::string_view("a näme"));
  metadata.add("number", uint32_t(7));
  metadata.add("epsilon", 1e-5f);
  const std::vector<GGUFWriter::Tensor> tensors = {{"blocks", GGMLType::Q8_0, {2, 32}},
                                                   {"floats", GGMLType::F32, {3}}};
  Result<GGUFWriter> writer = GGUFWriter::create(folder / "out.gguf", metadata, tensors);
  ASSERT_VALUE(writer);
  const std::string blocks(68, 'b'), floats = rawAll<float>({1, 2, 3});
  for (auto [name, piece] : {std::pair("blocks", blocks.substr(0, 10)),
                             std::pair("blocks", blocks.substr(10)), std::pair("floats", floats)}) {
    EXPECT_FALSE(std::filesystem::exists(folder / "out.gguf"));
    Result<void> done = writer->write(name, bytesOf(piece));
    ASSERT_VALUE(done);
  }
  Result<void> finished = writer->finish();
  ASSERT_VALUE(finished);

  Result<GGUFFile> file = GGUFFile::open(folder / "out.gguf");
  ASSERT_VALUE(file);
  EXPECT_EQ(file->metadata("general.name")->asString(), "a näme");
  EXPECT_EQ(file->metadata("number")->asInteger(), 7);
  EXPECT_EQ(file->metadata("epsilon")->asNumber(), 1e-5);
  ASSERT_EQ(file->tensors().size(), 2u);
  EXPECT_EQ(file->find("blocks")->shape, (std::vector<int64_t>{2, 32}));
  EXPECT_EQ(textOf(file->data(*file->find("blocks"))), blocks);
  EXPECT_EQ(textOf(file->data(*file->find("floats"))), floats);
}

TEST(GGUFWriter, TakesMetadataOfAnotherFileAsTheyAre) {
  GGUFBuilder builder;
  builder.pair("i8", GGUFType::I8, raw<int8_t>(-3))
      .f32("f32", 0.1f)
      .pair("true", GGUFType::Bool, raw<uint8_t>(1))
      .text("text", "héllo")
      .pair("strings", GGUFType::Array,
            raw(GGUFType::String) + raw<uint64_t>(2) + GGUFBuilder::string("a") +
                GGUFBuilder::string(""));
  const std::string source = builder.build();
  Result<GGUFHeader> header = parseGGUFHeader(bytesOf(source), "source");
  ASSERT_VALUE(header);
  GGUFMetadata metadata;
  for (const auto &[key, value] : header->metadata)
    metadata.add(key, value);

  TemporaryFolder folder;
  Result<GGUFWriter> writer = GGUFWriter::create(folder / "out.gguf", metadata, {});
  ASSERT_VALUE(writer);
  Result<void> finished = writer->finish();
  ASSERT_VALUE(finished);
  Result<GGUFFile> file = GGUFFile::open(folder / "out.gguf");
  ASSERT_VALUE(file);
  ASSERT_EQ(file->contents().metadata.size(), header->metadata.size());
  for (const auto &[key, value] : header->metadata) {
    EXPECT_EQ(file->metadata(key)->type, value.type) << key;
    EXPECT_EQ(textOf(file->metadata(key)->stored), textOf(value.stored)) << key;
  }
}

TEST(GGUFWriter, RefusesImpossibleTensors) {
  TemporaryFolder folder;
  EXPECT_ERROR(writerOf(folder, {{"", GGMLType::F32, {1}}}), ErrorCode::InvalidArgument,
               "cannot be the name");
  EXPECT_ERROR(writerOf(folder, {{std::string(64, 'n'), GGMLType::F32, {1}}}),
               ErrorCode::InvalidArgument, "up to 63");
  EXPECT_ERROR(writerOf(folder, {{"a", GGMLType::F32, {1}}, {"a", GGMLType::F32, {1}}}),
               ErrorCode::InvalidArgument, "\"a\"", "twice");
  EXPECT_ERROR(writerOf(folder, {{"a", GGMLType::Q4_0, {2, 48}}}), ErrorCode::InvalidArgument, "48",
               "Q4_0", "32");
  EXPECT_ERROR(writerOf(folder, {{"a", GGMLType::F32, {0, 4}}}), ErrorCode::InvalidArgument,
               "impossible shape");
  EXPECT_ERROR(writerOf(folder, {{"a", GGMLType::F32, {1, 1, 1, 1, 4}}}),
               ErrorCode::InvalidArgument, "impossible shape");
}

TEST(GGUFWriter, LeavesNothingUnlessItIsWhole) {
  TemporaryFolder folder;
  {
    Result<GGUFWriter> writer =
        writerOf(folder, {{"a", GGMLType::F32, {2}}, {"b", GGMLType::F32, {1}}});
    ASSERT_VALUE(writer);
    EXPECT_ERROR(writer->write("b", bytesOf("1234")), ErrorCode::InvalidArgument, "out of order",
                 "\"a\"");
    Result<void> done = writer->write("a", bytesOf("1234"));
    ASSERT_VALUE(done);
    EXPECT_ERROR(writer->write("a", bytesOf("12345")), ErrorCode::InvalidArgument,
                 "only 4 are missing");
    EXPECT_ERROR(writer->finish(), ErrorCode::InvalidArgument, "\"a\"", "4 bytes are missing");
  }
  EXPECT_TRUE(std::filesystem::is_empty(folder.path));
}

//===----------------------------------------------------------------------===//
// What a model is
//===----------------------------------------------------------------------===//

static ModelConfig configOf(const Architecture &architecture, const std::string &more = "") {
  std::string text = fmt::format(R"({{"model_type": "{}", "vocab_size": 48)", architecture.name);
  for (auto [field, value] :
       {std::pair(architecture.hiddenSize, 64), std::pair(architecture.numLayers, 5),
        std::pair(architecture.numHeads, 4), std::pair(architecture.numKVHeads, 2),
        std::pair(architecture.intermediateSize, 96), std::pair(architecture.maxContext, 200)})
    if (field.key)
      text += fmt::format(R"(, "{}": {})", field.key, value);
  Result<ModelConfig> config = parseHuggingFaceConfig(text + more + "}", "config.json");
  EXPECT_TRUE(config) << config.error().message;
  return *config;
}

/// The model as a GGUF file says it, written with tensors of zeros.
static Result<ModelConfig> writtenAndRead(const ModelConfig &config) {
  GGUFMetadata metadata;
  if (Result<void> done = addModelConfig(metadata, config); !done)
    return Unexpected(done.error());
  TemporaryFolder folder;
  std::vector<GGUFWriter::Tensor> tensors;
  for (const ExpectedTensor &tensor : expectedTensors(config))
    tensors.push_back({tensor.ggufName, GGMLType::F32, tensor.shape});
  Result<GGUFWriter> writer = GGUFWriter::create(folder / "out.gguf", metadata, tensors);
  if (!writer)
    return Unexpected(writer.error());
  for (const ExpectedTensor &tensor : expectedTensors(config)) {
    int64_t elements = 1;
    for (int64_t size : tensor.shape)
      elements *= size;
    std::vector<float> zeros(static_cast<size_t>(elements));
    if (Result<void> done = writer->write(tensor.ggufName, std::as_bytes(std::span(zeros))); !done)
      return Unexpected(done.error());
  }
  if (Result<void> done = writer->finish(); !done)
    return Unexpected(done.error());
  Result<GGUFFile> file = GGUFFile::open(folder / "out.gguf");
  if (!file)
    return Unexpected(file.error());
  return parseGGUFConfig(file->contents(), "out.gguf");
}

static void expectTheSame(const ModelConfig &found, const ModelConfig &expected) {
  // llama.cpp has one name for some that differ in whether there is a window.
  EXPECT_STREQ(found.architecture->gguf, expected.architecture->gguf);
  EXPECT_EQ(found.vocabSize, expected.vocabSize);
  for (const ConfigSize &size : configSizes())
    EXPECT_EQ(found.*size.member, expected.*size.member) << size.gguf;
  EXPECT_EQ(found.normEpsilon, expected.normEpsilon);
  EXPECT_EQ(found.rope, expected.rope);
  EXPECT_EQ(found.rotatedLayers, expected.rotatedLayers);
  EXPECT_EQ(found.slidingWindow, expected.slidingWindow);
  EXPECT_EQ(found.windowedLayers, expected.windowedLayers);
  EXPECT_EQ(found.windowedRope, expected.windowedRope);
  EXPECT_EQ(found.recurrentLayers, expected.recurrentLayers);
  EXPECT_EQ(found.convolutionWidth, expected.convolutionWidth);
  DeltaSizes delta = expected.delta; // whose value heads GGUF has in turns
  delta.isTiled = delta.valueHeads != delta.keyHeads;
  EXPECT_EQ(found.delta, delta);
  EXPECT_EQ(found.activation, expected.activation);
  EXPECT_EQ(std::tie(found.embeddingFactor, found.residualFactor, found.attentionScale,
                     found.attentionBound, found.logitDivisor, found.logitBound),
            std::tie(expected.embeddingFactor, expected.residualFactor, expected.attentionScale,
                     expected.attentionBound, expected.logitDivisor, expected.logitBound));
  EXPECT_EQ(found.tieWordEmbeddings, expected.tieWordEmbeddings);
  EXPECT_EQ(std::tie(found.experts, found.expertsPerRow, found.expertSize,
                     found.renormalizesExperts, found.sharedExpertSize, found.denseLayers,
                     found.biasesChoices),
            std::tie(expected.experts, expected.expertsPerRow, expected.expertSize,
                     expected.renormalizesExperts, expected.sharedExpertSize, expected.denseLayers,
                     expected.biasesChoices));
  EXPECT_EQ(std::tie(found.fullHeadDim, found.fullKVHeads, found.sharesProjection),
            std::tie(expected.fullHeadDim, expected.fullKVHeads, expected.sharesProjection));
  EXPECT_EQ(std::tie(found.qkvBias, found.outputBias, found.mlpBias),
            std::tie(expected.qkvBias, expected.outputBias, expected.mlpBias));
}

TEST(GGUFModelConfig, IsReadBackForEveryArchitecture) {
  for (const Architecture &architecture : architectures()) {
    SCOPED_TRACE(architecture.name);
    std::string more;
    if (architecture.window == WindowKind::AllLayers)
      more += R"(, "sliding_window": 32)";
    if (architecture.layerKinds == LayerKinds::Convolution)
      more += R"(, "full_attn_idxs": [1], "conv_L_cache": 4)";
    if (architecture.lateGain)
      more += R"(, "rope_parameters": {"rope_type": "yarn", "factor": 4.0, "mscale": 1.0,
                "original_max_position_embeddings": 100, "mscale_all_dim": 1.0,
                "llama_4_scaling_beta": 0.125})";
    if (!architecture.truncatesYarn)
      more += R"(, "rope_parameters": {"rope_type": "yarn", "factor": 4.0, "truncate": false,
                "original_max_position_embeddings": 100})";
    if (const char *key = architecture.experts.renormalizesKey) // GGUF does not say it
      more += fmt::format(R"(, "{}": {})", key, architecture.experts.ggufRenormalizes);
    if (architecture.layerInputSize)
      more += fmt::format(R"(, "{}": 0)", architecture.layerInputSize.key);
    const ModelConfig config = configOf(architecture, more);
    Result<ModelConfig> read = writtenAndRead(config);
    ASSERT_VALUE(read);
    if (config.rope.scaling == numerics::RopeScaling::Proportional) // a tensor says it
      read->rope = config.rope;
    expectTheSame(*read, config);
  }
}

TEST(GGUFModelConfig, ScalesPositions) {
  for (const char *scaling :
       {R"({"rope_type": "linear", "factor": 4.0})",
        R"({"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 100})",
        R"({"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 100,
            "attention_factor": 1.5, "beta_fast": 16.0, "beta_slow": 2.0})"}) {
    SCOPED_TRACE(scaling);
    const ModelConfig config =
        configOf(*findArchitecture("llama"), fmt::format(R"(, "rope_scaling": {})", scaling));
    Result<ModelConfig> read = writtenAndRead(config);
    ASSERT_VALUE(read);
    EXPECT_NEAR(read->rope.attentionFactor, config.rope.attentionFactor, 1e-6);
    read->rope.attentionFactor = config.rope.attentionFactor;
    expectTheSame(*read, config);
  }
}

TEST(GGUFModelConfig, HasHeadsOfDeltaNetsInTurns) {
  // Three value heads of 2 for each of 2 key heads of 5.
  const ModelConfig config = configOf(*findArchitecture("qwen3_5_text"),
                                      R"(, "linear_num_key_heads": 2, "linear_key_head_dim": 5,
          "linear_num_value_heads": 6, "linear_value_head_dim": 2, "full_attention_interval": 2)");
  Result<ModelConfig> read = writtenAndRead(config);
  ASSERT_VALUE(read);
  ASSERT_TRUE(read->delta.isTiled);
  const std::vector<ExpectedTensor> before = expectedTensors(config),
                                    after = expectedTensors(*read);
  ASSERT_EQ(before.size(), after.size());
  int64_t reordered = 0;
  for (size_t i = 0; i < before.size(); ++i) {
    const ExpectedTensor &folder = before[i], &file = after[i];
    EXPECT_EQ(folder.name, file.name);
    if (folder.name.find("linear_attn") == std::string::npos)
      continue;
    // What goes to GGUF and comes back is where it was.
    EXPECT_TRUE(folder.rows.isSame() && folder.columns.isSame() && file.ggufRows.isSame());
    for (int64_t row = 0; row < folder.shape.front(); ++row)
      EXPECT_EQ(file.rows.stored(folder.ggufRows.stored(row)), row) << folder.name;
    reordered += !folder.ggufRows.isSame();
    if (!folder.name.ends_with("in_proj_qkv.weight"))
      continue;
    std::vector<int64_t> places;
    for (int64_t row = 18; row < 32; ++row)
      places.push_back(folder.ggufRows.stored(row));
    // The first row of value head 1, the second one of key head 0, is behind that of value head 3.
    EXPECT_EQ(places,
              (std::vector<int64_t>{18, 19, 20, 21, 24, 25, 28, 29, 22, 23, 26, 27, 30, 31}));
  }
  EXPECT_EQ(reordered, 3 * 7) << "all but norm and out_proj, of three layers";
}

TEST(GGUFModelConfig, RefusesWhatNoKeySays) {
  EXPECT_ERROR(writtenAndRead(configOf(
                   *findArchitecture("qwen3_5_text"),
                   R"(, "layer_types": ["linear_attention", "full_attention", "full_attention",
                        "linear_attention", "full_attention"])")),
               ErrorCode::Unsupported, "qwen3_5_text", "gated delta nets in other layers");
  EXPECT_ERROR(writtenAndRead(configOf(*findArchitecture("qwen3_moe"))), ErrorCode::Unsupported,
               "qwen3_moe", "experts whose weights do not sum to 1");
  EXPECT_ERROR(
      writtenAndRead(configOf(*findArchitecture("qwen2_moe"), R"(, "norm_topk_prob": true)")),
      ErrorCode::Unsupported, "qwen2_moe", "experts whose weights sum to 1");
  EXPECT_ERROR(writtenAndRead(configOf(*findArchitecture("gpt_oss"),
                                       R"(, "rope_scaling": {"rope_type": "yarn", "factor": 4.0,
                                  "original_max_position_embeddings": 100})")),
               ErrorCode::Unsupported, "gpt_oss", "YaRN with truncated ends");
  EXPECT_ERROR(writtenAndRead(configOf(*findArchitecture("qwen2"),
                                       R"(, "use_sliding_window": true, "sliding_window": 32,
                                          "max_window_layers": 2)")),
               ErrorCode::Unsupported, "qwen2", "windows of attention in some layers");
  EXPECT_ERROR(
      writtenAndRead(configOf(*findArchitecture("gpt2"), R"(, "activation_function": "gelu")")),
      ErrorCode::Unsupported, "gpt2", "another activation than gelu_new");
  EXPECT_ERROR(writtenAndRead(configOf(*findArchitecture("smollm3"),
                                       R"(, "no_rope_layers": [1, 0, 1, 1, 1])")),
               ErrorCode::Unsupported, "smollm3", "rotary positions");
  EXPECT_ERROR(writtenAndRead(configOf(*findArchitecture("llama"),
                                       R"(, "rope_scaling": {"rope_type": "yarn", "factor": 4.0,
                                  "original_max_position_embeddings": 100, "truncate": false})")),
               ErrorCode::Unsupported, "llama", "YaRN");
}
