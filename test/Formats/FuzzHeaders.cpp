//===- FuzzHeaders.cpp - Hostile headers ----------------------------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Feeds damaged headers of safetensors, GGUF and .npy files and configurations to their readers.
// Nothing may crash, hang or allocate by a number that was not checked, and a header that is
// accepted must describe bytes that are there. Built with sanitizers this is a test of memory
// safety.
//
//   FuzzHeaders [--seconds N] [--seed N]    mutates good files by the clock
//   LibFuzzHeaders [CORPUS]                 under libFuzzer: the first byte chooses the reader
//
//===----------------------------------------------------------------------===//

#include "easyquant/Formats/ModelConfig.h"
#include "easyquant/Formats/Npy.h"
#include "easyquant/Formats/Safetensors.h"

#include "TestFiles.h"

#include "easyquant/Formats/Codecs/StoredWeight.h"

#include <charconv>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <random>

using namespace easyquant;
using namespace easyquant::formats;
using namespace easyquant::formats::test;

// The largest input is some kilobytes; no reader needs more than a small multiple of it.
extern "C" const char *__asan_default_options() { return "max_allocation_size_mb=64"; }

namespace {

/// Keeps the optimizer from dropping reads.
volatile unsigned sink;

void touch(std::span<const std::byte> bytes) {
  if (!bytes.empty())
    sink =
        sink + std::to_integer<unsigned>(bytes.front()) + std::to_integer<unsigned>(bytes.back());
}

[[noreturn]] void fail(const char *what) {
  std::fprintf(stderr, "FuzzHeaders: %s\n", what);
  std::abort();
}

void checkMessage(const Error &error) {
  if (error.message.empty() || error.message.size() > 4096)
    fail("an error without a message, or with one that is too long");
  for (unsigned char c : error.message)
    if (c < 0x20 || c == 0x7f)
      fail(("a control character in an error message: " + Json::describe(error.message)).c_str());
}

/// Returns whether the input was accepted.
bool readSafetensors(std::span<const std::byte> file) {
  Result<SafetensorsHeader> header = parseSafetensorsHeader(file, "fuzz");
  if (!header) {
    checkMessage(header.error());
    return false;
  }
  std::span<const std::byte> data = file.subspan(header->dataOffset);
  for (const SafetensorsTensor &tensor : header->tensors) {
    if (*tensorBytes(tensor.dtype, tensor.shape) != tensor.end - tensor.begin)
      fail("a tensor whose shape does not fit its bytes");
    touch(data.subspan(tensor.begin, tensor.end - tensor.begin));
  }
  return true;
}

bool readGGUF(std::span<const std::byte> file) {
  Result<GGUFHeader> header = parseGGUFHeader(file, "fuzz");
  if (!header) {
    checkMessage(header.error());
    return false;
  }
  for (const auto &[key, value] : header->metadata) {
    if (const GGUFArray *array = value.asArray()) {
      if (auto strings = stringsOf(*array))
        for (std::string_view text : *strings)
          touch(bytesOf(text));
      else if (auto integers = integersOf(*array))
        sink = sink + static_cast<unsigned>(integers->size());
    } else if (auto text = value.asString()) {
      touch(bytesOf(*text));
    }
  }
  std::vector<float> floats;
  for (const GGUFTensor &tensor : header->tensors) {
    std::span<const std::byte> bytes = file.subspan(tensor.offset, tensor.bytes);
    touch(bytes);
    if (const GGMLTypeInfo *type = ggmlTypeInfo(static_cast<uint32_t>(tensor.type));
        type->canDequantize && tensor.bytes <= 65536) {
      floats.resize(tensor.bytes / type->blockBytes * type->blockElements);
      if (!dequantize(tensor.type, bytes, floats))
        fail("a tensor that is accepted and cannot be converted");
    }
  }
  if (Result<ModelConfig> config = parseGGUFConfig(*header, "fuzz"); !config)
    checkMessage(config.error());
  return true;
}

bool readConfig(std::span<const std::byte> file) {
  Result<ModelConfig> config =
      parseHuggingFaceConfig({reinterpret_cast<const char *>(file.data()), file.size()}, "fuzz");
  if (config)
    return true;
  checkMessage(config.error());
  return false;
}

/// A `quantization_config`, and the tensors beside a linear of 32 x 64 that it speaks of.
bool readQuantized(std::span<const std::byte> file,
                   std::initializer_list<std::pair<std::string_view, FileTensorView>> tensors) {
  auto report = [](const Error &error) {
    checkMessage(error);
    return false;
  };
  Result<Json> config =
      Json::parseObject({reinterpret_cast<const char *>(file.data()), file.size()}, "fuzz");
  if (!config)
    return report(config.error());
  auto weights = readQuantizationConfig(*config, "fuzz");
  if (!weights)
    return report(weights.error());
  auto weight = (*weights)->find("layers.0.up_proj", 32, 64,
                                 [&](std::string_view name) -> std::optional<FileTensorView> {
                                   for (const auto &[known, tensor] : tensors)
                                     if (known == name)
                                       return tensor;
                                   return std::nullopt;
                                 });
  if (!weight)
    return report(weight.error());
  if (!*weight)
    fail("a linear in codes is taken for a float one");
  std::vector<float> floats(32 * 64);
  if (auto done = (*weight)->dequantize(0, 32, floats); !done)
    return report(done.error());
  if (auto codes = (*weight)->codes(5, 27); !codes)
    return report(codes.error());
  return true;
}

bool readGptqConfig(std::span<const std::byte> file) {
  static const std::vector<uint8_t> words(8 * 32 * 4, 0x6a), index = [] {
    std::vector<uint8_t> bytes(64 * 4);
    for (int k = 1; k < 64; k += 2) // act-order
      bytes[4 * k] = 1;
    return bytes;
  }();
  const std::span<const uint8_t> some(words);
  return readQuantized(file, {{"qweight", {"I32", {8, 32}, some}},
                              {"qzeros", {"I32", {2, 4}, some.first(2 * 4 * 4)}},
                              {"scales", {"F16", {2, 32}, some.first(2 * 32 * 2)}},
                              {"g_idx", {"I32", {64}, index}}});
}

bool readCompressedTensorsConfig(std::span<const std::byte> file) {
  static const std::vector<uint8_t> words(32 * 8 * 4, 0x3c), sizes = [] {
    std::vector<uint8_t> bytes(16);
    bytes[0] = 32, bytes[8] = 64;
    return bytes;
  }();
  const std::span<const uint8_t> some(words);
  return readQuantized(file, {{"weight_packed", {"I32", {32, 8}, some}},
                              {"weight_scale", {"F16", {32, 2}, some.first(32 * 2 * 2)}},
                              {"weight_shape", {"I64", {2}, sizes}}});
}

bool readFP8Config(std::span<const std::byte> file) {
  static const std::vector<uint8_t> bytes(32 * 64, 0x3c);
  const std::span<const uint8_t> some(bytes);
  return readQuantized(file, {{"weight", {"F8_E4M3", {32, 64}, some}},
                              {"weight_scale_inv", {"F32", {2, 2}, some.first(2 * 2 * 4)}},
                              {"weight_scale", {"F32", {}, some.first(4)}},
                              {"input_scale", {"F32", {1}, some.first(4)}}});
}

bool readModelOptConfig(std::span<const std::byte> file) {
  static const std::vector<uint8_t> bytes(32 * 32, 0x3c);
  const std::span<const uint8_t> some(bytes);
  return readQuantized(file, {{"weight", {"U8", {32, 32}, some}},
                              {"weight_scale", {"F8_E4M3", {32, 4}, some.first(32 * 4)}},
                              {"weight_scale_2", {"F32", {}, some.first(4)}},
                              {"input_scale", {"F32", {}, some.first(4)}}});
}

bool readNpy(std::span<const std::byte> file) {
  Result<NpyHeader> header = parseNpyHeader(file, "fuzz");
  if (!header) {
    checkMessage(header.error());
    return false;
  }
  touch(file.subspan(header->dataOffset, *tensorBytes(header->dtype, header->shape)));
  return true;
}

struct Target {
  const char *name;
  bool (*run)(std::span<const std::byte>);
};
constexpr Target kTargets[] = {{"safetensors", readSafetensors},
                               {"gguf", readGGUF},
                               {"config.json", readConfig},
                               {"gptq", readGptqConfig},
                               {"compressed-tensors", readCompressedTensorsConfig},
                               {"fp8", readFP8Config},
                               {"modelopt", readModelOptConfig},
                               {"npy", readNpy},
                               {"longrope", readConfig},
                               {"gemma4", readConfig}};

} // namespace

