//===- SafetensorsWriterTest.cpp - Streaming safetensors files ------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "easyquant/Formats/SafetensorsWriter.h"

#include "TestFiles.h"

#include <csignal>
#include <gtest/gtest.h>
#include <sys/resource.h>

using namespace easyquant;
using namespace easyquant::formats;
using namespace easyquant::formats::test;

static std::vector<SafetensorsWriter::Tensor> someTensors() {
  return {{"first", "F32", {2, 3}}, {"none", "I8", {0, 7}}, {"a \"quoted\" näme", "U8", {5}}};
}

static Result<void> writeSome(const std::filesystem::path &path) {
  Result<SafetensorsWriter> writer =
      SafetensorsWriter::create(path, someTensors(), {{"format", "easyquant"}});
  if (!writer)
    return Unexpected(writer.error());
  std::string floats = rawAll<float>({0, 1, 2, 3, 4, 5});
  for (std::string_view piece :
       {std::string_view(floats).substr(0, 5), std::string_view(floats).substr(5)})
    if (Result<void> done = writer->write("first", bytesOf(piece)); !done)
      return done;
  if (Result<void> done = writer->write("a \"quoted\" näme", bytesOf("12345")); !done)
    return done;
  return writer->finish();
}

TEST(SafetensorsWriter, IsReadBack) {
  TemporaryFolder folder;
  Result<void> written = writeSome(folder / "out");
  ASSERT_VALUE(written);
  Result<SafetensorsFile> file = SafetensorsFile::open(folder / "out");
  ASSERT_VALUE(file);
  EXPECT_EQ(file->dataOffset() % SafetensorsWriter::kDataAlignment, 0);
  EXPECT_EQ(file->metadata().at("format"), "easyquant");
  ASSERT_EQ(file->tensors().size(), 3u);
  const SafetensorsTensor *first = file->find("first"), *last = file->find("a \"quoted\" näme");
  ASSERT_TRUE(first && last && file->find("none"));
  EXPECT_EQ(first->shape, (std::vector<int64_t>{2, 3}));
  EXPECT_EQ(file->find("none")->shape, (std::vector<int64_t>{0, 7}));
  std::span<const std::byte> bytes = file->data(*first);
  EXPECT_EQ(std::string(reinterpret_cast<const char *>(bytes.data()), bytes.size()),
            rawAll<float>({0, 1, 2, 3, 4, 5}));
  bytes = file->data(*last);
  EXPECT_EQ(std::string(reinterpret_cast<const char *>(bytes.data()), bytes.size()), "12345");
}

TEST(SafetensorsWriter, WritesTheSameBytesTwice) {
  TemporaryFolder folder;
  ASSERT_TRUE(writeSome(folder / "a"));
  ASSERT_TRUE(writeSome(folder / "b"));
  EXPECT_EQ(readFile(folder / "a"), readFile(folder / "b"));
}

TEST(SafetensorsWriter, PadsHeadersOfAnyLength) {
  TemporaryFolder folder;
  for (size_t length : {1, 900, 1000}) {
    for (size_t count : {size_t(0), size_t(1), size_t(4), size_t(5)}) {
      std::vector<SafetensorsWriter::Tensor> tensors;
      for (size_t i = 0; i < count; ++i)
        tensors.push_back({std::string(length, static_cast<char>('a' + i)), "U8", {0}});
      Result<SafetensorsWriter> writer = SafetensorsWriter::create(folder / "out", tensors);
      ASSERT_VALUE(writer);
      ASSERT_TRUE(writer->finish());
      Result<SafetensorsFile> file = SafetensorsFile::open(folder / "out");
      ASSERT_VALUE(file);
      EXPECT_EQ(file->dataOffset() % 4096, 0);
      EXPECT_EQ(file->tensors().size(), count);
    }
  }
}

TEST(SafetensorsWriter, SaysWhereTensorsLie) {
  TemporaryFolder folder;
  Result<SafetensorsWriter> writer = SafetensorsWriter::create(folder / "out", someTensors());
  ASSERT_VALUE(writer);
  EXPECT_EQ(writer->dataOffset(), 4096);
  ASSERT_EQ(writer->tensors().size(), 3u);
  EXPECT_EQ(writer->tensors()[0].end, 24);
  EXPECT_EQ(writer->tensors()[1].begin, 24);
  EXPECT_EQ(writer->tensors()[2].begin, 24);
  EXPECT_EQ(writer->tensors()[2].end, 29);
}

