//===- GPUAttentionKernels.cpp - Heads and attention on GPUs --------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "GPULauncher.h"

#include "easyquant/Dialect/LM/Analysis/InPlace.h"

#include "mlir/Dialect/Arith/IR/Arith.h"

using namespace mlir;
using namespace easyquant;

LogicalResult GPULauncher::heads(LaunchBuilder &b, Operation *op, easyquant::gpu::HeadsSpec spec,
                                 Arguments &arguments, const KernelOps &kernel,
                                 const LaunchBuilder::Copy &copy) const {
  FailureOr<Value> rows = b.inPlace(op->getResult(0), op->getOperand(0), copy);
  if (failed(rows))
    return failure();
  arguments.set("x", *rows);
  if (auto keys = kernel.next<lm::RopeOp>()) { // that lie behind the queries
    spec.keyHeads = lm::columns(keys.getInput()) / spec.headDim;
    b.overwrite(keys.getOutput(), keys.getInput());
  }
  return launch(b, op, getOrEmit(kernels, spec, chip), arguments, Phase::Attention);
}

static easyquant::gpu::HeadsSpec rotationOf(lm::RopeOp op) {
  easyquant::gpu::HeadsSpec spec;
  spec.headDim = op.getHeadDim();
  spec.heads = lm::columns(op.getInput()) / spec.headDim;
  spec.positions = cast<RankedTensorType>(op.getTable().getType()).getDimSize(0);
  spec.dims = lm::rotatedDims(op.getTable());
  return spec;
}

/// What kernels that use a layer's part of the cache take.
static LogicalResult addCache(LaunchBuilder &b, Arguments &arguments,
                              const easyquant::gpu::AttentionSpec &spec, Operation *op) {
  auto place = b.placeInCache(op, spec, /*rotatesKeys=*/spec.keyPositions > 0, /*slide=*/false);
  if (failed(place))
    return failure();
  auto operandOf = [&](auto is) { return *llvm::find_if(op->getOperands(), is); };
  Value cache = operandOf([](Value each) { return isa<lm::KVCacheType>(each.getType()); });
  Value batch = operandOf([](Value each) { return isa<lm::BatchType>(each.getType()); });
  arguments.set("cache", b.cache(cache, place->page));
  arguments.set("pages", b.argument("pages"));
  if (spec.kv) {
    arguments.set("windows", b.cache(cache, place->window));
    arguments.set("window_bytes", b.index(place->windows));
  }
  arguments.set("sequences", b[batch]);
  arguments.set("row_places", b.argument("row_places"));
  return success();
}

/// Rotates queries, and keys on their way to the cache, to which the values behind them go, too.
LogicalResult GPULauncher::append(LaunchBuilder &b, Operation *op, Arguments &arguments,
                                  const KernelOps &kernel) const {
  auto queries = cast<lm::RopeOp>(kernel.ops[0]), keys = cast<lm::RopeOp>(kernel.ops[1]);
  easyquant::gpu::HeadsSpec spec = rotationOf(queries);
  spec.keyHeads = lm::columns(keys.getInput()) / spec.headDim;
  spec.append = true;
  b.overwrite(keys.getOutput(), keys.getInput());
  arguments.set("x", b.overwrite(queries.getOutput(), queries.getInput()));
  if (failed(arguments.setWeight("table", queries.getTable())))
    return failure();
  return launch(b, op, getOrEmit(kernels, spec, chip), arguments, Phase::Attention);
}

/// Rotates queries and keys by their positions, and then to the basis of a cache of codes: at once,
/// where they lie side by side.
LogicalResult GPULauncher::takeToBasis(LaunchBuilder &b, const KernelOps &kernel,
                                       int64_t hadamard) const {
  auto queries = cast<lm::RopeOp>(kernel.ops[0]), keys = cast<lm::RopeOp>(kernel.ops[1]);
  const bool areTogether = lm::areSideBySide(queries.getInput(), keys.getInput());
  for (lm::RopeOp op : {queries, keys}) {
    Value x = b.overwrite(op.getOutput(), op.getInput());
    easyquant::gpu::HeadsSpec spec = rotationOf(op);
    spec.hadamard = hadamard;
    if (areTogether && op == keys)
      continue;
    if (areTogether)
      spec.keyHeads = rotationOf(keys).heads;
    Arguments arguments(b, {{"x", x}, {"row_places", b.argument("row_places")}});
    if (failed(arguments.setWeight("table", op.getTable())) ||
        failed(launch(b, op, getOrEmit(kernels, spec, chip), arguments, Phase::Attention)))
      return failure();
  }
  return success();
}

