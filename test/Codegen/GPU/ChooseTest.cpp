//===- ChooseTest.cpp - Tokens chosen on a simulated GPU ------------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Kernels choose the tokens that RowReader chooses, which SamplingTest.cpp compares with the
// definition.
//
//===----------------------------------------------------------------------===//

#include "SimtRunner.h"

#include "DeviceLogits.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>

using namespace easyquant;
using namespace easyquant::gpu;
using runtime::Draw;
using runtime::RowReader;

namespace {

/// The three kernels of a vocabulary, and what they keep of rows.
class Chooser {
public:
  explicit Chooser(int64_t vocabulary, ChipId chip = ChipId::SM80)
      : vocabulary(vocabulary), library(chip), keep(library.add(KeepLogitsSpec{vocabulary})),
        weigh(library.add(WeighLogitsSpec{vocabulary})),
        choose(library.add(ChooseTokensSpec{vocabulary})) {}

  /// Puts rows into places from `slot` on.
  void keepRows(const std::vector<std::vector<float>> &rows, int64_t slot, simt::Checks checks) {
    std::vector<float> all(vocabulary, 1e30f); // of a row that is not asked for
    for (const std::vector<float> &row : rows)
      all.insert(all.end(), row.begin(), row.end());
    DeviceBuffer<float> logits(device, all, "logits");
    const std::vector<uint64_t> none(kSlots);
    ASSERT_TRUE(device.copyIn(greatest.address(), none.data(), kSlots * sizeof(uint64_t)));
    run(device, library, keep, std::ssize(rows),
        {{"logits", logits},
         {"kept", kept},
         {"greatest", greatest},
         {"first_row", 1},
         {"first_slot", slot}},
        checks);
  }

  std::vector<int32_t> tokensOf(const std::vector<formats::TokenChoice> &choices,
                                const std::vector<formats::ChoiceSetting> &settings,
                                simt::Checks checks) {
    const int64_t blocks = (vocabulary + formats::kLogitBlock - 1) / formats::kLogitBlock;
    DeviceBuffer<formats::TokenChoice> asked(device, choices, "choices");
    DeviceBuffer<formats::ChoiceSetting> known(device, settings, "settings");
    DeviceBuffer<float> tops(device, choices.size() * blocks, "tops");
    DeviceBuffer<float> sums(device, choices.size() * blocks, "sums");
    DeviceBuffer<int32_t> tokens(device, choices.size(), "tokens");
    std::map<std::string, Argument> arguments = {{"kept", kept},     {"greatest", greatest},
                                                 {"choices", asked}, {"settings", known},
                                                 {"tops", tops},     {"sums", sums}};
    for (const Description *kernel : {&weigh, &choose}) {
      if (kernel == &choose)
        arguments.emplace("tokens", tokens);
      const simt::Statistics statistics =
          run(device, library, *kernel, std::ssize(choices), arguments, checks);
      for (const auto &[kind, traffic] : statistics.traffic)
        EXPECT_FALSE(kind.starts_with("local")) << kernel->name;
    }
    return tokens.read();
  }

