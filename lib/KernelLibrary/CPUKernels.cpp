//===- CPUKernels.cpp - The kernel library of CPUs ------------------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "easyquant/KernelLibrary/KernelLibrary.h"

#include "easyquant/Codegen/CPU/HeadNorm.h"
#include "easyquant/Codegen/CPU/RowGradients.h"
#include "easyquant/Dialect/Equant/IR/TensorParallel.h"

using namespace mlir;
using namespace easyquant;

using Operands = SmallVector<Value>;
using numerics::WeightTensor;
using RowsPart = equant::RowsType::Part;

namespace {

/// Launches kernels of one module and target.
struct CPULauncher {
  ModuleOp module;
  cpu::Target target;
  bool halfCache;

  FailureOr<Value> weight(LaunchBuilder &b, Value value) const {
    return b.weight(value, equant::kOffsetAttr);
  }
  /// Where rows and then constants lie, without those that are not there.
  FailureOr<Operands> operandsOf(LaunchBuilder &b, ArrayRef<Value> rows,
                                 ArrayRef<Value> constants) const {
    Operands operands;
    for (Value value : rows)
      if (value)
        operands.push_back(b[value]);
    if (failed(addWeights(b, operands, constants)))
      return failure();
    return operands;
  }
  /// Adds those parts of a packed weight that there are.
  LogicalResult addParts(LaunchBuilder &b, Operands &operands, Value weight,
                         ArrayRef<WeightTensor> parts) const {
    for (WeightTensor part : parts) {
      FailureOr<Value> memory = b.weight(weight, part);
      if (failed(memory))
        return failure();
      if (*memory)
        operands.push_back(*memory);
    }
    return success();
  }
  LogicalResult addWeights(LaunchBuilder &b, Operands &operands, ArrayRef<Value> values) const {
    for (Value value : values) {
      if (!value)
        continue;
      FailureOr<Value> memory = weight(b, value);
      if (failed(memory))
        return failure();
      operands.push_back(*memory);
    }
    return success();
  }
  LogicalResult launch(LaunchBuilder &b, func::FuncOp kernel, ValueRange operands, Phase phase,
                       const LaunchBuilder::Sharing &sharing) const {
    b.launch(SymbolRefAttr::get(kernel.getSymNameAttr()), operands, phase, sharing);
    return success();
  }
  /// Launches a kernel over rows.
  LogicalResult launchRows(LaunchBuilder &b, func::FuncOp kernel, ValueRange operands,
                           Phase phase) const {
    LaunchBuilder::Sharing sharing;
    for (auto [i, operand] : llvm::enumerate(operands))
      if (isa<MemRefType>(operand.getType()))
        sharing.operands.push_back(static_cast<int64_t>(i));
    return launch(b, kernel, operands, phase, sharing);
  }

  LogicalResult copy(LaunchBuilder &b, Value from, Value to) const;
  LogicalResult advance(LaunchBuilder &b, equant::AdvanceOp op) const;
  LogicalResult rowOp(LaunchBuilder &b, const KernelOps &kernel, cpu::RowSpec spec,
                      ArrayRef<Value> inputs, ArrayRef<Value> weights = {}) const;
  LogicalResult linear(LaunchBuilder &b, const KernelOps &kernel, cpu::LinearSpec spec,
                       Operands operands) const;
  LogicalResult linear(LaunchBuilder &b, const KernelOps &kernel, equant::PackedLinearOp op) const;
  LogicalResult embedding(LaunchBuilder &b, Operation *op, const cpu::EmbeddingSpec &spec,
                          Operands operands) const;
  template <typename RopeLike>
  LogicalResult rope(LaunchBuilder &b, RopeLike op, bool inverse) const;
  LogicalResult rowGradient(LaunchBuilder &b, Operation *op, cpu::RowGradientSpec spec,
                            ArrayRef<Value> inputs, ArrayRef<Value> weights = {}) const;
  template <typename AttentionLike> cpu::AttentionSpec attentionSpec(AttentionLike op) const;
  LogicalResult attention(LaunchBuilder &b, lm::AttentionOp op, const KernelOps &kernel) const;
  LogicalResult attention(LaunchBuilder &b, equant::AttentionOp op) const;

