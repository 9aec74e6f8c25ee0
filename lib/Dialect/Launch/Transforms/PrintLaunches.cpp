//===- PrintLaunches.cpp - A step as a table ------------------------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "easyquant/Dialect/Launch/Analysis/Memory.h"
#include "easyquant/Dialect/Launch/Transforms/Passes.h"

#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "llvm/Support/FormatVariadic.h"

namespace easyquant::launch {
#define GEN_PASS_DEF_PRINTLAUNCHES
#include "easyquant/Dialect/Launch/Transforms/Passes.h.inc"
} // namespace easyquant::launch

using namespace mlir;
using namespace easyquant::launch;

namespace {

/// What a launch moves, without the cache and scratch.
struct Traffic {
  int64_t constants = 0, readPerRow = 0, writtenPerRow = 0;
};

struct PrintLaunches : easyquant::launch::impl::PrintLaunchesBase<PrintLaunches> {
  void runOnOperation() override {
    SmallVector<Operation *> launches;
    for (Operation &op : getOperation().getOps())
      if (isa<KernelOp, HostOp, CollectiveOp, WaitOp>(op))
        launches.push_back(&op);
    for (auto [number, op] : llvm::enumerate(launches))
      print(static_cast<int>(number), op, waitsFor(launches, number));
  }

  /// The latest launches that a launch depends on, without those that these depend on.
  static SmallVector<int> waitsFor(ArrayRef<Operation *> launches, size_t number) {
    SmallVector<int> latest;
    for (size_t earlier = number; earlier-- > 0;) {
      if (!dependsOn(launches[number], launches[earlier]))
        continue;
      if (llvm::none_of(latest,
                        [&](int known) { return dependsOn(launches[known], launches[earlier]); }))
        latest.push_back(static_cast<int>(earlier));
    }
    return latest;
  }

  static Traffic trafficOf(Operation *op) {
    Traffic traffic;
    for (const Access &access : accessesOf(op)) {
      auto type = cast<MemRefType>(access.memory.getType());
      Operation *root = rootOf(access.memory).getDefiningOp();
      if (isa_and_present<ScratchOp, CountersOp, PiecesOp, PartialsOp, PartialCountersOp>(root) ||
          access.memory.getDefiningOp<CacheOp>())
        continue;
      if (type.hasStaticShape())
        traffic.constants += llvm::divideCeil(
            type.getNumElements() * static_cast<int64_t>(type.getElementTypeBitWidth()), 8);
      else
        (access.isWrite ? traffic.writtenPerRow : traffic.readPerRow) += rowBytes(type);
    }
    return traffic;
  }

  static StringRef phaseOf(Operation *op) {
    if (auto kernel = dyn_cast<KernelOp>(op))
      return stringifyPhase(kernel.getPhase());
    return isa<CollectiveOp>(op) ? "comm" : isa<WaitOp>(op) ? "sync" : "host";
  }

  static PiecesOp piecesOf(KernelOp kernel) {
    for (Value operand : kernel.getArguments())
      if (auto pieces = operand.getDefiningOp<PiecesOp>())
        return pieces;
    return nullptr;
  }

  static void print(int number, Operation *op, ArrayRef<int> after) {
    auto kernel = dyn_cast<KernelOp>(op);
    Traffic traffic = trafficOf(op);
    llvm::raw_ostream &os = llvm::outs();
    os << llvm::formatv("{0,4} {1,-9} {2}  ", number, phaseOf(op),
                        op->getAttrOfType<StringAttr>("site").getValue());
    if (kernel) {
      os << kernel.getKernel();
      if (auto pieces = piecesOf(kernel))
        os << llvm::formatv(" for pieces of {0} to {1} rows", pieces.getMinRows(),
                            pieces.getMaxRows() ? std::to_string(pieces.getMaxRows()) : "all");
      if (auto rows = kernel.getRows())
        os << llvm::formatv(" for {0} to {1} rows", (*rows)[0],
                            (*rows)[1] ? std::to_string((*rows)[1]) : "all");
    } else if (auto collective = dyn_cast<CollectiveOp>(op)) {
      os << "collective " << collective.getId() << " "
         << stringifyCollectiveCall(collective.getCall());
      if (auto reduction = collective.getReduction())
        os << " " << stringifyReduction(*reduction);
    } else if (auto wait = dyn_cast<WaitOp>(op)) {
      os << "collective " << wait.getId();
    } else {
      os << "call " << cast<HostOp>(op).getCall();
    }
    os << llvm::formatv("  reads {0} + {1}/row, writes {2}/row", traffic.constants,
                        traffic.readPerRow, traffic.writtenPerRow);
    if (!after.empty())
      llvm::interleaveComma(after, os << "  after ");
    os << "\n";
  }
};

} // namespace
