//===- CPUKernels.cpp - The kernel library of CPUs ------------------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "CPULauncher.h"

using namespace mlir;
using namespace easyquant;

using numerics::WeightTensor;
using RowsPart = equant::RowsType::Part;

LogicalResult CPULauncher::launch(LaunchBuilder &b, Operation *op, func::FuncOp function,
                                  const cpu::Description &kernel, Arguments &arguments,
                                  Phase phase) const {
  FailureOr<SmallVector<Value>> operands = arguments.of(op, kernel);
  if (failed(operands) || failed(arguments.checkTaken(op, kernel)))
    return failure();
  LaunchBuilder::Access access = accessOf(function, kernel);
  access.meets = kernel.meets;
  for (auto [i, parameter] : llvm::enumerate(kernel.parameters))
    if (parameter.shared)
      access.shares.push_back(static_cast<int64_t>(i));
  b.launch(SymbolRefAttr::get(function.getSymNameAttr()), *operands, phase, access);
  return success();
}

//===----------------------------------------------------------------------===//
// Row-wise operations
//===----------------------------------------------------------------------===//

LogicalResult CPULauncher::rowOp(LaunchBuilder &b, const KernelOps &kernel, RowOp op,
                                 double constant, Arguments &arguments) const {
  cpu::RowSpec spec{op, lm::columns(rowsOf(kernel)), constant};
  auto quantize = kernel.find<equant::QuantizeRowsOp>();
  Operation *result = kernel.first();
  if (auto hadamard = kernel.find<equant::HadamardOp>()) {
    spec.hadamard = hadamard.getBlockAttr().getInt();
    result = hadamard;
  }
  if (!quantize) {
    arguments.set("y", b.result(result->getResult(0), b.rows(b[rowsOf(kernel)])));
    return launch(b, kernel.first(), cpu::getOrEmitRowOp, spec, arguments, Phase::Other);
  }
  if (!quantize.getScheme().isInteger())
    return quantize.emitOpError("no CPU kernel makes codes of ")
           << quantize.getScheme() << "; run equant-legalize-activations with target=cpu";
  if (!quantize.getRows().getType().getSums())
    return quantize.emitOpError("expected codes with their sums, which the kernels of a CPU "
                                "correct by: run equant-legalize-activations with target=cpu");
  if (failed(setQuantization(b, quantize, kernel, arguments)))
    return failure();
  describeQuantization(spec, quantize);
  spec.absMaxGiven = bool(quantize.getAbsmax());
  spec.scaleGroup = quantize.getScheme().getTokenGroup();
  if (auto scale = kernel.find<equant::OnlineScaleOp>()) {
    lm::StateType state = scale.getState().getType();
    spec.stateFields = state.getSites() * state.getFields();
    arguments.set("state", b[scale.getState()]);
    arguments.set("sequences", b[scale.getBatch()]);
  }
  return launch(b, kernel.first(), cpu::getOrEmitRowOp, spec, arguments, Phase::Quantize);
}

LogicalResult CPULauncher::advance(LaunchBuilder &b, equant::AdvanceOp op) const {
  Value extrema = b.extrema(op.getState());
  if (!extrema)
    return op.emitOpError("has a state of which no site is tracked");
  Arguments arguments(
      b, {{"extrema", extrema}, {"state", b[op.getState()]}, {"sequences", b[op.getBatch()]}});
  return launch(b, op, cpu::getOrEmitAdvance,
                {op.getState().getType().getSites(), static_cast<int64_t>(op.getWindow()),
                 op.getDecay().convertToDouble()},
                arguments, Phase::Quantize);
}

LogicalResult CPULauncher::copy(LaunchBuilder &b, Value from, Value to) const {
  Arguments arguments(b, {{"x", from}, {"y", to}});
  return launch(b, from.getParentRegion()->getParentOp(), cpu::getOrEmitRowOp,
                {cpu::RowOp::Copy, cast<MemRefType>(from.getType()).getDimSize(1)}, arguments,
                Phase::Other);
}

