//===- EquantAttributes.cpp - Quantization attributes ---------------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "easyquant/Dialect/Equant/IR/Equant.h"

#include "mlir/IR/Builders.h"
#include "mlir/IR/DialectImplementation.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/ADT/TypeSwitch.h"
#include "llvm/Support/MathExtras.h"

using namespace mlir;
using namespace easyquant;
using namespace easyquant::equant;

#include "easyquant/Dialect/Equant/IR/EquantEnums.cpp.inc"

static ParseResult parseKeyword(AsmParser &parser, std::string &word) {
  return parser.parseKeywordOrString(&word);
}
static void printKeyword(AsmPrinter &printer, StringRef word) {
  printer.printKeywordOrString(word);
}

#define GET_ATTRDEF_CLASSES
#include "easyquant/Dialect/Equant/IR/EquantAttributes.cpp.inc"

void EquantDialect::registerAttributes() {
  addAttributes<
#define GET_ATTRDEF_LIST
#include "easyquant/Dialect/Equant/IR/EquantAttributes.cpp.inc"
      >();
}

bool easyquant::equant::isCodeType(Type type) {
  return isa<Float8E4M3FNType, Float4E2M1FNType>(type) ||
         (type.isSignlessInteger() && numerics::isCodeWidth(type.getIntOrFloatBitWidth()));
}

static constexpr const char *kCodeTypes = "i2, i3, i4, i5, i6, i8, f8E4M3FN or f4E2M1FN";
static constexpr const char *kScaleTypes = "f32, f16, bf16, f8E4M3FN, f8E8M0FNU or ui6";

Type easyquant::equant::scaleType(MLIRContext *context, numerics::ScaleFormat format) {
  switch (format) {
  case numerics::ScaleFormat::F32:
    return Float32Type::get(context);
  case numerics::ScaleFormat::F16:
    return Float16Type::get(context);
  case numerics::ScaleFormat::BF16:
    return BFloat16Type::get(context);
  case numerics::ScaleFormat::F8E4M3FN:
    return Float8E4M3FNType::get(context);
  case numerics::ScaleFormat::F8E8M0FNU:
    return Float8E8M0FNUType::get(context);
  case numerics::ScaleFormat::UI6:
    return IntegerType::get(context, 6, IntegerType::Unsigned);
  }
  llvm_unreachable("every format is named");
}

static std::optional<numerics::ScaleFormat> scaleFormat(Type type) {
  using enum numerics::ScaleFormat;
  for (numerics::ScaleFormat format : {F32, F16, BF16, F8E4M3FN, F8E8M0FNU, UI6})
    if (type == scaleType(type.getContext(), format))
      return format;
  return std::nullopt;
}

bool easyquant::equant::isScaleType(Type type) { return scaleFormat(type).has_value(); }

//===----------------------------------------------------------------------===//
// CodebookAttr
//===----------------------------------------------------------------------===//

CodebookAttr CodebookAttr::get(MLIRContext *context, const numerics::Codebook &table) {
  return get(context, DenseF32ArrayAttr::get(context, table.values()));
}

const numerics::Codebook *CodebookAttr::toNumerics() const {
  return *numerics::Codebook::of(getValues().asArrayRef());
}

LogicalResult CodebookAttr::verify(function_ref<InFlightDiagnostic()> emitError,
                                   DenseF32ArrayAttr values) {
  if (auto table = numerics::Codebook::of(values.asArrayRef()); !table)
    return emitError() << table.error().message;
  return success();
}

/// A name, or `[` values `]`.
static FailureOr<CodebookAttr> parseCodebook(AsmParser &parser) {
  SMLoc at = parser.getCurrentLocation();
  StringRef name;
  if (succeeded(parser.parseOptionalKeyword(&name))) {
    if (const numerics::Codebook *table = numerics::Codebook::named(name))
      return CodebookAttr::get(parser.getContext(), *table);
    return parser.emitError(at) << "there is no table '" << name << "'; expected "
                                << llvm::join(numerics::Codebook::names(), ", ")
                                << " or a list of values";
  }
  SmallVector<float> values;
  auto parseValue = [&]() -> ParseResult {
    double value;
    if (parser.parseFloat(value))
      return failure();
    values.push_back(static_cast<float>(value));
    return success();
  };
  if (parser.parseCommaSeparatedList(AsmParser::Delimiter::Square, parseValue))
    return failure();
  auto table = CodebookAttr::getChecked([&] { return parser.emitError(at); }, parser.getContext(),
                                        DenseF32ArrayAttr::get(parser.getContext(), values));
  if (!table)
    return failure();
  return table;
}

