//===- RowLaunches.cpp - Embeddings and row operations --------------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "ProgramBuilder.h"

#include "easyquant/Codegen/GPU/Emit.h"

using namespace mlir;
using namespace easyquant;

LogicalResult ProgramBuilder::emitEmbedding(lm::EmbeddingOp op) {
  auto table = cast<RankedTensorType>(op.getTable().getType());
  easyquant::gpu::EmbeddingSpec spec;
  spec.vocab = table.getDimSize(0);
  spec.columns = table.getDimSize(1);
  Arguments arguments;
  arguments["tokens"] = place(Kind::Tokens);
  if (auto fragments = halves.find(op.getTable()); fragments != halves.end()) {
    // Those of the head that is tied to it.
    spec.bits = 16;
    spec.table = kHalves;
    arguments["w"] = fragments->second;
  } else {
    arguments["table"] = constants.lookup(op.getTable());
  }
  add(arguments, "y", destination(op.getOutput(), false));
  getOrEmitEmbedding(kernels, spec, chip);
  return launch(op, describe(spec, chip), arguments, Phase::Other, false);
}

LogicalResult ProgramBuilder::emitEmbedding(equant::EmbeddingOp op) {
  easyquant::gpu::EmbeddingSpec spec;
  spec.vocab = static_cast<int64_t>(op.getVocabSize());
  spec.columns = columnsOf(op.getOutput());
  numerics::Scheme weights = op.getWeightScheme().toNumerics();
  spec.bits = weights.bits;
  spec.groupSize = weights.groupSize;
  spec.zeroPoints = !weights.symmetric;
  spec.scales = weights.scales;
  equant::LayoutAttr layout = op.getLayoutAttr();
  if (!layout || layout.getKind() != equant::LayoutKind::MmaSync)
    return op.emitOpError("expected a table packed as fragments: run equant-materialize-weights "
                          "with target=gpu first");
  spec.order = static_cast<numerics::FragmentOrder>(layout.getOrder());
  Arguments arguments;
  arguments["tokens"] = place(Kind::Tokens);
  addCodes(arguments, op);
  add(arguments, "y", destination(op.getOutput(), false));
  getOrEmitEmbedding(kernels, spec, chip);
  return launch(op, describe(spec, chip), arguments, Phase::Other, false);
}

LogicalResult ProgramBuilder::emitPositions(lm::PositionEmbeddingOp op) {
  auto table = cast<RankedTensorType>(op.getTable().getType());
  easyquant::gpu::PositionEmbeddingSpec spec{table.getDimSize(0), table.getDimSize(1)};
  FailureOr<View> view = inPlace(op);
  if (failed(view))
    return failure();
  Arguments arguments;
  arguments["table"] = constants.lookup(op.getTable());
  arguments["position"] = place(Kind::Position);
  add(arguments, "y", *view);
  getOrEmitPositionEmbedding(kernels, spec, chip);
  return launch(op, describe(spec, chip), arguments, Phase::Other, view->lastRows);
}

LogicalResult ProgramBuilder::emitRowOp(Operation *op, easyquant::gpu::RowSpec spec,
                                        Operands operands) {
  Value output = op->getResult(0);
  Arguments arguments;
  bool lastRows = false;
  for (auto [name, value] : operands) {
    auto view = memory.find(value);
    if (view == memory.end()) {
      arguments[name] = constants.lookup(value);
      continue;
    }
    add(arguments, name, view->second);
    lastRows |= view->second.lastRows;
  }
  spec.columns = columnsOf(output);
  Phase phase = Phase::Other;
  if (plan->isQuantizedOnly(output)) {
    CodesKind kind = *quantizedUse(*output.use_begin(), kRules);
    quantize(spec, output, kind, codesOf(output, kind, lastRows), arguments);
    phase = Phase::Quantize;
  } else {
    add(arguments, "y", destination(output, lastRows));
  }
  getOrEmitRowOp(kernels, spec, chip);
  return launch(op, describe(spec, chip), arguments, phase, lastRows);
}
