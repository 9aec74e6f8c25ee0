//===- EquantTypes.cpp - Quantized weights and activations ----------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "easyquant/Dialect/Equant/IR/Equant.h"
#include "easyquant/Numerics/Packing.h"

#include "mlir/IR/Builders.h"
#include "mlir/IR/DialectImplementation.h"
#include "llvm/ADT/TypeSwitch.h"
#include "llvm/Support/MathExtras.h"

using namespace mlir;
using namespace easyquant;
using namespace easyquant::equant;
using numerics::WeightTensor;

#define GET_TYPEDEF_CLASSES
#include "easyquant/Dialect/Equant/IR/EquantTypes.cpp.inc"

void EquantDialect::registerTypes() {
  addTypes<
#define GET_TYPEDEF_LIST
#include "easyquant/Dialect/Equant/IR/EquantTypes.cpp.inc"
      >();
}

//===----------------------------------------------------------------------===//
// Weights
//===----------------------------------------------------------------------===//

LogicalResult WeightType::verify(function_ref<InFlightDiagnostic()> emitError, int64_t rows,
                                 int64_t columns, SchemeAttr scheme, LayoutAttr layout, bool sums) {
  if (rows < 1 || columns < 1 || rows > lm::kMaxExtent || columns > lm::kMaxExtent ||
      rows > lm::kMaxElements / columns)
    return emitError() << "a weight has 1 to " << lm::kMaxExtent
                       << " rows and columns, and at most " << lm::kMaxElements
                       << " elements, found " << rows << "x" << columns;
  if (!scheme)
    return emitError() << "a weight needs a scheme";
  if (!scheme.isStatic())
    return emitError() << "weights have static scales, found " << scheme;
  if (!layout && sums)
    return emitError() << "sums of codes belong to a packed weight";
  if (!layout)
    return success();
  if (scheme.getGranularity() != Granularity::Channel &&
      scheme.getGranularity() != Granularity::Group)
    return emitError() << "packed weights must have scales per channel or per group, found "
                       << scheme;
  if (auto packer = layout.getPacker(scheme, rows, columns); !packer)
    return emitError() << "cannot be packed as " << layout << ": " << packer.error().message;
  return success();
}

Type WeightType::parse(AsmParser &parser) {
  SMLoc start = parser.getCurrentLocation();
  SmallVector<int64_t> shape;
  Attribute scheme, layout;
  bool sums = false;
  if (parser.parseLess() ||
      parser.parseDimensionList(shape, /*allowDynamic=*/false, /*withTrailingX=*/false) ||
      parser.parseComma())
    return {};
  SMLoc schemeStart = parser.getCurrentLocation(), layoutStart;
  if (parser.parseAttribute(scheme))
    return {};
  if (succeeded(parser.parseOptionalComma())) {
    layoutStart = parser.getCurrentLocation();
    if (parser.parseAttribute(layout))
      return {};
    if (succeeded(parser.parseOptionalComma())) {
      if (parser.parseKeyword("sums"))
        return {};
      sums = true;
    }
  }
  if (parser.parseGreater())
    return {};
  if (shape.size() != 2) {
    parser.emitError(start) << "a weight is a matrix: expected rows x columns, found "
                            << shape.size() << " dimensions";
    return {};
  }
  if (!isa<SchemeAttr>(scheme)) {
    parser.emitError(schemeStart) << "expected a #equant.scheme, found " << scheme;
    return {};
  }
  if (layout && !isa<LayoutAttr>(layout)) {
    parser.emitError(layoutStart) << "expected a #equant.layout, found " << layout;
    return {};
  }
  return getChecked([&] { return parser.emitError(start); }, parser.getContext(), shape[0],
                    shape[1], cast<SchemeAttr>(scheme), dyn_cast_if_present<LayoutAttr>(layout),
                    sums);
}

void WeightType::print(AsmPrinter &printer) const {
  printer << "<" << getRows() << "x" << getColumns() << ", " << getScheme();
  if (getLayout())
    printer << ", " << getLayout() << (getSums() ? ", sums" : "");
  printer << ">";
}

int64_t WeightType::getColumnUnit() const {
  if (getScheme().getGranularity() != Granularity::Group)
    return 1;
  const bool isTwoLevel = getScheme().toNumerics().scales == numerics::ScaleFormat::UI6;
  return getScheme().getGroupSize() * (isTwoLevel ? numerics::kSuperGroups : 1);
}

