//===- LayoutAttr.cpp - Weights in the order of kernels -------------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "easyquant/Dialect/Equant/IR/Equant.h"
#include "easyquant/Numerics/FragmentPacking.h"
#include "easyquant/Numerics/Packing.h"

#include "mlir/IR/DialectImplementation.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/MathExtras.h"

using namespace mlir;
using namespace easyquant;
using namespace easyquant::equant;
using numerics::FragmentOrder;

LayoutAttr LayoutAttr::panel(MLIRContext *context) {
  return get(context, LayoutKind::Panel, /*rows=*/numerics::kPanelRows, /*depth=*/4,
             FragmentOrder::M16N8K32);
}

LayoutAttr LayoutAttr::mmaSync(MLIRContext *context, FragmentOrder order) {
  return get(context, LayoutKind::MmaSync, /*rows=*/0, /*depth=*/0, order);
}

LogicalResult LayoutAttr::verify(function_ref<InFlightDiagnostic()> emitError, LayoutKind kind,
                                 int64_t rows, int64_t depth, FragmentOrder order) {
  // The upper bound keeps sizes of packed tensors far from overflow.
  if (kind == LayoutKind::Panel && (rows < 1 || rows > 1024 || depth < 1 || depth > 1024))
    return emitError() << "rows and depth of a panel must be 1 to 1024, found " << rows << " and "
                       << depth;
  bool isPanel = kind == LayoutKind::Panel;
  if (isPanel ? order != FragmentOrder::M16N8K32 : rows != 0 || depth != 0)
    return emitError() << "panels have rows and depth, fragments an order, and no more";
  return success();
}

Attribute LayoutAttr::parse(AsmParser &parser, Type) {
  SMLoc start = parser.getCurrentLocation();
  StringRef kind, order;
  if (parser.parseLess() || parser.parseKeyword(&kind) || parser.parseComma())
    return {};
  int64_t rows = 0, depth = 0;
  FragmentOrder fragments = FragmentOrder::M16N8K32;
  std::optional<LayoutKind> known = symbolizeLayoutKind(kind);
  if (!known) {
    parser.emitError(start) << "layout must be panel or mma_sync, found '" << kind << "'";
    return {};
  }
  if (*known == LayoutKind::Panel) {
    if (parser.parseKeyword("rows") || parser.parseEqual() || parser.parseInteger(rows) ||
        parser.parseComma() || parser.parseKeyword("depth") || parser.parseEqual() ||
        parser.parseInteger(depth))
      return {};
  } else {
    SMLoc at = parser.getCurrentLocation();
    if (parser.parseKeyword("order") || parser.parseEqual() || parser.parseKeyword(&order))
      return {};
    const auto *found = llvm::find_if(numerics::kFragmentOrders, [&](FragmentOrder known) {
      return numerics::nameOf(known) == std::string_view(order);
    });
    if (found == std::end(numerics::kFragmentOrders)) {
      auto names = llvm::map_range(numerics::kFragmentOrders, [](FragmentOrder known) {
        return StringRef(numerics::nameOf(known));
      });
      parser.emitError(at) << "order must be " << llvm::join(names, " or ") << ", found '" << order
                           << "'";
      return {};
    }
    fragments = *found;
  }
  if (parser.parseGreater())
    return {};
  return getChecked([&] { return parser.emitError(start); }, parser.getContext(), *known, rows,
                    depth, fragments);
}

void LayoutAttr::print(AsmPrinter &printer) const {
  printer << "<" << stringifyLayoutKind(getKind()) << ", ";
  if (getKind() == LayoutKind::Panel)
    printer << "rows = " << getRows() << ", depth = " << getDepth();
  else
    printer << "order = " << StringRef(numerics::nameOf(getOrder()));
  printer << ">";
}

static RankedTensorType panelCodesType(LayoutAttr layout, unsigned bits, int64_t n, int64_t k) {
  if (bits != 4 && bits != 8 && layout.getRows() % 4 != 0)
    return nullptr;
  int64_t blocks = llvm::divideCeilSigned(k, 2 * layout.getDepth()), rows = layout.getRows();
  if (bits == 8)
    blocks *= 2;
  else
    rows = rows * bits / 4;
  return RankedTensorType::get(
      {llvm::divideCeilSigned(n, layout.getRows()), blocks, rows, layout.getDepth()},
      IntegerType::get(layout.getContext(), 8));
}

