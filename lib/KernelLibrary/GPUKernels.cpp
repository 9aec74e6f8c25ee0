//===- GPUKernels.cpp - The kernel library of GPUs ------------------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "GPULauncher.h"

#include "easyquant/Codegen/GPU/MaskClusters.h"
#include "easyquant/Dialect/LM/Analysis/ExpertWeights.h"
#include "easyquant/Numerics/FragmentPacking.h"
#include "easyquant/Weights/TargetModules.h"

#include "mlir/Dialect/Arith/IR/Arith.h"

#include <numeric>

using namespace mlir;
using namespace easyquant;
using numerics::FragmentOrder;
using numerics::WeightTensor;
using RowsPart = equant::RowsType::Part;

LogicalResult GPULauncher::launch(LaunchBuilder &b, Operation *op,
                                  const easyquant::gpu::Description &kernel, Arguments &arguments,
                                  Phase phase, std::optional<RowRange> rows) const {
  FailureOr<SmallVector<Value>> operands = arguments.of(op, kernel);
  if (failed(operands))
    return failure();
  // What a writer of the launch list has to know of the kernel.
  Operation *function = mlir::SymbolTable::lookupSymbolIn(kernels, kernel.name);
  Builder builder(b.context());
  SmallVector<int64_t> grid;
  for (const easyquant::gpu::Extent &extent : kernel.grid)
    grid.append({extent.factor, extent.rowsPerBlock});
  function->setAttr(launch::kGridAttr, builder.getDenseI64ArrayAttr(grid));
  function->setAttr(launch::kThreadsAttr, builder.getI64IntegerAttr(kernel.threads));
  function->setAttr(launch::kSharedBytesAttr, builder.getI64IntegerAttr(kernel.sharedBytes));
  b.launch(SymbolRefAttr::get(b.context(), launch::kKernels,
                              FlatSymbolRefAttr::get(b.context(), kernel.name)),
           *operands, phase, accessOf(function, kernel), rows);
  return success();
}

//===----------------------------------------------------------------------===//
// Row-wise operations
//===----------------------------------------------------------------------===//

LogicalResult GPULauncher::copy(LaunchBuilder &b, Value from, Value to) const {
  easyquant::gpu::RowSpec spec;
  spec.op = easyquant::gpu::RowOp::Copy;
  spec.columns = cast<MemRefType>(from.getType()).getDimSize(1);
  Arguments arguments(b, {{"x", from}, {"y", to}});
  return launch(b, from.getParentRegion()->getParentOp(), getOrEmit(kernels, spec, chip), arguments,
                Phase::Other);
}

easyquant::gpu::RowSpec GPULauncher::codesOf(equant::QuantizeRowsOp op, int64_t columns) {
  easyquant::gpu::RowSpec spec;
  spec.columns = columns;
  describeQuantization(spec, op);
  spec.scaleGroup = op.getScheme().getTokenGroup();
  spec.codes = op.getScheme().toNumerics().codes;
  spec.sums = op.getRows().getType().getSums().has_value();
  if (op.getAbsmax())
    spec.absMax = easyquant::gpu::RowSpec::OfRow::Given;
  return spec;
}

