//===- LaunchTest.cpp - What is launched, against PTX and GPUs ------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// A launch passes addresses of arguments, from each of which the driver copies as many bytes as the
// kernel's PTX declares: too few, or a number for a pointer, and it reads what lies behind them.
// The descriptions that launches are made from are compared with the PTX, and grids and shared
// memory with what every GPU, or the chip, can do.
//
//===----------------------------------------------------------------------===//

#include "SimtRunner.h"

#include "easyquant/Codegen/GPU/Choose.h"
#include "easyquant/Codegen/GPU/Experts.h"
#include "easyquant/Codegen/GPU/Recurrent.h"

using namespace easyquant;
using namespace easyquant::gpu;

namespace {

constexpr int64_t kMostRows = int64_t(1) << 20; // of one call
constexpr int64_t kMostRowsOfStep = 4096;       // whose logits are kept
constexpr int64_t kVocabulary = 262144;         // the widest head in use

/// A kernel, and the most rows that it is launched for.
struct Launched {
  Description kernel;
  int64_t mostRows;
};

/// Every family, with every parameter that there is, in odd and in the widest sizes.
std::vector<Launched> addAll(KernelLibrary &library) {
  std::vector<Launched> all;
  auto add = [&](const Description &kernel, int64_t mostRows = kMostRows) {
    all.push_back({kernel, std::min(mostRows, kMostRows)});
  };
  for (RowOp op : {RowOp::Quantize, RowOp::RmsNorm, RowOp::LayerNorm, RowOp::SiluMul,
                   RowOp::GeluErf, RowOp::Add, RowOp::Copy}) {
    RowSpec spec;
    spec.op = op;
    spec.columns = 100;
    spec.constant = 1e-5;
    if (op != RowOp::Quantize)
      add(library.add(spec));
    if (op == RowOp::Add || op == RowOp::Copy)
      continue;
    spec.quantization = RowQuantization::Dynamic;
    spec.sums = true;
    add(library.add(spec));
    spec.quantization = RowQuantization::Static;
    spec.zeroPoints = true;
    add(library.add(spec));
  }
  for (int64_t n : {int64_t(72), kVocabulary}) {
    LinearSpec integers;
    integers.n = n;
    integers.k = 160;
    WeightOnlySpec floats;
    floats.n = n;
    floats.k = 160;
    floats.bits = 8;
    for (bool all : {false, true}) {
      integers.groupSize = all ? 32 : 0;
      integers.zeroPoints = integers.inputZeroPoints = integers.bias = integers.accumulate = all;
      for (const LinearKernel &kernel : library.add(integers))
        add(kernel.description, kernel.maxRows);
      floats.scales = integers.scales = all ? ScaleFormat::F16 : ScaleFormat::F32;
      floats.groupSize = all ? 32 : 0;
      floats.zeroPoints = floats.bias = floats.accumulate = all;
      for (const WeightOnlyKernel &kernel : library.add(floats))
        add(kernel.description, kernel.maxRows);
    }
  }
  EmbeddingSpec embedding;
  embedding.vocab = kVocabulary;
  embedding.columns = 96;
  embedding.rows = EmbeddingSpec::Rows::Codes;
  add(library.add(embedding));
  PositionEmbeddingSpec positions;
  positions.positions = 64;
  positions.columns = 96;
  add(library.add(positions));
  add(library.add(HeadsSpec{5, 1, 48, true, 1e-6, 64}));
  add(library.add(Conv1dSpec{8192, 4, 1 << 20, true, true}));
  add(library.add(GatedDeltaSpec{16, 128, 32, 128, false, 1 << 20}));
  ChooseExpertsSpec experts{1000, 40, true, true, true, true};
  add(library.add(experts));
  for (bool few : {false, true})
    add(library.add(SortChoicesSpec{1000, 40, few}), few ? kFewChoices / 40 : kMostRows);
  add(library.add(CombineSpec{8192, 40, true}));
  LinearSpec codesOfExperts;
  WeightOnlySpec floatsOfExperts;
  codesOfExperts.n = floatsOfExperts.n = 192;
  codesOfExperts.k = floatsOfExperts.k = 160;
  codesOfExperts.experts = floatsOfExperts.experts = 1000;
  codesOfExperts.bias = floatsOfExperts.bias = true;
  for (const LinearKernel &kernel : library.add(codesOfExperts))
    add(kernel.description, kernel.maxRows);
  for (const WeightOnlyKernel &kernel : library.add(floatsOfExperts))
    add(kernel.description, kernel.maxRows);
  add(library.add(KeepLogitsSpec{kVocabulary}), kMostRowsOfStep);
  add(library.add(ChangeLogitsSpec{kVocabulary}));
  add(library.add(WeighLogitsSpec{kVocabulary}), kMostRowsOfStep);
  add(library.add(ChooseTokensSpec{kVocabulary}), kMostRowsOfStep);
  for (int bits : {0, 8}) {
    AttentionSpec spec;
    spec.heads = 128;
    spec.kvHeads = 8;
    spec.headDim = 64;
    spec.scale = 0.125;
    if (bits > 0) {
      spec.kv = {bits, 32, 64, 4, numerics::KeySlices::Channel};
      spec.keyPositions = 64;
      add(library.addRestore(spec));
    }
    const AttentionLaunches launches = library.add(spec);
    for (const auto *some : {&launches.before, &launches.behind})
      for (const Description &launch : *some)
        add(launch);
    for (const AttentionKernel &kernel : launches.kernels)
      add(kernel.launch);
  }
  return all;
}

/// The kernels of a chip, compiled once.
struct Compiled {
  explicit Compiled(ChipId chip) : library(chip), all(addAll(library)) {}
  KernelLibrary library;
  std::vector<Launched> all;
};
Compiled &compiled(ChipId chip) {
  static std::map<ChipId, Compiled> known;
  return known.try_emplace(chip, chip).first->second;
}

class GPULaunch : public testing::TestWithParam<ChipId> {};

} // namespace

