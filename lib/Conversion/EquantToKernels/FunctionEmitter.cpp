//===- FunctionEmitter.cpp - One function as kernel calls ------------------- -===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "FunctionEmitter.h"

#include "easyquant/Codegen/CPU/HeadNorm.h"

#include "mlir/Dialect/ControlFlow/IR/ControlFlowOps.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "llvm/ADT/TypeSwitch.h"

using namespace mlir;
using namespace easyquant;

//===----------------------------------------------------------------------===//
// Memory
//===----------------------------------------------------------------------===//

Value FunctionEmitter::scratch(int64_t bytesPerThread) {
  bytesPerThread = alignBuffer(bytesPerThread);
  program.arenaBytesPerThread = std::max(program.arenaBytesPerThread, bytesPerThread);
  Value bytes = arith::MulIOp::create(b, team.threads, constant(bytesPerThread));
  Value place =
      memref::ViewOp::create(b, program.bytes(), arena(), constant(program.arenaBytes), bytes);
  // Kernels that take as much have the same shares.
  buffers[place] = {BufferRange::Kind::Scratch, 0, 1,
                    reinterpret_cast<const void *>(bytesPerThread)};
  return place;
}

Value FunctionEmitter::remember(Value value, Value place, BufferRange range) {
  range.rows = rowsOfValue.lookup(value);
  buffers[place] = range;
  return memory[value] = place;
}

void FunctionEmitter::access(Accesses &accesses, Value place, bool isWrite, bool isOwnShare) {
  if (auto it = buffers.find(place); it != buffers.end())
    accesses.push_back({it->second, isWrite, isOwnShare});
}

Value FunctionEmitter::destination(Value value, Value rows) {
  Value storage = plan.storageOf(value);
  if (storage == value) {
    auto type = cast<RankedTensorType>(value.getType());
    for (auto [output, returned] :
         llvm::zip(outputs, source.front().getTerminator()->getOperands()))
      if (returned == value)
        return remember(value, output, buffers.lookup(output));
    int64_t offset = *plan.offsetOf(value);
    int64_t bytes = alignBuffer(program.maxRows * type.getDimSize(1) * 4);
    return remember(value,
                    view(arena(), constant(offset), type.getShape(), type.getElementType(), rows),
                    {BufferRange::Kind::Arena, offset, offset + bytes, value.getAsOpaquePointer()});
  }
  return memory[value] = memory.lookup(storage);
}

SmallVector<Value, 4> FunctionEmitter::quantizedDestination(Value value, const CodesKind &kind,
                                                            Value rows) {
  int64_t columns = cast<RankedTensorType>(value.getType()).getDimSize(1);
  int64_t offset = plan.offsetOf({value, kind.key()});
  QuantizedBytes sizes = quantizedBytes(columns, kind, program.maxRows);
  constexpr int64_t dynamic = ShapedType::kDynamic;
  SmallVector<Value, 4> parts = {
      view(arena(), constant(offset), {dynamic, cpu::paddedColumns(columns)}, b.getI8Type(), rows),
      view(arena(), constant(offset + sizes.codes), {dynamic}, b.getF32Type(), rows),
      view(arena(), constant(offset + sizes.codes + sizes.scales),
           {dynamic, cpu::groupCount(columns, kind.groupSize)}, b.getI32Type(), rows)};
  if (kind.hasZeroPoints())
    parts.push_back(view(arena(), constant(offset + sizes.codes + sizes.scales + sizes.sums),
                         {dynamic}, b.getI32Type(), rows));
  for (Value part : parts)
    buffers[part] = {BufferRange::Kind::Arena,        offset,
                     offset + sizes.total(),          value.getAsOpaquePointer(),
                     kind.key().getAsOpaquePointer(), rowsOfValue.lookup(value)};
  codes[{value, kind.key()}] = parts;
  return parts;
}

void FunctionEmitter::quantize(cpu::RowSpec &spec, const CodesKind &kind,
                               SmallVectorImpl<Value> &arguments) {
  spec.quantization =
      kind.isStatic() ? cpu::RowQuantization::Static : cpu::RowQuantization::Dynamic;
  spec.groupSize = kind.groupSize;
  spec.zeroPoints = kind.hasZeroPoints();
  spec.fullRange = kind.isStatic() && kind.scheme.getFullRange();
  if (kind.isStatic())
    arguments.push_back(arith::ConstantOp::create(b, kind.scale));
  if (kind.hasZeroPoints())
    arguments.push_back(arith::ConstantOp::create(b, kind.zeroPoint));
}

