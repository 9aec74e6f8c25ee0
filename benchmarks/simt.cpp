//===- simt.cpp - Speed of the PTX simulator on the loops of GEMMs --------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The inner loop of a register-blocked float GEMM (32 fused multiply-adds for 3 vector loads from
// shared memory), of GEMMs on ldmatrix and mma.sync (two of each), and of one that also fetches its
// tiles by cp.async, without checks and with all.
//
//===----------------------------------------------------------------------===//

#include "easyquant/Simt/Simt.h"

#include <cstdlib>
#include <ctime>
#include <iostream>
#include <vector>

using namespace easyquant;
using namespace easyquant::simt;

static const std::string head =
    ".version 8.6\n.target sm_80\n.address_size 64\n.visible .entry gemm(.param .u64 o, .param "
    ".u64 i)\n{\n"
    ".shared .align 16 .b8 tile[16384];\n"
    ".reg .b32 %r<8>, %a<8>, %b<4>, %c<32>; .reg .b64 %d<3>; .reg .pred %p;\n"
    "mov.u32 %r0, %tid.x; mov.u32 %r1, tile; mov.u32 %r2, 0;\n"
    "ld.param.u64 %d2, [i]; mad.wide.u32 %d2, %r0, 16, %d2;\n"
    "mad.lo.u32 %r5, %r0, 16, %r1; mov.b32 %r6, 0;\n"
    "fill: st.shared.v4.b32 [%r5], {%r6, %r6, %r6, %r6};\n"
    "add.u32 %r5, %r5, 2048; add.u32 %r2, %r2, 1;\n"
    "setp.lt.u32 %p, %r2, 8; @%p bra fill;\n"
    "bar.sync 0; mov.u32 %r2, 0;\n";
static const std::string tail = "add.u32 %r2, %r2, 1; setp.lt.u32 %p, %r2, 2000; @%p bra loop;\n"
                                "ld.param.u64 %d0, [o]; mad.wide.u32 %d1, %r0, 4, %d0;\n"
                                "st.global.b32 [%d1], %c0;\nret;\n}\n";

static std::string floatLoop() {
  std::string text = head;
  for (int k = 0; k < 32; ++k)
    text += fmt::format("mov.b32 %c{}, 0;\n", k);
  text += "and.b32 %r3, %r0, 7; mad.lo.u32 %r3, %r3, 32, %r1; shr.u32 %r4, %r0, 3; mad.lo.u32 %r4, "
          "%r4, 16, %r1;\n"
          "loop: ld.shared.v4.b32 {%a0, %a1, %a2, %a3}, [%r3];\n"
          "ld.shared.v4.b32 {%a4, %a5, %a6, %a7}, [%r3+16];\nld.shared.v4.b32 {%b0, %b1, %b2, "
          "%b3}, [%r4];\n";
  for (int k = 0; k < 32; ++k)
    text += fmt::format("fma.rn.f32 %c{0}, %a{1}, %b{2}, %c{0};\n", k, k / 4, k % 4);
  return text + tail;
}

/// `multiply` accumulates 16x8 from four registers of A and two of B. With `fetches` cp.async fills
/// the other half of the tile in the meantime.
static std::string matrixLoop(const std::string &multiply, bool fetches = false) {
  std::string text = head;
  for (int k = 0; k < 8; ++k)
    text += fmt::format("mov.b32 %c{}, 0;\n", k);
  text += "mad.lo.u32 %r3, %r0, 16, %r1;\nloop:\n";
  if (fetches)
    text += "cp.async.cg.shared.global [%r3+4096], [%d2], 16;\n"
            "cp.async.cg.shared.global [%r3+6144], [%d2+2048], 16;\ncp.async.commit_group;\n";
  text += "ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%a0, %a1, %a2, %a3}, [%r3];\n"
          "ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%b0, %b1, %b2, %b3}, [%r3+2048];\n";
  for (int k = 0; k < 2; ++k)
    text += fmt::format("{0} {{%c{1}, %c{2}, %c{3}, %c{4}}}, {{%a0, %a1, %a2, %a3}}, "
                        "{{%b{5}, %b{6}}}, {{%c{1}, %c{2}, %c{3}, %c{4}}};\n",
                        multiply, 4 * k, 4 * k + 1, 4 * k + 2, 4 * k + 3, 2 * k, 2 * k + 1);
  if (fetches)
    text += "cp.async.wait_group 0; bar.sync 0;\n";
  return text + tail;
}

static void measure(const char *name, const std::string &text, Checks checks) {
  auto module = Module::parse(text, "benchmark.ptx");
  Device device;
  auto out = device.allocate(512, "out"), in = device.allocate(4096, "in");
  if (!module || !out || !in) {
    std::cerr << (!module ? module.error() : !out ? out.error() : in.error()).message << '\n';
    std::exit(1);
  }
  std::vector<uint32_t> zeros(1024);
  if (auto copied = device.copyIn(*in, zeros.data(), 4096); !copied) {
    std::cerr << copied.error().message << '\n';
    std::exit(1);
  }
  Arguments arguments;
  arguments.add(*out).add(*in);
  LaunchOptions options;
  options.block = {128, 1, 1};
  options.grid = {checks == Checks::None ? 16u : 1u, 1, 1};
  options.checks = checks;
  options.memoryStatistics = checks == Checks::All;
  double best = 0;
  for (int repeat = 0; repeat < 5; ++repeat) {
    std::clock_t begin = std::clock(); // of this process, so that others cost less
    auto report = launch(device, *module, "gemm", options, arguments);
    double seconds = double(std::clock() - begin) / CLOCKS_PER_SEC;
    if (!report || !report->completed || !report->findings.empty()) {
      std::cerr << (report ? "the kernel has findings" : report.error().message) << '\n';
      std::exit(1);
    }
    best = std::max(best, double(report->statistics.laneInstructions) / seconds);
  }
  std::cout << fmt::format("{:<32}{:<8}{:8.1f} million lane instructions per second\n", name,
                           checks == Checks::None ? "none" : "all", best * 1e-6);
}

int main() {
  std::cout << "best of 5, one core             checks\n";
  for (Checks checks : {Checks::None, Checks::All}) {
    measure("float GEMM, fma.rn.f32", floatLoop(), checks);
    const std::string mma = "mma.sync.aligned.";
    const std::string bytes = mma + "m16n8k32.row.col.satfinite.s32.s8.s8.s32";
    measure("int8 GEMM, mma.sync m16n8k32", matrixLoop(bytes), checks);
    measure("the same with cp.async", matrixLoop(bytes, true), checks);
    measure("int4 GEMM, mma.sync m16n8k64", matrixLoop(mma + "m16n8k64.row.col.s32.s4.s4.s32"),
            checks);
    measure("f16 GEMM, mma.sync m16n8k16", matrixLoop(mma + "m16n8k16.row.col.f32.f16.f16.f32"),
            checks);
    measure("bf16 GEMM, mma.sync m16n8k16", matrixLoop(mma + "m16n8k16.row.col.f32.bf16.bf16.f32"),
            checks);
  }
}
