//===- EquantAttributes.cpp - Quantization attributes ---------------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "easyquant/Dialect/Equant/IR/Equant.h"

#include "mlir/IR/Builders.h"
#include "mlir/IR/DialectImplementation.h"
#include "llvm/ADT/TypeSwitch.h"

using namespace mlir;
using namespace easyquant;
using namespace easyquant::equant;

#include "easyquant/Dialect/Equant/IR/EquantEnums.cpp.inc"

#define GET_ATTRDEF_CLASSES
#include "easyquant/Dialect/Equant/IR/EquantAttributes.cpp.inc"

void EquantDialect::registerAttributes() {
  addAttributes<
#define GET_ATTRDEF_LIST
#include "easyquant/Dialect/Equant/IR/EquantAttributes.cpp.inc"
      >();
}

static bool isCodeWidth(unsigned bits) { return bits == 2 || bits == 3 || bits == 4 || bits == 8; }

bool easyquant::equant::isCodeType(Type type) {
  return type.isSignlessInteger() && isCodeWidth(type.getIntOrFloatBitWidth());
}

static int64_t ceilDiv(int64_t a, int64_t b) { return a / b + (a % b != 0); }

//===----------------------------------------------------------------------===//
// SchemeAttr
//===----------------------------------------------------------------------===//

SchemeAttr SchemeAttr::perChannel(MLIRContext *context, unsigned bits) {
  return get(context, bits, /*symmetric=*/true, Granularity::Channel, /*axis=*/0, /*group_size=*/0,
             /*dynamic=*/false, /*outer=*/std::nullopt);
}

SchemeAttr SchemeAttr::perGroup(MLIRContext *context, unsigned bits, int64_t groupSize) {
  return get(context, bits, /*symmetric=*/true, Granularity::Group, /*axis=*/0, groupSize,
             /*dynamic=*/false, /*outer=*/std::nullopt);
}

SchemeAttr SchemeAttr::perToken(MLIRContext *context, unsigned bits) {
  return get(context, bits, /*symmetric=*/true, Granularity::Token, /*axis=*/0, /*group_size=*/0,
             /*dynamic=*/true, /*outer=*/std::nullopt);
}

numerics::Scheme SchemeAttr::toNumerics() const {
  static constexpr numerics::Granularity kGranularities[] = {
      numerics::Granularity::Tensor, numerics::Granularity::Channel, numerics::Granularity::Group,
      numerics::Granularity::Token};
  return {.bits = static_cast<int>(getBits()),
          .symmetric = getSymmetric(),
          .granularity = kGranularities[static_cast<unsigned>(getGranularity())],
          .groupSize = getGroupSize(),
          .dynamic = getDynamic()};
}

IntegerType SchemeAttr::getCodeType() const { return IntegerType::get(getContext(), getBits()); }

SmallVector<int64_t, 2> SchemeAttr::getScaleShape(ArrayRef<int64_t> matrixShape) const {
  int64_t rows = matrixShape[0], columns = matrixShape[1];
  switch (getGranularity()) {
  case Granularity::Tensor:
    return {1, 1};
  case Granularity::Channel:
    if (getAxis() == 1)
      return {1, columns};
    return {rows, 1};
  case Granularity::Token:
    return {rows, 1};
  case Granularity::Group:
    return {rows, ceilDiv(columns, getGroupSize())};
  }
  llvm_unreachable("every granularity is named");
}

LogicalResult SchemeAttr::verify(function_ref<InFlightDiagnostic()> emitError, unsigned bits,
                                 bool symmetric, Granularity granularity, int64_t axis,
                                 int64_t groupSize, bool dynamic,
                                 std::optional<Granularity> outer) {
  if (!isCodeWidth(bits))
    return emitError() << "codes must be i2, i3, i4 or i8, found i" << bits;
  if (granularity == Granularity::Group ? groupSize < 1 : groupSize != 0)
    return emitError() << "group size must be positive with groups and 0 without, found "
                       << groupSize;
  if (axis != 0 && (granularity != Granularity::Channel || axis != 1))
    return emitError() << "channel axis must be 0 or 1, found " << axis;
  if (granularity == Granularity::Token && !dynamic)
    return emitError() << "scales per token must be dynamic: how many tokens there will be is not "
                          "known before run time";
  if (!outer)
    return success();
  if (*outer != Granularity::Tensor && *outer != Granularity::Channel)
    return emitError() << "outer scale must be per tensor or per channel, found "
                       << stringifyGranularity(*outer);
  // Coarser than what it scales, else it would be the same scale twice.
  if (granularity != Granularity::Group &&
      !(granularity == Granularity::Channel && *outer == Granularity::Tensor))
    return emitError() << "outer scale per " << stringifyGranularity(*outer)
                       << " is not coarser than scales per " << stringifyGranularity(granularity);
  return success();
}

