//===- KeptSites.h - Sites with the codes of the source ----------*- C++ -*-===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef EASYQUANT_LIB_DIALECT_EQUANT_TRANSFORMS_KEPTSITES_H
#define EASYQUANT_LIB_DIALECT_EQUANT_TRANSFORMS_KEPTSITES_H

#include "easyquant/Recipe/Recipe.h"
#include "easyquant/Weights/ConstantTensors.h"

namespace easyquant::equant {

/// Plans sites with scheme keep: each has what the model's source has for it.
class KeptSites {
public:
  /// With `dequantize`, sites whose codes no scheme has stay float; equant-check-plans does so with
  /// those that no kernel takes.
  KeptSites(mlir::ModuleOp module, bool dequantize) : module(module), dequantize(dequantize) {}

  /// Gives the site a plan; false where the source has floats, or it is to become float. Fails with
  /// a diagnostic.
  mlir::FailureOr<bool> plan(QuantizableOpInterface op, const recipe::SiteRequest &asked);
  /// The same of an embedding that no linear shares its table with.
  mlir::LogicalResult planEmbedding(lm::EmbeddingOp op);
  /// Gives an embedding of which nothing is asked the codes of the source, as they are: floats
  /// would say no more, and take several times the bytes. Nothing happens where the source has
  /// floats, or codes that no scheme has.
  mlir::LogicalResult keepEmbedding(lm::EmbeddingOp op);
  /// Says which sites have become float.
  void report();

private:
  mlir::LogicalResult openReader();
  /// The same, of a source that has some codes.
  mlir::LogicalResult openSource();
  /// What the source has of the weight of a site, which may be the table of an embedding; null
  /// where it has floats, or they are to be.
  mlir::FailureOr<const formats::StoredWeight *> find(mlir::Location loc, llvm::StringRef site,
                                                      llvm::StringRef weight, bool isTable);
  PlanAttr planOf(const formats::StoredWeight &stored, SchemeAttr input);
  /// The global of the order of its columns, which sites with the same order share.
  FlatSymbolRefAttr orderOf(const formats::StoredWeight &stored);

  mlir::ModuleOp module;
  const bool dequantize;
  std::optional<ConstantReader> reader; ///< opened where a site asks for it
  llvm::SmallVector<std::string> floats;
  llvm::DenseMap<llvm::ArrayRef<int32_t>, mlir::FlatSymbolRefAttr> orders; ///< of `reader`
};

/// Marks an embedding whose codes are kept where everything takes them that a model is compiled
/// for, and which is float elsewhere.
inline constexpr llvm::StringLiteral kIfPossibleAttr = "equant.if_possible";

/// Says which sites have become float, as `why` ("no scheme has") the codes.
void reportDequantized(mlir::ModuleOp module, llvm::ArrayRef<std::string> sites,
                       llvm::StringRef why);

} // namespace easyquant::equant

#endif // EASYQUANT_LIB_DIALECT_EQUANT_TRANSFORMS_KEPTSITES_H