static void printCodebook(AsmPrinter &printer, CodebookAttr codebook) {
  std::string_view name = codebook.toNumerics()->name();
  if (!name.empty()) {
    printer << StringRef(name);
    return;
  }
  printer << "[";
  llvm::interleaveComma(codebook.getValues().asArrayRef(), printer.getStream(),
                        [&](float value) { printer.printFloat(APFloat(value)); });
  printer << "]";
}

Attribute CodebookAttr::parse(AsmParser &parser, Type) {
  if (parser.parseLess())
    return {};
  FailureOr<CodebookAttr> codebook = parseCodebook(parser);
  if (failed(codebook) || parser.parseGreater())
    return {};
  return *codebook;
}

void CodebookAttr::print(AsmPrinter &printer) const {
  printer << "<";
  printCodebook(printer, *this);
  printer << ">";
}

//===----------------------------------------------------------------------===//
// SchemeAttr
//===----------------------------------------------------------------------===//

// Enumerators of the IR and of lib/Numerics are the same numbers.
static_assert(unsigned(Granularity::Tensor) == unsigned(numerics::Granularity::Tensor) &&
              unsigned(Granularity::Channel) == unsigned(numerics::Granularity::Channel) &&
              unsigned(Granularity::Group) == unsigned(numerics::Granularity::Group) &&
              unsigned(Granularity::Token) == unsigned(numerics::Granularity::Token));

static Type codeType(MLIRContext *context, const numerics::Scheme &scheme) {
  if (scheme.codes == numerics::CodeFormat::F8E4M3FN)
    return Float8E4M3FNType::get(context);
  if (scheme.codes == numerics::CodeFormat::F4E2M1FN)
    return Float4E2M1FNType::get(context);
  return IntegerType::get(context, scheme.bits);
}

SchemeAttr SchemeAttr::get(MLIRContext *context, const numerics::Scheme &scheme) {
  return get(context, codeType(context, scheme),
             scheme.table ? CodebookAttr::get(context, *scheme.table) : CodebookAttr(),
             scheme.symmetric, scheme.fullRange, static_cast<Granularity>(scheme.granularity),
             scheme.groupSize, scaleType(context, scheme.scales),
             scheme.dynamic ? ScaleOrigin::Dynamic : ScaleOrigin::Static, scheme.outer,
             scheme.sinks, scheme.hadamard, scheme.minima, scheme.superBlocks);
}

SchemeAttr SchemeAttr::perToken(MLIRContext *context, unsigned bits) {
  return get(context,
             {.bits = int(bits), .granularity = numerics::Granularity::Token, .dynamic = true});
}

SchemeAttr SchemeAttr::perTensorOnline(MLIRContext *context, bool sinks) {
  SchemeAttr scheme =
      get(context, {.bits = 8, .granularity = numerics::Granularity::Tensor, .sinks = sinks});
  return get(context, scheme.getCode(), scheme.getCodebook(), scheme.getSymmetric(),
             scheme.getFullRange(), scheme.getGranularity(), scheme.getGroupSize(),
             scheme.getScale(), ScaleOrigin::Online, scheme.getOuter(), scheme.getSinks(),
             scheme.getHadamard(), scheme.getMinima(), scheme.getSuperBlocks());
}

SchemeAttr SchemeAttr::inBasis(int64_t hadamard) const {
  return get(getContext(), getCode(), getCodebook(), getSymmetric(), getFullRange(),
             getGranularity(), getGroupSize(), getScale(), getOrigin(), getOuter(), getSinks(),
             hadamard, getMinima(), getSuperBlocks());
}

