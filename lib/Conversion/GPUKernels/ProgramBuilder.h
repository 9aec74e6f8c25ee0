//===- ProgramBuilder.h - Ops to launches -----------------------*- C++ -*-===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Walks the functions of a model in order and says for every op which kernels compute it, where
// its operands lie and where its result goes: what FunctionEmitter is for CPUs. What an op becomes
// is in a file for each family (RowLaunches.cpp, LinearLaunches.cpp, AttentionLaunches.cpp), where
// values lie in ProgramMemory.cpp.
//
//===----------------------------------------------------------------------===//

#ifndef EASYQUANT_LIB_CONVERSION_GPUKERNELS_PROGRAMBUILDER_H
#define EASYQUANT_LIB_CONVERSION_GPUKERNELS_PROGRAMBUILDER_H

#include "KernelSpecs.h"

#include "easyquant/Conversion/EquantToKernels/BufferPlan.h"
#include "easyquant/Conversion/EquantToKernels/KernelCalls.h"
#include "easyquant/Conversion/GPUKernels/GPUProgram.h"

#include "mlir/Dialect/MLProgram/IR/MLProgram.h"
#include "mlir/IR/SymbolTable.h"
#include "llvm/ADT/StringMap.h"

namespace easyquant {

/// From how many rows on a kernel is taken, and up to how many (0: any number).
struct RowRange {
  int64_t minRows = 1, maxRows = 0;
};

class ProgramBuilder {
public:
  ProgramBuilder(mlir::ModuleOp model, const gpu::Chip &chip, int64_t maxRows,
                 mlir::gpu::GPUModuleOp kernels)
      : model(model), symbols(model), chip(chip), kernels(kernels) {
    program.maxRows = maxRows;
  }

  mlir::FailureOr<GPUProgram> build();

private:
  using Kind = formats::LaunchArgument::Kind;
  struct Argument : formats::LaunchArgument {
    bool isScratch = false; ///< its offset counts from the end of the buffers, known at the end
  };
  /// Where rows of an activation lie.
  struct View {
    Argument begin;
    int64_t stride = 0;    ///< in elements
    bool lastRows = false; ///< there are only those whose logits are asked for
  };
  /// An activation as linears read it: codes and what goes with them, or halves.
  struct Codes {
    int64_t codes, scales, sums, zeros; ///< offsets into the arena
    bool lastRows;
  };
  /// Arguments by the names of parameters.
  using Arguments = llvm::StringMap<Argument>;
  /// The operands of a row operation by the names of its parameters.
  using Operands = llvm::ArrayRef<std::pair<llvm::StringRef, mlir::Value>>;
  mlir::LogicalResult runFunction(mlir::func::FuncOp function, const BufferPlan &plan);
  mlir::LogicalResult emit(mlir::Operation &op);

  mlir::LogicalResult emitGlobal(mlir::ml_program::GlobalLoadConstOp op);
  mlir::LogicalResult emitEmbedding(lm::EmbeddingOp op);
  mlir::LogicalResult emitEmbedding(equant::EmbeddingOp op);
  mlir::LogicalResult emitPositions(lm::PositionEmbeddingOp op);
  mlir::LogicalResult emitHeads(mlir::Operation *op);
  lm::RopeOp keysBehind(lm::RopeOp op) const;
  mlir::LogicalResult emitRowOp(mlir::Operation *op, gpu::RowSpec spec, Operands operands);
  mlir::LogicalResult emitLinear(equant::LinearOp op);
  mlir::LogicalResult emitFloatLinear(mlir::Operation *op);
  mlir::LogicalResult emitAttention(mlir::Operation *op);
  mlir::LogicalResult emitSplit(lm::SplitOp op);
  mlir::LogicalResult emitRows(lm::RowsOp op);
  mlir::LogicalResult emitCall(mlir::func::CallOp op);
  mlir::LogicalResult emitReturn(mlir::func::ReturnOp op);

