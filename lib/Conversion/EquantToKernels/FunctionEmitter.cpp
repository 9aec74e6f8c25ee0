//===- FunctionEmitter.cpp - One function as kernel calls ------------------- -===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "FunctionEmitter.h"

#include "easyquant/Codegen/CPU/HeadNorm.h"

#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "llvm/ADT/TypeSwitch.h"

using namespace mlir;
using namespace easyquant;

//===----------------------------------------------------------------------===//
// Memory
//===----------------------------------------------------------------------===//

Value FunctionEmitter::scratch(int64_t bytesPerThread) {
  bytesPerThread = alignBuffer(bytesPerThread);
  program.arenaBytesPerThread = std::max(program.arenaBytesPerThread, bytesPerThread);
  Value bytes = arith::MulIOp::create(b, threads(), constant(bytesPerThread));
  return memref::ViewOp::create(b, program.bytes(), arena(), constant(program.arenaBytes), bytes);
}

Value FunctionEmitter::destination(Value value, Value rows) {
  Value storage = plan.storageOf(value);
  if (storage == value) {
    auto type = cast<RankedTensorType>(value.getType());
    for (auto [output, returned] :
         llvm::zip(outputs, source.front().getTerminator()->getOperands()))
      if (returned == value)
        return memory[value] = output;
    return memory[value] = view(arena(), constant(*plan.offsetOf(value)), type.getShape(),
                                type.getElementType(), rows);
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
  arguments.push_back(threads());
  callKernel(Phase::Quantize, cpu::getOrEmitRowOp(program.module, spec, program.target), arguments);
  return parts;
}

Value FunctionEmitter::columnsOf(Value matrix, int64_t first, int64_t count) {
  return memref::SubViewOp::create(b, matrix,
                                   ArrayRef<OpFoldResult>{b.getIndexAttr(0), b.getIndexAttr(first)},
                                   ArrayRef<OpFoldResult>{rowsOf(matrix), b.getIndexAttr(count)},
                                   ArrayRef<OpFoldResult>{b.getIndexAttr(1), b.getIndexAttr(1)});
}

/// Row by row, for the rare value that an op would overwrite while others still read it.
void FunctionEmitter::copy(Value from, Value to) {
  mark(Phase::Other);
  Value columns = memref::DimOp::create(b, from, 1), one = constant(1);
  scf::ForOp::create(b, zero(), rowsOf(from), one, ValueRange(),
                     [&](OpBuilder &builder, Location loc, Value row, ValueRange) {
                       scf::ForOp::create(
                           builder, loc, zero(), columns, one, ValueRange(),
                           [&](OpBuilder &inner, Location loc, Value column, ValueRange) {
                             Value at[] = {row, column};
                             Value element = memref::LoadOp::create(inner, loc, from, at);
                             memref::StoreOp::create(inner, loc, element, to, at);
                             scf::YieldOp::create(inner, loc);
                           });
                       scf::YieldOp::create(builder, loc);
                     });
}

//===----------------------------------------------------------------------===//
// Operations
//===----------------------------------------------------------------------===//

void FunctionEmitter::call(func::FuncOp callee, ArrayRef<Value> arguments) {
  SmallVector<Value> operands;
  for (auto [argument, type] : llvm::zip_equal(arguments, callee.getArgumentTypes()))
    operands.push_back(argument.getType() == type
                           ? argument
                           : memref::CastOp::create(b, type, argument).getResult());
  func::CallOp::create(b, callee, operands);
}

void FunctionEmitter::mark(Phase phase) {
  if (program.marks)
    program.marks->emit(b, marker[0], marker[1], phase, siteOf(emitted));
}

void FunctionEmitter::callKernel(Phase phase, func::FuncOp kernel, ArrayRef<Value> arguments) {
  mark(phase);
  call(kernel, arguments);
}

void FunctionEmitter::emitRowOp(cpu::RowSpec spec, Value output, ArrayRef<Value> inputs) {
  spec.columns = cast<RankedTensorType>(output.getType()).getDimSize(1);
  SmallVector<Value> arguments;
  for (Value input : inputs)
    arguments.push_back(memory.lookup(input));
  Value count = rowsOf(arguments.front());
  Phase phase = Phase::Other;
  if (plan.isQuantizedOnly(output)) {
    phase = Phase::Quantize;
    CodesKind kind = *quantizedUse(*output.use_begin());
    quantize(spec, kind, arguments);
    llvm::append_range(arguments, quantizedDestination(output, kind, count));
  } else {
    arguments.push_back(destination(output, count));
  }
  arguments.push_back(threads());
  callKernel(phase, cpu::getOrEmitRowOp(program.module, spec, program.target), arguments);
}

void FunctionEmitter::emitFakeQuantize(equant::FakeQuantizeOp op) {
  cpu::FakeQuantizeSpec spec{lm::columns(op.getInput()), op.getScheme().toNumerics().codes,
                             bool(op.getScaleAttr()), op.getScheme().getGroupSize()};
  SmallVector<Value> arguments = {rows(op.getInput())};
  if (spec.isStatic)
    arguments.push_back(arith::ConstantOp::create(b, op.getScaleAttr()));
  arguments.push_back(destination(op.getOutput(), rowsOf(arguments.front())));
  arguments.push_back(threads());
  callKernel(Phase::Quantize, cpu::getOrEmitFakeQuantize(program.module, spec, program.target),
             arguments);
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
  callKernel(Phase::Attention, cpu::getOrEmitRope(program.module, spec, program.target),
             {inPlace(op), rows(op.getTable()), rows(op.getPosition()), threads()});
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
  arguments.push_back(rows(output));
  arguments.push_back(scratch(cpu::scratchBytes(spec, program.target)));
  arguments.push_back(threads());
  callKernel(Phase::Gemm, cpu::getOrEmitLinear(program.module, spec, program.target), arguments);
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

  Value query = rows(op.getQuery());
  callKernel(Phase::Attention, cpu::getOrEmitAttention(program.module, spec, program.target),
             {query, rows(op.getKey()), rows(op.getValue()),
              view(cache(), keys, {ShapedType::kDynamic}, element, elements),
              view(cache(), values, {ShapedType::kDynamic}, element, elements),
              rows(op.getPosition()), destination(op.getOutput(), rowsOf(query)),
              scratch(cpu::scratchBytes(spec, program.target)), threads()});
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
  llvm::append_range(arguments,
                     ValueRange{rows(op.getPosition()), destination(op.getOutput(), rowsOf(query)),
                                scratch(cpu::scratchBytes(spec, program.target)), threads()});
  callKernel(Phase::Attention, cpu::getOrEmitAttention(program.module, spec, program.target),
             arguments);
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
  arguments.push_back(threads());
  llvm::append_range(arguments, host);
  llvm::append_range(arguments, marker);
  call(program.symbols.lookup<func::FuncOp>((op.getCallee() + ".kernels").str()), arguments);
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
        Value tokens = rows(op.getTokens());
        callKernel(
            Phase::Other, cpu::getOrEmitEmbedding(program.module, spec, program.target),
            {tokens, rows(op.getTable()), destination(op.getOutput(), rowsOf(tokens)), threads()});
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
        if (op.getOuter())
          arguments.push_back(rows(op.getOuter()));
        arguments.push_back(destination(op.getOutput(), rowsOf(tokens)));
        arguments.push_back(threads());
        callKernel(Phase::Other, cpu::getOrEmitEmbedding(program.module, spec, program.target),
                   arguments);
        return success();
      })
      .Case([&](lm::PositionEmbeddingOp op) {
        auto table = cast<RankedTensorType>(op.getTable().getType());
        cpu::PositionEmbeddingSpec spec{table.getDimSize(0), table.getDimSize(1)};
        callKernel(Phase::Other,
                   cpu::getOrEmitPositionEmbedding(program.module, spec, program.target),
                   {rows(op.getTable()), rows(op.getPosition()), inPlace(op)});
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
        callKernel(Phase::Attention, cpu::getOrEmitHeadNorm(program.module, spec, program.target),
                   {inPlace(op), rows(op.getWeight()), threads()});
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
        if (op.getOuter())
          weights.push_back(op.getOuter());
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
        memory[op.getOutput()] =
            memref::SubViewOp::create(b, input, ArrayRef<OpFoldResult>{first, b.getIndexAttr(0)},
                                      ArrayRef<OpFoldResult>{count, b.getIndexAttr(columns)},
                                      ArrayRef<OpFoldResult>{b.getIndexAttr(1), b.getIndexAttr(1)});
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
  unsigned next = 3;
  for (Value argument : source.getArguments())
    memory[argument] =
        isa<lm::KVCacheType>(argument.getType()) ? cache() : body->getArgument(next++);
  threadsArgument = body->getArgument(next++);
  if (!program.hostCalls.empty()) {
    host = {body->getArgument(next), body->getArgument(next + 1)};
    next += 2;
  }
  if (program.marks) {
    marker = {body->getArgument(next), body->getArgument(next + 1)};
    next += 2;
  }
  llvm::append_range(outputs, body->getArguments().drop_front(next));
  for (Operation &op : source.front())
    if (failed(emit(op)))
      return failure();
  return success();
}
