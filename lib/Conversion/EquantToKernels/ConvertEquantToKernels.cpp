//===- ConvertEquantToKernels.cpp - Models to kernel calls ----------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "easyquant/Conversion/EquantToKernels/BufferPlan.h"
#include "easyquant/Conversion/EquantToKernels/EquantToKernels.h"

#include "easyquant/Codegen/CPU/Kernels.h"
#include "easyquant/Dialect/Equant/IR/Equant.h"
#include "easyquant/Dialect/LM/IR/LM.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/MLProgram/IR/MLProgram.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "mlir/IR/ImplicitLocOpBuilder.h"
#include "mlir/IR/SymbolTable.h"
#include "llvm/ADT/TypeSwitch.h"

namespace easyquant {
#define GEN_PASS_DEF_CONVERTEQUANTTOKERNELS
#include "easyquant/Conversion/EquantToKernels/Passes.h.inc"
} // namespace easyquant

using namespace mlir;
using namespace easyquant;

namespace {

constexpr StringLiteral kEntry = "forward";

/// What is the same in the whole program.
struct Program {
  explicit Program(ModuleOp module) : module(module), symbols(module) {}

  ModuleOp module;
  SymbolTable symbols;
  cpu::Target target;
  int64_t maxRows = 0;
  bool halfCache = false;
  int64_t cacheBytesPerToken = 0;
  int64_t arenaBytesPerThread = 0;
  int64_t arenaBytes = 0; ///< where the scratch of the threads begins

  MemRefType bytes() const {
    return memref({ShapedType::kDynamic}, IntegerType::get(context(), 8));
  }
  MLIRContext *context() const { return symbols.getOp()->getContext(); }
  static MemRefType memref(ArrayRef<int64_t> shape, Type element) {
    return MemRefType::get(shape, element);
  }
};

/// Emits one function of the model as calls of kernels.
class FunctionEmitter {
public:
  FunctionEmitter(Program &program, const BufferPlan &plan, func::FuncOp source,
                  func::FuncOp result)
      : program(program), plan(plan), source(source), result(result),
        b(source.getLoc(), program.context()) {}

  LogicalResult run();

private:
  LogicalResult emit(Operation &op);

  // The fixed arguments: weights, arena, cache first, threads after the model's own.
  Value weights() { return result.getArgument(0); }
  Value arena() { return result.getArgument(1); }
  Value cache() { return result.getArgument(2); }
  Value threads() { return threadsArgument; }

  Value constant(int64_t value) { return arith::ConstantIndexOp::create(b, value); }
  Value zero() { return constant(0); }
  Value rowsOf(Value matrix) { return memref::DimOp::create(b, matrix, 0); }

  /// A typed view of a byte buffer.
  Value view(Value buffer, Value offset, ArrayRef<int64_t> shape, Type element, ValueRange sizes) {
    return memref::ViewOp::create(b, Program::memref(shape, element), buffer, offset, sizes);
  }
  /// The scratch of all threads; its size is known when the whole program is emitted.
  Value scratch(int64_t bytesPerThread);

  /// The memory that a result is to be written to, `rows` rows of it.
  Value destination(Value value, Value rows);
  /// The float memory of a value that was emitted before.
  Value rows(Value value) { return memory.lookup(value); }
  /// Codes, scales and sums of an activation; quantizes it if nobody has yet.
  SmallVector<Value, 3> quantizedRows(Value value, int64_t groupSize);
  SmallVector<Value, 3> quantizedDestination(Value value, int64_t groupSize, Value rows);

  void call(func::FuncOp kernel, ArrayRef<Value> arguments);
  void emitRowOp(cpu::RowSpec spec, Value output, ArrayRef<Value> inputs);
  void copy(Value from, Value to);
  template <typename OpTy> Value inPlace(OpTy op);

  LogicalResult emitGlobal(ml_program::GlobalLoadConstOp op);
  void emitLinear(Operation &op, cpu::LinearSpec spec, ArrayRef<Value> weights, Value bias);
  LogicalResult emitAttention(lm::AttentionOp op);
  void emitCall(func::CallOp op);
  void emitReturn(func::ReturnOp op);