#ifdef EASYQUANT_LIBFUZZER

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  if (size == 0)
    return 0;
  kTargets[data[0] % std::size(kTargets)].run(std::as_bytes(std::span(data + 1, size - 1)));
  return 0;
}

#else

namespace {

std::string goodSafetensors() {
  return safetensors(R"({"__metadata__":{"format":"pt"},)"
                     R"("model.embed.weight":{"dtype":"F32","shape":[3,4],"data_offsets":[0,48]},)"
                     R"("model.norm.weight":{"dtype":"BF16","shape":[4],"data_offsets":[48,56]},)"
                     R"("empty":{"dtype":"I64","shape":[0,2],"data_offsets":[56,56]},)"
                     R"("mask":{"dtype":"BOOL","shape":[2,2],"data_offsets":[56,60]}}    )",
                     std::string(60, 'x'));
}

std::string goodGGUF() {
  GGUFBuilder builder;
  builder.text("general.architecture", "llama")
      .u32("general.alignment", 32)
      .u32("llama.context_length", 16)
      .u32("llama.embedding_length", 32)
      .u32("llama.feed_forward_length", 32)
      .u32("llama.block_count", 1)
      .u32("llama.attention.head_count", 4)
      .pair("llama.attention.head_count_kv", GGUFType::Array,
            raw(GGUFType::I32) + raw<uint64_t>(2) + rawAll<int32_t>({2, 2}))
      .f32("llama.attention.layer_norm_rms_epsilon", 1e-5f)
      .pair("tokenizer.ggml.tokens", GGUFType::Array,
            raw(GGUFType::String) + raw<uint64_t>(3) + GGUFBuilder::string("a") +
                GGUFBuilder::string("") + GGUFBuilder::string("long token"))
      .pair("flag", GGUFType::Bool, raw<uint8_t>(1))
      .pair("double", GGUFType::F64, raw(2.5))
      .tensor("token_embd.weight", {32, 3}, GGMLType::Q4_1, std::string(60, '\7'))
      .tensor("output_norm.weight", {32}, GGMLType::F32, std::string(128, '\0'))
      .tensor("blk.0.attn_q.weight", {256, 2}, GGMLType::Q6_K, std::string(420, '\3'));
  return builder.build();
}

std::string goodConfig() {
  return R"({"model_type": "llama", "vocab_size": 100, "hidden_size": 64, "intermediate_size": 96,
    "num_hidden_layers": 3, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16,
    "rms_norm_eps": 1e-5, "rope_theta": 10000.0, "rope_scaling": null, "tie_word_embeddings": true,
    "bos_token_id": 1, "eos_token_id": [2, 3], "hidden_act": "silu", "attention_bias": false})";
}

