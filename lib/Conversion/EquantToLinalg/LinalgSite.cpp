//===- LinalgSite.cpp - Ops of linalg as linears --------------------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "LinalgSite.h"

#include "easyquant/Conversion/EquantToLinalg/ModuleConstants.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/IR/Matchers.h"

using namespace mlir;
using namespace easyquant;
using namespace easyquant::equant;
using utils::IteratorType;

//===----------------------------------------------------------------------===//
// What loops are
//===----------------------------------------------------------------------===//

static std::string inWords(Type type) {
  std::string text;
  llvm::raw_string_ostream(text) << type;
  return text;
}

/// What makes a value, for messages.
static std::string makerOf(Value value) {
  if (Operation *op = value.getDefiningOp())
    return "the result of " + op->getName().getStringRef().str();
  return "an argument";
}

bool LinalgSite::hasConstant(linalg::LinalgOp op) {
  return op->getNumOperands() >= 2 &&
         (ModuleConstant::match(op->getOperand(0)) || ModuleConstant::match(op->getOperand(1)));
}

Result<LinalgSite> LinalgSite::match(linalg::LinalgOp op) {
  for (Type type : op->getOperandTypes())
    if (auto tensor = dyn_cast<RankedTensorType>(type);
        !tensor || !ModuleConstant::isReadable(tensor.getElementType()))
      return makeError(ErrorCode::Unsupported,
                       "computes with {}; expected tensors of f32, f16 or bf16", inWords(type));
  if (op->getNumOperands() != 3 || op->getNumResults() != 1)
    return makeError(ErrorCode::Unsupported, "has {} operands; expected two factors and a sum",
                     op->getNumOperands());
  const bool isSecond = ModuleConstant::match(op->getOperand(1)).has_value();
  if (!isSecond && !ModuleConstant::match(op->getOperand(0)))
    return makeError(
        ErrorCode::Unsupported,
        "has no weight: its factors are {} and {}; expected dense<>, dense_resource<>, "
        "an immutable ml_program.global or #flow.parameter.named as one of them, "
        "behind linalg.transpose, "
        "linalg.broadcast and changes of shape at most",
        makerOf(op->getOperand(0)), makerOf(op->getOperand(1)));
  LinalgSite site(op, isSecond ? 1 : 0);
  if (auto sorted = site.sortLoops(); !sorted)
    return Unexpected(sorted.error());
  return site;
}

/// Is a loop one of the dimensions of an operand, and of no other expression of its map?
static bool isPlainDim(AffineMap map, unsigned loop) {
  auto reads = [&](AffineExpr expr) { return expr.isFunctionOfDim(loop); };
  return llvm::count_if(map.getResults(), reads) == 1 &&
         llvm::is_contained(map.getResults(), getAffineDimExpr(loop, map.getContext()));
}

Result<void> LinalgSite::sortLoops() {
  AffineMap ofWeight = mapOf(weight()), ofInput = mapOf(activation()), ofResult = mapOf(init());
  if (!ofWeight.isProjectedPermutation() || !ofResult.isProjectedPermutation())
    return makeError(ErrorCode::Unsupported, "reads its weight by other indices than its loops");
  for (unsigned loop = 0; loop < op.getNumLoops(); ++loop) {
    const bool inWeight = ofWeight.isFunctionOfDim(loop), inInput = ofInput.isFunctionOfDim(loop);
    if (!ofResult.isFunctionOfDim(loop)) {
      if (!inWeight || !inInput)
        return makeError(ErrorCode::Unsupported, "sums over a dimension that one factor lacks");
      inputs.push_back(loop);
    } else if (!inWeight) {
      rows.push_back(loop);
    } else if (!inInput) {
      outputs.push_back(loop);
    } else if (isPlainDim(ofInput, loop)) {
      batch.push_back(loop);
    } else {
      return makeError(ErrorCode::Unsupported, "has a weight for each place of a window");
    }
  }
  // A depthwise convolution has one output feature for each channel of its batch.
  if (inputs.empty() || (outputs.empty() && (batch.empty() || rows.empty())))
    return makeError(
        ErrorCode::Unsupported,
        "multiplies channel by channel; expected a weight of output by input features");
  const auto [n, k] = features();
  if (n > lm::kMaxExtent || k > lm::kMaxExtent || n > lm::kMaxElements / k)
    return makeError(
        ErrorCode::Unsupported,
        "has a weight of {} x {}; expected at most {} rows and columns and {} elements", n, k,
        lm::kMaxExtent, lm::kMaxElements);
  return {};
}

int64_t LinalgSite::extentOf(int64_t loop) {
  AffineMap map = mapOf(weight());
  const auto at = map.getResultPosition(getAffineDimExpr(loop, map.getContext()));
  return TensorBuilder::typeOf(weight().get()).getDimSize(*at);
}