static RankedTensorType fragmentCodesType(LayoutAttr layout, SchemeAttr scheme, int64_t n,
                                          int64_t k) {
  int bits = static_cast<int>(scheme.getBits());
  if (!scheme.isInteger() || bits == 5 || bits == 6 ||
      (bits == 3 && layout.getOrder() == FragmentOrder::M16N8K32))
    return nullptr;
  constexpr int64_t laneBytes = 16;
  return RankedTensorType::get({llvm::divideCeilSigned(n, numerics::fragmentRows(bits)),
                                llvm::divideCeilSigned(k, numerics::kFragmentColumns),
                                numerics::fragmentBytes(bits) / laneBytes, laneBytes},
                               IntegerType::get(layout.getContext(), 8));
}

RankedTensorType LayoutAttr::getPackedType(numerics::WeightTensor tensor, SchemeAttr scheme,
                                           int64_t n, int64_t k) const {
  using numerics::WeightTensor;
  bool isPanel = getKind() == LayoutKind::Panel;
  auto bits = static_cast<int>(scheme.getBits());
  if (tensor == WeightTensor::Codes)
    return isPanel ? panelCodesType(*this, bits, n, k) : fragmentCodesType(*this, scheme, n, k);
  int64_t rows = isPanel ? getRows() : numerics::kFragmentScaleRows;
  // [block of rows, group, row] or [group, block of rows, row].
  auto perGroup = [&](int64_t extent, Type element) {
    SmallVector<int64_t> shape = {llvm::divideCeilSigned(n, rows), scheme.getScaleShape({n, k})[1],
                                  extent};
    if (!isPanel)
      std::swap(shape[0], shape[1]);
    return RankedTensorType::get(shape, element);
  };
  switch (tensor) {
  case WeightTensor::Codes:
    break;
  case WeightTensor::Scales:
    if (scheme.getScale().isUnsignedInteger(6)) {
      if (!isPanel)
        return nullptr;
      const int64_t bits =
          numerics::rowScaleBits(numerics::ScaleFormat::UI6, scheme.getScaleShape({n, k})[1]);
      return RankedTensorType::get({llvm::divideCeilSigned(n, rows), 1, rows * bits / 8},
                                   IntegerType::get(getContext(), 8));
    }
    return perGroup(rows, scheme.getScale());
  case WeightTensor::ZeroPoints:
    if (scheme.getSymmetric())
      return nullptr;
    return perGroup(isPanel ? numerics::panelFieldBytes(bits)
                            : llvm::divideCeilSigned(rows * numerics::zeroPointBits(bits), 8),
                    IntegerType::get(getContext(), 8));
  case WeightTensor::Sums:
    return perGroup(rows, IntegerType::get(getContext(), 32));
  case WeightTensor::Outer:
    if (!isPanel || !scheme.getOuter())
      return nullptr;
    return RankedTensorType::get({llvm::divideCeilSigned(n, rows), 1, rows},
                                 Float32Type::get(getContext()));
  case WeightTensor::Codebook:
    if (!isPanel || !scheme.getCodebook())
      return nullptr;
    return RankedTensorType::get({int64_t(1) << bits}, Float32Type::get(getContext()));
  }
  return nullptr;
}

template <typename Layout>
static Result<std::unique_ptr<numerics::WeightLayout>> packerOf(Result<Layout> layout) {
  if (!layout)
    return Unexpected(layout.error());
  return std::make_unique<Layout>(std::move(*layout));
}

Result<std::unique_ptr<numerics::WeightLayout>> LayoutAttr::getPacker(SchemeAttr scheme, int64_t n,
                                                                      int64_t k) const {
  const numerics::Scheme numbers = scheme.toNumerics();
  if (getKind() == LayoutKind::Panel)
    return packerOf(numerics::panelLayout(numbers, n, k));
  return packerOf(numerics::fragmentLayout(numbers, getOrder(), n, k));
}
