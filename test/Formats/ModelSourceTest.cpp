//===- ModelSourceTest.cpp - A model on disk, whatever its container ------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "easyquant/Formats/ModelSource.h"

#include "easyquant/Formats/SafetensorsWriter.h"
#include "easyquant/Support/Checksum.h"

#include "TestFiles.h"

#include <algorithm>
#include <cmath>
#include <gtest/gtest.h>
#include <map>

using namespace easyquant;
using namespace easyquant::formats;
using namespace easyquant::formats::test;

namespace {

constexpr const char *kLlama = R"({"model_type": "llama", "vocab_size": 6, "hidden_size": 8,
  "intermediate_size": 4, "num_hidden_layers": 1, "num_attention_heads": 2, "num_key_value_heads": 1,
  "max_position_embeddings": 16, "rms_norm_eps": 1e-5, "tie_word_embeddings": true})";
constexpr const char *kGPT2 = R"({"model_type": "gpt2", "vocab_size": 6, "n_embd": 4, "n_layer": 1,
  "n_head": 2, "n_positions": 8})";

struct Tensor {
  std::string dtype;
  std::vector<int64_t> shape;
  std::string bytes;
};
using Tensors = std::map<std::string, Tensor>;

/// An fp32 tensor whose element i is `first + i`.
Tensor counting(std::vector<int64_t> shape, float first = 0) {
  std::string bytes;
  for (int64_t i = 0; i < *elementCount(shape); ++i)
    bytes += raw(first + static_cast<float>(i));
  return {"F32", std::move(shape), std::move(bytes)};
}

Tensors llamaTensors() {
  const std::string layer = "model.layers.0.";
  return {{"model.embed_tokens.weight", counting({6, 8})},
          {layer + "input_layernorm.weight", counting({8})},
          {layer + "self_attn.q_proj.weight", counting({8, 8})},
          {layer + "self_attn.k_proj.weight", counting({4, 8})},
          {layer + "self_attn.v_proj.weight", counting({4, 8})},
          {layer + "self_attn.o_proj.weight", counting({8, 8})},
          {layer + "post_attention_layernorm.weight", counting({8})},
          {layer + "mlp.gate_proj.weight", counting({4, 8})},
          {layer + "mlp.up_proj.weight", counting({4, 8})},
          {layer + "mlp.down_proj.weight", counting({8, 4})},
          {"model.norm.weight", counting({8})}};
}

Tensors gpt2Tensors(const std::string &prefix = "") {
  const std::string layer = prefix + "h.0.";
  return {{prefix + "wte.weight", counting({6, 4})},
          {prefix + "wpe.weight", counting({8, 4})},
          {layer + "ln_1.weight", counting({4})},
          {layer + "ln_1.bias", counting({4})},
          {layer + "attn.c_attn.weight", counting({4, 12})},
          {layer + "attn.c_attn.bias", counting({12})},
          {layer + "attn.c_proj.weight", counting({4, 4})},
          {layer + "attn.c_proj.bias", counting({4})},
          {layer + "ln_2.weight", counting({4})},
          {layer + "ln_2.bias", counting({4})},
          {layer + "mlp.c_fc.weight", counting({4, 16})},
          {layer + "mlp.c_fc.bias", counting({16})},
          {layer + "mlp.c_proj.weight", counting({16, 4})},
          {layer + "mlp.c_proj.bias", counting({4})},
          {prefix + "ln_f.weight", counting({4})},
          {prefix + "ln_f.bias", counting({4})}};
}

void writeTensors(const std::filesystem::path &path, const Tensors &tensors) {
  std::vector<SafetensorsWriter::Tensor> declarations;
  for (const auto &[name, tensor] : tensors)
    declarations.push_back({name, tensor.dtype, tensor.shape});
  Result<SafetensorsWriter> writer = SafetensorsWriter::create(path, declarations);
  ASSERT_VALUE(writer);
  for (const auto &[name, tensor] : tensors)
    ASSERT_TRUE(writer->write(name, bytesOf(tensor.bytes)));
  ASSERT_TRUE(writer->finish());
}

Result<ModelSource> openFolder(const TemporaryFolder &folder, const char *config,
                               const Tensors &tensors) {
  putFile(folder / "config.json", config);
  writeTensors(folder / "model.safetensors", tensors);
  return ModelSource::open(folder.path);
}

