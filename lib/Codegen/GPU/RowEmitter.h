//===- RowEmitter.h - The body of a row-wise operation ----------*- C++ -*-===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef EASYQUANT_LIB_CODEGEN_GPU_ROWEMITTER_H
#define EASYQUANT_LIB_CODEGEN_GPU_ROWEMITTER_H

#include "KernelBuilder.h"

namespace easyquant::gpu {

/// What a kernel takes that makes codes of rows.
Parameters &addCodes(Parameters &parameters, const RowSpec &spec);

/// Emits the body of one row.
class RowEmitter {
public:
  /// `threads` of a row; 0: a kernel's own.
  RowEmitter(KernelBuilder &b, const RowSpec &spec, const KernelArguments &arguments,
             int64_t threads = 0)
      : b(b), spec(spec), arguments(arguments), shape(rowShape(spec, threads)),
        groups(groupCount(spec.columns, spec.groupSize)),
        quantization(spec.effectiveQuantization()), isKernel(threads == 0) {}

  /// The rows of a kernel's block.
  void emit();
  /// A row of x that blocks of the kernel itself have made, by all threads of one. `memory` of the
  /// block, sharedBytes(), nobody else uses meanwhile.
  void emitMadeRow(mlir::Value madeRow, mlir::Value memory);
  static int64_t sharedBytes(const RowSpec &spec, const RowShape &shape);

private:
  using Values = KernelBuilder::Values;
  static constexpr int64_t kWarp = 32;            ///< lanes
  static constexpr int64_t kReductionBytes = 128; ///< a word of each of 32 warps
  /// Most of one kernel: two of a LayerNorm, those of the scale or the extrema, and the sum of the
  /// codes.
  static int64_t reductionsOf(const RowSpec &spec) {
    return spec.sinks || spec.effectiveQuantization() == RowQuantization::Online ? 5 : 4;
  }
  static int64_t reductionBytes(const RowSpec &spec, const RowShape &shape) {
    return shape.threads == kWarp ? 0 : reductionsOf(spec) * kReductionBytes;
  }
  /// Bytes of the sums of a row's groups, if there are several.
  static int64_t groupBytes(const RowSpec &spec);

  /// Elements of the row that a thread has in one vector: W values of f32, 0 beyond the row's end.
  struct Piece {
    mlir::Value column; ///< of the first element
    mlir::Value inside; ///< i1; null: certainly
    Values values;
  };

  Values loadVector(mlir::Value row, mlir::Type element, const Piece &piece);
  Values readRow(llvm::StringRef name, Float type, const Piece &piece);
  /// Reads f32 or i32.
  Values readColumns(llvm::StringRef name, mlir::Type element, const Piece &piece);
  Values readColumns(llvm::StringRef name, const Piece &piece) {
    return readColumns(name, b.f32(), piece);
  }
  /// Elements of the row in the order that is given.
  Values gatherRow(const Piece &piece);
  /// Vector `i` of the thread in a run.
  Piece piece(Int run, int64_t i);
  /// The result of the operation for the elements of a piece.
  Values compute(const Piece &piece);
  Values activation(const Values &x, llvm::function_ref<mlir::Value(mlir::Value)> function);
  mlir::Value geluTanh(mlir::Value x);
  /// body for every piece of the thread, the carried value going from one to the next.
  mlir::Value forPieces(mlir::Value init,
                        llvm::function_ref<mlir::Value(int64_t, const Piece &, mlir::Value)> body);
  /// The values of the operation, rotated: those of a kept piece, which are kept likewise.
  const Values &results(int64_t vector);

  mlir::Value blockSum(mlir::Value value);
  mlir::Value blockMaxUnsigned(mlir::Value value);
  mlir::Value acrossWarps(mlir::Value value, llvm::function_ref<mlir::Value(mlir::Value)> inWarp,
                          mlir::Value neutral);
  /// Sum over the row of term(x), x the input.
  mlir::Value sum(llvm::function_ref<mlir::Value(mlir::Value)> term);
  mlir::Value sumOfSquares();
  mlir::Value reciprocalDeviation(mlir::Value sumOfSquares);
  void emitStatistics();
  void emitRow();
  void emitFloats();
  void emitDynamicCodes();
  /// Codes that are no integers.
  void emitFloatCodes(mlir::Value scale);
  /// The codes of a row whose columns have scales in groups.
  void emitOwnGroups();
  void emitStaticCodes();
  /// The scale that the row's sequence keeps.
  mlir::Value onlineScale();
  /// The largest over the row of term(y), y its values.
  mlir::Value largestOf(llvm::function_ref<mlir::Value(mlir::Value)> term);
  void noteExtrema(mlir::Value scale);
  /// The largest magnitude over the row of term(y), y its values.
  mlir::Value absMaxOf(llvm::function_ref<mlir::Value(mlir::Value)> term);
  /// The largest magnitude of y itself, unless it is given.
  mlir::Value absMaxOfRow();
  /// Stores the code words (whose low byte is the code) of a piece; the sum of the codes.
  mlir::Value storeCodes(const Piece &piece, const Values &codes);
  void emitCodes(llvm::function_ref<mlir::Value(mlir::Value)> codeOf);
  void addToGroup(const Piece &piece, mlir::Value sum);
  void writeGroups();
  /// body in the first thread of the row.
  void once(llvm::function_ref<void()> body) { b.ifThen(b.equal(lane, 0), body); }

  KernelBuilder &b;
  const RowSpec &spec;
  const KernelArguments &arguments;
  const RowShape shape;
  const int64_t groups;
  const RowQuantization quantization;
  const bool isKernel;   ///< nothing of x is written while it runs
  mlir::Value row, lane; ///< of the row: thread 0 .. shape.threads - 1
  mlir::Value ownVector; ///< the thread's first one, of the vectors of the row
  mlir::Value shared, groupSums;
  int64_t reductions = 0;
  mlir::Value mean, deviation;
  mlir::Value absMax;                 ///< of the row, where its extrema are known
  llvm::SmallVector<Piece> kept;      ///< in registers: the row, or a run of it
  llvm::SmallVector<Values> computed; ///< likewise
};

} // namespace easyquant::gpu

#endif // EASYQUANT_LIB_CODEGEN_GPU_ROWEMITTER_H
