//===- KernelBuilder.h - Shorthand for building GPU kernels -----*- C++ -*-===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// GPU kernels compute addresses in 32 bits within a row and in 64 bits between rows, and move
// vectors of up to 16 bytes. KernelBuilder folds constants on the way and takes plain integers
// where an i32 is meant. Memory is named by pointers, as PTX names it: `global` is !llvm.ptr<1>,
// `shared` !llvm.ptr<3>.
//
//===----------------------------------------------------------------------===//

#ifndef EASYQUANT_LIB_CODEGEN_GPU_KERNELBUILDER_H
#define EASYQUANT_LIB_CODEGEN_GPU_KERNELBUILDER_H

#include "../ArithmeticBuilder.h"

#include "easyquant/Codegen/GPU/Kernels.h"

#include "mlir/Dialect/GPU/IR/GPUDialect.h"

namespace easyquant::gpu {

/// An i32 operand.
using Int = ValueOrConstant;

class KernelBuilder : public ArithmeticBuilder {
public:
  using ArithmeticBuilder::ArithmeticBuilder;

  //===- Types --------------------------------------------------------------===//
  using ArithmeticBuilder::i32;
  mlir::Type type(Float element);

  //===- Integers (i32) -----------------------------------------------------===//
  mlir::Value i32(Int i);
  mlir::Value min(Int a, Int b); ///< signed
  mlir::Value max(Int a, Int b); ///< signed
  mlir::Value andi(Int a, Int b);
  mlir::Value ori(Int a, Int b);
  mlir::Value xori(Int a, Int b);
  mlir::Value shl(Int a, Int bits);
  mlir::Value shr(Int a, Int bits);           ///< logical
  mlir::Value shrArithmetic(Int a, Int bits); ///< keeps the sign
  mlir::Value turnRight(Int a, Int bits);     ///< bits that leave come in on the left
  /// (a & mask) ^ b in one instruction; left to itself, ptxas takes two when b is a constant too.
  mlir::Value maskXor(mlir::Value a, int64_t mask, Int b);
  mlir::Value less(Int a, Int b); ///< signed, i1
  /// i64: a * b of two i32, signed.
  mlir::Value mulWide(Int a, Int b);

  //===- Floats, scalars and vectors ----------------------------------------===//
  mlir::Value maxf(mlir::Value a, mlir::Value b); ///< a if a > b, else b
  mlir::Value minf(mlir::Value a, mlir::Value b);
  mlir::Value fma(mlir::Value a, mlir::Value b, mlir::Value c); ///< rounded once
  mlir::Value magnitude(mlir::Value x);                         ///< |x|, f32
  mlir::Value toF32(mlir::Value x);                             ///< of any float
  mlir::Value fromF32(mlir::Value x, Float type);               ///< to nearest even
  mlir::Value bitcast(mlir::Value value, mlir::Type type);
  mlir::Value extract(mlir::Value vector, int64_t lane);
  Values elements(mlir::Value vector);        ///< all of them, or the scalar
  mlir::Value join(mlir::ValueRange scalars); ///< a vector of them
  //===- Pairs of f16 or bf16 in an i32 -------------------------------------===//
  mlir::Value pair(Float type, double value); ///< the constant, twice
  mlir::Value pair(mlir::Value scalar);       ///< a scalar f16 or bf16, twice
  mlir::Value pairFma(Float type, mlir::Value a, mlir::Value b, mlir::Value c);

  /// Approximations of the machine: ex2.approx (2 ulp), rcp.approx (1 ulp), rsqrt.approx (2 ulp).
  mlir::Value exp2Approximate(mlir::Value x);
  mlir::Value reciprocalApproximate(mlir::Value x);
  mlir::Value reciprocalRootApproximate(mlir::Value x);

  //===- Memory -------------------------------------------------------------===//
  /// The pointer `count` elements of `element` further on; count is i32 or i64.
  mlir::Value advance(mlir::Value pointer, Int count, mlir::Type element);
  /// Row `row` of a matrix: pointer + row * stride elements, in 64 bits.
  mlir::Value rowOf(mlir::Value pointer, mlir::Value row, Int stride, mlir::Type element);
  /// A scalar, or a vector when the type is one; `constant`: nobody writes it during the kernel.
  mlir::Value load(mlir::Value pointer, mlir::Type type, bool constant = false);
  void store(mlir::Value value, mlir::Value pointer);
  /// `bytes` of static shared memory of the kernel that is built.
  mlir::Value sharedMemory(int64_t bytes);
  /// Dynamic shared memory, what the launch gives.
  mlir::Value dynamicSharedMemory();
  /// 16 bytes from global to shared memory, asynchronously and past the first-level cache. Where
  /// `valid` (i1, may be null) is false, zeros; the source is not read then.
  void copyAsync16(mlir::Value shared, mlir::Value global, mlir::Value valid);
  /// Likewise the first `bytes` of 16 (i32, 0 to 16), zeros behind them.
  void copyAsync(mlir::Value shared, mlir::Value global, mlir::Value bytes);
  void commitCopies();
  /// Waits until at most `pending` of this thread's committed groups are under way.
  void waitForCopies(int64_t pending);

  //===- Threads ------------------------------------------------------------===//
  mlir::Value thread();                 ///< of the block, below the block size
  mlir::Value block(int64_t dimension); ///< 0 .. 2
  mlir::Value warp();                   ///< of the block, known to be the same in all lanes
  void barrier();                       ///< of the block
  void warpBarrier();                   ///< orders the shared memory accesses of a warp's lanes
  mlir::Value shuffleXor(mlir::Value value, int64_t mask); ///< f32 or i32
  mlir::Value warpSum(mlir::Value value);                  ///< f32 by halving; i32 by redux
  mlir::Value warpMaxUnsigned(mlir::Value value);          ///< i32
  /// shared[...] += value, i32, in no order.
  void atomicAddShared(mlir::Value value, mlir::Value pointer);