Result<std::vector<float>> readAll(const ModelSource &source, std::string_view name) {
  const ModelTensor *tensor = source.find(name);
  std::vector<float> values(tensor ? tensor->elements() : 0);
  if (Result<void> done = source.read(name, values); !done)
    return Unexpected(done.error());
  return values;
}

} // namespace

TEST(ModelSource, ReadsAFolder) {
  TemporaryFolder folder;
  Result<ModelSource> source = openFolder(folder, kLlama, llamaTensors());
  ASSERT_VALUE(source);
  EXPECT_EQ(source->kindName(), "huggingface");
  EXPECT_EQ(source->name(), folder.path.filename().string());
  EXPECT_EQ(source->parameters(), 48 + 8 + 64 + 32 + 32 + 64 + 8 + 32 + 32 + 32 + 8);
  EXPECT_EQ(source->storedTypes(), (std::map<std::string, int64_t>{{"F32", 11}}));
  ASSERT_EQ(source->tensors().size(), 11u);
  EXPECT_EQ(source->tensors().front().name, "model.embed_tokens.weight") << "order of execution";
  EXPECT_EQ(source->tensors().back().name, "model.norm.weight");
  Result<std::vector<float>> q = readAll(*source, "model.layers.0.self_attn.q_proj.weight");
  ASSERT_VALUE(q);
  for (size_t i = 0; i < q->size(); ++i)
    EXPECT_EQ((*q)[i], static_cast<float>(i));

  std::vector<float> rows(16);
  ASSERT_TRUE(source->readRows("model.layers.0.self_attn.q_proj.weight", 3, 2, rows));
  EXPECT_EQ(rows.front(), 24.0f);
  EXPECT_EQ(rows.back(), 39.0f);
  ASSERT_TRUE(source->readRows("model.norm.weight", 2, 3, std::span(rows).first(3)));
  EXPECT_EQ(rows[2], 4.0f);
  ASSERT_TRUE(source->readRows("model.norm.weight", 8, 0, std::span<float>()));
}

TEST(ModelSource, RefusesReadsThatCannotBe) {
  TemporaryFolder folder;
  Result<ModelSource> source = openFolder(folder, kLlama, llamaTensors());
  ASSERT_VALUE(source);
  std::vector<float> out(8);
  EXPECT_ERROR(source->read("lm_head.weight", out), ErrorCode::NotFound, "lm_head.weight");
  EXPECT_ERROR(source->read("model.embed_tokens.weight", out), ErrorCode::InvalidArgument,
               "8 floats", "6 rows of 8");
  for (auto [first, rows] :
       {std::pair<int64_t, int64_t>{-1, 1}, {6, 1}, {0, -1}, {INT64_MAX, 1}, {1, INT64_MAX}})
    EXPECT_ERROR(source->readRows("model.embed_tokens.weight", first, rows, out),
                 ErrorCode::InvalidArgument, "there are only 6");
}

TEST(ModelSource, WidensHalves) {
  TemporaryFolder folder;
  Tensors tensors = llamaTensors();
  tensors["model.norm.weight"] = {
      "BF16", {8}, rawAll<uint16_t>({0x3f80, 0x4000, 0, 0, 0, 0, 0, 0xc000})};
  tensors["model.layers.0.input_layernorm.weight"] = {
      "F16", {8}, rawAll<uint16_t>({0x3c00, 0x4000, 0, 0, 0, 0, 0, 0xc000})};
  Result<ModelSource> source = openFolder(folder, kLlama, tensors);
  ASSERT_VALUE(source);
  const std::vector<float> expected = {1, 2, 0, 0, 0, 0, 0, -2};
  EXPECT_EQ(*readAll(*source, "model.norm.weight"), expected);
  EXPECT_EQ(*readAll(*source, "model.layers.0.input_layernorm.weight"), expected);
  EXPECT_EQ(source->find("model.norm.weight")->storedType, "BF16");
  EXPECT_EQ(source->storedTypes(),
            (std::map<std::string, int64_t>{{"BF16", 1}, {"F16", 1}, {"F32", 9}}));
}

