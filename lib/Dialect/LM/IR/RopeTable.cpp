//===- RopeTable.cpp - The attribute lm.rope_table ------------------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "easyquant/Dialect/LM/IR/RopeTable.h"

#include "mlir/IR/Builders.h"

using namespace mlir;
using namespace easyquant;
using namespace easyquant::lm;
using numerics::RopeParams;
using numerics::RopeScaling;

static constexpr llvm::StringLiteral kScaling = "scaling", kPositions = "original_positions",
                                     kTruncate = "truncate", kDivisors = "divisors",
                                     kLateGain = "late_gain", kTurnedPairs = "turned_pairs";

/// The value of `scaling`; empty where there is none.
static StringRef nameOf(RopeScaling scaling) {
  switch (scaling) {
  case RopeScaling::None:
    return "";
  case RopeScaling::Linear:
    return "linear";
  case RopeScaling::Llama3:
    return "llama3";
  case RopeScaling::Yarn:
    return "yarn";
  case RopeScaling::LongRope:
    return "longrope";
  case RopeScaling::Proportional:
    return "proportional";
  }
  llvm_unreachable("every scaling is named");
}

namespace {
struct Number {
  StringRef name;
  double RopeParams::*member;
};
} // namespace

/// The numbers that a table of this scaling has.
static SmallVector<Number> numbersOf(RopeScaling scaling) {
  SmallVector<Number> numbers = {{"theta", &RopeParams::theta}};
  if (scaling == RopeScaling::LongRope)
    numbers.push_back({"attention_factor", &RopeParams::attentionFactor});
  else if (scaling != RopeScaling::None && scaling != RopeScaling::Proportional)
    numbers.push_back({"factor", &RopeParams::factor});
  if (scaling == RopeScaling::Llama3)
    numbers.append({{"low_freq_factor", &RopeParams::lowFrequencyFactor},
                    {"high_freq_factor", &RopeParams::highFrequencyFactor}});
  if (scaling == RopeScaling::Yarn)
    numbers.append({{"beta_fast", &RopeParams::betaFast},
                    {"beta_slow", &RopeParams::betaSlow},
                    {"attention_factor", &RopeParams::attentionFactor}});
  return numbers;
}

static bool hasPositions(RopeScaling scaling) {
  return scaling == RopeScaling::Llama3 || scaling == RopeScaling::Yarn;
}

DictionaryAttr lm::ropeTableAttr(MLIRContext *context, const RopeParams &params) {
  Builder b(context);
  NamedAttrList fields;
  for (Number number : numbersOf(params.scaling))
    fields.set(number.name, b.getF64FloatAttr(params.*number.member));
  if (params.scaling != RopeScaling::None)
    fields.set(kScaling, b.getStringAttr(nameOf(params.scaling)));
  if (hasPositions(params.scaling))
    fields.set(kPositions, b.getI64IntegerAttr(params.originalPositions));
  if (params.scaling == RopeScaling::Yarn) {
    fields.set(kTruncate, b.getBoolAttr(params.truncate));
    if (params.lateGain != 0.0)
      fields.set(kLateGain, b.getF64FloatAttr(params.lateGain));
  }
  if (params.scaling == RopeScaling::LongRope)
    fields.set(kDivisors, b.getDenseF32ArrayAttr(params.divisors));
  if (params.scaling == RopeScaling::Proportional)
    fields.set(kTurnedPairs, b.getI64IntegerAttr(params.turnedPairs));
  return fields.getDictionary(context);
}

Result<RopeParams> lm::ropeParams(DictionaryAttr attribute, RankedTensorType table) {
  const int64_t positions = table.getDimSize(0), pairs = table.getDimSize(1);
  if (pairs > numerics::kMaxHeadDim / 2)
    return makeError(ErrorCode::InvalidArgument,
                     "a table for heads of at most {} dimensions has at most {} pairs a position, "
                     "found {}",
                     numerics::kMaxHeadDim, numerics::kMaxHeadDim / 2, pairs);
  RopeParams params;
  params.dims = 2 * pairs;
  if (Attribute scaling = attribute.get(kScaling)) {
    auto name = dyn_cast<StringAttr>(scaling);
    for (RopeScaling kind : {RopeScaling::Linear, RopeScaling::Llama3, RopeScaling::Yarn,
                             RopeScaling::LongRope, RopeScaling::Proportional})
      if (name && name.getValue() == nameOf(kind))
        params.scaling = kind;
    if (params.scaling == RopeScaling::None)
      return makeError(ErrorCode::InvalidArgument,
                       "scaling must be \"linear\", \"llama3\", \"yarn\", \"longrope\" or "
                       "\"proportional\"");
  }
  size_t expected = params.scaling == RopeScaling::None ? 0 : 1;
  for (Number number : numbersOf(params.scaling)) {
    auto value = attribute.getAs<FloatAttr>(number.name);
    if (!value)
      return makeError(ErrorCode::InvalidArgument, "{} must be there, a float", number.name.str());
    params.*number.member = value.getValueAsDouble();
    ++expected;
  }
  auto readInteger = [&](StringRef name, int64_t &number) -> Result<void> {
    auto value = attribute.getAs<IntegerAttr>(name);
    if (!value || !value.getType().isSignlessInteger(64))
      return makeError(ErrorCode::InvalidArgument, "{} must be there, an i64", name.str());
    number = value.getInt();
    ++expected;
    return {};
  };
  if (hasPositions(params.scaling))
    if (auto read = readInteger(kPositions, params.originalPositions); !read)
      return Unexpected(read.error());
  if (params.scaling == RopeScaling::Proportional)
    if (auto read = readInteger(kTurnedPairs, params.turnedPairs); !read)
      return Unexpected(read.error());
  if (params.scaling == RopeScaling::Yarn) {
    auto value = attribute.getAs<BoolAttr>(kTruncate);
    if (!value)
      return makeError(ErrorCode::InvalidArgument, "{} must be there, a bool", kTruncate.str());
    params.truncate = value.getValue();
    ++expected;
    if (Attribute gain = attribute.get(kLateGain)) {
      auto number = dyn_cast<FloatAttr>(gain);
      if (!number || number.getValueAsDouble() == 0.0)
        return makeError(ErrorCode::InvalidArgument, "{} must be a float that is not 0",
                         kLateGain.str());
      params.lateGain = number.getValueAsDouble();
      ++expected;
    }
  }
  if (params.scaling == RopeScaling::LongRope) {
    auto value = attribute.getAs<DenseF32ArrayAttr>(kDivisors);
    if (!value)
      return makeError(ErrorCode::InvalidArgument, "{} must be there, an array of f32",
                       kDivisors.str());
    params.divisors.assign(value.asArrayRef().begin(), value.asArrayRef().end());
    ++expected;
  }
  if (attribute.size() != expected)
    return makeError(ErrorCode::InvalidArgument, "expected {} fields, found {}", expected,
                     attribute.size());
  if (auto legal = numerics::checkRope(params, positions); !legal)
    return Unexpected(legal.error());
  return params;
}
