//===- AttentionTest.cpp - Attention on a simulated GPU -------------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "AttentionSession.h"

#include "easyquant/Numerics/Hadamard.h"

using namespace easyquant;
using namespace easyquant::gpu;
using namespace easyquant::numerics;

TEST(GPUAttention, FloatCacheByTensorCores) {
  checkAll({specOf(9, 3, 64), specOf(4, 4, 16, 5), specOf(6, 1, 128), specOf(20, 1, 32),
            specOf(2, 1, 256, 33), specOf(3, 1, 80)},
           {17, 1, 1, 3, 33, 2, 1}, 64, ChipId::SM87);
}

TEST(GPUAttention, FloatCacheWithoutTensorCores) {
  checkAll({specOf(8, 4, 8), specOf(3, 3, 20), specOf(4, 4, 7, 6), specOf(40, 1, 36)},
           {17, 1, 3, 33, 1}, 64, ChipId::SM87);
}

TEST(GPUAttention, HeadsAreAsWideAsSharedMemory) {
  checkAll({specOf(2, 1, kMostHeadDim), specOf(1, 1, 264)}, {3, 1, 18}, 32, ChipId::SM86);
  for (const Chip &chip : chips()) {
    // Four warps cannot share 504 dimensions.
    for (int64_t headDim : {64, 128, 256, 504, int(kMostHeadDim)}) {
      auto launches = attentionLaunches(specOf(1, 1, headDim), chip);
      ASSERT_TRUE(launches) << launches.error().message;
      for (const AttentionKernel &kernel : launches->kernels) {
        const Description &launch = kernel.launch;
        SCOPED_TRACE(launch.name + " on " + std::string(chip.name));
        EXPECT_LE(launch.sharedBytes, chip.sharedBytesPerBlock);
        // 1024 bytes of each block are the driver's.
        EXPECT_LE(launch.blocksPerSM * (launch.sharedBytes + 1024), chip.sharedBytesPerSM);
      }
    }
    auto wider = attentionLaunches(specOf(1, 1, kMostHeadDim + 1), chip);
    ASSERT_FALSE(wider);
    EXPECT_EQ(wider.error().code, ErrorCode::Unsupported);
    EXPECT_NE(wider.error().message.find("513 dimensions; expected at most 512"), std::string::npos)
        << wider.error().message;
  }
}

TEST(GPUAttention, ManyTokens) {
  // Several tiles in a piece, and pieces of which some rows see nothing.
  checkAll({specOf(8, 8, 16), specOf(8, 8, 16, 150), specOf(8, 8, 8)}, {255, 1, 1, 2, 40, 215, 1},
           515, ChipId::SM87);
  checkAll({codesOf(specOf(8, 2, 16), {8, 16, 32, 3, KeySlices::Channel}), specOf(2, 1, 256)},
           {258, 1, 1, 3}, 263, ChipId::SM87);
}

TEST(GPUAttention, TilesHaveNoBankConflicts) {
  KernelLibrary library;
  std::vector<AttentionSpec> specs;
  for (int64_t headDim : {64, 128}) {
    specs.push_back(specOf(4, 1, headDim));
    specs.push_back(specs.back());
    specs.back().kv = KVScheme{8, 64, 64, 0, KeySlices::Channel};
  }
  for (const AttentionSpec &spec : specs)
    library.add(spec);
  for (const AttentionSpec &spec : specs)
    for (auto form : kForms) {
      SCOPED_TRACE(spec.headDim);
      Session session(library, spec, form, 384, simt::Checks::None);
      session.call(128); // keys of two tiles are codes, values of one
      session.call(form == AttentionKernel::Split ? 1 : 64);
      EXPECT_GT(expectSmoothCopies(session.statistics), 0);
    }
}

TEST(GPUAttention, CodesByTensorCores) {
  std::vector<AttentionSpec> specs;
  for (int bits : {8, 2}) { // 4 bits are below
    specs.push_back(codesOf(specOf(6, 3, 64), {bits, 32, 32, 4, KeySlices::Channel}));
    specs.push_back(codesOf(specOf(4, 1, 16), {bits, 16, 48, 0, KeySlices::Token}));
  }
  specs.push_back(codesOf(specOf(2, 1, 128), {4, 64, 64, 1, KeySlices::Token}));
  specs.push_back(codesOf(specOf(4, 2, 32, 45), {8, 16, 32, 3, KeySlices::Channel}));
  specs.push_back(codesOf(specOf(2, 2, 48), {4, 16, 16, 5, KeySlices::Channel}, true));
  specs.push_back(specs.back());
  specs.back().rotatedDims = 24;
  checkAll(specs, {37, 1, 1, 2, 45, 1, 3, 1}, 96, ChipId::SM87);
}

