//===- RoundedSites.h - Codes that methods computed -------------*- C++ -*-===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// A rounding method leaves three tensors of a site in a file of the work folder,
// <site>.weight_codes, <site>.weight_scale and, of an asymmetric scheme, <site>.weight_zero_point,
// and their names in the site's plan.
//
//===----------------------------------------------------------------------===//

#ifndef EASYQUANT_CALIBRATION_ROUNDEDSITES_H
#define EASYQUANT_CALIBRATION_ROUNDEDSITES_H

#include "easyquant/Calibration/LayerSites.h"

namespace easyquant::calibration {

/// The sites of a layer whose plans name `method`, in the order of execution.
llvm::SmallVector<PlannedSite> sitesNaming(mlir::func::FuncOp layer, llvm::StringRef method);

/// Writes the codes of `sites`. Errors: those of ComputedConstants::write.
Result<void> writeRounded(const formats::ComputedConstants &work, llvm::StringRef file,
                          llvm::StringRef stamp, llvm::ArrayRef<PlannedSite> sites,
                          const QuantizedWeights &codes);
/// Reads them back. Errors: those of ComputedConstants::readRows.
Result<numerics::QuantizedMatrix> readRounded(const formats::ComputedConstants &work,
                                              llvm::StringRef file, llvm::StringRef stamp,
                                              const PlannedSite &site);
/// Declares the tensors of the file, and names them in the plans.
void declareRounded(mlir::ModuleOp module, llvm::StringRef file, llvm::StringRef stamp,
                    llvm::ArrayRef<PlannedSite> sites);

} // namespace easyquant::calibration

#endif // EASYQUANT_CALIBRATION_ROUNDEDSITES_H