/// The same of what no kernel rotates by its positions: in memory of its own, for others may read
/// what is there.
FailureOr<Value> GPULauncher::inBasis(LaunchBuilder &b, Operation *op, Value heads,
                                      int64_t hadamard) const {
  easyquant::gpu::RowSpec spec;
  spec.op = easyquant::gpu::RowOp::Copy;
  spec.columns = lm::columns(heads);
  spec.hadamard = hadamard;
  Value from = b[heads], to = b.buffer(heads.getType(), b.rows(from));
  Arguments arguments(b, {{"x", from}, {"y", to}});
  if (failed(launch(b, op, getOrEmit(kernels, spec, chip), arguments, Phase::Attention)))
    return failure();
  return to;
}

LogicalResult GPULauncher::attention(LaunchBuilder &b, Operation *op,
                                     easyquant::gpu::AttentionSpec spec, Arguments &arguments,
                                     const KernelOps &kernel) const {
  Operation *last = kernel.ops.back();
  if (isa<arith::TruncFOp>(last))
    spec.output = kBF16;
  auto quantize = dyn_cast<equant::QuantizeRowsOp>(last);
  if (quantize && quantize.getRows().getType().isBlockScaled())
    return quantize.emitOpError("makes codes that a kernel of their own makes, not attention");
  if (quantize && spec.headDim <= easyquant::gpu::kMostCodedHeadDim)
    spec.codes = codesOf(quantize, spec.heads * spec.headDim);
  auto launches = attentionLaunches(spec, chip);
  if (!launches)
    return op->emitError("site '")
           << siteOf(op) << "': " << launches.error().message << "; compile it with --target cpu";
  if (failed(addCache(b, arguments, spec, op)))
    return failure();
  const int64_t hadamard = spec.kv ? spec.kv->hadamard : 0;
  const bool isFused = isa<lm::RopeOp>(kernel.first());
  if (!spec.kv && isFused && failed(append(b, op, arguments, kernel)))
    return failure();
  if (spec.kv && isFused && failed(takeToBasis(b, kernel, hadamard)))
    return failure();
  FailureOr<Value> query = b[op->getOperand(0)], key;
  if (!spec.appended)
    key = b[op->getOperand(1)];
  if (hadamard && !isFused) {
    query = inBasis(b, op, op->getOperand(0), hadamard);
    key = inBasis(b, op, op->getOperand(1), hadamard);
    if (failed(query) || failed(key))
      return failure();
  }
  arguments.set("q", *query);
  if (!spec.appended) {
    arguments.set("k", *key);
    arguments.set("v", b[op->getOperand(2)]);
  }
  Value rows = quantize ? b.buffer(op->getResult(0).getType(), b.rows(*query))
                        : b.result(last->getResult(0), b.rows(*query));
  arguments.set(spec.codes ? "x" : "y", rows);
  Arguments codes(b, {{"x", rows}}); // of a launch by itself
  if (spec.codes)
    arguments.set("row_counters", b.counters(b.maxRows()));
  if (quantize && failed(setQuantization(b, quantize, kernel, spec.codes ? arguments : codes)))
    return failure();
  getOrEmit(kernels, spec, *launches);
  auto launchAll = [&](const std::vector<easyquant::gpu::Description> &all) -> LogicalResult {
    for (const easyquant::gpu::Description &one : all)
      if (failed(launch(b, op, one, arguments, Phase::Attention)))
        return failure();
    return success();
  };
  if (failed(launchAll(launches->before)))
    return failure();
  for (const easyquant::gpu::AttentionKernel &choice : launches->kernels) {
    arguments.set("pieces", b.pieces(choice.cut));
    if (choice.partialBytes > 0) {
      arguments.set("partials", b.partials(choice.partialBytes));
      arguments.set("partial_counters", b.partialCounters(choice.partialCounters));
    }
    if (failed(launch(b, op, choice.launch, arguments, Phase::Attention)))
      return failure();
  }
  if (failed(launchAll(launches->behind)))
    return failure();
  if (!quantize || spec.codes)
    return success();
  return launch(b, quantize, getOrEmit(kernels, codesOf(quantize, spec.heads * spec.headDim), chip),
                codes, Phase::Quantize);
}

/// What attention over floats and over codes have in common.
template <typename AttentionLike> static easyquant::gpu::AttentionSpec specOf(AttentionLike op) {
  easyquant::gpu::AttentionSpec spec;
  spec.heads = op.getNumHeads();
  spec.kvHeads = op.getNumKvHeads();
  spec.headDim = op.getHeadDim();
  spec.scale = op.getScale().convertToDouble();
  spec.window = op.getWindow();
  spec.bound = op.getBound().convertToDouble();
  spec.sinkLogits = bool(op.getSinkLogits());
  return spec;
}

