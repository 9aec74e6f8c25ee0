//===- ConvertModule.cpp - Functions of converted types -------------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Patterns.h"

#include "easyquant/Conversion/EquantToLinalg/EquantToLinalg.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/Func/Transforms/FuncConversions.h"
#include "mlir/Pass/PassManager.h"
#include "mlir/Transforms/Passes.h"

using namespace mlir;
using namespace easyquant;

LogicalResult linalgform::convertModule(ModuleOp module, TypeConverter &converter,
                                        RewritePatternSet patterns, ConversionTarget &target) {
  populateFunctionOpInterfaceTypeConversionPattern<func::FuncOp>(patterns, converter);
  populateCallOpTypeConversionPattern(patterns, converter);
  populateReturnOpTypeConversionPattern(patterns, converter);
  target.addDynamicallyLegalOp<func::FuncOp>([&](func::FuncOp op) {
    return converter.isSignatureLegal(op.getFunctionType()) && converter.isLegal(&op.getBody());
  });
  target.addDynamicallyLegalOp<func::CallOp, func::ReturnOp>(
      [&](Operation *op) { return converter.isLegal(op); });
  target.markUnknownOpDynamicallyLegal([](Operation *) { return true; });
  return applyPartialConversion(module, target, std::move(patterns));
}

void easyquant::buildLinalgPipeline(OpPassManager &pm, StringRef output, StringRef weights) {
  PlainWeightsOptions plain;
  plain.output = output.str();
  BindWeightsOptions bind;
  bind.weights = weights.str();
  bind.file = (output + "/weights.safetensors").str();
  if (weights == "arguments") // which layers would have to hand on
    pm.addPass(createInlinerPass());
  pm.addPass(createPlainWeights(plain));
  pm.addPass(createConvertEquantToLinalg());
  pm.addPass(createConvertLMToLinalg());
  pm.addPass(createBindWeights(bind));
  pm.addPass(createCanonicalizerPass());
  pm.addPass(createCSEPass());
}
