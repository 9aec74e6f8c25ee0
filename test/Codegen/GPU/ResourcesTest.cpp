//===- ResourcesTest.cpp - What ptxas makes of the kernels ----------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "SimtRunner.h"

#include "easyquant/Codegen/GPU/F32Linear.h"
#include "easyquant/Codegen/GPU/MaskClusters.h"
#include "easyquant/Codegen/GPU/Recurrent.h"
#include "easyquant/Emit/Assemble.h"
#include "easyquant/Numerics/Hadamard.h"

#include "llvm/Support/ThreadPool.h"

#include <cstdlib>
#include <functional>
#include <future>

using namespace easyquant;
using namespace easyquant::gpu;

namespace {

constexpr int64_t kRegistersPerSM = 65536; // of every chip here

/// Shapes of real layers: the tiles are whole, as they are where time is spent. Specs that take
/// most registers; test_gpu_sass.py looks for spills in plainer ones.
std::vector<LinearSpec> linears() {
  LinearSpec w8, grouped;
  w8.n = grouped.n = 4096;
  w8.k = grouped.k = 4096;
  grouped.bits = 4;
  grouped.groupSize = 128;
  grouped.scales = ScaleFormat::F16;
  w8.bias = true;
  grouped.accumulate = grouped.zeroPoints = true;
  LinearSpec twoBits = grouped, sixBits = grouped, table = grouped, nested = grouped;
  twoBits.bits = 2;
  sixBits.bits = 6;
  table.codes = CodeFormat::Table;
  table.zeroPoints = false;
  table.unit = 1.0f / 128;
  nested.inputGroup = 32;
  LinearSpec fp8 = w8;
  fp8.codes = CodeFormat::F8E4M3FN;
  return {w8, grouped, twoBits, sixBits, table, nested, fp8};
}

std::vector<WeightOnlySpec> weightOnlyLinears() {
  std::vector<WeightOnlySpec> specs;
  auto add = [&](int bits, int64_t group, bool zeroPoints, Float input) {
    WeightOnlySpec spec;
    spec.n = spec.k = 4096;
    spec.bits = bits;
    spec.groupSize = group;
    spec.zeroPoints = zeroPoints;
    spec.scales = group ? ScaleFormat::F16 : ScaleFormat::F32;
    spec.input = input;
    spec.accumulate = group != 0;
    specs.push_back(spec);
  };
  add(4, 128, true, Float::F16);
  add(2, 64, true, Float::BF16);
  add(3, 128, true, Float::F16);
  add(8, 0, true, Float::BF16);
  add(16, 0, false, Float::BF16);
  add(6, 64, true, Float::BF16);
  add(4, 16, false, Float::BF16); // NVFP4
  specs.back().codes = CodeFormat::F4E2M1FN;
  specs.back().scales = ScaleFormat::F8E4M3FN;
  specs.back().outer = true;
  add(4, 64, false, Float::BF16); // NF4
  specs.back().codes = CodeFormat::Table;
  add(8, 0, false, Float::BF16);
  specs.back().codes = CodeFormat::F8E4M3FN;
  add(5, 32, false, Float::BF16); // Q5_1
  specs.back().minima = true;
  return specs;
}

/// Where a chip has such products.
BlockScaledSpec blockScaled() {
  BlockScaledSpec spec;
  spec.n = spec.k = 4096;
  spec.bits = 4;
  spec.groupSize = 16;
  spec.codes = CodeFormat::F4E2M1FN;
  spec.scales = ScaleFormat::F8E4M3FN;
  spec.outer = spec.accumulate = true;
  return spec;
}

std::vector<RowSpec> rowOps() {
  std::vector<RowSpec> specs;
  for (RowOp op :
       {RowOp::Quantize, RowOp::RmsNorm, RowOp::LayerNorm, RowOp::SiluMul, RowOp::GeluErf}) {
    RowSpec spec;
    spec.op = op;
    spec.columns = op == RowOp::SiluMul ? 11008 : 4096;
    spec.constant = 1e-5;
    spec.quantization = RowQuantization::Dynamic;
    specs.push_back(spec);
    spec.hadamard = numerics::hadamardBlock(spec.columns);
    specs.push_back(spec);
  }
  return specs;
}

/// Heads whose tiles leave few registers, over a float cache and over codes of 8 or of 4 bits, and
/// the widest ones. Two blocks of 128 dimensions have room whatever ptxas does; that nothing of
/// them is spilled test_gpu_sass.py shows.
std::vector<AttentionSpec> attentions() {
  std::vector<AttentionSpec> specs;
  for (auto [headDim, bits] : {std::pair<int64_t, int>(64, 0),
                               {64, 8},
                               {256, 0},
                               {256, 4},
                               {kMostHeadDim, 0},
                               {kMostHeadDim, 8}}) {
    AttentionSpec spec;
    spec.heads = 32;
    spec.kvHeads = 8;
    spec.headDim = headDim;
    spec.scale = 0.1;
    if (bits > 0)
      spec.kv = {bits, 64, 128, 4, numerics::KeySlices::Channel};
    specs.push_back(spec);
    // The same registers must do for caps, sinks, windows, and codes of the rows.
    if (headDim <= kMostCodedHeadDim)
      spec.codes = RowSpec{.columns = spec.heads * headDim, .sums = true, .groupSize = 32};
    spec.bound = 50;
    spec.sinkLogits = true;
    spec.window = 1024;
    specs.push_back(spec);
  }
  return specs;
}

/// Tests that need ptxas and fatbinary.
template <typename Base> class WithAssembler : public Base {
protected:
  void SetUp() override {
    if (!assembler)
      GTEST_SKIP() << "unsupported: " << assembler.error().message;
  }
  Result<Assembler> assembler = Assembler::find();
};

/// Kernels, and what ptxas made of them.
struct Assembled {
  std::vector<Description> kernels;
  Result<Cubin> cubin;
};

std::vector<Description> addLinearsAndRowOps(KernelLibrary &library) {
  constexpr int64_t vocabulary = 151936;
  std::vector<Description> kernels = {
      library.add(KeepLogitsSpec{vocabulary}), library.add(ChangeLogitsSpec{vocabulary}),
      library.add(WeighLogitsSpec{vocabulary}), library.add(ChooseTokensSpec{vocabulary})};
  for (const RowSpec &spec : rowOps())
    kernels.push_back(library.add(spec));
  for (const LinearSpec &spec : linears())
    for (const LinearKernel &kernel : library.add(spec))
      kernels.push_back(kernel.description);
  for (const WeightOnlySpec &spec : weightOnlyLinears())
    for (const WeightOnlyKernel &kernel : library.add(spec))
      kernels.push_back(kernel.description);
  if (!library.target().multipliesFP4())
    return kernels;
  kernels.push_back(library.add(BlockCodesSpec{4096}));
  for (const BlockScaledKernel &kernel : library.add(blockScaled()))
    kernels.push_back(kernel.description);
  return kernels;
}

/// Experts of Qwen3-30B-A3B, whose tiles are narrow, and of Mixtral.
std::vector<Description> addExperts(KernelLibrary &library) {
  std::vector<Description> kernels = {library.add(ChooseExpertsSpec{128, 8, true}),
                                      library.add(ChooseExpertsSpec{60, 40, false, true, true}),
                                      library.add(CombineSpec{2048, 8, true}),
                                      library.add(MaskClustersSpec{262144, 2048, 32})};
  for (bool few : {false, true})
    kernels.push_back(library.add(SortChoicesSpec{128, 8, few}));
  const F32LinearSpec router{128, 2048};
  for (const F32LinearKernel &kernel : library.add(router))
    kernels.push_back(kernel.description);
  auto addAll = [&](auto specs) {
    for (auto &spec : specs) {
      const bool isNarrow = &spec == specs.data();
      spec.n = isNarrow ? 768 : 14336;
      spec.k = isNarrow ? 2048 : 4096;
      spec.experts = isNarrow ? 128 : 8;
      spec.accumulate = false;
      for (const auto &kernel : library.add(spec))
        kernels.push_back(kernel.description);
    }
  };
  const std::vector<LinearSpec> codes = linears();
  const std::vector<WeightOnlySpec> floats = weightOnlyLinears();
  addAll(std::vector{codes.front(), codes[1], codes.back()}); // 8 bits, groups, FP8
  addAll(std::vector{floats.front(), floats[4], floats[6]});  // 4 bits, bf16, NVFP4
  if (library.target().multipliesFP4())
    addAll(std::vector{blockScaled(), blockScaled()});
  return kernels;
}

std::vector<Description> addAttention(KernelLibrary &library) {
  std::vector<Description> kernels = {
      library.add(HeadsSpec{32, 8, 128, true, 1e-6, 4096}),
      library.add(HeadsSpec{32, 8, 128, false, 0, 4096, false, 128})};
  for (const AttentionSpec &spec : attentions()) {
    const AttentionLaunches launches = library.add(spec);
    for (const auto *some : {&launches.before, &launches.behind})
      kernels.insert(kernels.end(), some->begin(), some->end());
    for (const AttentionKernel &kernel : launches.kernels)
      kernels.push_back(kernel.launch);
  }
  return kernels;
}

/// The shapes of LFM2, Qwen3.5 and ones that leave few registers.
std::vector<Description> addRecurrent(KernelLibrary &library) {
  return {library.add(Conv1dSpec{2048, 3, 1 << 20}),
          library.add(Conv1dSpec{8192, 4, 1 << 20, false, true}),
          library.add(GatedDeltaSpec{16, 128, 32, 128, false, 1 << 20}),
          library.add(GatedDeltaSpec{16, 128, 48, 128, true, 1 << 20}),
          library.add(GatedDeltaSpec{1, kMaxDeltaKeys, 3, 33, false, 1 << 20})};
}

Assembled assemble(const std::vector<Description> &kernels, const std::string &ptx,
                   std::string_view chip) {
  auto assembler = Assembler::find();
  if (!assembler)
    return {{}, Unexpected(assembler.error())};
  return {kernels, assembler->assemble(ptx, std::string(chip))};
}

/// With EASYQUANT_TEST_CHIPS=all every chip. Else one of those whose limits and instructions are
/// about the same: assembling takes most of the time.
std::vector<ChipId> testedChips() {
  const char *which = std::getenv("EASYQUANT_TEST_CHIPS");
  std::vector<ChipId> tested;
  for (const Chip &chip : chips())
    if ((which && std::string_view(which) == "all") ||
        (chip.id != ChipId::SM86 && chip.id != ChipId::SM87))
      tested.push_back(chip.id);
  return tested;
}

/// What is assembled for all tested chips, on all cores, by the first test that asks. PTX takes
/// longer to make than to assemble: chips of one generation that have the same kernels share it.
class EveryChip {
public:
  explicit EveryChip(std::vector<Description> (*add)(KernelLibrary &)) {
    std::map<std::string, std::shared_future<std::string>> texts;
    std::vector<std::function<void()>> then;
    for (ChipId id : testedChips()) {
      const Chip &chip = easyquant::gpu::chip(id);
      auto library = std::make_shared<KernelLibrary>(chip.id);
      std::vector<Description> kernels = add(*library);
      std::string key(chip.name.substr(0, std::string_view("sm_8").size()));
      for (const Description &kernel : kernels)
        key += fmt::format(" {}/{}/{}", kernel.name, kernel.sharedBytes, kernel.blocksPerSM);
      std::shared_future<std::string> &text = texts[key];
      if (!text.valid())
        text = pool.async([library] { return library->ptx(); });
      then.push_back([this, kernels, text, &chip] {
        futures[chip.id] =
            pool.async([kernels, text, &chip] { return assemble(kernels, text.get(), chip.name); });
      });
    }
    // Behind all that they wait for.
    for (const auto &begin : then)
      begin();
  }
  const Assembled &of(ChipId chip) { return futures.at(chip).get(); }

private:
  llvm::DefaultThreadPool pool;
  std::map<ChipId, std::shared_future<Assembled>> futures;
};

class GPUResources : public WithAssembler<testing::TestWithParam<ChipId>> {};

/// Registers, shared memory and spills against what the kernels were designed for.
void check(const Assembled &assembled, const Chip &chip) {
  ASSERT_TRUE(assembled.cubin) << assembled.cubin.error().message;
  for (const Description &kernel : assembled.kernels) {
    SCOPED_TRACE(kernel.name);
    ASSERT_TRUE(assembled.cubin->kernels.contains(kernel.name));
    const KernelResources &used = assembled.cubin->kernels.at(kernel.name);
    EXPECT_GT(used.registers, 0);
    EXPECT_EQ(used.spillStoreBytes + used.spillLoadBytes + used.stackBytes, 0);
    EXPECT_LE(kernel.sharedBytes + used.staticSharedBytes, chip.sharedBytesPerBlock);
    // Registers are given to warps in units of 256.
    int64_t registers = (used.registers * 32 + 255) / 256 * 256 * (kernel.threads / 32);
    int64_t blocks = kRegistersPerSM / registers;
    if (kernel.sharedBytes > 0)
      blocks = std::min(blocks, chip.sharedBytesPerSM / (kernel.sharedBytes + 1024));
    if (kernel.blocksPerSM > 0)
      EXPECT_GE(blocks, kernel.blocksPerSM) << used.registers << " registers";
    else // streaming kernels live from many loads under way
      EXPECT_GE(std::min(blocks * kernel.threads, chip.threadsPerSM), chip.threadsPerSM / 2)
          << used.registers << " registers";
  }
}

} // namespace

