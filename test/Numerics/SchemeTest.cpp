//===- SchemeTest.cpp -----------------------------------------------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "easyquant/Numerics/Scheme.h"

#include <gtest/gtest.h>

using namespace easyquant;
using namespace easyquant::numerics;

namespace {

Scheme scheme(int bits, Granularity granularity, int64_t groupSize = 0, bool dynamic = false) {
  return {bits, /*symmetric=*/true, granularity, groupSize, dynamic};
}

void expectRefused(const Scheme &s, ErrorCode code, const char *words) {
  auto result = checkScheme(s);
  ASSERT_FALSE(result) << toString(s);
  EXPECT_EQ(result.error().code, code);
  EXPECT_NE(result.error().message.find(words), std::string::npos) << result.error().message;
}

TEST(Scheme, CodeRanges) {
  EXPECT_EQ(codeRange(8, true), (CodeRange{-127, 127}));
  EXPECT_EQ(codeRange(4, true), (CodeRange{-7, 7}));
  EXPECT_EQ(codeRange(3, true), (CodeRange{-3, 3}));
  EXPECT_EQ(codeRange(2, true), (CodeRange{-1, 1}));
  EXPECT_EQ(codeRange(8, false), (CodeRange{-128, 127}));
  EXPECT_EQ(codeRange(4, false), (CodeRange{-8, 7}));
  EXPECT_EQ(codeRange(2, false), (CodeRange{-2, 1}));
  Scheme full = scheme(8, Granularity::Channel);
  full.fullRange = true;
  EXPECT_EQ(codeRange(full), (CodeRange{-128, 127}));
}

TEST(Scheme, Legal) {
  for (int bits : {2, 3, 4, 5, 6, 8})
    EXPECT_TRUE(checkScheme(scheme(bits, Granularity::Channel)));
  EXPECT_TRUE(checkScheme(scheme(4, Granularity::Group, 48)));
  EXPECT_TRUE(checkScheme(scheme(8, Granularity::Tensor)));
  EXPECT_TRUE(checkScheme(scheme(8, Granularity::Tensor, 0, true)));
  EXPECT_TRUE(checkScheme(scheme(8, Granularity::Token, 0, true)));
  for (int64_t group : kTokenGroups)
    EXPECT_TRUE(checkScheme(scheme(8, Granularity::Token, group, true)));
}

TEST(Scheme, OtherFormats) {
  Scheme f8 = scheme(8, Granularity::Channel), f4 = scheme(4, Granularity::Group, 16);
  f8.codes = CodeFormat::F8E4M3FN;
  f4.codes = CodeFormat::F4E2M1FN;
  f4.scales = ScaleFormat::F8E4M3FN;
  f4.outer = true;
  EXPECT_TRUE(checkScheme(f8));
  EXPECT_TRUE(checkScheme(f4));
  EXPECT_EQ(toString(f8), "f8E4M3FN, per channel");
  EXPECT_EQ(toString(f4), "f4E2M1FN, groups of 16, f8E4M3FN scales, scaled");
  EXPECT_EQ(codeRange(f8), (CodeRange{-128, 127}));
  Scheme table = scheme(4, Granularity::Group, 64);
  table.codes = CodeFormat::Table;
  expectRefused(table, ErrorCode::InvalidArgument, "without a table");
  table.table = Codebook::nf4();
  EXPECT_EQ(toString(table), "nf4, groups of 64");
  table.bits = 3;
  expectRefused(table, ErrorCode::InvalidArgument, "3 bits");
  f8.symmetric = false;
  expectRefused(f8, ErrorCode::InvalidArgument, "zero points");
}

TEST(Scheme, Codebooks) {
  const float values[] = {-1, -0.5f, 0.25f, 2};
  auto table = Codebook::of(values);
  ASSERT_TRUE(table);
  EXPECT_EQ(*table, *Codebook::of(values)); // one object
  EXPECT_EQ((*table)->bits(), 2);
  EXPECT_EQ((*table)->name(), "");
  EXPECT_EQ(Codebook::iq4nl()->name(), "iq4_nl");
  const float unsorted[] = {0, 0, 1, 2}, few[] = {0, 1, 2};
  EXPECT_FALSE(Codebook::of(unsorted));
  EXPECT_FALSE(Codebook::of(few));
}

TEST(Scheme, CodebooksOfInt8) {
  // 127 is the largest magnitude as it is.
  EXPECT_EQ(Codebook::iq4nl()->int8Unit(), 1.0f);
  EXPECT_EQ(*Codebook::iq4nl()->inInt8(), Codebook::iq4nl());
  EXPECT_FALSE(Codebook::nf4()->int8Unit());
  const Codebook *nf4 = *Codebook::nf4()->inInt8();
  EXPECT_EQ(nf4->name(), "nf4_int8");
  EXPECT_EQ(nf4, Codebook::named("nf4_int8"));
  EXPECT_EQ(nf4->int8Unit(), 0x1p-7f);
  for (size_t i = 0; i < 16; ++i) {
    EXPECT_EQ(nf4->int8Value(i), std::lround(127 * Codebook::nf4()->values()[i]));
    EXPECT_EQ(nf4->values()[i], static_cast<float>(nf4->int8Value(i)) / 128);
  }
  for (int bits : {2, 3, 4}) {
    const Codebook *open = Codebook::learnedInt8(bits), *start = *Codebook::learned(bits)->inInt8();
    EXPECT_TRUE(open->isToBeLearned());
    EXPECT_EQ(open->name(), fmt::format("learned{}_int8", bits));
    EXPECT_EQ(open->int8Unit(), 1.0f);
    // What learning begins with, which may be the best, is no longer open.
    EXPECT_FALSE(start->isToBeLearned());
    EXPECT_EQ(start->values().back(), 127.0f / 128);
  }
  for (std::string_view name : Codebook::names())
    EXPECT_EQ(Codebook::named(name)->name(), name);
  // The unit is the power of two that leaves the largest magnitude 64 to 127 of it.
  const float eighths[] = {-0.375f, -0.125f, 0, 0.25f}, wide[] = {-256, -3, 4, 8};
  EXPECT_EQ((*Codebook::of(eighths))->int8Unit(), 0x1p-8f);
  EXPECT_EQ((*Codebook::of(eighths))->int8Value(0), -96);
  EXPECT_FALSE((*Codebook::of(wide))->int8Unit());
  const float tiny[] = {-1e-38f, 0, 1e-39f, 2e-39f};
  EXPECT_FALSE((*Codebook::of(tiny))->int8Unit());
  const float close[] = {-1, 0.5f, 0.501f, 0.9f};
  auto refused = (*Codebook::of(close))->inInt8();
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::InvalidArgument);
  EXPECT_EQ(
      refused.error().message,
      "values 0.5 and 0.501 of the table are both 64 of 127 as int8: expected values that are "
      "further apart; leave activations float (A16)");

