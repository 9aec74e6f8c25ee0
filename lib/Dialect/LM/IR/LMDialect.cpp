//===- LMDialect.cpp - Language model dialect -----------------------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "easyquant/Dialect/LM/IR/LM.h"
#include "easyquant/Dialect/LM/IR/RopeTable.h"

#include "mlir/Dialect/MLProgram/IR/MLProgram.h"
#include "mlir/IR/Builders.h"
#include "mlir/IR/DialectImplementation.h"
#include "mlir/Interfaces/FunctionInterfaces.h"
#include "mlir/Transforms/InliningUtils.h"
#include "llvm/ADT/TypeSwitch.h"

using namespace mlir;
using namespace easyquant;
using namespace easyquant::lm;

#include "easyquant/Dialect/LM/IR/LMDialect.cpp.inc"
#include "easyquant/Dialect/LM/IR/LMEnums.cpp.inc"

/// "3", or "[2, 2, 1]".
static FailureOr<SmallVector<int64_t>> parseOfLayers(AsmParser &parser) {
  SmallVector<int64_t> numbers;
  auto parseNumber = [&] { return parser.parseInteger(numbers.emplace_back()); };
  ParseResult parsed =
      succeeded(parser.parseOptionalLSquare())
          ? failure(parser.parseCommaSeparatedList(parseNumber) || parser.parseRSquare())
          : parseNumber();
  if (parsed)
    return failure();
  return numbers;
}

static void printOfLayers(AsmPrinter &printer, ArrayRef<int64_t> numbers) {
  if (numbers.size() == 1) {
    printer << numbers.front();
    return;
  }
  printer << '[';
  llvm::interleaveComma(numbers, printer);
  printer << ']';
}

#define GET_ATTRDEF_CLASSES
#include "easyquant/Dialect/LM/IR/LMAttributes.cpp.inc"

#define GET_TYPEDEF_CLASSES
#include "easyquant/Dialect/LM/IR/LMTypes.cpp.inc"

namespace {
/// The functions of layers may be put in the places of their calls.
struct LMInliner : DialectInlinerInterface {
  using DialectInlinerInterface::DialectInlinerInterface;
  bool isLegalToInline(Operation *, Region *, bool, IRMapping &) const final { return true; }
};
} // namespace

void LMDialect::initialize() {
  addInterfaces<LMInliner>();
  addAttributes<
#define GET_ATTRDEF_LIST
#include "easyquant/Dialect/LM/IR/LMAttributes.cpp.inc"
      >();
  addTypes<
#define GET_TYPEDEF_LIST
#include "easyquant/Dialect/LM/IR/LMTypes.cpp.inc"
      >();
  addOperations<
#define GET_OP_LIST
#include "easyquant/Dialect/LM/IR/LMOps.cpp.inc"
      >();
}

LogicalResult KVCacheType::verify(function_ref<InFlightDiagnostic()> emitError, int64_t layers,
                                  ArrayRef<int64_t> kvHeads, ArrayRef<int64_t> headDims,
                                  ArrayRef<int64_t> windows) {
  // One form for each meaning, so that equal caches have equal types.
  for (auto [name, numbers] : {std::pair("kv_heads", kvHeads), std::pair("head_dim", headDims)})
    if (numbers.size() != 1 && (std::ssize(numbers) != layers || llvm::all_equal(numbers)))
      return emitError() << name << " must be one number for all of " << layers
                         << " layers, or a list of one for each that are not all alike";
  if (!windows.empty()) {
    if (windows.size() != 1 && (std::ssize(windows) != layers || llvm::all_equal(windows)))
      return emitError() << "window must be left out, one number for all of " << layers
                         << " layers, or a list of one for each that are not all alike";
    if (llvm::any_of(windows, [](int64_t window) { return window < 0 || window > kMaxExtent; }) ||
        (windows.size() == 1 && windows.front() == 0))
      return emitError() << "window must be 1 to " << kMaxExtent
                         << " tokens, or 0 in some layers; leave it out where no layer has one";
  }
  const size_t count = std::max(kvHeads.size(), headDims.size());
  for (size_t layer = 0; layer < count; ++layer) {
    const int64_t heads = kvHeads[kvHeads.size() == 1 ? 0 : layer];
    const int64_t headDim = headDims[headDims.size() == 1 ? 0 : layer];
    if (layers < 1 || heads < 1 || headDim < 1)
      return emitError() << "layers, kv_heads and head_dim must be positive, found " << layers
                         << ", " << heads << " and " << headDim;
    if (layers > kMaxLayers || headDim > kMaxHeadDim || heads > kMaxExtent / headDim)
      return emitError() << "at most " << kMaxLayers << " layers, heads of " << kMaxHeadDim
                         << " dimensions and " << kMaxExtent
                         << " dimensions of all heads are supported, found " << layers
                         << " layers and " << heads << " heads of " << headDim;
  }
  return success();
}

