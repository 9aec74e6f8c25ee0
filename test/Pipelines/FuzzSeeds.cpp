//===- FuzzSeeds.cpp - Good modules, and what is run on them --------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "FuzzSeeds.h"

#include "easyquant/Formats/SafetensorsWriter.h"
#include "easyquant/Import/ImportModel.h"
#include "easyquant/Pipelines/RegisterPasses.h"

#include "mlir/InitAllDialects.h"
#include "mlir/Parser/Parser.h"
#include "mlir/Pass/PassManager.h"
#include "mlir/Pass/PassRegistry.h"
#include "llvm/Support/MemoryBuffer.h"
#include "llvm/Support/Regex.h"

#include <cstdlib>
#include <set>

using namespace mlir;
using namespace easyquant;
using namespace easyquant::test;
namespace fs = std::filesystem;

//===----------------------------------------------------------------------===//
// Pipelines
//===----------------------------------------------------------------------===//

static constexpr Pipeline kPipelines[] = {
    {"canonicalize,cse"},
    {"equant-absmax{scheme=W8A8}"},
    {"equant-absmax{scheme=W4A16 group-size=8 methods=gptq}"},
    {"equant-absmax{scheme=W8A8 activations=static methods=smoothquant head=float}"},
    {"equant-absmax{scheme=W8A8 activations=static sinks=keep}"},
    {"equant-absmax{scheme=W8A8 activations=online-ema sinks=keep}"},
    {"equant-absmax{scheme=W8A8 "
     "activations=online-window},equant-rotate,equant-quantize,lm-hoist-rows,"
     "equant-online-scales{online-window=3},equant-materialize-weights{output=out threads=1},"
     "inline,equant-legalize-activations,equant-fuse-kernels",
     5},
    {"equant-online-scales{online-decay=0.5 online-tokens=8},easyquant-launches{target=avx2 "
     "max-rows=64}"},
    {"equant-online-scales{online-decay=0.5 online-tokens=8},easyquant-launches{target=sm_80 "
     "max-rows=64}"},
    {"equant-zeropoint{scheme=W4A16_ASYM group-size=16 methods=awq}"},
    {"equant-symmetric{scheme=W3A16 weight-observer=percentile weight-percentile=99.9}", 5},
    {"equant-zeropoint{scheme=W5A8 group-size=16}", 5},
    {"equant-zeroquant{scheme=W8A8 mixed=true methods=lkd}", 5},
    {"equant-recipe{file=recipe.json}", 5},
    {"equant-absmax{scheme=W8A8},equant-rotate,equant-quantize,func.func(equant-fuse-shared-input),"
     "canonicalize"},
    {"equant-absmax{scheme=FP8_DYNAMIC},equant-quantize,equant-materialize-weights{output=out "
     "threads=1},equant-legalize-activations"},
    {"equant-absmax{scheme=MXFP4A16},equant-quantize,func.func(equant-fuse-shared-input),"
     "equant-materialize-weights{output=out threads=1},lm-hoist-rows,"
     "easyquant-launches,convert-launches-to-llvm",
     20},
    {"equant-absmax{scheme=NVFP4A16},equant-quantize,func.func(equant-fuse-shared-input),"
     "equant-materialize-weights{output=out "
     "threads=1},lm-hoist-rows,easyquant-launches,convert-launches-to-llvm",
     20},
    {"equant-absmax{scheme=W8A8},equant-rotate,equant-quantize,equant-shard{degree=2},"
     "func.func(equant-fuse-shared-input),lm-hoist-rows,"
     "equant-materialize-weights{output=out threads=1},easyquant-launches,"
     "convert-launches-to-llvm{step=true}",
     20},
    {"equant-shard{degree=2}"},
    {"equant-absmax{scheme=W8A8 "
     "activation-basis=hadamard},equant-fit-basis{degree=2},equant-rotate"},
    {"equant-insert-scale-sync,equant-reduce-integers"},
    {"equant-quantize{max-fallback=3}"},
    {"equant-quantize{observer=percentile observer-percentile=99 max-fallback=100}"},
    {"func.func(equant-fuse-shared-input)"},
    {"equant-simquant-kv{scheme=int4 group=16 residual=32 sinks=4 keys=pre-rope}"},
    {"equant-simquant-kv{scheme=int2 group=64 residual=128 sinks=0 key-scales=token}"},
    {"equant-simquant-kv{scheme=int4 group=16 residual=32 sinks=4 keys=hadamard}"},
    {"equant-insert-observers{statistics=absmax,minmax,hessian}"},
    {"equant-attach-calibration{statistics=statistics.safetensors}", 5},
    {"equant-smooth-quant{statistics=statistics.safetensors work=work alpha=0.5}"},
    {"equant-smooth-quant{statistics=statistics.safetensors work=work alpha=search}"},
    {"lm-hoist-rows"},
    {"lm-build-gradients"},
    {"inline,equant-legalize-activations,equant-fuse-kernels,convert-equant-to-launches{max-rows="
     "512},"
     "func.func(launch-place-buffers,launch-print),convert-launches-to-llvm"},
    {"equant-legalize-activations{target=gpu},equant-fuse-kernels{target=gpu}"},
    {"easyquant-launches{target=avx512vnni max-rows=64 kv-cache=f32},"
     "convert-launches-to-llvm{step=true}"},
    {"equant-absmax{scheme=W4A8 "
     "group-size=8},equant-rotate,equant-quantize,func.func(equant-fuse-shared-input),"
     "equant-materialize-weights{output=out "
     "threads=1},lm-hoist-rows,easyquant-launches,convert-launches-to-llvm",
     20},
    {"equant-zeropoint{scheme=W8A16},equant-quantize,equant-simquant-kv{group=16 residual=16},"
     "equant-materialize-weights{output=out threads=1 target=cpu max-shard-bytes=10000},"
     "lm-hoist-rows,easyquant-launches,convert-launches-to-llvm",
     20},
    {"equant-materialize-weights{output=out threads=1}"},
    {"equant-materialize-weights{output=out threads=1 target=gpu}"},
    {"easyquant-launches{target=sm_90a}", 5},
    {"easyquant-gpu-pipeline{target=sm_80}", 1},
    {"easyquant-launches{target=sm_80},equant-lower-to-nvvm,equant-emit-gpu-binary{ptx=kernels."
     "ptx}",
     1},
    {"easyquant-emit-gpu-program{output=out target=sm_80 max-rows=64}", 1},
    {"easyquant-emit-program{output=out isa=avx2 max-rows=64}", 1},
    {"easyquant-print-plans{target=cpu,gpu}"},
    {"equant-check-plans{target=cpu,gpu}"},
    {"equant-absmax{scheme=W4A8 group-size=8},equant-check-plans{target=gpu}"},
    {"easyquant-write-manifest{output=out}"},
    {"equant-absmax{scheme=W4A16 group-size=8 head=float "
     "activation-basis=plain},equant-check-plans{format=compressed-tensors},equant-quantize,"
     "equant-export-checkpoint{format=compressed-tensors output=out threads=1}",
     5},
    {"equant-export-checkpoint{format=gptq_v2 output=out threads=1}", 5},
    {"equant-export-checkpoint{format=onnx opset=21 output=out threads=1}", 5},
    {"equant-insert-observers,equant-calibrate{tokens=tokens.safetensors work=work threads=1}", 1},
    {"equant-absmax{scheme=W8A8 activations=static activation-basis=hadamard},equant-rotate,"
     "equant-insert-observers{statistics=minmax,inliers},equant-calibrate{tokens=tokens."
     "safetensors "
     "work=work threads=1 file=ranges.safetensors},equant-attach-calibration,equant-quantize",
     1},
    {"equant-awq{tokens=tokens.safetensors work=work threads=1 search-samples=1}", 1},
    {"equant-absmax{scheme=W4A16 group-size=8 weight-observer=hessian-diagonal},"
     "equant-choose-ranges{tokens=tokens.safetensors work=work threads=1},equant-quantize",
     1},
    {"equant-absmax{scheme=T2A16 group-size=8},equant-learn-tables{threads=1},equant-quantize"},
    {"equant-absmax{scheme=T3A8 group-size=8},equant-learn-tables{threads=1},equant-quantize,"
     "func.func(equant-fuse-shared-input),equant-materialize-weights{output=out threads=1},"
     "easyquant-launches{target=avx2}",
     1},
    {"equant-absmax{scheme=W8A8 activation-basis=hadamard},equant-rotate,equant-quantize", 5},
    {"equant-absmax{scheme=W8A8 activation-group-size=32 "
     "activation-zero-points=true},equant-rotate,equant-quantize,"
     "func.func(equant-fuse-shared-input),equant-materialize-weights{output=out threads=1},"
     "easyquant-launches{target=avx2}",
     1},
    {"equant-absmax{scheme=W4A8 group-size=16 activation-basis=hadamard hadamard-block=16},"
     "equant-rotate,equant-quantize,func.func(equant-fuse-shared-input),"
     "equant-materialize-weights{output=out threads=1},easyquant-launches{target=avx2}",
     1},
    {"equant-absmax{scheme=W4A8 group-size=16},equant-rotate,equant-quantize,"
     "func.func(equant-fuse-shared-input),inline,equant-plain-weights{output=out threads=1},"
     "convert-equant-to-linalg,convert-lm-to-linalg,equant-bind-weights,canonicalize",
     5},
    {"equant-zeropoint{scheme=W3A16_ASYM group-size=8},equant-quantize,"
     "equant-plain-weights{output=out threads=1},convert-equant-to-linalg,convert-lm-to-linalg,"
     "equant-bind-weights{weights=constants file=out/weights.safetensors}",
     5},
    {"convert-equant-to-linalg,convert-lm-to-linalg,equant-bind-weights{weights=iree},"
     "canonicalize"},
    {"convert-lm-to-linalg,convert-equant-to-linalg"},
    {"equant-name-sites,equant-absmax{scheme=W8A8},equant-quantize,equant-evaluate-constants,"
     "convert-equant-to-linalg,canonicalize,cse"},
    {"equant-name-sites,equant-zeropoint{scheme=W4A16_ASYM group-size=8},equant-quantize,"
     "equant-evaluate-constants,convert-equant-to-linalg"},
    {"equant-name-sites,equant-absmax{scheme=NVFP4A16},equant-quantize,convert-equant-to-linalg"},
    // No such file: damaged programs are not run.
    {"equant-name-sites,equant-calibrate-sites{inputs=none.npy},equant-absmax{scheme=W8A8}"},
    {"convert-linalg-to-lm{output=raised}"},
    {"equant-gptq{tokens=tokens.safetensors work=work threads=1}", 1},
    {"equant-gptq{tokens=tokens.safetensors work=work threads=1 hessian=sinks}", 1},
    {"equant-gptq{tokens=tokens.safetensors work=work threads=1 hessian=loss-both}", 1},
    {"equant-calibrate-loss{tokens=tokens.safetensors work=work threads=1 statistics=loss}", 1},
    {"equant-take-windows{tokens=tokens.safetensors work=work threads=1 expert-tokens=2}", 1},
    {"equant-signround{tokens=tokens.safetensors work=work threads=1 steps=4}", 1},
    {"equant-lkd{tokens=tokens.safetensors work=work threads=1 epochs=1}", 1},
    {"equant-search-bitwidths{tokens=tokens.safetensors work=work threads=1 formats=W8A16 "
     "avg-bits=9}",
     1},
    {"equant-search-bitwidths{tokens=tokens.safetensors work=work threads=1 formats=W8A16 "
     "avg-bits=9 sensitivity=loss}",
     1},
    {"equant-measure-bounds{tokens=tokens.safetensors threads=1 samples=1 rows=4 output=b.json}",
     1},
};

