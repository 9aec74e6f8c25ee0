//===- ManifestTest.cpp - Every field of a manifest is checked ------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "easyquant/Formats/Manifest.h"
#include "easyquant/Support/Version.h"

#include "TestFiles.h"

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

using namespace easyquant;
using namespace easyquant::formats;
using nlohmann::json;

namespace {

/// With every field that there can be.
const char *const kGood = R"({
  "format": "easyquant-artifact", "format_version": 3, "easyquant_version": "0.1.0",
  "target": "cpu",
  "model": {"architecture": "llama", "vocab_size": 19, "max_context": 64, "hidden_size": 5,
            "intermediate_size": 5, "num_layers": 1, "num_heads": 1, "num_kv_heads": 1,
            "head_dim": 5, "bos_token_id": null, "eos_token_ids": [2], "parameters": 190},
  "source": {"kind": "test", "name": "small", "xxh3_128": "00112233445566778899aabbccddeeff",
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
  "program": {"abi": 8, "cache_type": "f32", "cache_scheme": null, "max_rows": 8,
              "arena_bytes": 640, "arena_bytes_per_thread": 64, "cache": {"page_tokens": 64, "page_bytes": 2560, "window_bytes": 128},
              "entries": {"avx2": "easyquant_step_avx2",
                          "avx512vnni": "easyquant_step_avx512vnni"}},
  "files": {
    "model.so": {"bytes": 1, "xxh3_128": "00112233445566778899aabbccddeeff"},
    "weights.safetensors": {"bytes": 2, "xxh3_128": "00112233445566778899aabbccddeeff"},
    "tokenizer.json": {"bytes": 3, "xxh3_128": "00112233445566778899aabbccddeeff"}}
})";

class ManifestTest : public testing::Test {
protected:
  void SetUp() override { manifest = json::parse(kGood); }

  /// With what else there can be: GPUs, a cache of codes, static inputs in groups, a calibration.
  void addAll() {
    manifest["target"] = "sm_80,sm_90a,cpu";
    manifest["gpu"] = json::parse(R"({"abi": 3, "program": "program.gpu.json", "fatbin": null,
      "later": "sm_80", "weights_bytes": 640, "max_rows": 8, "cache_type": "f16", "drafts": true, "chips": {},
      "cache": {"page_tokens": 64, "page_bytes": 4096, "window_bytes": 0}})");
    for (const char *chip : {"sm_80", "sm_90a"})
      manifest["gpu"]["chips"][chip] = {{"ptx", ptxFileName(chip)},
                                        {"machine_code", false},
                                        {"kernels", 3},
                                        {"launches", 9},
                                        {"arena_bytes", 0}};
    for (const char *file :
         {"program.gpu.json", "kernels.sm_80.ptx", "kernels.sm_90a.ptx",
          "weights.gpu.0-00001-of-00002.safetensors", "weights.gpu.0-00002-of-00002.safetensors",
          "weights.gpu.1-00001-of-00002.safetensors", "weights.gpu.1-00002-of-00002.safetensors"})
      manifest["files"][file] = manifest["files"]["tokenizer.json"];
    manifest["model"]["bos_token_id"] = 1;
    manifest["program"]["cache_scheme"] = json::parse(
        R"({"bits": 4, "group_size": 64, "residual": 128, "sinks": 4, "keys": "post-rope",
            "key_scales": "channel"})");
    manifest["online"] = {{"decay", 0.9}, {"window", 4}, {"tokens", 8}, {"start", {0.5, 0.25}}};
    addRanks();
    manifest["sites"][1]["input"] = json::parse(
        R"({"bits": 8, "codes": "integer", "granularity": "group", "group_size": 32, "symmetric": false,
            "dynamic": false, "outer": "tensor", "sinks": "keep"})");
    manifest["sites"][1]["weight"]["outer"] = "tensor";
    manifest["sites"][1]["weight"]["minima"] = true;
    manifest["quantization"].update(json::parse(
        R"({"fallbacks": [{"name": "a", "reason": "too wide"}], "activations": "static",
            "transforms": [{"method": "awq", "sites": ["a"], "alpha": 0.5},
                           {"method": "awq", "sites": ["b"], "skipped": "no norm"}],
            "calibration": {"samples": "16"}, "observer_percentile": 99.9,
            "kv": {"scheme": "int4", "group": 64}})"));
  }

  /// Two that share the model.
  void addRanks() {
    manifest["program"]["tensor_parallel"] = json::parse(
        R"({"degree": 2, "collectives": [
            {"call": "all_reduce", "reduction": "max", "type": "f32", "columns": 1, "site": "a"},
            {"call": "all_reduce", "reduction": "sum", "type": "i32", "columns": 5, "site": "a"},
            {"call": "all_gather", "reduction": null, "type": "f32", "columns": 20, "site": "lm_head"}]})");
    for (const char *file : {"weights.0.safetensors", "weights.1.safetensors"})
      manifest["files"][file] = manifest["files"]["tokenizer.json"];
  }

  Result<Manifest> parse() const { return parseManifest(manifest.dump(), "m.json"); }

  /// Sets the field at `pointer` to `value` and expects an error that begins with `message`.
  void expectRefused(const char *pointer, const json &value, const std::string &message,
                     ErrorCode code = ErrorCode::Corrupt) const {
    json changed = manifest;
    changed[json::json_pointer(pointer)] = value;
    Result<Manifest> result = parseManifest(changed.dump(), "m.json");
    ASSERT_FALSE(result.has_value()) << pointer << " = " << value;
    EXPECT_EQ(result.error().code, code) << result.error().message;
    EXPECT_EQ(result.error().message.substr(0, message.size()), message);
  }

  json manifest;
};

