//===- ProgramTest.cpp - Instruction sets and shared objects ------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Fixture.h"
#include "easyquant/Runtime/Session.h"

#include <gtest/gtest.h>

using namespace easyquant;
using namespace easyquant::runtime;
using namespace easyquant::runtime::test;
namespace fs = std::filesystem;

namespace {

using Entries = std::map<std::string, std::string>;

const Entries kBoth = {{"avx2", "a"}, {"avx512vnni", "b"}};
const CpuFeatures kNone = {{}, &formats::kProcessors[0]};
const CpuFeatures kAvx2 = {{"AVX2", "FMA", "F16C"}, &formats::kProcessors[0]};
const CpuFeatures kAvx512 = {
    {"AVX2", "FMA", "F16C", "AVX512F", "AVX512BW", "AVX512DQ", "AVX512VL", "AVX512VNNI"},
    &formats::kProcessors[0]};
const CpuFeatures kCortexA76 = {{"LSE", "DotProd"}, &formats::kProcessors[1]};
const CpuFeatures kNeoverseV1 = {{"LSE", "DotProd", "I8MM"}, &formats::kProcessors[1]};

void expectRefused(const Result<std::string> &result, ErrorCode code, const std::string &message) {
  ASSERT_FALSE(result.has_value()) << *result;
  EXPECT_EQ(result.error().code, code);
  EXPECT_EQ(result.error().message, message);
}

TEST(SelectIsa, TakesTheBestThatTheCpuHas) {
  EXPECT_EQ(selectIsa("auto", kBoth, kAvx512, "m").value(), "avx512vnni");
  EXPECT_EQ(selectIsa("", kBoth, kAvx2, "m").value(), "avx2");
  EXPECT_EQ(selectIsa("auto", {{"avx2", "a"}}, kAvx512, "m").value(), "avx2");
  // AVX-512 without VNNI, as Skylake-X has it, is not enough.
  CpuFeatures skylake = kAvx512;
  skylake.present.erase("AVX512VNNI");
  EXPECT_EQ(selectIsa("auto", kBoth, skylake, "m").value(), "avx2");
}

TEST(SelectIsa, TakesWhatIsAskedFor) {
  EXPECT_EQ(selectIsa("avx2", kBoth, kAvx512, "m").value(), "avx2");
  EXPECT_EQ(selectIsa("avx512vnni", kBoth, kAvx512, "m").value(), "avx512vnni");
}

TEST(SelectIsa, NamesWhatTheCpuLacks) {
  expectRefused(selectIsa("auto", kBoth, kNone, "m"), ErrorCode::Unsupported,
                "m: this CPU cannot run it: avx512vnni needs AVX2, FMA, F16C, AVX512F, AVX512BW, "
                "AVX512DQ, AVX512VL, AVX512VNNI; avx2 needs AVX2, FMA, F16C that the CPU does not "
                "have; run it on an x86-64 CPU with AVX2, FMA and F16C");
  CpuFeatures noFma = kAvx2;
  noFma.present.erase("FMA");
  expectRefused(selectIsa("avx2", kBoth, noFma, "m"), ErrorCode::Unsupported,
                "isa: avx2 needs FMA, which this CPU does not have; choose auto");
  expectRefused(selectIsa("avx512vnni", kBoth, kAvx2, "m"), ErrorCode::Unsupported,
                "isa: avx512vnni needs AVX512F, AVX512BW, AVX512DQ, AVX512VL, AVX512VNNI, which "
                "this CPU does not have; choose auto");
}

TEST(SelectIsa, NamesWhatTheArtifactLacks) {
  expectRefused(selectIsa("sse2", kBoth, kAvx512, "m"), ErrorCode::InvalidArgument,
                "isa: found \"sse2\", expected auto, avx2 or avx512vnni");
  expectRefused(selectIsa("avx512vnni", {{"avx2", "a"}}, kAvx512, "m"), ErrorCode::Unsupported,
                "m: not compiled for avx512vnni but for avx2; choose one of those, or recompile");
  expectRefused(selectIsa("auto", {{"amx", "a"}}, kAvx512, "m"), ErrorCode::Unsupported,
                "m: program.entries: found amx, expected avx2 or avx512vnni");
}

TEST(SelectIsa, KnowsWhatAProcessorCanRun) {
  const formats::Processor &x86 = formats::kProcessors[0], &arm = formats::kProcessors[1];
  EXPECT_TRUE(hasCodeFor(x86, kBoth));
  EXPECT_FALSE(hasCodeFor(arm, kBoth));
  EXPECT_TRUE(hasCodeFor(arm, {{"avx2", "a"}, {"neon-dot", "c"}}));
  EXPECT_FALSE(hasCodeFor(x86, {{"neon-dot", "c"}}));
  EXPECT_FALSE(hasCodeFor(x86, {{"amx", "a"}}));
  EXPECT_FALSE(hasCodeFor(x86, {}));
}

TEST(SelectIsa, TellsProcessorsApart) {
  const Entries all = {{"avx2", "a"}, {"avx512vnni", "b"}, {"neon-dot", "c"}, {"neon-i8mm", "d"}};
  EXPECT_EQ(selectIsa("auto", all, kCortexA76, "m").value(), "neon-dot");
  EXPECT_EQ(selectIsa("auto", all, kNeoverseV1, "m").value(), "neon-i8mm");
  EXPECT_EQ(selectIsa("neon-dot", all, kNeoverseV1, "m").value(), "neon-dot");
  expectRefused(selectIsa("neon-i8mm", all, kCortexA76, "m"), ErrorCode::Unsupported,
                "isa: neon-i8mm needs I8MM, which this CPU does not have; choose auto");
  EXPECT_EQ(selectIsa("auto", all, kAvx512, "m").value(), "avx512vnni");
  expectRefused(selectIsa("auto", kBoth, kCortexA76, "m"), ErrorCode::Unsupported,
                "m: has code for x86_64 (avx2, avx512vnni), and this machine is aarch64; compile "
                "the model with `easyquant compile … --target aarch64`");
  expectRefused(selectIsa("auto", {{"neon-dot", "c"}}, kAvx2, "m"), ErrorCode::Unsupported,
                "m: has code for aarch64 (neon-dot), and this machine is x86_64; compile the model "
                "with `easyquant compile … --target x86_64`");
  expectRefused(selectIsa("neon-dot", all, kAvx2, "m"), ErrorCode::Unsupported,
                "isa: neon-dot is code for aarch64, and this machine is x86_64; choose auto");
  expectRefused(selectIsa("neon-i8mm", {{"avx2", "a"}, {"neon-dot", "c"}}, kAvx2, "m"),
                ErrorCode::Unsupported,
                "isa: neon-i8mm is code for aarch64, and this machine is x86_64; choose auto");
  expectRefused(selectIsa("avx512vnni", {{"avx2", "a"}, {"neon-dot", "c"}}, kAvx512, "m"),
                ErrorCode::Unsupported,
                "m: not compiled for avx512vnni but for avx2; choose one of those, or recompile");
  // Nothing is to be chosen where all code is for another processor.
  for (const char *isa : {"avx2", "avx512vnni", "neon-dot"})
    EXPECT_EQ(selectIsa(isa, kBoth, kCortexA76, "m").error().message,
              selectIsa("auto", kBoth, kCortexA76, "m").error().message)
        << isa;
  expectRefused(selectIsa("sse2", all, kCortexA76, "m"), ErrorCode::InvalidArgument,
                "isa: found \"sse2\", expected auto, neon-dot or neon-i8mm");
  const CpuFeatures cortexA72 = {{}, &formats::kProcessors[1]};
  expectRefused(selectIsa("auto", all, cortexA72, "m"), ErrorCode::Unsupported,
                "m: this CPU cannot run it: neon-i8mm needs LSE, DotProd, I8MM; neon-dot needs "
                "LSE, DotProd that the CPU does not have; run it on an Armv8.2 CPU with "
                "the dot product, such as a Cortex-A76");
}

class ProgramTest : public testing::Test {
protected:
  void SetUp() override { manifest = writeFixtureFiles(folder.path()); }

