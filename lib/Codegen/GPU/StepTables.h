//===- StepTables.h - The tables of a step as IR ----------------*- C++ -*-===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// What kernels read of the tables that the host writes before a step (Formats/GpuStep.h), each an
// i32. A number that nobody uses costs nothing.
//
//===----------------------------------------------------------------------===//

#ifndef EASYQUANT_LIB_CODEGEN_GPU_STEPTABLES_H
#define EASYQUANT_LIB_CODEGEN_GPU_STEPTABLES_H

#include "KernelBuilder.h"

#include "easyquant/Formats/GpuStep.h"

namespace easyquant::gpu {

/// A row of `row_places`: whose a row of the step is, and the position of its token there.
struct PlaceOfRow {
  PlaceOfRow(KernelBuilder &b, const KernelArguments &arguments, mlir::Value row);
  mlir::Value sequence, position;
};

/// A row of `sequences` (eq_sequence).
struct StepSequence {
  StepSequence(KernelBuilder &b, const KernelArguments &arguments, mlir::Value number);
  mlir::Value firstRow, rows, position, held, firstPage, window, slot, nextSlot;
};

/// How many `pieces` there are, and one of them (formats::Piece).
mlir::Value countOfPieces(KernelBuilder &b, const KernelArguments &arguments);
struct StepPiece {
  StepPiece(KernelBuilder &b, const KernelArguments &arguments, mlir::Value number);
  mlir::Value sequence, row, rows, begin, end, partials, part, parts;
};

} // namespace easyquant::gpu

#endif // EASYQUANT_LIB_CODEGEN_GPU_STEPTABLES_H
