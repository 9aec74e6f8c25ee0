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
      .Case([](equant::SchemeAttr scheme) {
        const numerics::Scheme numeric = scheme.toNumerics();
        std::string_view table = numeric.table ? numeric.table->name() : "";
        Json::Object members{
            {"bits", Json(int64_t(scheme.getBits()))},
            {"codes", Json(std::string(table.empty() ? numerics::toString(numeric.codes) : table))},
            {"scale_type", Json(std::string(numerics::toString(numeric.scales)))},
            {"symmetric", Json(scheme.getSymmetric())},
            {"granularity", Json(equant::stringifyGranularity(scheme.getGranularity()).str())},
            {"group_size", Json(scheme.getGroupSize())},
            {"dynamic", Json(scheme.getDynamic())}};
        if (scheme.isOnline())
          members.emplace("online", Json(true));
        if (scheme.getOuter())
          members.emplace("outer", Json("tensor"));
        if (scheme.getSinks())
          members.emplace("sinks", Json("keep"));
        return Json(std::move(members));
      })
      .Case([](StringAttr string) { return Json(string.getValue().str()); })
      .Case([](BoolAttr boolean) { return Json(boolean.getValue()); })
      .Case([](IntegerAttr integer) { return Json(integer.getInt()); })
      .Case([](FloatAttr number) { return Json(number.getValueAsDouble()); })
      .Default([](Attribute) { return Json(); });
}
