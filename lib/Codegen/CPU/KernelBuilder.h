//===- KernelBuilder.h - Shorthand for building kernels ---------*- C++ -*-===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Kernel generators write arithmetic on indices, scalars and vectors of known width. KernelBuilder
// folds constants on the way and takes plain integers where an index is meant.
//
//===----------------------------------------------------------------------===//

#ifndef EASYQUANT_LIB_CODEGEN_CPU_KERNELBUILDER_H
#define EASYQUANT_LIB_CODEGEN_CPU_KERNELBUILDER_H

#include "../ArithmeticBuilder.h"
#include "Describe.h"

#include "easyquant/Codegen/CPU/Team.h"

namespace easyquant::cpu {

/// An index operand.
using Index = ValueOrConstant;

class KernelBuilder : public ArithmeticBuilder {
public:
  KernelBuilder(mlir::Location loc, mlir::MLIRContext *context, const Target &target)
      : ArithmeticBuilder(loc, context), target(target) {}

  const Target target;

  //===- Types --------------------------------------------------------------===//
  mlir::Type i16() { return getI16Type(); }
  mlir::MemRefType memref(llvm::ArrayRef<int64_t> shape, mlir::Type element) {
    return mlir::MemRefType::get(shape, element);
  }

  //===- Constants and indices ----------------------------------------------===//
  mlir::Value index(Index i);
  using ArithmeticBuilder::constant;
  mlir::Value constant(mlir::Type type, int64_t value);
  mlir::Value min(Index a, Index b);
  mlir::Value max(Index a, Index b); ///< a, b >= 0
  mlir::Value less(Index a, Index b);
  /// sizes[dim] of a memref.
  mlir::Value size(mlir::Value memref, int64_t dim);

  //===- Memory -------------------------------------------------------------===//
  mlir::Value load(mlir::Value memref, llvm::ArrayRef<Index> at);
  void store(mlir::Value value, mlir::Value memref, llvm::ArrayRef<Index> at);
  /// `lanes` consecutive elements, of any alignment. It may run over the end of the innermost
  /// dimension into the next row of a dense memref.
  mlir::Value loadVector(int64_t lanes, mlir::Value memref, llvm::ArrayRef<Index> at);
  void storeVector(mlir::Value vector, mlir::Value memref, llvm::ArrayRef<Index> at);
  /// The first `count` lanes; the others are 0, respectively not written.
  mlir::Value loadFirst(Index count, int64_t lanes, mlir::Value memref, llvm::ArrayRef<Index> at);
  void storeFirst(Index count, mlir::Value vector, mlir::Value memref, llvm::ArrayRef<Index> at);
  /// Lane i of the result is the element that lies offsets[i], a vector of i32, behind `at`.
  mlir::Value gather(mlir::Value memref, llvm::ArrayRef<Index> at, mlir::Value offsets);
  /// A typed view of scratch bytes.
  mlir::Value view(mlir::Value bytes, Index offset, mlir::MemRefType type);
  /// The part [first, first + count) of the first dimension; null of null.
  mlir::Value part(mlir::Value memref, Index first, Index count);
  /// The dimensions after `keep` leading ones made one.
  mlir::Value collapse(mlir::Value memref, int64_t keep);

  //===- Arithmetic on scalars and vectors ----------------------------------===//
  mlir::Value addi(mlir::Value a, mlir::Value b);
  mlir::Value subi(mlir::Value a, mlir::Value b);
  mlir::Value muli(mlir::Value a, mlir::Value b);
  mlir::Value andi(mlir::Value a, int64_t mask);
  mlir::Value xori(mlir::Value a, int64_t mask);
  mlir::Value ori(mlir::Value a, mlir::Value b);
  mlir::Value shl(mlir::Value a, int64_t bits);
  mlir::Value shrLogical(mlir::Value a, int64_t bits);
  mlir::Value shrArithmetic(mlir::Value a, int64_t bits);
  mlir::Value fma(mlir::Value a, mlir::Value b, mlir::Value c); ///< a * b + c, rounded once
  mlir::Value signExtend(mlir::Value integers, mlir::Type element);
  mlir::Value zeroExtend(mlir::Value integers, mlir::Type element);
  mlir::Value broadcast(mlir::Value scalar, int64_t lanes);
  mlir::Value bitcast(mlir::Value vector, mlir::VectorType type);
  /// Lane i of the result is lane mask[i] of (a, b).
  mlir::Value shuffle(mlir::Value a, mlir::Value b, llvm::ArrayRef<int64_t> mask);
  /// `count` lanes from `first` on.
  mlir::Value slice(mlir::Value vector, int64_t first, int64_t count);
  /// The lanes of `high` behind those of `low`.
  mlir::Value join(mlir::Value low, mlir::Value high);
  mlir::Value extract(mlir::Value vector, int64_t lane);
  /// Sum of all lanes by halving, the same order for equal widths.
  mlir::Value sumLanes(mlir::Value vector);
  /// 8 vectors of 8 f32, transposed.
  llvm::SmallVector<mlir::Value> transpose8(llvm::ArrayRef<mlir::Value> rows);

