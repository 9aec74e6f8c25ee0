//===- WeightLayouts.h - The layout of a weight for a target ----*- C++ -*-===//
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

/// How the kernels of the target read the weight: panels; fragments in the order of the linears
/// which read it, of which an embedding takes either.
LayoutAttr layoutFor(const ConstantWeight &weight, Target target);

/// The weight in that layout; null where the layout takes no such codes, of which packerFor says
/// why.
WeightType packedType(const ConstantWeight &weight, Target target);

/// What packs the weight so. Fails (Unsupported) on schemes that the kernels do not take, and on a
/// weight that a GPU's linears on int8 and on float activations share.
Result<std::unique_ptr<numerics::WeightLayout>> packerFor(const ConstantWeight &weight,
                                                          Target target);

} // namespace easyquant::equant

#endif // EASYQUANT_WEIGHTS_WEIGHTLAYOUTS_H
