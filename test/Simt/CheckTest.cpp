//===- CheckTest.cpp - Every check finds its defect, and nothing else -----===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Snippet.h"

using namespace easyquant::simt;

namespace {

struct Defect {
  const char *name;
  std::vector<Finding::Kind> expected; ///< Empty: the kernel is right.
  const char *body;
  std::string words = {}; ///< Words in the message.
  uint32_t threads = 64;
};

// Parameters: p, 256 bytes that are written, o, 256 bytes that are not. %r0 is the thread; %d0 and
// %d1 are its elements of 4 bytes; %s is its word in shared memory.
const std::string prologue = R"(
.shared .align 16 .b8 tile[1024];
.reg .b64 %d<8>; .reg .b32 %r<16>, %s; .reg .pred %p<4>;
ld.param.u64 %d2, [p]; ld.param.u64 %d3, [o];
mov.u32 %r0, %tid.x;
mad.wide.u32 %d0, %r0, 4, %d2; mad.wide.u32 %d1, %r0, 4, %d3;
mov.u32 %s, tile; mad.lo.u32 %s, %r0, 4, %s;
)";

const Defect defects[] = {
    {"None",
     {},
     "ld.global.u32 %r1, [%d0]; st.shared.u32 [%s], %r1; bar.sync 0;\n"
     "xor.b32 %r2, %r0, 32; mad.lo.u32 %r3, %r2, 4, 0; mov.u32 %r4, tile; add.u32 %r4, %r4, %r3;\n"
     "ld.shared.u32 %r5, [%r4]; st.global.u32 [%d1], %r5;"},
    {"PastTheEnd",
     {Finding::OutOfBounds},
     "ld.global.u32 %r1, [%d0+4];",
     "'p' has 256 bytes, and this is offset 256"},
    {"NullPointer", {Finding::OutOfBounds}, "mov.u64 %d4, 0; ld.global.u32 %r1, [%d4];"},
    {"SharedPastTheEnd", {Finding::OutOfBounds}, "st.shared.u32 [%s+800], %r0;", "1024 bytes"},
    {"Misaligned", {Finding::Misaligned}, "ld.global.u32 %r1, [%d2+2];"},
    {"UninitialisedGlobal",
     {Finding::Uninitialised},
     "ld.global.u32 %r1, [%d1];",
     "'o' at offset 0"},
    {"UninitialisedShared", {Finding::Uninitialised}, "ld.shared.u32 %r1, [%s];"},
    {"UninitialisedLocal",
     {Finding::Uninitialised},
     ".local .align 4 .b8 depot[8]; .reg .b64 %l;\n"
     "mov.u64 %l, depot; ld.local.u32 %r1, [%l+4];"},
    {"UndefinedGuard", {Finding::Uninitialised}, "@%p1 add.u32 %r1, %r0, 1;"},
    {"MissingBarrier",
     {Finding::Race},
     "st.shared.u32 [%s], %r0; bar.sync 0; st.shared.u32 [%s], %r0;\n"
     "xor.b32 %r2, %r0, 32; mov.u32 %r4, tile; mad.lo.u32 %r4, %r2, 4, %r4;\n"
     "bar.warp.sync 0xffffffff; ld.shared.u32 %r5, [%r4];"},
    {"MissingWarpBarrier",
     {Finding::Race},
     "st.shared.u32 [%s], %r0;\n"
     "xor.b32 %r2, %r0, 1; mov.u32 %r4, tile; mad.lo.u32 %r4, %r2, 4, %r4;\n"
     "ld.shared.u32 %r5, [%r4];"},
    {"WriteAfterRead",
     {Finding::Race},
     "st.shared.u32 [%s], %r0; bar.sync 0; ld.shared.u32 %r5, [tile];\n"
     "setp.eq.u32 %p0, %r0, 63; @%p0 st.shared.u32 [tile], %r0;"},
    {"NoAtomic",
     {Finding::Race},
     "ld.global.u32 %r1, [%d2]; add.u32 %r1, %r1, %r0; st.global.u32 [%d2], %r1;"},
    {"SameAddress", {Finding::Race}, "st.shared.u32 [tile], %r0;", "different values", 32},
    {"CopyNotAwaited",
     {Finding::AsyncRead},
     "cp.async.ca.shared.global [%s], [%d0], 4; cp.async.commit_group;\n"
     "ld.shared.u32 %r1, [%s];"},
    {"WaitsForTheWrongGroup",
     {Finding::AsyncRead},
     "cp.async.ca.shared.global [%s], [%d0], 4; cp.async.commit_group;\n"
     "cp.async.ca.shared.global [%s+256], [%d0], 4; cp.async.commit_group;\n"
     "cp.async.wait_group 1; ld.shared.u32 %r1, [%s]; ld.shared.u32 %r2, [%s+256];"},
    {"CopiedByAnother",
     {Finding::Race},
     "cp.async.ca.shared.global [%s], [%d0], 4; cp.async.wait_all;\n"
     "xor.b32 %r2, %r0, 1; mov.u32 %r4, tile; mad.lo.u32 %r4, %r2, 4, %r4;\n"
     "ld.shared.u32 %r5, [%r4];"},
    {"DivergentBarrier", {Finding::DivergentBarrier}, "setp.lt.u32 %p0, %r0, 16; @%p0 bar.sync 0;"},
    {"TwoBarriers",
     {Finding::DivergentBarrier},
     "setp.lt.u32 %p0, %r0, 32; @!%p0 bra other;\n"
     "bar.sync 0; bra end; other: bar.sync 0; end:",
     "different"},
    {"Deadlock",
     {Finding::Deadlock},
     "setp.lt.u32 %p0, %r0, 32; @!%p0 bra other;\n"
     "bar.sync 1, 64; bra end; other: bar.sync 2, 64; end:"},
    {"DivergentShuffle",
     {Finding::DivergentBarrier},
     "setp.lt.u32 %p0, %r0, 16;\n"
     "@%p0 shfl.sync.bfly.b32 %r1, %r0, 1, 0x1f, 0xffffffff;"},
    {"Trap", {Finding::Trap}, "trap;"},
    {"WritesParameter",
     {Finding::ReadOnly},
     "mov.b64 %d4, p; cvta.param.u64 %d4, %d4; st.u32 [%d4], %r0;"},
    {"Endless", {Finding::InstructionLimit}, "again: bra again;"},
};

