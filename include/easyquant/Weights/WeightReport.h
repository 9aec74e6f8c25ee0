//===- WeightReport.h - What became of each site ----------------*- C++ -*-===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The parts of the manifest that follow from quantizing (docs/Architecture.md), as attributes.
//
//
//===----------------------------------------------------------------------===//

#ifndef EASYQUANT_WEIGHTS_WEIGHTREPORT_H
#define EASYQUANT_WEIGHTS_WEIGHTREPORT_H

#include "easyquant/Weights/WeightFile.h"

#include "mlir/IR/BuiltinOps.h"

namespace easyquant::equant {

/// {kind, name, stored_types, xxh3_128}. Reads the whole source, for its checksum. Errors: IO.
Result<mlir::DictionaryAttr> describeSource(mlir::MLIRContext *context,
                                            const formats::ModelSource &source);

/// An entry for every site of the target's module in its order, fused ones under their own names.
/// The module reads its weights from the written tensors.
mlir::ArrayAttr describeSites(const TargetWeights &target);

/// A scheme of weights or of activations in the words of the manifest; unit, its null, for float.
mlir::Attribute describeScheme(mlir::MLIRContext *context, SchemeAttr scheme, bool isWeight);

} // namespace easyquant::equant

#endif // EASYQUANT_WEIGHTS_WEIGHTREPORT_H
