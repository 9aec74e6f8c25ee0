//===- DeviceTest.cpp - Which code a GPU runs -----------------------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "easyquant/Runtime/Device.h"

#include <gtest/gtest.h>

using namespace easyquant::runtime;

static std::string choose(int capability, std::vector<ChipChoice> chips) {
  ChipChoice chosen = chooseChip({capability}, chips);
  return chosen.name.empty() ? "none" : chosen.name + (chosen.machineCode ? " code" : " ptx");
}

TEST(ChooseChip, MachineCodeOfItsGenerationThatIsNotNewer) {
  std::vector<ChipChoice> all = {
      {"sm_80", true}, {"sm_86", true}, {"sm_89", true}, {"sm_90a", true}};
  EXPECT_EQ(choose(80, all), "sm_80 code");
  EXPECT_EQ(choose(86, all), "sm_86 code");
  EXPECT_EQ(choose(89, all), "sm_89 code");
  EXPECT_EQ(choose(90, all), "sm_90a code");
}

TEST(ChooseChip, MachineCodeOfJetsonIsForJetsonAlone) {
  EXPECT_EQ(choose(87, {{"sm_80", true}, {"sm_86", true}}), "sm_86 ptx");
  EXPECT_EQ(choose(87, {{"sm_86", true}, {"sm_87", true}}), "sm_87 code");
  EXPECT_EQ(choose(89, {{"sm_87", true}}), "sm_87 ptx");
  EXPECT_EQ(choose(89, {{"sm_86", true}, {"sm_87", true}}), "sm_86 code");
}

TEST(ChooseChip, ElseTheNewestPtx) {
  std::vector<ChipChoice> all = {{"sm_80", true}, {"sm_89", true}, {"sm_90a", true}};
  EXPECT_EQ(choose(100, all), "sm_89 ptx");
  EXPECT_EQ(choose(120, all), "sm_89 ptx");
  EXPECT_EQ(choose(120, {{"sm_80", true}, {"sm_89", true}, {"sm_120a", true}}), "sm_120a code");
  EXPECT_EQ(choose(121, {{"sm_80", true}, {"sm_89", true}, {"sm_120a", true}}), "sm_89 ptx");
  EXPECT_EQ(choose(90, {{"sm_80", true}, {"sm_86", true}}), "sm_86 ptx");
  EXPECT_EQ(choose(86, {{"sm_80", false}, {"sm_89", false}}), "sm_80 ptx");
  EXPECT_EQ(choose(90, {{"sm_80", false}, {"sm_90a", false}}), "sm_90a ptx");
}

TEST(ChooseChip, NothingForOlderOrOtherChips) {
  EXPECT_EQ(choose(75, {{"sm_80", true}}), "none");
  EXPECT_EQ(choose(100, {{"sm_90a", true}}), "none");
  EXPECT_EQ(choose(90, {{"gfx942", true}}), "none");
  EXPECT_EQ(choose(90, {}), "none");
}
