//===- AttributeJSON.cpp - Attributes as JSON -----------------------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "easyquant/Dialect/Equant/Analysis/AttributeJSON.h"

#include "mlir/IR/BuiltinAttributes.h"
#include "llvm/ADT/TypeSwitch.h"

using namespace mlir;
using namespace easyquant;

Json easyquant::toJson(Attribute attribute) {
  if (!attribute)
    return Json();
  return llvm::TypeSwitch<Attribute, Json>(attribute)
      .Case([](DictionaryAttr dictionary) {
        Json::Object object;
        for (NamedAttribute entry : dictionary)
          object.emplace(entry.getName().str(), toJson(entry.getValue()));
        return Json(std::move(object));
      })
      .Case([](ArrayAttr array) {
        Json::Array elements;
        for (Attribute element : array)
          elements.push_back(toJson(element));
        return Json(std::move(elements));
      })
      .Case([](StringAttr string) { return Json(string.getValue()); })
      .Case([](BoolAttr boolean) { return Json(boolean.getValue()); })
      .Case([](IntegerAttr integer) { return Json(integer.getInt()); })
      .Case([](FloatAttr number) { return Json(number.getValueAsDouble()); })
      .Default([](Attribute) { return Json(); });
}
