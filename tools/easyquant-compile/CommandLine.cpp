//===- CommandLine.cpp - The options of easyquant-compile -----------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// CLI11, not llvm::cl: libLLVM.so has registered its own --threads and others already.
//
//===----------------------------------------------------------------------===//

#include "CommandLine.h"

#include <CLI/CLI.hpp>

namespace easyquant {

static constexpr const char *description = R"(EasyQuant: compile a model to an artifact.

MODEL is a Hugging Face folder or a GGUF file. OUT becomes a folder of model.so, weights.safetensors
and manifest.json that easyquant-run runs on any x86-64 CPU with AVX2; it appears when it is whole.)";

static constexpr const char *examples = R"(Examples:
  easyquant-compile MODEL -o OUT --scheme W8A8
  easyquant-compile model.gguf -o OUT --scheme W4A8 --group-size 64 --ignore 're:.*down_proj')";

/// `--name` and `--no-name`, the last one wins; `value` stays empty where neither is given.
/// (CLI11's own add_flag takes an optional for a count and sets it to 0.)
static void addSwitch(CLI::App &app, const std::string &name, std::optional<bool> &value,
                      const std::string &description) {
  app.add_flag_function(
         "--" + name + ",!--no-" + name, [&value](int64_t count) { value = count > 0; },
         description)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);
}

/// What methods do with calibration text.
static void addMethods(CLI::App &app, CompileOptions &compile) {
  app.add_option(
         "--observer", compile.observer,
         "Range of static activations: minmax, absmax, percentile, mse, entropy, ema (default: "
         "minmax)")
      ->type_name("RULE");
  app.add_option("--tokens", compile.tokens,
                 "Safetensors file of calibration tokens, for methods and static activations")
      ->type_name("FILE");
  app.add_option("--work", compile.work,
                 "Folder of what calibration and methods compute, to go on from; by default "
                 "OUT.work, removed when OUT is whole")
      ->type_name("DIR");
  app.add_option(
         "--alpha", compile.alpha,
         "SmoothQuant: from 0, activations stay as they are, to 1; or search (default: 0.5)")
      ->type_name("A");
  app.add_option("--search-samples", compile.searchSamples,
                 "AWQ: samples that candidates are compared on (default: 4)")
      ->type_name("N");
  addSwitch(app, "clip", compile.clip, "AWQ: search ranges too (default: yes)");
  addSwitch(app, "act-order", compile.actOrder,
            "GPTQ: columns that matter most first (default: yes)");
  addSwitch(
      app, "static-groups", compile.staticGroups,
      "GPTQ: scales of groups from the weights as they were; with --act-order always (default: "
      "no)");
  app.add_option("--damping", compile.damping,
                 "GPTQ: share of mean(diag H) added to it (default: 0.01)")
      ->type_name("D");
  app.add_option("--epochs", compile.epochs, "LKD: passes over the samples (default: 4)")
      ->type_name("N");
}

/// What is quantized, and how. A recipe says all of it.
static void addQuantization(CLI::App &app, CompileOptions &compile) {
  CLI::Option *recipe =
      app.add_option("--recipe", compile.recipe, "JSON file of scheme and method per site")
          ->type_name("FILE");
  app.add_option("--scheme", compile.scheme,
                 "W8A8, W8A16, W4A16, W4A8, W3A16, W2A16, the same with _ASYM, or none: float")
      ->capture_default_str()
      ->excludes(recipe)
      ->type_name("SCHEME");
  app.add_option("--method", compile.method,
                 "absmax, zeropoint, symmetric, zeroquant, smoothquant, awq, gptq, and such joined "
                 "by +: smoothquant+gptq, zeroquant+lkd (default: absmax; zeropoint for _ASYM)")
      ->excludes(recipe)
      ->type_name("METHOD");
  app.add_option("--activations", compile.activations,
                 "Scales of 8-bit activations: dynamic or static (default: dynamic)")
      ->excludes(recipe)
      ->type_name("KIND");
  app.add_option(
         "--weight-observer", compile.weightObserver,
         "Range of weights: absmax or minmax, which are all, percentile, mse, entropy (default: "
         "absmax)")
      ->excludes(recipe)
      ->type_name("RULE");
  app.add_option("--percentile", compile.percentile,
                 "Of --weight-observer and --observer percentile (default: 99.99)")
      ->excludes(recipe)
      ->type_name("P");
  app.add_flag("--mixed", compile.mixed, "With zeroquant: 4 bits in MLPs, 8 in attention")
      ->excludes(recipe);
  app.add_option("--max-fallback", compile.maxFallback,
                 "Sites that may stay float where they cannot be quantized as asked")
      ->capture_default_str()
      ->check(CLI::NonNegativeNumber)
      ->type_name("N");
  app.add_option("--group-size", compile.groupSize,
                 "Columns that share a scale, 0 for the whole row (default: 128 below 8 bits)")
      ->check(CLI::NonNegativeNumber)
      ->excludes(recipe)
      ->type_name("COLUMNS");
  app.add_option(
         "--head", compile.head,
         "Output head and tied embedding: int8 or float (default: int8 in quantized schemes, "
         "float in none)")
      ->excludes(recipe)
      ->type_name("TYPE");
  app.add_option("--ignore", compile.ignore,
                 "Sites to leave float: names or re:PATTERN; repeatable")
      ->excludes(recipe)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll)
      ->expected(1)
      ->type_name("SITE");
  app.add_option("--targets", compile.targets,
                 "Sites to quantize, all if none is named; repeatable")
      ->excludes(recipe)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll)
      ->expected(1)
      ->type_name("SITE");
}

