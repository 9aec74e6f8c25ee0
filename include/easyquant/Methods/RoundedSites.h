//===- RoundedSites.h - Codes and scales that methods computed --*- C++ -*-===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// A rounding method leaves tensors of a site in a file of the work folder, <site>.weight_codes,
// <site>.weight_scale, of an asymmetric scheme <site>.weight_zero_point, and of one with outer
// scales <site>.weight_outer, and their names in the site's plan. A method that chooses ranges
// alone leaves no codes: the site is then rounded to nearest.
//
//===----------------------------------------------------------------------===//

#ifndef EASYQUANT_METHODS_ROUNDEDSITES_H
#define EASYQUANT_METHODS_ROUNDEDSITES_H

#include "easyquant/Execution/LayerSites.h"

namespace easyquant::methods {

using namespace execution;

/// The sites of a layer whose plans name `method`, in the order of execution.
llvm::SmallVector<PlannedSite> sitesNaming(mlir::func::FuncOp layer, llvm::StringRef method);

/// How many rows of calibration text chose each expert, by the weights of their linears.
using ExpertRows = llvm::MapVector<mlir::Value, std::vector<int32_t>>;

/// Writes the codes of `sites` and their scales, and the rows of experts. Errors: those of
/// ComputedConstants::write.
Result<void> writeRounded(const formats::ComputedConstants &work, llvm::StringRef file,
                          llvm::StringRef stamp, llvm::ArrayRef<PlannedSite> sites,
                          const QuantizedWeights &codes, const ExpertRows &rows = {});
/// Reads them back. Errors: those of ComputedConstants::readRows.
Result<numerics::QuantizedMatrix> readRounded(const formats::ComputedConstants &work,
                                              llvm::StringRef file, llvm::StringRef stamp,
                                              const PlannedSite &site);
/// The weight of a site as it will be, as far as is known: the codes that its plan names, or
/// rounded to nearest in the ranges that its plan names, or in those of its rule. Fails with a
/// diagnostic.
mlir::FailureOr<numerics::QuantizedMatrix> roundAsPlanned(const formats::ComputedConstants &work,
                                                          const ModelConstants &constants,
                                                          const PlannedSite &site);
/// Declares the tensors of the file, and names them in the plans. Where f16, the type of scales by
/// default, does not hold those of a site, its plan has f32 from then on, with a remark. Fails with
/// a diagnostic where the file cannot be read.
mlir::LogicalResult declareRounded(mlir::ModuleOp module, const formats::ComputedConstants &work,
                                   llvm::StringRef file, llvm::StringRef stamp,
                                   llvm::ArrayRef<PlannedSite> sites);

/// The same without codes; `params` are those of each of the sites.
Result<void> writeScales(const formats::ComputedConstants &work, llvm::StringRef file,
                         llvm::StringRef stamp, llvm::ArrayRef<PlannedSite> sites,
                         llvm::ArrayRef<numerics::QParams> params, const ExpertRows &rows = {});
/// The rows of experts in either file. Errors: those of ComputedConstants::readRows.
Result<std::vector<int32_t>> readExpertRows(const formats::ComputedConstants &work,
                                            llvm::StringRef file, llvm::StringRef stamp,
                                            const PlannedSite &site);
mlir::LogicalResult declareScales(mlir::ModuleOp module, const formats::ComputedConstants &work,
                                  llvm::StringRef file, llvm::StringRef stamp,
                                  llvm::ArrayRef<PlannedSite> sites);

} // namespace easyquant::methods

#endif // EASYQUANT_METHODS_ROUNDEDSITES_H
