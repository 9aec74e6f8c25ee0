//===- ConvertEquantToLaunches.cpp - Models to launches -------------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "easyquant/KernelLibrary/KernelLibrary.h"

#include "easyquant/Conversion/EquantToLaunches/EquantToLaunches.h"
#include "easyquant/Dialect/Equant/Transforms/Passes.h"
#include "easyquant/Dialect/LM/Analysis/Calls.h"
#include "easyquant/Dialect/Launch/Transforms/Passes.h"
#include "easyquant/Formats/Manifest.h"
#include "easyquant/Support/AttributeJson.h"
#include "easyquant/Target/Target.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Func/Extensions/InlinerExtension.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/LLVMIR/NVVMDialect.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Shard/IR/ShardOps.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "mlir/Pass/PassManager.h"
#include "mlir/Transforms/Passes.h"
#include "llvm/ADT/StringExtras.h"

namespace easyquant {
#define GEN_PASS_DEF_CONVERTEQUANTTOLAUNCHES
#include "easyquant/Conversion/EquantToLaunches/Passes.h.inc"
} // namespace easyquant

using namespace mlir;
using namespace easyquant;

bool easyquant::isHostCall(Operation *op) {
  return isa<equant::ObserveOp>(op) || op->hasTrait<OpTrait::HostOp>();
}

namespace {

/// Turns the ops of one function into a step.
class StepConverter {
public:
  StepConverter(const KernelLibrary &library, LaunchModule &program, func::FuncOp source)
      : library(library), source(source),
        b(program, source, (source.getSymName() + ".step").str()) {}

  LogicalResult run() {
    for (Operation &op : source.front().without_terminator())
      if (failed(emit(op)))
        return failure();
    auto returned = cast<func::ReturnOp>(source.front().getTerminator());
    b.awaitAll();
    for (auto [value, output] : llvm::zip_equal(
             returned.getOperands(),
             b.step().getArguments().slice(source.getNumArguments(), source.getNumResults()))) {
      b.begin(KernelOps(returned));
      if (!b[value] || (b[value] != output && !lm::isActivationType(value.getType())))
        return returned.emitOpError("expected activations, such as the logits, or what sums over "
                                    "tokens; found ")
               << value.getType();
      if (b[value] != output && failed(library.copy(b, b[value], output)))
        return failure();
    }
    return success();
  }
  func::FuncOp step() const { return b.step(); }

private:
  LogicalResult emit(Operation &op);
  LogicalResult emitHostCall(Operation &op);
  LogicalResult emitCollective(Operation &op);

  const KernelLibrary &library;
  func::FuncOp source;
  LaunchBuilder b;
  int64_t hostCalls = 0;
  llvm::SmallPtrSet<Value, 1> someRows; ///< counts of rows that lm.rows has taken
};

} // namespace

/// Operands, then results, whose memory the caller writes.
LogicalResult StepConverter::emitHostCall(Operation &op) {
  b.begin(KernelOps(&op));
  SmallVector<Value> operands, results;
  Value rows;
  for (Value operand : op.getOperands()) {
    Value memory = b[operand];
    if (!memory) {
      FailureOr<Value> weight = b.weight(operand, equant::kOffsetAttr);
      if (failed(weight))
        return failure();
      memory = *weight;
    }
    operands.push_back(memory);
    if (!rows)
      rows = b.rows(memory);
  }
  if (auto putBack = dyn_cast<lm::RowsGradientOp>(op))
    rows = b.rows(b[putBack.getInput()]);
  for (Value result : op.getResults()) {
    bool isActivation = !cast<RankedTensorType>(result.getType()).hasStaticShape();
    if (!isActivation && !llvm::is_contained(source.front().getTerminator()->getOperands(), result))
      return op.emitOpError("sums over tokens: its result can only be one of @")
             << launch::kForward;
    results.push_back(b.result(result, rows));
  }
  b.launchHost(hostCalls++, operands, results);
  return success();
}

/// Whose rows an op of a kernel is over: online scales are those of what is rounded with them.
static Value rowsOperand(Operation *op, const KernelOps &kernel) {
  if (!isa<equant::OnlineScaleOp>(op))
    return op->getOperand(0);
  return (op == kernel.first() ? kernel.ops.back() : kernel.first())->getOperand(0);
}

