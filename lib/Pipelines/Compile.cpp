//===- Compile.cpp - The pipeline behind easyquant-compile ----------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "easyquant/Pipelines/Compile.h"

#include "PassText.h"

#include "easyquant/Codegen/GPU/Chip.h"
#include "easyquant/Dialect/Equant/Analysis/Recipe.h"
#include "easyquant/Support/DidYouMean.h"
#include "easyquant/Support/Threads.h"

#include "mlir/Pass/PassRegistry.h"
#include "llvm/ADT/StringSwitch.h"

using namespace mlir;

namespace easyquant {

namespace {
/// What a method that is more than a base adds to the pipeline.
struct MethodPass {
  StringLiteral method, pass;
  StringLiteral statistics; ///< that it reads of the file; empty: it runs the model itself
  void (*addOptions)(PassText &, const CompileOptions &); ///< of its own
};

/// What the options ask of the model, whether they name it or a recipe does.
struct Request {
  std::vector<std::string> methods; ///< in order
  /// Of static activations, which there are none of where this is empty; "" is the default one.
  std::vector<std::string> observers;
  bool searchesAlpha = false;
};
} // namespace

/// A new method with a pass of its own is one line here. In the order in which they run: GPTQ is
/// last, since it sees what the weights of the other sites have been rounded to.
static constexpr MethodPass kMethodPasses[] = {
    {"smoothquant", "equant-smooth-quant", "absmax",
     [](PassText &pass, const CompileOptions &options) {
       if (options.alpha == equant::kSearch)
         pass.addFlag("search", true);
       else
         pass.add("alpha", options.alpha);
     }},
    {"awq", "equant-awq", "",
     [](PassText &pass, const CompileOptions &options) {
       pass.add("search-samples", options.searchSamples).addFlag("clip", options.clip);
     }},
    {"lkd", "equant-lkd", "",
     [](PassText &pass, const CompileOptions &options) { pass.add("epochs", options.epochs); }},
    {"gptq", "equant-gptq", "", [](PassText &pass, const CompileOptions &options) {
       pass.addFlag("act-order", options.actOrder)
           .addFlag("static-groups", options.staticGroups)
           .add("damping", options.damping);
     }}};

static const MethodPass &passOf(StringRef method) {
  return *llvm::find_if(kMethodPasses, [&](const MethodPass &p) { return p.method == method; });
}

static Result<Request> requestOf(const CompileOptions &options) {
  Request request;
  if (options.recipe.empty()) {
    Result<equant::MethodExpression> method = equant::parseMethod(options.method, options.scheme);
    if (!method)
      return Unexpected(method.error());
    request.methods = method->methods;
    if (options.activations == "static")
      request.observers = {options.observer};
    request.searchesAlpha = options.alpha == equant::kSearch;
    return request;
  }
  Result<equant::Recipe> recipe = equant::readRecipe(options.recipe);
  if (!recipe)
    return Unexpected(recipe.error());
  request.methods = recipe->methods();
  if (!options.observer.empty()) // wins over the recipe's
    recipe->options.observer = options.observer;
  if (!options.alpha.empty())
    recipe->options.alpha = options.alpha;
  request.observers = recipe->observers();
  request.searchesAlpha = recipe->searchesAlpha();
  return request;
}

/// The statistic from which an observer chooses static ranges.
static StringRef statisticOf(StringRef observer) {
  return llvm::StringSwitch<StringRef>(observer)
      .Case("absmax", "absmax")
      .Case("ema", "ema")
      .Cases({"percentile", "mse", "entropy"}, "histogram")
      .Default("minmax");
}

namespace {
/// What there is to compile for.
struct Targets {
  bool cpu = false;
  std::vector<std::string> chips;