TEST_P(GPULaunch, PassesWhatThePtxDeclares) {
  auto &[library, all] = compiled(GetParam());
  for (const auto &[kernel, mostRows] : all) {
    SCOPED_TRACE(kernel.name);
    const simt::KernelInfo *info = library.module()->find(kernel.name);
    ASSERT_NE(info, nullptr);
    ASSERT_EQ(info->parameters.size(), kernel.parameters.size());
    for (size_t i = 0; i < kernel.parameters.size(); ++i) {
      SCOPED_TRACE(kernel.parameters[i].name);
      uint32_t bytes = kernel.parameters[i].kind == Parameter::Pointer ? 8 : 4;
      EXPECT_EQ(info->parameters[i].bytes, bytes);
      EXPECT_EQ(info->parameters[i].alignment, bytes);
    }
    // Registers are shared out for so many threads; a launch of more would be refused.
    EXPECT_EQ(info->maxThreads, (std::array<uint32_t, 3>{kernel.threads, 1, 1}));
  }
}

TEST_P(GPULaunch, IsWithinTheLimitsOfItsGpu) {
  auto &[library, all] = compiled(GetParam());
  for (const auto &[kernel, mostRows] : all) {
    SCOPED_TRACE(kernel.name);
    EXPECT_TRUE(kernel.threads >= 32 && kernel.threads <= 1024 && kernel.threads % 32 == 0);
    EXPECT_LE(kernel.sharedBytes, library.target().sharedBytesPerBlock);
    for (int64_t rows : {int64_t(1), int64_t(17), mostRows}) {
      std::array<uint32_t, 3> grid = kernel.gridFor(std::min(rows, mostRows));
      EXPECT_TRUE(grid[0] >= 1 && grid[0] <= 0x7fffffffu) << grid[0];
      for (uint32_t size : {grid[1], grid[2]})
        EXPECT_TRUE(size >= 1 && size <= 65535) << size << ", " << rows << " rows";
    }
  }
}

/// A product and a sum without a rounding mode may become one fma (PTX ISA, "mul"): the assembler
/// would then choose the bits of results.
TEST_P(GPULaunch, LeavesNoRoundingToTheAssembler) {
  const std::string &ptx = compiled(GetParam()).library.ptx();
  EXPECT_NE(ptx.find("mul.rn.f32"), std::string::npos);
  for (const char *op : {"add", "sub", "mul"})
    for (const char *type : {"f16", "f16x2", "bf16", "bf16x2", "f32", "f64"}) {
      size_t at = ptx.find(fmt::format("\t{}.{} ", op, type));
      EXPECT_EQ(at, std::string::npos) << ptx.substr(at == std::string::npos ? ptx.size() : at, 60);
    }
}

// One chip of each table of tiles.
INSTANTIATE_TEST_SUITE_P(Chips, GPULaunch,
                         testing::Values(ChipId::SM80, ChipId::SM86, ChipId::SM90a),
                         [](const testing::TestParamInfo<ChipId> &info) {
                           return std::string(chip(info.param).name);
                         });
