//===- Reduce.h - Sums, minima and maxima in a fixed order ------*- C++ -*-===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef EASYQUANT_LIB_COMM_REDUCE_H
#define EASYQUANT_LIB_COMM_REDUCE_H

#include "easyquant/Comm/Communicator.h"

namespace easyquant::comm {

/// into[i] = left[i] op right[i]; `into` may be either. The minimum and maximum of a NaN and a
/// number is NaN; integers wrap.
void combine(ElementType type, Reduction reduction, int64_t count, void *into, const void *left,
             const void *right);

/// The tree of Communicator.h over one contribution a rank: the result is in contributions[0]; the
/// others are overwritten.
void reduceInOrder(ElementType type, Reduction reduction, int64_t count,
                   std::span<void *const> contributions);

} // namespace easyquant::comm

#endif // EASYQUANT_LIB_COMM_REDUCE_H
