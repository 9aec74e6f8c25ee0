//===- ProgramBuilder.cpp - Ops to launches -------------------------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "ProgramBuilder.h"

#include "easyquant/Codegen/GPU/Emit.h"
#include "easyquant/Dialect/Equant/Transforms/GPUWeights.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "llvm/ADT/TypeSwitch.h"

using namespace mlir;
using namespace easyquant;

/// Float activations of linears on a GPU: as wide a range as f32.
static constexpr easyquant::gpu::Float kHalves = easyquant::gpu::Float::BF16;

//===----------------------------------------------------------------------===//
// Memory
//===----------------------------------------------------------------------===//

GPUArgument ProgramBuilder::constant(Attribute value) {
  // One after another, each where any kernel can read it.
  constexpr size_t alignment = 16;
  GPUArgument argument = place(GPUArgument::Constants, program.constants.size());
  uint32_t bits;
  if (auto number = dyn_cast<FloatAttr>(value))
    bits = llvm::bit_cast<uint32_t>(static_cast<float>(number.getValueAsDouble()));
  else
    bits = static_cast<uint32_t>(cast<IntegerAttr>(value).getInt());
  for (int shift = 0; shift < 32; shift += 8)
    program.constants.push_back(static_cast<uint8_t>(bits >> shift));
  program.constants.resize(llvm::alignTo(program.constants.size(), alignment));
  return argument;
}

/// Launches come one after another, so that all of them share the same bytes.
GPUArgument ProgramBuilder::scratch(int64_t bytes) {
  scratchBytes = std::max(scratchBytes, alignBuffer(bytes));
  return place(GPUArgument::Scratch);
}

/// Zero between launches, so that all of them share the same.
GPUArgument ProgramBuilder::counters(int64_t count) {
  program.stateBytes = std::max(program.stateBytes, alignBuffer(count * int64_t(sizeof(int32_t))));
  return place(GPUArgument::State);
}

ProgramBuilder::View ProgramBuilder::destination(Value value, bool lastRows) {
  Operation *terminator = value.getParentBlock()->getTerminator();
  bool isForward = terminator->getParentOp() == forward;
  if (isForward && llvm::is_contained(terminator->getOperands(), value))
    return memory[value] = {place(GPUArgument::Logits), columnsOf(value), lastRows};
  return memory[value] = {place(GPUArgument::Arena, *plan->offsetOf(value)), columnsOf(value),
                          lastRows};
}

LogicalResult ProgramBuilder::copy(Operation *op, const View &from, const View &to,
                                   int64_t columns) {
  easyquant::gpu::RowSpec spec;
  spec.op = easyquant::gpu::RowOp::Copy;
  spec.columns = columns;
  Arguments arguments;
  add(arguments, "x", from);
  add(arguments, "y", to);
  getOrEmitRowOp(kernels, spec, chip);
  return launch(op, describe(spec, chip), arguments, GPUPhase::Other, from.lastRows);
}

FailureOr<ProgramBuilder::View> ProgramBuilder::inPlace(Operation *op) {
  Value output = op->getResult(0);
  Value input =
      *llvm::find_if(op->getOperands(), [&](Value v) { return v.getType() == output.getType(); });
  View from = memory.lookup(input);
  if (plan->storageOf(output) != output)
    return memory[output] = from;
  View fresh = destination(output, from.lastRows);
  if (failed(copy(op, from, fresh, columnsOf(output))))
    return failure();
  return fresh;
}

ProgramBuilder::Codes ProgramBuilder::codesOf(Value value, const CodesKind &kind, bool lastRows) {
  int64_t offset = plan->offsetOf({value, kind.key()});
  QuantizedBytes sizes = quantizedBytes(columnsOf(value), kind, program.maxRows, kRules);
  Codes result{offset, offset + sizes.codes, offset + sizes.codes + sizes.scales,
               offset + sizes.codes + sizes.scales + sizes.sums, lastRows};
  codes[{value, kind.key()}] = result;
  return result;
}

