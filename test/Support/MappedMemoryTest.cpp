//===- MappedMemoryTest.cpp - Memory from the system ------------------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "easyquant/Support/MappedMemory.h"
#include "easyquant/Support/AvailableMemory.h"

#include "TestFiles.h"

#include <gtest/gtest.h>

#include <limits>
#include <sys/stat.h>

using namespace easyquant;
using test::putFile;
using test::TemporaryFolder;

TEST(MappedFile, HasTheBytesOfAFile) {
  TemporaryFolder folder;
  putFile(folder / "file", "some bytes");
  putFile(folder / "empty", "");
  Result<MappedFile> file = MappedFile::open(folder / "file");
  ASSERT_VALUE(file);
  EXPECT_EQ(file->text(), "some bytes");
  file->release(file->bytes());
  MappedFile moved = std::move(*file);
  EXPECT_EQ(moved.text(), "some bytes");
  EXPECT_TRUE(file->bytes().empty());
  EXPECT_TRUE(MappedFile::open(folder / "empty")->bytes().empty());
}

TEST(MappedFile, RefusesWhatIsNoFile) {
  TemporaryFolder folder;
  EXPECT_ERROR(MappedFile::open(folder / "none"), ErrorCode::NotFound, "none: cannot open");
  EXPECT_ERROR(MappedFile::open(folder.path), ErrorCode::Unsupported, "not a regular file");
  ASSERT_EQ(::mkfifo((folder / "pipe").c_str(), 0600), 0);
  EXPECT_ERROR(MappedFile::open(folder / "pipe"), ErrorCode::Unsupported, "not a regular file");
}

TEST(Buffer, IsZeroedAndGivenBack) {
  Result<Buffer> buffer = Buffer::allocate(10 * Buffer::kPage, "test", "do less");
  ASSERT_VALUE(buffer);
  EXPECT_EQ(buffer->size(), 10 * Buffer::kPage);
  for (int64_t i = 0; i < buffer->size(); ++i)
    ASSERT_EQ(buffer->data()[i], std::byte(0));
  *buffer->data<int32_t>() = 7;
  Buffer moved = std::move(*buffer);
  EXPECT_EQ(*moved.data<int32_t>(), 7);
  EXPECT_EQ(buffer->size(), 0);
  EXPECT_NE(Buffer::allocate(0, "test", "do less")->data(), nullptr) << "has an address";
  EXPECT_ERROR(Buffer::allocate(std::numeric_limits<int64_t>::max() / 2, "cache", "do less"),
               ErrorCode::OutOfRange, "cache: the system has not got the", "; do less");
}

TEST(MappedRange, HoldsFilesOneBehindAnother) {
  TemporaryFolder folder;
  const size_t page = Buffer::kPage;
  putFile(folder / "a", std::string(page, '-') + std::string(page, 'a'));
  putFile(folder / "b", "bb");
  Result<MappedFile> a = MappedFile::open(folder / "a"), b = MappedFile::open(folder / "b");
  ASSERT_VALUE(a);
  ASSERT_VALUE(b);
  Result<MappedRange> range = MappedRange::reserve(2 * page, "test");
  ASSERT_VALUE(range);
  EXPECT_TRUE(range->map(0, *a, page, page));
  EXPECT_TRUE(range->map(page, *b, 0, 2));
  const auto *text = reinterpret_cast<const char *>(range->data());
  EXPECT_EQ(std::string(text, page + 2), std::string(page, 'a') + "bb");

  putFile(folder / "b", "longer");
  EXPECT_ERROR(range->map(page, *b, 0, 2), ErrorCode::Corrupt, "changed while it was opened");
}

TEST(MappedRange, KeepsItsBytesInLargePages) {
  TemporaryFolder folder;
  const size_t page = Buffer::kPage, length = (size_t(7) << 20) + 5 * page + 3;
  std::string bytes(page + length, '\0');
  for (size_t i = 0; i < bytes.size(); ++i)
    bytes[i] = static_cast<char>(i * i / 251);
  putFile(folder / "file", bytes);
  Result<MappedFile> file = MappedFile::open(folder / "file");
  ASSERT_VALUE(file);
  Result<MappedRange> range = MappedRange::reserve((length + page - 1) / page * page, "test");
  ASSERT_VALUE(range);
  ASSERT_TRUE(range->map(0, *file, page, length));
  const std::byte *before = range->data();
  range->moveToLargePages();
  EXPECT_EQ(range->data(), before);
  EXPECT_TRUE(std::equal(before, before + length, file->bytes().data() + page));

  // What was moved is no part of the file any more; what does not fill a large page still is.
  putFile(folder / "file", std::string(bytes.size(), 'x'));
  EXPECT_TRUE(
      std::equal(before + (size_t(2) << 20), before + (size_t(5) << 20),
                 reinterpret_cast<const std::byte *>(bytes.data()) + page + (size_t(2) << 20)));
}

TEST(AvailableMemory, IsSomeOfTheMachines) {
  EXPECT_GT(availableMemory(), int64_t(1) << 20);
  EXPECT_LT(availableMemory(), int64_t(1) << 50);
}