SmallVector<Value, 4> FunctionEmitter::quantizedRows(Value value, const CodesKind &kind) {
  if (auto it = codes.find({value, kind.key()}); it != codes.end())
    return it->second;
  cpu::RowSpec spec;
  spec.op = cpu::RowOp::Quantize;
  spec.columns = cast<RankedTensorType>(value.getType()).getDimSize(1);
  SmallVector<Value> arguments = {rows(value)};
  quantize(spec, kind, arguments);
  SmallVector<Value, 4> parts = quantizedDestination(value, kind, rowsOf(rows(value)));
  llvm::append_range(arguments, parts);
  callRowKernel(Phase::Quantize, cpu::getOrEmitRowOp(program.module, spec, program.target),
                arguments, parts);
  return parts;
}

Value FunctionEmitter::columnsOf(Value matrix, int64_t first, int64_t count) {
  Value columns = memref::SubViewOp::create(
      b, matrix, ArrayRef<OpFoldResult>{b.getIndexAttr(0), b.getIndexAttr(first)},
      ArrayRef<OpFoldResult>{rowsOf(matrix), b.getIndexAttr(count)},
      ArrayRef<OpFoldResult>{b.getIndexAttr(1), b.getIndexAttr(1)});
  if (auto it = buffers.find(matrix); it != buffers.end())
    buffers[columns] = BufferRange(it->second);
  return columns;
}

/// For the rare value that an op would overwrite while others still read it.
void FunctionEmitter::copy(Value from, Value to) {
  cpu::RowSpec spec{cpu::RowOp::Copy, cast<MemRefType>(from.getType()).getDimSize(1)};
  callRowKernel(Phase::Other, cpu::getOrEmitRowOp(program.module, spec, program.target), {from, to},
                to);
}

//===----------------------------------------------------------------------===//
// Operations
//===----------------------------------------------------------------------===//

Operation *FunctionEmitter::call(func::FuncOp callee, ArrayRef<Value> arguments) {
  SmallVector<Value> operands;
  for (auto [argument, type] : llvm::zip_equal(arguments, callee.getArgumentTypes()))
    operands.push_back(argument.getType() == type
                           ? argument
                           : memref::CastOp::create(b, type, argument).getResult());
  return func::CallOp::create(b, callee, operands);
}

void FunctionEmitter::returnIf(Value stops) {
  if (!stopped) {
    OpBuilder::InsertionGuard guard(b);
    stopped = b.createBlock(&result.getBody());
    func::ReturnOp::create(b, arith::ConstantOp::create(b, b.getBoolAttr(true)).getResult());
  }
  OpBuilder::InsertPoint here = b.saveInsertionPoint();
  Block *next = b.createBlock(&result.getBody());
  b.restoreInsertionPoint(here);
  cf::CondBranchOp::create(b, stops, stopped, next);
  b.setInsertionPointToEnd(next);
}

void FunctionEmitter::meet() {
  dependences.clear();
  Value stops = cpu::emitBarrier(b, program.module, team);
  if (program.marks)
    returnIf(stops);
}

void FunctionEmitter::callKernel(Phase phase, func::FuncOp kernel, ArrayRef<Value> arguments,
                                 const Accesses &accesses, const Accesses *later) {
  if (dependences.mustMeet(accesses))
    meet();
  if (program.marks)
    program.marks->emit(b, marker[0], marker[1], phase, siteOf(emitted));
  SmallVector<Value> withTeam(arguments);
  team.append(withTeam);
  call(kernel, withTeam);
  if (later)
    dependences.clear();
  dependences.add(later ? *later : accesses);
}

void FunctionEmitter::callRowKernel(Phase phase, func::FuncOp kernel, ArrayRef<Value> arguments,
                                    ArrayRef<Value> outputs) {
  Accesses accesses;
  for (Value argument : arguments)
    access(accesses, argument, llvm::is_contained(outputs, argument), /*isOwnShare=*/true);
  callKernel(phase, kernel, arguments, accesses);
}

