//===- Compile.cpp - The pipeline behind easyquant-compile ----------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "easyquant/Pipelines/Compile.h"

#include "ExportOptions.h"

#include "easyquant/Calibration/Passes.h"
#include "easyquant/Conversion/EquantToLaunches/EquantToLaunches.h"
#include "easyquant/Conversion/LaunchesToLLVM/LaunchesToLLVM.h"
#include "easyquant/Dialect/Equant/Transforms/Passes.h"
#include "easyquant/Dialect/LM/Transforms/Passes.h"
#include "easyquant/Export/Passes.h"
#include "easyquant/Methods/Passes.h"
#include "easyquant/Numerics/SiteStatistics.h"
#include "easyquant/Pipelines/Passes.h"
#include "easyquant/Recipe/Mixes.h"
#include "easyquant/Recipe/PassOptions.h"
#include "easyquant/Recipe/Presets.h"
#include "easyquant/Recipe/Recipe.h"
#include "easyquant/Search/Passes.h"
#include "easyquant/Support/Threads.h"
#include "easyquant/Target/CPU/CPUTarget.h"
#include "easyquant/Target/Target.h"

#include "llvm/ADT/SetVector.h"
#include "llvm/Support/Path.h"

#include <fmt/format.h>

using namespace mlir;

namespace easyquant {

using recipe::OptionInfo;
using recipe::OptionValues;
using recipe::passOptions;
namespace option = recipe::option;

//===----------------------------------------------------------------------===//
// What is asked
//===----------------------------------------------------------------------===//

namespace {
/// What the options ask of the model, whether they name it or a recipe does.
struct Request {
  std::string scheme, base;           ///< of the sites without a rule of their own
  std::vector<std::string> methods;   ///< in order
  std::vector<std::string> observers; ///< of static activations
  bool searchesAlpha = false;
  bool weighsErrors = false;  ///< ranges of weights follow from calibration text
  bool keepsSinks = false;    ///< static ranges leave sinks out
  bool rotatesRanges = false; ///< static ranges are those of rotated values
  bool learnsTables = false;  ///< some scheme's table follows from the weights
  OptionValues ofRecipe;      ///< what the recipe says for all sites