void CPULauncher::addRowOps(KernelLibrary &library) const {
  easyquant::addRowOps(
      library, [*this](LaunchBuilder &b, const KernelOps &kernel, RowOp op, double constant,
                       Arguments &arguments) { return rowOp(b, kernel, op, constant, arguments); });
  library.add<equant::AdvanceOp>(
      [*this](auto &b, auto op, const KernelOps &) { return advance(b, op); });
  library.add<equant::TokenAbsMaxOp>([*this](auto &b, auto op, const KernelOps &) {
    Arguments arguments(b, {{"x", b[op.getInput()]},
                            {"absmax", b.result(op.getAbsmax(), b.rows(b[op.getInput()]))}});
    return launch(b, op, cpu::getOrEmitTokenAbsMax, {lm::columns(op.getInput())}, arguments,
                  Phase::Quantize);
  });
  library.add<equant::TokenSquaresOp>([*this](auto &b, auto op, const KernelOps &) {
    Arguments arguments(b, {{"x", b[op.getInput()]},
                            {"squares", b.result(op.getSquares(), b.rows(b[op.getInput()]))}});
    return launch(b, op, cpu::getOrEmitTokenSquares, {lm::columns(op.getInput())}, arguments,
                  Phase::Attention);
  });
  library.add<equant::PartRmsNormOp>([*this](auto &b, auto op, const KernelOps &) -> LogicalResult {
    cpu::PartNormSpec spec{lm::columns(op.getInput()), static_cast<int64_t>(op.getColumns()),
                           op.getEpsilon().convertToDouble()};
    Arguments arguments(b, {{"x", b[op.getInput()]}, {"squares", b[op.getSquares()]}});
    if (failed(arguments.setWeight("weight", op.getWeight())))
      return failure();
    arguments.set("y", b.result(op.getOutput(), b.rows(b[op.getInput()])));
    return launch(b, op, cpu::getOrEmitPartNorm, spec, arguments, Phase::Attention);
  });
  library.add<lm::RowsOp>([*this](auto &b, auto op, const KernelOps &) {
    Arguments arguments(b, {{"numbers", b[op.getRows()]},
                            {"x", b[op.getInput()]},
                            {"y", b.result(op.getOutput(), b.rows(b[op.getRows()]))}});
    return launch(b, op, cpu::getOrEmitGather, {lm::columns(op.getInput())}, arguments,
                  Phase::Other);
  });
  library.add<lm::ConcatOp>([*this](auto &b, auto op, const KernelOps &) -> LogicalResult {
    Value output = b.result(op.getOutput(), b.rows(b[op.getInputs().front()]));
    int64_t column = 0;
    for (Value input : op.getInputs()) {
      int64_t count = lm::columns(input);
      if (failed(copy(b, b[input], b.columns(output, column, count))))
        return failure();
      column += count;
    }
    return success();
  });
  library.add<equant::FakeQuantizeOp>([*this](auto &b, auto op, const KernelOps &) {
    Arguments arguments(b, {{"x", b[op.getInput()]}});
    if (op.getScaleAttr())
      arguments.set("scale", b.constant(op.getScaleAttr()));
    arguments.set("y", b.result(op.getOutput(), b.rows(b[op.getInput()])));
    return launch(b, op, cpu::getOrEmitFakeQuantize,
                  {lm::columns(op.getInput()), op.getScheme().toNumerics().codes,
                   bool(op.getScaleAttr()), op.getScheme().getGroupSize()},
                  arguments, Phase::Quantize);
  });
}

//===----------------------------------------------------------------------===//
// Linears and embeddings
//===----------------------------------------------------------------------===//

