//===- BroadcastFileTest.cpp - Files for ranks that lack them -------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "easyquant/Comm/BroadcastFile.h"

#include "../Support/TestFiles.h"
#include "Ranks.h"

#include <gtest/gtest.h>

#include <random>

using namespace easyquant;
using namespace easyquant::comm;
using namespace easyquant::comm::test;
using easyquant::test::putFile;
using easyquant::test::readFile;
using easyquant::test::TemporaryFolder;

static std::string randomBytes(size_t count) {
  std::mt19937 random(static_cast<unsigned>(count));
  std::string bytes(count, '\0');
  for (char &byte : bytes)
    byte = static_cast<char>(random());
  return bytes;
}

static size_t filesIn(const std::filesystem::path &folder) {
  return static_cast<size_t>(std::distance(std::filesystem::directory_iterator(folder), {}));
}

TEST(BroadcastFile, EveryRankGetsEveryByte) {
  constexpr int64_t kChunk = 64;
  for (size_t bytes : {0, 1, 63, 64, 65, 64 * 4, 64 * 9 + 7})
    for (int size : {1, 2, 3, 5}) {
      TemporaryFolder folder;
      const std::string text = randomBytes(bytes);
      putFile(folder / "source", text);
      onRanks(size, [&](Communicator &communicator) {
        const std::string own = (folder / std::to_string(communicator.rank())).string();
        ASSERT_VALUE(broadcastFile(communicator, (folder / "source").string(),
                                   communicator.rank() == 2 ? "" : own, /*root=*/0, kChunk));
      });
      for (int rank = 1; rank < size; ++rank)
        if (rank != 2) {
          EXPECT_EQ(readFile(folder / std::to_string(rank)), text)
              << bytes << " bytes, rank " << rank;
        }
      EXPECT_EQ(filesIn(folder.path), size_t(size < 3 ? size : size - 1));
    }
}

TEST(BroadcastFile, FromAnyRank) {
  for (int size : {1, 2, 3, 5})
    for (int root = 0; root < size; ++root) {
      TemporaryFolder folder;
      const std::string text = randomBytes(1000);
      const auto own = [&](int rank) { return (folder / std::to_string(rank)).string(); };
      putFile(own(root), text);
      onRanks(size, [&](Communicator &communicator) {
        const std::string path = own(communicator.rank());
        ASSERT_VALUE(broadcastFile(communicator, path, path, root, 64));
      });
      for (int rank = 0; rank < size; ++rank)
        EXPECT_EQ(readFile(own(rank)), text) << "rank " << rank << " of " << size;
    }
}

TEST(BroadcastFile, AFileThatIsNotThereIsAnErrorOnEveryRank) {
  TemporaryFolder folder;
  onRanks(3, [&](Communicator &communicator) {
    const std::string own = (folder / std::to_string(communicator.rank())).string();
    EXPECT_ERROR(broadcastFile(communicator, (folder / "none").string(), own), ErrorCode::IO,
                 "none", "cannot open");
  });
  EXPECT_EQ(filesIn(folder.path), 0u);
}

TEST(BroadcastFile, ARankThatCannotWriteIsNamedAndNothingStays) {
  TemporaryFolder folder;
  putFile(folder / "source", randomBytes(1000));
  onRanks(3, [&](Communicator &communicator) {
    const std::string own = communicator.rank() == 1
                                ? (folder / "no" / "where").string()
                                : (folder / std::to_string(communicator.rank())).string();
    auto result = broadcastFile(communicator, (folder / "source").string(), own, /*root=*/0, 64);
    EXPECT_ERROR(result, ErrorCode::IO, "where", "cannot create");
    if (communicator.rank() != 1) {
      EXPECT_NE(result.error().message.find("rank 1: "), std::string::npos);
    }
  });
  EXPECT_EQ(filesIn(folder.path), 1u);
}

TEST(BroadcastFolder, AppearsWhole) {
  TemporaryFolder folder;
  std::filesystem::create_directories(folder / "model" / "more");
  putFile(folder / "model" / "config.json", "{}");
  putFile(folder / "model" / "empty", "");
  putFile(folder / "model" / "more" / "weights", randomBytes(3000));
  onRanks(3, [&](Communicator &communicator) {
    const std::string own = (folder / std::to_string(communicator.rank())).string();
    ASSERT_VALUE(broadcastFolder(communicator, (folder / "model").string(), own, 100));
    // Where something is already, nothing is written, and all learn who it was.
    EXPECT_ERROR(broadcastFolder(communicator, (folder / "model").string(), own), ErrorCode::IO,
                 communicator.rank() == 1 ? "another folder" : "rank 1: ");
  });
  for (const char *rank : {"1", "2"}) {
    EXPECT_EQ(readFile(folder / rank / "config.json"), "{}");
    EXPECT_EQ(readFile(folder / rank / "more" / "weights"), randomBytes(3000));
    EXPECT_TRUE(std::filesystem::exists(folder / rank / "empty"));
  }
  EXPECT_FALSE(std::filesystem::exists(folder / "0"));
}