int64_t LinalgSite::product(const Dims &loops) {
  int64_t product = 1;
  for (int64_t loop : loops)
    product *= extentOf(loop);
  return product;
}

Dims LinalgSite::weightLoops() {
  Dims loops = batch;
  llvm::append_range(loops, outputs);
  llvm::append_range(loops, inputs);
  return loops;
}

//===----------------------------------------------------------------------===//
// Shapes
//===----------------------------------------------------------------------===//

static ReassociationIndices indices(int64_t first, int64_t count) {
  ReassociationIndices group;
  for (int64_t i = 0; i < count; ++i)
    group.push_back(first + i);
  return group;
}

static SmallVector<int64_t> shapeOf(const Sizes &sizes) {
  return llvm::map_to_vector(sizes, [](OpFoldResult size) {
    return getConstantIntValue(size).value_or(ShapedType::kDynamic);
  });
}

/// A matrix whose rows and columns become several dimensions each; one row or one column may become
/// none.
static Value expandMatrix(TensorBuilder &b, Value matrix, const Sizes &ofRows,
                          const Sizes &ofColumns) {
  Sizes sizes = ofRows;
  llvm::append_range(sizes, ofColumns);
  SmallVector<ReassociationIndices> groups = {indices(0, std::ssize(ofRows)),
                                              indices(std::ssize(ofRows), std::ssize(ofColumns))};
  if (ofRows.empty() || ofColumns.empty()) {
    matrix = b.merge(matrix, 0, 2);
    llvm::erase_if(groups, [](const ReassociationIndices &group) { return group.empty(); });
  }
  if (sizes.size() == groups.size())
    return matrix;
  auto type = RankedTensorType::get(shapeOf(sizes), TensorBuilder::elementOf(matrix));
  return tensor::ExpandShapeOp::create(b, type, matrix, groups, sizes);
}

/// The first `ofRows` dimensions as rows, the others as columns.
static Value collapseToMatrix(TensorBuilder &b, Value tensor, int64_t ofRows) {
  const int64_t rank = TensorBuilder::typeOf(tensor).getRank();
  if (rank == 2)
    return tensor;
  const SmallVector<ReassociationIndices> groups = {indices(0, ofRows),
                                                    indices(ofRows, rank - ofRows)};
  return tensor::CollapseShapeOp::create(b, tensor, groups);
}

/// result[i, ...] = tensor[...], dimension i being `permutation[i]` of the tensor.
static Value transposed(TensorBuilder &b, Value tensor, ArrayRef<int64_t> permutation) {
  if (llvm::equal(permutation, llvm::seq<int64_t>(0, std::ssize(permutation))))
    return tensor;
  const Sizes from = b.sizesOf(tensor);
  const Sizes sizes(llvm::map_range(permutation, [&](int64_t dim) { return from[dim]; }));
  Value empty = tensor::EmptyOp::create(b, sizes, TensorBuilder::elementOf(tensor));
  return linalg::TransposeOp::create(b, tensor, empty, permutation)->getResult(0);
}

/// Floats in another type: wider as they are, narrower to the nearest.
static Value asType(TensorBuilder &b, Value x, Type element) {
  Type from = getElementTypeOrSelf(x.getType());
  if (from == element)
    return x;
  Type type = element;
  if (auto tensor = dyn_cast<RankedTensorType>(x.getType()))
    type = tensor.clone(element);
  if (from.getIntOrFloatBitWidth() < element.getIntOrFloatBitWidth())
    return arith::ExtFOp::create(b, type, x);
  return arith::TruncFOp::create(b, type, x);
}

static int64_t loopIndex(const Dims &loops, AffineExpr dim) {
  return std::distance(loops.begin(),
                       llvm::find(loops, int64_t(cast<AffineDimExpr>(dim).getPosition())));
}

/// Loops of a map, a projected permutation, as positions among `loops`.
static Dims loopIndices(const Dims &loops, AffineMap map) {
  return Dims(
      llvm::map_range(map.getResults(), [&](AffineExpr dim) { return loopIndex(loops, dim); }));
}

static Dims inverseOf(const Dims &permutation) {
  Dims inverse(permutation.size());
  for (auto [to, from] : llvm::enumerate(permutation))
    inverse[from] = to;
  return inverse;
}

Value LinalgSite::buildRows(OpBuilder &builder) {
  TensorBuilder b(op.getLoc(), builder);
  Value w = transposed(b, weight().get(), inverseOf(loopIndices(weightLoops(), mapOf(weight()))));
  w = collapseToMatrix(b, w, std::ssize(batch) + std::ssize(outputs));
  return asType(b, w, b.getF32Type());
}

//===----------------------------------------------------------------------===//
// On floats
//===----------------------------------------------------------------------===//

