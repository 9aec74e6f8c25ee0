//===- FunctionEmitter.h - One function as kernel calls --------*- C++ -* -===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef EASYQUANT_LIB_CONVERSION_EQUANTTOKERNELS_FUNCTIONEMITTER_H
#define EASYQUANT_LIB_CONVERSION_EQUANTTOKERNELS_FUNCTIONEMITTER_H

#include "Dependences.h"
#include "Marks.h"

#include "easyquant/Codegen/CPU/Kernels.h"
#include "easyquant/Codegen/CPU/RowGradients.h"
#include "easyquant/Codegen/CPU/Team.h"
#include "easyquant/Conversion/EquantToKernels/BufferPlan.h"
#include "easyquant/Dialect/Equant/IR/Equant.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/MLProgram/IR/MLProgram.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/IR/ImplicitLocOpBuilder.h"
#include "mlir/IR/SymbolTable.h"

namespace easyquant {

/// What is the same in the whole program.
struct Program {
  explicit Program(mlir::ModuleOp module) : module(module), symbols(module) {}

  mlir::ModuleOp module;
  mlir::SymbolTable symbols;
  cpu::Target target;
  int64_t maxRows = 0;
  bool halfCache = false;
  cpu::CacheBytes layerCache, cacheBytes; ///< of one layer, of all
  equant::KVSchemeAttr kvScheme;          ///< null: the cache is float
  bool rotatesKeys = false;               ///< as it reads them
  int64_t arenaBytesPerThread = 0;
  int64_t arenaBytes = 0; ///< where the scratch of the threads begins
  /// The calls of the program's caller in the order of the module (HostCalls.h); where there are
  /// any, every function takes a function to call and its context behind the team.
  llvm::DenseMap<mlir::Operation *, int64_t> hostCalls;
  /// Of a program that is called with a step: every function takes a marking function, null in all
  /// threads but the first, and its context behind those, and returns whether the team was stopped.
  std::optional<Marks> marks;

  mlir::MemRefType bytes() const {
    return memref({mlir::ShapedType::kDynamic}, mlir::IntegerType::get(context(), 8));
  }
  mlir::MLIRContext *context() const { return symbols.getOp()->getContext(); }
  static mlir::MemRefType memref(mlir::ArrayRef<int64_t> shape, mlir::Type element) {
    return mlir::MemRefType::get(shape, element);
  }
};

/// The kernel of an lm.attention or equant.attention.
cpu::AttentionSpec attentionSpec(mlir::Operation *attention, bool halfCache);

/// Emits one function of the model as calls of kernels.
class FunctionEmitter {
public:
  FunctionEmitter(Program &program, const BufferPlan &plan, mlir::func::FuncOp source,
                  mlir::func::FuncOp result)
      : program(program), plan(plan), source(source), result(result),
        b(source.getLoc(), program.context()) {}

  mlir::LogicalResult run();

private:
  mlir::LogicalResult emit(mlir::Operation &op);

  // The fixed arguments: weights, arena, cache first, the team after the model's own.
  mlir::Value weights() { return result.getArgument(0); }
  mlir::Value arena() { return result.getArgument(1); }
  mlir::Value cache() { return result.getArgument(2); }

  mlir::Value constant(int64_t value) { return mlir::arith::ConstantIndexOp::create(b, value); }
  mlir::Value zero() { return constant(0); }
  mlir::Value rowsOf(mlir::Value matrix) { return mlir::memref::DimOp::create(b, matrix, 0); }

  /// A typed view of a byte buffer.
  mlir::Value view(mlir::Value buffer, mlir::Value offset, mlir::ArrayRef<int64_t> shape,
                   mlir::Type element, mlir::ValueRange sizes) {
    return mlir::memref::ViewOp::create(b, Program::memref(shape, element), buffer, offset, sizes);
  }
  /// The scratch of all threads; its size is known when the whole program is emitted.
  mlir::Value scratch(int64_t bytesPerThread);
  /// memory[value], which other kernels may touch, too.
  mlir::Value remember(mlir::Value value, mlir::Value place, BufferRange range);
  /// How a kernel touches memory: nothing if that is no buffer, such as weights.
  using Accesses = mlir::SmallVector<Access>;
  void access(Accesses &accesses, mlir::Value place, bool isWrite, bool isOwnShare);

