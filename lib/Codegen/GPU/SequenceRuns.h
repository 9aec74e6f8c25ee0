//===- SequenceRuns.h - Runs of a sequence in a step as IR ------*- C++ -*-===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// How kernels find the entries of a run in the table of a step (Formats/SequenceRuns.h), by the
// tables `sequences` and `row_places` and the number `rows`.
//
//===----------------------------------------------------------------------===//

#ifndef EASYQUANT_LIB_CODEGEN_GPU_SEQUENCERUNS_H
#define EASYQUANT_LIB_CODEGEN_GPU_SEQUENCERUNS_H

#include "StepTables.h"

#include "easyquant/Formats/SequenceRuns.h"

namespace easyquant::gpu {

/// How many `sequences` there are.
mlir::Value countOfSequences(KernelBuilder &b, const KernelArguments &arguments);
/// Is it behind the first one of a run? i1.
mlir::Value goesOn(KernelBuilder &b, const StepSequence &sequence);
/// Is the state that it leaves to be written? i1.
mlir::Value leavesState(KernelBuilder &b, const StepSequence &sequence);
/// The number of the first entry of the run that has entry `number`, and that behind its last.
mlir::Value firstOfRun(KernelBuilder &b, const KernelArguments &arguments, mlir::Value number);
mlir::Value endOfRun(KernelBuilder &b, const KernelArguments &arguments, mlir::Value number);

} // namespace easyquant::gpu

#endif // EASYQUANT_LIB_CODEGEN_GPU_SEQUENCERUNS_H
