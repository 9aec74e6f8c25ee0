//===- ListTargets.h - Which scheme runs where ------------------*- C++ -*-===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef EASYQUANT_TOOLS_EASYQUANT_COMPILE_LISTTARGETS_H
#define EASYQUANT_TOOLS_EASYQUANT_COMPILE_LISTTARGETS_H

namespace easyquant {

/// Prints the targets, and a table of the schemes that each family has kernels for, as Markdown.
void listTargets();

} // namespace easyquant

#endif // EASYQUANT_TOOLS_EASYQUANT_COMPILE_LISTTARGETS_H