TEST(GPUAttention, CodesWithoutTensorCores) {
  AttentionSpec part = codesOf(specOf(3, 1, 24), {4, 32, 32, 1, KeySlices::Channel}, true);
  part.rotatedDims = 16;
  checkAll({part, codesOf(specOf(8, 4, 8), {8, 16, 32, 2, KeySlices::Channel}),
            codesOf(specOf(8, 4, 8), {4, 16, 16, 0, KeySlices::Token}, true),
            codesOf(specOf(3, 3, 24, 40), {2, 32, 32, 1, KeySlices::Channel})},
           {37, 1, 1, 60, 3, 1}, 112);
}

TEST(GPUAttention, CodesOfRotatedKeys) {
  auto specOfCodes = [](int64_t heads, int64_t kvHeads, int64_t headDim, int bits, int64_t group,
                        int64_t window = 0) {
    KVScheme scheme = {bits, group, 32, 3, KeySlices::Token, hadamardBlock(headDim)};
    return codesOf(specOf(heads, kvHeads, headDim, window), scheme);
  };
  const std::vector<int64_t> calls = {37, 1, 2, 40, 1, 1};
  checkAll({specOfCodes(6, 3, 64, 4, 32), specOfCodes(4, 1, 16, 8, 16),
            specOfCodes(2, 1, 128, 4, 32, 45), specOfCodes(3, 1, 80, 8, 16),
            specOfCodes(2, 2, 32, 2, 32)},
           calls, 96, ChipId::SM87);
  for (ChipId chip : {ChipId::SM80, ChipId::SM90a})
    checkAll({specOfCodes(2, 1, 64, 4, 32), specOfCodes(4, 2, 32, 8, 32)}, calls, 96, chip);
}

/// To the bit those of Numerics, by the last of the blocks that have a part of a row.
TEST(GPUAttention, CodesOfRows) {
  std::vector<AttentionSpec> specs = {
      specOf(6, 3, 64), specOf(8, 8, 16, 20), specOf(32, 1, 16), specOf(8, 4, 8),
      codesOf(specOf(4, 2, 32), {8, 16, 32, 3, KeySlices::Channel})};
  for (AttentionSpec &spec : specs)
    spec.codes = RowSpec{.columns = spec.heads * spec.headDim, .sums = true, .groupSize = 32};
  specs.front().codes->groupSize = 0;
  checkAll(specs, {40, 1, 3, 290, 1}, 340, ChipId::SM87);
}

TEST(GPUAttention, SessionsGoBack) {
  std::vector<AttentionSpec> specs = {codesOf(specOf(4, 2, 16), {8, 16, 32, 3, KeySlices::Channel}),
                                      codesOf(specOf(4, 2, 16), {4, 16, 32, 0, KeySlices::Token}),
                                      codesOf(specOf(2, 1, 8), {2, 16, 16, 4, KeySlices::Channel})};
  KernelLibrary library(ChipId::SM87);
  for (const AttentionSpec &spec : specs) {
    library.add(spec);
    library.addRestore(spec);
  }
  for (const AttentionSpec &spec : specs)
    for (auto form : kForms) {
      Session session(library, spec, form, 192);
      session.call(96);
      for (int64_t back : {1, 6, 35, 61, 163}) { // the last time to before all codes
        session.goBack(session.position() - back);
        for (int64_t rows : {1, 40, 2})
          session.call(rows);
        session.checkCodes();
      }
    }
}

TEST(GPUAttention, PagesMayLieAnywhere) {
  std::vector<AttentionSpec> specs = {
      specOf(4, 2, 16, 100), specOf(4, 2, 12),
      codesOf(specOf(4, 2, 16), {4, 16, 32, 3, KeySlices::Channel}),
      codesOf(specOf(2, 1, 16), {8, 128, 128, 3, KeySlices::Token})};
  KernelLibrary library(ChipId::SM87);
  for (const AttentionSpec &spec : specs)
    library.add(spec);
  for (const AttentionSpec &spec : specs)
    for (auto form : kForms) {
      Session ordered(library, spec, form, 320, simt::Checks::All, Pages::InOrder);
      Session shuffled(library, spec, form, 320);
      for (int64_t rows : {150, 1, 130, 1}) {
        ordered.call(rows);
        shuffled.call(rows);
      }
      EXPECT_EQ(ordered.results, shuffled.results);
      if (spec.kv)
        shuffled.checkCodes();
    }
}

TEST(GPUAttention, SessionsShareTheirBeginning) {
  std::vector<AttentionSpec> specs = {
      specOf(4, 2, 16), codesOf(specOf(4, 2, 16), {4, 16, 32, 4, KeySlices::Channel})};
  KernelLibrary library(ChipId::SM87);
  for (const AttentionSpec &spec : specs)
    library.add(spec);
  for (const AttentionSpec &spec : specs) {
    Session one(library, spec, AttentionKernel::Split, 256);
    one.call(spec.kv ? 132 : 128); // codes up to number 95
    Session two = one.fork(spec.kv ? 1 : 2);
    one.call(50);
    two.call(40);
    one.call(1);
    two.call(1);
    if (spec.kv) {
      one.checkCodes();
      two.checkCodes();
    }
  }
}
