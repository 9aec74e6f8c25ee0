//===- MatchLlama.h - LLaMA in upstream ops ---------------------*- C++ -*-===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef EASYQUANT_LIB_CONVERSION_LINALGTOLM_MATCHLLAMA_H
#define EASYQUANT_LIB_CONVERSION_LINALGTOLM_MATCHLLAMA_H

#include "easyquant/Conversion/EquantToLinalg/ModuleConstants.h"
#include "easyquant/Formats/ModelConfig.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"

#include <map>

namespace easyquant {

/// A constant of the program that is a tensor of the model.
struct FoundWeight {
  ModuleConstant constant;
  llvm::SmallVector<int64_t, 2> shape; ///< of the constant
  bool isTransposed;                   ///< columns x rows: the second factor of a product
};

/// What a program computes.
struct FoundModel {
  formats::ModelConfig config;
  std::map<std::string, FoundWeight> weights; ///< by their names in a Hugging Face checkpoint
};

/// The LLaMA that the function is, whose longest context is its number of tokens. Fails after a
/// diagnostic at the op that has no place in one.
mlir::FailureOr<FoundModel> matchLlama(mlir::func::FuncOp function);

} // namespace easyquant

#endif // EASYQUANT_LIB_CONVERSION_LINALGTOLM_MATCHLLAMA_H