LogicalResult CPULauncher::linear(LaunchBuilder &b, const KernelOps &kernel, cpu::LinearSpec spec,
                                  Arguments &arguments) const {
  Operation *op = kernel.first();
  spec.n = lm::columns(op->getResult(0));
  if (spec.experts && spec.weights != cpu::WeightFormat::F32 && spec.n % cpu::kPanelRows != 0)
    return op->emitOpError("of site '")
           << siteOf(op) << "' has experts of " << spec.n
           << " outputs; kernels read packed weights "
           << "of experts in panels of " << cpu::kPanelRows << ", so leave the site float";
  spec.accumulate = bool(kernel.next<lm::AddOp>());
  arguments.set("y", b.linearResult(kernel, b.rows(b[op->getOperand(0)])));
  arguments.set("scratch", b.scratch(cpu::scratchBytes(spec, target), /*perThread=*/true));
  return launch(b, op, cpu::getOrEmitLinear, spec, arguments, Phase::Gemm);
}

static LogicalResult checkFloats(Operation *op) {
  if (lm::isActivationType(op->getOperand(0).getType()))
    return success();
  return op->emitOpError("no kernel for activations of type ")
         << op->getOperand(0).getType() << "; a CPU multiplies f32 or int8 codes";
}

static LogicalResult checkPanels(Operation *op, equant::WeightType weight) {
  if (weight.getLayout() == equant::LayoutAttr::get(op->getContext(), numerics::kPanelLayout))
    return success();
  return op->emitOpError("expected weights packed in the CPU's panels: run "
                         "equant-materialize-weights first");
}

LogicalResult CPULauncher::linear(LaunchBuilder &b, const KernelOps &kernel,
                                  equant::PackedLinearOp op) const {
  equant::WeightType weight = op.getWeight().getType();
  equant::RowsType rows = op.getRows();
  if (failed(checkPanels(op, weight)) || (!rows && failed(checkFloats(op))))
    return failure();
  if (op.getInputScheme())
    return op.emitOpError("no kernel for activations as ")
           << *op.getInputScheme() << "; expected int8 codes, made by equant-legalize-activations";
  const numerics::Scheme scheme = weight.getScheme().toNumerics();
  cpu::LinearSpec spec;
  spec.k = weight.getColumns();
  spec.weights = cpu::WeightFormat(scheme.bits);
  spec.groupSize = scheme.groupSize;
  spec.fullRange = scheme.fullRange;
  spec.quantizedInput = bool(rows);
  spec.inputGroup = rows ? rows.getScheme().getTokenGroup() : 0;
  spec.bias = bool(op.getBias());
  spec.zeroPoints = scheme.hasZeroPoints();
  spec.inputZeroPoints = rows && !rows.getScheme().getSymmetric();
  spec.sums = !lm::isActivationType(op.getType());
  if (!spec.sums)
    spec.numbers = cpu::WeightNumbers::of(scheme);
  spec.experts = op.getExperts() ? lm::expertCount(op.getExperts()) : 0;
  Arguments arguments(b);
  if (op.getExperts())
    arguments.set("offsets", b[op.getExperts()]);
  if (rows)
    arguments.setCodes(op.getInput(), /*scales=*/!spec.sums);
  else
    arguments.set("x", b[op.getInput()]);
  auto parts = llvm::to_vector(ArrayRef(kWeightParts));
  if (spec.sums)
    parts = {WeightTensor::Codes, WeightTensor::ZeroPoints};
  if (spec.inputZeroPoints && !spec.inputGroup)
    parts.push_back(WeightTensor::Sums);
  if (failed(arguments.setWeight(op.getWeight(), parts)) ||
      failed(arguments.setWeight("bias", op.getBias())))
    return failure();
  return linear(b, kernel, spec, arguments);
}

LogicalResult CPULauncher::embedding(LaunchBuilder &b, Operation *op,
                                     const cpu::EmbeddingSpec &spec, Arguments &arguments) const {
  Value tokens = b[op->getOperand(0)];
  arguments.set("tokens", tokens);
  if (spec.sharded)
    arguments.set("rank", b.argument("rank"));
  arguments.set("y", b.result(op->getResult(0), b.rows(tokens)));
  return launch(b, op, cpu::getOrEmitEmbedding, spec, arguments, Phase::Other);
}

