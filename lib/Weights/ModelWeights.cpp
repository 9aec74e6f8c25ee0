//===- ModelWeights.cpp - The constants that a model reads ----------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "easyquant/Weights/ModelWeights.h"

#include "easyquant/Dialect/LM/IR/RopeTable.h"
#include "easyquant/Weights/WeightEvaluation.h"

#include "mlir/Dialect/Shard/IR/ShardOps.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"

using namespace mlir;
using namespace easyquant;
using namespace easyquant::equant;
using ml_program::GlobalOp;

//===----------------------------------------------------------------------===//
// Packed weights
//===----------------------------------------------------------------------===//

/// What there are packed tensors for: what the verifier of a packed weight demands.
static LogicalResult checkPackable(Location loc, StringRef site, SchemeAttr scheme) {
  bool perRow = scheme.getGranularity() == Granularity::Group ||
                scheme.getGranularity() == Granularity::Channel;
  if (perRow)
    return success();
  return emitError(loc) << "site '" << site << "': weights in " << scheme
                        << " cannot be packed; expected scales per channel or per group";
}

ConstantWeight *ModelWeights::intern(ConstantWeight weight) {
  ConstantWeight *&known = weightByKey[weight.key()];
  if (!known) {
    weights.push_back(std::move(weight));
    known = &weights.back();
  }
  return known;
}

LogicalResult ModelWeights::collectWeight(const ConstantMatcher &matcher, Operation *op,
                                          Value weight, ArrayRef<StringRef> sites) {
  auto type = cast<WeightType>(weight.getType());
  if (type.getLayout())
    return emitError(op->getLoc()) << "site '" << sites.front() << "': its weight is packed as "
                                   << type.getLayout() << "; expected one that is not packed yet";
  if (failed(checkPackable(op->getLoc(), sites.front(), type.getScheme())))
    return failure();
  FailureOr<ConstantWeight> constant = matchConstantWeight(matcher, op->getLoc(), sites, weight);
  if (failed(constant))
    return failure();
  ConstantWeight *known = intern(std::move(*constant));
  if (auto linear = dyn_cast<equant::LinearOp>(op)) {
    SchemeAttr input = linear.getInputSchemeAttr();
    // Kernels correct for the zero points of activations with them.
    known->needsSums |= input && input.readsWeightSums();
    const auto readers = targets::Readers::of(type.getScheme(), input);
    known->readers.codes |= readers.codes;
    known->readers.floats |= readers.floats;
  }
  readers.push_back({op, known});
  return success();
}

/// The site of a quantized table, which ranks may share.
static StringRef siteOf(equant::EmbeddingOp op) {
  Value table = op.getTable();
  if (auto part = table.getDefiningOp<AllSliceOp>())
    table = part.getInput();
  auto quantize = table.getDefiningOp<QuantizeOp>();
  return embeddingSite(quantize ? quantize.getInput() : table);
}

LogicalResult ModelWeights::collectWeights(ModuleOp module, const ConstantMatcher &matcher) {
  WalkResult result = module.walk([&](Operation *op) -> WalkResult {
    auto collect = [&](auto linear) -> WalkResult {
      return collectWeight(
          matcher, linear, linear.getWeight(),
          llvm::to_vector(linear.getSites().template getAsValueRange<StringAttr>()));
    };
    if (auto linear = dyn_cast<equant::LinearOp>(op))
      return collect(linear);
    if (auto linear = dyn_cast<PackedLinearOp>(op))
      return collect(linear);
    if (auto embedding = dyn_cast<equant::EmbeddingOp>(op))
      return collectWeight(matcher, embedding, embedding.getTable(), {siteOf(embedding)});
    return WalkResult::advance();
  });
  return failure(result.wasInterrupted());
}

//===----------------------------------------------------------------------===//
// Constants that stay float
//===----------------------------------------------------------------------===//

/// How messages speak of an op that is no site: by its module in the checkpoint.
static std::string nameOfReader(Operation *op) {
  if (auto site = dyn_cast<QuantizableOpInterface>(op))
    return site.getSite().str();
  if (auto linear = dyn_cast<equant::LinearOp>(op))
    return cast<StringAttr>(linear.getSites()[0]).str();
  if (auto name = dyn_cast<NameLoc>(op->getLoc()))
    return name.getName().str();
  return op->getName().getStringRef().str();
}

