//===- Arguments.cpp - The arguments of kernels by name -------------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Arguments.h"

using namespace mlir;
using namespace easyquant;
using numerics::WeightTensor;
using RowsPart = equant::RowsType::Part;

static constexpr std::pair<RowsPart, const char *> kCodes[] = {{RowsPart::Codes, "codes"},
                                                               {RowsPart::Scales, "scales"},
                                                               {RowsPart::Sums, "sums"},
                                                               {RowsPart::ZeroPoints, "zeros"},
                                                               {RowsPart::Outer, "outer"}};

static StringRef parameterOf(WeightTensor part) {
  switch (part) {
  case WeightTensor::Codes:
    return "w";
  case WeightTensor::Scales:
    return "wscales";
  case WeightTensor::ZeroPoints:
    return "wzeros";
  case WeightTensor::Minima:
    return "wminima";
  case WeightTensor::Outer:
    return "wouter";
  case WeightTensor::Codebook:
    return "codebook";
  case WeightTensor::Sums:
    return "wsums";
  }
  llvm_unreachable("all parts have a parameter");
}

LogicalResult Arguments::setWeight(StringRef name, Value constant, StringRef offset) {
  if (!constant)
    return success();
  FailureOr<Value> memory = b.weight(constant, offset);
  if (succeeded(memory))
    values[name.str()] = *memory;
  return memory;
}

LogicalResult Arguments::setWeight(Value weight, ArrayRef<WeightTensor> parts) {
  for (WeightTensor part : parts) {
    FailureOr<Value> memory = b.weight(weight, part);
    if (failed(memory))
      return failure();
    if (*memory)
      values[parameterOf(part).str()] = *memory;
  }
  return success();
}

void Arguments::setCodes(Value codes, bool scales) {
  for (auto [part, name] : kCodes)
    if (scales || part != RowsPart::Scales)
      set(name, b.part(codes, part));
}

void Arguments::setResultCodes(Value result, Value rows) {
  for (auto [part, name] : kCodes)
    set(name, b.result(result, part, rows));
}

Value Arguments::find(StringRef name) const {
  auto known = [&](StringRef name) {
    auto it = values.find(name.str());
    return it == values.end() ? Value() : it->second;
  };
  if (Value value = known(name))
    return value;
  if (name == "rows")
    return rows;
  Value matrix = name.consume_back("_stride") ? known(name) : Value();
  return matrix ? b.index(cast<MemRefType>(matrix.getType()).getStridesAndOffset().first.front())
                : Value();
}
