//===- ModuleConstants.cpp - Constants in a module ------------------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "easyquant/Conversion/EquantToLinalg/ModuleConstants.h"

#include "easyquant/Support/OneLine.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Dialect/MLProgram/IR/MLProgram.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/IR/DialectResourceBlobManager.h"

#include <bit>
#include <fmt/ranges.h>

using namespace mlir;
using namespace easyquant;

//===----------------------------------------------------------------------===//
// Parameters of IREE
//===----------------------------------------------------------------------===//

Result<ParameterFiles> ParameterFiles::open(ArrayRef<std::string> named) {
  ParameterFiles opened;
  for (const std::string &text : named) {
    const auto [scope, path] = StringRef(text).split('=');
    if (path.empty())
      return makeError(ErrorCode::InvalidArgument,
                       "option parameters: expected SCOPE=FILE, as model=weights.safetensors; "
                       "found '{}'",
                       oneLine(text));
    auto file = formats::SafetensorsFile::open(path.str());
    if (!file)
      return Unexpected(file.error());
    opened.files.insert_or_assign(scope.str(), std::pair(path.str(), std::move(*file)));
  }
  return opened;
}

/// As files have it.
static formats::DType dtypeInFiles(Type element) {
  return element.isF16()    ? formats::DType::F16
         : element.isBF16() ? formats::DType::BF16
                            : formats::DType::F32;
}

Result<ArrayRef<char>> ParameterFiles::read(const std::string &scope, const std::string &key,
                                            RankedTensorType type) const {
  const std::string named = oneLine("#flow.parameter.named<\"" + scope + "\"::\"" + key + "\">");
  auto found = files.find(scope);
  if (found == files.end())
    return makeError(ErrorCode::NotFound,
                     "{} is in a file; give the option parameters={}=FILE.safetensors", named,
                     oneLine(scope));
  const auto &[path, file] = found->second;
  const formats::SafetensorsTensor *tensor = file.find(key);
  if (!tensor)
    return makeError(ErrorCode::NotFound, "{}: there is no tensor for {}", path, named);
  const formats::DType expected = dtypeInFiles(type.getElementType());
  if (tensor->dtype != expected || ArrayRef(tensor->shape) != type.getShape())
    return makeError(ErrorCode::InvalidArgument, "{}: {} must be {} of {}, found {} of {}", path,
                     named, formats::dtypeName(expected), fmt::join(type.getShape(), "x"),
                     formats::dtypeName(tensor->dtype), fmt::join(tensor->shape, "x"));
  auto bytes = file.data(*tensor);
  return ArrayRef(reinterpret_cast<const char *>(bytes.data()), bytes.size());
}

/// Scope and key of #flow.parameter.named<"SCOPE"::"KEY">, an attribute of a dialect that is not
/// registered here.
static std::optional<std::pair<StringRef, StringRef>> parameterOf(Attribute attribute) {
  auto opaque = dyn_cast_or_null<OpaqueAttr>(attribute);
  StringRef text = opaque ? opaque.getAttrData() : StringRef();
  if (!opaque || opaque.getDialectNamespace() != "flow" ||
      !text.consume_front("parameter.named<\"") || !text.consume_back("\">"))
    return {};
  auto [scope, key] = text.split("\"::\"");
  if (key.empty() || text.contains('\\')) // an escaped character, which nobody needs in a name
    return {};
  return std::pair(scope, key);
}

/// The value of what IREE's ops for constants are: flow.tensor.constant, or the load of an
/// immutable util.global; null for others.
static Attribute parameterBehind(Operation *op) {
  StringRef name = op->getName().getStringRef();
  if (name == "flow.tensor.constant")
    return op->getAttr("value");
  auto symbol = name == "util.global.load" ? op->getAttrOfType<FlatSymbolRefAttr>("global")
                                           : FlatSymbolRefAttr();
  Operation *global = symbol ? SymbolTable::lookupNearestSymbolFrom(op, symbol) : nullptr;
  if (!global || global->getName().getStringRef() != "util.global" || global->hasAttr("is_mutable"))
    return {};
  return global->getAttr("initial_value");
}