/// The scheme of the parameters, of which code and scale are types of their kinds.
static numerics::Scheme toScheme(Type code, CodebookAttr codebook, bool symmetric, bool fullRange,
                                 Granularity granularity, int64_t groupSize, Type scale,
                                 ScaleOrigin origin, bool outer, bool sinks, int64_t hadamard,
                                 bool minima, bool superBlocks) {
  numerics::Scheme scheme{.bits = static_cast<int>(code.getIntOrFloatBitWidth()),
                          .symmetric = symmetric,
                          .granularity = static_cast<numerics::Granularity>(granularity),
                          .groupSize = groupSize,
                          .dynamic = origin != ScaleOrigin::Static,
                          .fullRange = fullRange,
                          .scales = *scaleFormat(scale),
                          .outer = outer,
                          .sinks = sinks,
                          .hadamard = hadamard,
                          .minima = minima,
                          .superBlocks = superBlocks};
  if (codebook) {
    scheme.codes = numerics::CodeFormat::Table;
    scheme.table = codebook.toNumerics();
  } else if (isa<Float8E4M3FNType>(code)) {
    scheme.codes = numerics::CodeFormat::F8E4M3FN;
  } else if (isa<Float4E2M1FNType>(code)) {
    scheme.codes = numerics::CodeFormat::F4E2M1FN;
  }
  return scheme;
}

numerics::Scheme SchemeAttr::toNumerics() const {
  return toScheme(getCode(), getCodebook(), getSymmetric(), getFullRange(), getGranularity(),
                  getGroupSize(), getScale(), getOrigin(), getOuter(), getSinks(), getHadamard(),
                  getMinima(), getSuperBlocks());
}

unsigned SchemeAttr::getBits() const { return getCode().getIntOrFloatBitWidth(); }

bool SchemeAttr::isInteger() const { return isa<IntegerType>(getCode()) && !getCodebook(); }

bool SchemeAttr::hasIntegerValues() const { return toNumerics().hasIntegerValues(); }

SmallVector<int64_t, 2> SchemeAttr::getScaleShape(ArrayRef<int64_t> matrixShape) const {
  int64_t rows = matrixShape[0], columns = matrixShape[1];
  switch (getGranularity()) {
  case Granularity::Tensor:
    return {1, 1};
  case Granularity::Channel:
    return {rows, 1};
  case Granularity::Group:
  case Granularity::Token:
    return {rows, getGroupSize() ? llvm::divideCeilSigned(columns, getGroupSize()) : 1};
  }
  llvm_unreachable("every granularity is named");
}

LogicalResult SchemeAttr::verify(function_ref<InFlightDiagnostic()> emitError, Type code,
                                 CodebookAttr codebook, bool symmetric, bool fullRange,
                                 Granularity granularity, int64_t groupSize, Type scale,
                                 ScaleOrigin origin, bool outer, bool sinks, int64_t hadamard,
                                 bool minima, bool superBlocks) {
  if (!isCodeType(code))
    return emitError() << "codes must be " << kCodeTypes << ", found " << code;
  if (!isScaleType(scale))
    return emitError() << "scales must be " << kScaleTypes << ", found " << scale;
  if (codebook && !isa<IntegerType>(code))
    return emitError() << "codes of a table are integers, its indices, found " << code;
  if (fullRange && !symmetric)
    return emitError() << "asymmetric codes always have the full range: leave 'full' out";
  if (granularity == Granularity::Group   ? groupSize < 1
      : granularity == Granularity::Token ? groupSize < 0
                                          : groupSize != 0)
    return emitError() << "group size must be positive with groups and 0 without, found "
                       << groupSize;
  if (groupSize > lm::kMaxExtent)
    return emitError() << "group size must be at most " << lm::kMaxExtent << ", found "
                       << groupSize;
  if (granularity == Granularity::Token && origin != ScaleOrigin::Dynamic)
    return emitError() << "scales per token must be dynamic: how many tokens there will be is not "
                          "known before run time";
  // Coarser than what it scales, else it would be the same scale twice.
  if (outer && granularity != Granularity::Group && granularity != Granularity::Channel)
    return emitError() << "an outer scale per tensor is not coarser than scales per "
                       << stringifyGranularity(granularity);
  numerics::Scheme scheme = toScheme(code, codebook, symmetric, fullRange, granularity, groupSize,
                                     scale, origin, outer, sinks, hadamard, minima, superBlocks);
  if (sinks && origin == ScaleOrigin::Dynamic)
    return emitError() << "sinks are kept apart from a static or online scale, found dynamic ones";
  scheme.dynamic = granularity == Granularity::Token; // weights are the ops' to check
  if (auto ok = numerics::checkScheme(scheme); !ok)
    return emitError() << ok.error().message;
  return success();
}