  void expectLoadError(ErrorCode code, const std::string &part) {
    writeManifest(folder.path(), manifest);
    auto model = Model::load(folder.path().string(), kIsa, false);
    ASSERT_FALSE(model.has_value());
    EXPECT_EQ(model.error().code, code) << model.error().message;
    EXPECT_NE(model.error().message.find(part), std::string::npos) << model.error().message;
  }

  TemporaryFolder folder;
  nlohmann::json manifest;
};

TEST_F(ProgramTest, NamesAMissingEntry) {
  manifest["program"]["entries"][kIsa] = "easyquant_step_neon";
  expectLoadError(ErrorCode::Corrupt, kProgramFile + ": does not define "
                                                     "easyquant_step_neon, which the manifest "
                                                     "lists");
}

TEST_F(ProgramTest, RefusesWhatIsNoSharedObject) {
  std::string original = readFile(folder.path() / kProgramFile);
  for (const std::string &bytes :
       {std::string("#!/bin/sh\n"), std::string(), original.substr(0, 100)}) {
    writeFile(folder.path() / kProgramFile, bytes);
    manifest["files"][kProgramFile] = fileEntry(folder.path() / kProgramFile);
    expectLoadError(ErrorCode::Corrupt, kProgramFile + ": cannot be loaded as a shared object: ");
  }
}

/// What the model in `folder` predicts after one token, whose logits tell the weights apart.
float firstLogit(const Model &model) {
  auto session = Session::create(std::shared_ptr<const Model>(&model, [](auto *) {}), 16, 1);
  EXPECT_TRUE(session.has_value() && session->prefill(std::vector<int32_t>{3}).has_value());
  return session->logits()[1];
}

TEST_F(ProgramTest, AReplacedArtifactIsLoadedAnewWhileTheOldOneLives) {
  writeManifest(folder.path(), manifest);
  auto old = Model::load(folder.path().string(), kIsa, false);
  ASSERT_TRUE(old.has_value()) << old.error().message;
  float before = firstLogit(**old);

  // As the compiler does it: a new folder takes the place of the old one.
  fs::path path = folder.path() / kProgramFile;
  TemporaryFolder other;
  FixtureWeights weights(7);
  nlohmann::json replacement = writeFixtureFiles(other.path(), weights);
  replacement["program"]["entries"][kIsa] = "easyquant_step_second";
  fs::copy_file(FIXTURE_SECOND_MODEL, other.path() / kProgramFile,
                fs::copy_options::overwrite_existing);
  replacement["files"][kProgramFile] = fileEntry(other.path() / kProgramFile);
  for (const char *name : {kProgramFile.c_str(), "weights.safetensors"}) {
    fs::copy_file(other.path() / name, folder.path() / "temporary");
    fs::rename(folder.path() / "temporary", folder.path() / name);
  }
  writeManifest(folder.path(), replacement);

  // Only the new code has this entry.
  auto fresh = Model::load(folder.path().string(), kIsa, false);
  ASSERT_TRUE(fresh.has_value()) << fresh.error().message;
  EXPECT_NEAR(firstLogit(**fresh), referenceLogits(weights, {3})[1], 1e-5);
  EXPECT_EQ(firstLogit(**old), before);
}

TEST_F(ProgramTest, ModelsComeAndGo) {
  // Worker threads of OpenMP outlive the program that started them.
  writeManifest(folder.path(), manifest);
  for (int round = 0; round < 3; ++round) {
    auto model = Model::load(folder.path().string(), kIsa, false);
    ASSERT_TRUE(model.has_value()) << model.error().message;
    auto session = Session::create(*model, 0, 2);
    ASSERT_TRUE(session.has_value());
    std::vector<int32_t> tokens = randomTokens(9, 1);
    std::vector<float> logits(tokens.size() * FIXTURE_VOCAB);
    ASSERT_TRUE(session->score(tokens, logits.data()).has_value());
    EXPECT_NEAR(session->logits()[0], referenceLogits(FixtureWeights(), tokens)[0], 1e-4);
  }
}

} // namespace
