//===- MethodRun.cpp - A method that runs the model -----------------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "easyquant/Calibration/MethodRun.h"

#include "easyquant/Dialect/Equant/Analysis/RecipePlans.h"

using namespace mlir;
using namespace easyquant;
using namespace easyquant::calibration;
using recipe::OptionValue;

bool easyquant::calibration::isPlanned(ModuleOp module, StringRef method) {
  return module
      .walk([&](equant::QuantizableOpInterface op) {
        equant::PlanAttr plan = equant::getPlan(op);
        return plan && plan.names(method) ? WalkResult::interrupt() : WalkResult::advance();
      })
      .wasInterrupted();
}

/// Every bit of it.
static std::string textOf(const OptionValue &value) {
  return std::visit(
      [](const auto &held) {
        using Held = std::decay_t<decltype(held)>;
        if constexpr (std::is_same_v<Held, double>)
          return fmt::format("{:a}", held);
        else if constexpr (std::is_same_v<Held, std::vector<std::string>>)
          return llvm::join(held, ",");
        else
          return fmt::format("{}", held);
      },
      value);
}

/// "gptq 2", and "name=value" of the options that are the method's own.
static std::string stampText(const MethodRun::Request &request) {
  std::string text = (request.method + " " + request.revision).str();
  for (const recipe::OptionInfo &option : recipe::options())
    if (request.method == StringRef(option.owner))
      text += fmt::format(" {}={}", option.key, textOf(request.options.valueOrDefault(option)));
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
  auto tokens = CalibrationTokens::read(tokensFile, constants->source().config().vocabSize);
  if (!tokens)
    return run.fail(tokens.error());
  if (request.samples > 0)
    tokens->keepFirst(request.samples);
  if (request.maxLength > 0)
    tokens->truncate(request.maxLength);
  run.tokens = std::make_unique<const CalibrationTokens>(std::move(*tokens));
  EngineOptions engine;
  engine.threads = static_cast<unsigned>(request.options[option::threads]);
  FailureOr<LayerRunner> runner = LayerRunner::create(module, *run.tokens, engine);
  if (failed(runner) || failed(checkSitesAreInLayers(module, runner->layers(), request.method)))
    return failure();
  run.layerRunner.emplace(std::move(*runner));
  recordCalibration(module, *run.tokens);
  FailureOr<std::string> before = methodStamp(*run.layerRunner, module, stampText(request));
  if (failed(before))
    return failure();
  equant::recordOptions(module, request.options, request.method);
  // All of them now: they are of the layers as they came.
  for (func::FuncOp layer : run.layerRunner->layers())
    run.stamps.push_back(layerStamp(layer, run.stamps.empty() ? *before : run.stamps.back()));
  return std::move(run);
}

std::string MethodRun::file(int64_t i, StringRef part) const {
  return method + (part.empty() ? "_" : ("_" + part + "_").str()) + std::to_string(i) +
         ".safetensors";
}

bool MethodRun::has(int64_t i, StringRef part) const {
  return folder.has(file(i, part), stamps[i]);
}

int64_t MethodRun::layersToRun(llvm::function_ref<bool(int64_t)> isDone) const {
  int64_t count = layerCount();
  while (count > 0 && isDone(count - 1))
    --count;
  return count;
}
