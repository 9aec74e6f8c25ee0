//===- FoldersTest.cpp - Folders for what is written ----------------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "easyquant/Support/Folders.h"
#include "easyquant/Support/WriteFile.h"

#include "TestFiles.h"

#include <gtest/gtest.h>

#include <chrono>
#include <thread>

using namespace easyquant;
using test::TemporaryFolder;

TEST(Folders, AreMadeWhereMissing) {
  TemporaryFolder folder;
  for (int i = 0; i < 2; ++i) {
    EXPECT_TRUE(makeFolders(folder / "a/b/c"));
    EXPECT_TRUE(std::filesystem::is_directory(folder / "a/b/c"));
  }
  ASSERT_TRUE(writeFile(folder / "file", "text"));
  EXPECT_ERROR(makeFolders(folder / "file/b"), ErrorCode::IO, "file/b", "Not a directory");
}

TEST(FoldersDeathTest, DoNotComeBackInAProcessThatEnds) {
  TemporaryFolder folder;
  EXPECT_EXIT(
      {
        makeNoMoreFolders();
        std::thread([&] { (void)makeFolders(folder / "late"); }).detach();
        std::this_thread::sleep_for(std::chrono::milliseconds(100));
        std::_Exit(std::filesystem::exists(folder / "late") ? 1 : 0);
      },
      testing::ExitedWithCode(0), "");
}
