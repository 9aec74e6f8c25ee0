//===- MethodRun.cpp - A method that runs the model -----------------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "easyquant/Methods/MethodRun.h"

#include "easyquant/Dialect/Equant/Analysis/RecipePlans.h"
#include "easyquant/Numerics/Blas.h"

using namespace mlir;
using namespace easyquant;
using namespace easyquant::methods;

bool easyquant::methods::isPlanned(ModuleOp module, StringRef method) {
  return module
      .walk([&](equant::QuantizableOpInterface op) {
        equant::PlanAttr plan = equant::getPlan(op);
        return plan && plan.names(method) ? WalkResult::interrupt() : WalkResult::advance();
      })
      .wasInterrupted();
}

/// "gptq 2", and "name=value" of the options that are the method's own.
static std::string stampText(const MethodRun::Request &request) {
  std::string text = (request.method + " " + request.revision).str();
  for (const recipe::OptionInfo &option : recipe::options())
    if (request.method == StringRef(option.owner))
      text += fmt::format(" {}={}", option.key,
                          recipe::exactText(request.options.valueOrDefault(option)));
  return text;
}

FailureOr<MethodRun> MethodRun::open(ModuleOp module, const Request &request) {
  namespace option = recipe::option;
  const std::string tokensFile = request.options[option::tokensFile];
  FailureOr<ModelConstants> constants = ModelConstants::open(module);
  FailureOr<std::string> work = equant::getWorkFolder(module, request.options[option::workFolder]);
  if (failed(constants) || failed(work))
    return failure();
  if (tokensFile.empty())
    return emitError(module.getLoc())
           << "equant-" << request.method << " needs calibration tokens: give tokens=FILE";
  MethodRun run(module.getLoc(), request.method.str(), *work);
  auto tokens =
      CalibrationTokens::readOnAll(run.others, tokensFile, constants->source().config().vocabSize);
  if (!tokens)
    return run.fail(tokens.error());
  recordCalibration(module, *tokens); // the text that was given, whatever of it the method takes
  if (request.samples > 0 || request.tokens > 0)
    tokens->keep(0, std::max(request.samples, tokens->samplesHolding(request.tokens)));
  if (request.length > 0)
    tokens->split(request.length, request.sequences);
  if (request.sharesSamples)
    tokens->keepPart(run.others.rank(), run.others.size());
  run.tokens = std::make_unique<const CalibrationTokens>(std::move(*tokens));
  EngineOptions engine;
  engine.threads = static_cast<unsigned>(request.options[option::threads]);
  FailureOr<LayerRunner> runner = LayerRunner::create(module, *run.tokens, engine);
  if (failed(runner) || failed(checkSitesAreInLayers(module, runner->layers(), request.method)))
    return failure();
  run.layerRunner.emplace(std::move(*runner));
  FailureOr<std::string> before = methodStamp(*run.layerRunner, module, stampText(request));
  if (failed(before))
    return failure();
  equant::recordOptions(module, request.options, request.method);
  // All of them now: they are of the layers as they came.
  for (func::FuncOp layer : run.layerRunner->layers())
    run.stamps.push_back(layerStamp(layer, run.stamps.empty() ? *before : run.stamps.back()));
  if (auto same = run.agree(); !same)
    return run.fail(same.error());
  return std::move(run);
}

/// What results depend on must be the same on all ranks.
Result<void> MethodRun::agree() {
  const std::string text = tokens->hash(), blas = numerics::blasKernels();
  const comm::Agreed subjects[] = {
      comm::Agreed::of("the calibration tokens", text),
      comm::Agreed::of("the instruction set", layerRunner->compiler().options().isa),
      comm::Agreed::of("the BLAS kernels", blas),
      comm::Agreed::of("the model and its plans", stamps.back())};
  return others.agree(subjects);
}

std::string MethodRun::file(int64_t i, StringRef part) const {
  return method + (part.empty() ? "_" : ("_" + part + "_").str()) + std::to_string(i) +
         ".safetensors";
}

bool MethodRun::has(const std::string &file, const std::string &stamp) const {
  return others
      .shareFile((folder.folder() / file).string(), equant::isIntact(loc, folder, file, stamp))
      .value_or(false);
}

int64_t MethodRun::layersToRun(llvm::function_ref<bool(int64_t)> isDone) const {
  int64_t count = layerCount();
  while (count > 0 && isDone(count - 1))
    --count;
  return count;
}
