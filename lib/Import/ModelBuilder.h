//===- ModelBuilder.h - What the importers of all models share ----*- C++ -*-===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef EASYQUANT_LIB_IMPORT_MODELBUILDER_H
#define EASYQUANT_LIB_IMPORT_MODELBUILDER_H

#include "easyquant/Dialect/LM/IR/LM.h"
#include "easyquant/Formats/ModelSource.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/Builders.h"
#include "mlir/IR/BuiltinOps.h"

#include "llvm/ADT/StringMap.h"

#include <string>

namespace easyquant {

/// An OpBuilder that knows the model: it loads weights by name, and gives every op the location of
/// its module in the checkpoint ("model.layers.0.mlp"), which diagnostics then show.
class ModelBuilder : public mlir::OpBuilder {
public:
  ModelBuilder(mlir::ModuleOp module, const formats::ModelSource &source);

  const formats::ModelSource &source;
  const formats::ModelConfig &config;

  /// Declares a global for every weight of the source, in its order.
  void declareWeights();
  /// Declares the rotation table.
  void declareRopeTable();

  mlir::Location at(const std::string &name);
  mlir::RankedTensorType activations(int64_t columns);
  lm::BatchType batchType();
  lm::KVCacheType cacheType();

  /// The value of a declared weight, or of the rotation table.
  mlir::Value load(const std::string &name);

  /// Creates the function of layer `index` with its arguments (%x, %batch, %cache) and moves
  /// into its body.
  mlir::func::FuncOp startLayer(int64_t index);
  void finishLayer(mlir::Value result);

  /// The linear of site `site`, whose weight is `<site>.weight` and, if `bias`, whose bias is
  /// `<site>.bias`.
  mlir::Value linear(mlir::Value input, const std::string &site, bool bias);
  /// lm.attention of layer `index` with scale 1/sqrt(D), in the window that the layer has.
  mlir::Value attention(mlir::Value query, mlir::Value key, mlir::Value value,
                        mlir::func::FuncOp layer, int64_t index, const std::string &name);
  mlir::Value add(mlir::Value a, mlir::Value b, const std::string &name);

private:
  void declare(llvm::StringRef name, llvm::ArrayRef<int64_t> shape, mlir::DictionaryAttr ropeTable);

  mlir::ModuleOp module;
  llvm::StringMap<mlir::RankedTensorType> globals;
};

/// Per architecture: the embedding of @forward, the blocks, and the final norm. Blocks are built as
/// functions of their own; the others append to the current place.
struct ArchitectureImporter {
  mlir::Value (*embed)(ModelBuilder &, mlir::Value tokens, mlir::Value batch);
  void (*buildLayer)(ModelBuilder &, int64_t index);
  mlir::Value (*finalNorm)(ModelBuilder &, mlir::Value input);
  /// Name of the weight that a tied head shares.
  const char *embeddingName;
  bool usesRope;
};
extern const ArchitectureImporter kLLaMAImporter;
extern const ArchitectureImporter kGPT2Importer;

} // namespace easyquant

#endif // EASYQUANT_LIB_IMPORT_MODELBUILDER_H