void CPULauncher::addLinears(KernelLibrary &library) const {
  library.add<lm::LinearOp>([*this](auto &b, auto op, const KernelOps &kernel) -> LogicalResult {
    if (failed(checkFloats(op)))
      return failure();
    cpu::LinearSpec spec;
    spec.k = lm::columns(op.getInput());
    spec.bias = bool(op.getBias());
    spec.experts = op.getExperts() ? lm::expertCount(op.getExperts()) : 0;
    Arguments arguments(b, {{"x", b[op.getInput()]}});
    if (op.getExperts())
      arguments.set("offsets", b[op.getExperts()]);
    if (failed(arguments.setWeight("w", op.getWeight())) ||
        failed(arguments.setWeight("bias", op.getBias())))
      return failure();
    return linear(b, kernel, spec, arguments);
  });
  library.add<equant::LinearOp>(
      [](auto &, auto op, const KernelOps &) { return checkPanels(op, op.getWeight().getType()); });
  library.add<equant::PackedLinearOp>(
      [*this](auto &b, auto op, const KernelOps &kernel) { return linear(b, kernel, op); });
  library.add<equant::RescaleOp>([*this](auto &b, auto op,
                                         const KernelOps &kernel) -> LogicalResult {
    equant::WeightType weight = op.getWeight().getType();
    if (failed(checkPanels(op, weight)))
      return failure();
    cpu::RescaleSpec spec;
    spec.n = weight.getRows();
    spec.numbers = cpu::WeightNumbers::of(weight.getScheme().toNumerics());
    spec.bias = bool(op.getBias());
    spec.accumulate = bool(kernel.template next<lm::AddOp>());
    Arguments arguments(
        b, {{"sums", b[op.getSums()]}, {"scales", b.part(op.getRows(), RowsPart::Scales)}});
    if (failed(arguments.setWeight(op.getWeight(), {WeightTensor::Scales, WeightTensor::Outer})) ||
        failed(arguments.setWeight("bias", op.getBias())))
      return failure();
    arguments.set("y", b.linearResult(kernel, b.rows(b[op.getSums()])));
    return launch(b, op, cpu::getOrEmitRescale, spec, arguments, Phase::Gemm);
  });
  library.add<lm::EmbeddingOp>([*this](auto &b, auto op, const KernelOps &) -> LogicalResult {
    auto table = cast<RankedTensorType>(op.getTable().getType());
    cpu::EmbeddingSpec spec{table.getDimSize(0), table.getDimSize(1)};
    spec.sharded = op.getSharded();
    spec.floats = table.getElementType().isF16()    ? numerics::ScaleFormat::F16
                  : table.getElementType().isBF16() ? numerics::ScaleFormat::BF16
                                                    : numerics::ScaleFormat::F32;
    Arguments arguments(b);
    if (failed(arguments.setWeight("w", op.getTable())))
      return failure();
    return embedding(b, op, spec, arguments);
  });
  library.add<equant::EmbeddingOp>([*this](auto &b, auto op, const KernelOps &) -> LogicalResult {
    equant::WeightType table = op.getTable().getType();
    if (failed(checkPanels(op, table)))
      return failure();
    const numerics::Scheme scheme = table.getScheme().toNumerics();
    cpu::EmbeddingSpec spec{
        table.getRows(),  table.getColumns(),     cpu::WeightFormat(scheme.bits),
        scheme.groupSize, scheme.hasZeroPoints(), cpu::WeightNumbers::of(scheme),
        op.getSharded()};
    Arguments arguments(b);
    if (failed(arguments.setWeight(op.getTable(), kWeightParts)))
      return failure();
    return embedding(b, op, spec, arguments);
  });
  library.add<lm::PositionEmbeddingOp>(
      [*this, copy = library.copy](auto &b, auto op, const KernelOps &) -> LogicalResult {
        auto type = cast<RankedTensorType>(op.getTable().getType());
        Arguments arguments(b);
        FailureOr<Value> rows = b.inPlace(op.getOutput(), op.getInput(), copy);
        if (failed(rows) || failed(arguments.setWeight("table", op.getTable())))
          return failure();
        arguments.set("y", *rows);
        arguments.set("sequences", b[op.getBatch()]);
        return launch(b, op, cpu::getOrEmitPositionEmbedding,
                      {type.getDimSize(0), type.getDimSize(1)}, arguments, Phase::Other);
      });
}

