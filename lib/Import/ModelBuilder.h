//===- ModelBuilder.h - What importing a model takes ---------------*- C++ -*-===//
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

/// The cache of the layers that have attention; null after a diagnostic.
lm::KVCacheType cacheTypeOf(mlir::MLIRContext &context, const formats::ModelConfig &config,
                            llvm::function_ref<mlir::InFlightDiagnostic()> error);

/// An OpBuilder that knows the model: it loads weights by name, and gives every op the location of
/// its module in the checkpoint ("model.layers.0.mlp"), which diagnostics then show.
class ModelBuilder : public mlir::OpBuilder {
public:
  ModelBuilder(mlir::ModuleOp module, const formats::ModelSource &source,
               formats::ModelConfig config);
  /// For the assistant of a model whose weights are declared: its layers are numbered behind those
  /// of the model, whose cache and rotation tables they read.
  explicit ModelBuilder(ModelBuilder &model);

  const formats::ModelSource &source;
  const formats::ModelConfig config;

  /// Declares a global for every weight of the source, in its order.
  void declareWeights();
  /// Declares the rotation tables.
  void declareRopeTables();

  mlir::Location at(const std::string &name);
  mlir::RankedTensorType activations(int64_t columns);
  lm::BatchType batchType();
  /// The cache of the layers that have attention.
  lm::KVCacheType cacheType();
  /// Null where no layer has a recurrent state.
  lm::RecurrentType recurrentType();

  /// The value of a declared weight, or of the rotation table.
  mlir::Value load(const std::string &name);
  /// The rows of a table of positions that the context reaches.
  mlir::Value rowsOfContext(mlir::Value table);

  /// The types of what a layer gives: the hidden state, and the keys and values that others read.
  llvm::SmallVector<mlir::Type> resultsOf(int64_t index);
  /// The function of layer `index`.
  std::string layerName(int64_t index) const {
    return "layer_" + std::to_string(firstLayer + index);
  }
  /// Creates the function of layer `index` with its arguments (%x, %batch, %cache, a recurrent
  /// state if any layer has one, keys and values if it reads those of another layer of the model,
  /// and what it reads of its own embedding) and moves into its body.
  mlir::func::FuncOp startLayer(int64_t index);
  /// Its arguments behind the cache and the state.
  mlir::ValueRange ofOthers(mlir::func::FuncOp layer);
  /// With the keys and values behind the hidden state that others read.
  void finishLayer(llvm::ArrayRef<mlir::Value> results);

  /// The linear of the site `prefix` + `module`.
  mlir::Value linear(mlir::Value input, const std::string &prefix,
                     const formats::ModuleName &module, bool bias);
  /// The linears of all experts, for the rows that `offsets` tells apart.
  mlir::Value experts(mlir::Value input, const std::string &prefix,
                      const formats::ModuleName &module, mlir::Value offsets);
  /// The architecture's norm of each row; the input itself where there is no such module.
  mlir::Value norm(mlir::Value input, const std::string &prefix, const formats::ModuleName &module);
  /// The RMS norm of each head of each row.
  mlir::Value headNorm(mlir::Value input, const std::string &prefix,
                       const formats::ModuleName &module);
  /// The same without a weight, of heads of so many columns, of the part `name` of a layer.
  mlir::Value headNorm(mlir::Value input, const std::string &name, int64_t headDim);
  /// lm.attention of layer `index`, in the window that the layer has; sink logits may be null. An
  /// assistant has lm.cached_attention in its place, without key and value.
  mlir::Value attention(mlir::Value query, mlir::Value key, mlir::Value value,
                        mlir::func::FuncOp layer, int64_t index, const std::string &name,
                        mlir::Value sinkLogits);
  mlir::Value add(mlir::Value a, mlir::Value b, const std::string &name);
  /// The input itself where the factor is 1.
  mlir::Value multiply(mlir::Value input, double factor, const std::string &name);

private:
  mlir::ml_program::GlobalOp declare(llvm::StringRef name, llvm::ArrayRef<int64_t> shape);

  mlir::ModuleOp module;
  lm::KVCacheType cache; ///< of an assistant: the model's
  int64_t firstLayer = 0;
  llvm::StringMap<mlir::RankedTensorType> globals;
};

} // namespace easyquant

#endif // EASYQUANT_LIB_IMPORT_MODELBUILDER_H