  //===- Machine instructions -----------------------------------------------===//
  mlir::Value intrinsic(llvm::StringRef name, mlir::Type type, mlir::ValueRange operands);
  /// i32 lane i of the result: acc[i] + sum of the four u8 * s8 products of bytes 4i .. 4i + 3;
  /// vpdpbusd, or generic arithmetic when the target emulates it. 64-byte vectors.
  mlir::Value dotU8S8(mlir::Value acc, mlir::Value u8, mlir::Value s8);
  /// The same of s8 * s8: sdot of Arm. 32-byte vectors.
  mlir::Value dotS8S8(mlir::Value acc, mlir::Value a, mlir::Value c);
  /// i32 lane i of the result: the sum of the two i16 products in lane i of a and c; vpmaddwd, of 8
  /// or 16 lanes.
  mlir::Value dotPairs(mlir::Value a, mlir::Value c);
  /// Lane i of the result is table[index[i] mod 4, 8 or 16], the size of the table, a vector of
  /// f32; index is a vector of i32 of 8 or 16 lanes. vpermilps or vpermps, of which AVX2 needs two
  /// for 16; tbl.
  mlir::Value lookup(mlir::Value table, mlir::Value index);
  /// Byte i of the result is table[index[i]], of a vector of 16 bytes; index is a vector of 32 or
  /// 64 bytes, each below 16. vpshufb; tbl.
  mlir::Value lookupBytes(mlir::Value table, mlir::Value index);
  /// A constant vector of f32.
  mlir::Value floats(llvm::ArrayRef<float> values);
  /// Fetch the cache line of an element into all levels, or into all but the first.
  void prefetch(mlir::Value memref, llvm::ArrayRef<Index> at, bool first = true);

  //===- Control flow -------------------------------------------------------===//
  void ifThenElse(mlir::Value condition, llvm::function_ref<void()> thenBody,
                  llvm::function_ref<void()> elseBody);
  /// One body for each value first .. last of `selector`; nothing happens for others.
  void switchOn(mlir::Value selector, int64_t first, int64_t last,
                llvm::function_ref<void(int64_t)> body);

private:
  mlir::Value integer(Index i) override { return index(i); }
};

/// The share [begin, end) of `count` equal pieces of work that a thread of the team has. If there
/// are fewer pieces than threads, the last threads have one each.
std::pair<mlir::Value, mlir::Value> shareOf(KernelBuilder &b, Index count, const Team &team);

/// The private function of that name, or a new one of such arguments whose body `build` fills up to
/// the return.
mlir::func::FuncOp
getOrEmitFunction(mlir::ModuleOp module, llvm::StringRef name, const Target &target,
                  mlir::TypeRange arguments,
                  llvm::function_ref<void(KernelBuilder &, mlir::ValueRange)> build);

/// The same, of a kernel, whose parameters the team follows: `build` is what one thread does.
mlir::func::FuncOp getOrEmitKernel(
    mlir::ModuleOp module, const Description &kernel, const Target &target,
    llvm::function_ref<void(KernelBuilder &, const KernelArguments &, const Team &)> build);

} // namespace easyquant::cpu

#endif // EASYQUANT_LIB_CODEGEN_CPU_KERNELBUILDER_H