/// Sums of codes are for the zero points of weights.
bool ProgramBuilder::needsSums(Value value, const CodesKind &kind) const {
  return llvm::any_of(value.getUses(), [&](OpOperand &use) {
    auto linear = dyn_cast<equant::LinearOp>(use.getOwner());
    std::optional<CodesKind> other = quantizedUse(use, kRules);
    return linear && other && other->key() == kind.key() && linear.getZeroPoint();
  });
}

void ProgramBuilder::quantize(easyquant::gpu::RowSpec &spec, Value value, const CodesKind &kind,
                              const Codes &codes, Arguments &arguments) {
  using easyquant::gpu::RowQuantization;
  auto arena = [](int64_t offset) { return place(GPUArgument::Arena, offset); };
  if (kind.isHalves()) {
    spec.output = kHalves;
    arguments["y"] = arena(codes.codes);
    arguments["y_stride"] = integer(easyquant::gpu::paddedColumns(spec.columns));
    return;
  }
  spec.quantization = kind.isStatic() ? RowQuantization::Static : RowQuantization::Dynamic;
  spec.sums = needsSums(value, kind);
  spec.groupSize = spec.sums ? kind.groupSize : 0;
  spec.zeroPoints = kind.hasZeroPoints();
  spec.fullRange = kind.isStatic() && kind.scheme.getFullRange();
  arguments["codes"] = arena(codes.codes);
  arguments["scales"] = arena(codes.scales);
  arguments["sums"] = arena(codes.sums);
  arguments["zeros"] = arena(codes.zeros);
  if (kind.isStatic())
    arguments["scale"] = constant(kind.scale);
  if (kind.hasZeroPoints())
    arguments["zero"] = constant(kind.zeroPoint);
}

FailureOr<ProgramBuilder::Codes> ProgramBuilder::quantizedRows(Operation *reader, Value value,
                                                               const CodesKind &kind) {
  if (auto it = codes.find({value, kind.key()}); it != codes.end())
    return it->second;
  View input = memory.lookup(value);
  Codes made = codesOf(value, kind, input.lastRows);
  easyquant::gpu::RowSpec spec;
  spec.op = kind.isHalves() ? easyquant::gpu::RowOp::Copy : easyquant::gpu::RowOp::Quantize;
  spec.columns = columnsOf(value);
  Arguments arguments;
  add(arguments, "x", input);
  quantize(spec, value, kind, made, arguments);
  getOrEmitRowOp(kernels, spec, chip);
  if (failed(launch(reader, describe(spec, chip), arguments, GPUPhase::Quantize, input.lastRows)))
    return failure();
  return made;
}

//===----------------------------------------------------------------------===//
// Launches
//===----------------------------------------------------------------------===//

LogicalResult ProgramBuilder::append(std::vector<GPULaunch> &launches, Operation *op,
                                     const easyquant::gpu::Description &kernel,
                                     const Arguments &arguments, GPUPhase phase, bool lastRows,
                                     RowRange range) {
  auto [known, isNew] = kernelIndex.try_emplace(kernel.name, program.kernels.size());
  if (isNew)
    program.kernels.push_back(kernel);
  GPULaunch launch{siteOf(op), phase, known->second, lastRows, range.minRows, range.maxRows, {}};
  for (const easyquant::gpu::Parameter &parameter : kernel.parameters) {
    if (parameter.name == "rows") {
      launch.arguments.push_back(place(GPUArgument::Rows));
      continue;
    }
    auto it = arguments.find(parameter.name);
    if (it == arguments.end())
      return op->emitOpError("its kernel ")
             << kernel.name << " takes '" << parameter.name << "', which no operand gives";
    launch.arguments.push_back(it->second);
  }
  launches.push_back(std::move(launch));
  return success();
}

LogicalResult ProgramBuilder::launch(Operation *op, const easyquant::gpu::Description &kernel,
                                     const Arguments &arguments, GPUPhase phase, bool lastRows,
                                     RowRange range) {
  return append(program.launches, op, kernel, arguments, phase, lastRows, range);
}

//===----------------------------------------------------------------------===//
// Operations
//===----------------------------------------------------------------------===//

