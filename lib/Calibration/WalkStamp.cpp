//===- WalkStamp.cpp - What statistics of a text depend on ----------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "WalkStamp.h"

#include "easyquant/Dialect/Equant/IR/Equant.h"
#include "easyquant/Numerics/Blas.h"
#include "easyquant/Support/Checksum.h"
#include "easyquant/Weights/ConstantTensors.h"

using namespace mlir;
using namespace easyquant;
using namespace easyquant::calibration;

/// A hash of what is computed and observed, wherever the model lies and whatever is planned for it.
static std::string programHash(ModuleOp module) {
  OwningOpRef<ModuleOp> copy = module.clone();
  for (StringRef other : {lm::kSourceAttr, lm::kAssistantAttr, equant::kStatisticsAttr,
                          equant::kWorkAttr, equant::kCalibrationAttr, equant::kRecipeAttr})
    (*copy)->removeAttr(other);
  copy->walk([](Operation *op) { op->removeAttr(equant::kPlanAttr); });
  std::string text;
  llvm::raw_string_ostream stream(text);
  copy->print(stream);
  return checksumOf(std::as_bytes(std::span(text)));
}

FailureOr<Stamp> easyquant::calibration::walkStamp(ModuleOp module, LayerRunner &runner,
                                                   const Ranks &ranks) {
  auto fail = [&](const Error &error) { return emitError(module.getLoc()) << error.message; };
  Result<std::string> model = runner.constants().source().hash();
  if (!model)
    return fail(model.error());
  const CalibrationTokens &tokens = runner.tokens();
  formats::CalibrationStamp calibration = tokens.stamp();
  calibration.model = *model;
  Stamp stamp = calibration.toMetadata();
  stamp["program_hash"] = programHash(module);
  stamp["tokens_hash"] = tokens.hash();
  // These change the order of summation.
  stamp["isa"] = runner.compiler().options().isa;
  stamp["rows_at_a_time"] = std::to_string(runner.compiler().options().maxRows);
  stamp["shares"] = std::to_string(kSampleShares);
  stamp["blas"] = numerics::blasKernels();
  std::vector<comm::Agreed> subjects;
  for (const auto &[name, value] : stamp)
    subjects.push_back(comm::Agreed::of(name, value));
  if (auto same = ranks.agree(subjects); !same)
    return fail(same.error());
  return stamp;
}

FailureOr<std::optional<Journal>>
easyquant::calibration::openJournal(ModuleOp module, const LayerRunner &runner, const Ranks &ranks,
                                    const std::filesystem::path &file, const std::string &work,
                                    const Stamp &stamp) {
  auto fail = [&](const Error &error) { return emitError(module.getLoc()) << error.message; };
  Result<bool> known =
      ranks.shareFile(file.string(), equant::isIntact(module.getLoc(), file, stamp));
  if (!known)
    return fail(known.error());
  if (*known)
    return std::optional<Journal>();
  const CalibrationTokens &tokens = runner.tokens();
  Result<Journal> journal =
      Journal::open(module.getLoc(), work, stamp,
                    fmt::format("{} from {}", tokens.samples(), tokens.firstSample()), ranks);
  if (!journal)
    return fail(journal.error());
  return std::optional<Journal>(std::move(*journal));
}
