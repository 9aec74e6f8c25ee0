//===- EquantDialect.cpp - Quantization dialect ---------------------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "easyquant/Dialect/Equant/IR/Equant.h"

#include "mlir/Dialect/MLProgram/IR/MLProgram.h"
#include "mlir/IR/BuiltinOps.h"
#include "mlir/Transforms/InliningUtils.h"

using namespace mlir;
using namespace easyquant::equant;

#include "easyquant/Dialect/Equant/IR/EquantDialect.cpp.inc"

namespace {
struct EquantInliner : DialectInlinerInterface {
  using DialectInlinerInterface::DialectInlinerInterface;
  bool isLegalToInline(Operation *, Region *, bool, IRMapping &) const final { return true; }
};
} // namespace

void EquantDialect::initialize() {
  addInterfaces<EquantInliner>();
  registerAttributes();
  registerTypes();
  addOperations<
#define GET_OP_LIST
#include "easyquant/Dialect/Equant/IR/EquantOps.cpp.inc"
      >();
  attachLMModels(getContext());
}

PlanAttr easyquant::equant::getPlan(QuantizableOpInterface op) {
  return op->getAttrOfType<PlanAttr>(kPlanAttr);
}

PlanAttr easyquant::equant::getPlan(lm::EmbeddingOp op) {
  return op->getAttrOfType<PlanAttr>(kPlanAttr);
}

int64_t easyquant::equant::rotationOf(Value value) {
  for (auto op = value.getDefiningOp<HadamardOp>(); op;
       op = op.getInput().getDefiningOp<HadamardOp>())
    if (op.getAxisAttr().getInt() == 1)
      return op.getBlockAttr().getInt();
  return 0;
}

SmallVector<int64_t> easyquant::equant::columnSteps(Value weight) {
  SmallVector<int64_t> steps;
  for (Operation *op = weight.getDefiningOp(); op && op->getNumOperands() > 0;
       op = op->getOperand(0).getDefiningOp())
    if (auto scale = dyn_cast<ScaleOp>(op); scale && scale.getAxisAttr().getInt() == 1)
      steps.push_back(0);
    else if (auto hadamard = dyn_cast<HadamardOp>(op);
             hadamard && hadamard.getAxisAttr().getInt() == 1)
      steps.push_back(hadamard.getBlockAttr().getInt());
  return llvm::to_vector(llvm::reverse(steps));
}

StringRef easyquant::equant::embeddingSite(Value table) {
  if (auto hadamard = table.getDefiningOp<HadamardOp>())
    table = hadamard.getInput();
  auto load = table.getDefiningOp<ml_program::GlobalLoadConstOp>();
  if (!load)
    return "embedding";
  StringRef name = load.getGlobal().getLeafReference().getValue();
  name.consume_back(".weight");
  return name;
}

bool easyquant::equant::isKept(Operation *site, PlanAttr plan) {
  FlatSymbolRefAttr codes = plan.getCodes();
  Operation *global = codes ? SymbolTable::lookupNearestSymbolFrom(site, codes) : nullptr;
  return global && global->hasAttr(kStoredAttr);
}

SmallVector<lm::EmbeddingOp> easyquant::equant::untiedEmbeddings(ModuleOp module) {
  llvm::DenseSet<Attribute> weights;
  SmallVector<lm::EmbeddingOp> embeddings;
  module.walk([&](Operation *op) {
    if (auto embedding = dyn_cast<lm::EmbeddingOp>(op))
      embeddings.push_back(embedding);
    else if (auto site = dyn_cast<QuantizableOpInterface>(op))
      if (auto load = site.getWeightOperand().get().getDefiningOp<ml_program::GlobalLoadConstOp>())
        weights.insert(load.getGlobal());
  });
  llvm::erase_if(embeddings, [&](lm::EmbeddingOp op) {
    auto load = op.getTable().getDefiningOp<ml_program::GlobalLoadConstOp>();
    return !load || weights.contains(load.getGlobal());
  });
  return embeddings;
}

