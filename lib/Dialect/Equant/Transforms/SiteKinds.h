//===- SiteKinds.h - What sites do in a model -------------------*- C++ -*-===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Private to the plan passes.
//
//===----------------------------------------------------------------------===//

#ifndef EASYQUANT_LIB_DIALECT_EQUANT_TRANSFORMS_SITEKINDS_H
#define EASYQUANT_LIB_DIALECT_EQUANT_TRANSFORMS_SITEKINDS_H

#include "easyquant/Dialect/Equant/IR/Equant.h"
#include "easyquant/Formats/ModelTensors.h"
#include "easyquant/Recipe/Mixes.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/BuiltinOps.h"

namespace easyquant::equant {

/// The site of the output head in every architecture.
inline constexpr llvm::StringRef kHeadSite = formats::kHeadModule;

/// What a site does, by the ops around it. What is between a linear and the attention are ops
/// without weights of their own.
class SiteKinds {
public:
  explicit SiteKinds(mlir::ModuleOp module);

  recipe::SiteKind kindOf(QuantizableOpInterface op) const;
  /// Is it in an attention block?
  bool isAttention(QuantizableOpInterface op) const;
  /// Is it in one of the first or last layers? A layer is a function with an attention or a
  /// recurrent state.
  bool isAtEnd(QuantizableOpInterface op) const;

private:
  void addProducers(mlir::Value value);
  void addConsumers(mlir::Value value);

  llvm::SmallPtrSet<mlir::Operation *, 16> producers, consumers, seen;
  llvm::MapVector<mlir::Operation *, int64_t> layers; ///< their numbers
};

} // namespace easyquant::equant

#endif // EASYQUANT_LIB_DIALECT_EQUANT_TRANSFORMS_SITEKINDS_H
