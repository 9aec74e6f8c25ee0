//===- LayerSites.h - The sites of a layer that methods work on -*- C++ -*-===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// What the passes that run a model to quantize it share: which linears of a layer have a plan and
// read the same activation, their weights, and the stamps of what is computed for them.
//
//===----------------------------------------------------------------------===//

#ifndef EASYQUANT_EXECUTION_LAYERSITES_H
#define EASYQUANT_EXECUTION_LAYERSITES_H

#include "easyquant/Execution/LayerRunner.h"
#include "easyquant/Numerics/Quantize.h"
#include "easyquant/Numerics/ScaleRules.h"
#include "easyquant/Weights/ConstantTensors.h"

#include "llvm/ADT/MapVector.h"
#include "llvm/ADT/SmallPtrSet.h"

namespace easyquant::execution {

/// A linear with a plan.
struct PlannedSite {
  equant::QuantizableOpInterface op;
  equant::PlanAttr plan;

  std::string name() const { return handle().getSite().str(); }
  mlir::Location loc() const { return handle().getLoc(); }
  mlir::Value weight() const { return handle().getWeightOperand().get(); }
  mlir::Value activation() const { return handle().getActivationOperand().get(); }
  /// Null if it is none of lm.
  lm::LinearOp linear() const { return llvm::dyn_cast<lm::LinearOp>(handle().getOperation()); }
  /// Where the rows of each expert begin; null: it is no linear of experts.
  mlir::Value offsets() const { return linear() ? linear().getExperts() : mlir::Value(); }
  /// 1 if it is none.
  int64_t experts() const { return lm::expertCount(offsets()); }
  /// The rows of the weight of one of them; all rows if it is none.
  int64_t rowsOfExpert() const {
    return llvm::cast<mlir::RankedTensorType>(weight().getType()).getDimSize(0) / experts();
  }
  numerics::Scheme scheme() const { return plan.getWeight().toNumerics(); }
  numerics::ScaleRule rule() const;

private:
  /// Ops are handles whose methods are not const.
  equant::QuantizableOpInterface handle() const { return op; }
};

/// Does a linear of experts read rows of tokens, in whatever basis, so that columns mean the same
/// to all experts? Else each expert has made what it reads.
bool readsTokens(lm::LinearOp experts);
/// The lm.rows that gives it these rows as they are; null if none does.
lm::RowsOp gatheredTokens(lm::LinearOp experts);

/// Their linears.
llvm::SmallVector<equant::QuantizableOpInterface> opsOf(llvm::ArrayRef<PlannedSite> sites);

/// The planned sites that read one activation, of the same experts: q, k and v; o; gate and up;
/// down.
struct SiteGroup {
  mlir::Value activation;
  mlir::Value offsets; ///< of experts
  llvm::SmallVector<PlannedSite> sites;
  bool names(llvm::StringRef method) const;
};

/// The groups of a layer in the order of execution.
llvm::SmallVector<SiteGroup> siteGroups(mlir::func::FuncOp layer);

/// The linears that `values` are made of, none behind another: those of the query of an attention,
/// say.
llvm::SmallPtrSet<mlir::Operation *, 4> sitesMaking(llvm::ArrayRef<mlir::Value> values);

/// The latest activation computed before `op` through which everything from `op` on sees what is
/// before: where a layer can be cut in two. It has the type of the layer's input; the input itself
/// if there is no other.
mlir::Value lastCut(mlir::func::FuncOp layer, mlir::Operation *op);

/// The first such place behind `op`; the layer's output if there is no other.
mlir::Value nextCut(mlir::func::FuncOp layer, mlir::Operation *op);

/// Fails with a diagnostic at the first site outside of the layers whose plan names `method`.
mlir::LogicalResult checkSitesAreInLayers(mlir::ModuleOp module,
                                          llvm::ArrayRef<mlir::func::FuncOp> layers,
                                          llvm::StringRef method);

/// A weight of the model with its sizes.
struct WeightValues {
  std::vector<float> values;
  int64_t rows = 0, columns = 0;
  numerics::Matrix view() { return {values.data(), rows, columns}; }
};
/// Reads the weight as the IR has it; fails with a diagnostic.
mlir::FailureOr<WeightValues> readWeight(const ModelConstants &constants, const PlannedSite &site);

/// Rows of the weight of a site by the site's plan. Errors: those of numerics::quantize, naming the
/// site.
Result<numerics::QuantizedMatrix> roundToNearest(const PlannedSite &site,
                                                 numerics::ConstMatrix rows);

/// Codes of weights, by the value that they stand for.
using QuantizedWeights = llvm::MapVector<mlir::Value, numerics::QuantizedMatrix>;

/// Loads the weights of a subgraph: dequantized codes where there are some, else those of the
/// model.
mlir::LogicalResult load(CompiledSubgraph &program, const ModelConstants &constants,
                         const QuantizedWeights &quantized);

/// Identifies what a method computes for a layer: `before`, the stamp of what came before (the
/// previous layer's, or that of the options, tokens and model), the text of the layer with its
/// plans and that of the globals it reads or its plans name, which carry the stamps of what was
/// computed for them.
std::string layerStamp(mlir::func::FuncOp layer, llvm::StringRef before);
/// Notes in the module, as `equant.calibration`, which text it is calibrated on.
void recordCalibration(mlir::ModuleOp module, const CalibrationTokens &tokens);

/// The first of the chain: `method` is its name and options.
mlir::FailureOr<std::string> methodStamp(const LayerRunner &runner, mlir::ModuleOp module,
                                         llvm::StringRef method);

} // namespace easyquant::execution

#endif // EASYQUANT_EXECUTION_LAYERSITES_H
