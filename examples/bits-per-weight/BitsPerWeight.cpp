//===- BitsPerWeight.cpp - A pass that easyquant-opt loads ----------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// `report-bits-per-weight` says of every site how many bits a weight takes, with its share of
// scales and zero points, and what the mean is. It knows quantized linears and, by the interface
// that method passes see, those that stay float.
//
//===----------------------------------------------------------------------===//

#include "easyquant/Dialect/Equant/IR/Equant.h"

#include "mlir/IR/BuiltinOps.h"
#include "mlir/Pass/Pass.h"
#include "mlir/Tools/Plugins/PassPlugin.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/FormatVariadic.h"

using namespace easyquant;

namespace {

class ReportBitsPerWeight
    : public mlir::PassWrapper<ReportBitsPerWeight, mlir::OperationPass<mlir::ModuleOp>> {
public:
  MLIR_DEFINE_EXPLICIT_INTERNAL_INLINE_TYPE_ID(ReportBitsPerWeight)

  llvm::StringRef getArgument() const override { return "report-bits-per-weight"; }
  llvm::StringRef getDescription() const override {
    return "Remark how many bits a weight of each site takes";
  }

  void runOnOperation() override {
    int64_t weights = 0, bytes = 0;
    auto report = [&](mlir::Operation *op, const llvm::Twine &site, int64_t count, int64_t stored) {
      op->emitRemark() << site << ": " << llvm::formatv("{0:f2}", 8.0 * stored / count).str()
                       << " bits per weight";
      weights += count;
      bytes += stored;
    };
    getOperation().walk([&](mlir::Operation *op) {
      if (auto linear = mlir::dyn_cast<equant::LinearOp>(op)) {
        equant::WeightType type = linear.getWeight().getType();
        auto sites = linear.getSites().getAsValueRange<mlir::StringAttr>();
        report(op, llvm::join(sites, "+"), type.getRows() * type.getColumns(),
               type.getStoredBytes());
      } else if (auto linear = mlir::dyn_cast<equant::QuantizableOpInterface>(op)) {
        auto type = mlir::cast<mlir::ShapedType>(linear.getWeightOperand().get().getType());
        report(op, linear.getSite(), type.getNumElements(),
               type.getNumElements() * type.getElementTypeBitWidth() / 8);
      }
    });
    if (weights)
      getOperation().emitRemark("all sites: ")
          << llvm::formatv("{0:f2}", 8.0 * bytes / weights).str() << " bits per weight";
    markAllAnalysesPreserved();
  }
};

} // namespace

extern "C" LLVM_ATTRIBUTE_WEAK mlir::PassPluginLibraryInfo mlirGetPassPluginInfo() {
  return {MLIR_PLUGIN_API_VERSION, "BitsPerWeight", LLVM_VERSION_STRING,
          [] { mlir::PassRegistration<ReportBitsPerWeight>(); }};
}