void FunctionEmitter::emitRowOp(cpu::RowSpec spec, Value output, ArrayRef<Value> inputs) {
  spec.columns = cast<RankedTensorType>(output.getType()).getDimSize(1);
  SmallVector<Value> arguments;
  for (Value input : inputs)
    arguments.push_back(memory.lookup(input));
  Value count = rowsOf(arguments.front());
  Phase phase = Phase::Other;
  SmallVector<Value, 4> outputs;
  if (plan.isQuantizedOnly(output)) {
    phase = Phase::Quantize;
    CodesKind kind = *quantizedUse(*output.use_begin());
    quantize(spec, kind, arguments);
    outputs = quantizedDestination(output, kind, count);
  } else {
    outputs = {destination(output, count)};
  }
  llvm::append_range(arguments, outputs);
  callRowKernel(phase, cpu::getOrEmitRowOp(program.module, spec, program.target), arguments,
                outputs);
}

void FunctionEmitter::emitFakeQuantize(equant::FakeQuantizeOp op) {
  cpu::FakeQuantizeSpec spec{lm::columns(op.getInput()), op.getScheme().toNumerics().codes,
                             bool(op.getScaleAttr())};
  SmallVector<Value> arguments = {rows(op.getInput())};
  if (spec.isStatic)
    arguments.push_back(arith::ConstantOp::create(b, op.getScaleAttr()));
  Value output = destination(op.getOutput(), rowsOf(arguments.front()));
  arguments.push_back(output);
  callRowKernel(Phase::Quantize, cpu::getOrEmitFakeQuantize(program.module, spec, program.target),
                arguments, output);
}

/// The memory that an op updates: that of its activation, or a copy if others still read it.
template <typename OpTy> Value FunctionEmitter::inPlace(OpTy op) {
  Value input = *llvm::find_if(op->getOperands(),
                               [&](Value v) { return v.getType() == op->getResult(0).getType(); });
  Value output = op->getResult(0);
  if (plan.storageOf(output) != output)
    return memory[output] = rows(input);
  Value fresh = destination(output, rowsOf(rows(input)));
  copy(rows(input), fresh);
  return fresh;
}

LogicalResult FunctionEmitter::emitGlobal(ml_program::GlobalLoadConstOp op) {
  auto global = program.symbols.lookup<ml_program::GlobalOp>(op.getGlobal().getLeafReference());
  auto offset = global ? global->getAttrOfType<IntegerAttr>("equant.offset") : nullptr;
  if (!offset)
    return op.emitOpError()
           << op.getGlobal()
           << " has no place in the artifact: run equant-materialize-weights first";
  auto type = dyn_cast<RankedTensorType>(op.getType());
  if (!type || !type.hasStaticShape())
    return op.emitOpError("expected a constant tensor of static shape, found ") << op.getType();
  // Kernels decode formats that memory knows no loads of from integers of their width.
  Type element = type.getElementType();
  if (isa<FloatType>(element) && !element.isF32() && !element.isF16())
    element = b.getIntegerType(element.getIntOrFloatBitWidth());
  memory[op.getResult()] = view(weights(), constant(offset.getInt()), type.getShape(), element, {});
  return success();
}

template <typename RopeLike> void FunctionEmitter::emitRope(RopeLike op, bool inverse) {
  int64_t headDim = op.getHeadDim();
  cpu::RopeSpec spec{lm::columns(op.getOutput()) / headDim, headDim,
                     cast<RankedTensorType>(op.getTable().getType()).getDimSize(0), inverse};
  Value x = inPlace(op);
  callRowKernel(Phase::Attention, cpu::getOrEmitRope(program.module, spec, program.target),
                {x, rows(op.getTable()), rows(op.getPosition())}, x);
}
template void FunctionEmitter::emitRope(lm::RopeGradientOp op, bool inverse);