//===----------------------------------------------------------------------===//
// Views
//===----------------------------------------------------------------------===//

ModuleConstant::ModuleConstant(Attribute value, RankedTensorType type) : value(value), type(type) {
  int64_t stride = 1;
  for (int64_t extent : llvm::reverse(type.getShape())) {
    dims.insert(dims.begin(), Dimension{{extent, stride}});
    stride *= extent;
  }
}

bool ModuleConstant::isTransposeOf(const ModuleConstant &other) const {
  return value == other.value && dims.size() == 2 && other.dims.size() == 2 &&
         dims[0] == other.dims[1] && dims[1] == other.dims[0];
}

bool ModuleConstant::transpose(ArrayRef<int64_t> permutation) {
  dims = llvm::map_to_vector(permutation, [&](int64_t from) { return dims[from]; });
  return true;
}

bool ModuleConstant::broadcast(ArrayRef<int64_t> dimensions, ArrayRef<int64_t> shape) {
  SmallVector<int64_t> ascending(dimensions);
  llvm::sort(ascending);
  for (int64_t dim : ascending)
    dims.insert(dims.begin() + dim, Dimension{{shape[dim], 0}});
  return true;
}

bool ModuleConstant::collapse(ArrayRef<SmallVector<int64_t, 2>> reassociation) {
  SmallVector<Dimension> merged;
  for (const SmallVector<int64_t, 2> &group : reassociation) {
    Dimension &dim = merged.emplace_back();
    for (int64_t from : group)
      dim.append(dims[from]);
  }
  dims = std::move(merged);
  return true;
}

bool ModuleConstant::expand(ArrayRef<SmallVector<int64_t, 2>> reassociation,
                            ArrayRef<int64_t> shape) {
  SmallVector<Dimension> all(shape.size());
  for (auto [group, dim] : llvm::zip_equal(reassociation, dims))
    for (int64_t to : llvm::reverse(group))
      for (int64_t needed = shape[to]; needed > 1;) {
        if (dim.empty())
          return false;
        Digit &last = dim.back();
        const int64_t taken = std::min(needed, last.extent);
        if (needed % taken != 0 || last.extent % taken != 0)
          return false; // a digit would have to be part of two dimensions
        all[to].insert(all[to].begin(), Digit{taken, last.stride});
        needed /= taken;
        last = {last.extent / taken, last.stride * taken};
        if (last.extent == 1)
          dim.pop_back();
      }
  dims = std::move(all);
  return true;
}

/// The value of a constant: its elements, or the name of a parameter; else null.
static Attribute constantOf(Value value) {
  Operation *op = value.getDefiningOp();
  if (!op)
    return {};
  if (auto constant = dyn_cast<arith::ConstantOp>(op))
    return dyn_cast<ElementsAttr>(constant.getValue());
  if (auto load = dyn_cast<ml_program::GlobalLoadConstOp>(op)) {
    auto global =
        SymbolTable::lookupNearestSymbolFrom<ml_program::GlobalOp>(op, load.getGlobalAttr());
    return global && !global.getIsMutable() ? dyn_cast_or_null<ElementsAttr>(global.getValueAttr())
                                            : ElementsAttr();
  }
  Attribute behind = op->isRegistered() ? Attribute() : parameterBehind(op);
  return parameterOf(behind) ? behind : Attribute();
}