  void addRowOps(KernelLibrary &library) const;
  void addLinears(KernelLibrary &library) const;
  void addHeads(KernelLibrary &library) const;
  void addGradients(KernelLibrary &library) const;
};

} // namespace

//===----------------------------------------------------------------------===//
// Row-wise operations
//===----------------------------------------------------------------------===//

/// Makes a row operation write codes: its arguments for them, and where they go.
static LogicalResult addQuantization(LaunchBuilder &b, cpu::RowSpec &spec,
                                     equant::QuantizeRowsOp op, const KernelOps &kernel, Value rows,
                                     Operands &operands) {
  if (failed(checkOnline(op, kernel)))
    return failure();
  auto scale = kernel.find<equant::OnlineScaleOp>();
  auto track = kernel.find<equant::TrackOp>();
  spec.quantization = scale               ? cpu::RowQuantization::Online
                      : op.getScaleAttr() ? cpu::RowQuantization::Static
                                          : cpu::RowQuantization::Dynamic;
  equant::RowsType type = op.getRows().getType();
  if (!type.getSums())
    return op.emitOpError("expected codes with their sums, which the kernels of a CPU correct by: "
                          "run equant-legalize-activations with target=cpu");
  spec.groupSize = *type.getSums();
  spec.zeroPoints = bool(type.getPart(RowsPart::ZeroPoints));
  spec.absMaxGiven = bool(op.getAbsmax());
  spec.fullRange = op.getScaleAttr() && op.getScheme().getFullRange();
  spec.sinks = op.getScheme().getSinks();
  if (op.getAbsmax())
    operands.push_back(b[op.getAbsmax()]);
  if (op.getScaleAttr())
    operands.push_back(b.constant(op.getScaleAttr()));
  if (op.getZeroPointAttr())
    operands.push_back(b.constant(op.getZeroPointAttr()));
  lm::StateType state = scale ? scale.getState().getType() : lm::StateType();
  if (scale) {
    spec.stateFields = state.getSites() * state.getFields();
    operands.append({b[scale.getState()], b[scale.getBatch()],
                     b.index(static_cast<int64_t>(scale.getIndex()) * state.getFields())});
  }
  for (RowsPart part : {RowsPart::Codes, RowsPart::Scales, RowsPart::Sums, RowsPart::ZeroPoints})
    if (Value memory = b.result(op.getRows(), part, rows))
      operands.push_back(memory);
  if (!scale)
    return success();
  Value extrema = b.extrema(track.getState(), rows);
  if (!extrema)
    return track.emitOpError("has a state of other sites than those before it");
  operands.push_back(b.columns(extrema, 2 * static_cast<int64_t>(track.getIndex()), 2));
  return success();
}

LogicalResult CPULauncher::rowOp(LaunchBuilder &b, const KernelOps &kernel, cpu::RowSpec spec,
                                 ArrayRef<Value> inputs, ArrayRef<Value> weights) const {
  Value output = kernel.first()->getResult(0);
  spec.columns = lm::columns(inputs.front());
  FailureOr<Operands> operands = operandsOf(b, inputs, weights);
  if (failed(operands))
    return failure();
  Value rows = b.rows(operands->front());
  Phase phase = Phase::Other;
  if (auto quantize = kernel.find<equant::QuantizeRowsOp>()) {
    phase = Phase::Quantize;
    if (failed(addQuantization(b, spec, quantize, kernel, rows, *operands)))
      return failure();
  } else {
    operands->push_back(b.result(output, rows));
  }
  return launchRows(b, cpu::getOrEmitRowOp(module, spec, target), *operands, phase);
}

LogicalResult CPULauncher::advance(LaunchBuilder &b, equant::AdvanceOp op) const {
  Value extrema = b.extrema(op.getState());
  if (!extrema)
    return op.emitOpError("has a state of which no site is tracked");
  cpu::AdvanceSpec spec{op.getState().getType().getSites(), static_cast<int64_t>(op.getWindow()),
                        op.getDecay().convertToDouble()};
  return launch(b, cpu::getOrEmitAdvance(module, spec, target),
                {extrema, b.change(op.getState()), b[op.getBatch()]}, Phase::Quantize, {});
}

