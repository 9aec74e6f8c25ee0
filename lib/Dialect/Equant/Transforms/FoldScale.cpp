//===- FoldScale.cpp - Factors on channels, folded into weights -----------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "easyquant/Dialect/Equant/Transforms/FoldScale.h"
#include "easyquant/Weights/ConstantTensors.h"

#include "mlir/IR/Builders.h"
#include "llvm/ADT/MapVector.h"

using namespace mlir;
using namespace easyquant;
using namespace easyquant::equant;
using ml_program::GlobalLoadConstOp;

int64_t FoldPoint::columns() const { return lm::columns(activation); }

SmallVector<StringRef> FoldPoint::sites() const {
  SmallVector<StringRef> names;
  for (QuantizableOpInterface reader : readers)
    names.push_back(QuantizableOpInterface(reader).getSite());
  return names;
}

namespace {

/// Finds who can take a division.
class ProducerFinder {
public:
  explicit ProducerFinder(ModuleOp module) {
    module.walk([&](GlobalLoadConstOp load) {
      uses[load.getGlobal()] += llvm::range_size(load->getUses());
    });
  }
  void find(FoldPoint &point) const;

private:
  /// The load at the root of a constant; null if there is none.
  static GlobalLoadConstOp rootOf(Value constant);
  /// Does another op read the same tensor? It would have to stay as it is.
  bool isShared(Value constant) const;
  /// The linear that makes `value` for `user` alone; else says why not.
  Operation *linearBehind(Value value, Operation *user, std::string &obstacle) const;

  llvm::DenseMap<Attribute, int> uses; ///< of the globals' values
};

} // namespace

GlobalLoadConstOp ProducerFinder::rootOf(Value constant) {
  while (auto scale = constant.getDefiningOp<ScaleOp>())
    constant = scale.getInput();
  return constant.getDefiningOp<GlobalLoadConstOp>();
}

bool ProducerFinder::isShared(Value constant) const {
  GlobalLoadConstOp load = rootOf(constant);
  return !load || uses.lookup(load.getGlobal()) != 1;
}

Operation *ProducerFinder::linearBehind(Value value, Operation *user, std::string &obstacle) const {
  auto linear = value.getDefiningOp<lm::LinearOp>();
  if (!linear)
    obstacle = "is made from something that is no linear of its own";
  else if (!value.hasOneUse())
    obstacle =
        ("is made from site '" + linear.getSite() + "', whose output has other readers").str();
  else if (isShared(linear.getWeight()) || (linear.getBias() && isShared(linear.getBias())))
    obstacle = ("is made from site '" + linear.getSite() + "', whose weight others read too").str();
  else
    return linear;
  return nullptr;
}

void ProducerFinder::find(FoldPoint &point) const {
  Value made = point.activation;
  for (OpOperand &use : made.getUses()) {
    auto reader = dyn_cast<QuantizableOpInterface>(use.getOwner());
    if (!reader || &reader.getActivationOperand() != &use) {
      point.obstacle = ("is also read by " + use.getOwner()->getName().getStringRef()).str();
      return;
    }
    if (isShared(reader.getWeightOperand().get())) {
      point.obstacle =
          ("is read by site '" + reader.getSite() + "', whose weight others read too").str();
      return;
    }
  }
  while (auto rows = made.getDefiningOp<lm::RowsOp>()) {
    made = rows.getInput();
    if (!made.hasOneUse()) {
      point.obstacle = "is a part of what others read too";
      return;
    }
  }
  Operation *op = made.getDefiningOp();
  if (!op) {
    point.obstacle = "comes from outside of the layer";
  } else if (auto norm = dyn_cast<lm::RmsNormOp>(op)) {
    point.producer = isShared(norm.getWeight()) ? nullptr : op;
  } else if (auto norm = dyn_cast<lm::LayerNormOp>(op)) {
    point.producer = isShared(norm.getWeight()) || isShared(norm.getBias()) ? nullptr : op;
  } else if (auto gated = dyn_cast<lm::SiluMulOp>(op)) {
    point.producer = linearBehind(gated.getUp(), op, point.obstacle);
  } else if (auto attention = dyn_cast<lm::AttentionOp>(op)) {
    if (attention.getNumHeads() != attention.getNumKvHeads())
      point.obstacle = "is made by lm.attention whose heads share values";
    else
      point.producer = linearBehind(attention.getValue(), op, point.obstacle);
  } else {
    point.obstacle =
        ("is made by " + op->getName().getStringRef() + ", through which no factor passes").str();
  }
  if (!point.producer && point.obstacle.empty())
    point.obstacle = "is made by a norm whose weight others read too";
}

SmallVector<FoldPoint> easyquant::equant::findFoldPoints(ModuleOp module) {
  llvm::MapVector<Value, FoldPoint> points;
  module.walk([&](QuantizableOpInterface op) {
    Value activation = op.getActivationOperand().get();
    FoldPoint &point = points[activation];
    point.activation = activation;
    point.readers.push_back(op);
  });
  ProducerFinder finder(module);
  SmallVector<FoldPoint> result;
  for (auto &[activation, point] : points) {
    finder.find(point);
    result.push_back(std::move(point));
  }
  return result;
}

/// `operand` becomes equant.scale of what it was.
static void scaleOperand(OpOperand &operand, ml_program::GlobalOp factor, int64_t axis,
                         bool divide) {
  Operation *op = operand.getOwner();
  OpBuilder builder(op);
  Value by = loadGlobal(builder, op->getLoc(), factor);
  operand.set(ScaleOp::create(builder, op->getLoc(), operand.get().getType(), operand.get(), by,
                              axis, divide));
}

void easyquant::equant::foldScale(const FoldPoint &point, ml_program::GlobalOp factor) {
  for (QuantizableOpInterface reader : point.readers)
    scaleOperand(QuantizableOpInterface(reader).getWeightOperand(), factor, /*axis=*/1,
                 /*divide=*/false);
  // All operands but the activation, for norms and linears alike.
  for (OpOperand &operand : point.producer->getOpOperands().drop_front())
    scaleOperand(operand, factor, /*axis=*/0, /*divide=*/true);
}

void easyquant::equant::recordTransform(ModuleOp module, StringRef method, const FoldPoint &point,
                                        NamedAttrList details) {
  Builder builder(module.getContext());
  NamedAttrList entry = std::move(details);
  entry.set("method", builder.getStringAttr(method));
  entry.set("sites", builder.getStrArrayAttr(point.sites()));
  if (!point.producer)
    entry.set("skipped", builder.getStringAttr("its input " + point.obstacle));
  SmallVector<Attribute> entries;
  if (auto known = module->getAttrOfType<ArrayAttr>(kTransformsAttr))
    llvm::append_range(entries, known);
  entries.push_back(entry.getDictionary(module.getContext()));
  module->setAttr(kTransformsAttr, builder.getArrayAttr(entries));
}
