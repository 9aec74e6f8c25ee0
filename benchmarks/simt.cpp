//===- simt.cpp - Speed of the PTX simulator on the loops of two GEMMs ----===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The inner loop of a register-blocked float GEMM (32 fused multiply-adds for 3 vector loads from
// shared memory), and of an int8 GEMM on ldmatrix and mma.sync, without checks and with all.
//
//===----------------------------------------------------------------------===//

#include "easyquant/Simt/Simt.h"

#include <chrono>
#include <cstdlib>
#include <iostream>

using namespace easyquant;
using namespace easyquant::simt;

static const std::string head =
    ".version 8.6\n.target sm_80\n.address_size 64\n.visible .entry gemm(.param .u64 o)\n{\n"
    ".shared .align 16 .b8 tile[16384];\n"
    ".reg .b32 %r<8>, %a<8>, %b<4>, %c<32>; .reg .b64 %d<3>; .reg .pred %p;\n"
    "mov.u32 %r0, %tid.x; mov.u32 %r1, tile; mov.u32 %r2, 0;\n"
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

static std::string matrixLoop() {
  std::string text = head;
  for (int k = 0; k < 8; ++k)
    text += fmt::format("mov.b32 %c{}, 0;\n", k);
  text += "mad.lo.u32 %r3, %r0, 16, %r1;\n"
          "loop: ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%a0, %a1, %a2, %a3}, [%r3];\n"
          "ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%b0, %b1, %b2, %b3}, [%r3+2048];\n";
  for (int k = 0; k < 2; ++k)
    text += fmt::format(
        "mma.sync.aligned.m16n8k32.row.col.satfinite.s32.s8.s8.s32 {{%c{0}, %c{1}, %c{2}, %c{3}}}, "
        "{{%a0, %a1, %a2, %a3}}, {{%b{4}, %b{5}}}, {{%c{0}, %c{1}, %c{2}, %c{3}}};\n",
        4 * k, 4 * k + 1, 4 * k + 2, 4 * k + 3, 2 * k, 2 * k + 1);
  return text + tail;
}

static void measure(const char *name, const std::string &text, Checks checks) {
  auto module = Module::parse(text, "benchmark.ptx");
  Device device;
  auto out = device.allocate(512, "out");
  if (!module || !out) {
    std::cerr << (module ? out.error() : module.error()).message << '\n';
    std::exit(1);
  }
  Arguments arguments;
  arguments.add(*out);
  LaunchOptions options;
  options.block = {128, 1, 1};
  options.grid = {checks == Checks::None ? 16u : 1u, 1, 1};
  options.checks = checks;
  options.memoryStatistics = checks == Checks::All;
  double best = 0;
  for (int repeat = 0; repeat < 5; ++repeat) {
    auto begin = std::chrono::steady_clock::now();
    auto report = launch(device, *module, "gemm", options, arguments);
    std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - begin;
    if (!report || !report->completed || !report->findings.empty()) {
      std::cerr << (report ? "the kernel has findings" : report.error().message) << '\n';
      std::exit(1);
    }
    best = std::max(best, double(report->statistics.laneInstructions) / seconds.count());
  }
  std::cout << fmt::format("{:<28}{:<8}{:8.1f} million lane instructions per second\n", name,
                           checks == Checks::None ? "none" : "all", best * 1e-6);
}

int main() {
  std::cout << "best of 5, one core              checks\n";
  for (Checks checks : {Checks::None, Checks::All}) {
    measure("float GEMM, fma.rn.f32", floatLoop(), checks);
    measure("int8 GEMM, mma.sync m16n8k32", matrixLoop(), checks);
  }
}