CommandLine CommandLine::parse(int argc, char **argv) {
  CommandLine line;
  CompileOptions &compile = line.compile;
  CLI::App app(description, "easyquant-compile");
  app.footer(examples);
  app.option_defaults()->multi_option_policy(CLI::MultiOptionPolicy::Throw);

  app.add_option("model", line.model, "Hugging Face folder or GGUF file")
      ->required()
      ->type_name("MODEL");
  app.add_option("-o", line.output, "Folder to write")->type_name("OUT");
  addQuantization(app, compile);
  addMethods(app, compile);
  app.add_option(
         "--target", compile.target,
         "What to compile for: cpu, and GPUs: sm_80, sm_86, sm_87, sm_89, sm_90a; joined by "
         "commas")
      ->capture_default_str()
      ->type_name("TARGET");
  app.add_option("--kv-cache", compile.kvCache,
                 "KV cache: f32, f16, or auto: f16 if anything is quantized")
      ->capture_default_str()
      ->type_name("TYPE");
  app.add_option("--kv-scheme", compile.kvScheme,
                 "Keys and values of the past as codes: int8, int4, int2, or none: float")
      ->capture_default_str()
      ->type_name("TYPE");
  app.add_option("--kv-group", compile.kvGroup,
                 "Tokens or dimensions that share a scale (default: 64)")
      ->type_name("N");
  app.add_option("--kv-residual", compile.kvResidual,
                 "Newest tokens that stay float (default: 128)")
      ->type_name("TOKENS");
  app.add_option("--kv-sinks", compile.kvSinks, "First tokens that stay float (default: 4)")
      ->type_name("TOKENS");
  app.add_option("--kv-keys", compile.kvKeys,
                 "Keys are kept post-rope or pre-rope (default: post-rope)")
      ->type_name("PLACE");
  app.add_option("--kv-key-scales", compile.kvKeyScales,
                 "Scales of keys: per channel or per token (default: channel)")
      ->type_name("AXIS");
  app.add_option("--isa", compile.isas, "Instruction sets: avx2, avx512vnni (default: both)")
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll)
      ->delimiter(',')
      ->type_name("ISA");
  app.add_option("--copy-file", compile.copyFiles,
                 "File to take along, such as a tokenizer's; repeatable")
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll)
      ->expected(1)
      ->type_name("FILE");
  app.add_option("--threads", compile.threads, "Threads (default: all CPUs)")->type_name("N");
  app.add_option("--max-shard-bytes", compile.maxShardBytes,
                 "Bytes of weights in one file, beyond which they are sharded (default: 5 GB)")
      ->check(CLI::PositiveNumber)
      ->type_name("BYTES");
  app.add_option("--emit-ir-after", line.emitAfter,
                 "Print the IR after import, quantize, materialize or kernels, and stop")
      ->type_name("PHASE");
  app.add_option("--pipeline", line.pipeline,
                 "Run these passes on the imported model instead, and stop: nothing is compiled")
      ->type_name("PASSES");
  app.add_flag("--dry-run", line.dryRun,
               "Print what would become of each site as JSON, and stop: nothing is compiled");
  app.add_flag("--dump-pipeline", line.dumpPipeline,
               "Print the command that does the same step by step, and stop");
  app.add_flag("--force", line.force, "Replace an artifact that is there already");
  app.add_option("--progress", line.progress, "Progress on standard error: none, text, json")
      ->transform(CLI::CheckedTransformer(
          std::map<std::string, ProgressFormat>{{"none", ProgressFormat::None},
                                                {"text", ProgressFormat::Text},
                                                {"json", ProgressFormat::JSON}}))
      ->type_name("FORMAT");

  try {
    app.parse(argc, argv);
  } catch (const CLI::Success &help) {
    std::exit(app.exit(help));
  } catch (const CLI::ParseError &error) {
    llvm::errs() << "error: " << error.what() << "; see easyquant-compile --help\n";
    std::exit(1);
  }
  return line;
}

} // namespace easyquant