LogicalResult CPULauncher::copy(LaunchBuilder &b, Value from, Value to) const {
  cpu::RowSpec spec{cpu::RowOp::Copy, cast<MemRefType>(from.getType()).getDimSize(1)};
  return launchRows(b, cpu::getOrEmitRowOp(module, spec, target), {from, to}, Phase::Other);
}

void CPULauncher::addRowOps(KernelLibrary &library) const {
  using cpu::RowOp;
  library.add<equant::QuantizeRowsOp>([*this](auto &b, auto op, const KernelOps &kernel) {
    return rowOp(b, kernel, {RowOp::Quantize}, {op.getInput()});
  });
  library.add<equant::OnlineScaleOp>([*this](auto &b, auto op, const KernelOps &kernel) {
    auto quantize = kernel.find<equant::QuantizeRowsOp>();
    if (!quantize || quantize.getInput().getParentBlock() == op->getBlock())
      return LogicalResult(op.emitOpError("expected to be fused with a quantization of rows that "
                                          "another kernel has made"));
    return rowOp(b, kernel, {RowOp::Quantize}, {quantize.getInput()});
  });
  library.add<equant::AdvanceOp>(
      [*this](auto &b, auto op, const KernelOps &) { return advance(b, op); });
  library.add<equant::TokenAbsMaxOp>([*this](auto &b, auto op, const KernelOps &) {
    Value rows = b[op.getInput()];
    return launchRows(b, cpu::getOrEmitTokenAbsMax(module, {lm::columns(op.getInput())}, target),
                      {rows, b.result(op.getAbsmax(), b.rows(rows))}, Phase::Quantize);
  });
  library.add<lm::RmsNormOp>([*this](auto &b, auto op, const KernelOps &kernel) {
    return rowOp(b, kernel, {RowOp::RmsNorm, 0, op.getEpsilon().convertToDouble()}, {op.getInput()},
                 {op.getWeight()});
  });
  library.add<lm::LayerNormOp>([*this](auto &b, auto op, const KernelOps &kernel) {
    return rowOp(b, kernel, {RowOp::LayerNorm, 0, op.getEpsilon().convertToDouble()},
                 {op.getInput()}, {op.getWeight(), op.getBias()});
  });
  library.add<lm::SiluMulOp>([*this](auto &b, auto op, const KernelOps &kernel) {
    return rowOp(b, kernel, {RowOp::SiluMul}, {op.getGate(), op.getUp()});
  });
  library.add<lm::GeluOp>([*this](auto &b, auto op, const KernelOps &kernel) {
    bool tanh = op.getApproximate() == lm::GeluApproximation::Tanh;
    return rowOp(b, kernel, {tanh ? RowOp::GeluTanh : RowOp::GeluErf}, {op.getInput()});
  });
  library.add<lm::AddOp>([*this](auto &b, auto op, const KernelOps &kernel) {
    return rowOp(b, kernel, {RowOp::Add}, {op.getLhs(), op.getRhs()});
  });
  library.add<lm::RowsOp>([*this](auto &b, auto op, const KernelOps &) {
    Value numbers = b[op.getRows()];
    Operands operands = {numbers, b[op.getInput()], b.result(op.getOutput(), b.rows(numbers))};
    // Any thread may have made the rows that it reads.
    return launch(b, cpu::getOrEmitGather(module, {lm::columns(op.getInput())}, target), operands,
                  Phase::Other, {{2}});
  });
  library.add<equant::FakeQuantizeOp>([*this](auto &b, auto op, const KernelOps &) {
    cpu::FakeQuantizeSpec spec{lm::columns(op.getInput()), op.getScheme().toNumerics().codes,
                               bool(op.getScaleAttr()), op.getScheme().getGroupSize()};
    Operands operands = {b[op.getInput()]};
    if (spec.isStatic)
      operands.push_back(b.constant(op.getScaleAttr()));
    operands.push_back(b.result(op.getOutput(), b.rows(operands.front())));
    return launchRows(b, cpu::getOrEmitFakeQuantize(module, spec, target), operands,
                      Phase::Quantize);
  });
}

