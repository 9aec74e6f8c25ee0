//===- Sequences.cpp - The sequences of a step ----------------------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Sequences.h"

#include "easyquant/Formats/Step.h"

#include "mlir/Dialect/MemRef/IR/MemRef.h"

#include <cstddef>

using namespace mlir;

namespace easyquant::cpu {

Type sequencesType(Builder &b) {
  return MemRefType::get({ShapedType::kDynamic, EQ_SEQUENCE_FIELDS}, b.getI32Type());
}

std::pair<Value, Value> Sequence::part(KernelBuilder &b, Value begin, Value end) const {
  Value from = b.max(begin, firstRow), to = b.min(end, b.add(firstRow, rows));
  return {b.sub(from, firstRow), b.sub(b.max(from, to), firstRow)};
}

Value Sequence::rowsOf(KernelBuilder &b, Value matrix) const {
  OpFoldResult one = b.getIndexAttr(1),
               columns = b.getIndexAttr(cast<MemRefType>(matrix.getType()).getDimSize(1));
  return memref::SubViewOp::create(b, matrix, ArrayRef<OpFoldResult>{firstRow, b.getIndexAttr(0)},
                                   ArrayRef<OpFoldResult>{rows, columns},
                                   ArrayRef<OpFoldResult>{one, one});
}

static Sequence load(KernelBuilder &b, Value sequences, Value n) {
  auto field = [&](size_t offset) -> Value {
    Value number = b.load(sequences, {n, b.index(static_cast<int64_t>(offset / sizeof(int32_t)))});
    return arith::IndexCastOp::create(b, b.getIndexType(), number);
  };
  return {field(offsetof(eq_sequence, first_row)),  field(offsetof(eq_sequence, rows)),
          field(offsetof(eq_sequence, position)),   field(offsetof(eq_sequence, held)),
          field(offsetof(eq_sequence, first_page)), field(offsetof(eq_sequence, window)),
          field(offsetof(eq_sequence, slot)),       field(offsetof(eq_sequence, next_slot))};
}

void forSequences(KernelBuilder &b, Value sequences,
                  llvm::function_ref<void(const Sequence &)> body) {
  b.forLoop(0, b.size(sequences, 0), 1, [&](Value n) { body(load(b, sequences, n)); });
}

void forPositions(KernelBuilder &b, Value sequences, Value begin, Value end,
                  llvm::function_ref<void(Value, Value)> body) {
  forSequences(b, sequences, [&](const Sequence &sequence) {
    auto [from, to] = sequence.part(b, begin, end);
    b.forLoop(from, to, 1, [&](Value row) {
      body(b.add(sequence.firstRow, row), b.add(sequence.position, row));
    });
  });
}

//===----------------------------------------------------------------------===//
// Work on sequences shared among threads
//===----------------------------------------------------------------------===//

void shareSequences(KernelBuilder &b, ModuleOp module, Value sequences, int64_t items,
                    const Team &team, llvm::function_ref<void(const Sequence &)> together,
                    llvm::function_ref<void()> inTurn) {
  // With so many items a thread none waits long for the others.
  constexpr int64_t kManyItems = 4;
  Value count = b.size(sequences, 0);
  b.ifThenElse(
      b.less(b.mul(count, items), b.mul(team.threads, kManyItems)),
      [&] {
        forSequences(b, sequences, [&](const Sequence &sequence) {
          together(sequence);
          // The scratch of the next one is the same.
          b.ifThen(b.less(1, count), [&] { emitBarrier(b, module, b.target, team); });
        });
      },
      inTurn);
}

void forSequencesInTurn(KernelBuilder &b, Value sequences,
                        llvm::function_ref<Value(const Sequence &, Value)> body) {
  b.forLoop(0, b.size(sequences, 0), 1, ValueRange{b.index(0)}, [&](Value n, ValueRange turn) {
    return KernelBuilder::Values{body(load(b, sequences, n), turn[0])};
  });
}

void forTurns(KernelBuilder &b, Value count, Value turn, const Team &team,
              llvm::function_ref<void(Value)> body) {
  Value behind = b.sub(b.add(team.thread, team.threads), turn);
  b.forLoop(arith::RemUIOp::create(b, behind, team.threads).getResult(), count, team.threads, body);
}

Value nextTurn(KernelBuilder &b, Value count, Value turn, const Team &team) {
  return arith::RemUIOp::create(b, b.add(turn, count), team.threads);
}

} // namespace easyquant::cpu
