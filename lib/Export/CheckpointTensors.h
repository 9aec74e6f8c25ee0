//===- CheckpointTensors.h - What a checkpoint is made of -------*- C++ -*-===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef EASYQUANT_LIB_EXPORT_CHECKPOINTTENSORS_H
#define EASYQUANT_LIB_EXPORT_CHECKPOINTTENSORS_H

#include "easyquant/Dialect/Equant/Analysis/CheckpointSites.h"
#include "easyquant/Formats/ModelTensors.h"
#include "easyquant/Weights/ModelWeights.h"

namespace easyquant {

/// Are its codes those of the model's source?
bool isKept(const equant::ConstantWeight &weight);

/// A linear that is quantized, its weight, and how that is stored.
struct StoredSite {
  equant::CheckpointSite stored;
  const equant::ConstantWeight *weight;
  mlir::Location loc;
  std::string tensor; ///< of the model's own checkpoint

  const std::string &name() const { return stored.site.name; }
};

/// A tensor of the model's own checkpoint: it stays float, or is the weight of a site.
struct CheckpointTensor {
  std::string name;
  std::vector<int64_t> shape;
  const equant::ConstantTensor *floats = nullptr;
  const StoredSite *site = nullptr;
  /// Hugging Face checkpoints hold the floats less this.
  float offset = 0.0f;
};

/// All of a quantized module that a checkpoint of a format holds.
class Checkpoint {
public:
  explicit Checkpoint(const formats::CheckpointFormat &format) : format(format) {}

  /// Fails with a diagnostic that names the site on what the format does not hold, and on tensors
  /// of the source that the module does not have, or has in two forms.
  mlir::LogicalResult collect(mlir::ModuleOp module, const equant::ConstantReader &reader);
  /// `quantization_config`
  Json configuration() const { return format.configuration(described, floatSites); }

  const formats::CheckpointFormat &format;
  std::vector<CheckpointTensor> tensors; ///< in the order of execution
  /// The type of what stays float.
  formats::DType floats = formats::DType::F16;

private:
  mlir::LogicalResult collectSite(const equant::WeightUse &use);
  mlir::LogicalResult collectFloat(const equant::FloatConstant &constant);
  mlir::LogicalResult collectTensor(mlir::ModuleOp module, const formats::ExpectedTensor &expected,
                                    const formats::Architecture &architecture);
  mlir::LogicalResult checkSites(mlir::ModuleOp module);

  equant::ModelWeights weights;
  std::deque<StoredSite> sites;                  ///< in the order of execution
  std::vector<formats::QuantizedSite> described; ///< the same without weights
  std::vector<std::string> floatSites;           ///< linears that stay float
  std::deque<equant::ConstantTensor> numbers;    ///< tensors that are attributes in the module
  // By tensor.
  llvm::StringMap<const StoredSite *> siteOf;
  llvm::StringMap<const equant::FloatConstant *> floatOf;
};

} // namespace easyquant

#endif // EASYQUANT_LIB_EXPORT_CHECKPOINTTENSORS_H
