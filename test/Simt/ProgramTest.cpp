//===- ProgramTest.cpp - Functions, variables, and files that are wrong ---===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Snippet.h"

using namespace easyquant::simt;

namespace {

const std::string functions = R"(
.global .align 4 .u32 table[3] = {10, 20, 30};
.global .align 8 .u64 pointers[2] = {table, generic(table)+8};
.const .align 4 .f32 scale = 0f40000000;
.func (.param .b32 result) factorial(.param .b32 n)
{
.reg .b32 %n, %m; .reg .pred %p;
ld.param.b32 %n, [n];
setp.le.u32 %p, %n, 1;
@%p bra one;
sub.u32 %m, %n, 1;
{
.param .b32 argument; .param .b32 value;
st.param.b32 [argument], %m;
call.uni (value), factorial, (argument);
ld.param.b32 %m, [value];
}
mul.lo.u32 %n, %n, %m;
one: st.param.b32 [result], %n;
ret;
}
.func (.reg .b32 %result) twice(.reg .b32 %x) { add.u32 %result, %x, %x; ret; }
.func (.reg .b32 %result) thrice(.reg .b32 %x) { mul.lo.u32 %result, %x, 3; ret; }
)";

TEST(Program, CallsTablesAndVariables) {
  Device device;
  uint64_t out = device.allocate(32 * 4 * 4, "out").value();
  Arguments arguments;
  struct {
    uint32_t a, b;
  } pair = {100, 7};
  arguments.add(out).add(pair);
  LaunchOptions options;
  options.block = {32, 1, 1};
  auto report = run(device,
                    moduleText(kernelText(".param .u64 o, .param .align 4 .b8 pair[8]", R"(
.reg .b64 %d<8>; .reg .b32 %r<20>; .reg .pred %p; .reg .f32 %f<3>;
ld.param.u64 %d0, [o]; mov.u32 %r0, %tid.x; mad.wide.u32 %d0, %r0, 16, %d0;
and.b32 %r1, %r0, 7;
{
.param .b32 x; .param .b32 y;
st.param.b32 [x], %r1;
call (y), factorial, (x);
ld.param.b32 %r2, [y];
}
st.global.u32 [%d0], %r2;
and.b32 %r3, %r0, 1; setp.eq.u32 %p, %r3, 0;
mov.u64 %d1, twice; mov.u64 %d2, thrice; selp.u64 %d3, %d1, %d2, %p;
prototype: .callprototype (.reg .b32 _) _ (.reg .b32 _);
call (%r4), %d3, (%r0), prototype;
st.global.u32 [%d0+4], %r4;
rem.u32 %r5, %r0, 3;
targets: .branchtargets first, second, third;
brx.idx %r5, targets;
first: ld.global.u32 %r6, [table]; bra join;
second: ld.global.u64 %d4, [pointers]; ld.global.u32 %r6, [%d4+4]; bra join;
third: ld.global.u64 %d4, [pointers+8]; ld.u32 %r6, [%d4]; bra join;
join: st.global.u32 [%d0+8], %r6;
ld.const.f32 %f0, [scale]; ld.param.u32 %r7, [pair+4]; ld.param.u32 %r8, [pair];
cvt.rn.f32.u32 %f1, %r7; mul.f32 %f1, %f1, %f0; cvt.rzi.u32.f32 %r9, %f1; add.u32 %r9, %r9, %r8;
st.global.u32 [%d0+12], %r9;
)"),
                               functions),
                    options, arguments);
  ASSERT_TRUE(report.completed && report.findings.empty()) << messages(report);
  auto d = download<uint32_t>(device, out, 128);
  const uint32_t factorials[] = {0, 1, 2, 6, 24, 120, 720, 5040};
  for (uint32_t lane = 0; lane < 32; ++lane) {
    EXPECT_EQ(d[lane * 4], factorials[lane & 7]);
    EXPECT_EQ(d[lane * 4 + 1], lane * (lane & 1 ? 3 : 2));
    EXPECT_EQ(d[lane * 4 + 2], 10 * (lane % 3 + 1));
    EXPECT_EQ(d[lane * 4 + 3], 114u);
  }
}

/// Labels of inline assembly are in scopes of their own, and dynamic shared memory lies last.
TEST(Program, ScopesAndDynamicSharedMemory) {
  Device device;
  uint64_t out = device.allocate(32 * 4, "out").value();
  Arguments arguments;
  arguments.add(out);
  LaunchOptions options;
  options.block = {32, 1, 1};
  options.dynamicSharedBytes = 128;
  auto report = run(device,
                    moduleText(kernelText(".param .u64 o", R"(
.shared .align 4 .b8 fixed[100];
.reg .b64 %d<2>; .reg .b32 %r<8>;
mov.u32 %r0, %tid.x; mov.u32 %r1, 0;
{ .reg .pred P; WAIT: add.u32 %r1, %r1, 1; setp.lt.u32 P, %r1, 5; @P bra WAIT; }
{ .reg .pred P; WAIT: add.u32 %r1, %r1, 2; setp.lt.u32 P, %r1, 9; @P bra WAIT; }
mov.u32 %r2, dynamic; mad.lo.u32 %r3, %r0, 4, %r2; st.shared.u32 [%r3], %r1;
st.shared.u32 [fixed+96], %r0;
ld.shared.u32 %r4, [%r3];
ld.param.u64 %d0, [o]; mad.wide.u32 %d1, %r0, 4, %d0; st.global.u32 [%d1], %r4;
)"),
                               ".extern .shared .align 16 .b8 dynamic[];\n"),
                    options, arguments);
  // All lanes store their number to one place, which is the only thing wrong.
  ASSERT_EQ(report.findings.size(), 1u) << messages(report);
  EXPECT_EQ(report.statistics.sharedBytes, 112u + 128u);
  EXPECT_EQ(download<uint32_t>(device, out, 32), std::vector<uint32_t>(32, 9));
}

