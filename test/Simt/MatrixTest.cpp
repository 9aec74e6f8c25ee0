//===- MatrixTest.cpp - Fragments by the manual's formulas, products by brute force -===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Snippet.h"

#include <algorithm>

using namespace easyquant::simt;

namespace {

/// Element (row, column) of register element i of a lane, copied from the PTX manual's formulas.
struct Place {
  int row, column;
};
using Layout = Place (*)(int lane, int i);

int group(int lane) { return lane >> 2; }
int inGroup(int lane) { return lane & 3; }
Place accumulator16(int lane, int i) {
  return {i < 2 ? group(lane) : group(lane) + 8, inGroup(lane) * 2 + (i & 1)};
}
Place accumulator8(int lane, int i) { return {group(lane), inGroup(lane) * 2 + (i & 1)}; }

// The layouts of the shapes with the largest k.
Place aOf8Bits(int l, int i) {
  return Place{(i < 4) || (i >= 8 && i < 12) ? group(l) : group(l) + 8,
               i < 8 ? inGroup(l) * 4 + (i & 3) : inGroup(l) * 4 + (i & 3) + 16};
}
Place bOf8Bits(int l, int i) {
  return Place{i < 4 ? inGroup(l) * 4 + (i & 3) : inGroup(l) * 4 + (i & 3) + 16, group(l)};
}
Place aOf4Bits(int l, int i) {
  return Place{(i < 8) || (i >= 16 && i < 24) ? group(l) : group(l) + 8,
               i < 16 ? inGroup(l) * 8 + (i & 7) : inGroup(l) * 8 + (i & 7) + 32};
}
Place bOf4Bits(int l, int i) {
  return Place{i < 8 ? inGroup(l) * 8 + (i & 7) : inGroup(l) * 8 + (i & 7) + 32, group(l)};
}
Place aOf16Bits(int l, int i) {
  return Place{(i < 2) || (i >= 4 && i < 6) ? group(l) : group(l) + 8,
               i < 4 ? inGroup(l) * 2 + (i & 1) : inGroup(l) * 2 + (i & 1) + 8};
}
Place bOf16Bits(int l, int i) {
  return Place{i < 2 ? inGroup(l) * 2 + (i & 1) : inGroup(l) * 2 + (i & 1) + 8, group(l)};
}

struct Case {
  const char *name, *instruction;
  int m, n, k, aElements, bElements, bits; ///< Elements a lane.
  bool isFloat;
  Layout a, b, c;
};
const Case cases[] = {
    {"m16n8k32s8", "mma.sync.aligned.m16n8k32.row.col.satfinite.s32.s8.s8.s32", 16, 8, 32, 16, 8, 8,
     false, aOf8Bits, bOf8Bits, accumulator16},
    {"m16n8k32u8s8", "mma.sync.aligned.m16n8k32.row.col.s32.u8.s8.s32", 16, 8, 32, 16, 8, 8, false,
     aOf8Bits, bOf8Bits, accumulator16},
    {"m16n8k16s8", "mma.sync.aligned.m16n8k16.row.col.s32.s8.s8.s32", 16, 8, 16, 8, 4, 8, false,
     [](int l, int i) { return Place{i < 4 ? group(l) : group(l) + 8, inGroup(l) * 4 + (i & 3)}; },
     [](int l, int i) { return Place{inGroup(l) * 4 + i, group(l)}; }, accumulator16},
    {"m8n8k16s8", "mma.sync.aligned.m8n8k16.row.col.s32.s8.s8.s32", 8, 8, 16, 4, 4, 8, false,
     [](int l, int i) { return Place{group(l), inGroup(l) * 4 + i}; },
     [](int l, int i) { return Place{inGroup(l) * 4 + i, group(l)}; }, accumulator8},
    {"m16n8k64s4", "mma.sync.aligned.m16n8k64.row.col.s32.s4.s4.s32", 16, 8, 64, 32, 16, 4, false,
     aOf4Bits, bOf4Bits, accumulator16},
    {"m16n8k64s4u4", "mma.sync.aligned.m16n8k64.row.col.satfinite.s32.s4.u4.s32", 16, 8, 64, 32, 16,
     4, false, aOf4Bits, bOf4Bits, accumulator16},
    {"m16n8k16f16", "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32", 16, 8, 16, 8, 4, 16, true,
     aOf16Bits, bOf16Bits, accumulator16},
    {"m16n8k16bf16", "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32", 16, 8, 16, 8, 4, 16,
     true, aOf16Bits, bOf16Bits, accumulator16},
    {"m16n8k8f16", "mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32", 16, 8, 8, 4, 2, 16, true,
     [](int l, int i) { return Place{i < 2 ? group(l) : group(l) + 8, inGroup(l) * 2 + (i & 1)}; },
     [](int l, int i) { return Place{inGroup(l) * 2 + i, group(l)}; }, accumulator16},
    {"m16n8k8tf32", "mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32", 16, 8, 8, 4, 2, 32, true,
     [](int l, int i) {
       return Place{i == 0 || i == 2 ? group(l) : group(l) + 8,
                    i < 2 ? inGroup(l) : inGroup(l) + 4};
     },
     [](int l, int i) { return Place{i == 0 ? inGroup(l) : inGroup(l) + 4, group(l)}; },
     accumulator16},
};

/// Is this the type of operand A (0) or B (1)? An instruction ends in the types of d, a, b, c.
bool operandIs(const Case &t, int operand, std::string_view type) {
  std::string_view text = t.instruction;
  for (int k = operand; k < 2; ++k)
    text = text.substr(0, text.rfind('.'));
  return text.substr(text.rfind('.') + 1) == type;
}

double valueOf(const Case &t, int operand, uint32_t code) {
  if (t.isFloat && t.bits == 32)
    return std::bit_cast<float>(code & 0xffffe000); // tf32
  if (operandIs(t, operand, "bf16"))
    return std::bit_cast<float>(code << 16);
  if (t.isFloat)
    return std::bit_cast<_Float16>(static_cast<uint16_t>(code));
  bool isSigned = operandIs(t, operand, "s8") || operandIs(t, operand, "s4");
  return static_cast<int32_t>(code) - (isSigned && code >> (t.bits - 1) ? 1 << t.bits : 0);
}

class Mma : public testing::TestWithParam<Case> {
protected:
  /// D, row after row, of codes in a, b and c in the same order.
  static std::vector<uint32_t> execute(const Case &t, const std::vector<uint32_t> &a,
                                       const std::vector<uint32_t> &b,
                                       const std::vector<uint32_t> &c);
};

std::vector<uint32_t> Mma::execute(const Case &t, const std::vector<uint32_t> &a,
                                   const std::vector<uint32_t> &b, const std::vector<uint32_t> &c) {
  int per = t.bits == 32 ? 1 : 32 / t.bits, cElements = t.m * t.n / 32;
  int aRegisters = t.aElements / per, bRegisters = t.bElements / per;
  std::vector<uint32_t> af(32 * aRegisters), bf(32 * bRegisters), cf(32 * cElements);
  for (int lane = 0; lane < 32; ++lane) {
    for (int i = 0; i < t.aElements; ++i) {
      Place p = t.a(lane, i);
      af[lane * aRegisters + i / per] |= a[p.row * t.k + p.column] << i % per * t.bits % 32;
    }
    for (int i = 0; i < t.bElements; ++i) {
      Place p = t.b(lane, i);
      bf[lane * bRegisters + i / per] |= b[p.row * t.n + p.column] << i % per * t.bits % 32;
    }
    for (int i = 0; i < cElements; ++i) {
      Place p = t.c(lane, i);
      cf[lane * cElements + i] = c[p.row * t.n + p.column];
    }
  }
  auto loads = [&](const char *parameter, const char *prefix, int count) {
    std::string text = "ld.param.u64 %at, [" + std::string(parameter) +
                       "];\nmad.wide.u32 %at, %i, " + std::to_string(4 * count) + ", %at;\n";
    for (int k = 0; k < count; ++k)
      text += "ld.global.b32 " + std::string(prefix) + std::to_string(k) + ", [%at+" +
              std::to_string(4 * k) + "];\n";
    return text;
  };
  auto vector = [](const char *prefix, int count) {
    std::string text = "{";
    for (int k = 0; k < count; ++k)
      text += (k ? ", " : "") + std::string(prefix) + std::to_string(k);
    return text + "}";
  };
  std::string body =
      ".reg .b32 %a<9>, %b<9>, %c<9>, %d<9>, %i;\n.reg .b64 %at;\nmov.u32 %i, %tid.x;\n" +
      loads("a", "%a", aRegisters) + loads("b", "%b", bRegisters) + loads("c", "%c", cElements) +
      t.instruction + " " + vector("%d", cElements) + ", " + vector("%a", aRegisters) + ", " +
      vector("%b", bRegisters) + ", " + vector("%c", cElements) +
      ";\nld.param.u64 %at, [o];\nmad.wide.u32 %at, %i, " + std::to_string(4 * cElements) +
      ", %at;\n";
  for (int k = 0; k < cElements; ++k)
    body += "st.global.b32 [%at+" + std::to_string(4 * k) + "], %d" + std::to_string(k) + ";\n";
  Device device;
  uint64_t out = device.allocate(cf.size() * 4, "out").value();
  Arguments arguments;
  arguments.add(out)
      .add(upload(device, af, "a"))
      .add(upload(device, bf, "b"))
      .add(upload(device, cf, "c"));
  LaunchOptions options;
  options.block = {32, 1, 1};
  auto report = run(
      device,
      moduleText(kernelText(".param .u64 o, .param .u64 a, .param .u64 b, .param .u64 c", body)),
      options, arguments);
  EXPECT_TRUE(report.completed && report.findings.empty()) << messages(report);
  auto d = download<uint32_t>(device, out, cf.size());
  std::vector<uint32_t> result(t.m * t.n);
  for (int lane = 0; lane < 32; ++lane)
    for (int i = 0; i < cElements; ++i) {
      Place p = t.c(lane, i);
      result[p.row * t.n + p.column] = d[lane * cElements + i];
    }
  return result;
}

/// Random codes, so that floats span their range with NaN and infinity, and sums of integers wrap
/// or saturate. Floats: summed in double precision in the order of k, rounded once.
TEST_P(Mma, MultipliesToTheBit) {
  const Case &t = GetParam();
  std::mt19937 random(7);
  for (int repeat = 0; repeat < 8; ++repeat) {
    std::vector<uint32_t> a(t.m * t.k), b(t.k * t.n), c(t.m * t.n);
    for (auto *matrix : {&a, &b})
      for (uint32_t &code : *matrix)
        code = static_cast<uint32_t>(random()) & (t.bits == 32 ? ~0u : (1u << t.bits) - 1);
    for (uint32_t &code : c)
      code = t.isFloat || random() % 2 ? random() : 0x80000000u - random() % 16;
    auto d = execute(t, a, b, c);
    for (int row = 0; row < t.m; ++row)
      for (int column = 0; column < t.n; ++column) {
        uint32_t addend = c[row * t.n + column];
        double sum = static_cast<int32_t>(addend);
        if (t.isFloat)
          sum = std::bit_cast<float>(addend);
        for (int k = 0; k < t.k; ++k) {
          double product = valueOf(t, 0, a[row * t.k + k]) * valueOf(t, 1, b[k * t.n + column]);
          sum += product;
        }
        if (!t.isFloat && std::string_view(t.instruction).find("satfinite") != std::string::npos)
          sum = std::clamp<double>(sum, INT32_MIN, INT32_MAX);
        uint32_t expected = !t.isFloat   ? static_cast<uint32_t>(static_cast<int64_t>(sum))
                            : sum != sum ? 0x7fffffffu
                                         : std::bit_cast<uint32_t>(static_cast<float>(sum));
        ASSERT_EQ(d[row * t.n + column], expected) << "row " << row << ", column " << column;
      }
  }
}
INSTANTIATE_TEST_SUITE_P(, Mma, testing::ValuesIn(cases),
                         [](const auto &info) { return std::string(info.param.name); });

/// ldmatrix gives lane l elements 2(l % 4), +1 of row l / 4; transposed, of column l / 4.
TEST(MatrixMove, LoadsStoresAndTransposes) {
  std::vector<uint16_t> in(256);
  for (size_t k = 0; k < in.size(); ++k)
    in[k] = static_cast<uint16_t>(k * 257 + 1);
  const std::string text = R"(
.shared .align 16 .b8 tile[512];
.shared .align 16 .b8 back[512];
.reg .b32 %r<20>; .reg .b64 %d<8>;
ld.param.u64 %d0, [a]; ld.param.u64 %d1, [o];
mov.u32 %r0, %tid.x; shl.b32 %r1, %r0, 4;
mad.wide.u32 %d2, %r0, 16, %d0;
ld.global.v4.b32 {%r2, %r3, %r4, %r5}, [%d2];
mov.u32 %r6, tile; add.u32 %r6, %r6, %r1;
st.shared.v4.b32 [%r6], {%r2, %r3, %r4, %r5};
bar.warp.sync 0xffffffff;
ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%r2, %r3, %r4, %r5}, [%r6];
ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%r8, %r9, %r10, %r11}, [%r6];
movmatrix.sync.aligned.m8n8.trans.b16 %r12, %r2;
mov.u32 %r7, back; add.u32 %r7, %r7, %r1;
stmatrix.sync.aligned.m8n8.x4.trans.shared.b16 [%r7], {%r8, %r9, %r10, %r11};
bar.warp.sync 0xffffffff;
ld.shared.v4.b32 {%r13, %r14, %r15, %r16}, [%r7];
mad.wide.u32 %d3, %r0, 52, %d1;
st.global.b32 [%d3], %r2; st.global.b32 [%d3+4], %r3; st.global.b32 [%d3+8], %r4; st.global.b32 [%d3+12], %r5;
st.global.b32 [%d3+16], %r8; st.global.b32 [%d3+20], %r9; st.global.b32 [%d3+24], %r10; st.global.b32 [%d3+28], %r11;
st.global.b32 [%d3+32], %r12;
st.global.b32 [%d3+36], %r13; st.global.b32 [%d3+40], %r14; st.global.b32 [%d3+44], %r15; st.global.b32 [%d3+48], %r16;
)";
  Device device;
  uint64_t out = device.allocate(32 * 52, "out").value();
  Arguments arguments;
  arguments.add(out).add(upload(device, in, "in"));
  LaunchOptions options;
  options.block = {32, 1, 1};
  auto report =
      run(device, moduleText(kernelText(".param .u64 o, .param .u64 a", text)), options, arguments);
  ASSERT_TRUE(report.completed && report.findings.empty()) << messages(report);
  auto d = download<uint32_t>(device, out, 32 * 13);
  auto at = [&](int matrix, int row, int column) { return in[matrix * 64 + row * 8 + column]; };
  for (int lane = 0; lane < 32; ++lane) {
    int row = lane / 4, column = 2 * (lane % 4);
    for (int k = 0; k < 4; ++k) {
      ASSERT_EQ(d[lane * 13 + k], at(k, row, column) | uint32_t(at(k, row, column + 1)) << 16);
      ASSERT_EQ(d[lane * 13 + 4 + k], at(k, column, row) | uint32_t(at(k, column + 1, row)) << 16);
      // Back where it came from: lane l stored 16 bytes, which are row l of all.
      ASSERT_EQ(d[lane * 13 + 9 + k], in[lane * 8 + 2 * k] | uint32_t(in[lane * 8 + 2 * k + 1])
                                                                 << 16);
    }
    ASSERT_EQ(d[lane * 13 + 8], d[lane * 13 + 4]);
  }
}

} // namespace