void FunctionEmitter::emitLinear(Operation &op, cpu::LinearSpec spec, ArrayRef<Value> weights,
                                 Value bias, std::optional<CodesKind> kind) {
  Value input = op.getOperand(0), output = op.getResult(0);
  spec.n = cast<RankedTensorType>(output.getType()).getDimSize(1);
  spec.k = cast<RankedTensorType>(input.getType()).getDimSize(1);
  spec.bias = bias != nullptr;
  SmallVector<Value> arguments;
  if (kind)
    llvm::append_range(arguments, quantizedRows(input, *kind));
  else
    arguments.push_back(rows(input));
  Value count = rowsOf(arguments.front());
  for (Value weight : weights)
    arguments.push_back(memory.lookup(weight));
  if (bias)
    arguments.push_back(memory.lookup(bias));
  if (auto add = cast_or_null<lm::AddOp>(plan.accumulatingAdd(&op))) {
    spec.accumulate = true;
    Value stream = add.getLhs() == output ? add.getRhs() : add.getLhs();
    memory[output] = memory[add.getOutput()] = rows(stream);
  } else {
    destination(output, count);
  }
  Accesses accesses;
  for (Value argument : arguments)
    access(accesses, argument, /*isWrite=*/false, /*isOwnShare=*/false);
  Value y = rows(output), shares = scratch(cpu::scratchBytes(spec, program.target));
  access(accesses, y, /*isWrite=*/true, /*isOwnShare=*/false);
  access(accesses, shares, /*isWrite=*/true, /*isOwnShare=*/true);
  arguments.append({y, shares});
  callKernel(Phase::Gemm, cpu::getOrEmitLinear(program.module, spec, program.target), arguments,
             accesses);
}

template <typename AttentionLike>
static cpu::AttentionSpec specOf(AttentionLike op, bool halfCache) {
  cpu::AttentionSpec spec;
  spec.heads = op.getNumHeads();
  spec.kvHeads = op.getNumKvHeads();
  spec.headDim = op.getHeadDim();
  spec.scale = op.getScale().convertToDouble();
  spec.window = op.getWindow();
  spec.halfCache = halfCache;
  return spec;
}

cpu::AttentionSpec easyquant::attentionSpec(Operation *attention, bool halfCache) {
  auto op = dyn_cast<equant::AttentionOp>(attention);
  if (!op)
    return specOf(cast<lm::AttentionOp>(attention), halfCache);
  cpu::AttentionSpec spec = specOf(op, halfCache);
  equant::KVSchemeAttr scheme = op.getKvScheme();
  spec.kv = cpu::KVQuantization{static_cast<int>(scheme.getCode().getWidth()), scheme.getGroup(),
                                scheme.getResidual(), scheme.getSinks(),
                                scheme.getKeys() == equant::Granularity::Token};
  if (op.getTable())
    spec.kv->ropePositions = cast<RankedTensorType>(op.getTable().getType()).getDimSize(0);
  return spec;
}

std::pair<Value, Value> FunctionEmitter::layerCache(int64_t layer) {
  Value tokens = arith::SubIOp::create(b, rowsOf(cache()), constant(program.cacheBytes.fixed));
  Value capacity = arith::DivUIOp::create(b, tokens, constant(program.cacheBytes.perToken));
  Value bytes = arith::MulIOp::create(b, capacity, constant(layer * program.layerCache.perToken));
  Value begin = arith::AddIOp::create(b, bytes, constant(layer * program.layerCache.fixed));
  return {capacity, begin};
}

static BufferRange cacheOf(int64_t layer) { return {BufferRange::Kind::Cache, layer, layer + 1}; }

LogicalResult FunctionEmitter::emitAttention(lm::AttentionOp op) {
  cpu::AttentionSpec spec = attentionSpec(op, program.halfCache);
  Type element = spec.halfCache ? Type(b.getF16Type()) : Type(b.getF32Type());

  // A layer's keys, then its values; every layer has room for `capacity` tokens.
  int64_t elementsPerToken = spec.kvHeads * spec.headDim;
  int64_t bytesPerToken = elementsPerToken * element.getIntOrFloatBitWidth() / 8;
  auto [capacity, keys] = layerCache(op.getLayer());
  Value values =
      arith::AddIOp::create(b, keys, arith::MulIOp::create(b, capacity, constant(bytesPerToken)));
  Value elements = arith::MulIOp::create(b, capacity, constant(elementsPerToken));

  Value query = rows(op.getQuery()), key = rows(op.getKey()), value = rows(op.getValue());
  Value y = destination(op.getOutput(), rowsOf(query));
  Value tiles = scratch(cpu::scratchBytes(spec, program.target));
  // Behind the kernel's barrier nothing that came before it is pending.
  Accesses append, attend;
  access(append, key, /*isWrite=*/false, /*isOwnShare=*/true);
  access(append, value, /*isWrite=*/false, /*isOwnShare=*/true);
  append.push_back({cacheOf(op.getLayer()), /*isWrite=*/true, /*isOwnShare=*/false});
  access(attend, query, /*isWrite=*/false, /*isOwnShare=*/false);
  access(attend, y, /*isWrite=*/true, /*isOwnShare=*/false);
  access(attend, tiles, /*isWrite=*/true, /*isOwnShare=*/false);
  attend.push_back({cacheOf(op.getLayer()), /*isWrite=*/false, /*isOwnShare=*/false});
  callKernel(Phase::Attention, cpu::getOrEmitAttention(program.module, spec, program.target),
             {query, key, value, view(cache(), keys, {ShapedType::kDynamic}, element, elements),
              view(cache(), values, {ShapedType::kDynamic}, element, elements),
              rows(op.getPosition()), y, tiles},
             append, &attend);
  return success();
}