/// `= integer`
static ParseResult parseNumber(AsmParser &parser, int64_t &number) {
  return failure(parser.parseEqual() || parser.parseInteger(number));
}

Attribute SchemeAttr::parse(AsmParser &parser, Type) {
  SMLoc start = parser.getCurrentLocation();
  IntegerType code;
  StringRef word;
  if (parser.parseLess() || parser.parseType(code) || parser.parseComma())
    return {};
  SMLoc at = parser.getCurrentLocation();
  if (parser.parseKeyword(&word))
    return {};
  bool symmetric = word == "symmetric";
  if (!symmetric && word != "asymmetric") {
    parser.emitError(at) << "expected 'symmetric' or 'asymmetric', found '" << word << "'";
    return {};
  }
  if (parser.parseComma())
    return {};

  at = parser.getCurrentLocation();
  if (parser.parseKeyword(&word))
    return {};
  std::optional<Granularity> granularity = symbolizeGranularity(word);
  if (!granularity) {
    parser.emitError(at) << "granularity must be tensor, channel, group = SIZE or token, found '"
                         << word << "'";
    return {};
  }
  int64_t axis = 0, groupSize = 0;
  if (*granularity == Granularity::Group && parseNumber(parser, groupSize))
    return {};
  if (*granularity == Granularity::Channel && succeeded(parser.parseOptionalEqual()) &&
      parser.parseInteger(axis))
    return {};

  bool dynamic = false;
  std::optional<Granularity> outer;
  while (succeeded(parser.parseOptionalComma())) {
    at = parser.getCurrentLocation();
    if (parser.parseKeyword(&word))
      return {};
    if (word == "dynamic" && !dynamic && !outer) {
      dynamic = true;
    } else if (word == "outer" && !outer) {
      if (parser.parseEqual() || parser.parseKeyword(&word))
        return {};
      outer = symbolizeGranularity(word);
      if (!outer) {
        parser.emitError(at) << "outer scale must be per tensor or per channel, found '" << word
                             << "'";
        return {};
      }
    } else {
      parser.emitError(at) << "expected 'dynamic' or 'outer = tensor|channel', found '" << word
                           << "'";
      return {};
    }
  }
  if (parser.parseGreater())
    return {};
  if (!code.isSignless()) {
    parser.emitError(start) << "codes must be i2, i3, i4 or i8, found " << code;
    return {};
  }
  return getChecked([&] { return parser.emitError(start); }, parser.getContext(), code.getWidth(),
                    symmetric, *granularity, axis, groupSize, dynamic, outer);
}

void SchemeAttr::print(AsmPrinter &printer) const {
  printer << "<i" << getBits() << (getSymmetric() ? ", symmetric, " : ", asymmetric, ")
          << stringifyGranularity(getGranularity());
  if (getGranularity() == Granularity::Group)
    printer << " = " << getGroupSize();
  if (getAxis() != 0)
    printer << " = " << getAxis();
  if (getDynamic())
    printer << ", dynamic";
  if (getOuter())
    printer << ", outer = " << stringifyGranularity(*getOuter());
  printer << ">";
}

//===----------------------------------------------------------------------===//
// LayoutAttr
//===----------------------------------------------------------------------===//

LayoutAttr LayoutAttr::panel(MLIRContext *context) {
  return get(context, /*rows=*/32, /*depth=*/4);
}

LogicalResult LayoutAttr::verify(function_ref<InFlightDiagnostic()> emitError, int64_t rows,
                                 int64_t depth) {
  // The upper bound keeps sizes of packed tensors far from overflow.
  if (rows < 1 || rows > 1024 || depth < 1 || depth > 1024)
    return emitError() << "rows and depth of a panel must be 1 to 1024, found " << rows << " and "
                       << depth;
  return success();
}

RankedTensorType LayoutAttr::getPackedCodesType(int64_t n, int64_t k, unsigned bits) const {
  if (bits != 4 && bits != 8)
    return nullptr;
  int64_t pairs = ceilDiv(k, 2 * getDepth());
  return RankedTensorType::get(
      {ceilDiv(n, getRows()), bits == 4 ? pairs : 2 * pairs, getRows(), getDepth()},
      IntegerType::get(getContext(), 8));
}

RankedTensorType LayoutAttr::getPackedScalesType(int64_t n, int64_t groups) const {
  return RankedTensorType::get({ceilDiv(n, getRows()), groups, getRows()},
                               Float32Type::get(getContext()));
}