  /// The memory that a result is to be written to, `rows` rows of it.
  mlir::Value destination(mlir::Value value, mlir::Value rows);
  /// The float memory of a value that was emitted before.
  mlir::Value rows(mlir::Value value) { return memory.lookup(value); }
  /// Codes, scales, sums and, if there are any, zero points of an activation; quantizes it if
  /// nobody has yet.
  mlir::SmallVector<mlir::Value, 4> quantizedRows(mlir::Value value, const CodesKind &kind);
  mlir::SmallVector<mlir::Value, 4> quantizedDestination(mlir::Value value, const CodesKind &kind,
                                                         mlir::Value rows);
  /// Lets a row operation write codes: its arguments for them, before those of its output.
  void quantize(cpu::RowSpec &spec, const CodesKind &kind,
                mlir::SmallVectorImpl<mlir::Value> &arguments);

  mlir::Operation *call(mlir::func::FuncOp callee, mlir::ArrayRef<mlir::Value> arguments);
  /// The threads meet, and the function ends if the team is stopped.
  void meet();
  void returnIf(mlir::Value stops);
  /// A kernel for the op that is being emitted, which counts as `phase`; the team is added to its
  /// arguments. `accesses` are what it does before its own first barrier, `later` after its last
  /// one, if it has any.
  void callKernel(Phase phase, mlir::func::FuncOp kernel, mlir::ArrayRef<mlir::Value> arguments,
                  const Accesses &accesses, const Accesses *later = nullptr);
  /// A kernel over rows; `outputs` are those of its arguments that it writes.
  void callRowKernel(Phase phase, mlir::func::FuncOp kernel, mlir::ArrayRef<mlir::Value> arguments,
                     mlir::ArrayRef<mlir::Value> outputs);
  void emitFakeQuantize(equant::FakeQuantizeOp op);
  void emitRowOp(cpu::RowSpec spec, mlir::Value output, mlir::ArrayRef<mlir::Value> inputs);
  void copy(mlir::Value from, mlir::Value to);
  mlir::Value columnsOf(mlir::Value matrix, int64_t first, int64_t count);
  template <typename OpTy> mlir::Value inPlace(OpTy op);

  mlir::LogicalResult emitGlobal(mlir::ml_program::GlobalLoadConstOp op);
  void emitLinear(mlir::Operation &op, cpu::LinearSpec spec, mlir::ArrayRef<mlir::Value> weights,
                  mlir::Value bias, std::optional<CodesKind> kind = std::nullopt);
  template <typename RopeLike> void emitRope(RopeLike op, bool inverse);
  mlir::LogicalResult emitAttention(lm::AttentionOp op);
  mlir::LogicalResult emitAttention(equant::AttentionOp op);
  /// How many tokens the cache has room for, and where a layer's part of it begins.
  std::pair<mlir::Value, mlir::Value> layerCache(int64_t layer);
  void emitCall(mlir::func::CallOp op);
  void emitReturn(mlir::func::ReturnOp op);

  // Gradients, and what the program's caller does (GradientCalls.cpp).
  mlir::LogicalResult emitGradient(mlir::Operation &op);
  mlir::LogicalResult emitHostCall(mlir::Operation &op);
  mlir::SmallVector<mlir::Value, 4> hostOperand(mlir::Value operand);
  void emitRowGradient(mlir::Operation &op, cpu::RowGradientSpec spec);
  void emitConcat(lm::ConcatOp op);

  Program &program;
  const BufferPlan &plan;
  mlir::func::FuncOp source, result;
  mlir::ImplicitLocOpBuilder b;
  mlir::Operation *emitted = nullptr; ///< the op of `source` that is being emitted
  cpu::Team team;
  Dependences dependences;
  mlir::Block *stopped = nullptr;                   ///< returns from a function of a stopped step
  llvm::DenseMap<mlir::Value, BufferRange> buffers; ///< of memrefs
  llvm::DenseMap<mlir::Value, const void *> rowsOfValue; ///< BufferRange::rows of activations
  mlir::SmallVector<mlir::Value, 2> host;    ///< function and context, if the program takes them
  mlir::SmallVector<mlir::Value, 2> marker;  ///< the same of its marks
  mlir::SmallVector<mlir::Value, 1> outputs; ///< of the entry, one a result
  mlir::DenseMap<mlir::Value, mlir::Value> memory;
  mlir::DenseMap<QuantizedValue, mlir::SmallVector<mlir::Value, 4>> codes;
};

} // namespace easyquant

#endif // EASYQUANT_LIB_CONVERSION_EQUANTTOKERNELS_FUNCTIONEMITTER_H