  Program &program;
  const BufferPlan &plan;
  func::FuncOp source, result;
  ImplicitLocOpBuilder b;
  Value threadsArgument;
  Value logits; ///< of the entry
  DenseMap<Value, Value> memory;
  DenseMap<QuantizedValue, SmallVector<Value, 3>> codes;
};

} // namespace

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
    if (logits && value == cast<func::ReturnOp>(source.front().getTerminator()).getOperand(0))
      return memory[value] = logits;
    return memory[value] = view(arena(), constant(*plan.offsetOf(value)), type.getShape(),
                                type.getElementType(), rows);
  }
  return memory[value] = memory.lookup(storage);
}

SmallVector<Value, 3> FunctionEmitter::quantizedDestination(Value value, int64_t groupSize,
                                                            Value rows) {
  int64_t columns = cast<RankedTensorType>(value.getType()).getDimSize(1);
  int64_t offset = plan.offsetOf({value, groupSize});
  QuantizedBytes sizes = quantizedBytes(columns, groupSize, program.maxRows);
  constexpr int64_t dynamic = ShapedType::kDynamic;
  SmallVector<Value, 3> parts = {
      view(arena(), constant(offset), {dynamic, cpu::paddedColumns(columns)}, b.getI8Type(), rows),
      view(arena(), constant(offset + sizes.codes), {dynamic}, b.getF32Type(), rows),
      view(arena(), constant(offset + sizes.codes + sizes.scales),
           {dynamic, cpu::groupCount(columns, groupSize)}, b.getI32Type(), rows)};
  codes[{value, groupSize}] = parts;
  return parts;
}

SmallVector<Value, 3> FunctionEmitter::quantizedRows(Value value, int64_t groupSize) {
  if (auto it = codes.find({value, groupSize}); it != codes.end())
    return it->second;
  cpu::RowSpec spec;
  spec.op = cpu::RowOp::Quantize;
  spec.columns = cast<RankedTensorType>(value.getType()).getDimSize(1);
  spec.quantize = true;
  spec.groupSize = groupSize;
  SmallVector<Value> arguments = {rows(value)};
  SmallVector<Value, 3> parts = quantizedDestination(value, groupSize, rowsOf(rows(value)));
  llvm::append_range(arguments, parts);
  arguments.push_back(threads());
  call(cpu::getOrEmitRowOp(program.module, spec, program.target), arguments);
  return parts;
}