LogicalResult GPULauncher::rowOp(LaunchBuilder &b, const KernelOps &kernel, RowOp rowOp,
                                 double constant, Arguments &arguments) const {
  if (auto quantize = kernel.find<equant::QuantizeRowsOp>();
      quantize && quantize.getRows().getType().isBlockScaled())
    return blockCodes(b, quantize, kernel);
  easyquant::gpu::RowSpec spec;
  const int64_t columns = lm::columns(rowsOf(kernel));
  if (auto quantize = kernel.find<equant::QuantizeRowsOp>())
    spec = codesOf(quantize, columns);
  spec.op = rowOp;
  spec.constant = constant;
  spec.columns = columns;
  if (auto norm = dyn_cast<equant::PartRmsNormOp>(kernel.first())) {
    spec.squares = easyquant::gpu::RowSpec::OfRow::Given;
    spec.wholeColumns = static_cast<int64_t>(norm.getColumns());
  }
  if (auto hadamard = kernel.find<equant::HadamardOp>())
    spec.hadamard = hadamard.getBlockAttr().getInt();
  Operation *op = kernel.first(), *last = kernel.ops.back();
  Value rows = b.rows(b[rowsOf(kernel)]);
  Phase phase = Phase::Quantize;
  if (auto quantize = kernel.find<equant::QuantizeRowsOp>()) {
    if (failed(setQuantization(b, quantize, kernel, arguments)))
      return failure();
    if (auto scale = kernel.find<equant::OnlineScaleOp>()) {
      arguments.set("states", b[scale.getState()]);
      arguments.set("row_states", b.argument("row_states"));
    }
  } else if (auto absMax = dyn_cast<equant::TokenAbsMaxOp>(op)) {
    spec.absMax = easyquant::gpu::RowSpec::OfRow::Result;
    arguments.set("absmax", b.result(absMax.getAbsmax(), rows));
  } else if (auto squares = dyn_cast<equant::TokenSquaresOp>(op)) {
    spec.squares = easyquant::gpu::RowSpec::OfRow::Result;
    arguments.set("squares", b.result(squares.getSquares(), rows));
    phase = Phase::Attention;
  } else {
    if (isa<arith::TruncFOp>(last))
      spec.output = kBF16;
    else
      phase = isa<equant::PartRmsNormOp>(op) ? Phase::Attention : Phase::Other;
    arguments.set("y", b.result(last->getResult(0), rows));
  }
  return launch(b, op, getOrEmit(kernels, spec, chip), arguments, phase);
}

LogicalResult GPULauncher::advance(LaunchBuilder &b, equant::AdvanceOp op) const {
  Value extrema = b.extrema(op.getState());
  if (!extrema)
    return op.emitOpError("has a state of which no site is tracked");
  easyquant::gpu::AdvanceSpec spec{op.getState().getType().getSites(),
                                   static_cast<int64_t>(op.getWindow()),
                                   op.getDecay().convertToDouble()};
  Arguments arguments(
      b, {{"extrema", extrema}, {"states", b[op.getState()]}, {"sequences", b[op.getBatch()]}});
  arguments.set("row_places", b.argument("row_places"));
  return launch(b, op, getOrEmit(kernels, spec, chip), arguments, Phase::Quantize);
}

