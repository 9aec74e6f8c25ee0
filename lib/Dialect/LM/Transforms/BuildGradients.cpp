//===- BuildGradients.cpp - Gradients of a layer --------------------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "easyquant/Dialect/LM/Transforms/Gradients.h"

#include "easyquant/Dialect/LM/Transforms/Passes.h"

#include "mlir/Dialect/MLProgram/IR/MLProgram.h"
#include "mlir/IR/IRMapping.h"
#include "llvm/ADT/SetVector.h"

namespace easyquant::lm {
#define GEN_PASS_DEF_BUILDGRADIENTS
#include "easyquant/Dialect/LM/Transforms/Passes.h.inc"
} // namespace easyquant::lm

using namespace mlir;
using namespace easyquant::lm;

namespace {

/// Goes through a block forward, for what depends on the wanted values, then back.
class Differentiator {
public:
  explicit Differentiator(Block &block)
      : block(block), builder(OpBuilder::atBlockTerminator(&block)) {}

  /// The gradients of `wanted`, given that of `result`.
  FailureOr<SmallVector<Value>> run(Value result, Value gradient, ArrayRef<Value> wanted);

private:
  void findActive(ArrayRef<Value> wanted);
  LogicalResult differentiate(Operation *op);
  LogicalResult add(OpOperand &operand, Value gradient);
  void markStored();

  Block &block;
  OpBuilder builder;
  Operation *last = nullptr;           ///< of the way forward
  llvm::DenseSet<Value> active;        ///< depends on what is wanted
  llvm::DenseMap<Value, Value> slopes; ///< the gradient of a value
};

/// tensor<?xCxf32>, not a weight.
bool isRows(Value value) {
  auto type = dyn_cast<RankedTensorType>(value.getType());
  return type && !type.hasStaticShape();
}

/// Can it change gradually? Who is chosen by what does not.
bool isDifferentiable(Value value) {
  auto type = dyn_cast<RankedTensorType>(value.getType());
  return !type || !type.getElementType().isInteger();
}

/// Makes it rows of choices, of which a token has several, or says which these are? They go from no
/// subgraph to another.
bool isOfChoices(Operation *op) {
  if (auto linear = dyn_cast<LinearOp>(op))
    return bool(linear.getExperts());
  auto rows = dyn_cast<RowsOp>(op);
  return isa<RouteOp>(op) || (rows && rows.getRows().getDefiningOp<RouteOp>());
}

/// Are its results computed anew on the way back, instead of kept?
bool isComputedAnew(Operation *op) {
  return (isRowWise(op) && !isa<LinearOp, AddOp>(op)) || isOfChoices(op);
}

} // namespace

void Differentiator::findActive(ArrayRef<Value> wanted) {
  active.insert_range(wanted);
  for (Operation &op : block.without_terminator())
    if (llvm::any_of(op.getOperands(), [&](Value v) { return active.contains(v); }))
      active.insert_range(llvm::make_filter_range(op.getResults(), isDifferentiable));
}

LogicalResult Differentiator::add(OpOperand &operand, Value gradient) {
  Value &sum = slopes[operand.get()];
  if (sum && !isRows(sum))
    return operand.getOwner()->emitOpError("is not the only reader of operand #")
           << operand.getOperandNumber()
           << ", whose gradient is wanted: expected a weight to have one";
  sum = sum ? AddOp::create(builder, gradient.getLoc(), sum.getType(), sum, gradient) : gradient;
  return success();
}

LogicalResult Differentiator::differentiate(Operation *op) {
  SmallVector<Value> results;
  for (Value result : op->getResults())
    results.push_back(slopes.lookup(result));
  llvm::BitVector wanted(op->getNumOperands());
  for (OpOperand &operand : op->getOpOperands())
    if (active.contains(operand.get()))
      wanted.set(operand.getOperandNumber());
  if (wanted.none() || llvm::none_of(results, [](Value v) { return bool(v); }))
    return success();
  auto differentiable = dyn_cast<DifferentiableOpInterface>(op);
  if (!differentiable)
    return op->emitOpError("has no gradient, and a weight whose gradient is wanted goes into it");
  FailureOr<SmallVector<Value>> gradients = differentiable.buildGradients(builder, results, wanted);
  if (failed(gradients))
    return failure();
  for (unsigned operand : wanted.set_bits())
    if (failed(add(op->getOpOperand(operand), (*gradients)[operand])))
      return failure();
  return success();
}