TEST_F(ManifestTest, EachRankHasItsWeights) {
  EXPECT_EQ(parse()->ranks(), 1);
  addRanks();
  Result<Manifest> result = parse();
  ASSERT_TRUE(result.has_value()) << result.error().message;
  EXPECT_EQ(result->ranks(), 2);
  EXPECT_EQ(result->weightFiles(1), std::vector<std::string>{"weights.1.safetensors"});
  const auto &collectives = result->program.tensorParallel->collectives;
  ASSERT_EQ(collectives.size(), 3u);
  EXPECT_EQ(collectives[1].reduction, Reduction::Sum);
  EXPECT_EQ(collectives[2].reduction, std::nullopt);
  const std::string at = "/program/tensor_parallel/collectives/0/";
  expectRefused((at + "call").c_str(), "gather",
                "m.json: program.tensor_parallel.collectives[0].call: found \"gather\", expected "
                "\"all_reduce\" or \"all_gather\"");
  expectRefused((at + "reduction").c_str(), "mean",
                "m.json: program.tensor_parallel.collectives[0].reduction: found \"mean\"");
  expectRefused((at + "columns").c_str(), 0,
                "m.json: program.tensor_parallel.collectives[0].columns: found 0");
  expectRefused("/program/tensor_parallel/degree", 3,
                "m.json: files: found no entry for weights.2.safetensors");
  expectRefused("/program/tensor_parallel/degree", 0,
                "m.json: program.tensor_parallel.degree: found 0");
}

TEST_F(ManifestTest, ReadsWhatTheRuntimeNeeds) {
  manifest["model"]["bos_token_id"] = 1;
  Result<Manifest> result = parse();
  ASSERT_TRUE(result.has_value()) << result.error().message;
  EXPECT_EQ(result->model.architecture, "llama");
  EXPECT_EQ(result->model.vocabSize, 19);
  EXPECT_EQ(result->model.maxContext, 64);
  EXPECT_EQ(result->model.bosTokenId, std::optional<int64_t>(1));
  EXPECT_EQ(result->model.eosTokenIds, std::vector<int64_t>{2});
  EXPECT_EQ(result->program.entries.at("avx2"), "easyquant_step_avx2");
  EXPECT_EQ(result->program.maxRows, 8);
  EXPECT_EQ(result->program.arenaBytes, 640);
  EXPECT_EQ(result->program.arenaBytesPerThread, 64);
  EXPECT_EQ(result->program.cache.sizes, (CacheSizes{64, 2560, 128}));
  EXPECT_EQ(result->files.size(), 3u);
}

TEST_F(ManifestTest, IsWrittenAsItWasRead) {
  for (bool all : {false, true}) {
    if (all)
      addAll();
    Result<Manifest> read = parse();
    ASSERT_VALUE(read);
    const std::string text = manifestText(*read);
    EXPECT_EQ(json::parse(text), manifest);
    Result<Manifest> again = parseManifest(text, "again.json");
    ASSERT_VALUE(again);
    EXPECT_EQ(*again, *read);
  }
}

TEST_F(ManifestTest, PartsAreReadAsTheyWereWritten) {
  addAll();
  Result<Manifest> whole = parse();
  ASSERT_VALUE(whole);
  Json program = partJson(whole->program);
  Result<Manifest::Program> read = readPart<Manifest::Program>(program, "program");
  ASSERT_VALUE(read);
  EXPECT_EQ(*read, whole->program);
  Result<Cache> cache = readPart<Cache>(partJson(whole->program.cache), "cache");
  ASSERT_VALUE(cache);
  EXPECT_EQ(*cache, whole->program.cache);
  EXPECT_ERROR(readPart<Cache>(program, "launch.cache"), ErrorCode::InvalidArgument, "launch.cache",
               "sizes", "nothing", "an object");
}