  explicit Targets(StringRef text) {
    SmallVector<StringRef> names;
    text.split(names, ',');
    for (StringRef name : names) {
      if (name == "cpu")
        cpu = true;
      else if (!llvm::is_contained(chips, name))
        chips.push_back(name.str());
    }
  }
  std::vector<std::string> packings() const {
    if (chips.empty())
      return {};
    return cpu ? std::vector<std::string>{"cpu", "gpu"} : std::vector<std::string>{"gpu"};
  }
};
} // namespace

static std::optional<std::string> checkTarget(StringRef text) {
  for (const std::string &name : Targets(text).chips)
    if (!gpu::findChip(name)) {
      std::vector<std::string> known = {"cpu"};
      for (const gpu::Chip &chip : gpu::chips())
        known.emplace_back(chip.name);
      return "unknown target '" + name + "'; expected some of " + llvm::join(known, ", ") +
             ", joined by commas" + didYouMean(name, known);
    }
  return std::nullopt;
}

std::optional<std::string> CompileOptions::takeFromRecipe() {
  if (recipe.empty())
    return std::nullopt;
  Result<equant::Recipe> read = equant::readRecipe(recipe);
  if (!read)
    return read.error().message;
  auto take = [](auto &mine, const auto &theirs) {
    if (mine == std::decay_t<decltype(mine)>())
      mine = theirs;
  };
  const equant::MethodOptions &theirs = read->options;
  take(alpha, theirs.alpha);
  take(observer, theirs.observer);
  take(percentile, theirs.percentile);
  take(damping, theirs.damping);
  take(actOrder, theirs.actOrder);
  take(staticGroups, theirs.staticGroups);
  take(clip, theirs.clip);
  take(searchSamples, theirs.searchSamples);
  take(epochs, theirs.epochs);
  const equant::KVOptions &kv = read->kv;
  if (kvScheme == "none" && !kv.scheme.empty())
    kvScheme = kv.scheme;
  take(kvGroup, kv.group);
  take(kvResidual, kv.residual);
  take(kvSinks, kv.sinks);
  take(kvKeys, kv.keys);
  take(kvKeyScales, kv.keyScales);
  return std::nullopt;
}

std::optional<std::string> CompileOptions::check() const {
  Result<Request> request = requestOf(*this);
  if (!request)
    return request.error().message;
  for (const std::string &name : request->methods) {
    StringRef pass = passOf(name).pass;
    if (!PassInfo::lookup(pass))
      return "method '" + name + "' needs the pass " + pass.str() +
             ", which this build does not have";
  }
  if (!observer.empty())
    if (auto known = equant::checkObserver(observer); !known)
      return known.error().message;
  if (percentile && weightObserver != "percentile" && observer != "percentile")
    return "percentile goes with --weight-observer percentile or --observer percentile";
  double number;
  if (!alpha.empty() && alpha != equant::kSearch && StringRef(alpha).getAsDouble(number))
    return "alpha '" + alpha + "': expected a number from 0 to 1, or search";
  if (auto problem = checkTarget(target))
    return problem;
  if (auto chosen = chooseThreads(threads); !chosen)
    return chosen.error().message;
  bool kvOptions = kvGroup || kvResidual || kvSinks || !kvKeys.empty() || !kvKeyScales.empty();
  if (kvScheme == "none" && kvOptions)
    return "options of a quantized KV cache need --kv-scheme int8, int4 or int2";
  return std::nullopt;
}

std::optional<std::string> CompileOptions::checkTokens() const {
  Request request = *requestOf(*this);
  if (!request.methods.empty() && tokens.empty())
    return "method " + request.methods.front() +
           " needs calibration text: give --calib FILE (easyquant) or --tokens FILE";
  if (!request.observers.empty() && tokens.empty())
    return "static activations need calibration text: give --calib FILE (easyquant) or --tokens "
           "FILE, or take dynamic ones";
  return std::nullopt;
}

/// The passes that gather statistics, where anything reads them.
static std::string calibrationPasses(const CompileOptions &options, const Request &request) {
  std::vector<std::string> statistics;
  auto add = [&](StringRef name) {
    if (!name.empty() && !llvm::is_contained(statistics, name.str()))
      statistics.push_back(name.str());
  };
  for (const std::string &method : request.methods)
    add(passOf(method).statistics);
  if (request.searchesAlpha && llvm::is_contained(request.methods, "smoothquant"))
    add("moments");
  for (const std::string &observer : request.observers)
    add(statisticOf(observer));
  if (statistics.empty())
    return "";
  return PassText("equant-insert-observers").add("statistics", statistics).str() + "," +
         PassText("equant-calibrate")
             .add("tokens", options.tokens)
             .add("work", options.work)
             .add("threads", options.threads)
             .str() +
         ",equant-attach-calibration,";
}

/// The pass that decides how each site is quantized.
static std::string planPass(const CompileOptions &options) {
  if (!options.recipe.empty())
    return PassText("equant-recipe").add("file", options.recipe).str();
  equant::MethodExpression method = *equant::parseMethod(options.method, options.scheme);
  PassText pass("equant-" + method.base);
  pass.add("scheme", options.scheme);
  if (options.groupSize != -1)
    pass.addNumber("group-size", options.groupSize);
  pass.add("activations", options.activations).add("weight-observer", options.weightObserver);
  if (options.weightObserver == "percentile")
    pass.add("percentile", options.percentile);
  return pass.addFlag("mixed", options.mixed ? std::optional(true) : std::nullopt)
      .add("methods", method.methods)
      .add("head", options.head)
      .add("ignore", options.ignore)
      .add("targets", options.targets)
      .str();
}

/// The pass that quantizes the cache, behind a comma; nothing if it stays float.
static std::string kvPass(const CompileOptions &options) {
  if (options.kvScheme == "none")
    return "";
  return "," + PassText("equant-simquant-kv")
                   .add("scheme", options.kvScheme)
                   .add("group", options.kvGroup)
                   .add("residual", options.kvResidual)
                   .add("sinks", options.kvSinks)
                   .add("keys", options.kvKeys)
                   .add("key-scales", options.kvKeyScales)
                   .str();
}

static std::string quantizePhase(const CompileOptions &options) {
  Request request = *requestOf(options);
  std::string text = calibrationPasses(options, request) + planPass(options);
  for (const std::string &name : request.methods) {
    const MethodPass &method = passOf(name);
    PassText pass(method.pass);
    if (method.statistics.empty())
      pass.add("tokens", options.tokens).add("threads", options.threads);
    method.addOptions(pass, options);
    text += "," + pass.add("work", options.work).str();
  }
  PassText quantize("equant-quantize");
  quantize.add("max-fallback", options.maxFallback);
  if (!request.observers.empty())
    quantize.add("observer", options.observer);
  if (!request.observers.empty() && options.observer == "percentile")
    quantize.add("percentile", options.percentile);
  return text + "," + quantize.str() + ",func.func(equant-fuse-shared-input)" + kvPass(options);
}

/// The passes that write the programs, for CPUs and for GPUs.
static std::string programPhase(const CompileOptions &options, StringRef output) {
  Targets targets(options.target);
  std::string text = "lm-hoist-rows";
  if (targets.cpu)
    text += "," + PassText("easyquant-emit-program")
                      .add("output", output)
                      .add("isa", options.isas)
                      .add("max-rows", options.maxRows)
                      .add("kv-cache", options.kvCache)
                      .str();
  if (!targets.chips.empty())
    text += "," + PassText("easyquant-emit-gpu-program")
                      .add("output", output)
                      .add("chip", targets.chips)
                      .add("max-rows", options.maxRows)
                      .add("kv-cache", options.kvCache)
                      .str();
  return text;
}

std::vector<Phase> compilePhases(const CompileOptions &options, StringRef output) {
  return {
      {"quantize", quantizePhase(options)},
      {"materialize", PassText("equant-materialize-weights")
                          .add("output", output)
                          .add("packing", Targets(options.target).packings())
                          .add("threads", options.threads)
                          .add("max-shard-bytes", options.maxShardBytes)
                          .str()},
      {"program", programPhase(options, output)},
      {"manifest", PassText("easyquant-write-manifest")
                       .add("output", output)
                       .add("copy-files", options.copyFiles)
                       .str()},
  };
}

std::string dryRunPipeline(const CompileOptions &options) {
  return planPass(options) + ",easyquant-print-plans";
}

std::optional<std::vector<Phase>> phasesUntil(ArrayRef<Phase> phases, StringRef last,
                                              const CompileOptions &options) {
  if (last == "import")
    return std::vector<Phase>();
  if (last == "kernels") {
    std::vector<Phase> until = *phasesUntil(phases, "materialize", options);
    if (Targets targets(options.target); !targets.cpu) {
      until.push_back(
          {"kernels",
           "lm-hoist-rows," +
               PassText("equant-emit-gpu-kernels").add("chip", targets.chips.front()).str()});
      return until;
    }
    until.push_back(
        {"kernels",
         "lm-hoist-rows," + PassText("convert-equant-to-kernels")
                                .add("isa", options.isas.empty() ? "" : options.isas.front())
                                .add("max-rows", options.maxRows)
                                .add("kv-cache", options.kvCache)
                                .str()});
    return until;
  }
  for (size_t i = 0; i < phases.size(); ++i)
    if (phases[i].name == last && (last == "quantize" || last == "materialize"))
      return std::vector<Phase>(phases.begin(), phases.begin() + i + 1);
  return std::nullopt;
}

std::string pipelineText(ArrayRef<Phase> phases) {
  std::string text;
  llvm::interleave(
      phases, [&](const Phase &phase) { text += phase.pipeline; }, [&] { text += ","; });
  return text;
}

} // namespace easyquant