class Check : public testing::TestWithParam<Defect> {};

TEST_P(Check, FindsTheDefect) {
  const Defect &t = GetParam();
  Device device;
  uint64_t in = upload(device, std::vector<uint32_t>(64, 1), "p"),
           out = device.allocate(256, "o").value();
  Arguments arguments;
  arguments.add(in).add(out);
  LaunchOptions options;
  options.block = {t.threads, 1, 1};
  options.maxInstructions = 1 << 20;
  auto report =
      run(device, moduleText(kernelText(".param .u64 p, .param .u64 o", prologue + t.body)),
          options, arguments);
  std::vector<Finding::Kind> kinds;
  for (const Finding &finding : report.findings)
    if (kinds.empty() || kinds.back() != finding.kind)
      kinds.push_back(finding.kind);
  EXPECT_EQ(kinds, t.expected) << messages(report);
  EXPECT_NE(messages(report).find(t.words), std::string::npos) << messages(report);
}
INSTANTIATE_TEST_SUITE_P(, Check, testing::ValuesIn(defects),
                         [](const auto &info) { return std::string(info.param.name); });

/// Blocks that hand over work by a fence and an atomic do not race; without the fence they do.
TEST(Blocks, AreOrderedByAFence) {
  for (bool fence : {true, false}) {
    Device device;
    uint64_t cells = upload(device, std::vector<uint32_t>(8, 0), "cells");
    Arguments arguments;
    arguments.add(cells);
    LaunchOptions options;
    options.grid = {4, 1, 1};
    auto report = run(device, moduleText(kernelText(".param .u64 p", std::string(R"(
.reg .b64 %d<3>; .reg .b32 %r<8>; .reg .pred %p;
ld.param.u64 %d0, [p]; mov.u32 %r0, %ctaid.x; mad.wide.u32 %d1, %r0, 4, %d0;
st.global.u32 [%d1+4], %r0;
)") + (fence ? "fence.acq_rel.gpu;\n" : "") + R"(
atom.global.add.u32 %r1, [%d0], 1;
setp.ne.u32 %p, %r1, 3;
@%p ret;
ld.global.u32 %r2, [%d0+4]; ld.global.u32 %r3, [%d0+8];
)")),
                      options, arguments);
    EXPECT_EQ(report.findings.empty(), fence) << messages(report);
  }
}

TEST(Statistics, SectorsAndBankConflicts) {
  Device device;
  uint64_t in = upload(device, std::vector<uint32_t>(32 * 32, 1), "p");
  Arguments arguments;
  arguments.add(in);
  LaunchOptions options;
  options.block = {32, 1, 1};
  auto report = run(device, moduleText(kernelText(".param .u64 p", R"(
.shared .align 16 .b8 tile[4224];
.reg .b64 %d<3>; .reg .b32 %r<8>;
ld.param.u64 %d0, [p]; mov.u32 %r0, %tid.x;
mad.wide.u32 %d1, %r0, 4, %d0; ld.global.u32 %r1, [%d1];
mad.wide.u32 %d2, %r0, 128, %d0; ld.global.u32 %r2, [%d2];
mov.u32 %r3, tile; mad.lo.u32 %r4, %r0, 128, %r3; st.shared.u32 [%r4], %r1;
mad.lo.u32 %r5, %r0, 132, %r3; st.shared.u32 [%r5], %r2;
)")),
                    options, arguments);
  const Statistics &s = report.statistics;
  EXPECT_EQ(s.traffic.at("global load").requests, 2u);
  EXPECT_EQ(s.traffic.at("global load").sectors, 4u + 32u);
  EXPECT_EQ(s.traffic.at("shared store").wavefronts, 32u + 1u);
  EXPECT_EQ(s.traffic.at("shared store").conflicts, 31u);
  EXPECT_EQ(s.traffic.at("shared store").bytes, 256u);
}

} // namespace