/// In place: nobody else reads what a rank has of it.
LogicalResult StepConverter::emitCollective(Operation &op) {
  Value operand = op.getOperand(0), result = op.getResult(0);
  b.begin(KernelOps(&op));
  if (isa<equant::SyncExtremaOp>(op)) {
    Value extrema = b.extrema(operand);
    if (!extrema)
      return op.emitOpError("has a state of which no site is tracked");
    b.startCollective(extrema, launch::Reduction::Max, result);
    b.setMemory(result, b[operand]);
    return success();
  }
  auto gather = dyn_cast<shard::AllGatherOp>(op);
  if (!b[operand] || !operand.hasOneUse() || (gather && gather.getGatherAxis() != 1))
    return op.emitOpError("expected activations that it alone reads, and columns to be gathered");
  if (gather) {
    if (!b[result])
      return op.emitOpError("expected the columns of this rank among those of all");
    b.startCollective(b[result], std::nullopt, result);
    return success();
  }
  auto reduction = launch::symbolizeReduction(
      shard::stringifyReductionKind(cast<shard::AllReduceOp>(op).getReduction()));
  if (!isa_and_present<launch::BufferOp>(b[operand].getDefiningOp()) ||
      operand.getType() != result.getType() || !reduction)
    return op.emitOpError("expected whole rows, and their sum, maximum or minimum in their type");
  b.startCollective(b[operand], reduction, result);
  return success();
}

LogicalResult StepConverter::emit(Operation &op) {
  if (isa<ml_program::GlobalLoadConstOp, arith::ConstantOp>(op))
    return success(); // where they are read
  if (isa<equant::OnlineScaleOp, equant::TrackOp>(op))
    return op.emitOpError("belongs to the kernel that makes codes with the scale: run "
                          "equant-fuse-kernels first");
  for (Operation *inner : KernelOps(&op).ops)
    for (Value operand : inner->getOperands())
      b.await(operand);
  if (isa<shard::AllReduceOp, shard::AllGatherOp, equant::SyncExtremaOp>(op))
    return emitCollective(op);
  if (isHostCall(&op))
    return emitHostCall(op);
  if (auto split = dyn_cast<lm::SplitOp>(op)) {
    int64_t column = 0;
    for (Value output : split.getOutputs()) {
      b.setMemory(output, b.columns(b[split.getInput()], column, lm::columns(output)));
      column += lm::columns(output);
    }
    return success();
  }
  if (auto rows = dyn_cast<lm::RowsOp>(op)) {
    b.setName(rows.getRows(), "logit_rows");
    someRows.insert(b.rows(b[rows.getRows()]));
  }
  KernelOps kernel(&op);
  const KernelLibrary::Lowering *lowering = library.find(kernel.first());
  if (!lowering && llvm::any_of(op.getResultTypes(), llvm::IsaPred<equant::WeightType>))
    return op.emitOpError(
        "is evaluated on constant weights: run equant-materialize-weights before");
  if (!lowering)
    return kernel.first()->emitOpError(library.missing);
  for (Operation *inner : kernel.ops)
    for (Value operand : inner->getOperands()) {
      auto type = dyn_cast<RankedTensorType>(operand.getType());
      if ((isa<equant::RowsType>(operand.getType()) || (type && !type.hasStaticShape())) &&
          !llvm::is_contained(kernel.ops, operand.getDefiningOp()) &&
          (!b[operand] || !b.rows(b[operand])))
        return inner->emitOpError("reads ") << operand.getType() << ", which no launch has made";
      if (isa<lm::BatchType>(operand.getType()) &&
          someRows.contains(b.rows(b[rowsOperand(inner, kernel)])))
        return inner->emitOpError("takes a batch, but reads only some of its rows");
    }
  b.begin(kernel);
  if (failed((*lowering)(b, kernel)))
    return failure();
  b.end(kernel);
  return success();
}

namespace {

struct ConvertEquantToLaunches
    : public easyquant::impl::ConvertEquantToLaunchesBase<ConvertEquantToLaunches> {
  using ConvertEquantToLaunchesBase::ConvertEquantToLaunchesBase;

  // With what the inliner before it asks of func.
  void getDependentDialects(DialectRegistry &registry) const override {
    ConvertEquantToLaunchesBase::getDependentDialects(registry);
    func::registerInlinerExtension(registry);
  }

  void runOnOperation() override {
    if (failed(convert(getOperation())))
      signalPassFailure();
  }

private:
  LogicalResult convert(ModuleOp module);
  FailureOr<KernelLibrary> chooseLibrary(LaunchModule &program);
  static LogicalResult check(func::FuncOp function);
  LogicalResult addRestore(const KernelLibrary &library, LaunchModule &program,
                           func::FuncOp source);
};

} // namespace

FailureOr<KernelLibrary> ConvertEquantToLaunches::chooseLibrary(LaunchModule &program) {
  Result<const targets::Family *> family = targets::findFamily(target);
  if (!family)
    return program.module.emitError() << family.error().message;
  if (!(*family)->has(target))
    return program.module.emitError()
           << "target '" << target << "' names no single program; expected one of "
           << llvm::join((*family)->names, ", ");
  return (*family)->kernels(program, target, kvCache);
}

