//===- WeightLayouts.cpp - The layout of a weight for a target ------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "easyquant/Weights/WeightLayouts.h"

#include "easyquant/Numerics/FragmentPacking.h"
#include "easyquant/Numerics/Packing.h"

using namespace easyquant;
using namespace easyquant::equant;
using numerics::WeightLayout;

LayoutAttr easyquant::equant::layoutFor(const ConstantWeight &weight, Target target) {
  mlir::MLIRContext *context = weight.scheme.getContext();
  if (target == Target::CPU)
    return LayoutAttr::panel(context);
  // Codes of 3 bits have but one order.
  bool readsFloats = weight.floatReader || (weight.scheme.getBits() == 3 && !weight.integerReader);
  return LayoutAttr::mmaSync(context,
                             readsFloats ? FragmentOrder::M16N8K16 : FragmentOrder::M16N8K32);
}

WeightType easyquant::equant::packedType(const ConstantWeight &weight, Target target) {
  LayoutAttr layout = layoutFor(weight, target);
  for (auto part : {numerics::WeightTensor::Codes, numerics::WeightTensor::Scales})
    if (!layout.getPackedType(part, weight.scheme, weight.rows, weight.columns))
      return {};
  return WeightType::get(weight.rows, weight.columns, weight.scheme, layout, weight.needsSums);
}

template <typename Layout>
static Result<std::unique_ptr<WeightLayout>> makePacker(const ConstantWeight &weight,
                                                        Result<Layout> layout) {
  if (!layout)
    return Unexpected(layout.error());
  layout->withSums = weight.needsSums;
  return std::make_unique<Layout>(std::move(*layout));
}

Result<std::unique_ptr<WeightLayout>> easyquant::equant::packerFor(const ConstantWeight &weight,
                                                                   Target target) {
  const numerics::Scheme scheme = weight.scheme.toNumerics();
  if (target == Target::CPU)
    return makePacker(weight, numerics::panelLayout(scheme, weight.rows, weight.columns));
  if (weight.integerReader && weight.floatReader)
    return makeError(
        ErrorCode::Unsupported,
        "linears on int8 and on float activations share this weight, which GPU kernels "
        "read in different orders; give both the same activations");
  auto order = static_cast<numerics::FragmentOrder>(layoutFor(weight, target).getOrder());
  return makePacker(weight, numerics::fragmentLayout(scheme, order, weight.rows, weight.columns));
}