TEST(ModelSource, TransposesConv1D) {
  for (const char *prefix : {"", "transformer."}) {
    TemporaryFolder folder;
    Tensors tensors = gpt2Tensors(prefix);
    // Buffers that follow from the configuration, and the tied head.
    tensors[std::string(prefix) + "h.0.attn.bias"] = {"U8", {1, 1, 8, 8}, std::string(64, 1)};
    tensors[std::string(prefix) + "h.0.attn.masked_bias"] = counting({});
    tensors["lm_head.weight"] = counting({6, 4});
    Result<ModelSource> source = openFolder(folder, kGPT2, tensors);
    ASSERT_VALUE(source);
    const ModelTensor *tensor = source->find("h.0.attn.c_attn.weight");
    ASSERT_NE(tensor, nullptr);
    EXPECT_EQ(tensor->shape, (std::vector<int64_t>{12, 4}));
    EXPECT_EQ(source->find("lm_head.weight"), nullptr);
    std::vector<float> values = *readAll(*source, "h.0.attn.c_attn.weight");
    for (int n = 0; n < 12; ++n)
      for (int k = 0; k < 4; ++k)
        EXPECT_EQ(values[n * 4 + k], static_cast<float>(k * 12 + n));
    std::vector<float> rows(8);
    ASSERT_TRUE(source->readRows("h.0.attn.c_attn.weight", 5, 2, rows));
    EXPECT_TRUE(std::equal(rows.begin(), rows.end(), values.begin() + 20));
    // K = 16 and more, beyond one tile of the transposition.
    values = *readAll(*source, "h.0.mlp.c_proj.weight");
    for (int n = 0; n < 4; ++n)
      for (int k = 0; k < 16; ++k)
        EXPECT_EQ(values[n * 16 + k], static_cast<float>(k * 4 + n));
  }
}

TEST(ModelSource, NamesWhatIsWrongWithATensor) {
  const std::string name = "model.layers.0.mlp.down_proj.weight";
  auto openWith = [&](auto change) {
    TemporaryFolder folder;
    Tensors tensors = llamaTensors();
    change(tensors);
    return openFolder(folder, kLlama, tensors);
  };
  EXPECT_ERROR(openWith([&](Tensors &t) { t.erase(name); }), ErrorCode::NotFound, name, "missing",
               "[8, 4]");
  EXPECT_ERROR(openWith([&](Tensors &t) { t[name] = counting({4, 8}); }), ErrorCode::Corrupt, name,
               "expected shape [8, 4], found [4, 8]");
  EXPECT_ERROR(openWith([&](Tensors &t) { t[name] = counting({32}); }), ErrorCode::Corrupt, "[32]");
  EXPECT_ERROR(openWith([&](Tensors &t) { t[name] = {"I8", {8, 4}, std::string(32, 1)}; }),
               ErrorCode::Unsupported, name, "I8", "F32, F16 or BF16");
  EXPECT_ERROR(openWith([&](Tensors &t) { t[name] = {"F64", {8, 4}, std::string(256, 0)}; }),
               ErrorCode::Unsupported, name, "F64");
  EXPECT_ERROR(
      openWith([&](Tensors &t) { t["model.layers.0.self_attn.q_proj.bias"] = counting({8}); }),
      ErrorCode::Unsupported, "q_proj.bias", "no place in a llama model");
}

TEST(ModelSource, RefusesValuesThatAreNotFinite) {
  for (float bad : {NAN, INFINITY, -INFINITY}) {
    TemporaryFolder folder;
    Tensors tensors = llamaTensors();
    tensors["model.layers.0.mlp.down_proj.weight"].bytes.replace(4 * 9, 4, raw(bad));
    Result<ModelSource> source = openFolder(folder, kLlama, tensors);
    ASSERT_VALUE(source);
    EXPECT_ERROR(readAll(*source, "model.layers.0.mlp.down_proj.weight"), ErrorCode::Corrupt,
                 "down_proj", "row 2, column 1");
    std::vector<float> rows(4);
    EXPECT_TRUE(source->readRows("model.layers.0.mlp.down_proj.weight", 3, 1, rows));
    EXPECT_ERROR(source->readRows("model.layers.0.mlp.down_proj.weight", 2, 1, rows),
                 ErrorCode::Corrupt, "row 2, column 1");
  }
}

