//===- ModuleConstants.h - Constants in a module ----------------*- C++ -*-===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Weights of a module: dense<>, dense_resource<>, or parameters of IREE, which stand in files;
// behind ops that give their elements another order or shape. Nothing is copied until a weight is
// read.
//
//===----------------------------------------------------------------------===//

#ifndef EASYQUANT_CONVERSION_EQUANTTOLINALG_MODULECONSTANTS_H
#define EASYQUANT_CONVERSION_EQUANTTOLINALG_MODULECONSTANTS_H

#include "easyquant/Formats/Safetensors.h"
#include "easyquant/Support/Result.h"

#include "mlir/IR/BuiltinAttributes.h"
#include "mlir/IR/BuiltinTypes.h"
#include "mlir/IR/Value.h"

#include <map>
#include <optional>
#include <vector>

namespace easyquant {

/// The files of IREE's parameters, by their scopes.
class ParameterFiles {
public:
  /// `named`: SCOPE=FILE each. InvalidArgument for another text, else errors of SafetensorsFile.
  static Result<ParameterFiles> open(llvm::ArrayRef<std::string> named);
  /// The bytes of a tensor. Errors name the scope or the file, what is there and what to do.
  Result<llvm::ArrayRef<char>> read(const std::string &scope, const std::string &key,
                                    mlir::RankedTensorType type) const;

private:
  std::map<std::string, std::pair<std::string, formats::SafetensorsFile>> files;
};

/// A constant, seen through linalg.transpose, linalg.broadcast, tensor.collapse_shape,
/// tensor.expand_shape and arith.extf.
class ModuleConstant {
public:
  /// None where the value is no constant, or other ops compute it.
  static std::optional<ModuleConstant> match(mlir::Value value);

  /// The same elements of the same constant, rows for columns?
  bool isTransposeOf(const ModuleConstant &other) const;
  /// Are elements of this type read? f32, f16 and bf16.
  static bool isReadable(mlir::Type element);
  /// All elements of a constant of such a type, in the order of the value that was matched.
  /// InvalidArgument for a resource without data, or with too few bytes; errors of ParameterFiles.
  Result<std::vector<float>> read(const ParameterFiles &parameters) const;

private:
  /// Indices of a dimension are digits, the slowest first: how many values each has, and by how
  /// many elements of the constant one step of it goes.
  struct Digit {
    int64_t extent, stride;
    bool operator==(const Digit &) const = default;
  };
  using Dimension = llvm::SmallVector<Digit, 2>;

  /// `value`: ElementsAttr, or the OpaqueAttr #flow.parameter.named<"SCOPE"::"KEY">.
  ModuleConstant(mlir::Attribute value, mlir::RankedTensorType type);
  Result<llvm::ArrayRef<char>> bytes(const ParameterFiles &parameters) const;
  bool transpose(llvm::ArrayRef<int64_t> permutation);
  bool broadcast(llvm::ArrayRef<int64_t> dimensions, llvm::ArrayRef<int64_t> shape);
  bool collapse(llvm::ArrayRef<llvm::SmallVector<int64_t, 2>> reassociation);
  bool expand(llvm::ArrayRef<llvm::SmallVector<int64_t, 2>> reassociation,
              llvm::ArrayRef<int64_t> shape);

  mlir::Attribute value;
  mlir::RankedTensorType type;
  llvm::SmallVector<Dimension> dims;
};

} // namespace easyquant

#endif // EASYQUANT_CONVERSION_EQUANTTOLINALG_MODULECONSTANTS_H