//===----------------------------------------------------------------------===//
// Linears and embeddings
//===----------------------------------------------------------------------===//

LogicalResult CPULauncher::linear(LaunchBuilder &b, const KernelOps &kernel, cpu::LinearSpec spec,
                                  Operands operands) const {
  spec.n = lm::columns(kernel.first()->getResult(0));
  spec.accumulate = bool(kernel.next<lm::AddOp>());
  operands.push_back(b.linearResult(kernel, b.rows(operands.front())));
  operands.push_back(b.scratch(cpu::scratchBytes(spec, target), /*perThread=*/true));
  auto scratch = static_cast<int64_t>(operands.size()) - 1;
  return launch(b, cpu::getOrEmitLinear(module, spec, target), operands, Phase::Gemm, {{scratch}});
}

static LogicalResult checkFloats(Operation *op) {
  if (lm::isActivationType(op->getOperand(0).getType()))
    return success();
  return op->emitOpError("no kernel for activations of type ")
         << op->getOperand(0).getType() << "; a CPU multiplies f32 or int8 codes";
}

static LogicalResult checkPanels(Operation *op, equant::WeightType weight) {
  if (weight.getLayout() == equant::LayoutAttr::panel(op->getContext()))
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
  spec.weights = cpu::formatOfBits(scheme.bits);
  spec.groupSize = scheme.groupSize;
  spec.fullRange = scheme.fullRange;
  spec.quantizedInput = bool(rows);
  spec.bias = bool(op.getBias());
  spec.zeroPoints = !scheme.symmetric;
  spec.inputZeroPoints = rows && !rows.getScheme().getSymmetric();
  spec.sums = !lm::isActivationType(op.getType());
  if (!spec.sums)
    spec.numbers = cpu::WeightNumbers::of(scheme);
  Operands operands = {b[op.getInput()]};
  for (RowsPart part : {RowsPart::Scales, RowsPart::Sums, RowsPart::ZeroPoints})
    if (Value memory = b.part(op.getInput(), part);
        memory && !(spec.sums && part == RowsPart::Scales))
      operands.push_back(memory);
  SmallVector<WeightTensor> parts = {WeightTensor::Codes, WeightTensor::Scales,
                                     WeightTensor::ZeroPoints, WeightTensor::Outer,
                                     WeightTensor::Codebook};
  if (spec.sums)
    parts = {WeightTensor::Codes, WeightTensor::ZeroPoints};
  if (spec.inputZeroPoints)
    parts.push_back(WeightTensor::Sums);
  if (failed(addParts(b, operands, op.getWeight(), parts)) ||
      failed(addWeights(b, operands, {op.getBias()})))
    return failure();
  return linear(b, kernel, spec, std::move(operands));
}

LogicalResult CPULauncher::embedding(LaunchBuilder &b, Operation *op,
                                     const cpu::EmbeddingSpec &spec, Operands operands) const {
  Value rows = b.rows(operands.front());
  if (spec.sharded)
    operands.push_back(b.argument("rank"));
  operands.push_back(b.result(op->getResult(0), rows));
  return launchRows(b, cpu::getOrEmitEmbedding(module, spec, target), operands, Phase::Other);
}

