//===- WriteFileTest.cpp - Files written at once --------------------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "easyquant/Support/WriteFile.h"

#include "TestFiles.h"

#include <gtest/gtest.h>

using namespace easyquant;
using test::readFile;
using test::TemporaryFolder;

TEST(WriteFile, CreatesAndReplaces) {
  TemporaryFolder folder;
  for (std::string text : {std::string("a longer text\0 with a zero", 26), std::string("short")}) {
    EXPECT_TRUE(writeFile(folder / "out", text));
    EXPECT_EQ(readFile(folder / "out"), text);
  }
}

TEST(WriteFile, ReportsWhatTheSystemRefuses) {
  TemporaryFolder folder;
  EXPECT_ERROR(writeFile(folder / "no/such/folder", "text"), ErrorCode::IO, "no/such/folder",
               "No such file");
  // More than a stream buffers, and less.
  for (size_t count : {100000, 10})
    EXPECT_ERROR(writeFile("/dev/full", std::string(count, 'x')), ErrorCode::IO, "/dev/full",
                 "No space left on device");
}
