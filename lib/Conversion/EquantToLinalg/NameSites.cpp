//===- NameSites.cpp - Names of linalg ops with weights -------------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "LinalgSite.h"

#include "easyquant/Conversion/EquantToLinalg/EquantToLinalg.h"

#include "mlir/Interfaces/FunctionInterfaces.h"

namespace easyquant {
#define GEN_PASS_DEF_NAMESITES
#include "easyquant/Conversion/EquantToLinalg/Passes.h.inc"
} // namespace easyquant

using namespace mlir;
using namespace easyquant;
using namespace easyquant::equant;

/// The name that a location gives the op, else its function and its kind.
static std::string baseNameOf(Operation *op) {
  if (auto name = dyn_cast<NameLoc>(op->getLoc()); name && !name.getName().empty())
    return name.getName().str();
  auto function = op->getParentOfType<FunctionOpInterface>();
  const std::string kind = op->getName().stripDialect().str();
  return function ? (function.getName() + "." + kind).str() : kind;
}

namespace {
struct NameSites : easyquant::impl::NameSitesBase<NameSites> {
  using NameSitesBase::NameSitesBase;

  void runOnOperation() override {
    SmallVector<Operation *> found;
    llvm::StringMap<Operation *> named;
    llvm::StringMap<int64_t> count;
    bool isSound = true;
    getOperation().walk([&](linalg::LinalgOp op) {
      if (!op->getName().hasInterface<QuantizableOpInterface>())
        return;
      auto name = op->getAttrOfType<StringAttr>(kSiteAttr);
      if (!name && !LinalgSite::hasConstant(op))
        return; // a product of activations, as in attention
      Result<LinalgSite> site = LinalgSite::match(op);
      if (name) {
        isSound &= succeeded(checkNamed(op, name, site, named));
      } else if (!site) {
        emitRemark(op.getLoc()) << op->getName() << " stays float: it " << site.error().message;
      } else {
        found.push_back(op);
        ++count[baseNameOf(op)];
      }
    });
    if (!isSound)
      return signalPassFailure();
    llvm::StringMap<int64_t> next;
    for (Operation *op : found) {
      const std::string base = baseNameOf(op);
      // A location that no other op has is a name as it is.
      std::string name = base;
      if (!isa<NameLoc>(op->getLoc()) || count[base] > 1 || named.contains(base))
        do
          name = base + "_" + std::to_string(next[base]++);
        while (named.contains(name));
      named[name] = op;
      op->setAttr(kSiteAttr, StringAttr::get(&getContext(), name));
    }
    if (named.empty())
      emitWarning(getOperation().getLoc()) << getArgument()
                                           << ": nothing to do: expected linalg.matmul, "
                                              "batch_matmul, contract or a convolution, one "
                                              "of whose factors is a constant of the module";
  }

private:
  static LogicalResult checkNamed(Operation *op, StringAttr name, const Result<LinalgSite> &site,
                                  llvm::StringMap<Operation *> &named) {
    auto [other, isNew] = named.try_emplace(name.getValue(), op);
    if (!isNew) {
      InFlightDiagnostic diagnostic = op->emitOpError()
                                      << "has the name of another site, '" << name.getValue()
                                      << "'; give one of them another " << kSiteAttr;
      diagnostic.attachNote(other->second->getLoc()) << "the other is here";
      return diagnostic;
    }
    if (!site)
      return op->emitOpError() << "is site '" << name.getValue() << "', but it "
                               << site.error().message << "; else leave " << kSiteAttr << " out";
    return success();
  }
};
} // namespace
