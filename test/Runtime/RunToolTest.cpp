//===- RunToolTest.cpp - easyquant-run from the shell -------------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Fixture.h"

#include <algorithm>
#include <gtest/gtest.h>
#include <sys/wait.h>

using namespace easyquant::runtime::test;

namespace {

struct Outcome {
  int status = -1;
  std::string output, errors;
};

class RunToolTest : public testing::Test {
protected:
  void SetUp() override {
    manifest = writeFixtureFiles(folder.path());
    writeManifest(folder.path(), manifest);
  }

  Outcome run(const std::string &arguments) const {
    std::string out = (scratch.path() / "out").string(), err = (scratch.path() / "err").string();
    int status = std::system((EASYQUANT_RUN " " + arguments + " >" + out + " 2>" + err).c_str());
    return {WIFEXITED(status) ? WEXITSTATUS(status) : -1, readFile(out), readFile(err)};
  }

  std::string artifact() const { return folder.path().string(); }

  /// The `count` tokens that follow `tokens` greedily, as easyquant-run prints them.
  static std::string greedy(std::vector<int32_t> tokens, size_t count) {
    std::string text;
    for (size_t i = 0; i < count; ++i) {
      std::vector<double> logits = referenceLogits(FixtureWeights(), tokens);
      auto best = std::max_element(logits.begin(), logits.end()) - logits.begin();
      tokens.push_back(int32_t(best));
      text += (i == 0 ? "" : ",") + std::to_string(best);
    }
    return text + "\n";
  }

  void expectFailure(const std::string &arguments, const std::string &part) const {
    Outcome outcome = run(arguments);
    EXPECT_EQ(outcome.status, 1) << arguments;
    EXPECT_NE(outcome.errors.find(part), std::string::npos) << outcome.errors;
    EXPECT_EQ(outcome.errors.substr(0, 7), "error: ");
  }

  TemporaryFolder folder, scratch;
  nlohmann::json manifest;
};

TEST_F(RunToolTest, GeneratesGreedily) {
  Outcome outcome = run(artifact() + " --tokens 1,5,9,3,7,11 --max-new-tokens 12 --ignore-eos");
  EXPECT_EQ(outcome.status, 0) << outcome.errors;
  EXPECT_EQ(outcome.output, greedy({1, 5, 9, 3, 7, 11}, 12));
  EXPECT_EQ(outcome.errors, "");
  Outcome threads = run(artifact() + " --tokens 1,5,9,3,7,11 --max-new-tokens 12 --ignore-eos "
                                     "--threads 2 --isa avx2 --context 18");
  EXPECT_EQ(threads.output, outcome.output);
  Outcome artifactLast =
      run("--ignore-eos --max-new-tokens 12 --tokens 1,5,9,3,7,11 " + artifact());
  EXPECT_EQ(artifactLast.output, outcome.output) << artifactLast.errors;
}

TEST_F(RunToolTest, StopsAtTheEndOfSequence) {
  std::string generated = greedy({1, 5}, 1);
  manifest["model"]["eos_token_ids"] = {std::stoi(generated)};
  writeManifest(folder.path(), manifest);
  EXPECT_EQ(run(artifact() + " --tokens 1,5").output, generated);
  EXPECT_EQ(run(artifact() + " --tokens 1,5 --ignore-eos --max-new-tokens 4").output,
            greedy({1, 5}, 4));
}

TEST_F(RunToolTest, WritesJson) {
  std::string path = (scratch.path() / "result.json").string();
  Outcome outcome =
      run(artifact() + " --tokens 1,5 --max-new-tokens 3 --ignore-eos --isa avx2 --json " + path);
  ASSERT_EQ(outcome.status, 0) << outcome.errors;
  nlohmann::json result = nlohmann::json::parse(readFile(path));
  EXPECT_EQ(result["prompt"], nlohmann::json({1, 5}));
  EXPECT_EQ(result["generated"], nlohmann::json::parse("[" + greedy({1, 5}, 3) + "]"));
  EXPECT_EQ(result["stopped"], "length");
  EXPECT_EQ(result["isa"], "avx2");
  EXPECT_EQ(result["logits"].size(), size_t(FIXTURE_VOCAB));

  expectFailure(artifact() + " --tokens 1 --json /nonexistent/x.json", "/nonexistent/x.json: ");
}

TEST_F(RunToolTest, HelpShowsAnExample) {
  Outcome outcome = run("--help");
  EXPECT_EQ(outcome.status, 0);
  EXPECT_NE(outcome.output.find("easyquant-run smollm2.eq --tokens 1,2,3"), std::string::npos)
      << outcome.output;
}

TEST_F(RunToolTest, ReportsMistakesWithStatusOne) {
  expectFailure("/nonexistent --tokens 1", "/nonexistent: no such folder");
  expectFailure(artifact(), "--tokens is required");
  expectFailure(artifact() + " --tokens 1,x", "--tokens");
  expectFailure(artifact() + " --tokens 1,99", "tokens[1]: found 99, expected a token id in 0..18");
  expectFailure(artifact() + " --tokens=-1", "tokens[0]: found -1");
  expectFailure(artifact() + " --tokens 99999999999", "--tokens");
  expectFailure(artifact() + " --tokens 1 --isa sse2", "isa: found \"sse2\"");
  expectFailure(artifact() + " --tokens 1 --context 201", "context: found 201 tokens");
  expectFailure(artifact() + " --tokens 1 --threads=-1", "threads: found -1");
  expectFailure(artifact() + " --tokens 1 --max-new-tokens=-1", "--max-new-tokens");
  expectFailure(artifact() + " --tokens 1 --unknown", "--unknown");
}

TEST_F(RunToolTest, SaysWhenTheContextIsFull) {
  Outcome outcome = run(artifact() + " --tokens 1,5 --context 4 --max-new-tokens 9 --ignore-eos");
  EXPECT_EQ(outcome.status, 1);
  EXPECT_EQ(outcome.output, greedy({1, 5}, 3).substr(0, 5)) << "what was generated is printed";
  EXPECT_EQ(outcome.errors.substr(0, 68),
            "error: context overflow: 1 tokens at position 4 do not fit the sessi");
}

} // namespace