  bool readsText() const {
    return !methods.empty() || weighsErrors || !observers.empty() || learnsTables;
  }
};

} // namespace

static Result<Request> requestOf(const OptionValues &options) {
  recipe::Recipe asked;
  if (options.has(option::recipe)) {
    Result<recipe::Recipe> read = recipe::readRecipe(options[option::recipe]);
    if (!read)
      return Unexpected(read.error());
    asked = std::move(*read);
  } else {
    Result<recipe::MethodExpression> method =
        recipe::parseMethod(options[option::method], options[option::scheme]);
    if (!method)
      return Unexpected(method.error());
    asked.request.method = *method;
    asked.request.options = options;
  }
  OptionValues recipes = std::move(asked.options);
  asked.options = options; // wins over the recipe's
  asked.options.addMissing(recipes);
  Result<bool> keepsSinks = asked.keepsSinks();
  if (!keepsSinks)
    return Unexpected(keepsSinks.error());
  return Request{
      asked.request.scheme(), asked.request.method.base, asked.methods(), asked.observers(),
      asked.searchesAlpha(),  asked.weighsErrors(),      *keepsSinks,     asked.rotatesRanges(),
      asked.learnsTables(),   std::move(recipes)};
}

std::vector<std::string> legalNames(const OptionInfo &option) {
  if (&option == &option::targetNames.info())
    return targets::requestNames();
  if (&option == &option::isas.info())
    return (*targets::findFamily(cpu::kFamily))->names;
  return recipe::choicesOf(option);
}

/// Families and their targets; the options are checked.
static std::vector<targets::Request> targetsOf(const OptionValues &options) {
  return *targets::parseRequests(options[option::targetNames]);
}

/// Their families by name.
static SmallVector<std::string> familiesOf(const OptionValues &options) {
  return llvm::map_to_vector(targetsOf(options),
                             [](const targets::Request &request) { return request.family->name; });
}

static std::optional<std::string> checkTargets(const OptionValues &options, StringRef scheme) {
  for (const std::string &site : options[option::targets])
    if (llvm::is_contained(targets::requestNames(), site))
      return "targets '" + site + "': expected names of sites to quantize; did you mean --target " +
             site + "?";
  Result<std::vector<targets::Request>> requests =
      targets::parseRequests(options[option::targetNames]);
  if (!requests)
    return requests.error().message;
  for (const targets::Request &request : *requests)
    if (auto problem = request.family->checkOptions(options, request.targets, scheme))
      return problem;
  return std::nullopt;
}

std::optional<std::string> takeFromRecipe(OptionValues &options) {
  if (!options.has(option::recipe))
    return std::nullopt;
  Result<recipe::Recipe> read = recipe::readRecipe(options[option::recipe]);
  if (!read)
    return read.error().message;
  options.addMissing(read->options);
  return std::nullopt;
}

static bool hasText(const OptionValues &options) {
  return options.has(option::tokensFile) || options[option::withText];
}

void takeCalibratedDefaults(OptionValues &options) {
  if (options.has(option::recipe) || !hasText(options))
    return;
  // Ranks do not find together which tokens leave a range that is not around 0.
  if (Result<recipe::MethodExpression> method =
          recipe::parseMethod(options[option::method], options[option::scheme]);
      method && method->base == "zeropoint" && options[option::tensorParallel] > 1 &&
      options[option::activations] == "static" && !options.has(option::sinks))
    options.set(option::sinks, std::string("none"));
  const bool isMix = recipe::findMix(options[option::scheme]);
  if (isMix && !options.has(option::method))
    options.set(option::method, recipe::calibratedMethod(options[option::scheme]).str());
  if (options.has(option::weightObserver))
    return;
  Result<recipe::MethodExpression> method =
      recipe::parseMethod(options[option::method], options[option::scheme]);
  if (!method)
    return;
  const recipe::SiteRequest request{*method, options};
  std::optional<recipe::Preset> preset = recipe::findPreset(request.scheme());
  const bool isMeasured = llvm::all_of(method->methods, [](const std::string &name) {
    return name == "awq" || name == "gptq" || name == "signround";
  });
  const bool isWeighable = preset && !request.isKept() && (preset->isInteger() || preset->table);
  const bool isWeighed = isWeighable && isMeasured &&
                         (request.groupSize() > 0 || preset->input == recipe::InputCodes::None);
  // NVFP4 has been measured beside float activations, without methods.
  const bool isWeighedFP4 = preset && preset->codes == numerics::CodeFormat::F4E2M1FN &&
                            preset->outer && preset->input == recipe::InputCodes::None &&
                            method->methods.empty();
  // What each kind of site has in a mix was chosen for such ranges.
  if (isWeighed || isWeighedFP4 || isMix)
    options.set(option::weightObserver, std::string("hessian-diagonal"));
}

/// Is an option of the command line there whose method is not? What a recipe says for all sites is
/// for those that it has.
static std::optional<std::string> checkOwners(const OptionValues &options, const Request &request) {
  const std::string found =
      options.has(option::recipe)
          ? "recipe " + options[option::recipe]
          : "method " + recipe::MethodExpression{request.base, request.methods}.str();
  auto isRead = [&](const OptionInfo &option) {
    // Ranges by weighted error can count tokens by the loss, too.
    if (&option == &option::hessian.info() && request.weighsErrors &&
        StringRef(options[option::hessian]).starts_with("loss"))
      return true;
    return request.base == option.owner || llvm::is_contained(request.methods, option.owner);
  };
  for (const OptionInfo &option : recipe::options())
    if (recipe::findMethod(option.owner) && options.has(option) && !request.ofRecipe.has(option) &&
        !isRead(option))
      return fmt::format("--{} goes with method {}, found {}", option.flag, option.owner, found);
  return std::nullopt;
}

/// Why an assistant is not taken along, which was asked for by name; nothing if it is, or was not.
static std::optional<std::string> checkAssistant(const OptionValues &options) {
  if (!options.has(option::assistant))
    return std::nullopt;
  std::string reason = whyNoDraftHead(options);
  if (options.has(option::exportFormat))
    reason = "checkpoints have no place for it";
  if (reason.empty())
    return std::nullopt;
  return "--assistant " + options[option::assistant] + ": " + reason + "; leave one of the two out";
}

std::optional<std::string> checkOptions(const OptionValues &options) {
  for (const OptionInfo &option : recipe::options())
    if (const recipe::OptionValue *value = options.find(option))
      if (auto ok = recipe::checkValue(option, *value); !ok)
        return ok.error().message;
  auto request = requestOf(options);
  if (!request)
    return request.error().message;
  if (auto problem = checkOwners(options, *request))
    return problem;
  if (options.has(option::weightPercentile) && options[option::weightObserver] != "percentile")
    return "--weight-percentile goes with --weight-observer percentile, found " +
           options[option::weightObserver];
  if (options.has(option::lossStatistics) &&
      !StringRef(options[option::hessian]).starts_with("loss"))
    return "--statistics goes with --hessian loss or loss-both, found " + options[option::hessian];
  if (options.has(option::observerPercentile) && options[option::observer] != "percentile")
    return "--observer-percentile goes with --observer percentile, found " +
           options[option::observer];
  if (auto problem = checkTargets(options, request->scheme))
    return problem;
  if (auto problem = checkExport(options))
    return problem;
  if (auto chosen = chooseThreads(options[option::threads]); !chosen)
    return chosen.error().message;
  if (auto problem = checkAssistant(options))
    return problem;
  bool isCacheFloat = options.get(option::kvScheme).value_or("none") == "none";
  for (const OptionInfo &option : recipe::options())
    if (isCacheFloat && option.section == "kv" && &option != &option::kvScheme.info() &&
        options.has(option))
      return "options of a quantized KV cache need --kv-scheme int8, int4 or int2";
  if (options[option::kvKeys] == "hadamard" &&
      options.get(option::kvKeyScales).value_or("token") != "token")
    return "--kv-keys hadamard has scales of keys per token, found --kv-key-scales " +
           options[option::kvKeyScales] + "; leave one of the two out";
  return std::nullopt;
}

std::string whyNoDraftHead(const OptionValues &options) {
  if (options[option::draftHead] == "none")
    return "--draft-head none";
  if (options[option::exportFormat] == "onnx")
    return "a graph has one result";
  if (options.has(option::exportFormat))
    return "";
  if (options[option::tensorParallel] > 1)
    return "it runs on one rank";
  if (options.get(option::kvScheme).value_or("none") != "none")
    return "what was guessed wrong can be taken from a float KV cache alone";
  if (StringRef(options[option::activations]).starts_with("online"))
    return "scales that follow a text forget no guess";
  return "";
}

std::optional<std::string> checkTokens(const OptionValues &options, StringRef remedy) {
  Request request = *requestOf(options);
  if (options.has(option::tokensFile))
    return std::nullopt;
  if (options[option::expertTokens] > 0)
    return ("--expert-tokens reads more calibration text: give " + remedy).str();
  const std::string text = (" calibration text: give " + remedy).str();
  if (!request.methods.empty())
    return "method " + request.methods.front() + " needs" + text;
  if (request.weighsErrors)
    return "weight observer hessian-diagonal needs" + text + ", or take mse";
  if (!request.observers.empty())
    return "static and online activations need" + text + ", or take dynamic ones";
  return std::nullopt;
}

//===----------------------------------------------------------------------===//
// Pipelines
//===----------------------------------------------------------------------===//

template <typename PassOptions>
static PassOptions withOutput(const OptionValues &options, StringRef output) {
  PassOptions result = passOptions<PassOptions>(options);
  result.output = output.str();
  return result;
}

/// The options of a pass of the table. Passes of bases hand on the names of the methods that
/// follow.
template <typename PassOptions>
static PassOptions methodOptions(const OptionValues &options, ArrayRef<std::string> methods) {
  PassOptions result = passOptions<PassOptions>(options);
  if constexpr (requires { result.methods; })
    result.methods.assign(methods.begin(), methods.end());
  return result;
}

static std::unique_ptr<Pass> createMethod(StringRef name, const OptionValues &options,
                                          ArrayRef<std::string> methods = {}) {
#define EASYQUANT_METHOD(method, cppNamespace, pass)                                               \
  if (name == method)                                                                              \
    return cppNamespace::create##pass(methodOptions<cppNamespace::pass##Options>(options, methods));
#include "easyquant/Recipe/Options.inc"
  llvm_unreachable("checked names of methods");
}

using StatisticNames = llvm::SmallSetVector<StringRef, 4>;

/// What static ranges follow from.
static StatisticNames rangeStatistics(const Request &request) {
  StatisticNames names;
  for (const std::string &observer : request.observers)
    names.insert(numerics::findRangeObserver(observer)->statistic);
  if (request.keepsSinks)
    names.insert("inliers");
  return names;
}

/// The passes that gather these statistics, if there are any, in `file` of the work folder.
static void addObservation(OpPassManager &pm, const OptionValues &options,
                           const StatisticNames &names, StringRef file) {
  if (names.empty())
    return;
  equant::InsertObserversOptions observers;
  for (StringRef name : names)
    observers.statistics.push_back(name.str());
  auto calibrate = passOptions<calibration::CalibrateOptions>(options);
  calibrate.file = file.str();
  pm.addPass(equant::createInsertObservers(observers));
  pm.addPass(calibration::createCalibrate(calibrate));
  pm.addPass(equant::createAttachCalibration());
}

/// The passes that gather statistics of the model as it is, where anything reads them.
static void addCalibration(OpPassManager &pm, const OptionValues &options, const Request &request) {
  StatisticNames names;
  for (const std::string &method : request.methods)
    if (StringRef name = recipe::findMethod(method)->statistics; !name.empty())
      names.insert(name);
  if (request.searchesAlpha && llvm::is_contained(request.methods, "smoothquant"))
    names.insert("moments");
  if (!request.rotatesRanges)
    names.insert_range(rangeStatistics(request));
  if (request.learnsTables && hasText(options))
    names.insert("moments");
  addObservation(pm, options, names, "statistics.safetensors");
}

/// Sites in the basis of their plans. Ranges of rotated values follow from no statistics of plain
/// ones.
static void addRotation(OpPassManager &pm, const OptionValues &options, const Request &request) {
  pm.addPass(equant::createRotate());
  if (request.rotatesRanges)
    addObservation(pm, options, rangeStatistics(request), "ranges.safetensors");
}

/// The pass that decides how each site is quantized.
static void addPlan(OpPassManager &pm, const OptionValues &options) {
  if (options.has(option::recipe)) {
    auto apply = passOptions<equant::ApplyRecipeOptions>(options);
    apply.file = options[option::recipe];
    pm.addPass(equant::createApplyRecipe(apply));
  } else {
    recipe::MethodExpression method =
        *recipe::parseMethod(options[option::method], options[option::scheme]);
    pm.addPass(createMethod(method.base, options, method.methods));
  }
  if (options[option::tensorParallel] > 1)
    pm.addPass(equant::createFitBasis({options[option::tensorParallel]}));
}

/// The check that every target has kernels for the plans, or that a checkpoint holds them.
static void addPlanCheck(OpPassManager &pm, const OptionValues &options) {
  auto check = passOptions<equant::CheckPlansOptions>(options);
  check.kernelTargets = familiesOf(options);
  check.degree = options[option::tensorParallel];
  pm.addPass(equant::createCheckPlans(check));
}

/// The pass that takes more of the text, if experts are to see more of it; the options of the
/// passes that read text.
static OptionValues addWindows(OpPassManager &pm, OptionValues options, const Request &request) {
  if (options[option::expertTokens] == 0 || !request.readsText() || !hasText(options))
    return options;
  pm.addPass(calibration::createTakeWindows(passOptions<calibration::TakeWindowsOptions>(options)));
  llvm::SmallString<128> windows(options[option::workFolder]);
  llvm::sys::path::append(windows, calibration::kWindowsFile);
  options.set(option::tokensFile, windows.str().str());
  return options;
}

void buildQuantizePipeline(OpPassManager &pm, const OptionValues &given) {
  Request request = *requestOf(given);
  const OptionValues options = addWindows(pm, given, request);
  addCalibration(pm, options, request);
  addPlan(pm, options);
  addPlanCheck(pm, options);
  if (request.learnsTables)
    pm.addPass(methods::createLearnTables(passOptions<methods::LearnTablesOptions>(options)));
  // Transforms change what ranges are chosen for; what rounds takes the ranges.
  auto isRounding = [](const std::string &name) {
    return recipe::findMethod(name)->stage == recipe::Stage::Rounding;
  };
  auto firstRounding = llvm::find_if(request.methods, isRounding);
  for (const std::string &name : llvm::make_range(request.methods.begin(), firstRounding))
    pm.addPass(createMethod(name, options));
  addRotation(pm, options, request);
  if (request.weighsErrors)
    pm.addPass(methods::createChooseRanges(passOptions<methods::ChooseRangesOptions>(options)));
  for (const std::string &name : llvm::make_range(firstRounding, request.methods.end()))
    pm.addPass(createMethod(name, options));
  pm.addPass(equant::createQuantize(passOptions<equant::QuantizeOptions>(options)));
  if (options.has(option::exportFormat))
    return; // what follows is for kernels
  if (options[option::tensorParallel] > 1)
    pm.addPass(equant::createShard({options[option::tensorParallel]}));
  pm.addNestedPass<func::FuncOp>(equant::createFuseSharedInput());
  if (options.get(option::kvScheme).value_or("none") != "none")
    pm.addPass(equant::createSimQuantKV(passOptions<equant::SimQuantKVOptions>(options)));
}

/// Rows are hoisted before the model has a module for each kind of target.
static void addMaterialize(OpPassManager &pm, const OptionValues &options, StringRef output,
                           SmallVector<std::string> families) {
  pm.addPass(lm::createHoistRows());
  pm.addPass(equant::createOnlineScales(passOptions<equant::OnlineScalesOptions>(options)));
  auto materialize = withOutput<equant::MaterializeWeightsOptions>(options, output);
  materialize.kernelTargets = std::move(families);
  pm.addPass(equant::createMaterializeWeights(materialize));
}

void buildMaterializePipeline(OpPassManager &pm, const OptionValues &options, StringRef output) {
  addMaterialize(pm, options, output, familiesOf(options));
}

void buildProgramPipeline(OpPassManager &pm, const OptionValues &options, StringRef output) {
  for (const targets::Request &request : targetsOf(options))
    request.family->addProgramPass(pm, request.targets, options, output);
}

void buildArtifactPipeline(OpPassManager &pm, const OptionValues &options, StringRef output) {
  if (options.has(option::exportFormat))
    return pm.addPass(createExportCheckpoint(withOutput<ExportCheckpointOptions>(options, output)));
  buildMaterializePipeline(pm, options, output);
  buildProgramPipeline(pm, options, output);
  pm.addPass(createWriteManifest(withOutput<WriteManifestOptions>(options, output)));
}

void buildCompilePipeline(OpPassManager &pm, const OptionValues &options, StringRef output) {
  buildQuantizePipeline(pm, options);
  buildArtifactPipeline(pm, options, output);
}

void buildPipelineUntilPhase(OpPassManager &pm, const OptionValues &options, StringRef output) {
  std::string last = options[option::emitIRAfter];
  if (last == "import")
    return;
  buildQuantizePipeline(pm, options);
  if (last == "quantize")
    return;
  if (last == "materialize")
    return buildMaterializePipeline(pm, options, output);
  // Launches are shown of one target.
  const targets::Request request = targetsOf(options).front();
  addMaterialize(pm, options, output, {request.family->name});
  auto launches = passOptions<ConvertEquantToLaunchesOptions>(options);
  const std::vector<std::string> &isas = options[option::isas];
  launches.target = request.family->name == cpu::kFamily && !isas.empty() ? isas.front()
                                                                          : request.targets.front();
  buildLaunchesPipeline(pm, launches);
}

LogicalResult buildSearchPipeline(OpPassManager &pm, const OptionValues &given, StringRef search) {
  OptionValues options = given;
  // From entropies nothing is measured.
  if (!search.contains("strategy=entropy"))
    takeCalibratedDefaults(options);
  Request request = *requestOf(options);
  options = addWindows(pm, options, request);
  addCalibration(pm, options, request);
  addPlan(pm, options);
  OptionValues transforms = options;
  transforms.set(option::clip, false); // ranges are those of one format
  for (const std::string &name : request.methods)
    if (recipe::findMethod(name)->stage == recipe::Stage::Transform)
      pm.addPass(createMethod(name, transforms));
  OptionValues own;
  for (const OptionInfo *shared :
       {&option::tokensFile.info(), &option::workFolder.info(), &option::threads.info()})
    if (const recipe::OptionValue *value = options.find(*shared))
      own.set(*shared, *value);
  auto pass = search::createSearchBitwidths(passOptions<search::SearchBitwidthsOptions>(own));
  auto fail = [](const Twine &message) {
    llvm::errs() << "error: options of the search: " << message << "\n";
    return failure();
  };
  if (failed(pass->initializeOptions(search, fail)))
    return failure();
  pm.addPass(std::move(pass));
  return success();
}

void buildDryRunPipeline(OpPassManager &pm, const OptionValues &options) {
  addPlan(pm, options);
  addPlanCheck(pm, options);
  if (!options.has(option::exportFormat) &&
      options.get(option::kvScheme).value_or("none") != "none")
    pm.addPass(equant::createSimQuantKV(passOptions<equant::SimQuantKVOptions>(options)));
  OpPassManager quantize(ModuleOp::getOperationName());
  buildQuantizePipeline(quantize, options);
  auto print = passOptions<PrintPlansOptions>(options);
  for (Pass &pass : quantize.getPasses())
    if (!pass.getArgument().empty()) // those of functions are none that the model goes through
      print.passes.push_back(pass.getArgument().str());
  print.kernelTargets = familiesOf(options);
  pm.addPass(createPrintPlans(print));
}

} // namespace easyquant
