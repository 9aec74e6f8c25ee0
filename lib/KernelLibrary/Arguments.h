//===- Arguments.h - The arguments of kernels by name -----------*- C++ -*-===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// A kernel's description says which parameters it has, in which order, and which it writes. A
// launch gives each by its name.
//
//===----------------------------------------------------------------------===//

#ifndef EASYQUANT_LIB_KERNELLIBRARY_ARGUMENTS_H
#define EASYQUANT_LIB_KERNELLIBRARY_ARGUMENTS_H

#include "easyquant/KernelLibrary/LaunchBuilder.h"

#include <map>
#include <set>

namespace easyquant {

/// What linears and embeddings read of a packed weight.
inline constexpr numerics::WeightTensor kWeightParts[] = {
    numerics::WeightTensor::Codes,      numerics::WeightTensor::Scales,
    numerics::WeightTensor::ZeroPoints, numerics::WeightTensor::Minima,
    numerics::WeightTensor::Outer,      numerics::WeightTensor::Codebook};

/// The arguments of one or more kernels by the names of their parameters.
class Arguments {
public:
  using Argument = std::pair<mlir::StringRef, mlir::Value>;
  explicit Arguments(LaunchBuilder &b, std::initializer_list<Argument> arguments = {}) : b(b) {
    for (auto [name, value] : arguments)
      set(name, value);
  }

  /// Null sets nothing.
  void set(mlir::StringRef name, mlir::Value value) {
    if (!value)
      return;
    values[name.str()] = value;
    if (!rows && llvm::isa<mlir::MemRefType>(value.getType()))
      rows = b.rows(value);
  }
  mlir::LogicalResult setWeight(mlir::StringRef name, mlir::Value constant,
                                mlir::StringRef offset = equant::kOffsetAttr);
  /// The arguments for the parts that a packed weight has: w, wscales, wzeros, wminima, wouter,
  /// codebook, wsums.
  mlir::LogicalResult setWeight(mlir::Value weight, llvm::ArrayRef<numerics::WeightTensor> parts);
  /// Activations in codes: codes, scales, sums, zeros, as far as there are any.
  void setCodes(mlir::Value codes, bool scales = true);
  /// The same, memory for a result of so many rows.
  void setResultCodes(mlir::Value result, mlir::Value rows);

  /// In the order of the parameters: "<matrix>_stride" is the distance of its rows, and "rows" the
  /// number of those of the first matrix.
  template <typename Description>
  mlir::FailureOr<llvm::SmallVector<mlir::Value>> of(mlir::Operation *op,
                                                     const Description &kernel) {
    llvm::SmallVector<mlir::Value> operands;
    for (const auto &parameter : kernel.parameters) {
      if (!operands.emplace_back(find(parameter.name)))
        return op->emitOpError("its kernel ")
               << kernel.name << " takes '" << parameter.name << "', which no operand gives";
      taken.insert(parameter.name);
    }
    return operands;
  }
  /// An error unless `kernel` takes all that is given.
  template <typename Description>
  mlir::LogicalResult checkTaken(mlir::Operation *op, const Description &kernel) const {
    for (const std::string &name : llvm::make_first_range(values))
      if (!taken.contains(name))
        return op->emitOpError("gives '")
               << name << "', which its kernel " << kernel.name << " does not take";
    return mlir::success();
  }

private:
  mlir::Value find(mlir::StringRef name) const;

  LaunchBuilder &b;
  std::map<std::string, mlir::Value> values;
  std::set<std::string> taken;
  mlir::Value rows;
};

/// What a launch does to its operands, as the kernel's parameters say it; the kernel's `function`
/// says it, too, for the verifier of the launch.
template <typename Description>
LaunchBuilder::Access accessOf(mlir::Operation *function, const Description &kernel) {
  LaunchBuilder::Access access;
  llvm::SmallVector<mlir::StringRef> names;
  for (auto [i, parameter] : llvm::enumerate(kernel.parameters)) {
    names.push_back(parameter.name);
    if (parameter.written)
      access.writes.push_back(static_cast<int64_t>(i));
  }
  mlir::Builder b(function->getContext());
  function->setAttr(launch::kParametersAttr, b.getStrArrayAttr(names));
  function->setAttr(launch::kWritesAttr, b.getDenseI64ArrayAttr(access.writes));
  return access;
}

} // namespace easyquant

#endif // EASYQUANT_LIB_KERNELLIBRARY_ARGUMENTS_H