TEST_P(GPUResources, LinearsAndRowOpsAreWithinTheDesign) {
  static EveryChip assembled(addLinearsAndRowOps);
  check(assembled.of(GetParam()), chip(GetParam()));
}

TEST_P(GPUResources, ExpertsAreWithinTheDesign) {
  static EveryChip assembled(addExperts);
  check(assembled.of(GetParam()), chip(GetParam()));
}

TEST_P(GPUResources, AttentionIsWithinTheDesign) {
  static EveryChip assembled(addAttention);
  check(assembled.of(GetParam()), chip(GetParam()));
}

TEST_P(GPUResources, RecurrentLayersAreWithinTheDesign) {
  static EveryChip assembled(addRecurrent);
  check(assembled.of(GetParam()), chip(GetParam()));
}

static std::string chipName(const testing::TestParamInfo<ChipId> &info) {
  return std::string(chip(info.param).name);
}
INSTANTIATE_TEST_SUITE_P(Chips, GPUResources, testing::ValuesIn(testedChips()), chipName);

class GPUAssembler : public WithAssembler<testing::Test> {};

TEST_F(GPUAssembler, JoinsChipsInOneFatbin) {
  KernelLibrary library;
  library.add(rowOps().front());
  std::vector<Cubin> cubins;
  // PTX of sm_80 assembles for all later chips: what the fatbin carries for those not named.
  for (const char *chip : {"sm_80", "sm_90", "sm_100", "sm_120"}) {
    auto cubin = assembler->assemble(library.ptx(), chip);
    ASSERT_TRUE(cubin) << cubin.error().message;
    EXPECT_TRUE(cubin->code.starts_with("\x7f"
                                        "ELF"));
    cubins.push_back(*cubin);
  }
  auto fatbin = assembler->makeFatbin(cubins, library.ptx(), "sm_80");
  ASSERT_TRUE(fatbin) << fatbin.error().message;
  EXPECT_EQ(fatbin->substr(0, 4), "\x50\xed\x55\xba");
  size_t machineCode = 0;
  for (const Cubin &cubin : cubins)
    machineCode += cubin.code.size();
  EXPECT_GT(fatbin->size(), machineCode / 8); // it may compress
}

TEST_F(GPUAssembler, KeepsWhatPtxasSays) {
  auto refused = assembler->assemble(
      ".version 8.0\n.target sm_80\n.address_size 64\n.entry k() { nonsense; }\n", "sm_80");
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::Unsupported);
  EXPECT_NE(refused.error().message.find("could not assemble kernels for sm_80"),
            std::string::npos);
  EXPECT_NE(refused.error().message.find("nonsense"), std::string::npos) << refused.error().message;
}

TEST(GPUAssemblerMissing, SaysHowToGetIt) {
  ASSERT_EQ(setenv("EASYQUANT_CUDA_BIN", "/nowhere", 1), 0);
  auto missing = Assembler::find();
  unsetenv("EASYQUANT_CUDA_BIN");
  ASSERT_FALSE(missing);
  EXPECT_NE(missing.error().message.find("EASYQUANT_CUDA_BIN=/nowhere: install"), std::string::npos)
      << missing.error().message;
}
