//===- TensorBuilder.cpp - Upstream ops on tensors ------------------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "TensorBuilder.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Utils/StaticValueUtils.h"

#include <numeric>

using namespace mlir;
using namespace easyquant;
using utils::IteratorType;

//===----------------------------------------------------------------------===//
// Constants and sizes
//===----------------------------------------------------------------------===//

Value TensorBuilder::scalar(Type type, double value) {
  return isa<FloatType>(type)
             ? arith::ConstantOp::create(*this, getFloatAttr(type, value))
             : arith::ConstantOp::create(*this, getIntegerAttr(type, static_cast<int64_t>(value)));
}
Value TensorBuilder::f32(double value) { return scalar(getF32Type(), value); }

Value TensorBuilder::softCap(Value x, double bound) {
  Value part = arith::MulFOp::create(*this, x, f32(1 / bound));
  return arith::MulFOp::create(*this, math::TanhOp::create(*this, part), f32(bound));
}
Value TensorBuilder::i32(int32_t value) { return scalar(getI32Type(), value); }

Value TensorBuilder::table(ArrayRef<float> values) {
  auto type = RankedTensorType::get({std::ssize(values)}, getF32Type());
  return arith::ConstantOp::create(*this, DenseElementsAttr::get(type, values));
}
Value TensorBuilder::table(ArrayRef<int8_t> values) {
  auto type = RankedTensorType::get({std::ssize(values)}, getI8Type());
  return arith::ConstantOp::create(*this, DenseElementsAttr::get(type, values));
}

RankedTensorType TensorBuilder::typeOf(Value tensor) {
  return cast<RankedTensorType>(tensor.getType());
}
Sizes TensorBuilder::sizesOf(Value tensor) {
  return Sizes(tensor::getMixedSizes(*this, getLoc(), tensor));
}
OpFoldResult TensorBuilder::sizeOf(Value tensor, int64_t dim) {
  return tensor::getMixedSize(*this, getLoc(), tensor, dim);
}
Value TensorBuilder::index(int64_t dim) { return linalg::IndexOp::create(*this, dim); }
Value TensorBuilder::asIndex(Value i) {
  return arith::IndexCastOp::create(*this, getIndexType(), i);
}

//===----------------------------------------------------------------------===//
// Loops
//===----------------------------------------------------------------------===//

AffineMap TensorBuilder::mapOf(int64_t loops, const Dims &dims) {
  return AffineMap::getMultiDimMapWithTargets(
      static_cast<unsigned>(loops), SmallVector<unsigned>(dims.begin(), dims.end()), getContext());
}

Value TensorBuilder::loop(Value init, int64_t loops, ArrayRef<Indexed> inputs, const Dims &dims,
                          Body body) {
  SmallVector<Value> tensors;
  SmallVector<AffineMap> maps;
  for (const Indexed &input : inputs) {
    tensors.push_back(input.tensor);
    maps.push_back(mapOf(loops, input.dims));
  }
  maps.push_back(mapOf(loops, dims));
  SmallVector<IteratorType> iterators(loops, IteratorType::reduction);
  for (int64_t dim : dims)
    iterators[dim] = IteratorType::parallel;
  auto op = linalg::GenericOp::create(*this, init.getType(), tensors, init, maps, iterators,
                                      [&](OpBuilder &builder, Location loc, ValueRange elements) {
                                        TensorBuilder b(loc, builder);
                                        linalg::YieldOp::create(b, body(b, elements));
                                      });
  return op.getResult(0);
}

static Dims allDims(int64_t count) {
  Dims dims(count);
  std::iota(dims.begin(), dims.end(), 0);
  return dims;
}

Value TensorBuilder::map(const Sizes &sizes, Type element, ArrayRef<Indexed> inputs, Body body) {
  Value init = tensor::EmptyOp::create(*this, sizes, element);
  return loop(init, std::ssize(sizes), inputs, allDims(std::ssize(sizes)), body);
}

Value TensorBuilder::map(Value tensor, Type element, Body body) {
  return map(sizesOf(tensor), element, {{tensor, allDims(typeOf(tensor).getRank())}}, body);
}

Value TensorBuilder::reduce(int64_t loops, const Dims &dims, const Sizes &sizes, Value init,
                            ArrayRef<Indexed> inputs, Body body) {
  Value empty = tensor::EmptyOp::create(*this, sizes, init.getType());
  Value filled = linalg::FillOp::create(*this, init, empty).getResult(0);
  return loop(filled, loops, inputs, dims, body);
}

Value TensorBuilder::contract(int64_t loops, const Indexed &a, const Indexed &b, const Dims &dims,
                              const Sizes &sizes, Type element) {
  Value empty = tensor::EmptyOp::create(*this, sizes, element);
  Value zeros = linalg::FillOp::create(*this, scalar(element, 0), empty).getResult(0);
  ArrayAttr maps =
      getAffineMapArrayAttr({mapOf(loops, a.dims), mapOf(loops, b.dims), mapOf(loops, dims)});
  return linalg::ContractOp::create(*this, zeros.getType(), ValueRange{a.tensor, b.tensor}, zeros,
                                    maps)
      .getResult(0);
}

//===----------------------------------------------------------------------===//
// Shapes
//===----------------------------------------------------------------------===//

