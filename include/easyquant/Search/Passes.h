//===- Passes.h - Formats within a budget -----------------------*- C++ -*-===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef EASYQUANT_SEARCH_PASSES_H
#define EASYQUANT_SEARCH_PASSES_H

#include "easyquant/Support/Real.h"

#include "mlir/Pass/Pass.h"

namespace easyquant::search {

#define GEN_PASS_DECL
#define GEN_PASS_REGISTRATION
#include "easyquant/Search/Passes.h.inc"

} // namespace easyquant::search

#endif // EASYQUANT_SEARCH_PASSES_H
