//===- Sequences.h - The sequences of a step --------------------*- C++ -*-===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The table of a step's sequences as kernels take it: memref<?xFxi32>, in a row the F fields of an
// eq_sequence (easyquant/Formats/Step.h).
//
//===----------------------------------------------------------------------===//

#ifndef EASYQUANT_LIB_CODEGEN_CPU_SEQUENCES_H
#define EASYQUANT_LIB_CODEGEN_CPU_SEQUENCES_H

#include "KernelBuilder.h"

namespace easyquant::cpu {

/// One of them, its fields as indices.
struct Sequence {
  mlir::Value firstRow, rows, position, held, firstPage, window, slot, nextSlot;

  /// The step's rows [begin, end) that are its own, counted from its first.
  std::pair<mlir::Value, mlir::Value> part(KernelBuilder &b, mlir::Value begin,
                                           mlir::Value end) const;
  /// Its rows of a matrix.
  mlir::Value rowsOf(KernelBuilder &b, mlir::Value matrix) const;
};

mlir::Type sequencesType(mlir::Builder &b);
void forSequences(KernelBuilder &b, mlir::Value sequences,
                  llvm::function_ref<void(const Sequence &)> body);
/// body(row, position) for the step's rows [begin, end).
void forPositions(KernelBuilder &b, mlir::Value sequences, mlir::Value begin, mlir::Value end,
                  llvm::function_ref<void(mlir::Value row, mlir::Value position)> body);

//===----------------------------------------------------------------------===//
// Work on sequences shared among threads
//===----------------------------------------------------------------------===//

/// Few sequences one after the other, all threads working `together` on each; many `inTurn`.
/// `items` is into how many a sequence of one token can be cut.
void shareSequences(KernelBuilder &b, mlir::ModuleOp module, mlir::Value sequences, int64_t items,
                    const Team &team, llvm::function_ref<void(const Sequence &)> together,
                    llvm::function_ref<void()> inTurn);

/// body(sequence, turn), which gives the turn of the next sequence: the thread that gets its first
/// item, so that threads get as many items of all sequences together.
void forSequencesInTurn(KernelBuilder &b, mlir::Value sequences,
                        llvm::function_ref<mlir::Value(const Sequence &, mlir::Value turn)> body);
/// The calling thread's part of the items [0, count), every threads-th one.
void forTurns(KernelBuilder &b, mlir::Value count, mlir::Value turn, const Team &team,
              llvm::function_ref<void(mlir::Value item)> body);
mlir::Value nextTurn(KernelBuilder &b, mlir::Value count, mlir::Value turn, const Team &team);

} // namespace easyquant::cpu

#endif // EASYQUANT_LIB_CODEGEN_CPU_SEQUENCES_H