std::string errorOf(const std::string &text, const LaunchOptions &options = {},
                    const Arguments &arguments = {}, const char *kernel = "k") {
  auto module = Module::parse(text, "bad.ptx");
  if (!module)
    return module.error().message;
  Device device;
  auto report = launch(device, *module, kernel, options, arguments);
  return report ? "no error" : report.error().message;
}

void expectError(const std::string &body, const std::vector<std::string> &words) {
  std::string error = errorOf(
      moduleText(kernelText("", ".reg .b32 %r<4>; .reg .f32 %f<4>; .reg .b64 %d<4>;\n" + body)));
  for (const std::string &word : words)
    EXPECT_NE(error.find(word), std::string::npos) << body << "\n" << error;
}

TEST(Errors, QuoteTheLine) {
  expectError("wgmma.fence.sync.aligned;",
              {"bad.ptx:7:", "does not know this instruction", "wgmma.fence.sync.aligned;"});
  expectError("add.s32.magic %r0, %r1, %r2;", {"'.magic'", "add.s32.magic"});
  expectError("mad.wide.cc.u32 %d0, %r1, %r2, %d3;",
              {"does not know this instruction", "mad.wide.cc"});
  expectError("add.f7 %f0, %f1, %f2;", {"add.f7"});
  expectError("add.u64 %d0, %r1, %d2;", {"'%r1' has 32 bits where 64 are needed"});
  expectError("add.u32 %r0, %r1;", {"an operand is missing"});
  expectError("add.u32 %r0, %r1, %r9;", {"'%r9' is not declared"});
  expectError("bra nowhere;", {"'nowhere' is nowhere"});
  expectError("call missing, ();", {"'missing'"});
  expectError("mma.sync.aligned.m16n8k99.row.col.s32.s8.s8.s32 {%r0}, {%r1}, {%r2}, {%r3};",
              {"m16n8k99"});
  expectError("add.u32 %r0, %r1, %r2", {"bad.ptx:"});
}

TEST(Errors, VariablesFitInAThread) {
  expectError("{ .param .b8 huge[4294967290]; .param .b8 next[64]; st.param.b8 [next], %r0; }",
              {"bad.ptx:7:", "'huge' has 4294967290 bytes, behind 0 others", "512 KiB"});
  expectError(".local .b8 a[400000]; .local .align 8 .b8 b[400000];",
              {"'b' has 400000 bytes, behind 400000 others"});
  EXPECT_NE(errorOf(moduleText(kernelText(".param .b8 p[4294967290]", ""))).find("512 KiB"),
            std::string::npos);
}

TEST(Errors, NameWhatTheLaunchLacks) {
  std::string good = moduleText(kernelText(".param .u64 p, .param .f32 x", ""));
  EXPECT_NE(errorOf(good, {}, {}, "other").find("no kernel 'other'. Its kernels:\n  k"),
            std::string::npos);
  EXPECT_NE(errorOf(good).find("0 arguments given, but it takes 2: (.u64 p, .f32 x)"),
            std::string::npos);
  Arguments wrong;
  wrong.add(uint32_t(1)).add(1.0f);
  EXPECT_NE(errorOf(good, {}, wrong).find("parameter p is .u64 of 8 bytes"), std::string::npos);
  std::string claims = moduleText(kernelText(".param .u64 .ptr .global .align 16 p", ""));
  Arguments odd;
  odd.add(uint64_t(0x1008));
  EXPECT_NE(errorOf(claims, {}, odd)
                .find("argument 1 (p) is 0x1008, but the kernel claims a multiple of 16"),
            std::string::npos);
  LaunchOptions large;
  large.block = {1024, 2, 1};
  EXPECT_NE(errorOf(moduleText(kernelText("", "")), large).find("1 to 1024 threads"),
            std::string::npos);
  EXPECT_NE(errorOf("\177ELF").find("bad.ptx:1:"), std::string::npos);
  EXPECT_NE(errorOf("").find("no PTX file"), std::string::npos);
  std::string deep = moduleText(kernelText("", "add.u32 " + std::string(100000, '[') + ";"));
  EXPECT_NE(errorOf(deep).find("nested too deeply"), std::string::npos);
}

} // namespace