LogicalResult EquantDialect::verifyOperationAttribute(Operation *op, NamedAttribute attribute) {
  StringRef name = attribute.getName();
  if (name == kPlanAttr) {
    bool isSite = isa<QuantizableOpInterface, lm::EmbeddingOp>(op);
    auto plan = dyn_cast<PlanAttr>(attribute.getValue());
    if (!isSite || !plan)
      return op->emitOpError() << kPlanAttr << " belongs to a quantizable op and is a #equant.plan";
    if (isa<lm::EmbeddingOp>(op) && (plan.getInput() || !plan.getMethods().empty()))
      return op->emitOpError() << "an embedding reads no activations, and no method works on it: "
                               << kPlanAttr << " must have neither";
    if (op->hasAttr(kSiteAttr) &&
        (!plan.getMethods().empty() || plan.getWeight().getHadamard() || plan.getScale() ||
         (plan.getInput() && plan.getInput().isOnline())))
      return op->emitOpError() << "methods that calibrate, rotated bases and online scales belong "
                                  "to models of lm, found "
                               << plan;
  } else if (name == kSiteAttr) {
    auto site = dyn_cast<StringAttr>(attribute.getValue());
    const bool isTensors = op->getNumOperands() >= 2 && op->getNumResults() == 1 &&
                           llvm::all_of(op->getOperandTypes(), llvm::IsaPred<RankedTensorType>);
    if (isa<lm::LinearOp>(op) || !op->getName().hasInterface<QuantizableOpInterface>() ||
        !isTensors || !site || site.empty())
      return op->emitOpError() << name
                               << " is the name of a quantizable op of another dialect, on ranked "
                                  "tensors; found "
                               << attribute.getValue();
  } else if (name == kFileAttr || name == kStampAttr) {
    if (!isa<ml_program::GlobalOp>(op) || !isa<StringAttr>(attribute.getValue()))
      return op->emitOpError() << name << " belongs to an ml_program.global and is a string";
    if (name == kStampAttr && !op->hasAttr(kFileAttr))
      return op->emitOpError() << kStampAttr << " needs " << kFileAttr;
  } else if (name == kInputScaleAttr) {
    auto scale = dyn_cast<FloatAttr>(attribute.getValue());
    const bool isScale = scale && scale.getType().isF32() && scale.getValue().isNormal() &&
                         !scale.getValue().isNegative();
    if (!isa<QuantizableOpInterface>(op) || !isScale)
      return op->emitOpError() << name
                               << " belongs to a quantizable op and is a positive f32, found "
                               << attribute.getValue();
  } else if (name == kInputZeroPointAttr) {
    auto zeroPoint = dyn_cast<IntegerAttr>(attribute.getValue());
    if (!isa<QuantizableOpInterface>(op) || !op->hasAttr(kInputScaleAttr) || !zeroPoint ||
        !zeroPoint.getType().isSignlessInteger(32) || std::abs(zeroPoint.getInt()) > 128)
      return op->emitOpError() << name << " belongs to a quantizable op with " << kInputScaleAttr
                               << " and is an i32 code, found " << attribute.getValue();
  } else if (name == kColumnOrderAttr) {
    if (!isa<QuantizableOpInterface>(op) || !isa<FlatSymbolRefAttr>(attribute.getValue()))
      return op->emitOpError() << name << " belongs to a quantizable op and names a global, found "
                               << attribute.getValue();
  } else if (name == kStoredAttr) {
    if (!isa<ml_program::GlobalOp>(op) || !isa<UnitAttr>(attribute.getValue()) ||
        op->hasAttr(kFileAttr))
      return op->emitOpError() << name << " belongs to an ml_program.global without " << kFileAttr
                               << " and has no value";
  } else if (name == kOffsetAttr) {
    // Attributes are verified before their op, which may lack its type.
    auto global = dyn_cast<ml_program::GlobalOp>(op);
    TypeAttr type = global ? global.getTypeAttr() : TypeAttr();
    auto offset = dyn_cast<IntegerAttr>(attribute.getValue());
    if (auto weight = type ? dyn_cast<WeightType>(type.getValue()) : WeightType()) {
      auto offsets = dyn_cast<DenseI64ArrayAttr>(attribute.getValue());
      const size_t parts = weight.getParts().size();
      if (offsets && static_cast<size_t>(offsets.size()) == parts &&
          llvm::all_of(offsets.asArrayRef(), [](int64_t byte) { return byte >= 0; }))
        return success();
      return op->emitOpError() << name << " of a weight is an array<i64: ...> of " << parts
                               << " bytes that are not negative, one for each of its parts; found "
                               << attribute.getValue();
    }
    if (!global || !offset || !offset.getType().isSignlessInteger(64) || offset.getInt() < 0)
      return op->emitOpError() << name
                               << " belongs to an ml_program.global and is a byte, an i64 "
                                  "that is not negative; found "
                               << attribute.getValue();
  } else if (name == kWorkAttr) {
    if (!isa<ModuleOp>(op) || !isa<StringAttr>(attribute.getValue()))
      return op->emitOpError() << kWorkAttr << " belongs to the module and is a path";
  }
  return success();
}
