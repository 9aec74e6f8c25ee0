//===- RunToolTest.cpp - easyquant-run from the shell -------------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Fixture.h"

#include "easyquant/Support/Version.h"

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

  /// `before`: a command of the shell, such as a limit.
  Outcome run(const std::string &arguments, const std::string &before = "") const {
    std::string out = (scratch.path() / "out").string(), err = (scratch.path() / "err").string();
    std::string command = before + EASYQUANT_RUN " " + arguments + " >" + out + " 2>" + err;
    int status = std::system(command.c_str());
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
  Outcome threads = run(artifact() +
                        " --tokens 1,5,9,3,7,11 --max-new-tokens 12 --ignore-eos "
                        "--threads 2 --context 18 --isa " +
                        kIsa);
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
  Outcome outcome = run(artifact() + " --tokens 1,5 --max-new-tokens 3 --ignore-eos --json " +
                        path + " --isa " + kIsa);
  ASSERT_EQ(outcome.status, 0) << outcome.errors;
  nlohmann::json result = nlohmann::json::parse(readFile(path));
  EXPECT_EQ(result["prompt"], nlohmann::json({1, 5}));
  EXPECT_EQ(result["generated"], nlohmann::json::parse("[" + greedy({1, 5}, 3) + "]"));
  EXPECT_EQ(result["stopped"], "length");
  EXPECT_EQ(result["isa"], kIsa);
  EXPECT_EQ(result["logits"].size(), size_t(FIXTURE_VOCAB));

  expectFailure(artifact() + " --tokens 1 --json /nonexistent/x.json",
                "/nonexistent/x.json: cannot write: No such file or directory");
}

TEST_F(RunToolTest, ReplacesJsonAtOnceOrNotAtAll) {
  const std::string path = (scratch.path() / "result.json").string();
  writeFile(path, "what was there before");
  std::string prompt = "1";
  for (int i = 1; i < FIXTURE_MAX_CONTEXT; ++i)
    prompt += ",17";
  const std::string options = artifact() + " --max-new-tokens 1 --json " + path + " --tokens ";
  // Two blocks of 512 bytes in a file: enough for standard output, and for libomp.
  Outcome outcome = run(options + prompt, "ulimit -f 2; ");
  EXPECT_EQ(outcome.status, 1);
  EXPECT_EQ(outcome.errors, "error: " + path + ": cannot write: File too large\n");
  EXPECT_EQ(readFile(path), "what was there before");
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(scratch.path()), {}), 3);
  ASSERT_EQ(run(options + prompt).status, 0);
  EXPECT_EQ(nlohmann::json::parse(readFile(path))["prompt"].size(), size_t(FIXTURE_MAX_CONTEXT));
}

TEST_F(RunToolTest, SaysWhyNothingCanBePrinted) {
  const std::string err = (scratch.path() / "err").string();
  const std::string command = EASYQUANT_RUN " " + artifact() + " --tokens 1 >/dev/full 2>" + err;
  EXPECT_EQ(WEXITSTATUS(std::system(command.c_str())), 1);
  EXPECT_EQ(readFile(err), "error: standard output: cannot write: No space left on device\n");
}

/// A prompt of 50 steps that take 30 ms each.
static const std::string kSlowly = "export FIXTURE_ATTENTION_NANOSECONDS=30000000; ";
static const std::string kLongPrompt = [] {
  std::string prompt = " --max-new-tokens 1 --tokens 1";
  for (int i = 1; i < FIXTURE_MAX_CONTEXT; ++i)
    prompt += ",5";
  return prompt;
}();

TEST_F(RunToolTest, ShowsPrefillOnATerminal) {
  Outcome piped = run(artifact() + kLongPrompt, kSlowly);
  EXPECT_EQ(piped.errors, "");
  const std::string out = (scratch.path() / "terminal").string();
  std::system((kSlowly + "script -qec '" EASYQUANT_RUN " " + artifact() + kLongPrompt +
               "' /dev/null >" + out + " </dev/null")
                  .c_str());
  std::string shown = readFile(out);
  EXPECT_NE(shown.find("\rprefill: "), std::string::npos) << shown;
  EXPECT_NE(shown.find(" of 200 tokens\r\033[K"), std::string::npos) << shown;
  // What takes less than a second shows nothing.
  std::system(("script -qec '" EASYQUANT_RUN " " + artifact() + kLongPrompt + "' /dev/null >" +
               out + " </dev/null")
                  .c_str());
  EXPECT_EQ(readFile(out).find("prefill"), std::string::npos);
}

TEST_F(RunToolTest, EndsOnInterrupt) {
  const std::string path = (scratch.path() / "result.json").string();
  // 130: ended by SIGINT, as a shell tells it.
  Outcome outcome = run(artifact() + kLongPrompt + " --json " + path,
                        kSlowly + "timeout --preserve-status -s INT 0.3 ");
  EXPECT_EQ(outcome.status, 130);
  EXPECT_EQ(outcome.output + outcome.errors, "");
  EXPECT_FALSE(std::filesystem::exists(path));
}

