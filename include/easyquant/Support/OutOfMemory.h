//===- OutOfMemory.h - The end of a tool's memory ---------------*- C++ -*-===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef EASYQUANT_SUPPORT_OUTOFMEMORY_H
#define EASYQUANT_SUPPORT_OUTOFMEMORY_H

#include <new>
#include <string>

namespace easyquant {

/// From here on a thread that ends on std::bad_alloc ends the process with status 1 and says so.
void explainOutOfMemory();
/// What the process works on, which it then names.
void setInput(const std::string &path);
/// Says "error: INPUT: out of memory ..." on standard error, without memory; gives status 1.
int reportOutOfMemory() noexcept;

/// The body of a tool's main: what it holds is given back before the process ends.
template <typename Body> int runTool(Body &&body) {
  explainOutOfMemory();
  try {
    return body();
  } catch (const std::bad_alloc &) {
    return reportOutOfMemory();
  }
}

} // namespace easyquant

#endif // EASYQUANT_SUPPORT_OUTOFMEMORY_H
