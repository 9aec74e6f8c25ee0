//===- LinalgModels.cpp - QuantizableOpInterface for linalg ops -----------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "LinalgSite.h"

#include "easyquant/Conversion/EquantToLinalg/EquantToLinalg.h"

using namespace mlir;
using namespace easyquant;
using namespace easyquant::equant;

namespace {
/// An op that is no linear has the name that somebody gave it, and nothing is asked of it but why.
template <typename Op>
struct LinalgModel : QuantizableOpInterface::ExternalModel<LinalgModel<Op>, Op> {
  static Result<LinalgSite> match(Operation *op) {
    return LinalgSite::match(cast<linalg::LinalgOp>(op));
  }

  StringRef getSite(Operation *op) const {
    auto name = op->getAttrOfType<StringAttr>(kSiteAttr);
    return name ? name.getValue() : StringRef();
  }
  std::string whyNoLinear(Operation *op) const {
    Result<LinalgSite> site = match(op);
    return site ? "" : op->getName().getStringRef().str() + " " + site.error().message;
  }
  OpOperand &getActivationOperand(Operation *op) const {
    Result<LinalgSite> site = match(op);
    return site ? site->activation() : op->getOpOperand(0);
  }
  OpOperand &getWeightOperand(Operation *op) const {
    Result<LinalgSite> site = match(op);
    return site ? site->weight() : op->getOpOperand(1);
  }
  Value getBiasValue(Operation *) const { return {}; }
  Features getFeatures(Operation *op) const {
    Result<LinalgSite> site = match(op);
    return site ? site->features() : Features();
  }
  Value buildRows(Operation *op, OpBuilder &builder) const { return match(op)->buildRows(builder); }
  Value buildQuantized(Operation *op, OpBuilder &builder, Value weight,
                       const QuantizedInput &input) const {
    return match(op)->buildQuantized(builder, weight, input);
  }
};

template <typename... Ops> void attach(MLIRContext *context) {
  (Ops::template attachInterface<LinalgModel<Ops>>(*context), ...);
}
} // namespace

void easyquant::registerLinalgModels(DialectRegistry &registry) {
  registry.addExtension(+[](MLIRContext *context, linalg::LinalgDialect *, EquantDialect *) {
    using namespace linalg;
    attach<MatmulOp, BatchMatmulOp, ContractOp, Conv1DNcwFcwOp, Conv1DNwcWcfOp, Conv2DNchwFchwOp,
           Conv2DNhwcFhwcOp, Conv2DNhwcHwcfOp, Conv2DNgchwFgchwOp, Conv2DNgchwGfchwOp,
           Conv2DNhwgcGfhwcOp, Conv3DNcdhwFcdhwOp, Conv3DNdhwcDhwcfOp, DepthwiseConv1DNcwCwOp,
           DepthwiseConv1DNwcWcOp, DepthwiseConv1DNwcWcmOp, DepthwiseConv2DNchwChwOp,
           DepthwiseConv2DNhwcHwcOp, DepthwiseConv2DNhwcHwcmOp, DepthwiseConv3DNcdhwCdhwOp,
           DepthwiseConv3DNdhwcDhwcOp, DepthwiseConv3DNdhwcDhwcmOp>(context);
  });
}