void GPULauncher::addRowOps(KernelLibrary &library) const {
  auto row = [*this](LaunchBuilder &b, const KernelOps &kernel, RowOp op, double constant,
                     Arguments &arguments) { return rowOp(b, kernel, op, constant, arguments); };
  easyquant::addRowOps(library, row);
  library.add<equant::AdvanceOp>(
      [*this](auto &b, auto op, const KernelOps &) { return advance(b, op); });
  library.add<equant::TokenAbsMaxOp>([row](auto &b, auto op, const KernelOps &kernel) {
    Arguments arguments(b, {{"x", b[op.getInput()]}});
    return row(b, kernel, RowOp::Quantize, 0, arguments);
  });
  library.add<equant::TokenSquaresOp>([row](auto &b, auto op, const KernelOps &kernel) {
    Arguments arguments(b, {{"x", b[op.getInput()]}});
    return row(b, kernel, RowOp::RmsNorm, 0, arguments);
  });
  library.add<equant::PartRmsNormOp>(
      [row](auto &b, auto op, const KernelOps &kernel) -> LogicalResult {
        Arguments arguments(b, {{"x", b[op.getInput()]}, {"squares", b[op.getSquares()]}});
        if (failed(arguments.setWeight("weight", op.getWeight())))
          return failure();
        return row(b, kernel, RowOp::RmsNorm, op.getEpsilon().convertToDouble(), arguments);
      });
  library.add<arith::TruncFOp>([row](auto &b, auto op, const KernelOps &kernel) {
    Arguments arguments(b, {{"x", b[op.getIn()]}});
    return row(b, kernel, RowOp::Copy, 0, arguments);
  });
  library.add<equant::FakeQuantizeOp>([*this](auto &b, auto op, const KernelOps &kernel) {
    easyquant::gpu::FakeQuantizeSpec spec{lm::columns(op.getInput()),
                                          op.getScheme().toNumerics().codes,
                                          bool(op.getScaleAttr()), op.getScheme().getGroupSize()};
    Arguments arguments(b, {{"x", b[op.getInput()]}});
    if (op.getScaleAttr())
      arguments.set("scale", b.constant(op.getScaleAttr()));
    Operation *last = kernel.ops.back();
    if (isa<arith::TruncFOp>(last))
      spec.output = kBF16;
    arguments.set("y", b.result(last->getResult(0), b.rows(b[op.getInput()])));
    return launch(b, op, getOrEmit(kernels, spec, chip), arguments, Phase::Quantize);
  });
  library.add<lm::ConcatOp>(
      [copy = library.copy](auto &b, auto op, const KernelOps &) -> LogicalResult {
        constexpr int64_t kVector = 4; // floats that the copies move at a time
        const int64_t columns = lm::columns(op.getOutput());
        Value output = b.result(op.getOutput(), b.rows(b[op.getInputs().front()]));
        int64_t column = 0;
        for (Value input : op.getInputs()) {
          const int64_t vector = std::gcd(lm::columns(input), kVector);
          if (column % vector != 0 || columns % vector != 0)
            return op.emitOpError("puts ") << lm::columns(input) << " columns at column " << column
                                           << " of " << columns << ", where no GPU kernel copies "
                                           << vector << " at a time; compile it with --target cpu";
          if (failed(copy(b, b[input], b.columns(output, column, lm::columns(input)))))
            return failure();
          column += lm::columns(input);
        }
        return success();
      });
  library.add<lm::MaskClustersOp>([*this, copy = library.copy](auto &b, auto op,
                                                               const KernelOps &) -> LogicalResult {
    easyquant::gpu::MaskClustersSpec spec{lm::columns(op.getLogits()), lm::columns(op.getScores()),
                                          static_cast<int64_t>(op.getTopK())};
    if (spec.clusters > spec.kMostClusters)
      return op.emitOpError("of ")
             << spec.clusters << " clusters has no GPU kernel; expected at most "
             << spec.kMostClusters << "; compile it with --target cpu";
    Arguments arguments(b, {{"scores", b[op.getScores()]}});
    FailureOr<Value> rows = b.inPlace(op.getOutput(), op.getLogits(), copy);
    if (failed(rows) || failed(arguments.setWeight("clusters", op.getClusters())))
      return failure();
    arguments.set("logits", *rows);
    return launch(b, op, getOrEmit(kernels, spec, chip), arguments, Phase::Other);
  });
  library.add<lm::RowsOp>([*this](auto &b, auto op, const KernelOps &) {
    easyquant::gpu::GatherSpec spec{lm::columns(op.getInput()),
                                    bool(op.getRows().template getDefiningOp<lm::RouteOp>())};
    Value numbers = b[op.getRows()];
    Arguments arguments(b);
    arguments.set("numbers", numbers); // before x: there are as many rows as numbers
    arguments.set("x", b[op.getInput()]);
    arguments.set("y", b.result(op.getOutput(), b.rows(numbers)));
    return launch(b, op, getOrEmit(kernels, spec, chip), arguments, Phase::Other);
  });
}

//===----------------------------------------------------------------------===//
// Linears and embeddings
//===----------------------------------------------------------------------===//

/// Do the kernels find the weight as they read it?
static LogicalResult checkFragments(equant::PackedLinearOp op, FragmentOrder order) {
  if (op.getWeight().getType().getLayout() ==
      equant::LayoutAttr::get(op.getContext(), numerics::nameOf(order)))
    return success();
  return op.emitOpError("expected weights packed as fragments in the order of its activations: run "
                        "equant-materialize-weights with target=gpu first");
}