void CPULauncher::addLinears(KernelLibrary &library) const {
  library.add<lm::LinearOp>([*this](auto &b, auto op, const KernelOps &kernel) -> LogicalResult {
    if (failed(checkFloats(op)))
      return failure();
    cpu::LinearSpec spec;
    spec.k = lm::columns(op.getInput());
    spec.bias = bool(op.getBias());
    FailureOr<Operands> operands = operandsOf(b, {op.getInput()}, {op.getWeight(), op.getBias()});
    return failed(operands) ? failure() : linear(b, kernel, spec, std::move(*operands));
  });
  library.add<equant::LinearOp>(
      [](auto &, auto op, const KernelOps &) { return checkPanels(op, op.getWeight().getType()); });
  library.add<equant::PackedLinearOp>(
      [*this](auto &b, auto op, const KernelOps &kernel) { return linear(b, kernel, op); });
  library.add<equant::RescaleOp>(
      [*this](auto &b, auto op, const KernelOps &kernel) -> LogicalResult {
        equant::WeightType weight = op.getWeight().getType();
        if (failed(checkPanels(op, weight)))
          return failure();
        cpu::RescaleSpec spec;
        spec.n = weight.getRows();
        spec.numbers = cpu::WeightNumbers::of(weight.getScheme().toNumerics());
        spec.bias = bool(op.getBias());
        spec.accumulate = bool(kernel.template next<lm::AddOp>());
        Operands operands = {b[op.getSums()], b.part(op.getRows(), RowsPart::Scales)};
        if (failed(addParts(b, operands, op.getWeight(),
                            {WeightTensor::Scales, WeightTensor::Outer})) ||
            failed(addWeights(b, operands, {op.getBias()})))
          return failure();
        operands.push_back(b.linearResult(kernel, b.rows(operands.front())));
        return launchRows(b, cpu::getOrEmitRescale(module, spec, target), operands, Phase::Gemm);
      });
  library.add<lm::EmbeddingOp>([*this](auto &b, auto op, const KernelOps &) -> LogicalResult {
    auto table = cast<RankedTensorType>(op.getTable().getType());
    cpu::EmbeddingSpec spec{table.getDimSize(0), table.getDimSize(1)};
    spec.sharded = op.getSharded();
    FailureOr<Operands> operands = operandsOf(b, {op.getTokens()}, {op.getTable()});
    return failed(operands) ? failure() : embedding(b, op, spec, std::move(*operands));
  });
  library.add<equant::EmbeddingOp>([*this](auto &b, auto op, const KernelOps &) -> LogicalResult {
    equant::WeightType table = op.getTable().getType();
    if (failed(checkPanels(op, table)))
      return failure();
    const numerics::Scheme scheme = table.getScheme().toNumerics();
    cpu::EmbeddingSpec spec{table.getRows(),  table.getColumns(), cpu::formatOfBits(scheme.bits),
                            scheme.groupSize, !scheme.symmetric,  cpu::WeightNumbers::of(scheme),
                            op.getSharded()};
    Operands operands = {b[op.getTokens()]};
    if (failed(addParts(b, operands, op.getTable(),
                        {WeightTensor::Codes, WeightTensor::Scales, WeightTensor::ZeroPoints,
                         WeightTensor::Outer, WeightTensor::Codebook})))
      return failure();
    return embedding(b, op, spec, std::move(operands));
  });
  library.add<lm::PositionEmbeddingOp>(
      [*this, copy = library.copy](auto &b, auto op, const KernelOps &) -> LogicalResult {
        auto type = cast<RankedTensorType>(op.getTable().getType());
        FailureOr<Value> table = weight(b, op.getTable());
        FailureOr<Value> rows = b.inPlace(op.getOutput(), op.getInput(), copy);
        if (failed(table) || failed(rows))
          return failure();
        cpu::PositionEmbeddingSpec spec{type.getDimSize(0), type.getDimSize(1)};
        return launchRows(b, cpu::getOrEmitPositionEmbedding(module, spec, target),
                          {*rows, *table, b[op.getBatch()]}, Phase::Other);
      });
}

//===----------------------------------------------------------------------===//
// Heads and attention
//===----------------------------------------------------------------------===//

template <typename RopeLike>
LogicalResult CPULauncher::rope(LaunchBuilder &b, RopeLike op, bool inverse) const {
  int64_t headDim = op.getHeadDim();
  cpu::RopeSpec spec{lm::columns(op.getOutput()) / headDim, headDim,
                     cast<RankedTensorType>(op.getTable().getType()).getDimSize(0), inverse};
  FailureOr<Value> table = weight(b, op.getTable());
  FailureOr<Value> rows =
      b.inPlace(op.getOutput(), op->getOperand(0),
                [this](auto &b, Value from, Value to) { return copy(b, from, to); });
  if (failed(table) || failed(rows))
    return failure();
  return launchRows(b, cpu::getOrEmitRope(module, spec, target), {*rows, *table, b[op.getBatch()]},
                    Phase::Attention);
}