  /// Orders this thread's accesses to global memory for all threads of the device.
  void fence();
  /// Runs `body` in the last of `most` + 1 blocks that come here, which then sees what all of them
  /// wrote before, and leaves the counter, an i32 of global memory, at 0 as it was. The answer goes
  /// through four bytes of shared memory.
  void ifLastBlock(Int most, mlir::Value counter, mlir::Value shared,
                   llvm::function_ref<void()> body);

  //===- Tensor cores -------------------------------------------------------===//
  /// ldmatrix x4: each lane names 16 bytes of a row; four registers. Transposed: of 8 x 8 elements
  /// of 16 bits.
  Values loadMatrix4(mlir::Value shared, bool transposed = false);
  /// c + a w by m16n8k32 on signed bytes: registers 4 + 4 x 2, of i32.
  Values multiplyBytes(mlir::ValueRange a, mlir::ValueRange w, mlir::ValueRange c);
  /// c + a w by m16n8k32 on f8E4M3FN: registers 4 + 4 x 2; c of f32.
  Values multiplyFP8(mlir::ValueRange a, mlir::ValueRange w, mlir::ValueRange c);
  /// c + a w by m16n8k64 on f4E2M1FN, each 16 columns times a scale of f8E4M3FN of either side:
  /// registers 4 + 4 x 2; c of f32. Scales are four a word, those of row i of a in lane
  /// 4 (i mod 8) + i / 8 + 2 t, of column j of w in lane 4 j + t, with the t of each.
  Values multiplyBlocks(mlir::ValueRange a, mlir::ValueRange w, mlir::ValueRange c,
                        mlir::Value aScales, int64_t aThread, mlir::Value wScales, int64_t wThread);
  /// c + a w by m16n8k16 on f16 or bf16, pairs in i32; c of f32.
  Values multiplyFloats(Float type, mlir::ValueRange a, mlir::ValueRange w, mlir::ValueRange c);

  //===- Integers of bytes --------------------------------------------------===//
  /// c + the sum of the four products of signed bytes of a and b.
  mlir::Value dp4a(mlir::Value a, mlir::Value b, mlir::Value c);
  /// Bytes of (b : a) selected by the low four nibbles of `selector`, prmt.
  mlir::Value permute(mlir::Value a, mlir::Value b, Int selector);
  mlir::Value intrinsic(llvm::StringRef name, mlir::Type type, mlir::ValueRange operands);

  /// The same pointer or i32, of which no pass knows more than that it is made here.
  mlir::Value opaque(mlir::Value value);

  //===- Control flow -------------------------------------------------------===//
  /// body() where the condition holds (null: always), `otherwise` elsewhere.
  mlir::Value guarded(mlir::Value condition, mlir::Value otherwise,
                      llvm::function_ref<mlir::Value()> body);
  /// The same of several values.
  Values guardedAll(mlir::Value condition, mlir::ValueRange otherwise,
                    llvm::function_ref<Values()> body);

private:
  mlir::Value integer(Int i) override { return i32(i); }
  mlir::Value global(llvm::StringRef name, int64_t bytes, bool external);
};

/// The parameters of a kernel one after another, those that are `there`. `rows` ends them.
class Parameters {
public:
  Parameters &reads(llvm::StringRef name, bool there = true) {
    return add(there, {name.str(), Parameter::Pointer});
  }
  /// Weights, and what the host writes before a step.
  Parameters &constants(llvm::StringRef name, bool there = true) {
    return add(there, {name.str(), Parameter::Pointer, /*written=*/false, /*constant=*/true});
  }
  Parameters &writes(llvm::StringRef name, bool there = true) {
    return add(there, {name.str(), Parameter::Pointer, /*written=*/true});
  }
  Parameters &number(llvm::StringRef name, bool there = true) {
    return add(there, {name.str(), Parameter::I32});
  }
  /// A matrix: the pointer, and the distance of its rows.
  Parameters &readsRows(llvm::StringRef name, bool there = true, int64_t alignment = 16) {
    return reads(name, there).isRows(name, there, alignment);
  }
  Parameters &writesRows(llvm::StringRef name, bool there = true, int64_t alignment = 16) {
    return writes(name, there).isRows(name, there, alignment);
  }
  std::vector<Parameter> rows() { return number("rows").list; }

  std::vector<Parameter> list;

private:
  Parameters &isRows(llvm::StringRef name, bool there, int64_t alignment) {
    if (there)
      list.back().alignment = alignment;
    return number((name + "_stride").str(), there);
  }
  Parameters &add(bool there, Parameter parameter) {
    if (there)
      list.push_back(std::move(parameter));
    return *this;
  }
};

using BuildKernel = llvm::function_ref<void(KernelBuilder &, const KernelArguments &)>;

/// Makes the gpu.func of that name with the description's parameters and block size, whose body
/// `build` fills up to the return, unless the module has it. Returns the description.
///
/// On chips that can, a kernel begins while the one launched before it still runs, and waits for
/// its end before it reads anything but constants (lib/Emit/OrderLaunches.h). `early` is what it
/// does before: it reads constants alone, and writes nothing.
Description getOrEmitKernel(mlir::gpu::GPUModuleOp module, const Description &description,
                            BuildKernel build, BuildKernel early = nullptr);

} // namespace easyquant::gpu

#endif // EASYQUANT_LIB_CODEGEN_GPU_KERNELBUILDER_H
