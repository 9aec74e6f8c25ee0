//===- Dependences.cpp - Which kernels must wait for others ---------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Dependences.h"

#include "llvm/ADT/STLExtras.h"

using namespace easyquant;

static bool conflict(const Access &x, const Access &y) {
  if (!x.isWrite && !y.isWrite)
    return false;
  if (x.isOwnShare && y.isOwnShare && x.buffer == y.buffer)
    return false;
  return x.buffer.kind == y.buffer.kind && x.buffer.begin < y.buffer.end &&
         y.buffer.begin < x.buffer.end;
}

bool Dependences::mustMeet(llvm::ArrayRef<Access> accesses) const {
  return isAll || llvm::any_of(accesses, [&](const Access &access) {
           return llvm::any_of(pending,
                               [&](const Access &earlier) { return conflict(access, earlier); });
         });
}
