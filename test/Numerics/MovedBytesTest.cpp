//===- MovedBytesTest.cpp - Traffic counted by hand -----------------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "easyquant/Numerics/MovedBytes.h"

#include <gtest/gtest.h>

using namespace easyquant::numerics;

namespace {

TEST(MovedBytes, Int8ByInt8PerChannel) {
  // 6 x 10 and 3 tokens. Codes of x: 30 bytes and 3 scales of 4, written and read. Weight: 60 bytes
  // and 6 scales. Output: 18 floats.
  MovedBytes bytes = movedBytes(6, 10, {8, true, Granularity::Channel}, true, 3);
  EXPECT_EQ(bytes.fused, 2 * (30 + 12) + (60 + 24) + 72);
  // And 30 floats written and read, 18 int32 written and read.
  EXPECT_EQ(bytes.separate, bytes.fused + 2 * 120 + 2 * 72);
}

TEST(MovedBytes, GroupsNeedAnAccumulatorEach) {
  // Groups of 4 in 10 columns: 3 a row.
  MovedBytes bytes = movedBytes(6, 10, {4, true, Granularity::Group, 4}, true, 1);
  EXPECT_EQ(bytes.fused, 2 * (10 + 4) + (30 + 18 * 4) + 24);
  EXPECT_EQ(bytes.separate, bytes.fused + 2 * 40 + 2 * 18 * 4);
}

TEST(MovedBytes, FloatActivations) {
  // 3 bits: 60 codes are 180 bits, 23 bytes; a scale and a zero point of 3 bits for each of 18
  // groups.
  MovedBytes bytes = movedBytes(6, 10, {3, false, Granularity::Group, 4}, false, 2);
  EXPECT_EQ(bytes.fused, 2 * 80 + (23 + 18 * 4 + 7) + 48);
  EXPECT_EQ(bytes.separate, bytes.fused + 2 * 240); // 60 floats, written and read
  EXPECT_EQ(movedBytes(6, 10, {8, true, Granularity::Tensor}, false, 1).fused,
            2 * 40 + 60 + 4 + 24);
}

TEST(MovedBytes, ScalesTakeTheBytesOfTheirFormat) {
  // 18 scales: of 2 bytes; and of one byte, themselves scaled by one float.
  Scheme f16{4, true, Granularity::Group, 4}, nvfp4 = f16;
  f16.scales = ScaleFormat::F16;
  EXPECT_EQ(movedBytes(6, 10, f16, true, 1).fused, 2 * (10 + 4) + (30 + 18 * 2) + 24);
  nvfp4.codes = CodeFormat::F4E2M1FN;
  nvfp4.scales = ScaleFormat::F8E4M3FN;
  nvfp4.outer = true;
  EXPECT_EQ(movedBytes(6, 10, nvfp4, false, 1).fused, 2 * 40 + (30 + 18 + 4) + 24);
}

} // namespace