/// The type of the elements of a packed part, where bits that share bytes are bytes; `scheme` as
/// the layout has it.
static Type packedElement(MLIRContext *context, WeightTensor part, const numerics::Scheme &packed) {
  SchemeAttr scheme = SchemeAttr::get(context, packed);
  Builder b(context);
  switch (part) {
  case WeightTensor::Codes:
  case WeightTensor::ZeroPoints:
    return b.getI8Type();
  case WeightTensor::Minima:
    return scheme.getScale();
  case WeightTensor::Scales:
    return scheme.getScale().isUnsignedInteger(6) ? b.getI8Type() : scheme.getScale();
  case WeightTensor::Sums:
    return b.getI32Type();
  case WeightTensor::Outer:
  case WeightTensor::Codebook:
    return b.getF32Type();
  }
  llvm_unreachable("every part is named");
}

RankedTensorType WeightType::getPart(WeightTensor part) const {
  SchemeAttr scheme = getScheme();
  if (LayoutAttr layout = getLayout()) {
    auto packer = *layout.getPacker(scheme, getRows(), getColumns()); // verified
    packer->withSums = getSums();
    return packer->has(part)
               ? RankedTensorType::get(packer->shape(part),
                                       packedElement(getContext(), part, packer->scheme))
               : RankedTensorType();
  }
  SmallVector<int64_t, 2> scales = scheme.getScaleShape({getRows(), getColumns()});
  Builder b(getContext());
  switch (part) {
  case WeightTensor::Codes:
    return RankedTensorType::get({getRows(), getColumns()}, scheme.getCode());
  case WeightTensor::Scales:
    return RankedTensorType::get(scales, scheme.getScale());
  case WeightTensor::ZeroPoints:
    return scheme.hasZeroPoints() ? RankedTensorType::get(scales, b.getI32Type())
                                  : RankedTensorType();
  case WeightTensor::Minima:
    return scheme.getMinima() ? RankedTensorType::get(scales, scheme.getScale())
                              : RankedTensorType();
  case WeightTensor::Outer:
    return scheme.getOuter() ? RankedTensorType::get({getRows(), 1}, b.getF32Type())
                             : RankedTensorType();
  case WeightTensor::Sums:
  case WeightTensor::Codebook:
    return {};
  }
  llvm_unreachable("every part is named");
}

SmallVector<std::pair<WeightTensor, RankedTensorType>> WeightType::getParts() const {
  SmallVector<std::pair<WeightTensor, RankedTensorType>> parts;
  for (size_t i = 0; i < numerics::kWeightTensors; ++i)
    if (RankedTensorType type = getPart(static_cast<WeightTensor>(i)))
      parts.emplace_back(static_cast<WeightTensor>(i), type);
  return parts;
}

StringRef easyquant::equant::suffixOf(WeightTensor part) {
  switch (part) {
  case WeightTensor::Codes:
    return "";
  case WeightTensor::Scales:
    return "_scale";
  case WeightTensor::ZeroPoints:
    return "_zero_point";
  case WeightTensor::Minima:
    return "_minimum";
  case WeightTensor::Sums:
    return "_sums";
  case WeightTensor::Outer:
    return "_outer";
  case WeightTensor::Codebook:
    return "_codebook";
  }
  llvm_unreachable("every part is named");
}

int64_t WeightType::getStoredBytes() const {
  int64_t bytes = 0;
  for (auto [part, type] : getParts())
    bytes += llvm::divideCeil(type.getNumElements() * type.getElementTypeBitWidth(), 8);
  return bytes;
}

int64_t WeightType::getRowBytes() const {
  const numerics::Scheme scheme = getScheme().toNumerics();
  const int64_t groups = numerics::groupCount(getColumns(), scheme.groupSize);
  const int64_t bitsOfGroup = (scheme.hasZeroPoints() ? scheme.bits : 0) +
                              (scheme.minima ? 8 * numerics::scaleBytes(scheme.scales) : 0) +
                              (getSums() ? 32 : 0);
  return (numerics::paddedColumns(getColumns()) * scheme.bits +
          numerics::rowScaleBits(scheme.scales, groups) + groups * bitsOfGroup +
          (scheme.outer ? 32 : 0)) /
         8;
}

//===----------------------------------------------------------------------===//
// Activations
//===----------------------------------------------------------------------===//

/// Are codes of four bits with scales of groups, as products of blocks take them?
static bool isOfBlocks(SchemeAttr scheme) {
  const numerics::Scheme codes = scheme.toNumerics();
  return numerics::hasScaledBlocks(codes) && codes.outer;
}

bool RowsType::isBlockScaled() const { return isOfBlocks(getScheme()); }