TEST_F(ManifestTest, PartsHaveNoFieldWithoutAMember) {
  addAll();
  auto read = [&] {
    Result<Json> parts = Json::parseObject(manifest.dump(), "module");
    return readManifestParts(*parts, "module");
  };
  for (const char *key : {"format", "format_version", "easyquant_version", "target", "files"})
    manifest.erase(key);
  ASSERT_VALUE(read());
  EXPECT_EQ(read()->quantization.options.size(), 3u) << "the recipe's own keys";
  manifest["sites"][1]["colour"] = "red";
  EXPECT_ERROR(read(), ErrorCode::InvalidArgument, "module: sites[1]: unknown key 'colour'");
}

TEST_F(ManifestTest, IgnoresFieldsItDoesNotKnow) {
  manifest["recipe"] = {{"anything", {1, 2, 3}}};
  manifest["model"]["rope_theta"] = 10000.0;
  EXPECT_TRUE(parse().has_value());
}

TEST_F(ManifestTest, NamesBothVersionsAndTheRemedy) {
  manifest["format_version"] = 4;
  manifest["easyquant_version"] = "9.9.9";
  manifest["program"] = "whatever version 3 means by it";
  Result<Manifest> result = parse();
  ASSERT_FALSE(result.has_value());
  EXPECT_EQ(result.error().code, ErrorCode::Unsupported);
  EXPECT_EQ(result.error().message,
            "m.json: format_version: found 4 (written by EasyQuant \"9.9.9\"), expected 3 "
            "(EasyQuant " EASYQUANT_VERSION
            "); recompile the model with this version of EasyQuant (easyquant compile MODEL -o OUT "
            "--recipe recipe.json, the recipe that is beside it)");
}

TEST_F(ManifestTest, ReadsWhatThereIsForGpus) {
  addAll();
  Result<Manifest> result = parse();
  ASSERT_TRUE(result.has_value()) << result.error().message;
  ASSERT_TRUE(result->gpu.has_value());
  EXPECT_EQ(result->gpu->chips.at("sm_90a").ptxFile, "kernels.sm_90a.ptx");
  EXPECT_EQ(result->gpu->weightsBytes, 640);
  EXPECT_FALSE(result->gpu->fatbinFile);
  EXPECT_EQ(result->gpuWeightFiles(1),
            (std::vector<std::string>{"weights.gpu.1-00001-of-00002.safetensors",
                                      "weights.gpu.1-00002-of-00002.safetensors"}));
  EXPECT_EQ(result->weightFiles(), std::vector<std::string>{"weights.0.safetensors"});

  expectRefused("/gpu/abi", 2, "m.json: gpu.abi: found 2, expected 3 ", ErrorCode::Unsupported);
  expectRefused("/gpu/later", "sm_86", "m.json: gpu.later: found \"sm_86\", ");
  expectRefused("/gpu/chips/sm_80/machine_code", 1,
                "m.json: gpu.chips.sm_80.machine_code: found 1, ");
  expectRefused("/gpu/chips/sm_80/launches", -1, "m.json: gpu.chips.sm_80.launches: found -1, ");
  expectRefused("/gpu/fatbin", "kernels.fatbin",
                "m.json: files: found no entry for kernels.fatbin");
  expectRefused("/gpu/chips/sm_80/machine_code", true,
                "m.json: gpu.fatbin: found null, expected the machine code of sm_80");
  expectRefused("/gpu/weights_bytes", -1, "m.json: gpu.weights_bytes: found -1, ");

  // Without a program for CPUs nothing of it is needed.
  manifest["program"]["entries"] = json::object();
  manifest["files"].erase("model.so");
  manifest["files"].erase("weights.safetensors");
  EXPECT_TRUE(parse().has_value());
}