template <typename AttentionLike>
cpu::AttentionSpec CPULauncher::attentionSpec(AttentionLike op) const {
  cpu::AttentionSpec spec;
  spec.heads = op.getNumHeads();
  spec.kvHeads = op.getNumKvHeads();
  spec.headDim = op.getHeadDim();
  spec.scale = op.getScale().convertToDouble();
  spec.window = op.getWindow();
  spec.halfCache = halfCache;
  spec.ranks = equant::degreeOf(module);
  return spec;
}

LogicalResult CPULauncher::attention(LaunchBuilder &b, lm::AttentionOp op,
                                     const KernelOps &kernel) const {
  cpu::AttentionSpec spec = attentionSpec(op);
  Operands table;
  if (auto queries = dyn_cast<lm::RopeOp>(kernel.first())) {
    auto keys = cast<lm::RopeOp>(kernel.ops[1]);
    b.overwrite(queries.getOutput(), queries.getInput());
    b.overwrite(keys.getOutput(), keys.getInput());
    spec.positions = cast<RankedTensorType>(queries.getTable().getType()).getDimSize(0);
    if (failed(addWeights(b, table, {queries.getTable()})))
      return failure();
  }
  cpu::CacheBytes bytes = cpu::cacheBytes(spec);
  if (failed(b.setCache(op, {bytes.pageTokens, bytes.page, bytes.window}, /*rotatesKeys=*/false)))
    return failure();
  Value query = b[op.getQuery()];
  Operands operands = {query,
                       b[op.getKey()],
                       b[op.getValue()],
                       b.cache(op.getCache(), 0),
                       b.argument("pages"),
                       b[op.getBatch()],
                       b.index(static_cast<int64_t>(op.getLayer()) * bytes.page)};
  operands.append(table);
  operands.push_back(b.result(op.getOutput(), b.rows(query)));
  operands.push_back(b.scratch(cpu::scratchBytes(spec, target), /*perThread=*/true));
  // Rows are rotated and appended one by one; behind its barrier it attends.
  LaunchBuilder::Sharing sharing{{1, 2}, /*meets=*/true};
  if (spec.positions > 0)
    sharing.operands.insert(sharing.operands.begin(), 0);
  return launch(b, cpu::getOrEmitAttention(module, spec, target), operands, Phase::Attention,
                sharing);
}

LogicalResult CPULauncher::attention(LaunchBuilder &b, equant::AttentionOp op) const {
  cpu::AttentionSpec spec = attentionSpec(op);
  equant::KVSchemeAttr scheme = op.getKvScheme();
  spec.kv = cpu::KVQuantization{static_cast<int>(scheme.getCode().getWidth()), scheme.getGroup(),
                                scheme.getResidual(), scheme.getSinks(),
                                scheme.getKeys() == equant::Granularity::Token};
  if (op.getTable())
    spec.kv->ropePositions = cast<RankedTensorType>(op.getTable().getType()).getDimSize(0);
  cpu::CacheBytes bytes = cpu::cacheBytes(spec);
  if (failed(b.setCache(op, {bytes.pageTokens, bytes.page, bytes.window}, bool(op.getTable()))))
    return failure();
  auto layer = static_cast<int64_t>(op.getLayer());
  Value query = b[op.getQuery()];
  Operands operands = {
      query,
      b[op.getKey()],
      b[op.getValue()],
      b.cache(op.getCache(), 0),
      b.argument("pages"),
      b[op.getBatch()],
      b.index(layer * bytes.page),
      b.index(layer * bytes.window),
      b.index(static_cast<int64_t>(op.getCache().getType().getLayers()) * bytes.window)};
  if (failed(addWeights(b, operands, {op.getTable()})))
    return failure();
  operands.push_back(b.result(op.getOutput(), b.rows(query)));
  operands.push_back(b.scratch(cpu::scratchBytes(spec, target), /*perThread=*/true));
  // A step of one token appends it and then attends. A step of more tokens attends first.
  return launch(b, cpu::getOrEmitAttention(module, spec, target), operands, Phase::Attention, {});
}