llvm::ArrayRef<Pipeline> easyquant::test::pipelines() { return kPipelines; }

std::vector<std::string> easyquant::test::passesInPipelines() {
  std::set<std::string> passes;
  for (const Pipeline &pipeline : kPipelines) {
    StringRef text = pipeline.text;
    SmallVector<StringRef> found;
    llvm::Regex flag("(^|[,(])((equant|lm|easyquant|convert|launch)-[a-z0-9-]+)");
    while (flag.match(text, &found)) {
      passes.insert(found[2].str());
      text = text.substr(found[0].end() - text.begin());
    }
  }
  return {passes.begin(), passes.end()};
}

std::string easyquant::test::interleave(OpPassManager &pm, StringRef between) {
  std::string text;
  llvm::raw_string_ostream os(text);
  for (Pass &pass : pm) {
    pass.printAsTextualPipeline(os << (text.empty() ? "" : ","));
    if (!between.empty())
      os << "," << between;
  }
  return text;
}

//===----------------------------------------------------------------------===//
// Modules
//===----------------------------------------------------------------------===//

std::unique_ptr<MLIRContext> easyquant::test::makeContext() {
  DialectRegistry registry;
  registerAllDialects(registry);
  registerDialects(registry);
  return std::make_unique<MLIRContext>(registry, MLIRContext::Threading::DISABLED);
}