/// What specs of linears have in common; an error naming the site where there are no products with
/// such activations.
template <typename Spec>
static LogicalResult describeWeights(Spec &spec, equant::PackedLinearOp op, FragmentOrder order) {
  equant::WeightType type = op.getWeight().getType();
  static_cast<easyquant::gpu::WeightCodec &>(spec) =
      easyquant::gpu::WeightCodec::of(type.getScheme().toNumerics());
  spec.n = type.getRows();
  spec.k = type.getColumns();
  spec.bias = op.getBias() != nullptr;
  if (!op.getInputScheme())
    return checkFragments(op, order);
  return op.emitError("site '") << siteOf(op) << "': no GPU kernel for weights as "
                                << type.getScheme() << " on activations as " << *op.getInputScheme()
                                << "; compile it with --target cpu or another scheme";
}

/// Memory of a kernel whose blocks share K, for up to `most` rows.
template <typename Kernel>
static void setScratch(LaunchBuilder &b, const Kernel &choice, int64_t most, Arguments &arguments) {
  if (choice.partialBytes(most) == 0)
    return;
  arguments.set("partials", b.scratch(choice.partialBytes(most), /*perThread=*/false));
  arguments.set("counters", b.counters(choice.counterCount(most)));
}

LogicalResult GPULauncher::linear(LaunchBuilder &b, equant::PackedLinearOp op,
                                  const KernelOps &kernel) const {
  easyquant::gpu::LinearSpec spec;
  if (failed(describeWeights(spec, op, FragmentOrder::M16N8K32)))
    return failure();
  equant::SchemeAttr rows = op.getRows().getScheme();
  spec.inputGroup = rows.getTokenGroup();
  spec.inputZeroPoints = !rows.getSymmetric();
  spec.isPartial = !lm::isActivationType(op.getType());
  Arguments arguments(b);
  arguments.setCodes(op.getInput());
  if (failed(arguments.setWeight(op.getWeight(), kWeightParts)) ||
      (spec.inputZeroPoints && !spec.sumsWeights() &&
       failed(arguments.setWeight(op.getWeight(), {WeightTensor::Sums}))) ||
      failed(arguments.setWeight("bias", op.getBias())))
    return failure();
  if (Value experts = op.getExperts())
    return expertLinear(b, op, kernel, spec, experts, arguments);
  spec.accumulate = bool(kernel.next<lm::AddOp>());
  arguments.set("y", b.linearResult(kernel, b.rows(b[op.getInput()])));
  std::vector<easyquant::gpu::LinearKernel> choices = linearKernels(spec, chip);
  if (spec.isFP8())
    choices = inOneOrder(std::move(choices), op);
  return forRowRanges(
      b, choices, [&](const easyquant::gpu::LinearKernel &choice, RowRange range, int64_t most) {
        setScratch(b, choice, most, arguments);
        return launch(b, op, getOrEmit(kernels, spec, choice), arguments, Phase::Gemm, range);
      });
}

LogicalResult GPULauncher::floatLinear(LaunchBuilder &b, Operation *op, const KernelOps &kernel,
                                       easyquant::gpu::WeightOnlySpec spec, Value experts,
                                       Arguments &arguments) const {
  spec.input = kBF16;
  Value input = b[op->getOperand(0)];
  arguments.set("x", input);
  if (experts)
    return expertLinear(b, op, kernel, spec, experts, arguments);
  spec.accumulate = bool(kernel.next<lm::AddOp>());
  arguments.set("y", b.linearResult(kernel, b.rows(input)));
  // Sums in one order: other rows of a step send no row to other experts.
  spec.oneOrder = lm::weighExperts(op->getResult(0));
  return forRowRanges(
      b, weightOnlyKernels(spec, chip),
      [&](const easyquant::gpu::WeightOnlyKernel &choice, RowRange range, int64_t most) {
        setScratch(b, choice, most, arguments);
        return launch(b, op, getOrEmit(kernels, spec, choice), arguments, Phase::Gemm, range);
      });
}

