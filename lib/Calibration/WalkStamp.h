//===- WalkStamp.h - What statistics of a text depend on --------*- C++ -*-===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Private to lib/Calibration.
//
//===----------------------------------------------------------------------===//

#ifndef EASYQUANT_LIB_CALIBRATION_WALKSTAMP_H
#define EASYQUANT_LIB_CALIBRATION_WALKSTAMP_H

#include "easyquant/Calibration/Journal.h"

#include <optional>

namespace easyquant::calibration {

/// The stamp of a walk of `runner` through `module`. It holds the text, the program, and what
/// changes the order of sums. Collective: all of it must be the same on all ranks. Fails with a
/// diagnostic.
mlir::FailureOr<Stamp> walkStamp(mlir::ModuleOp module, LayerRunner &runner, const Ranks &ranks);

/// The journal in folder `work` of a walk that is to write `file`; nothing where the file is there
/// with this stamp. Collective. Fails with a diagnostic.
mlir::FailureOr<std::optional<Journal>> openJournal(mlir::ModuleOp module,
                                                    const LayerRunner &runner, const Ranks &ranks,
                                                    const std::filesystem::path &file,
                                                    const std::string &work, const Stamp &stamp);

} // namespace easyquant::calibration

#endif // EASYQUANT_LIB_CALIBRATION_WALKSTAMP_H
