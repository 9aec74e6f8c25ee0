//===- FileTensors.h - Which tensors the artifact has -----------*- C++ -*-===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef EASYQUANT_WEIGHTS_FILETENSORS_H
#define EASYQUANT_WEIGHTS_FILETENSORS_H

#include "easyquant/Weights/WeightFile.h"

namespace easyquant::equant {

/// The tensors of a target's file, in the order of the module's globals as far as alignment allows:
/// what a CPU's panels or floats would not end at a multiple of 64 bytes comes last, in every
/// target's file. Names are those of the globals. If two would have the same name, the second gets
/// a number. They point into `target.weights`.
std::vector<FileTensor> fileTensors(const TargetWeights &target);

} // namespace easyquant::equant

#endif // EASYQUANT_WEIGHTS_FILETENSORS_H