TEST(ModelSource, ReadsShards) {
  TemporaryFolder folder;
  putFile(folder / "config.json", kLlama);
  Tensors all = llamaTensors(), first, second;
  std::string map;
  for (const auto &[name, tensor] : all) {
    bool isFirst = name < "model.layers.0.mlp.up";
    (isFirst ? first : second).emplace(name, tensor);
    map +=
        fmt::format("{}\"{}\": \"{}\"", map.empty() ? "" : ", ", name, isFirst ? "a.st" : "b.st");
  }
  writeTensors(folder / "a.st", first);
  writeTensors(folder / "b.st", second);
  const auto index = folder / "model.safetensors.index.json";
  const std::string good = "{\"weight_map\": {" + map + "}}";
  putFile(index, good);
  Result<ModelSource> source = ModelSource::open(folder.path);
  ASSERT_VALUE(source);
  EXPECT_EQ((*readAll(*source, "model.norm.weight"))[7], 7.0f);
  EXPECT_EQ((*readAll(*source, "model.layers.0.mlp.gate_proj.weight"))[31], 31.0f);
  EXPECT_EQ(*source->hash(),
            checksumOf(bytesOf(std::string(kLlama) + good + readFile(folder / "a.st") +
                               readFile(folder / "b.st"))));

  auto refuse = [&](std::string from, std::string to) {
    std::string text = good;
    text.replace(text.find(from), from.size(), to);
    putFile(index, text);
    return ModelSource::open(folder.path);
  };
  for (const char *name :
       {"../a.st", "/etc/passwd", "sub/a.st", "..", ".", "", "a\\\\b", "a\\u0000.st"})
    EXPECT_ERROR(refuse("\"a.st\"", fmt::format("\"{}\"", name)), ErrorCode::Corrupt, "index.json",
                 "is not the name of a file in the folder");
  EXPECT_ERROR(refuse("\"b.st\"", "\"c.st\""), ErrorCode::NotFound, "\"c.st\" is missing");
  EXPECT_ERROR(refuse("\"b.st\"", "\"a.st\""), ErrorCode::Corrupt, "a.st", "is missing");
  EXPECT_ERROR(refuse("\"b.st\"", "7"), ErrorCode::Corrupt, "found 7, expected a string");
  EXPECT_ERROR(refuse("weight_map", "weights"), ErrorCode::Corrupt, "weight_map");
  EXPECT_ERROR(refuse("{", ""), ErrorCode::Corrupt, "index.json");
}

