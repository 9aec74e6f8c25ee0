//===- UnpackedWeights.h - Packed weights in registers ----------*- C++ -*-===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Blocks (Numerics/FragmentPacking.h) as operands of mma: in the order M16N8K32 as signed bytes, in
// the order M16N8K16 as f16 and bf16.
//
// A field of a word becomes a float without a conversion: with the bits of 2^m above it, m the
// number of mantissa bits, and its sign bit flipped, the field at bit p is 2^m + 2^p (c + 2^(b-1)).
// One fma takes it to c - z exactly. f16 has room for a field up to bit 10, bf16 up to bit 7; those
// beyond are shifted down first, one shift for several. Codes of 8 bits are too wide for that in
// bf16: there the low seven bits become 128 + low, and the sign bit is the exponent's last, so that
// 128 or 256 is what to subtract. FP8 and FP4 are f16 and bf16 but for the bias of their exponents:
// their bits are moved into place, and a power of two, with which subnormals come out right, too,
// makes up for the bias.
//
// A table is in registers, as bytes: prmt looks up four codes at a time, which are nibbles of its
// selector.
//
//===----------------------------------------------------------------------===//

#ifndef EASYQUANT_LIB_CODEGEN_GPU_UNPACKEDWEIGHTS_H
#define EASYQUANT_LIB_CODEGEN_GPU_UNPACKEDWEIGHTS_H

#include "KernelBuilder.h"

namespace easyquant::gpu {

/// A table of up to sixteen bytes in registers.
class ByteTable {
public:
  ByteTable() = default;
  /// `words` hold the bytes in order: one to four.
  explicit ByteTable(llvm::ArrayRef<mlir::Value> words) : words(words) {}
  /// Bytes of the entries that the low four nibbles of `indices` name. `upper` is the selector
  /// between the halves of the table: byte j where bit 3 of nibble j is 0, else byte 4 + j.
  mlir::Value lookUp(KernelBuilder &b, mlir::Value indices, mlir::Value upper) const;
  bool hasUpperHalf() const { return words.size() > 2; }

private:
  llvm::SmallVector<mlir::Value> words;
};

/// What operands of both kinds have in common.
class PackedBlocks {
public:
  using Values = KernelBuilder::Values;

  /// Words of a lane in a block.
  int64_t words() const;
  /// The words of lane `lane` (i32) of the block at `pointer`, global or shared; `constant` as for
  /// KernelBuilder::load, and zeros where `valid` (i1, may be null) is false.
  Values load(mlir::Value pointer, mlir::Value lane, bool constant, mlir::Value valid);

protected:
  PackedBlocks(KernelBuilder &b, const WeightCodec &codec) : b(b), codec(codec), bits(codec.bits) {}
  /// The values of the table at `codebook`.
  Values loadTable(mlir::Value codebook);
  struct Selectors {
    std::array<mlir::Value, 2> indices, upper; ///< of the low and the high half of a word
  };
  /// What looks up the eight nibbles of a word.
  Selectors selectorsOf(mlir::Value nibbles, bool hasUpperHalf);

  KernelBuilder &b;
  const WeightCodec codec;
  const int bits;
};

/// Operands of m16n8k32, for linears on int8 activations.
class UnpackedBytes : public PackedBlocks {
public:
  UnpackedBytes(KernelBuilder &b, const WeightCodec &codec) : PackedBlocks(b, codec) {}

  /// Brings the table at `codebook`, if the codec has one, to registers, which all that is built
  /// afterwards may read.
  void prepare(const KernelArguments &arguments);
  /// Operands are 2^shift times what codes stand for.
  int64_t shift() const { return codec.isTable() ? 0 : 8 - bits; }
  /// All words of a block as the B operands of m16n8k32, two registers for each tile of eight rows,
  /// in order.
  llvm::SmallVector<std::array<mlir::Value, 2>> unpack(llvm::ArrayRef<mlir::Value> words);

  /// Ones in the places of the columns from `first` on that are below K, of both halves of a block,
  /// to sum up weights by: the table has no value for padding that is 0.
  std::array<mlir::Value, 2> ones(mlir::Value first, mlir::Value lane, int64_t k);

private:
  std::array<mlir::Value, 2> unpackField(llvm::ArrayRef<mlir::Value> words, int64_t tile);
  std::array<mlir::Value, 2> unpackIndex(llvm::ArrayRef<mlir::Value> words, int64_t tile);
  ByteTable table;
};

/// Operands of m16n8k16, for linears on float activations.
class UnpackedWeights : public PackedBlocks {
public:
  /// A tile of eight rows and 32 columns: the registers r < 4, two for each step of 16 columns.
  using Tile = std::array<mlir::Value, 4>;

  /// bits may be 16; type: f16 or bf16.
  UnpackedWeights(KernelBuilder &b, const WeightCodec &codec, Float type)
      : PackedBlocks(b, codec), type(type) {}

  void prepare(const KernelArguments &arguments);
  /// All tiles of a block, codes less zero points. zeros: for each step of 16 columns one for each
  /// tile, as `zeroPair` made it; may be empty. With minima they are the lowest code.
  llvm::SmallVector<Tile> unpack(mlir::ValueRange words, std::array<mlir::ValueRange, 2> zeros);
  /// A zero point (i32) for unpack.
  mlir::Value zeroPair(mlir::Value zero);
  /// Codes of FP8 in bytes 2 half and the next of a word, as a pair of floats.
  mlir::Value pairOfBytes(mlir::Value word, int64_t half);

private:
  int64_t mantissa() const { return type == Float::F16 ? 10 : 7; }
  /// With the bits of 2^m above it and its sign flipped, what a field at bit `at` is; in both
  /// halves.
  int64_t magic(int64_t at) const;
  /// c - z of such fields.
  mlir::Value fromField(mlir::Value field, int64_t at, mlir::Value zero);
  mlir::Value subtract(mlir::Value a, mlir::Value b);
  Tile unpackTile(mlir::ValueRange words, int64_t tile, llvm::ArrayRef<mlir::Value> zeros);
  Tile unpackPlanes(mlir::ValueRange words, int64_t tile, llvm::ArrayRef<mlir::Value> zeros);
  Tile unpackBytes(mlir::Value first, mlir::Value second, llvm::ArrayRef<mlir::Value> zeros);
  /// A pair of floats of few bits, each in the highest bits of its half.
  mlir::Value fromFloat(mlir::Value top);
  Tile unpackFloats(mlir::ValueRange words, int64_t tile);
  Tile unpackIndices(mlir::ValueRange words, int64_t tile);

  Float type;
  ByteTable low, high; ///< bytes of the values of a table
};

} // namespace easyquant::gpu

#endif // EASYQUANT_LIB_CODEGEN_GPU_UNPACKEDWEIGHTS_H