TEST_F(RunToolTest, HelpShowsAnExample) {
  Outcome outcome = run("--help");
  EXPECT_EQ(outcome.status, 0);
  EXPECT_NE(outcome.output.find("easyquant-run smollm2.eq --tokens 1,2,3"), std::string::npos)
      << outcome.output;
}

TEST_F(RunToolTest, SaysItsVersion) {
  Outcome outcome = run("--version");
  EXPECT_EQ(outcome.status, 0);
  EXPECT_EQ(outcome.output, "easyquant-run " EASYQUANT_VERSION "\n");
}

TEST_F(RunToolTest, EscapesPathsInItsMessages) {
  Outcome outcome = run("\"$(printf '/none\\nwhere')\" --tokens 1");
  EXPECT_EQ(outcome.status, 1);
  EXPECT_NE(outcome.errors.find("error: /none\\nwhere: no such folder"), std::string::npos)
      << outcome.errors;
  EXPECT_EQ(std::ranges::count(outcome.errors, '\n'), 1);
}

TEST_F(RunToolTest, ReportsMistakesWithStatusOne) {
  expectFailure(artifact() + " --tokens 1 --comm-timeout 0", "--comm-timeout");
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

TEST_F(RunToolTest, BoundsThreadsByTheCpus) {
  // taskset gives the process one CPU, wherever this runs.
  const std::string one = "taskset -c $(taskset -pc $$ | sed 's/.*: //;s/[-,].*//') ";
  Outcome refused = run(artifact() + " --tokens 1 --threads 9", one);
  EXPECT_EQ(refused.status, 1);
  EXPECT_EQ(refused.errors, "error: threads: found 9, expected 1..8 (8 for each CPU that the "
                            "process may run on), or 0 for one a CPU\n");
  Outcome most = run(artifact() + " --tokens 1,5 --max-new-tokens 2 --ignore-eos --threads 8", one);
  EXPECT_EQ(most.output, greedy({1, 5}, 2)) << most.errors;
  expectFailure(artifact() + " --tokens 1 --threads 100000000", "threads: found 100000000");
}

#if !__has_feature(address_sanitizer) && !__has_feature(thread_sanitizer)
TEST_F(RunToolTest, SaysWhereMemoryEnds) {
  int named = 0;
  for (int number = 2; number < 2000; number += 1 + number / 4) {
    Outcome outcome = run(artifact() + " --tokens 1,5 --max-new-tokens 2 --ignore-eos",
                          "LD_PRELOAD=" FAILING_NEW " FAIL_NEW=" + std::to_string(number) + " ");
    if (outcome.status == 0)
      continue;
    EXPECT_EQ(outcome.status, 1) << number << ": " << outcome.errors;
    EXPECT_EQ(outcome.errors.substr(0, 7), "error: ") << number << ": " << outcome.errors;
    EXPECT_NE(outcome.errors.find("out of memory"), std::string::npos) << outcome.errors;
    named += outcome.errors.find(artifact() + ": out of memory") != std::string::npos;
  }
  EXPECT_GT(named, 3);
}
#endif

#if !__has_feature(address_sanitizer) && !__has_feature(thread_sanitizer) // which map terabytes
TEST_F(RunToolTest, ThreadsWithoutMemoryAreAnError) {
  // From where the program can be loaded to where all of its threads have their stacks. libomp
  // aborts where it does not get one, so it may not come to that.
  int ran = 0, refused = 0;
  for (int megabytes = 40; ran == 0 && megabytes < 2000; megabytes += megabytes / 4) {
    Outcome outcome =
        run(artifact() + " --tokens 1,5 --max-new-tokens 2 --ignore-eos --threads 8",
            "export KMP_BLOCKTIME=0; ulimit -v " + std::to_string(megabytes * 1024) + "; ");
    if (outcome.status == 127) // the dynamic linker's
      continue;
    ran += outcome.status == 0;
    refused += outcome.errors.starts_with("error: threads: the system grants ");
    if (outcome.status == 0)
      EXPECT_EQ(outcome.output, greedy({1, 5}, 2));
    else
      EXPECT_TRUE(outcome.status == 1 && outcome.errors.starts_with("error: "))
          << megabytes << " MB: status " << outcome.status << ", " << outcome.errors;
  }
  EXPECT_GT(refused, 0);
  EXPECT_EQ(ran, 1);
}
#endif

TEST_F(RunToolTest, SaysWhenTheContextIsFull) {
  Outcome outcome = run(artifact() + " --tokens 1,5 --context 4 --max-new-tokens 9 --ignore-eos");
  EXPECT_EQ(outcome.status, 1);
  EXPECT_EQ(outcome.output, greedy({1, 5}, 3).substr(0, 5)) << "what was generated is printed";
  EXPECT_EQ(outcome.errors.substr(0, 68),
            "error: context overflow: 1 tokens at position 4 do not fit the conte");
}

} // namespace
