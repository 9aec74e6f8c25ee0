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
  void find(FoldPoint &point) const {
    point.obstacle = obstacleOfReaders(point.activation);
    if (point.obstacle.empty())
      findProducer(point);
  }

private:
  /// Does another op read the same tensor? It would have to stay as it is.
  bool isShared(Value constant) const;
  std::string obstacleOfReaders(Value activation) const;
  void findProducer(FoldPoint &point) const;

  llvm::DenseMap<Attribute, int> uses; ///< of the globals' values
};

} // namespace

bool ProducerFinder::isShared(Value constant) const {
  while (auto scale = constant.getDefiningOp<ScaleOp>())
    constant = scale.getInput();
  auto load = constant.getDefiningOp<GlobalLoadConstOp>();
  return !load || uses.lookup(load.getGlobal()) != 1;
}

/// What gathers the rows that experts read, which have the columns of what it gathers; or null.
static lm::RowsOp gatherOf(Operation *op) {
  auto rows = dyn_cast_if_present<lm::RowsOp>(op);
  return rows && rows.getRows().getDefiningOp<lm::RouteOp>() ? rows : lm::RowsOp();
}

std::string ProducerFinder::obstacleOfReaders(Value activation) const {
  for (OpOperand &use : activation.getUses()) {
    if (lm::RowsOp rows = gatherOf(use.getOwner())) {
      if (std::string obstacle = obstacleOfReaders(rows.getOutput()); !obstacle.empty())
        return obstacle;
      continue;
    }
    auto reader = dyn_cast<QuantizableOpInterface>(use.getOwner());
    if (!reader || &reader.getActivationOperand() != &use)
      return ("is also read by " + use.getOwner()->getName().getStringRef()).str();
    if (isShared(reader.getWeightOperand().get()))
      return ("is read by site '" + reader.getSite() + "', whose weight others read too").str();
  }
  return "";
}

static lm::ScaleFolding foldingOf(Operation *op) {
  auto foldable = dyn_cast<lm::ScaleFoldableOpInterface>(op);
  return foldable ? foldable.getScaleFolding() : lm::ScaleFolding();
}

void ProducerFinder::findProducer(FoldPoint &point) const {
  lm::ScaleFolding folding;
  std::string maker;
  for (Value made = point.activation;; made = folding.activation->get()) {
    // Who reads the activation is known, and who reads what it is made of must make nothing else.
    if (made != point.activation && !made.hasOneUse()) {
      point.obstacle = "is made by " + maker + " of what others read too";
      return;
    }
    Operation *op = made.getDefiningOp();
    if (!op) {
      point.obstacle = "comes from outside of the layer";
      return;
    }
    auto site = dyn_cast<QuantizableOpInterface>(op);
    maker = site ? ("site '" + site.getSite() + "'").str() : op->getName().getStringRef().str();
    folding = foldingOf(op);
    if (folding.activation)
      continue;
    auto isOfOthers = [&](OpOperand *constant) { return isShared(constant->get()); };
    if (!folding.obstacle.empty())
      point.obstacle = "is made by " + maker + " " + folding.obstacle.str();
    else if (folding.constants.empty())
      point.obstacle = "is made by " + maker + ", through which no factor passes";
    else if (llvm::any_of(folding.constants, isOfOthers))
      point.obstacle = "is made by " + maker + ", whose weight others read too";
    else
      point.producer = op;
    return;
  }
}

SmallVector<FoldPoint> easyquant::equant::findFoldPoints(ModuleOp module) {
  llvm::MapVector<Value, FoldPoint> points;
  module.walk([&](QuantizableOpInterface op) {
    Value activation = op.getActivationOperand().get();
    if (lm::RowsOp rows = gatherOf(activation.getDefiningOp()))
      activation = rows.getInput();
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
  for (OpOperand *constant : foldingOf(point.producer).constants)
    scaleOperand(*constant, factor, /*axis=*/0, /*divide=*/true);
}

void easyquant::equant::recordTransform(ModuleOp module, StringRef method, const FoldPoint &point,
                                        NamedAttrList details) {
  Builder builder(module.getContext());
  NamedAttrList entry = std::move(details);
  entry.set("method", builder.getStringAttr(method));
  entry.set("sites", builder.getStrArrayAttr(point.sites()));
  if (!point.producer)
    entry.set("skipped", builder.getStringAttr("its input " + point.obstacle));
  recordTransform(module, std::move(entry));
}

void easyquant::equant::recordTransform(ModuleOp module, NamedAttrList entry) {
  SmallVector<Attribute> entries;
  if (auto known = module->getAttrOfType<ArrayAttr>(kTransformsAttr))
    llvm::append_range(entries, known);
  entries.push_back(entry.getDictionary(module.getContext()));
  module->setAttr(kTransformsAttr, ArrayAttr::get(module.getContext(), entries));
}
