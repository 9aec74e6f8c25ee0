//===- WeightLayouts.cpp - The layout of a weight in a file --------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "easyquant/Weights/WeightLayouts.h"

using namespace easyquant;
using namespace easyquant::equant;

WeightType easyquant::equant::packedType(const ConstantWeight &weight,
                                         const targets::WeightForm &form) {
  LayoutAttr layout = form.layoutFor(weight.scheme, weight.readers);
  if (!layout.getPacker(weight.scheme, weight.rows, weight.columns))
    return {};
  return WeightType::get(weight.rows, weight.columns, weight.scheme, layout, weight.needsSums);
}

Result<std::unique_ptr<numerics::WeightLayout>>
easyquant::equant::packerFor(const ConstantWeight &weight, const targets::WeightForm &form) {
  if (weight.readers.codes && weight.readers.floats &&
      form.layoutFor(weight.scheme, {.codes = true}) !=
          form.layoutFor(weight.scheme, {.floats = true}))
    return makeError(ErrorCode::Unsupported,
                     "linears on codes and on float activations share this weight, which kernels "
                     "of {} read in different orders; give both the same activations",
                     form.title);
  auto packer = form.layoutFor(weight.scheme, weight.readers)
                    .getPacker(weight.scheme, weight.rows, weight.columns);
  if (packer)
    (*packer)->withSums = weight.needsSums;
  return packer;
}