  /// Memory for a result; of what @forward returns, the logits.
  View destination(mlir::Value value, bool lastRows);
  /// The memory that an op updates: that of its activation, or a copy if others still read it.
  mlir::FailureOr<View> inPlace(mlir::Operation *op);
  mlir::LogicalResult copy(mlir::Operation *op, const View &from, const View &to, int64_t columns);
  /// Offsets for the codes of a value, which some launch writes.
  Codes codesOf(mlir::Value value, const CodesKind &kind, bool lastRows);
  /// The codes of a value, made by a launch of their own if nobody has made them.
  mlir::FailureOr<Codes> quantizedRows(mlir::Operation *reader, mlir::Value value,
                                       const CodesKind &kind);
  /// What makes a row operation write codes.
  void quantize(gpu::RowSpec &spec, mlir::Value value, const CodesKind &kind, const Codes &codes,
                Arguments &arguments);
  bool needsSums(mlir::Value value, const CodesKind &kind) const;
  /// The arguments of a packed weight: of a linear or an embedding.
  template <typename OpT> void addCodes(Arguments &arguments, OpT op) {
    arguments["w"] = constants.lookup(op.getCodes());
    arguments["wscales"] = constants.lookup(op.getScale());
    if (op.getZeroPoint())
      arguments["wzeros"] = constants.lookup(op.getZeroPoint());
  }
  /// Where a linear's result goes, adding the residual stream if the plan says so.
  View linearDestination(mlir::Operation *op, bool lastRows, bool &accumulate);

  /// body(kernel, range, most) for the kernels of a spec, which are for ever more rows: from
  /// `range` the rows for which each is taken, `most` of them in any call.
  template <typename Kernel, typename Body>
  mlir::LogicalResult forRowRanges(const std::vector<Kernel> &choices, Body body) {
    RowRange range;
    for (const Kernel &kernel : choices) {
      bool isLast = &kernel == &choices.back();
      range.maxRows = isLast ? 0 : kernel.maxRows;
      if (failed(body(kernel, range,
                      isLast ? program.maxRows : std::min(program.maxRows, kernel.maxRows))))
        return mlir::failure();
      range.minRows = range.maxRows + 1;
    }
    return mlir::success();
  }
  mlir::LogicalResult launch(mlir::Operation *op, const gpu::Description &kernel,
                             const Arguments &arguments, Phase phase, bool lastRows,
                             RowRange range = {});
  mlir::LogicalResult append(std::vector<formats::Launch> &launches, mlir::Operation *op,
                             const gpu::Description &kernel, const Arguments &arguments,
                             Phase phase, bool lastRows, RowRange range);

  static Argument integer(int64_t value) {
    Argument argument;
    argument.integer = value;
    return argument;
  }
  static Argument place(Kind kind, int64_t offset = 0, int64_t step = 0) {
    return {{kind, offset, step, 0}};
  }
  Argument constant(mlir::Attribute value);
  Argument scratch(int64_t bytes);
  Argument counters(int64_t count);
  static void add(Arguments &arguments, llvm::StringRef name, const View &view) {
    arguments[name] = view.begin;
    arguments[(name + "_stride").str()] = integer(view.stride);
  }

  mlir::ModuleOp model;
  mlir::SymbolTable symbols;
  const gpu::Chip &chip;
  mlir::gpu::GPUModuleOp kernels;
  formats::LaunchList program;
  equant::KVSchemeAttr kvScheme;
  bool rotatesKeys = false;
  static constexpr BufferRules kRules = {16, true};

  mlir::func::FuncOp forward;
  llvm::MapVector<mlir::func::FuncOp, BufferPlan> plans;
  const BufferPlan *plan = nullptr; ///< of the function that is walked
  llvm::DenseSet<mlir::Operation *> called;
  llvm::DenseMap<mlir::Value, View> memory;
  llvm::DenseMap<mlir::Value, Argument> constants; ///< weights
  llvm::DenseMap<mlir::Value, Argument> halves;    ///< those that are there as bf16
  llvm::DenseMap<QuantizedValue, Codes> codes;
  llvm::StringMap<size_t> kernelIndex;
  /// Where launches use scratch memory.
  struct ScratchUse {
    std::vector<formats::Launch> *launches;
    size_t launch, argument;
  };
  std::vector<ScratchUse> scratchUses;
  int64_t buffersEnd = 0, scratchBytes = 0;
};

} // namespace easyquant

#endif // EASYQUANT_LIB_CONVERSION_GPUKERNELS_PROGRAMBUILDER_H
