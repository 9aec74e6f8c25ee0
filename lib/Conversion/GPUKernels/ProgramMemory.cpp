//===- ProgramMemory.cpp - Where operands and results lie -----------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "ProgramBuilder.h"

#include "easyquant/Codegen/GPU/Emit.h"

using namespace mlir;
using namespace easyquant;

ProgramBuilder::Argument ProgramBuilder::constant(Attribute value) {
  // One after another, each where any kernel can read it.
  constexpr size_t alignment = 16;
  Argument argument = place(Kind::Constants, program.constants.size());
  uint32_t bits;
  if (auto number = dyn_cast<FloatAttr>(value))
    bits = llvm::bit_cast<uint32_t>(static_cast<float>(number.getValueAsDouble()));
  else
    bits = static_cast<uint32_t>(cast<IntegerAttr>(value).getInt());
  for (int shift = 0; shift < 32; shift += 8)
    program.constants.push_back(static_cast<std::byte>(bits >> shift));
  program.constants.resize(llvm::alignTo(program.constants.size(), alignment));
  return argument;
}

/// Launches come one after another, so that all of them share the same bytes.
ProgramBuilder::Argument ProgramBuilder::scratch(int64_t bytes) {
  scratchBytes = std::max(scratchBytes, alignBuffer(bytes));
  Argument argument = place(Kind::Arena);
  argument.isScratch = true;
  return argument;
}

/// Zero between launches, so that all of them share the same.
ProgramBuilder::Argument ProgramBuilder::counters(int64_t count) {
  program.stateBytes = std::max(program.stateBytes, alignBuffer(count * int64_t(sizeof(int32_t))));
  return place(Kind::State);
}

ProgramBuilder::View ProgramBuilder::destination(Value value, bool lastRows) {
  Operation *terminator = value.getParentBlock()->getTerminator();
  bool isForward = terminator->getParentOp() == forward;
  if (isForward && llvm::is_contained(terminator->getOperands(), value))
    return memory[value] = {place(Kind::Logits), columnsOf(value), lastRows};
  return memory[value] = {place(Kind::Arena, *plan->offsetOf(value)), columnsOf(value), lastRows};
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
  return launch(op, describe(spec, chip), arguments, Phase::Other, from.lastRows);
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
  auto arena = [](int64_t offset) { return place(Kind::Arena, offset); };
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
  if (failed(launch(reader, describe(spec, chip), arguments, Phase::Quantize, input.lastRows)))
    return failure();
  return made;
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