/// Marks what the way back needs of the way forward.
void Differentiator::markStored() {
  llvm::SetVector<Value> needed;
  for (Operation *op = last->getNextNode(); op && op != block.getTerminator();
       op = op->getNextNode())
    needed.insert_range(op->getOperands());
  for (size_t i = 0; i < needed.size(); ++i) { // which grows
    Operation *op = needed[i].getDefiningOp();
    if (!op || last->isBeforeInBlock(op) || (!isRows(needed[i]) && !isOfChoices(op)))
      continue;
    if (isComputedAnew(op))
      needed.insert_range(op->getOperands());
    else
      op->setAttr(kStoredAttr, builder.getUnitAttr());
  }
}

FailureOr<SmallVector<Value>> Differentiator::run(Value result, Value gradient,
                                                  ArrayRef<Value> wanted) {
  findActive(wanted);
  last = block.getTerminator()->getPrevNode();
  slopes[result] = gradient;
  for (Operation *op = last; op; op = op->getPrevNode())
    if (failed(differentiate(op)))
      return failure();
  SmallVector<Value> gradients;
  for (Value value : wanted) {
    gradients.push_back(slopes.lookup(value));
    if (!gradients.back())
      return emitError(value.getLoc())
             << "the result does not depend on " << value << ", whose gradient is wanted";
  }
  if (last)
    markStored();
  return gradients;
}

FailureOr<GradientFunction> easyquant::lm::buildGradients(func::FuncOp layer,
                                                          ArrayRef<Value> wanted, StringRef name) {
  if (!llvm::hasSingleElement(layer.getBody()) || layer.getNumResults() != 1 ||
      !isa<func::ReturnOp>(layer.front().getTerminator()))
    return layer.emitOpError("expected a body of one block and one result, to differentiate it");
  IRMapping mapping;
  OwningOpRef<func::FuncOp> function(cast<func::FuncOp>(layer->clone(mapping)));
  function->setName(name);
  function->removeArgAttrsAttr();
  function->removeResAttrsAttr();
  Block &block = function->front();
  Operation *terminator = block.getTerminator();
  Value result = terminator->getOperand(0);
  Value slope = block.addArgument(result.getType(), layer.getLoc());

  SmallVector<Value> inside =
      llvm::map_to_vector(wanted, [&](Value v) -> Value { return mapping.lookup(v); });
  FailureOr<SmallVector<Value>> gradients = Differentiator(block).run(result, slope, inside);
  if (failed(gradients))
    return failure();
  terminator->insertOperands(1, *gradients);
  function->setFunctionType(FunctionType::get(layer.getContext(), block.getArgumentTypes(),
                                              terminator->getOperandTypes()));
  return GradientFunction{std::move(function), std::move(inside)};
}

namespace {

struct BuildGradients : easyquant::lm::impl::BuildGradientsBase<BuildGradients> {
  using BuildGradientsBase::BuildGradientsBase;

  void runOnOperation() override {
    SmallVector<func::FuncOp> layers;
    for (auto function : getOperation().getOps<func::FuncOp>())
      if (isLayer(function))
        layers.push_back(function);
    OpBuilder builder(&getContext());
    for (func::FuncOp layer : layers) {
      SmallVector<Value> values = wanted(layer);
      if (values.empty())
        continue;
      auto function = buildGradients(layer, values, (layer.getSymName() + ".gradients").str());
      if (failed(function))
        return signalPassFailure();
      builder.setInsertionPointAfter(layer);
      builder.insert(function->function.release());
    }
  }

  static bool isLayer(func::FuncOp function) {
    return function.isPrivate() && llvm::hasSingleElement(function.getBody()) &&
           isa<func::ReturnOp>(function.front().getTerminator()) && function.getNumResults() == 1 &&
           function.getNumArguments() > 0 && isRows(function.getArgument(0)) &&
           function.getArgumentTypes().front() == function.getResultTypes().front();
  }

  SmallVector<Value> wanted(func::FuncOp layer) {
    llvm::SetVector<Value> values;
    for (auto load : layer.getOps<ml_program::GlobalLoadConstOp>()) {
      StringRef global = load.getGlobal().getLeafReference();
      bool isWeight = llvm::any_of(load->getUses(), [](OpOperand &use) {
        auto linear = dyn_cast<LinearOp>(use.getOwner());
        return linear && linear.getWeight() == use.get();
      });
      if (weights.empty() ? isWeight : llvm::is_contained(*weights, global))
        values.insert(load.getResult());
    }
    return values.takeVector();
  }
};

} // namespace
