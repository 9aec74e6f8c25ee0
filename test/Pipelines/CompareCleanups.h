//===- CompareCleanups.h - MLIR's passes between ours -----------*- C++ -*-===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef EASYQUANT_TEST_PIPELINES_COMPARECLEANUPS_H
#define EASYQUANT_TEST_PIPELINES_COMPARECLEANUPS_H

#include <filesystem>

namespace easyquant::test {

/// Compiles small models as they are and with canonicalize, cse and sccp between all passes, from
/// the import down to LLVM and to the launches of a GPU, and compares: the bytes of the weights,
/// the bits of the logits that the program computes, and the launch list. A pass that makes one
/// buffer of two is run as well, and must be noticed. False, with a message, for a difference.
/// Writes into the working directory.
bool compareWithCleanups(const std::filesystem::path &tests);

} // namespace easyquant::test

#endif // EASYQUANT_TEST_PIPELINES_COMPARECLEANUPS_H
