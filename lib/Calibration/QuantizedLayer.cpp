//===- QuantizedLayer.cpp - A layer as its plans would have it ------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "QuantizedLayer.h"

#include "llvm/ADT/SetVector.h"
#include "llvm/ADT/SmallPtrSet.h"

using namespace mlir;
using namespace easyquant;
using namespace easyquant::calibration;
using numerics::ConstMatrix;
using numerics::Matrix;

LogicalResult easyquant::calibration::checkRoundsToNearest(const PlannedSite &site) {
  auto fail = [&](const Twine &problem) {
    return emitError(site.loc()) << "site '" << site.name() << "': " << problem;
  };
  if (site.plan.getCodes() || site.plan.getScale())
    return fail("its plan names computed codes or scales; bounds are of round to nearest, so "
                "measure them before any method has run");
  if (site.plan.getRule() == equant::ScaleRule::HessianDiagonal)
    return fail("its ranges follow from calibration text; bounds are measured of rules that need "
                "none");
  if (site.plan.getInput() && site.plan.getInput().isCalibrated())
    return fail("its inputs are to be quantized with static scales; bounds are measured of "
                "activations=dynamic");
  if (site.plan.getInput() && !site.plan.getInput().isInteger())
    return fail("its inputs are to be quantized, and not to int8; bounds are measured of int8 "
                "inputs and of float ones");
  return success();
}

/// The activations among the arguments of its block that a value is computed from.
static SmallVector<Value> activationsBehind(Value target) {
  SmallVector<Value> worklist = {target};
  llvm::SmallPtrSet<Operation *, 16> seen;
  llvm::SetVector<Value> found;
  while (!worklist.empty()) {
    Value value = worklist.pop_back_val();
    if (Operation *op = value.getDefiningOp()) {
      if (seen.insert(op).second)
        llvm::append_range(worklist, op->getOperands());
    } else if (isa<RankedTensorType>(value.getType())) {
      found.insert(value);
    }
  }
  SmallVector<Value> inputs = found.takeVector();
  llvm::sort(inputs, [](Value a, Value b) {
    return cast<BlockArgument>(a).getArgNumber() < cast<BlockArgument>(b).getArgNumber();
  });
  return inputs;
}

FailureOr<QuantizedLayer> QuantizedLayer::create(LayerRunner &runner, func::FuncOp layer) {
  QuantizedLayer result(runner);
  result.name = layer.getSymName().str();
  result.copy = layer.clone();
  Block &block = result.copy->front();
  Value output = block.getTerminator()->getOperand(0);

  QuantizedWeights weights;
  struct Target {
    Value made, quantized; ///< what stands for its codes
    equant::SchemeAttr scheme;
  };
  std::vector<Target> targets;
  for (const SiteGroup &group : siteGroups(*result.copy)) {
    llvm::MapVector<equant::SchemeAttr, Value> known; // the activation as codes of each scheme
    for (PlannedSite site : group.sites) {
      if (failed(checkRoundsToNearest(site)))
        return failure();
      FailureOr<WeightValues> weight = readWeight(runner.constants(), site);
      if (failed(weight))
        return failure();
      auto rounded = roundToNearest(site, weight->view());
      if (!rounded)
        return emitError(site.loc()) << rounded.error().message;
      weights[site.weight()] = std::move(*rounded);
      if (!site.plan.getInput())
        continue;
      // The basis is no part of the codes: rows come rotated.
      Value &quantized = known[site.plan.getInput().inBasis(0)];
      if (!quantized)
        quantized = block.addArgument(group.activation.getType(), group.activation.getLoc());
      site.op.getActivationOperand().set(quantized);
    }
    for (auto [scheme, quantized] : known)
      targets.push_back({group.activation, quantized, scheme});
  }
  targets.push_back({output, {}, {}});

  for (auto [target, quantized, scheme] : targets) {
    Subgraph subgraph{activationsBehind(target), {target}};
    FailureOr<CompiledSubgraph> program = runner.compiler().compile(subgraph);
    if (failed(program) || failed(load(*program, runner.constants(), weights)))
      return failure();
    result.pieces.push_back({std::move(subgraph), quantized, scheme, std::move(*program)});
  }
  return std::move(result);
}

Result<void> QuantizedLayer::run(int64_t sample, ConstMatrix input, Matrix output) {
  llvm::DenseMap<Value, ConstMatrix> known;
  known[copy->getArgument(0)] = input;
  std::vector<std::vector<float>> memory;
  for (Piece &piece : pieces) {
    SmallVector<ConstMatrix> inputs;
    for (Value value : piece.subgraph.inputs)
      inputs.push_back(known.lookup(value));
    Matrix made = output;
    if (piece.quantized) {
      const int64_t columns = lm::columns(piece.quantized);
      made = {memory.emplace_back(input.rows * columns).data(), input.rows, columns};
    }
    if (auto done = runner->runSample(piece.program, name, sample, inputs, {made}); !done)
      return done;
    if (!piece.quantized)
      continue;
    auto codes = numerics::quantizeTokens(made, piece.scheme.toNumerics(), /*groupSize=*/0);
    if (!codes)
      return Unexpected(codes.error());
    numerics::dequantize(*codes, made);
    known[piece.quantized] = made;
  }
  return {};
}