/// The op itself, on what the codes stand for. Contractions read these as they lie.
Value LinalgSite::buildOnFloats(TensorBuilder &b, Value weight) {
  const auto [n, k] = features();
  Value values = DequantizeOp::create(b, RankedTensorType::get({n, k}, b.getF32Type()),
                                      cast<TypedValue<WeightType>>(weight));
  values = asType(b, values, TensorBuilder::elementOf(this->weight().get()));
  Sizes ofRows, ofColumns;
  for (int64_t loop : llvm::concat<const int64_t>(batch, outputs))
    ofRows.push_back(b.size(extentOf(loop)));
  for (int64_t loop : inputs)
    ofColumns.push_back(b.size(extentOf(loop)));
  values = expandMatrix(b, values, ofRows, ofColumns);

  const Dims loops = weightLoops();
  AffineMap ofInput = mapOf(activation());
  const bool isContraction = !isConvolution() && llvm::all_of(rows, [&](int64_t row) {
    return ofInput.isFunctionOfDim(row);
  });
  if (!isContraction) {
    values = transposed(b, values, loopIndices(loops, mapOf(this->weight())));
    Operation *same = b.clone(*op.getOperation());
    same->setOperand(weightIndex, values);
    for (StringRef name : {kPlanAttr, kSiteAttr, kInputScaleAttr, kInputZeroPointAttr})
      same->removeAttr(name);
    return same->getResult(0);
  }
  AffineMap ofWeight = AffineMap::getMultiDimMapWithTargets(
      op.getNumLoops(), SmallVector<unsigned>(loops.begin(), loops.end()), b.getContext());
  SmallVector<Value> factors = {activation().get(), values};
  SmallVector<AffineMap> maps = {ofInput, ofWeight, mapOf(init())};
  if (weightIndex == 0) {
    std::swap(factors[0], factors[1]);
    std::swap(maps[0], maps[1]);
  }
  return linalg::ContractOp::create(b, op->getResultTypes(), factors, init().get(),
                                    b.getAffineMapArrayAttr(maps))
      .getResult(0);
}

//===----------------------------------------------------------------------===//
// On codes
//===----------------------------------------------------------------------===//

/// Activations as rows of the input features, tensor<?xKxf32>. A convolution has a row for each
/// place of the result: the window that it sees.
Value LinalgSite::gatherRows(TensorBuilder &b, Value x, AffineMap map, const Sizes &rowSizes) {
  const auto leading = std::max<int64_t>(1, std::ssize(rows)); // where there is no row, one is
  const int64_t rank = leading + std::ssize(inputs);
  SmallVector<AffineExpr> dims(op.getNumLoops(), b.getAffineConstantExpr(0));
  Sizes sizes = rowSizes.empty() ? Sizes{b.size(1)} : rowSizes;
  for (auto [i, loop] : llvm::enumerate(rows))
    dims[loop] = b.getAffineDimExpr(i);
  for (auto [i, loop] : llvm::enumerate(inputs)) {
    dims[loop] = b.getAffineDimExpr(leading + i);
    sizes.push_back(b.size(extentOf(loop)));
  }
  AffineMap read = map.replaceDimsAndSymbols(dims, {}, rank, 0);
  if (read.isIdentity()) {
    x = asType(b, x, b.getF32Type());
  } else {
    Value empty = tensor::EmptyOp::create(b, sizes, b.getF32Type());
    const SmallVector<AffineMap> maps = {read, b.getMultiDimIdentityMap(rank)};
    const SmallVector<IteratorType> iterators(rank, IteratorType::parallel);
    x = linalg::GenericOp::create(b, empty.getType(), x, empty, maps, iterators,
                                  [](OpBuilder &builder, Location loc, ValueRange elements) {
                                    TensorBuilder in(loc, builder);
                                    Value element = asType(in, elements.front(), in.getF32Type());
                                    linalg::YieldOp::create(in, element);
                                  })
            .getResult(0);
  }
  x = collapseToMatrix(b, x, leading);
  auto type = lm::activationType(b.getContext(), features().inputs);
  return x.getType() == type ? x : tensor::CastOp::create(b, type, x);
}

/// The inverse, of the output features.
Value LinalgSite::scatterRows(TensorBuilder &b, Value y, const Sizes &rowSizes) {
  int64_t count = 1;
  for (int64_t extent : shapeOf(rowSizes))
    count = ShapedType::isDynamic(extent) || ShapedType::isDynamic(count) ? ShapedType::kDynamic
                                                                          : count * extent;
  auto type = RankedTensorType::get({count, product(outputs)}, b.getF32Type());
  if (y.getType() != type)
    y = tensor::CastOp::create(b, type, y);
  const Sizes ofColumns(
      llvm::map_range(outputs, [&](int64_t loop) { return b.size(extentOf(loop)); }));
  return expandMatrix(b, y, rowSizes, ofColumns);
}