/// Row by row, for the rare value that an op would overwrite while others still read it.
void FunctionEmitter::copy(Value from, Value to) {
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

void FunctionEmitter::call(func::FuncOp kernel, ArrayRef<Value> arguments) {
  SmallVector<Value> operands;
  for (auto [argument, type] : llvm::zip_equal(arguments, kernel.getArgumentTypes()))
    operands.push_back(argument.getType() == type
                           ? argument
                           : memref::CastOp::create(b, type, argument).getResult());
  func::CallOp::create(b, kernel, operands);
}

void FunctionEmitter::emitRowOp(cpu::RowSpec spec, Value output, ArrayRef<Value> inputs) {
  spec.columns = cast<RankedTensorType>(output.getType()).getDimSize(1);
  SmallVector<Value> arguments;
  for (Value input : inputs)
    arguments.push_back(memory.lookup(input));
  Value count = rowsOf(arguments.front());
  if (plan.isQuantizedOnly(output)) {
    spec.quantize = true;
    spec.groupSize = *quantizedUse(*output.use_begin());
    llvm::append_range(arguments, quantizedDestination(output, spec.groupSize, count));
  } else {
    arguments.push_back(destination(output, count));
  }
  arguments.push_back(threads());
  call(cpu::getOrEmitRowOp(program.module, spec, program.target), arguments);
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
  auto type = cast<RankedTensorType>(op.getType());
  memory[op.getResult()] =
      view(weights(), constant(offset.getInt()), type.getShape(), type.getElementType(), {});
  return success();
}

void FunctionEmitter::emitLinear(Operation &op, cpu::LinearSpec spec, ArrayRef<Value> weights,
                                 Value bias) {
  Value input = op.getOperand(0), output = op.getResult(0);
  spec.n = cast<RankedTensorType>(output.getType()).getDimSize(1);
  spec.k = cast<RankedTensorType>(input.getType()).getDimSize(1);
  spec.bias = bias != nullptr;
  SmallVector<Value> arguments;
  if (spec.quantizedInput)
    llvm::append_range(arguments, quantizedRows(input, spec.groupSize));
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
  call(cpu::getOrEmitLinear(program.module, spec, program.target), arguments);
}

LogicalResult FunctionEmitter::emitAttention(lm::AttentionOp op) {
  cpu::AttentionSpec spec;
  spec.heads = op.getNumHeads();
  spec.kvHeads = op.getNumKvHeads();
  spec.headDim = op.getHeadDim();
  spec.scale = op.getScale().convertToDouble();
  spec.window = op.getWindow();
  spec.halfCache = program.halfCache;
  Type element = spec.halfCache ? Type(b.getF16Type()) : Type(b.getF32Type());

  // A layer's keys, then its values; every layer has room for `capacity` tokens.
  int64_t elementsPerToken = spec.kvHeads * spec.headDim;
  int64_t bytesPerToken = elementsPerToken * element.getIntOrFloatBitWidth() / 8;
  Value capacity = arith::DivUIOp::create(b, rowsOf(cache()), constant(program.cacheBytesPerToken));
  Value keys = arith::MulIOp::create(b, capacity, constant(op.getLayer() * 2 * bytesPerToken));
  Value values =
      arith::AddIOp::create(b, keys, arith::MulIOp::create(b, capacity, constant(bytesPerToken)));
  Value elements = arith::MulIOp::create(b, capacity, constant(elementsPerToken));

  Value query = rows(op.getQuery());
  call(cpu::getOrEmitAttention(program.module, spec, program.target),
       {query, rows(op.getKey()), rows(op.getValue()),
        view(cache(), keys, {ShapedType::kDynamic}, element, elements),
        view(cache(), values, {ShapedType::kDynamic}, element, elements), rows(op.getPosition()),
        destination(op.getOutput(), rowsOf(query)),
        scratch(cpu::scratchBytes(spec, program.target)), threads()});
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
  call(program.symbols.lookup<func::FuncOp>((op.getCallee() + ".kernels").str()), arguments);
}

void FunctionEmitter::emitReturn(func::ReturnOp op) {
  Value returned = rows(op.getOperand(0));
  if (logits) {
    if (returned != logits)
      copy(returned, logits);
  } else {
    // A layer leaves its result in the memory of its activation argument.
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
  if (!scheme.getSymmetric() || (scheme.getBits() != 8 && scheme.getBits() != 4))
    return op->emitOpError() << "the CPU has no kernel for weights of scheme " << scheme
                             << "; it has symmetric int8 and int4";
  return scheme.getBits() == 8 ? cpu::WeightFormat::I8 : cpu::WeightFormat::I4;
}

LogicalResult FunctionEmitter::emit(Operation &op) {
  b.setLoc(op.getLoc());
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
        call(cpu::getOrEmitEmbedding(program.module, spec, program.target),
             {tokens, rows(op.getTable()), destination(op.getOutput(), rowsOf(tokens)), threads()});
        return success();
      })
      .Case([&](equant::EmbeddingOp op) -> LogicalResult {
        auto format = weightFormat(op, op.getWeightScheme(), op.getLayoutAttr());
        if (failed(format))
          return failure();
        cpu::EmbeddingSpec spec{static_cast<int64_t>(op.getVocabSize()),
                                cast<RankedTensorType>(op.getOutput().getType()).getDimSize(1),
                                *format, op.getWeightScheme().getGroupSize()};
        Value tokens = rows(op.getTokens());
        call(cpu::getOrEmitEmbedding(program.module, spec, program.target),
             {tokens, rows(op.getCodes()), rows(op.getScale()),
              destination(op.getOutput(), rowsOf(tokens)), threads()});
        return success();
      })
      .Case([&](lm::PositionEmbeddingOp op) {
        auto table = cast<RankedTensorType>(op.getTable().getType());
        cpu::PositionEmbeddingSpec spec{table.getDimSize(0), table.getDimSize(1)};
        call(cpu::getOrEmitPositionEmbedding(program.module, spec, program.target),
             {rows(op.getTable()), rows(op.getPosition()), inPlace(op)});
        return success();
      })
      .Case([&](lm::RopeOp op) {
        int64_t columns = cast<RankedTensorType>(op.getInput().getType()).getDimSize(1);
        int64_t headDim = op.getHeadDim();
        cpu::RopeSpec spec{columns / headDim, headDim,
                           cast<RankedTensorType>(op.getTable().getType()).getDimSize(0)};
        call(cpu::getOrEmitRope(program.module, spec, program.target),
             {inPlace(op), rows(op.getTable()), rows(op.getPosition()), threads()});
        return success();
      })
      .Case([&](lm::AttentionOp op) { return emitAttention(op); })
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
        spec.quantizedInput = op.getInputScheme().has_value();
        emitLinear(*op, spec, {op.getCodes(), op.getScale()}, op.getBias());
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
          int64_t width = cast<RankedTensorType>(output.getType()).getDimSize(1);
          memory[output] = memref::SubViewOp::create(
              b, input, ArrayRef<OpFoldResult>{b.getIndexAttr(0), b.getIndexAttr(column)},
              ArrayRef<OpFoldResult>{rowsOf(input), b.getIndexAttr(width)},
              ArrayRef<OpFoldResult>{b.getIndexAttr(1), b.getIndexAttr(1)});
          column += width;
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
      .Default([](Operation *op) {
        return op->emitOpError("has no kernel; it must be lowered to lm or equant ops first");
      });
}

