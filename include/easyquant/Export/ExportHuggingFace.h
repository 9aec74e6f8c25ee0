//===- ExportHuggingFace.h - lm IR to Hugging Face folders --------*- C++ -*-===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef EASYQUANT_EXPORT_EXPORTHUGGINGFACE_H
#define EASYQUANT_EXPORT_EXPORTHUGGINGFACE_H

#include "mlir/IR/BuiltinOps.h"

namespace easyquant {

/// The way back from importModel(): writes the model whose IR `module` is as a Hugging Face folder
/// with F32 weights. The weights come from the module's `lm.source`. Fails with a diagnostic if the
/// module is not as imported (no source, a weight that the source has not or has otherwise, a
/// packed weight), or if the folder cannot be written.
llvm::LogicalResult exportHuggingFace(mlir::ModuleOp module, llvm::StringRef folder);

} // namespace easyquant

#endif // EASYQUANT_EXPORT_EXPORTHUGGINGFACE_H
