//===- BuildModel.h - Parts of models that are built ---------------*- C++ -*-===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef EASYQUANT_LIB_IMPORT_BUILDMODEL_H
#define EASYQUANT_LIB_IMPORT_BUILDMODEL_H

#include "ModelBuilder.h"

namespace easyquant {

/// A function at the end of the module, with its block, into which `b` moves.
mlir::Block *startFunction(ModelBuilder &b, mlir::ModuleOp module, const std::string &name,
                           llvm::ArrayRef<mlir::Type> inputs, llvm::ArrayRef<mlir::Type> results);
/// The function of a layer, whose result is times `scalar`.
void buildLayer(ModelBuilder &b, int64_t index, double scalar);
/// What the first layer reads of tokens.
mlir::Value buildEmbedding(ModelBuilder &b, mlir::Value tokens);
/// The logits of what the final norm gives.
mlir::Value buildHead(ModelBuilder &b, mlir::Value x, const std::string &site);

/// @draft of a head that the model has. Its layer is there.
void buildDraft(ModelBuilder &b, mlir::ModuleOp module);
/// @draft of the model's assistant, and its layers, whose results are times `scalars`.
void buildAssistant(ModelBuilder &b, mlir::ModuleOp module, llvm::ArrayRef<double> scalars);

} // namespace easyquant

#endif // EASYQUANT_LIB_IMPORT_BUILDMODEL_H
