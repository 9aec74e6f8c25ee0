//===- CompareCleanups.cpp - MLIR's passes between ours -------------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "CompareCleanups.h"

#include "FuzzSeeds.h"

#include "easyquant/Conversion/LaunchesToLLVM/LaunchesToLLVM.h"
#include "easyquant/Dialect/Launch/IR/Launch.h"
#include "easyquant/Emit/EmitObject.h"
#include "easyquant/Emit/LaunchList.h"
#include "easyquant/Formats/LaunchList.h"
#include "easyquant/Formats/Manifest.h"
#include "easyquant/Import/ImportModel.h"
#include "easyquant/Runtime/Session.h"

#include "mlir/Pass/PassRegistry.h"

#include <fstream>

using namespace mlir;
using namespace easyquant::test;
namespace fs = std::filesystem;
namespace runtime = easyquant::runtime;

namespace {

struct Plan {
  const char *model, *pipeline; ///< from the import to the weights
};
constexpr Plan kPlans[] = {
    {"llama", "equant-absmax{scheme=none},equant-quantize"},
    {"llama", "equant-absmax{scheme=W8A8},equant-rotate,equant-quantize,func.func(equant-fuse-"
              "shared-input)"},
    {"gpt2", "equant-absmax{scheme=W8A8},equant-rotate,equant-quantize,func.func(equant-fuse-"
             "shared-input)"},
    {"qwen3", "equant-zeropoint{scheme=W4A16 group-size=32},equant-quantize,"
              "func.func(equant-fuse-shared-input),"
              "equant-simquant-kv{group=16 residual=16 keys=pre-rope}"},
};

/// What can be seen of a compiled model.
struct Outcome {
  std::string weights, launches;
  std::vector<float> logits;

