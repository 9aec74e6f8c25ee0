//===- Dependences.h - Which kernels must wait for others -------*- C++ -*-===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// All threads of a team call all kernels. Between two of them stands a barrier where the second
// reads or overwrites what the first one wrote, or overwrites what it read, in another thread's
// share. A share that is the same thread's for both needs none: rows of one buffer in kernels over
// rows, and a thread's part of the scratch.
//
//===----------------------------------------------------------------------===//

#ifndef EASYQUANT_LIB_CONVERSION_EQUANTTOKERNELS_DEPENDENCES_H
#define EASYQUANT_LIB_CONVERSION_EQUANTTOKERNELS_DEPENDENCES_H

#include "mlir/IR/Value.h"
#include "llvm/ADT/SmallVector.h"

namespace easyquant {

/// Memory that kernels write. Of different kinds it does not overlap, of one kind where the ranges
/// do.
struct BufferRange {
  enum class Kind { Arena, Argument, Scratch, Cache } kind = Kind::Arena;
  int64_t begin = 0, end = 0;
  /// Whose memory it is and in which form, and the op that chose its rows (null: all of the step).
  /// Equal buffers are shared out among threads alike.
  const void *owner = nullptr, *form = nullptr, *rows = nullptr;

  bool operator==(const BufferRange &) const = default;
};

struct Access {
  BufferRange buffer;
  bool isWrite = false;
  bool isOwnShare = false; ///< each thread touches its share of the buffer only
};

/// What kernels have touched since all threads met.
class Dependences {
public:
  /// Must the threads meet before a kernel that accesses this?
  bool mustMeet(llvm::ArrayRef<Access> accesses) const;
  void add(llvm::ArrayRef<Access> accesses) { pending.append(accesses.begin(), accesses.end()); }
  /// The threads have met.
  void clear() {
    pending.clear();
    isAll = false;
  }
  /// Anything may have been touched.
  void addAll() { isAll = true; }

private:
  llvm::SmallVector<Access> pending;
  bool isAll = false;
};

} // namespace easyquant

#endif // EASYQUANT_LIB_CONVERSION_EQUANTTOKERNELS_DEPENDENCES_H