/// Routing is two launches: each row by itself, then all choices together.
void CPULauncher::addExperts(KernelLibrary &library) const {
  library.add<lm::RouteOp>([*this](auto &b, auto op, const KernelOps &) -> LogicalResult {
    const int64_t experts = lm::columns(op.getLogits()), chosen = op.getTopK();
    Value rows = b.rows(b[op.getLogits()]);
    Value places = b.result(op.getPlaces(), rows);
    Arguments choose(b, {{"logits", b[op.getLogits()]},
                         {"places", places},
                         {"weights", b.result(op.getWeights(), rows)}});
    cpu::ChooseExpertsSpec spec{experts, chosen, op.getRenormalize(), op.getSigmoid()};
    spec.bias = bool(op.getBias());
    spec.factors = bool(op.getFactors());
    spec.scale = op.getScale().convertToDouble();
    if (spec.bias)
      choose.set("scores", b.buffer(op.getLogits().getType(), rows));
    if (failed(choose.setWeight("bias", op.getBias())) ||
        failed(choose.setWeight("factors", op.getFactors())) ||
        failed(launch(b, op, cpu::getOrEmitChooseExperts, spec, choose, Phase::Other)))
      return failure();
    // Buffers have rows: one, of all offsets.
    auto offsets = RankedTensorType::get({ShapedType::kDynamic, experts + 1},
                                         op.getOffsets().getType().getElementType());
    b.setMemory(op.getOffsets(), b.buffer(offsets, b.index(1)));
    Arguments sort(b, {{"places", places},
                       {"order", b.result(op.getOrder(), b.timesRows(rows, chosen))},
                       {"offsets", b[op.getOffsets()]}});
    return launch(b, op, cpu::getOrEmitSortChoices, {experts, chosen}, sort, Phase::Other);
  });
  library.add<lm::CombineOp>([*this](auto &b, auto op, const KernelOps &) {
    Arguments arguments(b, {{"places", b[op.getPlaces()]},
                            {"weights", b[op.getWeights()]},
                            {"x", b[op.getInput()]},
                            {"y", b.result(op.getOutput(), b.rows(b[op.getPlaces()]))}});
    OperandRange shared = op.getShared();
    for (auto [name, operand] : llvm::zip(ArrayRef<StringRef>{"shared", "gate"}, shared))
      arguments.set(name, b[operand]);
    return launch(b, op, cpu::getOrEmitCombine,
                  {lm::columns(op.getInput()), lm::columns(op.getPlaces()), !shared.empty()},
                  arguments, Phase::Other);
  });
}

//===----------------------------------------------------------------------===//
// Heads and attention
//===----------------------------------------------------------------------===//

template <typename RopeLike>
LogicalResult CPULauncher::rope(LaunchBuilder &b, RopeLike op, bool inverse) const {
  int64_t headDim = op.getHeadDim();
  cpu::RopeSpec spec{lm::columns(op.getOutput()) / headDim, headDim,
                     cast<RankedTensorType>(op.getTable().getType()).getDimSize(0), inverse,
                     lm::rotatedDims(op.getTable())};
  FailureOr<Value> rows =
      b.inPlace(op.getOutput(), op->getOperand(0),
                [this](auto &b, Value from, Value to) { return copy(b, from, to); });
  Arguments arguments(b);
  if (failed(rows) || failed(arguments.setWeight("table", op.getTable())))
    return failure();
  arguments.set("x", *rows);
  arguments.set("sequences", b[op.getBatch()]);
  return launch(b, op, cpu::getOrEmitRope, spec, arguments, Phase::Attention);
}