/// Is every element of the tensor 0?
static bool isZero(Value tensor) {
  if (auto fill = tensor.getDefiningOp<linalg::FillOp>())
    tensor = fill.getInputs()[0];
  return matchPattern(tensor, m_AnyZeroFloat());
}

/// init + y, whose dimensions are `loops`, in the order of the result. The sum is one of f32, then
/// of the type of the result.
Value LinalgSite::addToInit(TensorBuilder &b, Value y, Value init, const Dims &loops) {
  Dims order; // of y, for each dimension of the result
  for (AffineExpr dim : mapOf(this->init()).getResults())
    if (int64_t at = loopIndex(loops, dim); at < std::ssize(loops))
      order.push_back(at);
  Type element = TensorBuilder::elementOf(init);
  if (isZero(this->init().get())) {
    y = asType(b, transposed(b, y, order), element);
  } else {
    Dims all(order.size());
    std::iota(all.begin(), all.end(), 0);
    y = b.map(b.sizesOf(init), element, {{y, inverseOf(order)}, {init, all}},
              [&](TensorBuilder &in, ValueRange v) -> Value {
                Value before = asType(in, v[1], in.getF32Type());
                return asType(in, arith::AddFOp::create(in, before, v[0]), element);
              });
  }
  // The result may know less of its shape than the weight tells.
  return y.getType() == init.getType() ? y : tensor::CastOp::create(b, init.getType(), y);
}

Value LinalgSite::buildOnCodes(TensorBuilder &b, Value weight, const QuantizedInput &input) {
  AffineMap ofInput = mapOf(activation()), ofResult = mapOf(init());
  Sizes rowSizes;
  for (int64_t loop : rows)
    rowSizes.push_back(b.sizeOf(init().get(), *ofResult.getResultPosition(b.getAffineDimExpr(
                                                  static_cast<unsigned>(loop)))));
  Dims loops = rows;
  llvm::append_range(loops, outputs);
  const ArrayAttr sites = b.getStrArrayAttr({cast<QuantizableOpInterface>(*op).getSite()});
  const int64_t n = product(outputs), k = product(inputs);
  auto type = cast<WeightType>(weight.getType());

  /// The part of a tensor that one of the batch has, and its map without those dimensions.
  auto pick = [&](Value tensor, AffineMap map, ArrayRef<int64_t> at) {
    for (int64_t dim = map.getNumResults() - 1; dim >= 0; --dim)
      for (auto [loop, index] : llvm::zip_equal(batch, at))
        if (map.getResult(dim) == b.getAffineDimExpr(loop)) {
          tensor = b.pick(tensor, dim, index);
          map = map.dropResult(dim);
          break;
        }
    return std::pair(tensor, map);
  };
  auto multiply = [&](Value part, ArrayRef<int64_t> at) {
    auto [x, map] = pick(activation().get(), ofInput, at);
    Value y = equant::LinearOp::create(b, lm::activationType(b.getContext(), n),
                                       gatherRows(b, x, map, rowSizes), part,
                                       /*bias=*/Value(), /*online=*/Value(), /*experts=*/Value(),
                                       sites, input.scheme, input.scale, input.zeroPoint);
    return addToInit(b, scatterRows(b, y, rowSizes), pick(init().get(), ofResult, at).first, loops);
  };
  if (batch.empty())
    return multiply(weight, {});

  Value whole = init().get();
  const Sizes all = b.sizesOf(whole);
  for (int64_t i = 0, count = product(batch); i < count; ++i) {
    SmallVector<int64_t> at(batch.size());
    int64_t rest = i;
    for (size_t j = batch.size(); j-- > 0;) {
      at[j] = rest % extentOf(batch[j]);
      rest /= extentOf(batch[j]);
    }
    Value part = SliceOp::create(b, type.withShape(n, k), weight, ArrayRef<int64_t>{i * n, 0},
                                 ArrayRef<int64_t>{n, k});
    Sizes offsets(all.size(), b.size(0)), sizes = all;
    const Sizes strides(all.size(), b.size(1));
    for (auto [loop, index] : llvm::zip_equal(batch, at)) {
      const auto dim = *ofResult.getResultPosition(b.getAffineDimExpr(static_cast<unsigned>(loop)));
      offsets[dim] = b.size(index);
      sizes[dim] = b.size(1);
    }
    whole = tensor::InsertSliceOp::create(b, multiply(part, at), whole, offsets, sizes, strides);
  }
  return whole;
}

Value LinalgSite::buildQuantized(OpBuilder &builder, Value weight, const QuantizedInput &input) {
  TensorBuilder b(op.getLoc(), builder);
  return input.scheme ? buildOnCodes(b, weight, input) : buildOnFloats(b, weight);
}