LogicalResult FunctionEmitter::emitAttention(equant::AttentionOp op) {
  cpu::AttentionSpec spec = attentionSpec(op, program.halfCache);
  auto [capacity, begin] = layerCache(op.getLayer());
  Value bytes = arith::AddIOp::create(
      b, arith::MulIOp::create(b, capacity, constant(program.layerCache.perToken)),
      constant(program.layerCache.fixed));
  Value query = rows(op.getQuery());
  SmallVector<Value> arguments = {
      query, rows(op.getKey()), rows(op.getValue()),
      view(cache(), begin, {ShapedType::kDynamic}, b.getI8Type(), bytes), capacity};
  if (op.getTable())
    arguments.push_back(rows(op.getTable()));
  Value y = destination(op.getOutput(), rowsOf(query));
  Value tiles = scratch(cpu::scratchBytes(spec, program.target));
  arguments.append({rows(op.getPosition()), y, tiles});
  // Of one token it appends, then attends; of more the other way round.
  Accesses accesses;
  for (Value input : op->getOperands().take_front(3))
    access(accesses, rows(input), /*isWrite=*/false, /*isOwnShare=*/false);
  access(accesses, y, /*isWrite=*/true, /*isOwnShare=*/false);
  access(accesses, tiles, /*isWrite=*/true, /*isOwnShare=*/false);
  accesses.push_back({cacheOf(op.getLayer()), /*isWrite=*/true, /*isOwnShare=*/false});
  callKernel(Phase::Attention, cpu::getOrEmitAttention(program.module, spec, program.target),
             arguments, accesses);
  return success();
}

void FunctionEmitter::emitCall(func::CallOp op) {
  Value activation = inPlace(op);
  SmallVector<Value> arguments = {weights(), arena(), cache()};
  for (Value operand : op.getOperands()) {
    if (isa<lm::KVCacheType>(operand.getType()))
      continue;
    arguments.push_back(operand.getType() == op.getResult(0).getType() ? activation
                                                                       : memory.lookup(operand));
  }
  team.append(arguments);
  llvm::append_range(arguments, host);
  llvm::append_range(arguments, marker);
  Operation *layer =
      call(program.symbols.lookup<func::FuncOp>((op.getCallee() + ".kernels").str()), arguments);
  dependences.addAll();
  if (program.marks)
    returnIf(layer->getResult(0));
}

void FunctionEmitter::emitReturn(func::ReturnOp op) {
  if (!outputs.empty()) {
    for (auto [output, operand] : llvm::zip_equal(outputs, op.getOperands()))
      if (rows(operand) != output)
        copy(rows(operand), output);
  } else if (op.getNumOperands() == 1) {
    // A layer leaves its result in the memory of its activation argument.
    Value returned = rows(op.getOperand(0));
    Value argument = *llvm::find_if(
        source.getArguments(), [&](Value v) { return v.getType() == op.getOperand(0).getType(); });
    if (plan.storageOf(op.getOperand(0)) != argument)
      copy(returned, rows(argument));
  }
  if (program.marks)
    func::ReturnOp::create(b, arith::ConstantOp::create(b, b.getBoolAttr(false)).getResult());
  else
    func::ReturnOp::create(b);
}

static FailureOr<cpu::WeightFormat> weightFormat(Operation *op, equant::SchemeAttr scheme,
                                                 equant::LayoutAttr layout) {
  if (layout != equant::LayoutAttr::panel(op->getContext()))
    return op->emitOpError("expected weights packed in the CPU's panels: run "
                           "equant-materialize-weights first");
  return cpu::formatOfBits(static_cast<int>(scheme.getBits()));
}