LogicalResult ConvertEquantToLaunches::check(func::FuncOp function) {
  if (!llvm::hasSingleElement(function.getBody()) ||
      !isa<func::ReturnOp>(function.front().getTerminator()))
    return function.emitOpError("expected a body of one block: layers are straight-line programs");
  if (llvm::count_if(function.getArgumentTypes(), llvm::IsaPred<lm::KVCacheType>) > 1)
    return function.emitOpError("takes several caches; expected one for all layers");
  // Ops of our dialects keep the limit by themselves.
  auto isTooWide = [](Type type) {
    auto tensor = dyn_cast<RankedTensorType>(type);
    return tensor && tensor.getRank() == 2 && tensor.getDimSize(1) > lm::kMaxExtent;
  };
  for (Type type : function.getArgumentTypes())
    if (isTooWide(type))
      return function.emitOpError("takes dimensions of at most ")
             << lm::kMaxExtent << ", found " << type;
  for (Operation &op : function.front()) {
    if (auto call = dyn_cast<func::CallOp>(op))
      return call.emitOpError(
          "expected layers to be in the place of their calls: run inline first");
    for (Type type : op.getResultTypes())
      if (isTooWide(type))
        return op.emitOpError("takes dimensions of at most ")
               << lm::kMaxExtent << ", found " << type;
  }
  return success();
}

LogicalResult ConvertEquantToLaunches::addRestore(const KernelLibrary &library,
                                                  LaunchModule &program, func::FuncOp source) {
  SmallVector<Operation *> ops;
  source.walk([&](Operation *op) {
    if (library.findRestore(op))
      ops.push_back(op);
  });
  if (ops.empty())
    return success();
  LaunchBuilder b(program, source, (source.getSymName() + ".restore").str());
  for (Operation *op : ops) {
    KernelOps kernel(op);
    b.begin(kernel);
    if (failed((*library.findRestore(op))(b, kernel)))
      return failure();
  }
  return success();
}

LogicalResult ConvertEquantToLaunches::convert(ModuleOp module) {
  if (const int64_t rows = maxRows; rows < 1 || rows > launch::kMaxRows)
    return module.emitError() << "max-rows is " << rows << "; expected 1 to " << launch::kMaxRows;
  if (!llvm::is_contained({"f32", "f16", "auto"}, kvCache.getValue()))
    return module.emitError() << "unknown kv-cache type '" << kvCache
                              << "'; expected f32, f16 or auto";
  if (failed(lm::verifyCalls(module)))
    return failure();
  LaunchModule program(module);
  program.maxRows = maxRows;
  SmallVector<func::FuncOp> sources(module.getOps<func::FuncOp>());
  for (func::FuncOp source : sources)
    if (failed(check(source)))
      return failure();
  FailureOr<KernelLibrary> library = chooseLibrary(program);
  if (failed(library))
    return failure();
  for (func::FuncOp source : sources) {
    StepConverter converter(*library, program, source);
    if (failed(converter.run()) || failed(addRestore(*library, program, source)))
      return failure();
    std::string name = source.getSymName().str();
    source.erase();
    func::FuncOp step = converter.step();
    step.setSymName(name);
    if (!step->hasAttr(launch::kCacheAttr)) {
      const formats::Cache none = {{numerics::kPageTokens}, std::nullopt, program.cacheType};
      step->setAttr(launch::kCacheAttr, toAttribute(&getContext(), formats::partJson(none)));
    }
  }
  for (auto global : llvm::make_early_inc_range(module.getOps<ml_program::GlobalOp>()))
    global.erase();
  OpBuilder b(module.getBodyRegion());
  for (auto &[name, weight] : program.weights) {
    auto global = memref::GlobalOp::create(b, module.getLoc(), name, b.getStringAttr("private"),
                                           TypeAttr::get(weight.type), Attribute(), UnitAttr(),
                                           IntegerAttr());
    global->setAttr(launch::kOffsetAttr, b.getI64IntegerAttr(weight.offset));
  }
  module->setAttr(launch::kTargetAttr, b.getStringAttr(target));
  return success();
}

void easyquant::buildLaunchesPipeline(OpPassManager &pm,
                                      const ConvertEquantToLaunchesOptions &options) {
  pm.addPass(createInlinerPass());
  pm.addPass(equant::createLegalizeActivations({options.target}));
  pm.addPass(equant::createInsertScaleSync());
  pm.addPass(equant::createReduceIntegers());
  pm.addPass(equant::createFuseKernels({options.target}));
  pm.addPass(createConvertEquantToLaunches(options));
  pm.addNestedPass<func::FuncOp>(launch::createPlaceBuffers());
}