Value TensorBuilder::pad(Value tensor, int64_t extent) {
  RankedTensorType type = typeOf(tensor);
  const int64_t last = type.getRank() - 1, behind = extent - type.getDimSize(last);
  if (behind == 0)
    return tensor;
  SmallVector<int64_t> shape(type.getShape());
  shape.back() = extent;
  Sizes low(type.getRank(), size(0)), high = low;
  high.back() = size(behind);
  return tensor::PadOp::create(*this, type.clone(shape), tensor, low, high,
                               scalar(type.getElementType(), 0));
}

Value TensorBuilder::slice(Value tensor, ArrayRef<int64_t> offsets, const Sizes &sizes) {
  const Sizes strides(sizes.size(), size(1));
  return tensor::ExtractSliceOp::create(
      *this, tensor, getAsIndexOpFoldResult(getContext(), offsets), sizes, strides);
}

Value TensorBuilder::slice(Value tensor, int64_t dim, int64_t offset, OpFoldResult count) {
  Sizes sizes = sizesOf(tensor);
  Dims offsets(sizes.size(), 0);
  sizes[dim] = count;
  offsets[dim] = offset;
  return slice(tensor, offsets, sizes);
}

Value TensorBuilder::pick(Value tensor, int64_t dim, int64_t at) {
  RankedTensorType type = typeOf(tensor);
  Sizes sizes = sizesOf(tensor), offsets(sizes.size(), size(0)), strides(sizes.size(), size(1));
  sizes[dim] = size(1);
  offsets[dim] = size(at);
  SmallVector<int64_t> shape(type.getShape());
  shape.erase(shape.begin() + dim);
  return tensor::ExtractSliceOp::create(*this, type.clone(shape), tensor, offsets, sizes, strides);
}

Value TensorBuilder::split(Value tensor, int64_t dim, ArrayRef<int64_t> extents) {
  RankedTensorType type = typeOf(tensor);
  SmallVector<ReassociationIndices> reassociation;
  SmallVector<int64_t> shape;
  Sizes sizes;
  for (int64_t i = 0; i < type.getRank(); ++i) {
    ReassociationIndices &indices = reassociation.emplace_back();
    const auto parts = i == dim ? extents : ArrayRef(type.getShape()[i]);
    for (int64_t extent : parts) {
      indices.push_back(std::ssize(shape));
      shape.push_back(extent);
      sizes.push_back(ShapedType::isDynamic(extent) ? sizeOf(tensor, i) : size(extent));
    }
  }
  return tensor::ExpandShapeOp::create(*this, type.clone(shape), tensor, reassociation, sizes);
}

Value TensorBuilder::merge(Value tensor, int64_t dim, int64_t count) {
  SmallVector<ReassociationIndices> reassociation;
  for (int64_t i = 0; i < typeOf(tensor).getRank(); ++i) {
    if (i <= dim || i >= dim + count)
      reassociation.emplace_back();
    reassociation.back().push_back(i);
  }
  return tensor::CollapseShapeOp::create(*this, tensor, reassociation);
}

Value TensorBuilder::concat(ValueRange tensors) {
  if (tensors.size() == 1)
    return tensors.front();
  SmallVector<int64_t> shape(typeOf(tensors.front()).getShape());
  shape.front() = 0;
  for (Value tensor : tensors)
    shape.front() += typeOf(tensor).getDimSize(0);
  Value whole = tensor::EmptyOp::create(*this, shape, elementOf(tensors.front()));
  int64_t offset = 0;
  for (Value tensor : tensors) {
    Sizes sizes = sizesOf(tensor), offsets(sizes.size(), size(0)), strides(sizes.size(), size(1));
    offsets.front() = size(offset);
    whole = tensor::InsertSliceOp::create(*this, tensor, whole, offsets, sizes, strides);
    offset += typeOf(tensor).getDimSize(0);
  }
  return whole;
}

//===----------------------------------------------------------------------===//
// Compositions
//===----------------------------------------------------------------------===//

Value TensorBuilder::gather(Value tensor, Value rows) {
  Sizes sizes = sizesOf(tensor);
  sizes.front() = sizeOf(rows, 0);
  return map(sizes, elementOf(tensor), {{rows, {0}}}, [&](TensorBuilder &b, ValueRange elements) {
    SmallVector<Value> at = {b.asIndex(elements.front())};
    for (int64_t dim = 1; dim < std::ssize(sizes); ++dim)
      at.push_back(b.index(dim));
    return tensor::ExtractOp::create(b, tensor, at).getResult();
  });
}

Value TensorBuilder::addAndSubtract(Value tensor, int64_t dim, int64_t block) {
  const int64_t extent = typeOf(tensor).getDimSize(dim), rank = typeOf(tensor).getRank();
  for (int64_t half = 1; half < block; half *= 2) {
    Value pairs = split(tensor, dim, {extent / (2 * half), 2, half});
    Value low = pick(pairs, dim + 1, 0), high = pick(pairs, dim + 1, 1);
    Dims both = allDims(rank + 2);
    both.erase(both.begin() + dim + 1);
    Value sums = map(sizesOf(pairs), elementOf(tensor), {{low, both}, {high, both}},
                     [&](TensorBuilder &b, ValueRange x) {
                       Value isLow =
                           arith::CmpIOp::create(b, arith::CmpIPredicate::eq, b.index(dim + 1),
                                                 arith::ConstantIndexOp::create(b, 0).getResult());
                       Value sum = arith::AddFOp::create(b, x[0], x[1]);
                       Value difference = arith::SubFOp::create(b, x[0], x[1]);
                       return arith::SelectOp::create(b, isLow, sum, difference).getResult();
                     });
    tensor = merge(sums, dim, 3);
  }
  return tensor;
}