  std::string differsIn(const Outcome &other) const {
    return weights != other.weights     ? "the bytes of the weights"
           : launches != other.launches ? "the launches of a GPU"
           : logits.size() != other.logits.size() || std::memcmp(logits.data(), other.logits.data(),
                                                                 logits.size() * sizeof(float)) != 0
               ? "the logits"
               : "";
  }
};

/// What cse does to buffers that claim to be nothing but their type and their rows.
struct MergeBuffers : PassWrapper<MergeBuffers, OperationPass<>> {
  MLIR_DEFINE_EXPLICIT_INTERNAL_INLINE_TYPE_ID(MergeBuffers)
  StringRef getArgument() const override { return "test-merge-buffers"; }
  void runOnOperation() override {
    llvm::DenseMap<std::pair<Value, Type>, Value> known;
    getOperation()->walk([&](easyquant::launch::BufferOp buffer) {
      Value memory = buffer.getMemory();
      Value &first = known.try_emplace({buffer.getRows(), memory.getType()}, memory).first->second;
      if (memory != first)
        memory.replaceAllUsesWith(first);
    });
  }
};

template <typename T> T valueOf(easyquant::Result<T> result) {
  if (!result)
    giveUp(result.error().message);
  return std::move(*result);
}

std::string readFile(const fs::path &path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

/// Runs a pipeline with passes between all of its own, those of its pipelines by name included.
void runBetween(ModuleOp module, const std::string &pipeline, bool lowersToLLVM,
                StringRef between) {
  OpPassManager plain(ModuleOp::getOperationName());
  PassManager pm(module.getContext());
  if (failed(parsePassPipeline(pipeline, plain)))
    giveUp("no pipeline: " + pipeline);
  if (lowersToLLVM)
    easyquant::cpu::buildLowerToLLVMPipeline(plain);
  std::string text = interleave(plain, between);
  if (failed(parsePassPipeline(text, pm)) || failed(pm.run(module)))
    giveUp("a good model does not go through " + text);
}

/// Logits of a prefill, of one token after it, and behind a step back; none if one of them fails.
std::vector<float> run(const std::string &folder) {
  auto model =
      valueOf(runtime::Model::load(folder, "avx2", /*skipChecksums=*/false, {"cpu", "", false}));
  auto session = valueOf(runtime::Session::create(model, /*context=*/0, /*threads=*/1));
  const int32_t tokens[] = {1, 8, 15, 22, 29, 36};
  const auto vocabulary = static_cast<size_t>(model->manifest().model.vocabSize);
  std::vector<float> logits(std::size(tokens) * vocabulary);
  auto keep = [&](const easyquant::Result<void> &done) {
    if (done)
      logits.insert(logits.end(), session.logits(), session.logits() + vocabulary);
    return done.has_value();
  };
  if (keep(session.score(tokens, logits.data())) &&
      keep(session.prefill(std::array<int32_t, 1>{3})) && session.truncate(4) &&
      keep(session.prefill(std::array<int32_t, 2>{5, 6})))
    return logits;
  return {};
}

/// Writes the artifact of a module whose weights are written, and runs it.
std::vector<float> compileAndRun(ModuleOp module, const std::string &folder, StringRef between) {
  OwningOpRef<ModuleOp> program = module.clone();
  runBetween(*program,
             "easyquant-launches{target=avx2 max-rows=4},convert-launches-to-llvm{step=true}",
             /*lowersToLLVM=*/true, between);
  easyquant::cpu::Target target;
  auto objects = easyquant::cpu::emitObjects(*program, target, [](ModuleOp) { return success(); });
  if (failed(objects) ||
      failed(easyquant::cpu::linkSharedObject(module.getLoc(), *objects, folder + "/model.so")))
    giveUp("a good model cannot be linked");
  module->setAttr(easyquant::kProgramAttr, (*program)->getAttr(easyquant::kProgramAttr));
  runBetween(module, "easyquant-write-manifest{output=" + folder + "}", false, "");
  return run(folder);
}

Outcome compile(MLIRContext &context, const Plan &plan, StringRef between) {
  static int number = 0;
  auto make = [&](const std::string &folder, const std::string &target) {
    auto source = valueOf(easyquant::formats::ModelSource::open(plan.model));
    OwningOpRef<ModuleOp> module = easyquant::importModel(context, source);
    if (!module)
      giveUp("cannot import " + Twine(plan.model));
    fs::create_directories(folder);
    runBetween(*module,
               std::string(plan.pipeline) + ",lm-hoist-rows,equant-materialize-weights{output=" +
                   folder + " threads=1 target=" + target + "}",
               false, between);
    return module;
  };
  Outcome outcome;
  const std::string cpu = "cpu" + std::to_string(number), gpu = "gpu" + std::to_string(number);
  ++number;
  OwningOpRef<ModuleOp> module = make(cpu, "cpu");
  outcome.logits = compileAndRun(*module, cpu, between);
  OwningOpRef<ModuleOp> launches = make(gpu, "gpu");
  runBetween(*launches, "easyquant-launches{target=sm_80 max-rows=64}", false, between);
  auto list = easyquant::gpu::toLaunchList(*launches);
  if (failed(list))
    giveUp("a good model has no launch list");
  outcome.launches = easyquant::formats::launchListText({{"sm_80", *list}});
  outcome.weights =
      readFile(cpu + "/weights.safetensors") + readFile(gpu + "/weights.gpu.safetensors");
  return outcome;
}

/// Does the comparison fail where it must? A CPU's program and a GPU's launches show it each.
bool noticesMergedBuffers(MLIRContext &context, const Plan &plan, const Outcome &plain) {
  const Outcome merged = compile(context, plan, "test-merge-buffers");
  bool noticed = true;
  for (auto [differs, what] : {std::pair(merged.logits != plain.logits, "logits"),
                               std::pair(merged.launches != plain.launches, "launches of a GPU")})
    if (!differs) {
      llvm::errs() << "FuzzIR: " << what << " do not show that buffers are merged\n";
      noticed = false;
    }
  return noticed;
}

} // namespace

bool easyquant::test::compareWithCleanups(const fs::path &tests) {
  PassRegistration<MergeBuffers>();
  makeCheckpoint(tests, "llama --arch llama --set head_dim=8");
  makeCheckpoint(tests, "gpt2 --arch gpt2");
  makeCheckpoint(tests, "qwen3 --arch qwen3 --set head_dim=8 --set tie_word_embeddings=false");
  std::unique_ptr<MLIRContext> context = makeContext();
  bool same = true;
  for (const Plan &plan : kPlans) {
    const Outcome plain = compile(*context, plan, "");
    if (plain.weights.empty() || plain.logits.empty() || plain.launches.empty())
      giveUp("nothing to compare");
    const std::string difference = compile(*context, plan, kCleanups).differsIn(plain);
    if (!difference.empty())
      llvm::errs() << "FuzzIR: " << kCleanups << " between all passes changes " << difference
                   << " of " << plan.model << ", " << plan.pipeline << "\n";
    same &= difference.empty();
    same &= &plan != kPlans || noticesMergedBuffers(*context, plan, plain);
  }
  std::printf("%zu models compared\n", std::size(kPlans));
  return same;
}