LogicalResult FunctionEmitter::emit(Operation &op) {
  b.setLoc(op.getLoc());
  emitted = &op;
  return TypeSwitch<Operation *, LogicalResult>(&op)
      .Case([&](ml_program::GlobalLoadConstOp op) { return emitGlobal(op); })
      .Case([&](arith::ConstantOp op) {
        memory[op.getResult()] = b.clone(*op)->getResult(0);
        return success();
      })
      .Case([&](lm::EmbeddingOp op) {
        auto table = cast<RankedTensorType>(op.getTable().getType());
        cpu::EmbeddingSpec spec{table.getDimSize(0), table.getDimSize(1)};
        Value tokens = rows(op.getTokens()), output = destination(op.getOutput(), rowsOf(tokens));
        callRowKernel(Phase::Other, cpu::getOrEmitEmbedding(program.module, spec, program.target),
                      {tokens, rows(op.getTable()), output}, output);
        return success();
      })
      .Case([&](equant::EmbeddingOp op) -> LogicalResult {
        auto format = weightFormat(op, op.getWeightScheme(), op.getLayoutAttr());
        if (failed(format))
          return failure();
        cpu::EmbeddingSpec spec{static_cast<int64_t>(op.getVocabSize()),
                                cast<RankedTensorType>(op.getOutput().getType()).getDimSize(1),
                                *format,
                                op.getWeightScheme().getGroupSize(),
                                bool(op.getZeroPoint()),
                                cpu::WeightNumbers::of(op.getWeightScheme().toNumerics())};
        Value tokens = rows(op.getTokens());
        SmallVector<Value> arguments = {tokens, rows(op.getCodes()), rows(op.getScale())};
        if (op.getZeroPoint())
          arguments.push_back(rows(op.getZeroPoint()));
        Value output = destination(op.getOutput(), rowsOf(tokens));
        arguments.push_back(output);
        callRowKernel(Phase::Other, cpu::getOrEmitEmbedding(program.module, spec, program.target),
                      arguments, output);
        return success();
      })
      .Case([&](lm::PositionEmbeddingOp op) {
        auto table = cast<RankedTensorType>(op.getTable().getType());
        cpu::PositionEmbeddingSpec spec{table.getDimSize(0), table.getDimSize(1)};
        Value x = inPlace(op);
        callRowKernel(Phase::Other,
                      cpu::getOrEmitPositionEmbedding(program.module, spec, program.target),
                      {x, rows(op.getTable()), rows(op.getPosition())}, x);
        return success();
      })
      .Case([&](lm::RopeOp op) {
        emitRope(op, /*inverse=*/false);
        return success();
      })
      .Case([&](lm::HeadRmsNormOp op) {
        int64_t columns = cast<RankedTensorType>(op.getInput().getType()).getDimSize(1);
        int64_t headDim = cast<RankedTensorType>(op.getWeight().getType()).getDimSize(0);
        cpu::HeadNormSpec spec{columns / headDim, headDim, op.getEpsilon().convertToDouble()};
        Value x = inPlace(op);
        callRowKernel(Phase::Attention,
                      cpu::getOrEmitHeadNorm(program.module, spec, program.target),
                      {x, rows(op.getWeight())}, x);
        return success();
      })
      .Case([&](lm::AttentionOp op) { return emitAttention(op); })
      .Case([&](equant::AttentionOp op) { return emitAttention(op); })
      .Case([&](lm::LinearOp op) {
        emitLinear(*op, cpu::LinearSpec(), {op.getWeight()}, op.getBias());
        return success();
      })
      .Case([&](equant::LinearOp op) -> LogicalResult {
        auto format = weightFormat(op, op.getWeightScheme(), op.getLayoutAttr());
        if (failed(format))
          return failure();
        cpu::LinearSpec spec;
        spec.weights = *format;
        spec.groupSize = op.getWeightScheme().getGroupSize();
        spec.numbers = cpu::WeightNumbers::of(op.getWeightScheme().toNumerics());
        spec.fullRange = op.getWeightScheme().getFullRange();
        spec.quantizedInput = op.getInputScheme().has_value();
        spec.zeroPoints = bool(op.getZeroPoint());
        spec.inputZeroPoints = bool(op.getCodeSums());
        SmallVector<Value> weights = {op.getCodes(), op.getScale()};
        if (op.getZeroPoint())
          weights.push_back(op.getZeroPoint());
        if (op.getCodeSums())
          weights.push_back(op.getCodeSums());
        std::optional<CodesKind> kind;
        if (spec.quantizedInput)
          kind = CodesKind::of(op);
        emitLinear(*op, spec, weights, op.getBias(), kind);
        return success();
      })
      .Case([&](equant::FakeQuantizeOp op) {
        emitFakeQuantize(op);
        return success();
      })
      .Case([&](lm::RmsNormOp op) {
        emitRowOp({cpu::RowOp::RmsNorm, 0, op.getEpsilon().convertToDouble()}, op.getOutput(),
                  {op.getInput(), op.getWeight()});
        return success();
      })
      .Case([&](lm::LayerNormOp op) {
        emitRowOp({cpu::RowOp::LayerNorm, 0, op.getEpsilon().convertToDouble()}, op.getOutput(),
                  {op.getInput(), op.getWeight(), op.getBias()});
        return success();
      })
      .Case([&](lm::SiluMulOp op) {
        emitRowOp({cpu::RowOp::SiluMul}, op.getOutput(), {op.getGate(), op.getUp()});
        return success();
      })
      .Case([&](lm::GeluOp op) {
        bool tanh = op.getApproximate() == lm::GeluApproximation::Tanh;
        emitRowOp({tanh ? cpu::RowOp::GeluTanh : cpu::RowOp::GeluErf}, op.getOutput(),
                  {op.getInput()});
        return success();
      })
      .Case([&](lm::AddOp op) {
        if (!memory.contains(op.getOutput())) // else a linear added into it
          emitRowOp({cpu::RowOp::Add}, op.getOutput(), {op.getLhs(), op.getRhs()});
        return success();
      })
      .Case([&](lm::SplitOp op) {
        Value input = rows(op.getInput());
        int64_t column = 0;
        for (Value output : op.getOutputs()) {
          memory[output] = columnsOf(input, column, lm::columns(output));
          column += lm::columns(output);
        }
        return success();
      })
      .Case([&](lm::RowsOp op) {
        Value input = rows(op.getInput()), first = rows(op.getFirst());
        int64_t columns = cast<RankedTensorType>(op.getInput().getType()).getDimSize(1);
        Value count = arith::SubIOp::create(b, rowsOf(input), first);
        Value last =
            memref::SubViewOp::create(b, input, ArrayRef<OpFoldResult>{first, b.getIndexAttr(0)},
                                      ArrayRef<OpFoldResult>{count, b.getIndexAttr(columns)},
                                      ArrayRef<OpFoldResult>{b.getIndexAttr(1), b.getIndexAttr(1)});
        remember(op.getOutput(), last, buffers.lookup(input));
        return success();
      })
      .Case([&](func::CallOp op) {
        emitCall(op);
        return success();
      })
      .Case([&](func::ReturnOp op) {
        emitReturn(op);
        return success();
      })
      .Default([&](Operation *op) { return emitGradient(*op); });
}

