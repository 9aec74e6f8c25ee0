//===- AttributeJSON.cpp - Attributes as JSON -----------------------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "AttributeJSON.h"

#include "easyquant/Dialect/Equant/IR/Equant.h"

#include "mlir/IR/BuiltinAttributes.h"
#include "llvm/ADT/TypeSwitch.h"

using namespace mlir;
using namespace easyquant;
namespace json = llvm::json;

json::Value easyquant::toJSON(Attribute attribute) {
  return llvm::TypeSwitch<Attribute, json::Value>(attribute)
      .Case([](DictionaryAttr dictionary) {
        json::Object object;
        for (NamedAttribute entry : dictionary)
          object[entry.getName().getValue()] = toJSON(entry.getValue());
        return object;
      })
      .Case([](ArrayAttr array) {
        json::Array elements;
        for (Attribute element : array)
          elements.push_back(toJSON(element));
        return elements;
      })
      .Case([](equant::SchemeAttr scheme) {
        return json::Object{{"bits", scheme.getBits()},
                            {"symmetric", scheme.getSymmetric()},
                            {"granularity", equant::stringifyGranularity(scheme.getGranularity())},
                            {"group_size", scheme.getGroupSize()},
                            {"dynamic", scheme.getDynamic()}};
      })
      .Case([](StringAttr string) { return string.getValue().str(); })
      .Case([](BoolAttr boolean) { return boolean.getValue(); })
      .Case([](IntegerAttr integer) { return integer.getInt(); })
      .Case([](FloatAttr number) { return number.getValueAsDouble(); })
      .Default([](Attribute) { return nullptr; });
}
