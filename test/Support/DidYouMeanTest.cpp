//===- DidYouMeanTest.cpp - The name that a misspelling stands for ----------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "easyquant/Support/DidYouMean.h"

#include <gtest/gtest.h>

using namespace easyquant;

TEST(DidYouMean, FindsTheNearestName) {
  const std::vector<std::string> methods = {"absmax", "gptq", "awq", "sm_80", "sm_90a"};
  EXPECT_EQ(didYouMean("gtpq", methods), "; did you mean 'gptq'?");
  EXPECT_EQ(didYouMean("GPTQ", methods), "; did you mean 'gptq'?");
  EXPECT_EQ(didYouMean("abs", methods), "; did you mean 'absmax'?") << "its beginning";
  EXPECT_EQ(didYouMean("sm_90", methods), "; did you mean 'sm_90a'?");
}

TEST(DidYouMean, FindsWhatANameBeginsOrEndsWith) {
  EXPECT_EQ(didYouMean("Q4_K_M", std::vector<std::string>{"Q3", "Q4"}), "; did you mean 'Q4'?");
  EXPECT_EQ(didYouMean("percentile", std::vector<std::string>{"observer", "weight_percentile"}),
            "; did you mean 'weight_percentile'?");
  EXPECT_EQ(didYouMean("Q4LARGE", std::vector<std::string>{"Q4"}), "") << "no word of its own";
  EXPECT_EQ(didYouMean("w4a16_asym", std::vector<std::string>{"W4A16", "W4A16_ASYM"}),
            "; did you mean 'W4A16_ASYM'?");
}

TEST(DidYouMean, IsSilentWhereNoneIsNear) {
  const std::vector<std::string> names = {"absmax", "sm_80"};
  EXPECT_EQ(didYouMean("smoothquant", names), "");
  EXPECT_EQ(didYouMean("sm_86", names), "") << "another number is another thing";
  EXPECT_EQ(didYouMean("", names), "");
}
