//===- WeightLayouts.h - The layout of a weight in a file -------*- C++ -*-===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef EASYQUANT_WEIGHTS_WEIGHTLAYOUTS_H
#define EASYQUANT_WEIGHTS_WEIGHTLAYOUTS_H

#include "easyquant/Weights/ConstantWeights.h"
#include "easyquant/Weights/TargetModules.h"

#include <memory>

namespace easyquant::equant {

/// The weight in the layout that it is read in; null where the layout takes no such
/// codes, of which packerFor says why.
WeightType packedType(const ConstantWeight &weight, const targets::WeightForm &form);

/// What packs the weight so. Fails (Unsupported) on schemes that the kernels do not take, and on a
/// weight that linears on int8 and on float activations share, but read in different layouts.
Result<std::unique_ptr<numerics::WeightLayout>> packerFor(const ConstantWeight &weight,
                                                          const targets::WeightForm &form);

} // namespace easyquant::equant

#endif // EASYQUANT_WEIGHTS_WEIGHTLAYOUTS_H
