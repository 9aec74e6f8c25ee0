//===- TargetModules.h - A module for each target family --------*- C++ -*-===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// From equant-materialize-weights on, the types and places of a model's weights are those of one
// target family. Where there are several, the module holds a module for each, @cpu and @gpu.
//
//===----------------------------------------------------------------------===//

#ifndef EASYQUANT_WEIGHTS_TARGETMODULES_H
#define EASYQUANT_WEIGHTS_TARGETMODULES_H

#include "easyquant/Target/Target.h"

#include "mlir/IR/BuiltinOps.h"

namespace easyquant::equant {

/// Attribute of a module: the name of the family whose weights it reads.
inline constexpr llvm::StringLiteral kTargetAttr = "equant.target";
/// Attribute of a module: the bytes of the data sections that its globals lie in.
inline constexpr llvm::StringLiteral kWeightsBytesAttr = "equant.weights_bytes";
/// Attribute of a global that GPUs read: a float weight of linears lies there as fragments of bf16
/// (easyquant/Numerics/FragmentPacking.h), which an embedding tied to it reads as well. What else
/// reads the global finds it in f32 at its equant.offset.
inline constexpr llvm::StringLiteral kBF16OffsetAttr = "equant.bf16_offset";

/// One family: the module itself. Several: clones of what is in it, in modules of their names.
/// Each has kTargetAttr. In the order of `families`, which differ.
llvm::SmallVector<mlir::ModuleOp> splitTargets(mlir::ModuleOp module,
                                               llvm::ArrayRef<const targets::Family *> families);

/// What a family is compiled from: the module of its name inside of `module`, or else `module`.
mlir::ModuleOp moduleOf(mlir::ModuleOp module, llvm::StringRef family);

} // namespace easyquant::equant

#endif // EASYQUANT_WEIGHTS_TARGETMODULES_H
