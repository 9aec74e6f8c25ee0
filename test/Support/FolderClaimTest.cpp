//===- FolderClaimTest.cpp - A folder that one process holds --------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "easyquant/Support/FolderClaim.h"
#include "easyquant/Support/WriteFile.h"

#include "TestFiles.h"

#include <gtest/gtest.h>

#include <csignal>
#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

using namespace easyquant;
using test::TemporaryFolder;

TEST(FolderClaim, HasOneHolder) {
  TemporaryFolder folder;
  const auto place = folder / "out.partial";
  {
    auto first = FolderClaim::take(place);
    ASSERT_TRUE(first && *first);
    auto second = FolderClaim::take(place);
    ASSERT_TRUE(second);
    EXPECT_FALSE(*second);
    EXPECT_EQ(FolderClaim::holderOf(place), "process " + std::to_string(::getpid()));
  }
  EXPECT_FALSE(std::filesystem::exists(place));
  EXPECT_TRUE(*FolderClaim::take(place)) << "released";
}

TEST(FolderClaim, LeavesWhatOthersPutThere) {
  TemporaryFolder folder;
  std::filesystem::create_directory(folder / "out.partial");
  ASSERT_TRUE(writeFile(folder / "out.partial/thesis", "years of work"));
  {
    ASSERT_TRUE(*FolderClaim::take(folder / "out.partial"));
  }
  EXPECT_TRUE(std::filesystem::exists(folder / "out.partial/thesis"));
  EXPECT_FALSE(std::filesystem::exists(folder / "out.partial/lock"));
}

TEST(FolderClaim, IsAFolder) {
  TemporaryFolder folder;
  ASSERT_TRUE(writeFile(folder / "file", ""));
  std::filesystem::create_symlink("nowhere", folder / "link");
  std::filesystem::create_symlink(".", folder / "link-to-folder");
  for (const char *name : {"file", "link", "link-to-folder"})
    EXPECT_ERROR(FolderClaim::take(folder / name), ErrorCode::Unsupported, name, "no folder",
                 "remove it");
  EXPECT_ERROR(FolderClaim::take(folder / "missing/out.partial"), ErrorCode::IO,
               "missing/out.partial", "No such file");
}

TEST(FolderClaim, EndsWithItsProcess) {
  TemporaryFolder folder;
  const auto place = folder / "out.partial";
  int ready[2];
  ASSERT_EQ(::pipe(ready), 0);
  pid_t child = ::fork();
  if (child == 0) {
    auto claim = FolderClaim::take(place);
    (void)writeFile(place / "left", "");
    [[maybe_unused]] ssize_t written = ::write(ready[1], "", 1);
    ::pause();
  }
  char byte;
  ASSERT_EQ(::read(ready[0], &byte, 1), 1);
  EXPECT_FALSE(*FolderClaim::take(place));
  ::kill(child, SIGKILL);
  ::waitpid(child, nullptr, 0);
  EXPECT_TRUE(*FolderClaim::take(place));
  EXPECT_TRUE(std::filesystem::exists(place / "left")) << "for the next to look at";
}

/// Taken, held and released by four processes at once: never by two at a time.
TEST(FolderClaim, IsExclusiveUnderContention) {
  TemporaryFolder folder;
  const auto place = folder / "out.partial";
  const std::string mark = (folder / "mark").string();
  std::vector<pid_t> children;
  for (int i = 0; i < 4; ++i)
    if (pid_t child = ::fork(); child != 0) {
      children.push_back(child);
    } else {
      for (int held = 0; held < 100;) {
        auto claim = FolderClaim::take(place);
        if (!claim)
          ::_exit(2);
        if (!*claim)
          continue;
        int file = ::open(mark.c_str(), O_CREAT | O_EXCL | O_WRONLY, 0600);
        if (file < 0)
          ::_exit(1);
        ::close(file);
        ::unlink(mark.c_str());
        ++held;
      }
      ::_exit(0);
    }
  for (pid_t child : children) {
    int status = -1;
    ::waitpid(child, &status, 0);
    EXPECT_EQ(status, 0) << "256: two held it; 512: an error";
  }
  EXPECT_FALSE(std::filesystem::exists(place));
}