LogicalResult StateType::verify(function_ref<InFlightDiagnostic()> emitError, int64_t sites,
                                int64_t fields) {
  if (sites < 1 || sites > kMaxStateSites || fields < 1 || fields > kMaxStateFields)
    return emitError() << "sites must be 1 to " << kMaxStateSites << " and fields 1 to "
                       << kMaxStateFields << ", found " << sites << " and " << fields;
  return success();
}

LogicalResult RecurrentType::verify(function_ref<InFlightDiagnostic()> emitError, int64_t values) {
  if (values < 1 || values > kMaxRecurrentValues)
    return emitError() << "values must be 1 to " << kMaxRecurrentValues << ", found " << values;
  return success();
}

LogicalResult lm::verifyModelOp(Operation *op) {
  if (!op->getParentOfType<FunctionOpInterface>())
    return op->emitOpError("expected to be in a function");
  auto check = [&](Type checked) -> LogicalResult {
    auto type = dyn_cast<RankedTensorType>(checked);
    if (!type)
      return success();
    int64_t elements = 1;
    for (int64_t extent : type.getShape()) {
      if (extent > kMaxExtent)
        return op->emitOpError("takes dimensions of at most ") << kMaxExtent << ", found " << type;
      if (extent <= 0) // dynamic, or not of this dialect
        continue;
      if (elements > kMaxElements / extent)
        return op->emitOpError("takes tensors of at most ")
               << kMaxElements << " elements, found " << type;
      elements *= extent;
    }
    return success();
  };
  for (Type type : llvm::concat<const Type>(op->getOperandTypes(), op->getResultTypes()))
    if (failed(check(type)))
      return failure();
  return success();
}

/// The type of a global; null for another op. Attributes are verified before their op, which may
/// lack its type.
static RankedTensorType globalType(Operation *op) {
  auto global = dyn_cast<ml_program::GlobalOp>(op);
  TypeAttr declared = global ? global.getTypeAttr() : TypeAttr();
  return declared ? dyn_cast<RankedTensorType>(declared.getValue()) : RankedTensorType();
}

static LogicalResult verifyFileType(Operation *op, Attribute value) {
  RankedTensorType type = globalType(op);
  if (!type || !type.hasStaticShape() || !type.getElementType().isF32())
    return op->emitOpError() << kFileTypeAttr
                             << " belongs to an ml_program.global of a static shape of f32";
  auto stored = dyn_cast<TypeAttr>(value);
  if (!stored || !(stored.getValue().isF16() || stored.getValue().isBF16()))
    return op->emitOpError() << kFileTypeAttr << " must be f16 or bf16, found " << value;
  return success();
}

LogicalResult LMDialect::verifyOperationAttribute(Operation *op, NamedAttribute attribute) {
  if (attribute.getName() == kFileTypeAttr)
    return verifyFileType(op, attribute.getValue());
  if (attribute.getName() != kRopeTableAttr)
    return success();
  RankedTensorType type = globalType(op);
  if (!type || type.getRank() != 3 || !type.hasStaticShape() || type.getDimSize(2) != 2 ||
      !type.getElementType().isF32())
    return op->emitOpError() << kRopeTableAttr
                             << " belongs to an ml_program.global of type tensor<PxHx2xf32>";
  auto dictionary = dyn_cast<DictionaryAttr>(attribute.getValue());
  if (!dictionary)
    return op->emitOpError() << kRopeTableAttr << " must be a dictionary, found "
                             << attribute.getValue();
  if (auto params = ropeParams(dictionary, type); !params)
    return op->emitOpError() << kRopeTableAttr << " " << attribute.getValue() << ": "
                             << params.error().message;
  return success();
}