LogicalResult ProgramBuilder::emitGlobal(ml_program::GlobalLoadConstOp op) {
  auto global = symbols.lookup<ml_program::GlobalOp>(op.getGlobal().getLeafReference());
  auto offset = global ? global->getAttrOfType<IntegerAttr>(equant::kGPUOffsetAttr) : nullptr;
  auto halfOffset = global ? global->getAttrOfType<IntegerAttr>(equant::kGPUHalvesAttr) : nullptr;
  if (!offset && !halfOffset)
    return op.emitOpError() << op.getGlobal()
                            << " has no place in the weights for GPUs: run "
                               "equant-materialize-weights with packing=gpu first";
  if (offset)
    constants[op.getResult()] = place(GPUArgument::Weights, offset.getInt());
  if (halfOffset)
    halves[op.getResult()] = place(GPUArgument::Weights, halfOffset.getInt());
  orders[op.getResult()] = global->getAttrOfType<StringAttr>(equant::kGPUOrderAttr);
  return success();
}

LogicalResult ProgramBuilder::emitEmbedding(lm::EmbeddingOp op) {
  auto table = cast<RankedTensorType>(op.getTable().getType());
  easyquant::gpu::EmbeddingSpec spec;
  spec.vocab = table.getDimSize(0);
  spec.columns = table.getDimSize(1);
  Arguments arguments;
  arguments["tokens"] = place(GPUArgument::Tokens);
  arguments["table"] = constants.lookup(op.getTable());
  add(arguments, "y", destination(op.getOutput(), false));
  getOrEmitEmbedding(kernels, spec, chip);
  return launch(op, describe(spec, chip), arguments, GPUPhase::Other, false);
}

LogicalResult ProgramBuilder::emitEmbedding(equant::EmbeddingOp op) {
  easyquant::gpu::EmbeddingSpec spec;
  spec.vocab = static_cast<int64_t>(op.getVocabSize());
  spec.columns = columnsOf(op.getOutput());
  spec.bits = static_cast<int>(op.getWeightScheme().getBits());
  spec.groupSize = op.getWeightScheme().getGroupSize();
  spec.zeroPoints = op.getZeroPoint() != nullptr;
  StringAttr order = orders.lookup(op.getCodes());
  spec.order = order && order.getValue() == "halves" ? numerics::FragmentOrder::Halves
                                                     : numerics::FragmentOrder::Bytes;
  if (spec.bits == 3)
    return op.emitError("site '") << siteOf(op)
                                  << "': no GPU kernel for an embedding of 3 bits; compile it with "
                                     "--target cpu";
  Arguments arguments;
  arguments["tokens"] = place(GPUArgument::Tokens);
  arguments["w"] = constants.lookup(op.getCodes());
  arguments["wscales"] = constants.lookup(op.getScale());
  if (spec.zeroPoints)
    arguments["wzeros"] = constants.lookup(op.getZeroPoint());
  add(arguments, "y", destination(op.getOutput(), false));
  getOrEmitEmbedding(kernels, spec, chip);
  return launch(op, describe(spec, chip), arguments, GPUPhase::Other, false);
}

LogicalResult ProgramBuilder::emitPositions(lm::PositionEmbeddingOp op) {
  auto table = cast<RankedTensorType>(op.getTable().getType());
  easyquant::gpu::PositionEmbeddingSpec spec{table.getDimSize(0), table.getDimSize(1)};
  FailureOr<View> view = inPlace(op);
  if (failed(view))
    return failure();
  Arguments arguments;
  arguments["table"] = constants.lookup(op.getTable());
  arguments["position"] = place(GPUArgument::Position);
  add(arguments, "y", *view);
  getOrEmitPositionEmbedding(kernels, spec, chip);
  return launch(op, describe(spec, chip), arguments, GPUPhase::Other, view->lastRows);
}

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
    arguments["position"] = place(GPUArgument::Position);
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
  return launch(op, describe(spec, chip), arguments, GPUPhase::Attention, view->lastRows);
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
  GPUPhase phase = GPUPhase::Other;
  if (plan->isQuantizedOnly(output)) {
    CodesKind kind = *quantizedUse(*output.use_begin(), kRules);
    quantize(spec, output, kind, codesOf(output, kind, lastRows), arguments);
    phase = GPUPhase::Quantize;
  } else {
    add(arguments, "y", destination(output, lastRows));
  }
  getOrEmitRowOp(kernels, spec, chip);
  return launch(op, describe(spec, chip), arguments, phase, lastRows);
}