LogicalResult GPULauncher::embedding(LaunchBuilder &b, Operation *op,
                                     const easyquant::gpu::EmbeddingSpec &spec,
                                     Arguments &arguments) const {
  Value tokens = b[op->getOperand(0)];
  arguments.set("tokens", tokens);
  if (spec.sharded)
    arguments.set("rank", b.argument("rank"));
  arguments.set("y", b.result(op->getResult(0), b.rows(tokens)));
  return launch(b, op, getOrEmit(kernels, spec, chip), arguments, Phase::Other);
}

LogicalResult GPULauncher::f32Linear(LaunchBuilder &b, lm::LinearOp op,
                                     const KernelOps &kernel) const {
  easyquant::gpu::F32LinearSpec spec;
  spec.n = lm::columns(op.getOutput());
  spec.k = lm::columns(op.getInput());
  spec.bias = op.getBias() != nullptr;
  Value input = b[op.getInput()];
  Arguments arguments(b, {{"x", input}});
  if (failed(arguments.setWeight("w", op.getWeight())) ||
      failed(arguments.setWeight("bias", op.getBias())))
    return failure();
  spec.accumulate = bool(kernel.next<lm::AddOp>());
  arguments.set("y", b.linearResult(kernel, b.rows(input)));
  return forRowRanges(b, f32LinearKernels(spec, chip),
                      [&](const easyquant::gpu::F32LinearKernel &choice, RowRange range, int64_t) {
                        return launch(b, op, getOrEmit(kernels, spec, choice), arguments,
                                      Phase::Gemm, range);
                      });
}

