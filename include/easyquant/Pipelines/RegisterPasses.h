//===- RegisterPasses.h - Every dialect and pass ----------------*- C++ -*-===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Makes every dialect, pass and named pipeline of the project known: what easyquant-opt and
// easyquant-compile start with.
//
//===----------------------------------------------------------------------===//

#ifndef EASYQUANT_PIPELINES_REGISTERPASSES_H
#define EASYQUANT_PIPELINES_REGISTERPASSES_H

#include "mlir/IR/DialectRegistry.h"

namespace easyquant {

void registerDialects(mlir::DialectRegistry &registry);
/// With every target family.
void registerPasses();

} // namespace easyquant

#endif // EASYQUANT_PIPELINES_REGISTERPASSES_H