/// `= integer`
static ParseResult parseNumber(AsmParser &parser, int64_t &number) {
  return failure(parser.parseEqual() || parser.parseInteger(number));
}

namespace {
/// What follows the granularity.
struct SchemeTail {
  int64_t tokenGroup = 0;
  ScaleOrigin origin = ScaleOrigin::Static;
  Type scale;
  bool outer = false, sinks = false, superBlocks = false;
  int64_t hadamard = 0;
};
} // namespace

static ParseResult parseTail(AsmParser &parser, bool isToken, SchemeTail &tail) {
  while (succeeded(parser.parseOptionalComma())) {
    SMLoc at = parser.getCurrentLocation();
    StringRef word;
    if (parser.parseKeyword(&word))
      return failure();
    bool isFirst = !tail.sinks && !tail.hadamard && !tail.scale && !tail.outer && !tail.superBlocks;
    if (isToken && word == "group" && isFirst && tail.origin == ScaleOrigin::Static &&
        !tail.tokenGroup) {
      if (parseNumber(parser, tail.tokenGroup))
        return failure();
      if (tail.tokenGroup == 0)
        return parser.emitError(at) << "one scale a token says nothing of 'group'";
    } else if (word == "sinks" && isFirst) {
      tail.sinks = true;
    } else if ((word == "dynamic" || word == "online") && isFirst &&
               tail.origin == ScaleOrigin::Static) {
      tail.origin = *symbolizeScaleOrigin(word);
    } else if (word == "hadamard" && !tail.hadamard && !tail.scale && !tail.outer &&
               !tail.superBlocks) {
      if (parseNumber(parser, tail.hadamard))
        return failure();
      if (tail.hadamard == 0)
        return parser.emitError(at) << "a basis that is not rotated says nothing of 'hadamard'";
    } else if (word == "scale" && !tail.scale && !tail.outer && !tail.superBlocks) {
      if (parser.parseEqual() || parser.parseType(tail.scale))
        return failure();
    } else if (word == "outer" && !tail.outer && !tail.superBlocks) {
      if (parser.parseEqual() || parser.parseKeyword("tensor"))
        return failure();
      tail.outer = true;
    } else if (word == "super" && !tail.superBlocks) {
      tail.superBlocks = true;
    } else {
      return parser.emitError(at)
             << "expected " << (isToken ? "'group = SIZE', " : "")
             << "'dynamic' or 'online', 'sinks', 'hadamard = SIZE', 'scale = TYPE', "
                "'outer = tensor' and 'super', in this order, found '"
             << word << "'";
    }
  }
  return success();
}

Attribute SchemeAttr::parse(AsmParser &parser, Type) {
  SMLoc start = parser.getCurrentLocation();
  Type code;
  StringRef word;
  if (parser.parseLess() || parser.parseType(code) || parser.parseComma())
    return {};
  auto integer = dyn_cast<IntegerType>(code);
  if (integer && !integer.isSignless()) {
    parser.emitError(start) << "codes must be " << kCodeTypes << ", found " << code;
    return {};
  }
  SMLoc at = parser.getCurrentLocation();
  auto next = [&]() -> ParseResult {
    at = parser.getCurrentLocation();
    return parser.parseKeyword(&word);
  };
  if (next())
    return {};
  CodebookAttr codebook;
  bool symmetric = true, fullRange = false, minima = false;
  if (integer && word == "codebook") {
    if (parser.parseEqual())
      return {};
    FailureOr<CodebookAttr> table = parseCodebook(parser);
    if (failed(table) || parser.parseComma() || next())
      return {};
    codebook = *table;
  } else if (integer) {
    symmetric = word == "symmetric";
    if (!symmetric && word != "asymmetric") {
      parser.emitError(at) << "expected 'symmetric', 'asymmetric' or 'codebook', found '" << word
                           << "'";
      return {};
    }
    if (parser.parseComma() || next())
      return {};
    fullRange = word == "full";
    minima = word == "minima";
    if ((fullRange || minima) && (parser.parseComma() || next()))
      return {};
  }
  std::optional<Granularity> granularity = symbolizeGranularity(word);
  if (!granularity) {
    parser.emitError(at) << "granularity must be tensor, channel, group = SIZE or token, found '"
                         << word << "'";
    return {};
  }
  int64_t groupSize = 0;
  if (*granularity == Granularity::Group && parseNumber(parser, groupSize))
    return {};
  SchemeTail tail;
  const bool isToken = *granularity == Granularity::Token;
  if (parseTail(parser, isToken, tail) || parser.parseGreater())
    return {};
  if (!tail.scale)
    tail.scale = Float32Type::get(parser.getContext());
  return getChecked([&] { return parser.emitError(start); }, parser.getContext(), code, codebook,
                    symmetric, fullRange, *granularity, isToken ? tail.tokenGroup : groupSize,
                    tail.scale, tail.origin, tail.outer, tail.sinks, tail.hadamard, minima,
                    tail.superBlocks);
}