static std::string textOf(ModuleOp module) {
  std::string text;
  llvm::raw_string_ostream os(text);
  module->print(os);
  return text + "\n";
}

static void addTestFiles(MLIRContext &context, const fs::path &tests,
                         std::vector<std::string> &seeds) {
  std::set<fs::path> files; // in an order that does not depend on the disk
  for (const fs::directory_entry &entry : fs::recursive_directory_iterator(tests))
    if (entry.path().extension() == ".mlir")
      files.insert(entry.path());
  ScopedDiagnosticHandler quiet(&context, [](Diagnostic &) { return success(); });
  for (const fs::path &file : files) {
    auto buffer = llvm::MemoryBuffer::getFile(file.string());
    if (!buffer)
      continue;
    SmallVector<StringRef> parts;
    (*buffer)->getBuffer().split(parts, "// -----");
    for (StringRef part : parts) {
      auto module = parseSourceString<ModuleOp>(part, &context);
      if (module && !module->getBody()->empty())
        seeds.push_back(textOf(*module));
    }
  }
}

void easyquant::test::giveUp(const Twine &what) {
  llvm::errs() << "FuzzIR: " << what << "\n";
  std::exit(1);
}

static OwningOpRef<ModuleOp> run(MLIRContext &context, const std::string &text,
                                 StringRef pipeline) {
  auto module = parseSourceString<ModuleOp>(text, &context);
  PassManager pm(&context);
  if (!module || failed(parsePassPipeline(pipeline, pm)) || failed(pm.run(*module)))
    giveUp("a good model does not go through " + pipeline);
  return module;
}

