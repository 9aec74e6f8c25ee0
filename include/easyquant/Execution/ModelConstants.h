//===- ModelConstants.h - Values of a model's constants ---------*- C++ -*-===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef EASYQUANT_EXECUTION_MODELCONSTANTS_H
#define EASYQUANT_EXECUTION_MODELCONSTANTS_H

#include "easyquant/Weights/ConstantTensors.h"

namespace easyquant::execution {

/// The constants of a module as float matrices: tensors of its model or of its work folder,
/// equant.scale of them, rotation tables.
class ModelConstants {
public:
  /// Opens what the module's lm.source names; fails with a diagnostic.
  static mlir::FailureOr<ModelConstants> open(mlir::ModuleOp module);

  const formats::ModelSource &source() const { return reader.source(); }

  /// Are all constants that the model's functions load there, in their shapes? Then a buffer
  /// of a weight's type holds what is read. Fails with a diagnostic.
  mlir::LogicalResult check() const;

  /// The value of a constant, row-major, as far as `out` goes: tables may be read in part. Every
  /// value is finite. Fails with a diagnostic that names `global`, what messages call the constant.
  mlir::LogicalResult read(mlir::Value constant, llvm::StringRef global,
                           std::span<float> out) const {
    return readRows(constant, global, 0, out);
  }
  /// Rows `first` .., as many as `out` holds; a vector has one element a row.
  mlir::LogicalResult readRows(mlir::Value constant, llvm::StringRef global, int64_t first,
                               std::span<float> out) const;

private:
  ModelConstants(mlir::ModuleOp module, equant::ConstantReader reader)
      : module(module), reader(std::move(reader)) {}

  mlir::ModuleOp module;
  equant::ConstantReader reader;
};

} // namespace easyquant::execution

#endif // EASYQUANT_EXECUTION_MODELCONSTANTS_H
