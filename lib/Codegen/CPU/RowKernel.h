//===- RowKernel.h - Kernels that do one token after another ----*- C++ -*-===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The frame of row-wise kernels: rows shared among threads, columns cut into vectors.
//
//===----------------------------------------------------------------------===//

#ifndef EASYQUANT_LIB_CODEGEN_CPU_ROWKERNEL_H
#define EASYQUANT_LIB_CODEGEN_CPU_ROWKERNEL_H

#include "KernelBuilder.h"

namespace easyquant::cpu {

/// A kernel over the rows of its first argument, of which every thread has a share (shareOf);
/// `build` does the rows [begin, end).
template <typename Spec>
mlir::func::FuncOp
getOrEmitRowKernel(mlir::ModuleOp module, const Spec &spec, const Target &target,
                   llvm::function_ref<void(KernelBuilder &, const KernelArguments &,
                                           mlir::Value begin, mlir::Value end)>
                       build) {
  return getOrEmitKernel(module, describe(spec, module.getContext()), target,
                         [&](KernelBuilder &b, const KernelArguments &in, const Team &team) {
                           auto [begin, end] = shareOf(b, b.size(in.first(), 0), team);
                           build(b, in, begin, end);
                         });
}

/// body(column, lanes) over `count` columns from `begin` on: in vectors of `wide` lanes (a multiple
/// of the target's), then of the target's, and one of what is left, never past the end.
void forColumns(KernelBuilder &b, Index begin, int64_t count, int64_t wide,
                llvm::function_ref<void(mlir::Value column, int64_t lanes)> body);

/// Like forColumns, over vectors that are combined: term(column, lanes) gives a vector of `lanes`
/// elements; they are added, or the largest (>= 0) is taken, or the greatest, of any sign. The
/// scalar result has the element type of the terms, f32 or i32.
enum class Combine { Add, Max, Greatest };
mlir::Value reduceColumns(KernelBuilder &b, Index begin, int64_t count, int64_t wide,
                          mlir::Type element, Combine combine,
                          llvm::function_ref<mlir::Value(mlir::Value column, int64_t lanes)> term);

/// The vector with zeros behind it, `lanes` long in all.
mlir::Value padWithZeros(KernelBuilder &b, mlir::Value vector, int64_t lanes);

/// Rotates one row of x in place, by the angles that the table has for `position`.
void emitRotation(KernelBuilder &b, const RopeSpec &spec, mlir::Value x, mlir::Value table,
                  mlir::Value row, mlir::Value position);
/// memref<positions x rotated/2 x 2 x f32>, of (cos, sin).
mlir::Type rotationTable(mlir::Builder &b, int64_t positions, int64_t rotated);
/// What the name of a kernel says where it rotates a part of a head: "_first48".
std::string partOfHead(int64_t rotated, int64_t headDim);

} // namespace easyquant::cpu

#endif // EASYQUANT_LIB_CODEGEN_CPU_ROWKERNEL_H
