//===- Describe.h - Parameters of kernels by name ---------------*- C++ -*-===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// A kernel's describe() lists its parameters once. What builds the kernel finds its arguments by
// their names (KernelArguments).
//
//===----------------------------------------------------------------------===//

#ifndef EASYQUANT_LIB_CODEGEN_CPU_DESCRIBE_H
#define EASYQUANT_LIB_CODEGEN_CPU_DESCRIBE_H

#include "easyquant/Codegen/CPU/Kernels.h"

#include "mlir/IR/Builders.h"

namespace easyquant::cpu {

/// rows<columns> of Kernels.h, of f32 unless another element is named.
mlir::MemRefType rowsType(mlir::Builder &b, int64_t columns, mlir::Type element = {});

/// Builds the description of a kernel, one parameter after another.
class Describer : public mlir::Builder {
public:
  /// Each thread has its own rows of whatever a kernel over rows touches.
  enum class Over { Rows, Other };
  Describer(mlir::MLIRContext *context, std::string name, Over over)
      : Builder(context), over(over) {
    kernel.name = std::move(name);
  }

  /// If it is `there`.
  void reads(llvm::StringRef name, mlir::Type type, bool there = true) {
    if (there)
      add(name, type);
  }
  Parameter &writes(llvm::StringRef name, mlir::Type type) {
    Parameter &parameter = add(name, type);
    parameter.written = true;
    return parameter;
  }
  mlir::Type memory(llvm::ArrayRef<int64_t> shape, mlir::Type element) {
    return mlir::MemRefType::get(shape, element);
  }
  /// An element a row, or one of any number.
  mlir::Type vector(mlir::Type element) { return memory({mlir::ShapedType::kDynamic}, element); }
  mlir::Type rows(int64_t columns) { return rowsType(*this, columns); }

  Description kernel;

private:
  Parameter &add(llvm::StringRef name, mlir::Type type);
  const Over over;
};

} // namespace easyquant::cpu

#endif // EASYQUANT_LIB_CODEGEN_CPU_DESCRIBE_H