void SchemeAttr::print(AsmPrinter &printer) const {
  printer << "<" << getCode() << ", ";
  if (getCodebook()) {
    printer << "codebook = ";
    printCodebook(printer, getCodebook());
    printer << ", ";
  } else if (isInteger()) {
    printer << (getSymmetric() ? "symmetric, " : "asymmetric, ") << (getFullRange() ? "full, " : "")
            << (getMinima() ? "minima, " : "");
  }
  printer << stringifyGranularity(getGranularity());
  if (getGranularity() == Granularity::Group)
    printer << " = " << getGroupSize();
  if (getTokenGroup())
    printer << ", group = " << getTokenGroup();
  if (getOrigin() != ScaleOrigin::Static)
    printer << ", " << stringifyScaleOrigin(getOrigin());
  if (getSinks())
    printer << ", sinks";
  if (getHadamard())
    printer << ", hadamard = " << getHadamard();
  if (!getScale().isF32())
    printer << ", scale = " << getScale();
  if (getOuter())
    printer << ", outer = tensor";
  if (getSuperBlocks())
    printer << ", super";
  printer << ">";
}

//===----------------------------------------------------------------------===//
// KVSchemeAttr
//===----------------------------------------------------------------------===//

static numerics::KVScheme kvScheme(IntegerType code, int64_t group, int64_t residual, int64_t sinks,
                                   Granularity keys, int64_t hadamard) {
  return {static_cast<int>(code.getWidth()),
          group,
          residual,
          sinks,
          keys == Granularity::Token ? numerics::KeySlices::Token : numerics::KeySlices::Channel,
          hadamard};
}

numerics::KVScheme KVSchemeAttr::toNumerics() const {
  return kvScheme(getCode(), getGroup(), getResidual(), getSinks(), getKeys(), getHadamard());
}

LogicalResult KVSchemeAttr::verify(function_ref<InFlightDiagnostic()> emitError, IntegerType code,
                                   int64_t group, int64_t residual, int64_t sinks, Granularity keys,
                                   int64_t hadamard) {
  if (!code.isSignless())
    return emitError() << "codes must be i2, i4 or i8, found " << code;
  if (keys != Granularity::Channel && keys != Granularity::Token)
    return emitError() << "keys are quantized per channel or per token, found "
                       << stringifyGranularity(keys);
  // What depends on the heads is the op's to check; a group, and any larger block, suits itself.
  const int64_t dimensions = hadamard > 0 ? std::max(group, hadamard) : 8;
  if (auto ok = numerics::checkKVScheme(kvScheme(code, group, residual, sinks, keys, hadamard),
                                        dimensions);
      !ok)
    return emitError() << ok.error().message;
  return success();
}

//===----------------------------------------------------------------------===//
// LayoutAttr
//===----------------------------------------------------------------------===//

LogicalResult LayoutAttr::verify(function_ref<InFlightDiagnostic()> emitError, StringRef name) {
  if (numerics::findLayoutKind(name))
    return success();
  auto names = llvm::map_range(numerics::layoutKinds(), [](const numerics::LayoutKind &kind) {
    return StringRef(kind.name);
  });
  return emitError() << "layout must be " << llvm::join(names, " or ") << ", found '" << name
                     << "'";
}

Result<std::unique_ptr<numerics::WeightLayout>> LayoutAttr::getPacker(SchemeAttr scheme, int64_t n,
                                                                      int64_t k) const {
  return numerics::findLayoutKind(getName())->make(scheme.toNumerics(), n, k);
}