/// Completes what `spec` and `arguments` say of rotations and codes, and launches the kernel.
template <typename AttentionLike>
LogicalResult CPULauncher::attention(LaunchBuilder &b, AttentionLike op, cpu::AttentionSpec spec,
                                     Arguments &arguments) const {
  spec.heads = op.getNumHeads();
  spec.kvHeads = op.getNumKvHeads();
  spec.headDim = op.getHeadDim();
  spec.scale = op.getScale().convertToDouble();
  spec.window = op.getWindow();
  spec.halfCache = halfCache;
  if constexpr (std::is_same_v<AttentionLike, lm::CachedAttentionOp>) {
    spec.window -= spec.window > 0; // of which the row's own place is one
  } else {
    spec.bound = op.getBound().convertToDouble();
    spec.sinkLogits = bool(op.getSinkLogits());
    if (failed(arguments.setWeight("sink_logits", op.getSinkLogits())))
      return failure();
  }
  auto place = b.placeInCache(op, spec, /*rotatesKeys=*/spec.kv && spec.kv->ropePositions > 0,
                              /*slide=*/true);
  if (failed(place))
    return failure();
  arguments.set("q", b[op.getQuery()]);
  if constexpr (!std::is_same_v<AttentionLike, lm::CachedAttentionOp>)
    if (!spec.appended) {
      arguments.set("k", b[op.getKey()]);
      arguments.set("v", b[op.getValue()]);
    }
  arguments.set("cache", b.cache(op.getCache(), 0));
  arguments.set("pages", b.argument(place->slides ? "sliding_pages" : "pages"));
  arguments.set("sequences", b[op.getBatch()]);
  arguments.set("layer", b.index(place->page));
  if (spec.kv) {
    arguments.set("window", b.index(place->window));
    arguments.set("windows", b.index(place->windows));
  }
  arguments.set("y", b.result(op.getOutput(), b.rows(b[op.getQuery()])));
  arguments.set("scratch", b.scratch(cpu::scratchBytes(spec, target), /*perThread=*/true));
  return launch(b, op, cpu::getOrEmitAttention, spec, arguments, Phase::Attention);
}

/// Over a float cache; perhaps fused with the rotation of queries and keys.
LogicalResult CPULauncher::attention(LaunchBuilder &b, lm::AttentionOp op,
                                     const KernelOps &kernel) const {
  cpu::AttentionSpec spec;
  spec.appended = op.getAppended();
  Arguments arguments(b);
  if (auto queries = dyn_cast<lm::RopeOp>(kernel.first())) {
    auto keys = cast<lm::RopeOp>(kernel.ops[1]);
    b.overwrite(queries.getOutput(), queries.getInput());
    b.overwrite(keys.getOutput(), keys.getInput());
    spec.positions = cast<RankedTensorType>(queries.getTable().getType()).getDimSize(0);
    spec.rotatedDims = lm::rotatedDims(queries.getTable());
    if (failed(arguments.setWeight("table", queries.getTable())))
      return failure();
  }
  return attention(b, op, spec, arguments);
}

/// Over what a float cache holds.
LogicalResult CPULauncher::attention(LaunchBuilder &b, lm::CachedAttentionOp op) const {
  cpu::AttentionSpec spec;
  spec.appended = spec.before = true;
  Arguments arguments(b);
  return attention(b, op, spec, arguments);
}

/// Over a cache of codes. A step of one token appends it and then attends. A step of more tokens
/// attends first.
LogicalResult CPULauncher::attention(LaunchBuilder &b, equant::AttentionOp op) const {
  cpu::AttentionSpec spec;
  equant::KVSchemeAttr scheme = op.getKvScheme();
  spec.kv = cpu::KVQuantization{static_cast<int>(scheme.getCode().getWidth()),
                                scheme.getGroup(),
                                scheme.getResidual(),
                                scheme.getSinks(),
                                scheme.getKeys() == equant::Granularity::Token,
                                /*ropePositions=*/0,
                                scheme.getHadamard()};
  Arguments arguments(b);
  if (op.getTable()) {
    spec.kv->ropePositions = cast<RankedTensorType>(op.getTable().getType()).getDimSize(0);
    spec.rotatedDims = lm::rotatedDims(op.getTable());
  }
  if (failed(arguments.setWeight("table", op.getTable())))
    return failure();
  return attention(b, op, spec, arguments);
}

