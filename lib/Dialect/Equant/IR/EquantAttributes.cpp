//===- EquantAttributes.cpp - Quantization attributes ---------------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "easyquant/Dialect/Equant/IR/Equant.h"
#include "easyquant/Recipe/Options.h"

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

// Enumerators of the IR and of lib/Numerics are the same numbers.
static_assert(unsigned(Granularity::Tensor) == unsigned(numerics::Granularity::Tensor) &&
              unsigned(Granularity::Channel) == unsigned(numerics::Granularity::Channel) &&
              unsigned(Granularity::Group) == unsigned(numerics::Granularity::Group) &&
              unsigned(Granularity::Token) == unsigned(numerics::Granularity::Token));

SchemeAttr SchemeAttr::get(MLIRContext *context, const numerics::Scheme &scheme) {
  return get(context, scheme.bits, scheme.symmetric, scheme.fullRange,
             static_cast<Granularity>(scheme.granularity), /*axis=*/0, scheme.groupSize,
             scheme.dynamic, /*outer=*/std::nullopt);
}

SchemeAttr SchemeAttr::perChannel(MLIRContext *context, unsigned bits) {
  return get(context, {.bits = int(bits), .granularity = numerics::Granularity::Channel});
}

SchemeAttr SchemeAttr::perGroup(MLIRContext *context, unsigned bits, int64_t groupSize) {
  return get(
      context,
      {.bits = int(bits), .granularity = numerics::Granularity::Group, .groupSize = groupSize});
}

SchemeAttr SchemeAttr::perToken(MLIRContext *context, unsigned bits) {
  return get(context,
             {.bits = int(bits), .granularity = numerics::Granularity::Token, .dynamic = true});
}

numerics::Scheme SchemeAttr::toNumerics() const {
  return {.bits = static_cast<int>(getBits()),
          .symmetric = getSymmetric(),
          .granularity = static_cast<numerics::Granularity>(getGranularity()),
          .groupSize = getGroupSize(),
          .dynamic = getDynamic(),
          .fullRange = getFullRange()};
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
                                 bool symmetric, bool fullRange, Granularity granularity,
                                 int64_t axis, int64_t groupSize, bool dynamic,
                                 std::optional<Granularity> outer) {
  if (!isCodeWidth(bits))
    return emitError() << "codes must be i2, i3, i4 or i8, found i" << bits;
  if (fullRange && !symmetric)
    return emitError() << "asymmetric codes always have the full range: leave 'full' out";
  if (granularity == Granularity::Group ? groupSize < 1 : groupSize != 0)
    return emitError() << "group size must be positive with groups and 0 without, found "
                       << groupSize;
  if (groupSize > lm::kMaxExtent)
    return emitError() << "group size must be at most " << lm::kMaxExtent << ", found "
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
  at = parser.getCurrentLocation();
  if (parser.parseComma() || parser.parseKeyword(&word))
    return {};
  bool fullRange = word == "full";
  if (fullRange) {
    at = parser.getCurrentLocation();
    if (parser.parseComma() || parser.parseKeyword(&word))
      return {};
  }
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
                    symmetric, fullRange, *granularity, axis, groupSize, dynamic, outer);
}

void SchemeAttr::print(AsmPrinter &printer) const {
  printer << "<i" << getBits() << (getSymmetric() ? ", symmetric, " : ", asymmetric, ")
          << (getFullRange() ? "full, " : "") << stringifyGranularity(getGranularity());
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
  bool below4 = bits == 2 || bits == 3;
  if ((bits != 4 && bits != 8 && !below4) || (below4 && getRows() % 4 != 0))
    return nullptr;
  int64_t blocks = ceilDiv(k, 2 * getDepth()), rows = getRows();
  if (bits == 8)
    blocks *= 2;
  else
    rows = rows * bits / 4;
  return RankedTensorType::get({ceilDiv(n, getRows()), blocks, rows, getDepth()},
                               IntegerType::get(getContext(), 8));
}

RankedTensorType LayoutAttr::getPackedScalesType(int64_t n, int64_t groups) const {
  return RankedTensorType::get({ceilDiv(n, getRows()), groups, getRows()},
                               Float32Type::get(getContext()));
}

RankedTensorType LayoutAttr::getPackedZeroPointsType(int64_t n, int64_t groups) const {
  return getPackedScalesType(n, groups).clone(IntegerType::get(getContext(), 8));
}

RankedTensorType LayoutAttr::getPackedSumsType(int64_t n, int64_t groups) const {
  return getPackedScalesType(n, groups).clone(IntegerType::get(getContext(), 32));
}

//===----------------------------------------------------------------------===//
// PlanAttr
//===----------------------------------------------------------------------===//

bool PlanAttr::names(StringRef method) const {
  return llvm::is_contained(getMethods().getAsValueRange<StringAttr>(), method);
}

