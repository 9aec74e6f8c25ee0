//===- StepTables.cpp - The tables of a step as IR ------------------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "StepTables.h"

#include <cstddef>

using namespace mlir;

namespace easyquant::gpu {

PlaceOfRow::PlaceOfRow(KernelBuilder &b, const KernelArguments &arguments, Value row) {
  Value place = b.rowOf(arguments["row_places"], row, formats::kRowPlaceFields, b.i32());
  Value both = b.load(place, b.vec(2, b.i32()), /*constant=*/true);
  sequence = b.extract(both, 0);
  position = b.extract(both, 1);
}

StepSequence::StepSequence(KernelBuilder &b, const KernelArguments &arguments, Value number) {
  Value fields = b.rowOf(arguments["sequences"], number, EQ_SEQUENCE_FIELDS, b.i32());
  auto field = [&](size_t byte) {
    return b.load(b.advance(fields, byte / sizeof(int32_t), b.i32()), b.i32(), /*constant=*/true);
  };
  firstRow = field(offsetof(eq_sequence, first_row));
  rows = field(offsetof(eq_sequence, rows));
  position = field(offsetof(eq_sequence, position));
  held = field(offsetof(eq_sequence, held));
  firstPage = field(offsetof(eq_sequence, first_page));
  window = field(offsetof(eq_sequence, window));
  slot = field(offsetof(eq_sequence, slot));
  nextSlot = field(offsetof(eq_sequence, next_slot));
}

Value countOfPieces(KernelBuilder &b, const KernelArguments &arguments) {
  return b.load(arguments["pieces"], b.i32(), /*constant=*/true);
}

StepPiece::StepPiece(KernelBuilder &b, const KernelArguments &arguments, Value number) {
  static_assert(formats::kPieceFields == 8);
  Value fields = b.rowOf(arguments["pieces"], b.add(number, 1), formats::kPieceFields, b.i32());
  Type four = b.vec(4, b.i32());
  KernelBuilder::Values numbers = b.elements(b.load(fields, four, /*constant=*/true));
  llvm::append_range(numbers,
                     b.elements(b.load(b.advance(fields, 4, b.i32()), four, /*constant=*/true)));
  sequence = numbers[offsetof(formats::Piece, sequence) / 4];
  row = numbers[offsetof(formats::Piece, row) / 4];
  rows = numbers[offsetof(formats::Piece, rows) / 4];
  begin = numbers[offsetof(formats::Piece, begin) / 4];
  end = numbers[offsetof(formats::Piece, end) / 4];
  partials = numbers[offsetof(formats::Piece, partials) / 4];
  part = numbers[offsetof(formats::Piece, part) / 4];
  parts = numbers[offsetof(formats::Piece, parts) / 4];
}

} // namespace easyquant::gpu