void CPULauncher::addHeads(KernelLibrary &library) const {
  library.add<lm::RopeOp>([*this](auto &b, auto op, const KernelOps &kernel) {
    auto attention = kernel.find<lm::AttentionOp>();
    return attention ? this->attention(b, attention, kernel) : rope(b, op, /*inverse=*/false);
  });
  library.add<lm::HeadRmsNormOp>(
      [*this, copy = library.copy](auto &b, auto op, const KernelOps &) -> LogicalResult {
        const int64_t headDim = op.columnsOfHead();
        cpu::HeadNormSpec spec{lm::columns(op.getInput()) / headDim, headDim,
                               op.getEpsilon().convertToDouble(), bool(op.getWeight())};
        Arguments arguments(b);
        FailureOr<Value> rows = b.inPlace(op.getOutput(), op.getInput(), copy);
        if (failed(rows) || failed(arguments.setWeight("weight", op.getWeight())))
          return failure();
        arguments.set("x", *rows);
        return launch(b, op, cpu::getOrEmitHeadNorm, spec, arguments, Phase::Attention);
      });
  library.add<lm::Conv1dOp>([*this](auto &b, auto op, const KernelOps &) -> LogicalResult {
    const int64_t width = lm::columns(op.getWeight()),
                  values = static_cast<int64_t>(op.getState().getType().getValues());
    cpu::Conv1dSpec spec{lm::columns(op.getInput()), width, values, bool(op.getBias()),
                         op.getSilu()};
    Arguments arguments(
        b, {{"x", b[op.getInput()]}, {"state", b[op.getState()]}, {"sequences", b[op.getBatch()]}});
    if (failed(arguments.setWeight("w", op.getWeight())) ||
        failed(arguments.setWeight("bias", op.getBias())))
      return failure();
    arguments.set("first", b.index(static_cast<int64_t>(op.getFirst())));
    arguments.set("y", b.result(op.getOutput(), b.rows(b[op.getInput()])));
    return launch(b, op, cpu::getOrEmitConv1d, spec, arguments, Phase::Other);
  });
  library.add<lm::GatedDeltaOp>([*this](auto &b, auto op, const KernelOps &) -> LogicalResult {
    const auto keyHeads = static_cast<int64_t>(op.getKeyHeads()),
               valueHeads = static_cast<int64_t>(op.getValueHeads());
    cpu::GatedDeltaSpec spec{
        keyHeads,      lm::columns(op.getKey()) / keyHeads,
        valueHeads,    lm::columns(op.getValue()) / valueHeads,
        op.getTiled(), static_cast<int64_t>(op.getState().getType().getValues())};
    Arguments arguments(b, {{"q", b[op.getQuery()]},
                            {"k", b[op.getKey()]},
                            {"v", b[op.getValue()]},
                            {"decay", b[op.getDecay()]},
                            {"beta", b[op.getStrength()]},
                            {"state", b[op.getState()]},
                            {"sequences", b[op.getBatch()]}});
    if (failed(arguments.setWeight("log_rate", op.getLogRate())) ||
        failed(arguments.setWeight("bias", op.getBias())))
      return failure();
    arguments.set("first", b.index(static_cast<int64_t>(op.getFirst())));
    arguments.set("y", b.result(op.getOutput(), b.rows(b[op.getValue()])));
    return launch(b, op, cpu::getOrEmitGatedDelta, spec, arguments, Phase::Other);
  });
  library.add<lm::AttentionOp>(
      [*this](auto &b, auto op, const KernelOps &kernel) { return attention(b, op, kernel); });
  library.add<lm::CachedAttentionOp>(
      [*this](auto &b, auto op, const KernelOps &) { return attention(b, op); });
  library.add<equant::AttentionOp>(
      [*this](auto &b, auto op, const KernelOps &) { return attention(b, op); });
  library.add<lm::MaskClustersOp>(
      [*this, copy = library.copy](auto &b, auto op, const KernelOps &) -> LogicalResult {
        cpu::MaskClustersSpec spec{lm::columns(op.getLogits()), lm::columns(op.getScores()),
                                   static_cast<int64_t>(op.getTopK())};
        Arguments arguments(b, {{"scores", b[op.getScores()]}});
        FailureOr<Value> rows = b.inPlace(op.getOutput(), op.getLogits(), copy);
        if (failed(rows) || failed(arguments.setWeight("clusters", op.getClusters())))
          return failure();
        arguments.set("logits", *rows);
        return launch(b, op, cpu::getOrEmitMaskClusters, spec, arguments, Phase::Other);
      });
}

