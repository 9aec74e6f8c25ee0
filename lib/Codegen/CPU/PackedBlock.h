//===- PackedBlock.h - Packed weights in registers --------------*- C++ -*-===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef EASYQUANT_LIB_CODEGEN_CPU_PACKEDBLOCK_H
#define EASYQUANT_LIB_CODEGEN_CPU_PACKEDBLOCK_H

#include "KernelBuilder.h"

namespace easyquant::cpu {

/// Eight columns of a packed panel, which are contiguous bytes (Numerics/Packing.h), taken apart in
/// registers: a step of four columns a time, `lanes` rows a vector.
class PackedBlock {
public:
  /// panels: NP x bytes of a panel; the block begins at byte `offset` of `panel`. codebook: a
  /// vector of the values of a table, f32 for code() and 16 of i8 for bytes(), or null where codes
  /// are no indices of one.
  PackedBlock(KernelBuilder &b, WeightFormat format, CodeFormat codes, mlir::Value codebook,
              mlir::Value panels, mlir::Value panel, mlir::Value offset, int64_t lanes)
      : b(b), format(format), codes(codes), codebook(codebook), panels(panels), panel(panel),
        offset(offset), lanes(lanes) {}

  /// Bytes of eight columns.
  static int64_t bytesOf(WeightFormat format) { return kPanelRows * bitsOf(format); }
  int64_t vectors() const { return kPanelRows / lanes; }

  /// Emits the loads of step `half`, 0 or 1; only int8 has two, for the others the first serves
  /// both. To be called before what follows.
  void load(int64_t half);
  /// Vector v of the step: code + 2^(b-1) of its four columns in the four bytes of each row, or the
  /// bytes of a table.
  mlir::Value bytes(int64_t half, int64_t v);

  /// Emits what code() shares between the columns of step `half`, its loads among that.
  void loadCodes(int64_t half);
  /// Vector v of column 0 .. 7 as f32: what the codes stand for, or with `zeros` (a vector each)
  /// less them.
  mlir::Value code(int64_t column, int64_t v, llvm::ArrayRef<mlir::Value> zeros);

private:
  /// `count` vectors of `width` bytes from byte `first` of the block on.
  llvm::SmallVector<mlir::Value> loadBytes(int64_t first, int64_t count, int64_t width);
  /// The bytes, shifted up (down if negative) as words: what crosses from a neighbour lies beside
  /// the bits of use.
  mlir::Value shiftBytes(mlir::Value bytes, int64_t amount);
  mlir::Value words(mlir::Value bytes) { return b.bitcast(bytes, b.vec(lanes, b.i32())); }
  /// The vector of a plane of two bits that holds rows v * lanes .., and the bit of its field.
  static mlir::Value pairs(llvm::ArrayRef<mlir::Value> plane, int64_t v) {
    return plane[v % plane.size()];
  }
  int64_t pairBit(int64_t half, int64_t v) { return 4 * (2 * v / vectors()) + 2 * half; }
  bool isInteger() const { return codes == CodeFormat::Integer; }
  /// The upper plane's bits of a code, or the lower one's, from bit `to` of each byte on; what lies
  /// around them is not cleared.
  mlir::Value upperBits(int64_t half, int64_t v, int64_t to);
  mlir::Value lowBits(int64_t half, int64_t v, int64_t to);
  /// `fields` of codes of two planes.
  void joinFields(int64_t half);
  /// code() of an integer of at least four bits.
  mlir::Value integer(int64_t column, int64_t v, llvm::ArrayRef<mlir::Value> zeros);
  /// bytes() before a table.
  mlir::Value fieldBytes(int64_t half, int64_t v);
  /// Bits of a code in the plane behind the upper one.
  int64_t lowWidth() const;

  KernelBuilder &b;
  WeightFormat format;
  CodeFormat codes;
  mlir::Value codebook, panels, panel, offset;
  int64_t lanes;
  llvm::SmallVector<mlir::Value> packed;   ///< as loaded, or the upper plane: four bits, or two
  llvm::SmallVector<mlir::Value> lowPairs; ///< of six bits the lower two
  mlir::Value lowPlane;                    ///< of three and five bits the lowest: 32 bytes
  llvm::SmallVector<mlir::Value> fields;   ///< what code() takes from, a vector of words each
  int64_t fieldBit = 0;                    ///< of each byte of them, where the code begins
};

/// What fields of `bits` bits stand for. codebook: the values of a table, a vector, else null.
mlir::Value valueOf(KernelBuilder &b, CodeFormat codes, int64_t bits, mlir::Value codebook,
                    mlir::Value fields);

} // namespace easyquant::cpu

#endif // EASYQUANT_LIB_CODEGEN_CPU_PACKEDBLOCK_H