  const int64_t vocabulary;
  static constexpr int64_t kSlots = 16;
  KernelLibrary library;
  const Description keep, weigh, choose;
  simt::Device device;
  DeviceBuffer<float> kept{device, static_cast<size_t>(kSlots * formats::keptLogits(vocabulary)),
                           "kept"};
  DeviceBuffer<uint64_t> greatest{device, std::vector<uint64_t>(kSlots), "greatest"};
};

std::vector<float> randomRow(std::mt19937 &random, int64_t count, float spread, float step) {
  std::normal_distribution<float> normal(0, spread);
  std::vector<float> row(count);
  for (float &x : row)
    x = std::round(normal(random) / step) * step; // with ties
  return row;
}

/// Rows with ties, outliers and what is nearly alike; their logits are finite.
std::vector<std::vector<float>> rowsOf(std::mt19937 &random, int64_t count) {
  constexpr float huge = std::numeric_limits<float>::max();
  const auto size = static_cast<size_t>(count);
  std::vector<std::vector<float>> rows = {
      randomRow(random, count, 3, 1.0f / 64), randomRow(random, count, 1, 0.5f),
      randomRow(random, count, 30, 1.0f / 8), randomRow(random, count, 0.01f, 1e-4f),
      std::vector<float>(size, 1.5f),         std::vector<float>(size, -huge),
      std::vector<float>(size, 0.0f),         randomRow(random, count, 5, 1.0f / 1024)};
  rows[5][random() % size] = huge; // one-hot
  for (size_t i = 0; i < size; ++i)
    rows[6][i] = i % 2 ? 0.0f : -0.0f;
  for (size_t i = 0; i < size; i += 7)
    rows[7][i] = -1e30f;
  return rows;
}

class ChooseOnDevice : public testing::TestWithParam<int64_t> {};

TEST_P(ChooseOnDevice, KeepsRowsAndTheirGreatestLogits) {
  const int64_t vocabulary = GetParam();
  std::mt19937 random(11);
  Chooser chooser(vocabulary);
  std::vector<std::vector<float>> rows = rowsOf(random, vocabulary);
  const auto place = static_cast<size_t>(vocabulary - 1 - random() % 3);
  rows[1][place] = std::numeric_limits<float>::quiet_NaN();
  rows[2][0] = std::numeric_limits<float>::infinity();
  rows[3][place] = -std::numeric_limits<float>::infinity();
  const auto isBad = [](size_t row) { return row >= 1 && row <= 3; };
  constexpr int64_t slot = 5;
  chooser.keepRows(rows, slot, simt::Checks::All);
  const std::vector<float> kept = chooser.kept.read();
  const std::vector<uint64_t> greatest = chooser.greatest.read();
  for (size_t i = 0; i < greatest.size(); ++i)
    if (i < slot || i >= slot + rows.size())
      EXPECT_EQ(greatest[i], 0u);
  for (size_t i = 0; i < rows.size(); ++i) {
    SCOPED_TRACE(i);
    const float *copy = kept.data() + (slot + i) * formats::keptLogits(vocabulary);
    EXPECT_EQ(std::memcmp(copy, rows[i].data(), vocabulary * sizeof(float)), 0);
    const formats::GreatestLogit found{greatest[slot + i]};
    ASSERT_EQ(found.isFinite(), !isBad(i));
    if (isBad(i))
      continue;
    const auto expected = std::max_element(rows[i].begin(), rows[i].end());
    EXPECT_EQ(found.logit(), *expected);
    EXPECT_EQ(found.token(), expected - rows[i].begin());
  }
  EXPECT_EQ(chooser.kept.unwritten(),
            Chooser::kSlots * formats::keptLogits(vocabulary) - rows.size() * vocabulary);
}

TEST_P(ChooseOnDevice, TokensAreThoseOfTheHost) {
  const int64_t vocabulary = GetParam();
  std::mt19937 random(vocabulary);
  auto pick = [&](auto... values) {
    const double all[] = {static_cast<double>(values)...};
    return all[random() % sizeof...(values)];
  };
  Chooser chooser(vocabulary);
  const bool isLarge = vocabulary > 10000;
  RowReader reader(vocabulary);
  std::map<std::string, int> chosen, left;
  for (int round = 0; round < (isLarge ? 1 : 3); ++round) {
    std::vector<std::vector<float>> rows = rowsOf(random, vocabulary);
    chooser.keepRows(rows, 3, simt::Checks::None);
    std::vector<formats::TokenChoice> choices;
    std::vector<formats::ChoiceSetting> settings;
    std::vector<eq_choice> asked;
    std::vector<std::string> kinds;
    for (int i = 0; i < (isLarge ? 30 : 90); ++i) {
      eq_choice choice = {};
      choice.sequence = static_cast<int64_t>(random() % rows.size());
      choice.temperature = pick(0.1, 0.8, 1, 1, 5, 1e-30, 1e30, 1e60);
      choice.top_k = static_cast<int64_t>(pick(0, 0, 0, 2, 20, 50, 64, 200, vocabulary - 1, 1e9));
      choice.top_p = pick(1, 1, 0.95, 0.9, 0.5, 0.999999, 1e-9);
      choice.min_p = pick(0, 0, 0.05, 0.3, 1);
      choice.seed = random();
      choice.position = static_cast<int64_t>(random() % 4096);
      const auto setting = runtime::settingOnDevice(choice, vocabulary);
      if (!setting || Draw(choice, vocabulary).isGreedy)
        continue;
      const double u = runtime::uniformAt(choice.seed, static_cast<uint64_t>(choice.position));
      choices.push_back(formats::TokenChoice::of(u, std::ssize(settings), 3 + choice.sequence));
      settings.push_back(*setting);
      asked.push_back(choice);
      kinds.push_back(setting->topK > 0 ? "top-k" : setting->topP < 1 ? "top-p" : "row");
    }
    const std::vector<int32_t> tokens = chooser.tokensOf(
        choices, settings, round == 0 && !isLarge ? simt::Checks::All : simt::Checks::None);
    for (size_t i = 0; i < asked.size(); ++i) {
      const eq_choice &choice = asked[i];
      if (tokens[i] == formats::kLeftToHost) {
        ++left[kinds[i]];
        continue;
      }
      ++chosen[kinds[i]];
      EXPECT_EQ(tokens[i], reader.choose(rows[choice.sequence].data(), choice, choice.position))
          << "row " << choice.sequence << ", temperature " << choice.temperature << ", top-k "
          << choice.top_k << ", top-p " << choice.top_p << ", min-p " << choice.min_p;
    }
  }
  // Not so that nothing is compared: what has few candidates is chosen.
  EXPECT_EQ(left["row"], 0);
  for (std::string kind : {"row", "top-k", "top-p"}) // one token has no top-k
    EXPECT_GT(chosen[kind], vocabulary == 1 && kind == "top-k" ? -1 : isLarge ? 0 : 3) << kind;
  if (vocabulary <= ChooseTokensSpec::kMostCandidates) {
    EXPECT_EQ(left["top-k"], 0);
    EXPECT_EQ(left["top-p"], 0);
  } else {
    EXPECT_GT(left["top-k"] + left["top-p"], 0);
  }
}

INSTANTIATE_TEST_SUITE_P(Vocabularies, ChooseOnDevice,
                         testing::Values(1, 97, 512, 2049, 4096, 32000));

TEST(ChangesOnDevice, LogitsAreThoseOfTheHost) {
  constexpr int64_t vocabulary = 333;
  constexpr float huge = std::numeric_limits<float>::max();
  std::mt19937 random(5);
  KernelLibrary library;
  const Description kernel = library.add(ChangeLogitsSpec{vocabulary});
  const std::vector<std::vector<float>> rows = rowsOf(random, vocabulary);
  std::vector<float> logits;
  for (const std::vector<float> &row : rows)
    logits.insert(logits.end(), row.begin(), row.end());
  auto pick = [&](auto... values) {
    const double all[] = {static_cast<double>(values)...};
    return all[random() % sizeof...(values)];
  };
  std::vector<formats::LogitChange> changes;
  std::vector<float> expected = logits;
  for (int32_t row = 0; row < std::ssize(rows); ++row)
    for (int32_t token = row; token < vocabulary; token += 3) {
      formats::LogitChange change{.repetition = pick(1, 1.3, 0.01, 100, 1.0000001),
                                  .shift = pick(0, 0.7, -1e6, 1e6, 3 * 0.1 + 0.2),
                                  .bias = static_cast<float>(pick(0, -0.3, 1e6, -1e6)),
                                  .token = token,
                                  .row = row};
      changes.push_back(change);
      float &x = expected[row * vocabulary + token];
      x = change.of(x);
    }
  simt::Device device;
  DeviceBuffer<float> x(device, logits, "logits");
  DeviceBuffer<formats::LogitChange> table(device, changes, "changes");
  run(device, library, kernel, std::ssize(changes), {{"logits", x}, {"changes", table}});
  const std::vector<float> found = x.read();
  EXPECT_EQ(std::memcmp(found.data(), expected.data(), expected.size() * sizeof(float)), 0);
  EXPECT_EQ(std::ranges::count(found, huge), std::ranges::count(expected, huge));
}

// A random number that is next to the end of a token's share, on both sides.
TEST(ChooseManyOnDevice, AroundTheEndsOfShares) {
  constexpr int64_t vocabulary = 200;
  std::mt19937 random(3);
  Chooser chooser(vocabulary);
  const std::vector<float> row = randomRow(random, vocabulary, 1, 1.0f / 64);
  chooser.keepRows({row}, 0, simt::Checks::None);
  eq_choice choice = {};
  choice.temperature = choice.top_p = 1;
  RowReader reader(vocabulary);
  const formats::ChoiceSetting setting = *runtime::settingOnDevice(choice, vocabulary);
  // Many draws: between two neighbours there is the end of a share.
  std::vector<formats::TokenChoice> choices;
  std::vector<int32_t> expected;
  for (int64_t position = 0; position < 400; ++position) {
    choices.push_back(formats::TokenChoice::of(runtime::uniformAt(9, position), 0, 0));
    expected.push_back(reader.choose(
        row.data(),
        [&] {
          eq_choice own = choice;
          own.seed = 9;
          return own;
        }(),
        position));
  }
  EXPECT_EQ(chooser.tokensOf(choices, {setting}, simt::Checks::None), expected);
}

} // namespace