TEST_F(ManifestTest, RefusesWrongValuesByName) {
  expectRefused("/format", "gguf", "m.json: format: found \"gguf\", expected ");
  expectRefused("/format_version", "1", "m.json: format_version: found \"1\", expected ");
  expectRefused("/program/abi", 9, "m.json: program.abi: found 9, expected 8 ",
                ErrorCode::Unsupported);
  expectRefused("/program/cache_scheme", "int4",
                "m.json: program.cache_scheme: found \"int4\", expected an object or null");
  expectRefused("/target", "cuda", "m.json: target: found \"cuda\", expected cpu, aarch64 or GPUs",
                ErrorCode::Unsupported);
  expectRefused("/model/vocab_size", 0,
                "m.json: model.vocab_size: found 0, expected an integer in");
  expectRefused("/model/vocab_size", 19.5, "m.json: model.vocab_size: found 19.5, ");
  expectRefused("/model/max_context", int64_t(1) << 40, "m.json: model.max_context: found ");
  expectRefused("/model/max_context", -1, "m.json: model.max_context: found -1, ");
  expectRefused("/model/bos_token_id", 19,
                "m.json: model.bos_token_id: found 19, expected an "
                "integer in 0..18");
  expectRefused("/model/eos_token_ids", 2, "m.json: model.eos_token_ids: found 2, ");
  expectRefused("/model/eos_token_ids", {1, -1}, "m.json: model.eos_token_ids[1]: found -1, ");
  expectRefused("/program/max_rows", 0, "m.json: program.max_rows: found 0, ");
  expectRefused("/program/arena_bytes", UINT64_MAX,
                "m.json: program.arena_bytes: found 18446744073709551615, ");
  expectRefused("/program/entries", json::object(), "m.json: program.entries: found no entry, ");
  expectRefused("/program/entries/avx2", "../x", "m.json: program.entries.avx2: found \"../x\", ");
  expectRefused("/sites/1/weight", 8, "m.json: sites[1].weight: found 8, ");
  expectRefused("/sites/1/weight/bits", 64, "m.json: sites[1].weight.bits: found 64, ");
  expectRefused("/sites/0/weight_error", "small", "m.json: sites[0].weight_error: found \"small\"");
  expectRefused("/sites/0/tensor", nullptr, "m.json: sites[0].tensor: found null, ");
  expectRefused("/sites/0/first_row", -1, "m.json: sites[0].first_row: found -1, ");
  expectRefused("/sites/1/input/dynamic", 1, "m.json: sites[1].input.dynamic: found 1, ");
  expectRefused("/sites/1/input/granularity", "group",
                "m.json: sites[1].input.group_size: found nothing, ");
  expectRefused("/sites/0", nullptr, "m.json: sites[0]: found null, ");
  expectRefused("/quantization/ignore/0", 3, "m.json: quantization.ignore[0]: found 3, ");
  expectRefused("/source/stored_types/F32", -2, "m.json: source.stored_types.F32: found -2, ");
  expectRefused("/files/model.so/xxh3_128", "00FF", "m.json: files[\"model.so\"].xxh3_128: found ");
  expectRefused("/files/model.so", "x", "m.json: files[\"model.so\"]: found \"x\", ");
}

TEST_F(ManifestTest, RefusesFileNamesThatLeadOutOfTheFolder) {
  for (const char *name : {"../secret", "/etc/passwd", "..", ".", "", "a/b", "manifest.json"}) {
    json changed = manifest;
    changed["files"][name] = changed["files"]["model.so"];
    Result<Manifest> result = parseManifest(changed.dump(), "m.json");
    ASSERT_FALSE(result.has_value()) << name;
    EXPECT_NE(result.error().message.find("plain name"), std::string::npos);
  }
}

/// Removes each field in turn, wherever it is; "files" of the tokenizer may go.
void expectEachRemovalRefused(const json &root, const json::json_pointer &at) {
  const json &object = root[at];
  for (auto &[key, value] : object.items()) {
    json changed = root;
    changed[at].erase(object.is_array() ? json(std::stoul(key)).dump() : key);
    json::json_pointer child = at / key;
    bool optional = at.to_string() == "/program/entries" ||
                    at.to_string() == "/source/stored_types" ||
                    child.to_string() == "/files/tokenizer.json";
    Result<Manifest> result = parseManifest(changed.dump(), "m.json");
    EXPECT_EQ(result.has_value(), optional) << child.to_string();
    if (!result.has_value())
      EXPECT_NE(result.error().message.find(key), std::string::npos) << result.error().message;
    if (value.is_object())
      expectEachRemovalRefused(root, child);
  }
}

TEST_F(ManifestTest, RefusesAMissingFieldByName) {
  expectEachRemovalRefused(manifest, json::json_pointer());
  json site = manifest["sites"][1];
  for (auto &[key, value] : site.items()) {
    json changed = manifest;
    changed["sites"][1].erase(key);
    Result<Manifest> result = parseManifest(changed.dump(), "m.json");
    ASSERT_FALSE(result.has_value()) << key;
    EXPECT_NE(result.error().message.find("sites[1]." + key), std::string::npos);
  }
}

TEST_F(ManifestTest, RefusesWhatIsNoJson) {
  std::string text = manifest.dump();
  for (const std::string &bad :
       {std::string(), std::string("\0\0\0", 3), text.substr(0, text.size() / 2), text + "}",
        std::string("[1, 2]"), std::string("\xff\xfe{}"), std::string("{\"format\": 1e999}"),
        std::string(100000, '[')}) {
    Result<Manifest> result = parseManifest(bad, "m.json");
    ASSERT_FALSE(result.has_value()) << bad.substr(0, 40);
    EXPECT_EQ(result.error().code, ErrorCode::Corrupt);
    EXPECT_EQ(result.error().message.substr(0, 8), "m.json: ");
  }
}

} // namespace