/// Floats in the cache, which another layer may have written.
static easyquant::gpu::AttentionSpec floatSpecOf(lm::AttentionOp op) {
  easyquant::gpu::AttentionSpec spec = specOf(op);
  spec.appended = op.getAppended();
  return spec;
}

/// Codes in the cache.
static easyquant::gpu::AttentionSpec quantizedSpecOf(equant::AttentionOp op) {
  easyquant::gpu::AttentionSpec spec = specOf(op);
  spec.kv = op.getKvScheme().toNumerics();
  if (op.getTable()) {
    spec.keyPositions = cast<RankedTensorType>(op.getTable().getType()).getDimSize(0);
    spec.rotatedDims = lm::rotatedDims(op.getTable());
  }
  return spec;
}

void GPULauncher::addHeads(KernelLibrary &library) const {
  library.add<lm::RopeOp>(
      [*this, copy = library.copy](auto &b, auto op, const KernelOps &kernel) -> LogicalResult {
        Arguments arguments(b);
        if (auto attention = kernel.find<lm::AttentionOp>()) {
          easyquant::gpu::AttentionSpec spec = floatSpecOf(attention);
          spec.appended = true;
          if (failed(arguments.setWeight("sink_logits", attention.getSinkLogits())))
            return failure();
          return this->attention(b, attention, spec, arguments, kernel);
        }
        if (auto attention = kernel.find<equant::AttentionOp>();
            attention && kernel.next<lm::RopeOp>()) {
          if (failed(arguments.setWeight("sink_logits", attention.getSinkLogits())))
            return failure();
          return this->attention(b, attention, quantizedSpecOf(attention), arguments, kernel);
        }
        if (failed(arguments.setWeight("table", op.getTable())))
          return failure();
        arguments.set("row_places", b.argument("row_places"));
        return heads(b, op, rotationOf(op), arguments, kernel, copy);
      });
  library.add<lm::HeadRmsNormOp>(
      [*this, copy = library.copy](auto &b, auto op, const KernelOps &kernel) -> LogicalResult {
        easyquant::gpu::HeadsSpec spec;
        spec.headDim = op.columnsOfHead();
        spec.heads = lm::columns(op.getInput()) / spec.headDim;
        spec.norm = true;
        spec.plainNorm = !op.getWeight();
        spec.epsilon = op.getEpsilon().convertToDouble();
        Arguments arguments(b);
        if (failed(arguments.setWeight("weight", op.getWeight())))
          return failure();
        return heads(b, op, spec, arguments, kernel, copy);
      });
  library.add<lm::AttentionOp>([*this](auto &b, auto op, const KernelOps &kernel) -> LogicalResult {
    Arguments arguments(b);
    if (failed(arguments.setWeight("sink_logits", op.getSinkLogits())))
      return failure();
    return attention(b, op, floatSpecOf(op), arguments, kernel);
  });
  // Sequences of such a step are one token shorter than their rows are far, so that these see what
  // is before them (DraftingLaunches): the last token that they see has a place in the window, too.
  library.add<lm::CachedAttentionOp>([*this](auto &b, auto op, const KernelOps &kernel) {
    easyquant::gpu::AttentionSpec spec;
    spec.heads = op.getNumHeads();
    spec.kvHeads = op.getNumKvHeads();
    spec.headDim = op.getHeadDim();
    spec.scale = op.getScale().convertToDouble();
    spec.window = op.getWindow() - (op.getWindow() > 0);
    spec.appended = true;
    Arguments arguments(b);
    return attention(b, op, spec, arguments, kernel);
  });
  library.add<equant::AttentionOp>(
      [*this](auto &b, auto op, const KernelOps &kernel) -> LogicalResult {
        Arguments arguments(b);
        if (failed(arguments.setWeight("table", op.getTable())) ||
            failed(arguments.setWeight("sink_logits", op.getSinkLogits())))
          return failure();
        return attention(b, op, quantizedSpecOf(op), arguments, kernel);
      });
  // The launches before the next call of a session that went back.
  library.addRestore<equant::AttentionOp>(
      [*this](auto &b, auto op, const KernelOps &) -> LogicalResult {
        easyquant::gpu::AttentionSpec spec = quantizedSpecOf(op);
        Arguments arguments(b);
        if (failed(addCache(b, arguments, spec, op)))
          return failure();
        return launch(b, op, getOrEmitRestore(kernels, spec), arguments, Phase::Attention);
      });
}
