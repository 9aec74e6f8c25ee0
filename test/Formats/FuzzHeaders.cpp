//===- FuzzHeaders.cpp - Hostile headers ----------------------------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Feeds damaged safetensors headers, GGUF headers and configurations to their readers. Nothing may
// crash, hang or allocate by a number that was not checked, and a header that is accepted must
// describe bytes that are there. Built with sanitizers this is a test of memory safety.
//
//   FuzzHeaders [--seconds N] [--seed N]    mutates good files by the clock
//   LibFuzzHeaders [CORPUS]                 under libFuzzer: the first byte chooses the reader
//
//===----------------------------------------------------------------------===//

#include "easyquant/Formats/ModelConfig.h"
#include "easyquant/Formats/Safetensors.h"

#include "TestFiles.h"

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
      fail("a control character in an error message");
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

struct Target {
  const char *name;
  bool (*run)(std::span<const std::byte>);
};
constexpr Target kTargets[] = {
    {"safetensors", readSafetensors}, {"gguf", readGGUF}, {"config.json", readConfig}};

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

  const std::string good[] = {goodSafetensors(), goodGGUF(), goodConfig()};
  for (size_t t = 0; t < std::size(kTargets); ++t) {
    current.target = kTargets[t].name;
    if (!kTargets[t].run(bytesOf(good[t])))
      fail("the good file is refused");
    auto end = std::chrono::steady_clock::now() + std::chrono::milliseconds(1000 * seconds / 3);
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
    std::printf("%-12s %8llu inputs, %llu accepted\n", kTargets[t].name,
                static_cast<unsigned long long>(runs), static_cast<unsigned long long>(accepted));
    if (accepted == 0 || accepted == runs)
      fail("the mutations do not reach both sides of the reader");
  }
  return 0;
}

#endif // EASYQUANT_LIBFUZZER