  Scheme table = scheme(4, Granularity::Group, 64);
  table.codes = CodeFormat::Table;
  table.table = Codebook::nf4();
  EXPECT_FALSE(table.hasIntegerValues());
  table.table = nf4;
  EXPECT_TRUE(table.hasIntegerValues());
  EXPECT_EQ(toString(table), "nf4_int8, groups of 64");
}

TEST(Scheme, Refused) {
  for (int bits : {-1, 0, 1, 7, 9, 16, 32})
    expectRefused(scheme(bits, Granularity::Channel), ErrorCode::Unsupported, "2, 3, 4, 5, 6 or 8");
  expectRefused(scheme(4, Granularity::Group, 0), ErrorCode::InvalidArgument, "group size 0");
  expectRefused(scheme(4, Granularity::Group, -8), ErrorCode::InvalidArgument, "group size -8");
  expectRefused(scheme(4, Granularity::Channel, 32), ErrorCode::InvalidArgument, "per channel");
  Scheme full = scheme(8, Granularity::Channel);
  full.symmetric = false;
  full.fullRange = true;
  expectRefused(full, ErrorCode::InvalidArgument, "only symmetric");
  expectRefused(scheme(8, Granularity::Token), ErrorCode::InvalidArgument, "dynamic");
  for (int64_t group : {-32, 1, 16, 48, 256})
    expectRefused(scheme(8, Granularity::Token, group, true), ErrorCode::InvalidArgument,
                  "expected 32, 64 or 128");
  expectRefused(scheme(4, Granularity::Token, 32, true), ErrorCode::Unsupported, "int8");
  expectRefused(scheme(8, Granularity::Token, 32), ErrorCode::InvalidArgument, "dynamic");
  expectRefused(scheme(8, Granularity::Channel, 0, true), ErrorCode::Unsupported, "per token");
  expectRefused(scheme(8, Granularity::Group, 32, true), ErrorCode::Unsupported, "per token");
}

TEST(Scheme, GroupCounts) {
  EXPECT_EQ(groupCount(100, 48), 3); // 48 + 48 + 4
  EXPECT_EQ(groupCount(96, 48), 2);
  EXPECT_EQ(groupCount(1, 128), 1);
  EXPECT_EQ(groupCount(576, 0), 1);
}

TEST(Scheme, Text) {
  EXPECT_EQ(toString(scheme(4, Granularity::Group, 128)), "int4 symmetric, groups of 128");
  EXPECT_EQ(toString(scheme(8, Granularity::Token, 0, true)), "int8 symmetric, per token, dynamic");
  EXPECT_EQ(toString(scheme(8, Granularity::Token, 32, true)),
            "int8 symmetric, per token in groups of 32, dynamic");
  Scheme full = scheme(8, Granularity::Channel);
  full.fullRange = true;
  EXPECT_EQ(toString(full), "int8 symmetric full range, per channel");
}

} // namespace
