//===- RanksTest.cpp - Models on several ranks ----------------------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Threads of this process are the ranks of the fixture model.
//
//===----------------------------------------------------------------------===//

#include "Fixture.h"
#include "easyquant/Comm/Open.h"
#include "easyquant/Runtime/Session.h"

#include <fstream>
#include <gtest/gtest.h>
#include <thread>

using namespace easyquant;
using namespace easyquant::runtime;
using namespace easyquant::runtime::test;

namespace {

using Lead = std::function<void(std::shared_ptr<const Model>)>;

class RanksTest : public testing::Test {
protected:
  void SetUp() override {
    nlohmann::json manifest = writeFixtureFiles(folder.path());
    writeManifest(alone.path(), writeFixtureFiles(alone.path()));
    for (const char *name : {"weights.0.safetensors", "weights.1.safetensors"}) {
      std::filesystem::copy_file(folder.path() / "weights.safetensors", folder.path() / name);
      manifest["files"][name] = manifest["files"]["weights.safetensors"];
    }
    std::filesystem::remove(folder.path() / "weights.safetensors");
    manifest["files"].erase("weights.safetensors");
    manifest["program"]["tensor_parallel"] = nlohmann::json::parse(
        R"({"degree": 2, "collectives": [{"call": "all_reduce", "reduction": "sum", "type": "f32",
            "columns": 19, "site": "lm_head"}]})");
    writeManifest(folder.path(), manifest);
  }

  /// Loads the model on so many ranks. Rank 0 then does `lead`, the others follow. The error of
  /// each rank, or an empty string.
  std::vector<std::string> run(int count, const Lead &lead) {
    auto communicators = comm::makeThreadCommunicators(count, {std::chrono::seconds(20), nullptr});
    std::vector<std::string> errors(count);
    std::vector<std::thread> ranks;
    for (int rank = 0; rank < count; ++rank)
      ranks.emplace_back([&, rank] {
        DeviceRequest request;
        request.device = "cpu";
        request.communicator = std::move(communicators[rank]);
        auto model = Model::load(folder.path().string(), kIsa, false, request);
        Result<void> done = model ? Result<void>() : Unexpected(model.error());
        if (model && rank == 0)
          lead(std::move(*model));
        else if (model)
          done = (*model)->follow(1);
        if (!done)
          errors[rank] = done.error().message;
      });
    for (std::thread &rank : ranks)
      rank.join();
    return errors;
  }

  static void append(Batch &batch, int64_t sequence, const std::vector<int32_t> &tokens) {
    Batch::Item item = {sequence, tokens};
    Result<void> done = batch.append({&item, 1});
    EXPECT_TRUE(done.has_value() && item.result.has_value())
        << (done ? item.result : done).error().message;
  }

  static std::vector<float> logitsOf(const Session &session) {
    return {session.logits(), session.logits() + FIXTURE_VOCAB};
  }

  TemporaryFolder folder, alone;
};

} // namespace

TEST_F(RanksTest, TwoGiveTheLogitsOfOne) {
  auto play = [](std::shared_ptr<const Model> model) {
    std::vector<std::vector<float>> logits;
    Session session = std::move(Session::create(std::move(model), 0, 1).value());
    for (const std::vector<int32_t> &tokens :
         {std::vector<int32_t>{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11}, {12}, {13}}) {
      Result<void> done = session.prefill(tokens);
      EXPECT_TRUE(done.has_value()) << done.error().message;
      logits.push_back(logitsOf(session));
    }
    EXPECT_TRUE(session.truncate(4).has_value());
    EXPECT_TRUE(session.prefill(std::vector<int32_t>{3}).has_value());
    logits.push_back(logitsOf(session));
    return logits;
  };
  auto one = play(*Model::load(alone.path().string(), kIsa, false));
  std::vector<std::vector<float>> two;
  auto errors = run(2, [&](std::shared_ptr<const Model> model) {
    EXPECT_EQ(model->rank(), 0);
    EXPECT_EQ(model->rankCount(), 2);
    two = play(std::move(model));
  });
  EXPECT_EQ(errors, std::vector<std::string>(2));
  EXPECT_EQ(one, two);
}

TEST_F(RanksTest, BatchesComeAndGo) {
  auto errors = run(2, [&](std::shared_ptr<const Model> model) {
    BatchOptions options;
    options.sequences = 3;
    for (int round = 0; round < 2; ++round) {
      Batch batch = std::move(Batch::create(model, options).value());
      auto first = batch.add().value();
      append(batch, first, {1, 2, 3, 4, 5});
      auto second = batch.fork(first).value(); // copies what it writes
      for (auto sequence : {first, second})
        append(batch, sequence, {7});
      EXPECT_TRUE(std::equal(batch.logits(first), batch.logits(first) + FIXTURE_VOCAB,
                             batch.logits(second)));
    }
  });
  EXPECT_EQ(errors, std::vector<std::string>(2));
}

TEST_F(RanksTest, AnotherNumberIsAnErrorOnEach) {
  for (const std::string &error : run(3, [](auto) { FAIL() << "loaded"; }))
    EXPECT_NE(error.find("was compiled for 2 ranks, found 3; start 2"), std::string::npos) << error;
  auto one = Model::load(folder.path().string(), kIsa, false);
  ASSERT_FALSE(one.has_value());
  EXPECT_NE(one.error().message.find("was compiled for 2 ranks, found one"), std::string::npos)
      << one.error().message;
}

TEST_F(RanksTest, DamagedWeightsOfOneEndAll) {
  std::fstream file(folder.path() / "weights.1.safetensors",
                    std::ios::binary | std::ios::in | std::ios::out);
  file.seekp(-1, std::ios::end);
  file.put('x');
  file.close();
  auto errors = run(2, [&](auto) { FAIL() << "loaded"; });
  EXPECT_NE(errors[0].find("weights.1.safetensors: damaged"), std::string::npos) << errors[0];
  EXPECT_NE(errors[1].find("weights.1.safetensors: damaged"), std::string::npos) << errors[1];
}
