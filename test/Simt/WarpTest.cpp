//===- WarpTest.cpp - Shuffles, votes, atomics, barriers, asynchronous copies -===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Snippet.h"

#include <numeric>

using namespace easyquant::simt;

namespace {

std::vector<uint32_t> iota(size_t count) {
  std::vector<uint32_t> values(count);
  std::iota(values.begin(), values.end(), 0u);
  return values;
}

TEST(Shuffle, ModesAndSegments) {
  auto lanes = iota(32);
  auto up = perElement<uint32_t>(
      "shfl.sync.up.b32 %d|%p, %a, 3, 0, 0xffffffff;\n@!%p add.u32 %d, %d, 100;", lanes);
  auto down = perElement<uint32_t>("shfl.sync.down.b32 %d, %a, 5, 0x1f, 0xffffffff;", lanes);
  auto butterfly = perElement<uint32_t>("shfl.sync.bfly.b32 %d, %a, 6, 0x1f, 0xffffffff;", lanes);
  // Segments of 8 lanes: c = ((32 - 8) << 8) | 0x1f.
  auto index = perElement<uint32_t>("shfl.sync.idx.b32 %d, %a, 2, 0x181f, 0xffffffff;", lanes);
  for (uint32_t lane = 0; lane < 32; ++lane) {
    EXPECT_EQ(up[lane], lane < 3 ? lane + 100 : lane - 3);
    EXPECT_EQ(down[lane], lane + 5 < 32 ? lane + 5 : lane);
    EXPECT_EQ(butterfly[lane], lane ^ 6);
    EXPECT_EQ(index[lane], (lane & ~7u) + 2);
  }
}

TEST(Vote, BallotMatchAndReduce) {
  auto lanes = iota(32);
  auto ballot = perElement<uint32_t>(
      "setp.lt.u32 %p, %a, 5;\nvote.sync.ballot.b32 %d, !%p, 0xffffffff;", lanes);
  auto match =
      perElement<uint32_t>("and.b32 %t, %a, 3;\nmatch.any.sync.b32 %d, %t, 0xffffffff;", lanes);
  auto sum = perElement<uint32_t>("redux.sync.add.u32 %d, %a, 0xffffffff;", lanes);
  auto least =
      perElement<int32_t>("sub.s32 %t, 7, %a;\nredux.sync.min.s32 %d, %t, 0xffffffff;", lanes);
  for (uint32_t lane = 0; lane < 32; ++lane) {
    EXPECT_EQ(ballot[lane], ~0x1fu);
    EXPECT_EQ(match[lane], 0x11111111u << lane % 4);
    EXPECT_EQ(sum[lane], 496u);
    EXPECT_EQ(least[lane], -24);
  }
}

/// Lanes that went apart meet again, and loops of different length end.
TEST(ControlFlow, DivergesAndMeets) {
  auto counts = iota(64);
  auto d = perElement<uint32_t>(
      "mov.u32 %d, 0;\nmov.u32 %t, %a;\n"
      "loop: setp.eq.u32 %p, %t, 0;\n@%p bra done;\n"
      "add.u32 %d, %d, %t;\nsub.u32 %t, %t, 1;\nbra loop;\n"
      "done: activemask.b32 %u;\npopc.b32 %u, %u;\nmad.lo.u32 %d, %u, 10000, %d;",
      counts);
  for (uint32_t k = 0; k < counts.size(); ++k)
    EXPECT_EQ(d[k], 320000 + k * (k + 1) / 2);
}

TEST(Atomic, EveryOperation) {
  struct {
    const char *operation;
    uint32_t start, expected;
  } cases[] = {{"add.u32", 5, 5 + 496}, {"max.u32", 3, 31},         {"min.s32", 9, 0},
               {"or.b32", 64, 64 | 31}, {"and.b32", 0xffffffff, 0}, {"inc.u32", 0, 5}};
  for (auto &c : cases) {
    Device device;
    uint64_t cell = upload<uint32_t>(device, {c.start}, "cell");
    Arguments arguments;
    arguments.add(cell);
    LaunchOptions options;
    options.block = {32, 1, 1};
    bool increments = std::string(c.operation).starts_with("inc");
    // inc wraps at 8 (nine values): 32 increments from 0 end at 5.
    std::string body = ".reg .b64 %d; .reg .b32 %r, %v;\nld.param.u64 %d, [p];\nmov.u32 %v, " +
                       std::string(increments ? "8" : "%tid.x") + ";\natom.global." + c.operation +
                       " %r, [%d], %v;";
    auto report = run(device, moduleText(kernelText(".param .u64 p", body)), options, arguments);
    EXPECT_TRUE(report.findings.empty()) << messages(report);
    EXPECT_EQ(download<uint32_t>(device, cell, 1)[0], c.expected) << c.operation;
  }
}

TEST(Atomic, HalvesFloatsAndCompareSwap) {
  Device device;
  uint64_t cells = upload<uint32_t>(device, {0, 0, 0, 0}, "cells");
  Arguments arguments;
  arguments.add(cells);
  LaunchOptions options;
  options.block = {32, 1, 1};
  auto report = run(device, moduleText(kernelText(".param .u64 p", R"(
.reg .b64 %d; .reg .b32 %r<8>; .reg .f32 %f<2>; .reg .pred %p;
ld.param.u64 %d, [p];
mov.f32 %f0, 0f3F000000;
red.global.add.f32 [%d], %f0;
red.global.add.noftz.f16x2 [%d+4], 0x40003C00;
// A lock, taken by one lane after another.
retry: atom.global.cas.b32 %r0, [%d+8], 0, 1;
setp.ne.u32 %p, %r0, 0;
@%p bra retry;
ld.volatile.global.u32 %r1, [%d+12];
add.u32 %r1, %r1, 1;
st.volatile.global.u32 [%d+12], %r1;
atom.global.exch.b32 %r2, [%d+8], 0;
)")),
                    options, arguments);
  EXPECT_TRUE(report.completed) << messages(report);
  auto d = download<uint32_t>(device, cells, 4);
  EXPECT_EQ(std::bit_cast<float>(d[0]), 16.0f);
  EXPECT_EQ(d[1], 0x54005000u); // 64 and 32
  EXPECT_EQ(d[3], 32u);
}

TEST(Barrier, ReducesOverTheBlock) {
  auto d = perElement<uint32_t>(
      "setp.lt.u32 %p, %a, 37;\nbarrier.cta.red.popc.aligned.u32 %d, 0, %p;", iota(128));
  for (uint32_t v : d)
    EXPECT_EQ(v, 37u);
}

const std::string copyKernel = R"(
.shared .align 16 .b8 tile[512];
.reg .b64 %d<4>; .reg .b32 %r<8>; .reg .pred %p;
ld.param.u64 %d0, [a]; ld.param.u64 %d1, [o];
mov.u32 %r0, %tid.x; mad.wide.u32 %d2, %r0, 16, %d0;
mov.u32 %r1, tile; mad.lo.u32 %r1, %r0, 16, %r1;
)";

TEST(Async, CopiesArriveAtTheWait) {
  Device device;
  uint64_t in = upload(device, iota(128), "in"), out = device.allocate(512, "out").value();
  Arguments arguments;
  arguments.add(in).add(out);
  LaunchOptions options;
  options.block = {32, 1, 1};
  // The last lanes copy 8 bytes of 16, and the rest is zero.
  auto report = run(device, moduleText(kernelText(".param .u64 a, .param .u64 o", copyKernel + R"(
setp.ge.u32 %p, %r0, 30;
selp.u32 %r2, 8, 16, %p;
cp.async.cg.shared.global [%r1], [%d2], 16, %r2;
cp.async.commit_group;
cp.async.wait_group 0;
ld.shared.v4.b32 {%r4, %r5, %r6, %r7}, [%r1];
mad.wide.u32 %d3, %r0, 16, %d1;
st.global.v4.b32 [%d3], {%r4, %r5, %r6, %r7};
)")),
                    options, arguments);
  EXPECT_TRUE(report.findings.empty()) << messages(report);
  auto d = download<uint32_t>(device, out, 128);
  for (uint32_t k = 0; k < 128; ++k)
    EXPECT_EQ(d[k], k >= 120 && k % 4 >= 2 ? 0 : k);
}

/// Odd lanes commit a second group: for them the first is not among the last, for even lanes it is.
TEST(Async, LanesCountTheirOwnGroups) {
  Device device;
  uint64_t in = upload(device, iota(128), "in"), out = device.allocate(512, "out").value();
  Arguments arguments;
  arguments.add(in).add(out);
  LaunchOptions options;
  options.block = {32, 1, 1};
  options.checks = Checks::None; // it reads early on purpose
  auto report = run(device, moduleText(kernelText(".param .u64 a, .param .u64 o", copyKernel + R"(
mov.u32 %r2, 777; st.shared.v2.u32 [%r1], {%r2, %r2};
cp.async.ca.shared.global [%r1], [%d2], 4;
cp.async.commit_group;
and.b32 %r3, %r0, 1; setp.ne.u32 %p, %r3, 0;
@%p cp.async.ca.shared.global [%r1+4], [%d2+4], 4;
@%p cp.async.commit_group;
cp.async.wait_group 1;
ld.shared.v2.u32 {%r4, %r5}, [%r1];
cp.async.wait_group 0;
ld.shared.v2.u32 {%r6, %r7}, [%r1];
mad.wide.u32 %d3, %r0, 16, %d1;
st.global.v4.b32 [%d3], {%r4, %r5, %r6, %r7};
)")),
                    options, arguments);
  EXPECT_TRUE(report.completed) << messages(report);
  auto d = download<uint32_t>(device, out, 128);
  for (uint32_t lane = 0; lane < 32; ++lane) {
    uint32_t first = 4 * lane, old = 777;
    bool odd = lane % 2;
    EXPECT_EQ(d[4 * lane], odd ? first : old);
    EXPECT_EQ(d[4 * lane + 1], old);
    EXPECT_EQ(d[4 * lane + 2], first);
    EXPECT_EQ(d[4 * lane + 3], odd ? first + 1 : old);
  }
}

TEST(Async, BulkCopyCompletesOnAnMBarrier) {
  Device device;
  uint64_t in = upload(device, iota(128), "in"), out = device.allocate(512, "out").value();
  Arguments arguments;
  arguments.add(in).add(out);
  LaunchOptions options;
  options.block = {64, 1, 1};
  auto report = run(device, moduleText(kernelText(".param .u64 a, .param .u64 o", copyKernel + R"(
.shared .align 8 .b64 bar;
.reg .b32 %bar, %t; .reg .pred %q, %done; .reg .b64 %state;
mov.u32 %bar, bar; mov.u32 %t, tile;
setp.eq.u32 %q, %r0, 0;
@%q mbarrier.init.shared.b64 [%bar], 1;
bar.sync 0;
@!%q bra wait;
mbarrier.arrive.expect_tx.shared.b64 %state, [%bar], 512;
cp.async.bulk.shared::cta.global.mbarrier::complete_tx::bytes [%t], [%d0], 512, [%bar];
wait: mbarrier.try_wait.parity.shared.b64 %done, [%bar], 0;
@!%done bra wait;
mov.u32 %r1, tile; mad.lo.u32 %r1, %r0, 8, %r1;
ld.shared.v2.b32 {%r4, %r5}, [%r1];
mad.wide.u32 %d3, %r0, 8, %d1;
st.global.v2.b32 [%d3], {%r4, %r5};
)")),
                    options, arguments);
  EXPECT_TRUE(report.completed && report.findings.empty()) << messages(report);
  EXPECT_EQ(download<uint32_t>(device, out, 128), iota(128));
}

} // namespace
