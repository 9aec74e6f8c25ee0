//===- AttentionLaunches.cpp - Heads and attention ------------------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "ProgramBuilder.h"

#include "easyquant/Codegen/GPU/Emit.h"

using namespace mlir;
using namespace easyquant;

/// The rotation of keys that lie behind the queries which `op` rotates in the same rows, if that is
/// what comes next.
lm::RopeOp ProgramBuilder::keysBehind(lm::RopeOp op) const {
  Operation *next = op->getNextNode();
  while (isa_and_nonnull<ml_program::GlobalLoadConstOp>(next))
    next = next->getNextNode();
  auto keys = dyn_cast_or_null<lm::RopeOp>(next);
  if (!keys || keys.getHeadDim() != op.getHeadDim() ||
      plan->storageOf(keys.getOutput()) == keys.getOutput() || !memory.contains(keys.getInput()))
    return nullptr;
  auto table = op.getTable().getDefiningOp<ml_program::GlobalLoadConstOp>();
  auto otherTable = keys.getTable().getDefiningOp<ml_program::GlobalLoadConstOp>();
  View queries = memory.lookup(op.getInput()), behind = memory.lookup(keys.getInput());
  bool isBehind = queries.begin.kind == behind.begin.kind && queries.stride == behind.stride &&
                  queries.begin.offset + columnsOf(op.getInput()) * int64_t(sizeof(float)) ==
                      behind.begin.offset;
  bool isAlike = table && otherTable && table.getGlobal() == otherTable.getGlobal() &&
                 op.getPosition() == keys.getPosition();
  return isBehind && isAlike ? keys : nullptr;
}

LogicalResult ProgramBuilder::emitHeads(Operation *op) {
  if (memory.contains(op->getResult(0))) // rotated along with the queries
    return success();
  Arguments arguments;
  easyquant::gpu::HeadsSpec spec;
  if (auto rope = dyn_cast<lm::RopeOp>(op)) {
    spec = headsSpec(rope);
    arguments["table"] = constants.lookup(rope.getTable());
    arguments["position"] = place(Kind::Position);
  } else {
    auto norm = cast<lm::HeadRmsNormOp>(op);
    spec = headsSpec(norm);
    arguments["weight"] = constants.lookup(norm.getWeight());
  }
  FailureOr<View> view = inPlace(op);
  if (failed(view))
    return failure();
  if (auto rope = dyn_cast<lm::RopeOp>(op);
      rope && plan->storageOf(rope.getOutput()) != rope.getOutput())
    if (lm::RopeOp keys = keysBehind(rope)) {
      spec.keyHeads = headsSpec(keys).heads;
      memory[keys.getOutput()] = memory.lookup(keys.getInput());
    }
  if (spec.positions && view->lastRows)
    return op->emitOpError("rotates rows of which only the last ones are there");
  add(arguments, "x", *view);
  getOrEmitHeads(kernels, spec, chip);
  return launch(op, describe(spec, chip), arguments, Phase::Attention, view->lastRows);
}

LogicalResult ProgramBuilder::emitAttention(Operation *op) {
  easyquant::gpu::AttentionSpec spec = gpuAttentionSpec(op);
  auto layer = op->getAttrOfType<IntegerAttr>("layer").getInt();
  auto kvScheme = op->getAttrOfType<equant::KVSchemeAttr>("kv_scheme");
  auto cache = cast<lm::KVCacheType>(op->getOperand(3).getType());
  easyquant::gpu::CacheBytes bytes = cacheBytes(spec);
  bool rotates = spec.keyPositions > 0;
  if (program.cache.pageBytes == 0) {
    if (failed(verifyCacheBytes(op, cache.getLayers(), bytes.page, bytes.window)))
      return failure();
    program.cache = {bytes.pageTokens, cache.getLayers() * bytes.page,
                     cache.getLayers() * bytes.window};
    this->kvScheme = kvScheme;
    rotatesKeys = rotates;
  } else if (kvScheme != this->kvScheme || rotates != rotatesKeys ||
             program.cache.pageBytes != cache.getLayers() * bytes.page) {
    return op->emitOpError("has a cache unlike that of the first layer; all layers need the same "
                           "KV scheme, place of keys, heads and dimensions");
  }

  Value output = op->getResult(0);
  Arguments arguments;
  add(arguments, "q", memory.lookup(op->getOperand(0)));
  add(arguments, "k", memory.lookup(op->getOperand(1)));
  add(arguments, "v", memory.lookup(op->getOperand(2)));
  arguments["cache"] = place(Kind::Cache, layer * bytes.page);
  arguments["pages"] = place(Kind::Pages);
  arguments["windows"] = place(Kind::Cache, layer * bytes.window);
  arguments["window"] = place(Kind::Window);
  arguments["position"] = place(Kind::Position);
  arguments["held"] = place(Kind::Held);
  if (auto quantized = dyn_cast<equant::AttentionOp>(op); quantized && quantized.getTable())
    arguments["table"] = constants.lookup(quantized.getTable());
  if (plan->isQuantizedOnly(output)) {
    Codes halves = codesOf(output, *quantizedUse(*output.use_begin(), kRules), false);
    spec.output = kHalves;
    arguments["y"] = place(Kind::Arena, halves.codes);
    arguments["y_stride"] = integer(easyquant::gpu::paddedColumns(columnsOf(output)));
  } else {
    add(arguments, "y", destination(output, false));
  }
  auto choices = attentionKernels(spec, chip);
  if (!choices)
    return op->emitError("site '")
           << siteOf(op) << "': " << choices.error().message << "; compile it with --target cpu";
  if (spec.kv) {
    easyquant::gpu::Description restore = describeRestore(spec, chip);
    getOrEmitRestore(kernels, spec, chip);
    if (failed(append(program.restore, op, restore, arguments, Phase::Attention, false, {})))
      return failure();
  }
  return forRowRanges(
      *choices, [&](const easyquant::gpu::AttentionKernel &kernel, RowRange range, int64_t most) {
        arguments["scratch"] = scratch(most * kernel.scratchBytesPerRow);
        getOrEmitAttention(kernels, spec, kernel, chip);
        for (const easyquant::gpu::Description &description : kernel.launches)
          if (failed(launch(op, description, arguments, Phase::Attention, false, range)))
            return failure();
        return success();
      });
}