LogicalResult FunctionEmitter::run() {
  Block *body = result.addEntryBlock();
  b.setInsertionPointToStart(body);
  unsigned next = 3;
  for (Value argument : source.getArguments())
    memory[argument] =
        isa<lm::KVCacheType>(argument.getType()) ? cache() : body->getArgument(next++);
  threadsArgument = body->getArgument(next++);
  if (next < body->getNumArguments())
    logits = body->getArgument(next);
  for (Operation &op : source.front())
    if (failed(emit(op)))
      return failure();
  return success();
}

//===----------------------------------------------------------------------===//
// The pass
//===----------------------------------------------------------------------===//

/// rows<C>, the kernels' view of a matrix.
static MemRefType rowsType(RankedTensorType type) {
  auto layout =
      StridedLayoutAttr::get(type.getContext(), ShapedType::kDynamic, {ShapedType::kDynamic, 1});
  return MemRefType::get(type.getShape(), type.getElementType(), layout);
}

/// (weights, arena, cache, the model's own arguments, threads, logits if it is the entry).
static FunctionType kernelFunctionType(Program &program, func::FuncOp source, bool isEntry) {
  SmallVector<Type> types(3, program.bytes());
  for (Type type : source.getArgumentTypes()) {
    auto tensor = dyn_cast<RankedTensorType>(type);
    if (isa<lm::KVCacheType>(type))
      continue;
    if (!tensor)
      types.push_back(type);
    else if (tensor.getRank() == 2)
      types.push_back(rowsType(tensor));
    else
      types.push_back(Program::memref(tensor.getShape(), tensor.getElementType()));
  }
  types.push_back(IndexType::get(program.context()));
  if (isEntry)
    types.push_back(rowsType(cast<RankedTensorType>(source.getResultTypes().front())));
  return FunctionType::get(program.context(), types, {});
}

namespace {

struct ConvertEquantToKernels
    : public easyquant::impl::ConvertEquantToKernelsBase<ConvertEquantToKernels> {
  using ConvertEquantToKernelsBase::ConvertEquantToKernelsBase;

  void runOnOperation() override {
    if (failed(convert()))
      signalPassFailure();
  }

  LogicalResult convert();
};

} // namespace