ProgramBuilder::View ProgramBuilder::linearDestination(Operation *op, bool lastRows,
                                                       bool &accumulate) {
  Value output = op->getResult(0);
  auto add = cast_or_null<lm::AddOp>(plan->accumulatingAdd(op));
  accumulate = static_cast<bool>(add);
  if (!add)
    return destination(output, lastRows);
  Value stream = add.getLhs() == output ? add.getRhs() : add.getLhs();
  View view = memory.lookup(stream);
  memory[output] = view;
  memory[add.getOutput()] = view;
  return view;
}

/// What is multiplied with what, for messages.
static std::string describeSchemes(equant::LinearOp op) {
  std::string text;
  llvm::raw_string_ostream os(text);
  os << "weights as " << op.getWeightScheme();
  if (op.getInputScheme())
    os << " on activations as " << *op.getInputScheme();
  else
    os << " on float activations";
  return text;
}

LogicalResult ProgramBuilder::emitLinear(equant::LinearOp op) {
  if (!op.getInputScheme())
    return emitFloatLinear(op);
  std::optional<easyquant::gpu::LinearSpec> spec = linearSpec(op);
  if (!spec)
    return op.emitError("site '") << siteOf(op) << "': no GPU kernel for " << describeSchemes(op)
                                  << "; compile it with --target cpu or another scheme";
  FailureOr<Codes> input = quantizedRows(op, op.getInput(), CodesKind::of(op));
  if (failed(input))
    return failure();
  Arguments arguments;
  arguments["codes"] = place(GPUArgument::Arena, input->codes);
  arguments["scales"] = place(GPUArgument::Arena, input->scales);
  arguments["sums"] = place(GPUArgument::Arena, input->sums);
  arguments["zeros"] = place(GPUArgument::Arena, input->zeros);
  arguments["w"] = constants.lookup(op.getCodes());
  arguments["wscales"] = constants.lookup(op.getScale());
  if (op.getZeroPoint())
    arguments["wzeros"] = constants.lookup(op.getZeroPoint());
  if (op.getCodeSums())
    arguments["wsums"] = constants.lookup(op.getCodeSums());
  if (op.getBias())
    arguments["bias"] = constants.lookup(op.getBias());
  add(arguments, "y", linearDestination(op, input->lastRows, spec->accumulate));
  RowRange range;
  std::vector<easyquant::gpu::LinearKernel> choices = linearKernels(*spec, chip);
  for (const easyquant::gpu::LinearKernel &kernel : choices) {
    range.maxRows = &kernel == &choices.back() ? 0 : kernel.maxRows;
    getOrEmitLinear(kernels, *spec, kernel, chip);
    if (failed(launch(op, kernel.description, arguments, GPUPhase::Gemm, input->lastRows, range)))
      return failure();
    range.minRows = range.maxRows + 1;
  }
  return success();
}

