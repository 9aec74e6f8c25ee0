//===- BlockScaleTest.cpp - Products with scales of blocks ----------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Snippet.h"

#include <cmath>
#include <cstring>

using namespace easyquant::simt;

namespace {

constexpr int kRows = 16, kColumns = 8, kK = 64, kBlocks = 4;

/// A whole product, codes as the manual numbers them: row after row of A, column after column of B.
struct Product {
  std::vector<uint8_t> a, b;             ///< codes of e2m1
  std::vector<uint8_t> aScales, bScales; ///< codes of ue4m3, four a row or column
  std::vector<float> c;
};

Product randomProduct(std::mt19937 &random) {
  Product p;
  auto codes = [&](std::vector<uint8_t> &to, int count, int most) {
    for (int i = 0; i < count; ++i)
      to.push_back(static_cast<uint8_t>(random() % most));
  };
  codes(p.a, kRows * kK, 16);
  codes(p.b, kColumns * kK, 16);
  codes(p.aScales, kRows * kBlocks, 0x7f); // all but NaN, 0 and subnormals among them
  codes(p.bScales, kColumns * kBlocks, 0x7f);
  std::normal_distribution<float> normal(0, 1000);
  for (int i = 0; i < kRows * kColumns; ++i)
    p.c.push_back(normal(random));
  return p;
}

/// Registers by the formulas of the manual's "Matrix Fragments for mma.m16n8k64"; scales in the
/// lanes that the selectors name, and in all others what would be seen.
struct Registers {
  std::vector<uint32_t> words; ///< of each lane: a 4, b 2, scale a, scale b
  std::vector<float> c;        ///< of each lane: 4
};
constexpr int kWords = 8;

Registers registersOf(const Product &p, int threadA, int threadB) {
  Registers r{std::vector<uint32_t>(32 * kWords), std::vector<float>(32 * 4)};
  for (int lane = 0; lane < 32; ++lane) {
    const int group = lane >> 2, inGroup = lane & 3;
    uint32_t *words = r.words.data() + lane * kWords;
    for (int i = 0; i < 32; ++i) {
      const int row = i % 16 < 8 ? group : group + 8;
      const int k = inGroup * 8 + (i & 7) + (i < 16 ? 0 : 32);
      words[i / 8] |= uint32_t(p.a[row * kK + k]) << 4 * (i % 8);
    }
    for (int i = 0; i < 16; ++i) {
      const int k = inGroup * 8 + (i & 7) + (i < 8 ? 0 : 32);
      words[4 + i / 8] |= uint32_t(p.b[group * kK + k]) << 4 * (i % 8);
    }
    words[6] = words[7] = 0x7f7f7f7f; // NaN
    if (inGroup / 2 == threadA)
      std::memcpy(words + 6, &p.aScales[(group + 8 * (inGroup % 2)) * kBlocks], 4);
    if (inGroup == threadB)
      std::memcpy(words + 7, &p.bScales[group * kBlocks], 4);
    for (int i = 0; i < 4; ++i)
      r.c[lane * 4 + i] = p.c[(group + i / 2 * 8) * kColumns + inGroup * 2 + i % 2];
  }
  return r;
}

std::vector<float> execute(const std::string &instruction, const Registers &registers, int threadA,
                           int threadB) {
  const std::string text = R"(
.reg .b32 %w<8>, %i; .reg .f32 %c<4>, %d<4>; .reg .b64 %at; .reg .b16 %h<3>;
mov.u32 %i, %tid.x;
ld.param.u64 %at, [w]; mad.wide.u32 %at, %i, 32, %at;
ld.global.v4.b32 {%w0, %w1, %w2, %w3}, [%at]; ld.global.v4.b32 {%w4, %w5, %w6, %w7}, [%at+16];
ld.param.u64 %at, [c]; mad.wide.u32 %at, %i, 16, %at;
ld.global.v4.f32 {%c0, %c1, %c2, %c3}, [%at];
mov.b16 %h0, 0; mov.b16 %h1, )" +
                           std::to_string(threadA) + "; mov.b16 %h2, " + std::to_string(threadB) +
                           ";\n" + instruction + R"(
 {%d0, %d1, %d2, %d3}, {%w0, %w1, %w2, %w3}, {%w4, %w5}, {%c0, %c1, %c2, %c3},
 %w6, {%h0, %h1}, {%w7}, {0, %h2};
st.global.v4.f32 [%at], {%d0, %d1, %d2, %d3};
)";
  Device device;
  const uint64_t sums = upload(device, registers.c, "c");
  Arguments arguments;
  arguments.add(upload(device, registers.words, "w")).add(sums);
  LaunchOptions options;
  options.block = {32, 1, 1};
  auto report =
      run(device, moduleText(kernelText(".param .u64 w, .param .u64 c", text)), options, arguments);
  EXPECT_TRUE(report.completed && report.findings.empty()) << messages(report);
  return download<float>(device, sums, registers.c.size());
}

double e2m1(uint8_t code) {
  const double magnitude =
      (code & 6) ? std::ldexp(1 + (code & 1) / 2.0, (code >> 1 & 3) - 1) : (code & 1) / 2.0;
  return code & 8 ? -magnitude : magnitude;
}

double ue4m3(uint8_t code) {
  return code < 8 ? code * 0x1p-9 : std::ldexp(1 + (code & 7) / 8.0, (code >> 3) - 7);
}

constexpr const char *kInstruction =
    "mma.sync.aligned.m16n8k64.row.col.kind::mxf4nvf4.block_scale.scale_vec::4X.f32.e2m1.e2m1.f32"
    ".ue4m3";

TEST(BlockScale, MultipliesToTheBit) {
  std::mt19937 random(11);
  for (int threadA = 0; threadA < 2; ++threadA)
    for (int threadB = 0; threadB < 4; ++threadB) {
      const Product p = randomProduct(random);
      const std::vector<float> found =
          execute(kInstruction, registersOf(p, threadA, threadB), threadA, threadB);
      for (int lane = 0; lane < 32; ++lane)
        for (int i = 0; i < 4; ++i) {
          const int row = (lane >> 2) + i / 2 * 8, column = (lane & 3) * 2 + i % 2;
          double sum = p.c[row * kColumns + column];
          for (int k = 0; k < kK; ++k) {
            const double x = e2m1(p.a[row * kK + k]), w = e2m1(p.b[column * kK + k]);
            const double sx = ue4m3(p.aScales[row * kBlocks + k / 16]);
            const double sw = ue4m3(p.bScales[column * kBlocks + k / 16]);
            sum += x * sx * (w * sw);
          }
          ASSERT_EQ(found[lane * 4 + i], static_cast<float>(sum))
              << "row " << row << ", column " << column;
        }
    }
}

/// As CUTLASS writes it.
TEST(BlockScale, KindMayComeFirst) {
  std::mt19937 random(12);
  const Registers registers = registersOf(randomProduct(random), 0, 0);
  EXPECT_EQ(execute("mma.sync.aligned.kind::mxf4nvf4.block_scale.scale_vec::4X.m16n8k64.row.col.f32"
                    ".e2m1.e2m1.f32.ue4m3",
                    registers, 0, 0),
            execute(kInstruction, registers, 0, 0));
}

} // namespace