//===----------------------------------------------------------------------===//
// Gradients
//===----------------------------------------------------------------------===//

/// The op's operands, then its results in memory of their own, have these names.
LogicalResult CPULauncher::rowGradient(LaunchBuilder &b, Operation *op, cpu::RowGradientSpec spec,
                                       ArrayRef<StringRef> names) const {
  Value gradient = op->getOperand(0);
  spec.columns = lm::columns(gradient);
  Arguments arguments(b);
  for (auto [name, operand] : llvm::zip(names, op->getOperands())) {
    if (name != "weight")
      arguments.set(name, b[operand]);
    else if (failed(arguments.setWeight(name, operand)))
      return failure();
  }
  for (auto [name, result] :
       llvm::zip_equal(names.drop_front(op->getNumOperands()), op->getResults()))
    arguments.set(name, b.result(result, b.rows(b[gradient])));
  return launch(b, op, cpu::getOrEmitRowGradient, spec, arguments, Phase::Other);
}

void CPULauncher::addGradients(KernelLibrary &library) const {
  auto norm = [*this](LaunchBuilder &b, RowOp kind, auto op, int64_t width) {
    cpu::RowGradientSpec spec{kind, 0, width, op.getEpsilon().convertToDouble()};
    spec.weight = bool(op.getWeight());
    if (!spec.weight)
      return rowGradient(b, op, spec, {"dy", "x", "dx"});
    return rowGradient(b, op, spec, {"dy", "x", "weight", "dx"});
  };
  library.add<lm::RmsNormGradientOp>([norm](auto &b, auto op, const KernelOps &) {
    return norm(b, RowOp::RmsNorm, op, op.columnsOfHead());
  });
  library.add<lm::LayerNormGradientOp>([norm](auto &b, auto op, const KernelOps &) {
    return norm(b, RowOp::LayerNorm, op, lm::columns(op.getInput()));
  });
  library.add<lm::GluGradientOp>([*this](auto &b, auto op, const KernelOps &) {
    const RowOp kind = rowOpOf(op.getActivation());
    return rowGradient(b, op, {kind}, {"dy", "gate", "up", "dgate", "dup"});
  });
  library.add<lm::SoftCapGradientOp>([*this](auto &b, auto op, const KernelOps &) {
    return rowGradient(b, op, {RowOp::SoftCap, 0, 0, op.getBound().convertToDouble()},
                       {"dy", "x", "dx"});
  });
  library.add<lm::GeluGradientOp>([*this](auto &b, auto op, const KernelOps &) {
    bool tanh = op.getApproximate() == lm::GeluApproximation::Tanh;
    return rowGradient(b, op, {tanh ? RowOp::GeluTanh : RowOp::GeluErf}, {"dy", "x", "dx"});
  });
  library.add<lm::RopeGradientOp>(
      [*this](auto &b, auto op, const KernelOps &) { return rope(b, op, /*inverse=*/true); });
}

KernelLibrary easyquant::cpuKernels(ModuleOp module, const cpu::Target &target, bool halfCache) {
  CPULauncher launcher{module, target, halfCache};
  KernelLibrary library;
  library.copy = [launcher](LaunchBuilder &b, Value from, Value to) {
    return launcher.copy(b, from, to);
  };
  library.missing = "has no kernel, nor has any op outside of lm and equant";
  launcher.addRowOps(library);
  launcher.addLinears(library);
  launcher.addExperts(library);
  launcher.addHeads(library);
  launcher.addGradients(library);
  return library;
}