LogicalResult ProgramBuilder::emitFloatLinear(Operation *op) {
  easyquant::gpu::WeightOnlySpec spec;
  spec.n = columnsOf(op->getResult(0));
  spec.k = columnsOf(op->getOperand(0));
  spec.input = kHalves;
  Arguments arguments;
  Value bias;
  if (auto linear = dyn_cast<equant::LinearOp>(op)) {
    bias = linear.getBias();
    spec.bits = static_cast<int>(linear.getWeightScheme().getBits());
    spec.groupSize = linear.getWeightScheme().getGroupSize();
    spec.zeroPoints = linear.getZeroPoint() != nullptr;
    if (spec.groupSize % numerics::kFragmentColumns != 0)
      return op->emitError("site '")
             << siteOf(op) << "': no GPU kernel for " << describeSchemes(linear)
             << "; compile it with --target cpu or groups of a multiple of "
             << numerics::kFragmentColumns;
    arguments["w"] = constants.lookup(linear.getCodes());
    arguments["wscales"] = constants.lookup(linear.getScale());
    if (spec.zeroPoints)
      arguments["wzeros"] = constants.lookup(linear.getZeroPoint());
  } else {
    auto linearOp = cast<lm::LinearOp>(op);
    bias = linearOp.getBias();
    spec.bits = 16;
    if (!halves.contains(linearOp.getWeight()))
      return op->emitOpError("its weight is not in the weights for GPUs as fragments of bf16");
    arguments["w"] = halves.lookup(linearOp.getWeight());
  }
  spec.bias = bias != nullptr;
  if (bias)
    arguments["bias"] = constants.lookup(bias);
  std::optional<CodesKind> kind = quantizedUse(op->getOpOperand(0), kRules);
  FailureOr<Codes> input = quantizedRows(op, op->getOperand(0), *kind);
  if (failed(input))
    return failure();
  arguments["x"] = place(GPUArgument::Arena, input->codes);
  arguments["x_stride"] = integer(easyquant::gpu::paddedColumns(spec.k));
  add(arguments, "y", linearDestination(op, input->lastRows, spec.accumulate));
  RowRange range;
  std::vector<easyquant::gpu::WeightOnlyKernel> choices = weightOnlyKernels(spec, chip);
  for (const easyquant::gpu::WeightOnlyKernel &kernel : choices) {
    bool isLast = &kernel == &choices.back();
    range.maxRows = isLast ? 0 : kernel.maxRows;
    int64_t most = isLast ? program.maxRows : std::min(program.maxRows, kernel.maxRows);
    arguments["partials"] = scratch(kernel.partialBytes(most));
    arguments["counters"] = counters(kernel.counterCount(most));
    getOrEmitLinear(kernels, spec, kernel, chip);
    if (failed(launch(op, kernel.description, arguments, GPUPhase::Gemm, input->lastRows, range)))
      return failure();
    range.minRows = range.maxRows + 1;
  }
  return success();
}

LogicalResult ProgramBuilder::emitAttention(Operation *op) {
  easyquant::gpu::AttentionSpec spec = gpuAttentionSpec(op);
  auto layer = op->getAttrOfType<IntegerAttr>("layer").getInt();
  auto kvScheme = op->getAttrOfType<equant::KVSchemeAttr>("kv_scheme");
  auto cache = cast<lm::KVCacheType>(op->getOperand(3).getType());
  easyquant::gpu::CacheBytes bytes = cacheBytes(spec);
  bool rotates = spec.keyPositions > 0;
  GPUArgument begin = place(GPUArgument::Cache, layer * bytes.fixed, layer * bytes.perToken);
  if (program.cacheBytesPerToken == 0) {
    program.cacheBytes = cache.getLayers() * bytes.fixed;
    program.cacheBytesPerToken = cache.getLayers() * bytes.perToken;
    program.kvScheme = kvScheme;
    program.rotatesKeys = rotates;
  } else if (kvScheme != program.kvScheme || rotates != program.rotatesKeys ||
             program.cacheBytesPerToken != cache.getLayers() * bytes.perToken) {
    return op->emitOpError("has a cache unlike that of the first layer; all layers need the same "
                           "KV scheme, place of keys, heads and dimensions");
  }

  Value output = op->getResult(0);
  Arguments arguments;
  add(arguments, "q", memory.lookup(op->getOperand(0)));
  add(arguments, "k", memory.lookup(op->getOperand(1)));
  add(arguments, "v", memory.lookup(op->getOperand(2)));
  arguments["cache"] = begin;
  arguments["capacity"] = place(GPUArgument::Capacity);
  arguments["position"] = place(GPUArgument::Position);
  arguments["held"] = place(GPUArgument::Held);
  if (auto quantized = dyn_cast<equant::AttentionOp>(op); quantized && quantized.getTable())
    arguments["table"] = constants.lookup(quantized.getTable());
  if (plan->isQuantizedOnly(output)) {
    Codes halves = codesOf(output, *quantizedUse(*output.use_begin(), kRules), false);
    spec.output = kHalves;
    arguments["y"] = place(GPUArgument::Arena, halves.codes);
    arguments["y_stride"] = integer(easyquant::gpu::paddedColumns(columnsOf(output)));
  } else {
    add(arguments, "y", destination(output, false));
  }
  if (spec.kv) {
    easyquant::gpu::Description restore = describeRestore(spec, chip);
    getOrEmitRestore(kernels, spec, chip);
    if (failed(append(program.restore, op, restore, arguments, GPUPhase::Attention, false, {})))
      return failure();
  }
  RowRange range;
  std::vector<easyquant::gpu::AttentionKernel> choices = attentionKernels(spec, chip);
  for (const easyquant::gpu::AttentionKernel &kernel : choices) {
    bool isLast = &kernel == &choices.back();
    range.maxRows = isLast ? 0 : kernel.maxRows;
    int64_t most = isLast ? program.maxRows : std::min(program.maxRows, kernel.maxRows);
    arguments["scratch"] = scratch(most * kernel.scratchBytesPerRow);
    getOrEmitAttention(kernels, spec, kernel, chip);
    for (const easyquant::gpu::Description &description : kernel.launches)
      if (failed(launch(op, description, arguments, GPUPhase::Attention, false, range)))
        return failure();
    range.minRows = range.maxRows + 1;
  }
  return success();
}