LogicalResult RowsType::verify(function_ref<InFlightDiagnostic()> emitError, int64_t columns,
                               SchemeAttr scheme, std::optional<int64_t> sums) {
  if (columns < 1 || columns > lm::kMaxExtent)
    return emitError() << "rows have 1 to " << lm::kMaxExtent << " columns, found " << columns;
  const bool isByte =
      scheme && (scheme.isInteger() ? scheme.getBits() == 8
                                    : scheme.toNumerics().codes == numerics::CodeFormat::F8E4M3FN &&
                                          scheme.getGroupSize() == 0);
  if (!isByte && !(scheme && isOfBlocks(scheme)))
    return emitError() << "expected codes of i8, of f8E4M3FN with a scale a row, or of f4E2M1FN in "
                          "groups of 16 with scales of f8E4M3FN and an outer one, found "
                       << scheme;
  if (std::string reason = whyNoInputScheme(scheme); !reason.empty())
    return emitError() << reason;
  if (sums && isOfBlocks(scheme))
    return emitError() << "codes of " << scheme
                       << " have no zero points to correct by, and no sums";
  if (sums && *sums < 0)
    return emitError() << "sums are of a group of columns, or, if that is 0, of the row, found "
                       << *sums;
  if (sums && scheme.getTokenGroup() && *sums != scheme.getTokenGroup())
    return emitError() << "rows in groups of " << scheme.getTokenGroup()
                       << " columns have sums of these, found sums of " << *sums;
  return success();
}

Type RowsType::parse(AsmParser &parser) {
  SMLoc start = parser.getCurrentLocation();
  SmallVector<int64_t> shape;
  Attribute scheme;
  std::optional<int64_t> sums;
  if (parser.parseLess() ||
      parser.parseDimensionList(shape, /*allowDynamic=*/true, /*withTrailingX=*/false) ||
      parser.parseComma())
    return {};
  SMLoc schemeStart = parser.getCurrentLocation();
  if (parser.parseAttribute(scheme))
    return {};
  if (succeeded(parser.parseOptionalComma()) &&
      (parser.parseKeyword("sums") || parser.parseEqual() || parser.parseInteger(sums.emplace())))
    return {};
  if (parser.parseGreater())
    return {};
  if (shape.size() != 2 || !ShapedType::isDynamic(shape[0]) || ShapedType::isDynamic(shape[1])) {
    parser.emitError(start) << "expected a number of rows that run time gives, and columns: ?xK";
    return {};
  }
  if (!isa<SchemeAttr>(scheme)) {
    parser.emitError(schemeStart) << "expected a #equant.scheme, found " << scheme;
    return {};
  }
  return getChecked([&] { return parser.emitError(start); }, parser.getContext(), shape[1],
                    cast<SchemeAttr>(scheme), sums);
}

void RowsType::print(AsmPrinter &printer) const {
  printer << "<?x" << getColumns() << ", " << getScheme();
  if (getSums())
    printer << ", sums = " << *getSums();
  printer << ">";
}

RankedTensorType RowsType::getPart(Part part) const {
  Builder b(getContext());
  constexpr int64_t dynamic = ShapedType::kDynamic;
  const int64_t tokenGroup = getScheme().getTokenGroup();
  SmallVector<int64_t> params = {dynamic};
  if (tokenGroup)
    params.push_back(numerics::groupCount(getColumns(), tokenGroup));
  if (isBlockScaled()) {
    const int64_t steps = numerics::groupCount(getColumns(), numerics::kBlockStep);
    switch (part) {
    case Part::Codes:
      return RankedTensorType::get({dynamic, steps * numerics::kBlockStep / 2}, b.getI8Type());
    case Part::Scales:
      return RankedTensorType::get({dynamic, steps}, b.getI32Type());
    case Part::Outer:
      return RankedTensorType::get({dynamic}, b.getF32Type());
    case Part::Sums:
    case Part::ZeroPoints:
      return RankedTensorType();
    }
  }
  switch (part) {
  case Part::Codes:
    return RankedTensorType::get({dynamic, getColumns()}, b.getI8Type());
  case Part::Scales:
    return RankedTensorType::get(params, b.getF32Type());
  case Part::Sums:
    return getSums()
               ? RankedTensorType::get({dynamic, numerics::groupCount(getColumns(), *getSums())},
                                       b.getI32Type())
               : RankedTensorType();
  case Part::ZeroPoints:
    return getScheme().getSymmetric() ? RankedTensorType()
                                      : RankedTensorType::get(params, b.getI32Type());
  case Part::Outer:
    return RankedTensorType();
  }
  llvm_unreachable("every part is named");
}