TEST(ModelSource, ReadsGGUFInHuggingFaceOrder) {
  GGUFBuilder builder;
  builder.text("general.architecture", "llama")
      .u32("llama.context_length", 16)
      .u32("llama.embedding_length", 32)
      .u32("llama.feed_forward_length", 32)
      .u32("llama.block_count", 1)
      .u32("llama.attention.head_count", 4)
      .u32("llama.attention.head_count_kv", 2)
      .f32("llama.attention.layer_norm_rms_epsilon", 1e-5f);
  auto floats = [](const char *name, uint64_t columns, uint64_t rows, GGUFBuilder &b) {
    std::string bytes;
    for (uint64_t i = 0; i < columns * std::max<uint64_t>(rows, 1); ++i)
      bytes += raw(static_cast<float>(i));
    b.tensor(name, rows ? std::vector{columns, rows} : std::vector{columns}, GGMLType::F32, bytes);
  };
  // Each row of q holds one Q8_0 block of codes equal to its own number.
  std::string q;
  for (int8_t row = 0; row < 32; ++row)
    q += raw<uint16_t>(0x3c00) + std::string(32, static_cast<char>(row));
  floats("token_embd.weight", 32, 6, builder);
  builder.tensor("blk.0.attn_q.weight", {32, 32}, GGMLType::Q8_0, q);
  for (auto [name, rows] : {std::pair("attn_k", 16),
                            {"attn_v", 16},
                            {"attn_output", 32},
                            {"ffn_gate", 32},
                            {"ffn_up", 32},
                            {"ffn_down", 32}})
    floats(fmt::format("blk.0.{}.weight", name).c_str(), 32, rows, builder);
  for (const char *name : {"blk.0.attn_norm.weight", "blk.0.ffn_norm.weight", "output_norm.weight"})
    floats(name, 32, 0, builder);

  TemporaryFolder folder;
  putFile(folder / "tiny.gguf", builder.build());
  Result<ModelSource> source = ModelSource::open(folder / "tiny.gguf");
  ASSERT_VALUE(source);
  EXPECT_EQ(source->kindName(), "gguf");
  EXPECT_EQ(source->name(), "tiny");
  EXPECT_EQ(*source->hash(), checksumOf(bytesOf(readFile(folder / "tiny.gguf"))));
  EXPECT_EQ(source->storedTypes().at("Q8_0"), 1);
  // In a head of 8, Hugging Face's dimensions 0..7 lie at 0, 2, 4, 6, 1, 3, 5, 7 in GGUF.
  const int order[8] = {0, 2, 4, 6, 1, 3, 5, 7};
  std::vector<float> values = *readAll(*source, "model.layers.0.self_attn.q_proj.weight");
  for (int row = 0; row < 32; ++row)
    EXPECT_EQ(values[32 * row], static_cast<float>(row / 8 * 8 + order[row % 8])) << row;
  std::vector<float> part(64);
  ASSERT_TRUE(source->readRows("model.layers.0.self_attn.q_proj.weight", 7, 2, part));
  EXPECT_EQ(part[0], 7.0f);
  EXPECT_EQ(part[32], 8.0f);
  values = *readAll(*source, "model.layers.0.self_attn.k_proj.weight");
  EXPECT_EQ(values[32], 64.0f);
  EXPECT_EQ((*readAll(*source, "model.layers.0.self_attn.v_proj.weight"))[32], 32.0f) << "v stays";

  GGUFBuilder vector = builder;
  putFile(folder / "extra.gguf",
          vector.tensor("blk.0.attn_q.bias2", {32}, GGMLType::F32, std::string(128, 0)).build());
  EXPECT_ERROR(ModelSource::open(folder / "extra.gguf"), ErrorCode::Unsupported, "attn_q.bias2");

  auto withFactors = [&](std::initializer_list<float> factors, GGMLType type = GGMLType::F32) {
    GGUFBuilder scaled = builder;
    scaled.f32("llama.rope.freq_base", 5e5f)
        .tensor("rope_freqs.weight", {factors.size()}, type, rawAll<float>(factors));
    putFile(folder / "scaled.gguf", scaled.build());
    return ModelSource::open(folder / "scaled.gguf");
  };
  Result<ModelSource> scaled = withFactors({1, 1, 2.69453f, 8});
  ASSERT_VALUE(scaled);
  EXPECT_EQ(scaled->find("rope_freqs.weight"), nullptr) << "no weight";
  EXPECT_TRUE(scaled->config().rope ==
              (numerics::RopeParams{8, 5e5, numerics::RopeScaling::Llama3, 8, 1, 4, 8192}));
  EXPECT_ERROR(withFactors({1, 1, 1, 8}), ErrorCode::Unsupported, "scaled.gguf",
               "rope_freqs.weight", "element 2 is 1; the scaling of Llama 3.1 and 3.2 by 8");
  EXPECT_ERROR(withFactors({1, 1, 8}), ErrorCode::Corrupt, "scaled.gguf", "rope_freqs.weight",
               "[4]");
  const float nan = std::numeric_limits<float>::quiet_NaN();
  EXPECT_ERROR(withFactors({1, 1, nan, 8}), ErrorCode::Unsupported, "element 2 is nan");
}

TEST(ModelSource, RefusesWhatIsNoModel) {
  TemporaryFolder folder;
  EXPECT_ERROR(ModelSource::open(folder / "nowhere"), ErrorCode::NotFound, "nowhere");
  EXPECT_ERROR(ModelSource::open(folder.path), ErrorCode::NotFound, "config.json");
  putFile(folder / "config.json", kLlama);
  EXPECT_ERROR(ModelSource::open(folder.path), ErrorCode::NotFound, "model.safetensors");
  putFile(folder / "pytorch_model.bin", "pickle");
  EXPECT_ERROR(ModelSource::open(folder.path), ErrorCode::NotFound, "safe_serialization");
  putFile(folder / "model.safetensors", "");
  EXPECT_ERROR(ModelSource::open(folder / "model.safetensors"), ErrorCode::InvalidArgument,
               "the folder with config.json");
  EXPECT_ERROR(ModelSource::open(folder.path), ErrorCode::Corrupt, "model.safetensors");
  putFile(folder / "weights.gguf", "GGUF");
  EXPECT_ERROR(ModelSource::open(folder / "weights.gguf"), ErrorCode::Corrupt, "weights.gguf");
}

TEST(ModelSource, TakesEndOfTextFromTheGenerationConfig) {
  TemporaryFolder folder;
  putFile(folder / "generation_config.json", R"({"eos_token_id": [4, 5]})");
  Result<ModelSource> source = openFolder(folder, kLlama, llamaTensors());
  ASSERT_VALUE(source);
  EXPECT_EQ(source->config().eosTokenIds, (std::vector<int64_t>{4, 5}));
  putFile(folder / "generation_config.json", R"({"eos_token_id": 6})");
  EXPECT_ERROR(ModelSource::open(folder.path), ErrorCode::Corrupt, "generation_config.json", "6");
}