LogicalResult ProgramBuilder::emitSplit(lm::SplitOp op) {
  View view = memory.lookup(op.getInput());
  for (Value output : op.getOutputs()) {
    memory[output] = view;
    view.begin.offset += columnsOf(output) * int64_t(sizeof(float));
  }
  return success();
}

LogicalResult ProgramBuilder::emitRows(lm::RowsOp op) {
  View view = memory.lookup(op.getInput());
  auto first = dyn_cast<BlockArgument>(op.getFirst());
  if (!first || first.getOwner()->getParentOp() != forward || view.lastRows)
    return op.emitOpError("expected the rows of the logits that @forward is asked for");
  view.begin.step = view.stride * int64_t(sizeof(float));
  view.lastRows = true;
  memory[op.getOutput()] = view;
  return success();
}

LogicalResult ProgramBuilder::emitCall(func::CallOp op) {
  FailureOr<View> activation = inPlace(op);
  if (failed(activation))
    return failure();
  auto callee = symbols.lookup<func::FuncOp>(op.getCallee());
  if (!callee || callee.isExternal())
    return op.emitOpError("calls no function of the model");
  if (!called.insert(callee).second)
    return op.emitOpError("calls a layer a second time; every layer has a function of its own");
  for (Value argument : callee.getArguments())
    if (isActivationType(argument.getType()))
      memory[argument] = *activation;
  const BufferPlan *caller = plan;
  if (failed(runFunction(callee, plans.find(callee)->second)))
    return failure();
  plan = caller;
  return success();
}

LogicalResult ProgramBuilder::emitReturn(func::ReturnOp op) {
  auto function = cast<func::FuncOp>(op->getParentOp());
  for (Value operand : op.getOperands()) {
    View from = memory.lookup(operand);
    View to = from;
    if (function == forward) {
      to = {place(GPUArgument::Logits), columnsOf(operand), from.lastRows};
    } else {
      // A layer leaves its result in the memory of its activation argument.
      Value argument = *llvm::find_if(function.getArguments(),
                                      [&](Value v) { return v.getType() == operand.getType(); });
      to = memory.lookup(argument);
    }
    bool isThere = from.begin.kind == to.begin.kind && from.begin.offset == to.begin.offset;
    if (!isThere && failed(copy(op, from, to, columnsOf(operand))))
      return failure();
  }
  return success();
}

