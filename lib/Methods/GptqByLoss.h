//===- GptqByLoss.h - GPTQ in the metric of the model's loss ----*- C++ -*-===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// A token counts by what the loss makes of it: with g the gradient of the loss at the output of a
// linear, and x what it reads,
//
//      H = sum |g|^2 x x^T        and, of the rows of its weight,        Hout = sum g g^T
//
// (the factors of Tseng, Sun, De Sa, 2025, https://arxiv.org/abs/2505.22988). All are of the float
// model, so that no site depends on what became of another. Those of an expert are over the rows
// that chose it, and are filled up where these are few. Private to lib/Methods.
//
//===----------------------------------------------------------------------===//

#ifndef EASYQUANT_LIB_METHODS_GPTQBYLOSS_H
#define EASYQUANT_LIB_METHODS_GPTQBYLOSS_H

#include "easyquant/Methods/MethodRun.h"
#include "easyquant/Numerics/Gptq.h"

namespace easyquant::methods {

/// Factors the Hessian of what `site` reads; a remark says where it took more damping than asked
/// for. Fails with a diagnostic that names the site. `part`: "expert 3 of ", before its name.
mlir::FailureOr<numerics::GptqFactor> factorFor(const PlannedSite &site,
                                                numerics::ConstMatrix hessian,
                                                const numerics::GptqOptions &options,
                                                const std::string &part = "");

using GptqOptionsOf = llvm::function_ref<numerics::GptqOptions(const PlannedSite &site)>;

/// Rounds the sites of all layers that name gptq and have no file yet, and writes their files, the
/// last layer first. `both`: errors go to later rows, too. Their damping is then one of {0.1, 1,
/// 3}, by E[(g^T (W - What) x)^2] over samples that are in no Hessian; 1 of experts that no row of
/// these chose. Hessians are those of the
/// file `statistics` (LossStatistics.h), or are gathered where there is none. Fails with a
/// diagnostic.
mlir::LogicalResult roundByLoss(MethodRun &run, GptqOptionsOf optionsOf, bool both,
                                llvm::StringRef statistics);

} // namespace easyquant::methods

#endif // EASYQUANT_LIB_METHODS_GPTQBYLOSS_H