std::optional<ModuleConstant> ModuleConstant::match(Value value) {
  SmallVector<Operation *> chain;
  Attribute found;
  while (!(found = constantOf(value))) {
    Operation *op = value.getDefiningOp();
    if (!isa_and_present<linalg::TransposeOp, linalg::BroadcastOp, tensor::CollapseShapeOp,
                         tensor::ExpandShapeOp, arith::ExtFOp>(op))
      return {};
    chain.push_back(op);
    value = op->getOperand(0);
  }
  auto type = dyn_cast<RankedTensorType>(value.getType());
  auto elements = dyn_cast<ElementsAttr>(found);
  if (!type || !type.hasStaticShape() || llvm::is_contained(type.getShape(), 0) ||
      (elements && elements.getShapedType() != type))
    return {};
  ModuleConstant constant(found, type);
  for (Operation *op : llvm::reverse(chain)) {
    auto result = dyn_cast<RankedTensorType>(op->getResult(0).getType());
    if (!result || !result.hasStaticShape())
      return {};
    const bool isView =
        llvm::TypeSwitch<Operation *, bool>(op)
            .Case([&](linalg::TransposeOp t) { return constant.transpose(t.getPermutation()); })
            .Case([&](linalg::BroadcastOp b) {
              return constant.broadcast(b.getDimensions(), result.getShape());
            })
            .Case([&](tensor::CollapseShapeOp c) {
              return constant.collapse(c.getReassociationIndices());
            })
            .Case([&](tensor::ExpandShapeOp e) {
              return constant.expand(e.getReassociationIndices(), result.getShape());
            })
            .Case([&](arith::ExtFOp) { return true; })
            .Default([](Operation *) { return false; });
    if (!isView)
      return {};
  }
  return constant;
}

//===----------------------------------------------------------------------===//
// Values
//===----------------------------------------------------------------------===//

bool ModuleConstant::isReadable(Type element) {
  return element.isF32() || element.isF16() || element.isBF16();
}

/// The bytes of a constant, all elements or one where they are equal.
Result<ArrayRef<char>> ModuleConstant::bytes(const ParameterFiles &parameters) const {
  if (auto parameter = parameterOf(value))
    return parameters.read(parameter->first.str(), parameter->second.str(), type);
  if (auto dense = dyn_cast<DenseElementsAttr>(value))
    return dense.getRawData();
  auto resource = dyn_cast<DenseResourceElementsAttr>(value);
  if (!resource)
    return makeError(ErrorCode::Unsupported, "expected dense<> or dense_resource<> values");
  const std::string name = oneLine(resource.getRawHandle().getKey().str());
  AsmResourceBlob *blob = resource.getRawHandle().getBlob();
  if (!blob)
    return makeError(ErrorCode::InvalidArgument,
                     "dense_resource<{}> has no data in the module; expected it among the "
                     "dialect_resources at its end",
                     name);
  const int64_t count = type.getNumElements();
  const int64_t expected = count * type.getElementTypeBitWidth() / 8;
  if (std::ssize(blob->getData()) != expected)
    return makeError(ErrorCode::InvalidArgument,
                     "dense_resource<{}> has {} bytes, but {} elements of {} bits are {}", name,
                     blob->getData().size(), count, type.getElementTypeBitWidth(), expected);
  return blob->getData();
}

Result<std::vector<float>> ModuleConstant::read(const ParameterFiles &parameters) const {
  Result<ArrayRef<char>> bytes = this->bytes(parameters);
  if (!bytes)
    return Unexpected(bytes.error());
  const Type element = type.getElementType();
  if (!isReadable(element))
    return makeError(ErrorCode::Unsupported, "expected elements of f32, f16 or bf16");
  const size_t width = element.getIntOrFloatBitWidth() / 8;
  const bool isSplat = bytes->size() == width;
  SmallVector<Digit> digits;
  int64_t count = 1;
  for (const Dimension &dim : dims)
    for (const Digit &digit : dim) {
      digits.push_back(digit);
      count *= digit.extent;
    }
  std::vector<float> values(count);
  SmallVector<int64_t> index(digits.size(), 0);
  int64_t from = 0;
  for (float &value : values) {
    const char *at = bytes->data() + (isSplat ? 0 : from * width);
    uint16_t half = 0;
    std::memcpy(element.isF32() ? static_cast<void *>(&value) : &half, at, width);
    if (!element.isF32())
      value = element.isF16() ? static_cast<float>(std::bit_cast<_Float16>(half))
                              : std::bit_cast<float>(uint32_t(half) << 16);
    for (size_t i = digits.size(); i-- > 0;) {
      from += digits[i].stride;
      if (++index[i] < digits[i].extent)
        break;
      from -= digits[i].stride * digits[i].extent;
      index[i] = 0;
    }
  }
  return values;
}
