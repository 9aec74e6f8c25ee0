//===- ConstantWeights.cpp - Quantized constants --------------------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "easyquant/Dialect/Equant/Analysis/ConstantWeights.h"

#include "mlir/Dialect/MLProgram/IR/MLProgram.h"

using namespace mlir;
using namespace easyquant::equant;

/// The operands of a tree of concats, left to right.
static void flatten(Value value, SmallVectorImpl<Value> &leaves) {
  if (auto concat = value.getDefiningOp<ConcatOp>()) {
    for (Value input : concat.getInputs())
      flatten(input, leaves);
    return;
  }
  leaves.push_back(value);
}

FailureOr<ConstantWeight> easyquant::equant::matchConstantWeight(Location loc,
                                                                 ArrayRef<StringRef> sites,
                                                                 Value codes, Value scales) {
  auto fail = [&](const Twine &expected, Value found) -> LogicalResult {
    InFlightDiagnostic diagnostic = emitError(loc)
                                    << "site '" << sites.front()
                                    << "': its weight is not a quantized constant: expected "
                                    << expected << ", found ";
    if (Operation *op = found.getDefiningOp())
      diagnostic << op->getName();
    else
      diagnostic << "a block argument";
    return diagnostic;
  };

  auto pack = codes.getDefiningOp<PackOp>();
  if (!pack)
    return fail("codes from equant.pack", codes);
  auto packScales = scales.getDefiningOp<PackScalesOp>();
  if (!packScales || packScales.getLayout() != pack.getLayout())
    return fail("scales from equant.pack_scales in the layout of the codes", scales);
  SmallVector<Value> codeLeaves, scaleLeaves;
  flatten(pack.getCodes(), codeLeaves);
  flatten(packScales.getScale(), scaleLeaves);
  if (codeLeaves.size() != scaleLeaves.size())
    return fail("as many scales as codes to be concatenated", packScales.getScale());

  if (codeLeaves.size() != sites.size())
    return emitError(loc) << "site '" << sites.front() << "': " << sites.size()
                          << " sites are named, but the weight is made of " << codeLeaves.size();

  ConstantWeight weight;
  weight.layout = pack.getLayout();
  for (auto [codeLeaf, scaleLeaf, site] : llvm::zip_equal(codeLeaves, scaleLeaves, sites)) {
    auto quantize = codeLeaf.getDefiningOp<QuantizeOp>();
    if (!quantize)
      return fail("codes from equant.quantize", codeLeaf);
    auto qparams = scaleLeaf.getDefiningOp<ChooseQParamsOp>();
    if (!qparams || quantize.getScale() != scaleLeaf || qparams.getInput() != quantize.getInput() ||
        qparams.getScheme() != quantize.getScheme())
      return fail("the scale that equant.quantize used, from equant.choose_qparams of the same "
                  "weight in the same scheme",
                  scaleLeaf);
    auto load = quantize.getInput().getDefiningOp<ml_program::GlobalLoadConstOp>();
    if (!load)
      return fail("a weight from ml_program.global_load_const", quantize.getInput());
    if (weight.parts.empty()) {
      weight.scheme = quantize.getScheme();
      weight.rule = qparams.getRule();
    } else if (weight.scheme != quantize.getScheme() || weight.rule != qparams.getRule()) {
      return fail("one scheme and one rule for all rows", codeLeaf);
    }
    auto type = cast<RankedTensorType>(quantize.getInput().getType());
    weight.parts.push_back(
        {load.getGlobal().getLeafReference().str(), site.str(), type.getDimSize(0)});
    weight.rows += type.getDimSize(0);
    weight.columns = type.getDimSize(1);
  }
  return weight;
}
