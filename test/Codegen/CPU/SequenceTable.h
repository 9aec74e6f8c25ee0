//===- SequenceTable.h - The sequences of a call ----------------*- C++ -*-===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef EASYQUANT_TEST_CODEGEN_CPU_SEQUENCETABLE_H
#define EASYQUANT_TEST_CODEGEN_CPU_SEQUENCETABLE_H

#include "KernelRunner.h"

#include "easyquant/Formats/Step.h"

#include <vector>

namespace easyquant::cpu {

/// As kernels take them.
class SequenceTable {
public:
  SequenceTable() = default;
  /// One sequence, at `position` of a cache that has seen no more.
  SequenceTable(int64_t rows, int64_t position) { add(rows, position); }

  /// The next one, whose rows lie behind those of the others.
  eq_sequence &add(int64_t rows, int64_t position) {
    eq_sequence sequence = {};
    if (!sequences.empty())
      sequence.first_row = sequences.back().first_row + sequences.back().rows;
    sequence.rows = static_cast<int32_t>(rows);
    sequence.position = sequence.held = static_cast<int32_t>(position);
    return sequences.emplace_back(sequence);
  }
  MemRef<int32_t, 2> view() {
    return MemRef<int32_t, 2>(reinterpret_cast<int32_t *>(sequences.data()),
                              {std::ssize(sequences), EQ_SEQUENCE_FIELDS});
  }

private:
  std::vector<eq_sequence> sequences;
};

} // namespace easyquant::cpu

#endif // EASYQUANT_TEST_CODEGEN_CPU_SEQUENCETABLE_H
