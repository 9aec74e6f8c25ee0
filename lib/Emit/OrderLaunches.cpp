//===- OrderLaunches.cpp - When a kernel begins ---------------------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "OrderLaunches.h"

#include "easyquant/Codegen/GPU/Chip.h"

#include "mlir/Dialect/GPU/IR/GPUDialect.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/LLVMIR/NVVMDialect.h"

using namespace mlir;

namespace {

bool overlapsLaunches(mlir::gpu::GPUModuleOp kernels) {
  for (auto target : kernels.getTargetsAttr().getAsRange<NVVM::NVVMTargetAttr>())
    if (auto chip = easyquant::gpu::findChip(target.getChip()); chip && chip->overlapsLaunches())
      return true;
  return false;
}

/// Is the pointer one that is made behind the wait, or not known to be another?
bool dependsOnWait(Value pointer) {
  while (auto step = pointer.getDefiningOp<LLVM::GEPOp>())
    pointer = step.getBase();
  if (auto argument = dyn_cast<BlockArgument>(pointer))
    return !isa<mlir::gpu::GPUFuncOp>(argument.getOwner()->getParentOp());
  return !pointer.getDefiningOp<LLVM::AddressOfOp>();
}

struct OrderLaunches : public PassWrapper<OrderLaunches, OperationPass<mlir::gpu::GPUModuleOp>> {
  MLIR_DEFINE_EXPLICIT_INTERNAL_INLINE_TYPE_ID(OrderLaunches)

  void runOnOperation() override {
    if (overlapsLaunches(getOperation())) {
      getOperation().walk([](LLVM::LoadOp load) {
        if (load.getInvariant() && dependsOnWait(load.getAddr()))
          load.setInvariant(false);
      });
      return;
    }
    SmallVector<Operation *> erased;
    getOperation().walk([&](Operation *op) {
      if (isa<NVVM::GriddepcontrolOp>(op))
        erased.push_back(op);
    });
    for (Operation *op : erased)
      op->erase();
  }
};

} // namespace

std::unique_ptr<Pass> easyquant::gpu::createOrderLaunchesPass() {
  return std::make_unique<OrderLaunches>();
}
