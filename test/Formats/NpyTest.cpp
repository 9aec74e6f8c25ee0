//===- NpyTest.cpp - Arrays of NumPy --------------------------------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "easyquant/Formats/Npy.h"

#include "TestFiles.h"

#include <gtest/gtest.h>

using namespace easyquant;
using namespace easyquant::formats;
using namespace easyquant::formats::test;

static Result<NpyHeader> parse(std::string_view header, size_t dataBytes) {
  return parseNpyHeader(bytesOf(npy(header, std::string(dataBytes, '\0'))), "file");
}

TEST(Npy, ReadsWhatNumpyWrites) {
  Result<NpyHeader> matrix =
      parse("{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }       \n", 24);
  ASSERT_VALUE(matrix);
  EXPECT_EQ(matrix->dtype, DType::F32);
  EXPECT_EQ(matrix->shape, (std::vector<int64_t>{2, 3}));
  EXPECT_EQ(matrix->dataOffset, 10 + 67);
  Result<NpyHeader> vector = parse("{'shape': (5,), 'fortran_order': True, 'descr': '|b1'}", 5);
  ASSERT_VALUE(vector);
  EXPECT_EQ(vector->dtype, DType::Bool);
  EXPECT_EQ(vector->shape, std::vector<int64_t>{5});
  Result<NpyHeader> scalar = parse("{'descr': '<i8', 'fortran_order': False, 'shape': ()}", 8);
  ASSERT_VALUE(scalar);
  EXPECT_TRUE(scalar->shape.empty());

  // Version 2.0 has a length of four bytes.
  const std::string header = "{'descr': '<f2', 'fortran_order': False, 'shape': (1,)}";
  const std::string second = "\x93NUMPY\x02" + std::string(1, '\0') + raw<uint32_t>(header.size()) +
                             header + std::string(2, '\0');
  Result<NpyHeader> wide = parseNpyHeader(bytesOf(second), "file");
  ASSERT_VALUE(wide);
  EXPECT_EQ(wide->dtype, DType::F16);
}

TEST(Npy, RefusesWhatIsNone) {
  const struct {
    const char *header;
    size_t dataBytes;
    const char *expected;
  } kCases[] = {
      {"{'descr': '>f4', 'fortran_order': False, 'shape': (2,)}", 8,
       "file: elements of \">f4\"; expected little-endian integers, floats or booleans"},
      {"{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (2,)}", 8,
       "where the type of elements, such as '<f4', is expected"},
      {"{'descr': '<f4', 'fortran_order': True, 'shape': (2, 2)}", 16,
       "file: the array is in Fortran's order; save numpy.ascontiguousarray of it"},
      {"{'descr': '<f4', 'fortran_order': False, 'shape': (2, 2)}", 12,
       "file: shape [2, 2] of F32 does not take the 12 bytes that follow"},
      {"{'descr': '<f4', 'fortran_order': False, 'shape': (9223372036854775807, 9)}", 12,
       "does not take the 12 bytes that follow"},
      {"{'descr': '<f4', 'fortran_order': False, 'shape': (-1,)}", 4,
       "where a shape, such as (2, 3), is expected"},
      {"{'descr': '<f4', 'shape': (1,)}", 4, "lacks one of descr, fortran_order and shape"},
      {"{'descr': '<f4', 'descr': '<f4'}", 4, "has the key \"descr\""},
      {"{'\n': 1}", 4, "has the key \"\\x0a\""},
      {"", 4, "has \"\" where a dictionary is expected"},
  };
  for (const auto &[header, dataBytes, expected] : kCases) {
    Result<NpyHeader> parsed = parse(header, dataBytes);
    ASSERT_FALSE(parsed) << header;
    EXPECT_NE(parsed.error().message.find(expected), std::string::npos) << parsed.error().message;
  }
  for (const std::string &file : {std::string("PK\3\4"), std::string("\x93NUMPY")}) {
    Result<NpyHeader> parsed = parseNpyHeader(bytesOf(file), "file");
    ASSERT_FALSE(parsed);
    EXPECT_EQ(parsed.error().message, "file: no .npy file, as numpy.save writes it");
  }
  const std::string cut = npy("{'descr': '<f4'}", "").substr(0, 20);
  Result<NpyHeader> parsed = parseNpyHeader(bytesOf(cut), "file");
  ASSERT_FALSE(parsed);
  EXPECT_NE(parsed.error().message.find("is longer than the file; it is truncated"),
            std::string::npos);
}