std::string goodLongRopeConfig() {
  return R"({"model_type": "phi3", "vocab_size": 100, "hidden_size": 64, "intermediate_size": 96,
    "num_hidden_layers": 3, "num_attention_heads": 4, "partial_rotary_factor": 0.5, "rope_scaling":
    {"type": "longrope", "short_factor": [1, 1.1, 2, 2.5], "long_factor": [1, 4, 8.5, 16]},
    "original_max_position_embeddings": 1024, "sliding_window": 512, "max_position_embeddings": 8192})";
}

std::string goodGemma4Config() {
  return R"({"model_type": "gemma4_text", "vocab_size": 100, "hidden_size": 64, "head_dim": 8,
    "intermediate_size": 96, "num_hidden_layers": 3, "num_attention_heads": 4, "global_head_dim": 16,
    "num_key_value_heads": 2, "sliding_window": 16, "num_kv_shared_layers": 1, "layer_types":
    ["full_attention", "sliding_attention", "full_attention"], "use_double_wide_mlp": true,
    "hidden_size_per_layer_input": 4, "vocab_size_per_layer_input": 100, "enable_moe_block": true,
    "num_experts": 4, "top_k_experts": 2, "moe_intermediate_size": 32})";
}

std::string goodGptqConfig() {
  return R"({"quant_method": "gptq", "bits": 4, "group_size": 32, "desc_act": false, "sym": false,
    "checkpoint_format": "gptq_v2", "pack_dtype": "int32", "lm_head": false,
    "dynamic": {"+:.*down_proj": {"bits": 8, "group_size": 64}, "-:.*[kv]_proj": {}}})";
}