void easyquant::test::makeCheckpoint(const fs::path &tests, const std::string &arguments) {
  std::string command =
      "python3 '" + (tests / "Inputs/make_checkpoint.py").string() + "' " + arguments;
  if (std::system(command.c_str()) != 0)
    giveUp("cannot run " + command);
}

static void writeTokens() {
  constexpr int64_t kSamples = 2, kLength = 6;
  int32_t tokens[kSamples * kLength];
  for (int i = 0; i < kSamples * kLength; ++i)
    tokens[i] = i * 7 % 40;
  auto writer = easyquant::formats::SafetensorsWriter::create(
      "tokens.safetensors", {{"tokens", "I32", {kSamples, kLength}}},
      {{"bos", "0"}, {"seed", "0"}});
  if (!writer || !writer->write("tokens", std::as_bytes(std::span(tokens))) || !writer->finish())
    giveUp("cannot write tokens.safetensors");
}

/// A model that make_checkpoint.py knows as `name`: as it is imported, and behind some passes.
static void addModel(MLIRContext &context, const fs::path &tests, const std::string &name,
                     const std::string &options, std::vector<std::string> &seeds) {
  makeCheckpoint(tests, name + " --arch " + name + options +
                            (name == "llama" ? "" : " --set tie_word_embeddings=false"));
  auto source = formats::ModelSource::open(name);
  if (!source)
    giveUp(source.error().message);
  const formats::ModelConfig &config = source->config();
  std::string imported = textOf(*importModel(context, *source));
  auto add = [&](const std::string &pipeline) {
    seeds.push_back(textOf(*run(context, imported, pipeline)));
  };
  seeds.push_back(imported);
  if (name == "llama")
    (void)run(context, imported,
              "equant-insert-observers{statistics=absmax,minmax,moments,mean_abs,histogram},"
              "equant-calibrate{tokens=tokens.safetensors work=work threads=1 "
              "statistics=statistics.safetensors}");
  const std::string plan = "equant-zeropoint{scheme=W4A16 group-size=8 methods=awq,gptq}",
                    quantize = "equant-absmax{scheme=W8A8},equant-rotate,equant-quantize,"
                               "func.func(equant-fuse-shared-input)",
                    materialize = ",equant-materialize-weights{output=out target=cpu,gpu}";
  add(plan);
  add("equant-absmax{scheme=W8A8 methods=smoothquant}");
  add(quantize);
  add(quantize + materialize + ",lm-hoist-rows");
  add("equant-absmax{scheme=none},equant-quantize" + materialize);
  // Layers that are not rotated have no such keys, and kernels rotate them in eights.
  const bool keepsUnrotated = config.architecture->unrotatedEvery == 0 && config.rope.dims % 8 == 0;
  if (config.architecture->isRotary() && config.sharedKVLayers == 0)
    add("equant-zeropoint{scheme=W4A16 group-size=32},equant-quantize,"
        "equant-simquant-kv{group=16 residual=16 keys=" +
        std::string(keepsUnrotated ? "pre-rope" : "post-rope") + "}" + materialize +
        ",lm-hoist-rows");
}

std::vector<std::string> easyquant::test::makeSeeds(const fs::path &tests) {
  std::unique_ptr<MLIRContext> context = makeContext();
  std::vector<std::string> seeds;
  addTestFiles(*context, tests, seeds);
  if (seeds.size() < 50)
    giveUp("there are no test files in " + tests.string());

  fs::create_directories("out");
  writeTokens();
  std::error_code error;
  llvm::raw_fd_ostream("recipe.json", error)
      << R"({"method": "zeropoint", "scheme": "W8A16", "sites": [
           {"match": "re:\\.down_proj$", "scheme": "none"},
           {"match": "re:\\.o_proj$", "method": "gptq", "scheme": "W4A16", "group_size": 8}]})";
  for (const formats::Architecture &architecture : formats::architectures()) {
    const std::string name = architecture.name;
    // Heads of 8 are the smallest whose keys and values can be codes.
    addModel(*context, tests, name,
             (architecture.isRotary() ? " --set head_dim=8" : "") +
                 std::string(name == "qwen3_5" ? " --set mtp_num_hidden_layers=1" : ""),
             seeds);
  }
  for (const char *name : {"gemma4_e", "gemma4_moe"})
    addModel(*context, tests, name, " --set head_dim=8", seeds);
  return seeds;
}