LogicalResult ProgramBuilder::emit(Operation &op) {
  using Names = std::pair<StringRef, Value>;
  return llvm::TypeSwitch<Operation *, LogicalResult>(&op)
      .Case([&](ml_program::GlobalLoadConstOp op) { return emitGlobal(op); })
      .Case([&](lm::EmbeddingOp op) { return emitEmbedding(op); })
      .Case([&](equant::EmbeddingOp op) { return emitEmbedding(op); })
      .Case([&](lm::PositionEmbeddingOp op) { return emitPositions(op); })
      .Case<lm::RopeOp, lm::HeadRmsNormOp>([&](Operation *op) { return emitHeads(op); })
      .Case<lm::AttentionOp, equant::AttentionOp>([&](Operation *op) { return emitAttention(op); })
      .Case([&](lm::LinearOp op) { return emitFloatLinear(op); })
      .Case([&](equant::LinearOp op) { return emitLinear(op); })
      .Case([&](lm::RmsNormOp op) {
        return emitRowOp(op, *rowSpec(op),
                         {Names("x", op.getInput()), Names("weight", op.getWeight())});
      })
      .Case([&](lm::LayerNormOp op) {
        return emitRowOp(op, *rowSpec(op),
                         {Names("x", op.getInput()), Names("weight", op.getWeight()),
                          Names("bias", op.getBias())});
      })
      .Case([&](lm::SiluMulOp op) {
        return emitRowOp(op, *rowSpec(op), {Names("gate", op.getGate()), Names("up", op.getUp())});
      })
      .Case([&](lm::GeluOp op) { return emitRowOp(op, *rowSpec(op), {Names("x", op.getInput())}); })
      .Case([&](lm::AddOp op) -> LogicalResult {
        if (memory.contains(op.getOutput())) // a linear added into it
          return success();
        easyquant::gpu::RowSpec spec;
        spec.op = easyquant::gpu::RowOp::Add;
        return emitRowOp(op, spec, {Names("a", op.getLhs()), Names("b", op.getRhs())});
      })
      .Case([&](lm::SplitOp op) { return emitSplit(op); })
      .Case([&](lm::RowsOp op) { return emitRows(op); })
      .Case([&](func::CallOp op) { return emitCall(op); })
      .Case([&](func::ReturnOp op) { return emitReturn(op); })
      .Case([&](arith::ConstantOp) { return success(); })
      .Default([](Operation *op) {
        return op->emitOpError("has no GPU kernel; compile it with --target cpu");
      });
}

LogicalResult ProgramBuilder::runFunction(func::FuncOp function, const BufferPlan &functionPlan) {
  plan = &functionPlan;
  for (Operation &op : function.front())
    if (failed(emit(op)))
      return failure();
  return success();
}

FailureOr<GPUProgram> ProgramBuilder::build() {
  forward = symbols.lookup<func::FuncOp>("forward");
  if (!forward || forward.getNumResults() != 1 || !isActivationType(forward.getResultTypes()[0]))
    return model.emitError("expected a function @forward that returns the logits");
  if (program.maxRows < 1)
    return model.emitError("max-rows is ") << program.maxRows << "; expected at least 1";
  // As on CPUs: the buffers of @forward come first; below them, all layers use the same memory.
  auto entryPlan = BufferPlan::create(forward, program.maxRows, 0, kRules);
  if (failed(entryPlan))
    return failure();
  int64_t base = buffersEnd = entryPlan->end();
  plans.insert({forward, std::move(*entryPlan)});
  for (auto function : model.getOps<func::FuncOp>()) {
    if (function == forward)
      continue;
    auto layer = BufferPlan::create(function, program.maxRows, base, kRules);
    if (failed(layer))
      return failure();
    buffersEnd = std::max(buffersEnd, layer->end());
    plans.insert({function, std::move(*layer)});
  }
  if (failed(runFunction(forward, plans.find(forward)->second)))
    return failure();
  program.arenaBytes = buffersEnd + scratchBytes;
  for (auto *launches : {&program.launches, &program.restore})
    for (GPULaunch &launch : *launches)
      for (GPUArgument &argument : launch.arguments)
        if (argument.kind == GPUArgument::Scratch)
          argument = place(GPUArgument::Arena, buffersEnd + argument.offset);
  return std::move(program);
}

FailureOr<GPUProgram> easyquant::buildGPUProgram(ModuleOp model, const easyquant::gpu::Chip &chip,
                                                 int64_t maxRows, mlir::gpu::GPUModuleOp kernels) {
  return ProgramBuilder(model, chip, maxRows, kernels).build();
}