std::string goodCompressedTensorsConfig() {
  return R"({"quant_method": "compressed-tensors", "format": "pack-quantized", "ignore": ["lm_head"],
    "quantization_status": "compressed", "kv_cache_scheme": null, "config_groups": {
      "group_0": {"targets": ["re:.*down_proj"], "weights": {"num_bits": 8, "type": "int"}},
      "group_1": {"targets": ["Linear"], "weights": {"num_bits": 4, "type": "int", "group_size": 32,
        "symmetric": true, "strategy": "group", "dynamic": false}, "input_activations": null}},
    "transform_config": {"config_groups": {"a": {"type": "hadamard", "head_dim": 32, "apply": [
      {"targets": ["re:.*up_proj"], "location": "input", "ignore": ["lm_head"]},
      {"targets": ["re:.*up_proj"], "location": "weight_input", "inverse": true}]}}}})";
}

std::string goodFP8Config() {
  return R"({"quant_method": "fp8", "activation_scheme": "dynamic", "fmt": "e4m3",
    "weight_block_size": [16, 32], "modules_to_not_convert": ["lm_head"]})";
}

std::string goodModelOptConfig() {
  return R"({"quant_method": "modelopt", "quant_algo": "NVFP4", "group_size": 16,
    "kv_cache_quant_algo": "FP8", "exclude_modules": ["lm_head"]})";
}

std::string goodNpy() {
  return npy("{'descr': '<f4', 'fortran_order': False, 'shape': (3, 4), }", std::string(48, 'x'));
}

/// Damages a file in one to four places.
void mutate(std::string &file, std::mt19937_64 &rng) {
  auto below = [&](size_t limit) { return limit == 0 ? 0 : rng() % limit; };
  // Numbers at the edges of their types, and pieces of JSON.
  static const std::string kPieces[] = {raw<uint64_t>(0),
                                        raw<uint64_t>(~0ull),
                                        raw<uint64_t>(1ull << 63),
                                        raw<uint64_t>((1ull << 63) - 1),
                                        raw<uint64_t>(1ull << 32),
                                        raw<uint32_t>(~0u),
                                        raw<uint32_t>(1u << 31),
                                        raw<uint32_t>(9),
                                        raw<uint32_t>(8),
                                        "18446744073709551615",
                                        "-1",
                                        "1e999",
                                        "4611686018427387904",
                                        "[",
                                        "]",
                                        "{",
                                        "}",
                                        "\"",
                                        ",",
                                        ":",
                                        "null",
                                        "[[[[[[[[",
                                        "\\u0000",
                                        "\xff",
                                        "\"dtype\":\"F32\",",
                                        "[0,0]",
                                        "NaN",
                                        "0.5"};
  for (size_t count = 1 + below(4); count > 0; --count) {
    size_t at = below(file.size());
    switch (below(8)) {
    case 0: // a bit
      if (!file.empty())
        file[at] ^= static_cast<char>(1 << below(8));
      break;
    case 1: // a byte
      if (!file.empty())
        file[at] = static_cast<char>(rng());
      break;
    case 2: { // an edge over what is there
      const std::string &piece = kPieces[below(std::size(kPieces))];
      file.replace(at, piece.size(), piece);
      break;
    }
    case 3: // an edge between
      file.insert(at, kPieces[below(std::size(kPieces))]);
      break;
    case 4: // less
      file.resize(at);
      break;
    case 5: // a piece out
      file.erase(at, below(32));
      break;
    case 6: { // a piece twice
      std::string piece = file.substr(at, below(64));
      file.insert(below(file.size()), piece);
      break;
    }
    case 7: { // a digit or small number changed, which keeps the rest well-formed
      size_t digit = file.find_first_of("0123456789", at);
      if (digit != std::string::npos)
        file[digit] = static_cast<char>('0' + below(10));
      break;
    }
    }
  }
}