LogicalResult ConvertEquantToKernels::convert() {
  ModuleOp module = getOperation();
  Program program(module);
  if (isa == "avx2")
    program.target.isa = cpu::Isa::AVX2;
  else if (isa == "avx512vnni")
    program.target.isa = cpu::Isa::AVX512VNNI;
  else
    return module.emitError() << "unknown instruction set '" << isa
                              << "'; expected avx2 or avx512vnni";
  if (maxRows < 1)
    return module.emitError() << "max-rows is " << maxRows << "; expected at least 1";
  program.maxRows = maxRows;
  if (kvCache != "f32" && kvCache != "f16" && kvCache != "auto")
    return module.emitError() << "unknown kv-cache type '" << kvCache
                              << "'; expected f32, f16 or auto";
  bool quantized =
      module.walk([](equant::LinearOp) { return WalkResult::interrupt(); }).wasInterrupted();
  program.halfCache = kvCache == "f16" || (kvCache == "auto" && quantized);

  auto entry = program.symbols.lookup<func::FuncOp>(kEntry);
  if (!entry || entry.getNumResults() != 1)
    return module.emitError() << "expected a function @" << kEntry << " that returns the logits";
  for (Type type : entry.getArgumentTypes())
    if (auto cache = dyn_cast<lm::KVCacheType>(type))
      program.cacheBytesPerToken = cache.getLayers() * 2 * cache.getKvHeads() * cache.getHeadDim() *
                                   (program.halfCache ? 2 : 4);

  // The entry's buffers come first; below them, all layers use the same memory one after another.
  SmallVector<func::FuncOp> sources(module.getOps<func::FuncOp>());
  llvm::MapVector<func::FuncOp, BufferPlan> plans;
  auto entryPlan = BufferPlan::create(entry, maxRows, 0);
  if (failed(entryPlan))
    return failure();
  int64_t base = program.arenaBytes = entryPlan->end();
  for (func::FuncOp source : sources) {
    if (source != entry) {
      auto nested = source.getOps<func::CallOp>();
      if (!nested.empty())
        return (*nested.begin()).emitOpError("expected calls in @") << kEntry << " only";
    }
    auto plan = source == entry ? std::move(entryPlan) : BufferPlan::create(source, maxRows, base);
    if (failed(plan))
      return failure();
    program.arenaBytes = std::max(program.arenaBytes, plan->end());
    plans.insert({source, std::move(*plan)});
  }

  // Declare all functions, then fill them in.
  OpBuilder builder(&getContext());
  builder.setInsertionPointToEnd(module.getBody());
  std::string entryName = ("easyquant_forward_" + program.target.name()).str();
  SmallVector<func::FuncOp> results;
  for (func::FuncOp source : sources) {
    bool isEntry = source == entry;
    std::string name = isEntry ? entryName : (source.getSymName() + ".kernels").str();
    auto result = func::FuncOp::create(builder, source.getLoc(), name,
                                       kernelFunctionType(program, source, isEntry));
    if (isEntry)
      result->setAttr("llvm.emit_c_interface", builder.getUnitAttr());
    else
      result.setPrivate();
    program.symbols.insert(result);
    results.push_back(result);
  }
  for (auto [source, result] : llvm::zip_equal(sources, results))
    if (failed(FunctionEmitter(program, plans.find(source)->second, source, result).run()))
      return failure();

  for (func::FuncOp source : sources)
    source.erase();
  for (auto global : llvm::make_early_inc_range(module.getOps<ml_program::GlobalOp>()))
    global.erase();
  module->setAttr(
      kProgramAttr,
      builder.getDictionaryAttr({
          builder.getNamedAttr("entry", builder.getStringAttr(entryName)),
          builder.getNamedAttr("max_rows", builder.getI64IntegerAttr(maxRows)),
          builder.getNamedAttr("arena_bytes", builder.getI64IntegerAttr(program.arenaBytes)),
          builder.getNamedAttr("arena_bytes_per_thread",
                               builder.getI64IntegerAttr(program.arenaBytesPerThread)),
          builder.getNamedAttr("cache_bytes_per_token",
                               builder.getI64IntegerAttr(program.cacheBytesPerToken)),
          builder.getNamedAttr("cache_type",
                               builder.getStringAttr(program.halfCache ? "f16" : "f32")),
      }));
  return success();
}