Attribute PlanAttr::option(StringRef name) const {
  return getOptions() ? getOptions().get(name) : Attribute();
}
bool PlanAttr::optionOr(recipe::Key<bool> key, bool otherwise) const {
  auto value = dyn_cast_or_null<BoolAttr>(option(key.info().key));
  return value ? value.getValue() : otherwise;
}
double PlanAttr::optionOr(recipe::Key<double> key, double otherwise) const {
  auto value = dyn_cast_or_null<FloatAttr>(option(key.info().key));
  return value ? value.getValueAsDouble() : otherwise;
}

PlanAttr PlanAttr::withResults(FlatSymbolRefAttr codes, FlatSymbolRefAttr scale,
                               FlatSymbolRefAttr zeroPoint) const {
  return get(getContext(), getMethods(), getRule(), getPercentile(), getWeight(), getInput(),
             getOptions(), codes, scale, zeroPoint);
}

/// What an option of a site's plan takes instead of this; empty where it is legal.
static std::string whatOptionTakes(NamedAttribute named) {
  Attribute value = named.getValue();
  const recipe::OptionInfo *option = recipe::findOption(named.getName().getValue());
  if (!option || !option->isOfPlan()) {
    SmallVector<StringRef> legal;
    for (const recipe::OptionInfo &known : recipe::options())
      if (known.isOfPlan())
        legal.push_back(known.key);
    return "one of " + llvm::join(legal, ", ");
  }
  auto text = dyn_cast<StringAttr>(value);
  switch (option->kind) {
  case recipe::Kind::Switch:
    return isa<BoolAttr>(value) ? "" : "true or false";
  case recipe::Kind::Integer:
    return isa<IntegerAttr>(value) ? "" : "an integer";
  case recipe::Kind::Number:
    return isa<FloatAttr>(value) ? "" : "a number";
  case recipe::Kind::TextOrNumber:
    return isa<FloatAttr>(value) ||
                   (text && llvm::is_contained(option->choices, std::string_view(text.getValue())))
               ? ""
               : "a number or \"" + llvm::join(option->choices, "\" or \"") + "\"";
  case recipe::Kind::Text:
  case recipe::Kind::Choice:
    return text ? "" : "a name";
  case recipe::Kind::List:
    return isa<ArrayAttr>(value) ? "" : "a list";
  }
  llvm_unreachable("every kind is named");
}

LogicalResult PlanAttr::verify(function_ref<InFlightDiagnostic()> emitError, ArrayAttr methods,
                               ScaleRule rule, FloatAttr percentile, SchemeAttr weight,
                               SchemeAttr input, DictionaryAttr options, FlatSymbolRefAttr codes,
                               FlatSymbolRefAttr scale, FlatSymbolRefAttr zeroPoint) {
  if (!llvm::all_of(methods, llvm::IsaPred<StringAttr>))
    return emitError() << "methods must be names, found " << methods;
  if (weight.getDynamic() || weight.getOuter())
    return emitError() << "weights have one level of static scales, found " << weight;
  if (std::string problem = whyRuleCannotServe(rule, percentile, weight); !problem.empty())
    return emitError() << problem;
  if (input && input.getGranularity() != Granularity::Token &&
      (input.getGranularity() != Granularity::Tensor || input.getDynamic()))
    return emitError() << "input must be quantized per token, or per tensor with static scales, "
                          "found "
                       << input;
  if (options)
    for (NamedAttribute option : options)
      if (std::string expected = whatOptionTakes(option); !expected.empty())
        return emitError() << "option " << option.getName() << " = " << option.getValue()
                           << ": expected " << expected;
  if (codes && !scale)
    return emitError() << "codes " << codes << " come without scales";
  if (bool(zeroPoint) != (scale && !weight.getSymmetric()))
    return emitError() << "zero points belong to the scales of an asymmetric scheme, and to "
                          "nothing else; found "
                       << (zeroPoint ? "them" : "none") << " for " << weight;
  return success();
}

//===----------------------------------------------------------------------===//
// KVSchemeAttr
//===----------------------------------------------------------------------===//

static numerics::KVScheme kvScheme(IntegerType code, int64_t group, int64_t residual, int64_t sinks,
                                   Granularity keys) {
  return {static_cast<int>(code.getWidth()), group, residual, sinks,
          keys == Granularity::Token ? numerics::KeySlices::Token : numerics::KeySlices::Channel};
}

numerics::KVScheme KVSchemeAttr::toNumerics() const {
  return kvScheme(getCode(), getGroup(), getResidual(), getSinks(), getKeys());
}

LogicalResult KVSchemeAttr::verify(function_ref<InFlightDiagnostic()> emitError, IntegerType code,
                                   int64_t group, int64_t residual, int64_t sinks,
                                   Granularity keys) {
  if (!code.isSignless())
    return emitError() << "codes must be i2, i4 or i8, found " << code;
  if (keys != Granularity::Channel && keys != Granularity::Token)
    return emitError() << "keys are quantized per channel or per token, found "
                       << stringifyGranularity(keys);
  // What depends on the heads is the op's to check; 8 dimensions suit every group.
  if (auto ok = numerics::checkKVScheme(kvScheme(code, group, residual, sinks, keys), 8); !ok)
    return emitError() << ok.error().message;
  return success();
}
