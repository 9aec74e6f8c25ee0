//===- ConvertLMToLinalg.cpp - The lm dialect in upstream ops -------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Patterns.h"

#include "easyquant/Conversion/EquantToLinalg/EquantToLinalg.h"
#include "easyquant/Dialect/LM/IR/LM.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/Math/IR/Math.h"

namespace easyquant {
#define GEN_PASS_DEF_CONVERTLMTOLINALG
#include "easyquant/Conversion/EquantToLinalg/Passes.h.inc"
} // namespace easyquant

using namespace mlir;
using namespace easyquant;
using namespace easyquant::lm;

namespace {
struct ConvertLMToLinalg : easyquant::impl::ConvertLMToLinalgBase<ConvertLMToLinalg> {
  using ConvertLMToLinalgBase::ConvertLMToLinalgBase;

  void runOnOperation() override {
    WalkResult checked = getOperation().walk([](Operation *op) -> WalkResult {
      std::string reason = linalgform::whyNotModel(op);
      return reason.empty() ? WalkResult::advance() : WalkResult(op->emitOpError(reason));
    });
    if (checked.wasInterrupted())
      return signalPassFailure();
    // One sequence without a past is known by its rows alone.
    TypeConverter converter;
    converter.addConversion([](Type type) { return type; });
    converter.addConversion([](Type type, SmallVectorImpl<Type> &) -> std::optional<LogicalResult> {
      return isa<BatchType, KVCacheType>(type) ? std::optional(success()) : std::nullopt;
    });
    RewritePatternSet patterns(&getContext());
    linalgform::addModelPatterns(patterns, converter);
    linalgform::addAttentionPatterns(patterns, converter);
    ConversionTarget target(getContext());
    target.addIllegalDialect<LMDialect>();
    if (failed(linalgform::convertModule(getOperation(), converter, std::move(patterns), target)))
      signalPassFailure();
  }
};
} // namespace