LogicalResult FunctionEmitter::run() {
  Block *body = result.addEntryBlock();
  b.setInsertionPointToStart(body);
  auto remembered = [&](Value place) {
    if (isa<MemRefType>(place.getType()))
      buffers[place] = {BufferRange::Kind::Argument, 0, 1, place.getAsOpaquePointer()};
    return place;
  };
  unsigned next = 3;
  for (Value argument : source.getArguments())
    memory[argument] =
        isa<lm::KVCacheType>(argument.getType()) ? cache() : remembered(body->getArgument(next++));
  team = cpu::Team::of(body->getArguments().slice(next, 3));
  next += 3;
  if (!program.hostCalls.empty()) {
    host = {body->getArgument(next), body->getArgument(next + 1)};
    next += 2;
  }
  if (program.marks) {
    marker = {body->getArgument(next), body->getArgument(next + 1)};
    next += 2;
  }
  for (Value output : body->getArguments().drop_front(next))
    outputs.push_back(remembered(output));
  // A layer does not know what its caller's kernels touched.
  if (!source.isPublic())
    dependences.addAll();
  for (Operation &op : source.front()) {
    const void *rows = nullptr;
    if (isa<lm::RowsOp, lm::RowsGradientOp>(op))
      rows = &op;
    else if (auto input = llvm::find_if(
                 op.getOperands(), [](Value value) { return isActivationType(value.getType()); });
             input != op.operand_end())
      rows = rowsOfValue.lookup(*input);
    for (Value value : op.getResults())
      rowsOfValue[value] = rows;
    if (failed(emit(op)))
      return failure();
  }
  return success();
}