/// The input that is running, for the message of a crash.
struct {
  const char *target = "";
  uint64_t seed = 0;
} current;

void reportInput() {
  std::fprintf(stderr, "FuzzHeaders: target %s; run again with --seed %llu\n", current.target,
               static_cast<unsigned long long>(current.seed));
}

void onSignal(int number) {
  std::fprintf(stderr, "FuzzHeaders: %s\n",
               number == SIGALRM ? "an input takes too long" : "stopped");
  reportInput();
  std::_Exit(1);
}

bool parseNumber(const char *text, uint64_t &value) {
  auto [end, error] = std::from_chars(text, text + std::strlen(text), value);
  return error == std::errc() && *end == '\0';
}

} // namespace

extern "C" void __sanitizer_set_death_callback(void (*callback)()) __attribute__((weak));

int main(int argc, char **argv) {
  uint64_t seconds = 2, seed = 0;
  for (int i = 1; i < argc; i += 2) {
    std::string_view option = argv[i];
    uint64_t *value = option == "--seconds" ? &seconds : option == "--seed" ? &seed : nullptr;
    if (!value || i + 1 == argc || !parseNumber(argv[i + 1], *value)) {
      std::fprintf(stderr, "usage: FuzzHeaders [--seconds N] [--seed N]\n");
      return 1;
    }
  }
  if (&__sanitizer_set_death_callback)
    __sanitizer_set_death_callback(reportInput);
  std::signal(SIGALRM, onSignal);
  std::signal(SIGABRT, onSignal);

  const std::string good[] = {goodSafetensors(),
                              goodGGUF(),
                              goodConfig(),
                              goodGptqConfig(),
                              goodCompressedTensorsConfig(),
                              goodFP8Config(),
                              goodModelOptConfig(),
                              goodNpy(),
                              goodLongRopeConfig(),
                              goodGemma4Config()};
  for (size_t t = 0; t < std::size(kTargets); ++t) {
    current.target = kTargets[t].name;
    if (!kTargets[t].run(bytesOf(good[t])))
      fail("the good file is refused");
    auto end = std::chrono::steady_clock::now() +
               std::chrono::milliseconds(1000 * seconds / std::size(kTargets));
    uint64_t runs = 0, accepted = 0;
    // Every input has a seed of its own, so that one of them can be run again.
    for (current.seed = seed; runs % 64 != 0 || std::chrono::steady_clock::now() < end;
         ++current.seed) {
      if (runs++ % 1024 == 0)
        ::alarm(20);
      std::mt19937_64 rng(current.seed);
      std::string file = good[t];
      mutate(file, rng);
      accepted += kTargets[t].run(bytesOf(file));
    }
    std::printf("%-18s %8llu inputs, %llu accepted\n", kTargets[t].name,
                static_cast<unsigned long long>(runs), static_cast<unsigned long long>(accepted));
    if (accepted == 0 || accepted == runs)
      fail("the mutations do not reach both sides of the reader");
  }
  return 0;
}

#endif // EASYQUANT_LIBFUZZER
