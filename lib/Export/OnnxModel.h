//===- OnnxModel.h - A quantized module as an ONNX model --------*- C++ -*-===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef EASYQUANT_LIB_EXPORT_ONNXMODEL_H
#define EASYQUANT_LIB_EXPORT_ONNXMODEL_H

#include "OnnxBuilder.h"

#include "easyquant/Dialect/Equant/Analysis/CheckpointSites.h"
#include "easyquant/Weights/ModelWeights.h"
#include "easyquant/Weights/WeightEvaluation.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"

namespace easyquant {

/// model.onnx, and model.onnx.data beside it.
class OnnxModel {
public:
  /// `opset`: the version of operators to use; nothing: the least that the model needs.
  OnnxModel(const formats::CheckpointFormat &format, std::optional<int64_t> opset)
      : format(format), opset(opset) {}

  /// Makes the graph. Fails with a diagnostic that names the site or the op which ONNX cannot say.
  mlir::LogicalResult build(mlir::ModuleOp module, const equant::ConstantReader &reader);
  /// Evaluates constants and writes both files. One weight is in memory at a time.
  Result<void> write(const std::filesystem::path &folder, const equant::ConstantReader &reader,
                     unsigned threads, llvm::function_ref<void(int64_t)> progress);
  /// Constants to write: progress ends with so many.
  int64_t constants() const { return std::ssize(contents); }

private:
  using Name = OnnxBuilder::Name;
  using Scope = llvm::DenseMap<mlir::Value, Name>; ///< activations of a function

  /// A weight and how it is stored.
  struct StoredWeight {
    const equant::ConstantWeight *weight;
    equant::CheckpointSite site;
  };
  /// What a declared constant is made of: one of these.
  struct Content {
    const equant::FloatConstant *floats = nullptr;
    int ropeColumn = 0; ///< of a rotation table: 0 for cosines, 1 for sines
    int64_t hadamard = 0;
    const StoredWeight *stored = nullptr;
    formats::CodecTensor tensor = {};
  };

  mlir::LogicalResult addFunction(mlir::func::FuncOp function, Scope values,
                                  llvm::SmallVectorImpl<Name> &results, bool isLayer);
  mlir::LogicalResult addOp(mlir::Operation *op, Scope &values);
  mlir::LogicalResult addCall(mlir::func::CallOp call, Scope &values);
  mlir::LogicalResult addLinear(equant::LinearOp op, Scope &values);
  mlir::FailureOr<const StoredWeight *> storedWeight(equant::LinearOp op);
  Name addWeight(const StoredWeight &weight);
  Name quantizedInput(const Name &x, const formats::QuantizedSite &site);
  Name dynamicScale(const Name &x, const numerics::Scheme &input);
  Name rotated(const Name &x, equant::HadamardOp op);

  /// The activation that an operand is. Fails with a diagnostic.
  mlir::FailureOr<Name> valueOf(mlir::Operation *op, mlir::Value operand, const Scope &values);
  /// The constant that an operand is, declared once.
  mlir::FailureOr<Name> constantOf(mlir::Operation *op, mlir::Value operand, int ropeColumn = 0);

  Result<void> writeFloats(const Content &content, const equant::ConstantReader &reader,
                           const formats::OnnxGraph::Take &take);
  Result<void> writeRope(const Content &content, const formats::OnnxGraph::Take &take);

  const formats::CheckpointFormat &format;
  const std::optional<int64_t> opset;
  int64_t least = formats::kFirstOpset; ///< that the model needs
  OnnxBuilder b;
  equant::ModelWeights weights;
  std::deque<StoredWeight> stored;
  std::vector<Content> contents; ///< in the order of declaration
  llvm::DenseMap<mlir::Operation *, const equant::ConstantWeight *> weightOf;
  llvm::DenseMap<std::pair<mlir::Operation *, mlir::Value>, const equant::FloatConstant *> floatOf;
  llvm::DenseMap<const equant::ConstantWeight *, Name> dequantizedOf;
  llvm::DenseMap<int64_t, Name> hadamardOf; ///< by block
  llvm::DenseMap<std::pair<const equant::FloatConstant *, int>, Name> declaredAs;
  std::map<std::string, Name> inputOf; ///< activations that are quantized, by what decides them
  llvm::DenseSet<int64_t> cachedLayers;
};

} // namespace easyquant

#endif // EASYQUANT_LIB_EXPORT_ONNXMODEL_H
