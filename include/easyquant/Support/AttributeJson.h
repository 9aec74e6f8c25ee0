//===- AttributeJson.h - Attributes as JSON and back ------------*- C++ -*-===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// A pass that leaves a structure with mapFields at an op, or reads one, goes by its JSON.
//
//===----------------------------------------------------------------------===//

#ifndef EASYQUANT_SUPPORT_ATTRIBUTEJSON_H
#define EASYQUANT_SUPPORT_ATTRIBUTEJSON_H

#include "easyquant/Support/Json.h"

#include "mlir/IR/Builders.h"
#include "llvm/ADT/TypeSwitch.h"

namespace easyquant {

/// Dictionaries, arrays, strings and numbers; null for anything else and for none.
inline Json toJson(mlir::Attribute attribute) {
  if (!attribute)
    return Json();
  return llvm::TypeSwitch<mlir::Attribute, Json>(attribute)
      .Case([](mlir::DictionaryAttr dictionary) {
        Json::Object object;
        for (mlir::NamedAttribute entry : dictionary)
          object.emplace(entry.getName().str(), toJson(entry.getValue()));
        return Json(std::move(object));
      })
      .Case([](mlir::ArrayAttr array) {
        Json::Array elements;
        for (mlir::Attribute element : array)
          elements.push_back(toJson(element));
        return Json(std::move(elements));
      })
      .Case([](mlir::StringAttr string) { return Json(string.getValue()); })
      .Case([](mlir::BoolAttr boolean) { return Json(boolean.getValue()); })
      .Case([](mlir::IntegerAttr integer) { return Json(integer.getInt()); })
      .Case([](mlir::FloatAttr number) { return Json(number.getValueAsDouble()); })
      .Default([](mlir::Attribute) { return Json(); });
}

/// Integers become i64, other numbers f64, and null a unit.
inline mlir::Attribute toAttribute(mlir::MLIRContext *context, const Json &json) {
  mlir::Builder b(context);
  if (json.isObject()) {
    mlir::NamedAttrList members;
    for (const auto &[name, member] : json.members())
      members.set(name, toAttribute(context, member));
    return members.getDictionary(context);
  }
  if (json.isArray()) {
    llvm::SmallVector<mlir::Attribute> elements;
    for (size_t i = 0; i < json.size(); ++i)
      elements.push_back(toAttribute(context, json[i]));
    return b.getArrayAttr(elements);
  }
  if (json.isString())
    return b.getStringAttr(json.string());
  if (json.isBoolean())
    return b.getBoolAttr(json.boolean());
  if (auto integer = json.integer())
    return b.getI64IntegerAttr(*integer);
  if (auto number = json.number())
    return b.getF64FloatAttr(*number);
  return b.getUnitAttr();
}

} // namespace easyquant

#endif // EASYQUANT_SUPPORT_ATTRIBUTEJSON_H
