//===- Describe.cpp - Parameters of kernels by name -----------------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Describe.h"

using namespace mlir;

namespace easyquant::cpu {

MemRefType rowsType(Builder &b, int64_t columns, Type element) {
  auto layout =
      StridedLayoutAttr::get(b.getContext(), ShapedType::kDynamic, {ShapedType::kDynamic, 1});
  return MemRefType::get({ShapedType::kDynamic, columns}, element ? element : b.getF32Type(),
                         layout);
}

Parameter &Describer::add(StringRef name, Type type) {
  const bool isShared = over == Over::Rows && isa<MemRefType>(type);
  return kernel.parameters.emplace_back(Parameter{name.str(), type, /*written=*/false, isShared});
}

} // namespace easyquant::cpu