void CPULauncher::addHeads(KernelLibrary &library) const {
  library.add<lm::RopeOp>([*this](auto &b, auto op, const KernelOps &kernel) {
    auto attention = kernel.find<lm::AttentionOp>();
    return attention ? this->attention(b, attention, kernel) : rope(b, op, /*inverse=*/false);
  });
  library.add<lm::HeadRmsNormOp>(
      [*this, copy = library.copy](auto &b, auto op, const KernelOps &) -> LogicalResult {
        int64_t headDim = cast<RankedTensorType>(op.getWeight().getType()).getDimSize(0);
        cpu::HeadNormSpec spec{lm::columns(op.getInput()) / headDim, headDim,
                               op.getEpsilon().convertToDouble()};
        FailureOr<Value> norm = weight(b, op.getWeight());
        FailureOr<Value> rows = b.inPlace(op.getOutput(), op.getInput(), copy);
        if (failed(norm) || failed(rows))
          return failure();
        return launchRows(b, cpu::getOrEmitHeadNorm(module, spec, target), {*rows, *norm},
                          Phase::Attention);
      });
  library.add<lm::AttentionOp>(
      [*this](auto &b, auto op, const KernelOps &kernel) { return attention(b, op, kernel); });
  library.add<equant::AttentionOp>(
      [*this](auto &b, auto op, const KernelOps &) { return attention(b, op); });
}

//===----------------------------------------------------------------------===//
// Gradients
//===----------------------------------------------------------------------===//

/// Operands, then the results in memory of their own.
LogicalResult CPULauncher::rowGradient(LaunchBuilder &b, Operation *op, cpu::RowGradientSpec spec,
                                       ArrayRef<Value> inputs, ArrayRef<Value> weights) const {
  spec.columns = lm::columns(inputs.front());
  FailureOr<Operands> operands = operandsOf(b, inputs, weights);
  if (failed(operands))
    return failure();
  Value rows = b.rows(operands->front());
  for (Value result : op->getResults())
    operands->push_back(b.result(result, rows));
  return launchRows(b, cpu::getOrEmitRowGradient(module, spec, target), *operands, Phase::Other);
}

void CPULauncher::addGradients(KernelLibrary &library) const {
  using cpu::RowGradient;
  library.add<lm::RmsNormGradientOp>([*this](auto &b, auto op, const KernelOps &) {
    auto weight = cast<RankedTensorType>(op.getWeight().getType());
    return rowGradient(
        b, op, {RowGradient::RmsNorm, 0, weight.getDimSize(0), op.getEpsilon().convertToDouble()},
        {op.getGradient(), op.getInput()}, {op.getWeight()});
  });
  library.add<lm::LayerNormGradientOp>([*this](auto &b, auto op, const KernelOps &) {
    return rowGradient(
        b, op,
        {RowGradient::LayerNorm, 0, lm::columns(op.getInput()), op.getEpsilon().convertToDouble()},
        {op.getGradient(), op.getInput()}, {op.getWeight()});
  });
  library.add<lm::SiluMulGradientOp>([*this](auto &b, auto op, const KernelOps &) {
    return rowGradient(b, op, {RowGradient::SiluMul}, {op.getGradient(), op.getGate(), op.getUp()});
  });
  library.add<lm::GeluGradientOp>([*this](auto &b, auto op, const KernelOps &) {
    bool tanh = op.getApproximate() == lm::GeluApproximation::Tanh;
    return rowGradient(b, op, {tanh ? RowGradient::GeluTanh : RowGradient::GeluErf},
                       {op.getGradient(), op.getInput()});
  });
  library.add<lm::RopeGradientOp>(
      [*this](auto &b, auto op, const KernelOps &) { return rope(b, op, /*inverse=*/true); });
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
  launcher.addHeads(library);
  launcher.addGradients(library);
  return library;
}
