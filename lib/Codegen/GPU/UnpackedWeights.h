//===- UnpackedWeights.h - Packed weights in registers ----------*- C++ -*-===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Blocks (Numerics/FragmentPacking.h) as operands of mma: in the order Bytes as signed bytes, in
// the order M16N8K16 as f16 and bf16.
//
// A field of a word becomes a float without a conversion: with the bits of 2^m above it, m the
// number of mantissa bits, and its sign bit flipped, the field at bit p is 2^m + 2^p (c + 2^(b-1)).
// One fma takes it to c - z exactly. f16 has room for a field up to bit 10, bf16 up to bit 7; those
// beyond are shifted down first, one shift for several. Codes of 8 bits are too wide for that in
// bf16: there the low seven bits become 128 + low, and the sign bit is the exponent's last, so that
// 128 or 256 is what to subtract.
//
//===----------------------------------------------------------------------===//

#ifndef EASYQUANT_LIB_CODEGEN_GPU_UNPACKEDWEIGHTS_H
#define EASYQUANT_LIB_CODEGEN_GPU_UNPACKEDWEIGHTS_H

#include "KernelBuilder.h"

namespace easyquant::gpu {

/// A lane's four words of a block in the order Bytes as the B operands of m16n8k32, two registers
/// for each tile of eight rows, in order: 2^(8 - bits) times the codes.
llvm::SmallVector<std::array<mlir::Value, 2>> unpackBytes(KernelBuilder &b, int bits,
                                                          llvm::ArrayRef<mlir::Value> words);

/// Operands of m16n8k16, for linears on float activations.
class UnpackedWeights {
public:
  using Values = KernelBuilder::Values;
  /// A tile of eight rows and 32 columns: the registers r < 4, two for each step of 16 columns.
  using Tile = std::array<mlir::Value, 4>;

  /// bits: 2, 3, 4, 8 or 16; type: f16 or bf16.
  UnpackedWeights(KernelBuilder &b, int bits, Float type) : b(b), bits(bits), type(type) {}

  /// Words of a lane in a block.
  int64_t words() const { return bits == 3 ? 6 : 4; }
  /// The words of lane `lane` (i32) of the block at `pointer`, global or shared; `constant` as for
  /// KernelBuilder::load, and zeros where `valid` (i1, may be null) is false.
  Values load(mlir::Value pointer, mlir::Value lane, bool constant, mlir::Value valid);
  /// All tiles of a block, codes less zero points. zeros: one for each tile, as `zeroPair` made it;
  /// may be empty.
  llvm::SmallVector<Tile> unpack(mlir::ValueRange words, mlir::ValueRange zeros);
  /// A zero point (i32) for unpack.
  mlir::Value zeroPair(mlir::Value zero);

private:
  int64_t mantissa() const { return type == Float::F16 ? 10 : 7; }
  /// With the bits of 2^m above it and its sign flipped, what a field at bit `at` is; in both
  /// halves.
  int64_t magic(int64_t at) const;
  /// c - z of such fields.
  mlir::Value fromField(mlir::Value field, int64_t at, mlir::Value zero);
  mlir::Value subtract(mlir::Value a, mlir::Value b);
  Tile unpackTile(mlir::ValueRange words, int64_t tile, mlir::Value zero);
  Tile unpackThree(mlir::ValueRange words, int64_t tile, mlir::Value zero);
  Tile unpackBytes(mlir::Value first, mlir::Value second, mlir::Value zero);

  KernelBuilder &b;
  int bits;
  Float type;
};

} // namespace easyquant::gpu

#endif // EASYQUANT_LIB_CODEGEN_GPU_UNPACKEDWEIGHTS_H