LogicalResult ModelWeights::collectFloat(const ConstantMatcher &matcher, OpOperand &reader) {
  Operation *op = reader.getOwner();
  auto type = dyn_cast<RankedTensorType>(reader.get().getType());
  const bool isOrder = isa<GatherColumnsOp>(op);
  if (!type || !type.hasStaticShape() || type.getRank() == 0 ||
      !(type.getElementType().isF32() || isOrder))
    return emitError(op->getLoc()) << "site '" << nameOfReader(op)
                                   << "': a constant must be a tensor of f32 to be written, found "
                                   << reader.get().getType();
  FloatConstant constant{{}, nameOfReader(op), op->getLoc(), type};
  if (GlobalOp global = matcher.getExternGlobal(reader.get()))
    if (auto rope = global->getAttrOfType<DictionaryAttr>(lm::kRopeTableAttr))
      constant.rope = *lm::ropeParams(rope, cast<RankedTensorType>(global.getType())); // verified
  std::string key;
  for (Value value : concatenated(reader.get())) {
    FailureOr<ConstantPieces> pieces = matcher.matchPieces(op->getLoc(), constant.site, value);
    if (failed(pieces))
      return failure();
    if (pieces->columns) // a matrix, which no other lies below
      constant.columns = pieces->columns;
    for (ConstantTensor &part : pieces->rows) {
      key += part.key() + '\n';
      constant.parts.push_back(std::move(part));
    }
  }
  if (constant.columns)
    key += constant.columns->key();
  FloatConstant *&known = constantByKey[key];
  if (!known) {
    constants.push_back(std::move(constant));
    known = &constants.back();
  }
  known->readers.push_back(&reader);
  return success();
}

formats::DType FloatConstant::leastType() const {
  const bool isTable = llvm::all_of(
      readers, [](OpOperand *reader) { return isa<lm::EmbeddingOp>(reader->getOwner()); });
  return isTable && parts.size() == 1 && parts.front().steps.empty() ? parts.front().fileType
                                                                     : formats::DType::F32;
}

/// Does the op make a constant of constants?
static bool makesConstant(Operation *op) {
  if (auto hadamard = dyn_cast<HadamardOp>(op))
    return hadamard.getInput().getType().hasStaticShape();
  return isa<ScaleOp, ConcatOp, tensor::ExtractSliceOp, shard::AllSliceOp, FirstRankOp>(op) ||
         (isa<AllSliceOp>(op) && !isa<WeightType>(op->getResult(0).getType()));
}

LogicalResult ModelWeights::collectFloats(ModuleOp module, const ConstantMatcher &matcher) {
  WalkResult result = module.walk([&](Operation *op) -> WalkResult {
    // These read constants for the sake of their own readers.
    if (isa<QuantizeOp, FromCodesOp>(op) || makesConstant(op))
      return WalkResult::advance();
    for (OpOperand &operand : op->getOpOperands()) {
      if (isa<WeightType>(operand.get().getType()))
        continue;
      Operation *made = operand.get().getDefiningOp();
      bool isConstant = (made && makesConstant(made)) || matcher.getExternGlobal(operand.get());
      if (isConstant && failed(collectFloat(matcher, operand)))
        return WalkResult::interrupt();
    }
    return WalkResult::advance();
  });
  return failure(result.wasInterrupted());
}

LogicalResult ModelWeights::collect(ModuleOp module, int64_t rank) {
  ConstantMatcher matcher(module, rank);
  return failure(failed(collectWeights(module, matcher)) || failed(collectFloats(module, matcher)));
}

LogicalResult ModelWeights::check(ModuleOp module, const ConstantReader &reader) const {
  // Every tensor of the model, read or not: a global that names none is a mistake.
  for (GlobalOp global : module.getOps<GlobalOp>())
    if (isa_and_nonnull<ml_program::ExternAttr>(global.getValueAttr()) &&
        !global->hasAttr(kFileAttr) && failed(checkGlobal(global, reader)))
      return failure();
  for (const WeightUse &use : readers)
    if (auto done = checkTensors(*use.weight, reader); !done)
      return emitError(use.op->getLoc()) << done.error().message;
  for (const FloatConstant &constant : constants) {
    if (constant.rope)
      continue;
    for (const ConstantTensor &part : constant.parts)
      if (auto done = reader.check(part); !done)
        return emitError(constant.loc)
               << "site '" << constant.site << "': " << done.error().message;
  }
  return success();
}
