//===- NcclAbiTest.cpp - Our declarations against NCCL's header -----------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// All of it is done by the compiler.
//
//===----------------------------------------------------------------------===//

#include "../Runtime/SameAbi.h"
#include "Nccl.h"

#include <gtest/gtest.h>
#include <nccl.h>

using namespace easyquant;
using namespace easyquant::comm::nccl;

#define EASYQUANT_CHECK(symbol, name, result, parameters)                                          \
  static_assert(kSameAbi<decltype(symbol), std::remove_pointer_t<decltype(Library::name)>>,        \
                #symbol " is not declared as nccl.h has it");
EASYQUANT_NCCL_FUNCTIONS(EASYQUANT_CHECK)
#undef EASYQUANT_CHECK

/// Enumerators of different types are compared as numbers.
static constexpr bool same(int ours, int theirs) { return ours == theirs; }
static_assert(same(kSuccess, ncclSuccess) && same(kInProgress, ncclInProgress));
static_assert(same(kInt8, ncclInt8) && same(kInt32, ncclInt32) && same(kInt64, ncclInt64));
static_assert(same(kFloat32, ncclFloat32) && same(kFloat64, ncclFloat64));
static_assert(same(kSum, ncclSum) && same(kMin, ncclMin) && same(kMax, ncclMax));
static_assert(sizeof(UniqueId) == sizeof(ncclUniqueId));

#define EASYQUANT_CHECK(field)                                                                     \
  static_assert(offsetof(Config, field) == offsetof(ncclConfig_t, field), #field);
EASYQUANT_CHECK(size)
EASYQUANT_CHECK(magic)
EASYQUANT_CHECK(version)
EASYQUANT_CHECK(blocking)
EASYQUANT_CHECK(cgaClusterSize)
EASYQUANT_CHECK(minCTAs)
EASYQUANT_CHECK(maxCTAs)
EASYQUANT_CHECK(netName)
EASYQUANT_CHECK(splitShare)
#undef EASYQUANT_CHECK

TEST(NcclAbi, InitialValuesAreThoseOfTheHeader) {
  const ncclConfig_t theirs = NCCL_CONFIG_INITIALIZER;
  const Config ours;
  EXPECT_EQ(ours.magic, theirs.magic);
  EXPECT_EQ(ours.cgaClusterSize, theirs.cgaClusterSize);
  EXPECT_EQ(ours.netName, theirs.netName);
  EXPECT_EQ(ours.splitShare, theirs.splitShare);
}