TEST(SafetensorsWriter, RefusesBadDeclarations) {
  TemporaryFolder folder;
  auto create = [&](std::vector<SafetensorsWriter::Tensor> tensors) {
    return SafetensorsWriter::create(folder / "out", std::move(tensors));
  };
  EXPECT_ERROR(create({{"", "F32", {1}}}), ErrorCode::InvalidArgument, "out", "\"\"");
  EXPECT_ERROR(create({{"a\n", "F32", {1}}}), ErrorCode::InvalidArgument, "a\\x0a");
  EXPECT_ERROR(create({{"__metadata__", "F32", {1}}}), ErrorCode::InvalidArgument, "__metadata__");
  EXPECT_ERROR(create({{"a", "F32", {1}}, {"a", "F32", {1}}}), ErrorCode::InvalidArgument, "twice");
  EXPECT_ERROR(create({{"a", "I4", {1}}}), ErrorCode::InvalidArgument, "\"a\"", "\"I4\"");
  EXPECT_ERROR(create({{"a", "F32", {-1}}}), ErrorCode::InvalidArgument, "[-1]");
  EXPECT_ERROR(create({{"a", "F32", {int64_t(1) << 61, 2}}}), ErrorCode::InvalidArgument, "shape");
  EXPECT_ERROR(create({{"a\xff", "F32", {1}}}), ErrorCode::InvalidArgument, "UTF-8");
  EXPECT_FALSE(std::filesystem::exists(folder / "out"));
}

TEST(SafetensorsWriter, RefusesBytesThatDoNotFit) {
  TemporaryFolder folder;
  {
    Result<SafetensorsWriter> writer = SafetensorsWriter::create(folder / "out", someTensors());
    ASSERT_VALUE(writer);
    std::string bytes(25, 'x');
    EXPECT_ERROR(writer->write("a \"quoted\" näme", bytesOf("1")), ErrorCode::InvalidArgument,
                 "out of order", "\"first\"");
    EXPECT_ERROR(writer->write("first", bytesOf(bytes)), ErrorCode::InvalidArgument, "25 bytes",
                 "only 24");
    EXPECT_ERROR(writer->finish(), ErrorCode::InvalidArgument, "\"first\" is incomplete",
                 "24 bytes");
    EXPECT_FALSE(std::filesystem::exists(folder / "out")) << "half a file has the name";
    EXPECT_FALSE(std::filesystem::is_empty(folder.path));
  }
  EXPECT_TRUE(std::filesystem::is_empty(folder.path)) << "half a file stays behind";
}

TEST(SafetensorsWriter, SurvivesMoves) {
  TemporaryFolder folder;
  Result<SafetensorsWriter> writer = SafetensorsWriter::create(folder / "out", {{"a", "U8", {1}}});
  ASSERT_VALUE(writer);
  SafetensorsWriter moved = std::move(*writer);
  ASSERT_TRUE(moved.write("a", bytesOf("x")));
  ASSERT_TRUE(moved.finish());
  EXPECT_ERROR(moved.finish(), ErrorCode::InvalidArgument, "twice");
  EXPECT_TRUE(std::filesystem::exists(folder / "out"));
}

TEST(SafetensorsWriter, ReportsWhatTheSystemRefuses) {
  TemporaryFolder folder;
  EXPECT_ERROR(SafetensorsWriter::create(folder / "no/such/folder", {}), ErrorCode::IO, "folder",
               "No such file");
  // A device that is always full: an error at the first write, and the device stays.
  EXPECT_ERROR(SafetensorsWriter::create("/dev/full", {}), ErrorCode::IO, "/dev/full",
               "No space left on device");
  EXPECT_TRUE(std::filesystem::exists("/dev/full"));
}

TEST(SafetensorsWriter, ReportsAFullDiskBeforeTheWork) {
  TemporaryFolder folder;
  // A limit on file sizes stands for the full disk.
  struct rlimit before, limited;
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &before), 0);
  limited = before;
  limited.rlim_cur = 1 << 16;
  auto *handler = std::signal(SIGXFSZ, SIG_IGN);
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &limited), 0);
  Result<SafetensorsWriter> writer =
      SafetensorsWriter::create(folder / "out", {{"a", "U8", {1 << 17}}});
  bool refusedEarly = !writer;
  Result<void> written;
  if (writer)
    written = writer->write("a", bytesOf(std::string(1 << 17, 'x')));
  ::setrlimit(RLIMIT_FSIZE, &before);
  std::signal(SIGXFSZ, handler);
  if (refusedEarly)
    EXPECT_ERROR(writer, ErrorCode::IO, "out", "reserve", "File too large");
  else // a file system that cannot reserve
    EXPECT_ERROR(written, ErrorCode::IO, "out", "File too large");
  if (refusedEarly) {
    EXPECT_FALSE(std::filesystem::exists(folder / "out"));
  }
}
