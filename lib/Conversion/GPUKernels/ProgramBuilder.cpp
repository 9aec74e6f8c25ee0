//===- ProgramBuilder.cpp - Ops to launches -------------------------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "ProgramBuilder.h"

#include "easyquant/Weights/TargetModules.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "llvm/ADT/TypeSwitch.h"

using namespace mlir;
using namespace easyquant;

//===----------------------------------------------------------------------===//
// Launches
//===----------------------------------------------------------------------===//

/// What the program keeps of a kernel.
static formats::LaunchKernel toLaunchKernel(const easyquant::gpu::Description &kernel) {
  using Kind = easyquant::gpu::Parameter::Kind;
  using Parameter = formats::LaunchKernel::Parameter;
  formats::LaunchKernel result;
  result.name = kernel.name;
  for (const easyquant::gpu::Parameter &parameter : kernel.parameters)
    result.parameters.push_back(parameter.kind == Kind::Pointer ? Parameter::Pointer
                                : parameter.kind == Kind::I32   ? Parameter::I32
                                                                : Parameter::F32);
  for (auto [extent, given] : llvm::zip_equal(result.grid, kernel.grid))
    extent = {given.factor, given.rowsPerBlock};
  result.threads = kernel.threads;
  result.sharedBytes = kernel.sharedBytes;
  return result;
}

LogicalResult ProgramBuilder::append(std::vector<formats::Launch> &launches, Operation *op,
                                     const easyquant::gpu::Description &kernel,
                                     const Arguments &arguments, Phase phase, bool lastRows,
                                     RowRange range) {
  auto [known, isNew] = kernelIndex.try_emplace(kernel.name, program.kernels.size());
  if (isNew)
    program.kernels.push_back(toLaunchKernel(kernel));
  formats::Launch launch{siteOf(op),    phase, known->second, lastRows, range.minRows,
                         range.maxRows, {}};
  for (const easyquant::gpu::Parameter &parameter : kernel.parameters) {
    if (parameter.name == "rows") {
      launch.arguments.push_back(place(Kind::Rows));
      continue;
    }
    auto it = arguments.find(parameter.name);
    if (it == arguments.end())
      return op->emitOpError("its kernel ")
             << kernel.name << " takes '" << parameter.name << "', which no operand gives";
    if (it->second.integer > std::numeric_limits<int32_t>::max())
      return op->emitOpError("its kernel ") << kernel.name << " takes '" << parameter.name
                                            << "' as an i32, found " << it->second.integer;
    if (it->second.isScratch)
      scratchUses.push_back({&launches, launches.size(), launch.arguments.size()});
    launch.arguments.push_back(it->second);
  }
  launches.push_back(std::move(launch));
  return success();
}

LogicalResult ProgramBuilder::launch(Operation *op, const easyquant::gpu::Description &kernel,
                                     const Arguments &arguments, Phase phase, bool lastRows,
                                     RowRange range) {
  return append(program.launches, op, kernel, arguments, phase, lastRows, range);
}

//===----------------------------------------------------------------------===//
// Operations that launch nothing, or a copy
//===----------------------------------------------------------------------===//

LogicalResult ProgramBuilder::emitGlobal(ml_program::GlobalLoadConstOp op) {
  auto global = symbols.lookup<ml_program::GlobalOp>(op.getGlobal().getLeafReference());
  auto offset = global ? global->getAttrOfType<IntegerAttr>(equant::kOffsetAttr) : nullptr;
  auto halfOffset =
      global ? global->getAttrOfType<IntegerAttr>(equant::kHalvesOffsetAttr) : nullptr;
  if (!offset && !halfOffset)
    return op.emitOpError() << op.getGlobal()
                            << " has no place in the weights for GPUs: run "
                               "equant-materialize-weights with target=gpu first";
  if (offset)
    constants[op.getResult()] = place(Kind::Weights, offset.getInt());
  if (halfOffset)
    halves[op.getResult()] = place(Kind::Weights, halfOffset.getInt());
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
      to = {place(Kind::Logits), columnsOf(operand), from.lastRows};
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
  FailureOr<ModelPlan> planned = ModelPlan::create(model, forward, program.maxRows, kRules);
  if (failed(planned))
    return failure();
  plans = std::move(planned->functions);
  buffersEnd = planned->arenaBytes;
  if (failed(runFunction(forward, plans.find(forward)->second)))
    return failure();
  // Nobody could say where they are.
  if (llvm::any_of(forward.getArgumentTypes(), isActivationType))
    return forward.emitOpError("expected to take tokens, found activations among its arguments ")
           << forward.getFunctionType();
  program.arenaBytes = buffersEnd + scratchBytes;
  if (program.arenaBytes > kMaxPlannedBytes)
    return forward.emitOpError("needs ")
           << program.arenaBytes << " bytes of buffers for calls of up to " << program.maxRows
           << " tokens; at most " << kMaxPlannedBytes << " can be addressed; lower max-rows";
  for (const ScratchUse &use : scratchUses)
    (*use.launches)[use.launch].arguments[use.argument].offset += buffersEnd;
  return GPUProgram{std::move(program), kvScheme, rotatesKeys};
}

FailureOr<GPUProgram> easyquant::buildGPUProgram(ModuleOp model, const easyquant::gpu::Chip &chip,
                                                 int64_t maxRows, mlir::gpu::GPUModuleOp kernels) {
  return ProgramBuilder(model, chip, maxRows, kernels).build();
}
