//===- StoredBytes.h - What weights take in an artifact ---------*- C++ -*-===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Known from plans alone, before anything is quantized.
//
//===----------------------------------------------------------------------===//

#ifndef EASYQUANT_DIALECT_EQUANT_ANALYSIS_STOREDBYTES_H
#define EASYQUANT_DIALECT_EQUANT_ANALYSIS_STOREDBYTES_H

#include "easyquant/Dialect/Equant/IR/Equant.h"
#include "easyquant/Target/Target.h"

#include "mlir/Dialect/MLProgram/IR/MLProgram.h"
#include "mlir/IR/BuiltinOps.h"

namespace easyquant::equant {

/// Bytes of a weight that an op reads, as materialization will store it for the kernels of a
/// family: packed codes, scales and zero points, with the sums of its codes where the zero points
/// of inputs must be corrected. A null scheme is float.
int64_t storedBytes(mlir::Operation *reader, mlir::RankedTensorType weight, SchemeAttr scheme,
                    SchemeAttr input, const targets::Family &family);

/// What holds a model's constants.
enum class Holder {
  Artifact,   ///< rotation tables are among them, untied embeddings have the type of their file
  Graph,      ///< rotation tables are among them
  Checkpoint, ///< neither
};

/// Bytes of all constants that the functions of a model load and that are no weight of a
/// quantizable op.
int64_t otherBytes(mlir::ModuleOp module, Holder holder = Holder::Artifact);

/// Bytes of an element of a float constant in an artifact.
int64_t floatBytes(mlir::ml_program::GlobalLoadConstOp load);

/// Bytes of the header of the weights file, at most: an entry for each tensor, with its name.
/// Linears that are fused have fewer and longer ones.
int64_t headerBytes(mlir::ModuleOp module);

} // namespace easyquant::equant

#endif // EASYQUANT_DIALECT_EQUANT_ANALYSIS_STOREDBYTES_H