void GPULauncher::addLinears(KernelLibrary &library) const {
  library.add<lm::LinearOp>([*this](auto &b, auto op, const KernelOps &kernel) -> LogicalResult {
    if (op.getInput().getType().getElementType().isF32())
      return f32Linear(b, op, kernel);
    easyquant::gpu::WeightOnlySpec spec;
    spec.bits = 16;
    spec.bias = op.getBias() != nullptr;
    spec.n = lm::columns(op.getOutput());
    spec.k = lm::columns(op.getInput());
    Arguments arguments(b);
    if (failed(arguments.setWeight("w", op.getWeight(), equant::kBF16OffsetAttr)) ||
        failed(arguments.setWeight("bias", op.getBias())))
      return failure();
    return floatLinear(b, op, kernel, spec, op.getExperts(), arguments);
  });
  library.add<equant::LinearOp>([](auto &, auto op, const KernelOps &) {
    return LogicalResult(op.emitOpError("expected weights packed as fragments: run "
                                        "equant-materialize-weights with target=gpu first"));
  });
  library.add<equant::PackedLinearOp>(
      [*this](auto &b, auto op, const KernelOps &kernel) -> LogicalResult {
        if (op.getRows() && op.getRows().isBlockScaled())
          return blockScaledLinear(b, op, kernel);
        if (op.getActivations())
          return linear(b, op, kernel);
        easyquant::gpu::WeightOnlySpec spec;
        Arguments arguments(b);
        if (failed(describeWeights(spec, op, FragmentOrder::M16N8K16)) ||
            failed(arguments.setWeight(op.getWeight(), kWeightParts)) ||
            failed(arguments.setWeight("bias", op.getBias())))
          return failure();
        spec.unit = 1; // tables are read as they are
        return floatLinear(b, op, kernel, spec, op.getExperts(), arguments);
      });
  library.add<equant::RescaleOp>(
      [*this](auto &b, auto op, const KernelOps &kernel) -> LogicalResult {
        easyquant::gpu::RescaleSpec spec;
        static_cast<easyquant::gpu::WeightCodec &>(spec) =
            easyquant::gpu::WeightCodec::of(op.getWeight().getType().getScheme().toNumerics());
        spec.n = lm::columns(op.getOutput());
        spec.bias = bool(op.getBias());
        spec.accumulate = bool(kernel.template next<lm::AddOp>());
        Arguments arguments(
            b, {{"sums", b[op.getSums()]}, {"scales", b.part(op.getRows(), RowsPart::Scales)}});
        if (failed(arguments.setWeight(op.getWeight(), {WeightTensor::Scales})) ||
            failed(arguments.setWeight("bias", op.getBias())))
          return failure();
        arguments.set("y", b.linearResult(kernel, b.rows(b[op.getSums()])));
        return launch(b, op, getOrEmit(kernels, spec, chip), arguments, Phase::Gemm);
      });
  library.add<lm::EmbeddingOp>([*this](auto &b, auto op, const KernelOps &) -> LogicalResult {
    auto table = cast<RankedTensorType>(op.getTable().getType());
    easyquant::gpu::EmbeddingSpec spec;
    spec.vocab = table.getDimSize(0);
    spec.columns = table.getDimSize(1);
    spec.sharded = op.getSharded();
    Arguments arguments(b);
    // The weights of the head that is tied to it, if there is one.
    if (b.hasWeight(op.getTable(), equant::kBF16OffsetAttr)) {
      spec.rows = easyquant::gpu::EmbeddingSpec::Rows::Fragments;
      spec.table = kBF16;
      if (failed(arguments.setWeight("w", op.getTable(), equant::kBF16OffsetAttr)))
        return failure();
    } else {
      spec.table = table.getElementType().isF16()    ? easyquant::gpu::Float::F16
                   : table.getElementType().isBF16() ? kBF16
                                                     : easyquant::gpu::Float::F32;
      if (failed(arguments.setWeight("table", op.getTable())))
        return failure();
    }
    return embedding(b, op, spec, arguments);
  });
  library.add<equant::EmbeddingOp>([*this](auto &b, auto op, const KernelOps &) -> LogicalResult {
    equant::WeightType table = op.getTable().getType();
    easyquant::gpu::EmbeddingSpec spec;
    spec.rows = easyquant::gpu::EmbeddingSpec::Rows::Codes;
    spec.vocab = table.getRows();
    spec.columns = table.getColumns();
    spec.codec = easyquant::gpu::WeightCodec::of(table.getScheme().toNumerics());
    spec.codec.unit = 1; // tables are read as they are
    spec.sharded = op.getSharded();
    const auto *order = llvm::find_if(numerics::kFragmentOrders, [&](FragmentOrder order) {
      return table.getLayout() == equant::LayoutAttr::get(op.getContext(), numerics::nameOf(order));
    });
    if (order == numerics::kFragmentOrders.end())
      return op.emitOpError("expected a table packed as fragments: run equant-materialize-weights "
                            "with target=gpu first");
    spec.order = *order;
    Arguments arguments(b);
    if (failed(arguments.setWeight(op.getTable(), kWeightParts)))
      return failure();
    return embedding(b, op, spec, arguments);
  });
  library.add<lm::PositionEmbeddingOp>(
      [*this, copy = library.copy](auto &b, auto op, const KernelOps &) -> LogicalResult {
        auto table = cast<RankedTensorType>(op.getTable().getType());
        easyquant::gpu::PositionEmbeddingSpec spec{table.getDimSize(0), table.getDimSize(1)};
        Arguments arguments(b);
        FailureOr<Value> rows = b.inPlace(op.getOutput(), op.getInput(), copy);
        if (failed(rows) || failed(arguments.setWeight("table", op.getTable())))
          return failure();
        arguments.set("y", *rows);
        arguments.set("row_places", b.argument("row_places"));
        return launch(b, op, getOrEmit(kernels, spec, chip), arguments, Phase::Other);
      });
}

KernelLibrary easyquant::gpuKernels(mlir::gpu::GPUModuleOp kernels,
                                    const easyquant::gpu::Chip &chip) {
  GPULauncher launcher{kernels, chip};
  KernelLibrary library;
  library.copy = [launcher](LaunchBuilder &b, Value from, Value to) {
    return launcher.copy(b, from, to);
  };
  library.missing = "has no GPU kernel; compile it with --target cpu";
  launcher.addRowOps(library);
  launcher.addLinears(library);
  launcher.addExperts(library);
  launcher.addHeads(library);
  launcher.addRecurrent(library);
  return library;
}
