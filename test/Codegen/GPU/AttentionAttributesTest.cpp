//===- AttentionAttributesTest.cpp - Caps, sinks, other layers ------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// What some architectures have in their attention and others have not, on a simulated GPU. What all
// have is in AttentionTest.cpp.
//
//===----------------------------------------------------------------------===//

#include "AttentionSession.h"

using namespace easyquant;
using namespace easyquant::gpu;
using namespace easyquant::numerics;

namespace {

AttentionSpec bounded(AttentionSpec spec, double bound) {
  spec.bound = bound;
  return spec;
}

AttentionSpec withSinks(AttentionSpec spec) {
  spec.sinkLogits = true;
  return spec;
}

AttentionSpec ofAnotherLayer(AttentionSpec spec) {
  spec.appended = true;
  return spec;
}

constexpr KVScheme kChannel8 = {8, 16, 32, 3, KeySlices::Channel};
constexpr KVScheme kToken4 = {4, 16, 16, 0, KeySlices::Token};
const std::vector<int64_t> kCalls = {17, 1, 1, 3, 33, 2, 1};
// Several pieces, which are combined.
const std::vector<int64_t> kManyCalls = {257, 1, 3, 20};

} // namespace

TEST(GPUAttentionAttributes, SoftCaps) {
  checkAll({bounded(specOf(6, 3, 64), 1.5), bounded(specOf(4, 2, 32, 9), 50),
            bounded(specOf(2, 1, 256), 2), bounded(specOf(4, 2, 12, 5), 0.75)},
           kCalls, 64, ChipId::SM87);
  checkAll({bounded(codesOf(specOf(4, 2, 32, 20), kChannel8), 1.5),
            bounded(codesOf(specOf(4, 2, 16), kToken4, true), 1.5),
            bounded(codesOf(specOf(3, 1, 8), kToken4), 1.5)},
           kCalls, 64, ChipId::SM87);
}

TEST(GPUAttentionAttributes, SinkLogits) {
  checkAll({withSinks(specOf(10, 2, 64)), withSinks(specOf(6, 1, 16, 9)),
            withSinks(specOf(5, 1, 256)), withSinks(specOf(6, 3, 12))},
           kCalls, 64, ChipId::SM87);
  checkAll({withSinks(codesOf(specOf(6, 2, 32, 20), kChannel8)),
            withSinks(codesOf(specOf(5, 1, 16), kToken4, true)),
            withSinks(codesOf(specOf(6, 2, 8), kChannel8))},
           kCalls, 64, ChipId::SM87);
}

TEST(GPUAttentionAttributes, PartsOfWhatTokensSee) {
  checkAll({bounded(specOf(4, 4, 16), 1.5), withSinks(specOf(5, 1, 16, 150)),
            withSinks(specOf(6, 6, 8)),
            withSinks(bounded(codesOf(specOf(5, 1, 16), kChannel8), 3))},
           kManyCalls, 320, ChipId::SM87);
}

TEST(GPUAttentionAttributes, KeysAndValuesOfAnotherLayer) {
  checkAll({ofAnotherLayer(specOf(6, 3, 64)), ofAnotherLayer(specOf(4, 1, 32, 9)),
            ofAnotherLayer(withSinks(bounded(specOf(5, 1, 20), 2)))},
           kCalls, 64, ChipId::SM87);
}

TEST(GPUAttentionAttributes, WideHeads) {
  // Four warps share a result.
  for (int64_t headDim : {320, 512})
    EXPECT_TRUE(
        attentionLaunches(specOf(1, 1, headDim), chip(ChipId::SM87))->kernels.front().tile.matrix);
  checkAll({specOf(8, 1, 512), specOf(20, 1, 320, 9),
            withSinks(bounded(codesOf(specOf(5, 1, 512), {8, 16, 16, 1, KeySlices::Channel}), 3))},
           {19, 1}, 32, ChipId::SM87);
  checkAll({specOf(1, 1, 320)}, {258, 1}, 263, ChipId::SM87);
  checkAll({specOf(3, 1, 512)}, {17, 1}, 32, ChipId::SM90a);
}

TEST(GPUAttentionAttributes, WideTilesHaveNoBankConflicts) {
  KernelLibrary library;
  const AttentionSpec spec = specOf(4, 1, 512);
  library.add(spec);
  for (auto form : kForms) {
    Session session(library, spec, form, 128, simt::Checks::None);
    session.call(64);
    session.call(form == AttentionKernel::Split ? 1 : 32);
    EXPECT_GT(expectSmoothCopies(session.statistics), 0);
  }
}

TEST(GPUAttentionAttributes, NewerChips) {
  for (ChipId chip : {ChipId::SM80, ChipId::SM90a})
    checkAll({withSinks(bounded(specOf(5, 1, 64), 1.5)),
              withSinks(bounded(codesOf(specOf(5, 1, 32), kChannel8), 1.5))},
             {17, 1, 3}, 32, chip);
}
