//===- ConstantTensors.cpp - Constant expressions -------------------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "easyquant/Weights/ConstantTensors.h"

#include "easyquant/Numerics/Scheme.h"

#include "mlir/Dialect/Shard/IR/ShardOps.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/IR/Builders.h"

#include <fmt/ranges.h>

using namespace mlir;
using namespace easyquant;
using namespace easyquant::equant;
using ml_program::GlobalLoadConstOp;
using ml_program::GlobalOp;

ColumnPieces ColumnPieces::inGroups(int64_t group) const {
  return {first / group, numerics::groupCount(width, group), count, stride / group};
}

std::string ColumnPieces::key() const {
  return fmt::format("{}:{}:{}:{}", first, width, count, stride);
}

ColumnPieces easyquant::equant::columnPieces(ArrayRef<std::pair<int64_t, int64_t>> pieces) {
  const auto [first, width] = pieces.front();
  return {first, width, std::ssize(pieces), pieces.size() > 1 ? pieces[1].first - first : 0};
}

int64_t ConstantTensor::columns() const {
  int64_t columns = 1;
  for (size_t i = 1; i < shape.size(); ++i)
    columns *= shape[i];
  return columns;
}

int64_t ConstantTensor::rowBlock() const {
  int64_t block = 1; // powers of two, so that the largest is a multiple of all
  for (const ConstantStep &step : steps)
    if (step.isRotation(/*ofAxis=*/0))
      block = std::max(block, step.block);
  return block;
}

const ConstantStep *ConstantTensor::rowRotation() const {
  auto last = llvm::find_if(llvm::reverse(steps),
                            [](const ConstantStep &step) { return step.isRotation(/*ofAxis=*/0); });
  return last == steps.rend() ? nullptr : &*last;
}

std::string ConstantTensor::key() const {
  // Symbols hold no control characters (they are names of tensors).
  std::string text = global + '\1' + file + '\1' + stamp;
  if (isPart())
    text += fmt::format("\5{}:{}", fmt::join(first, ","), fmt::join(shape, ","));
  if (isOfFirstRank)
    text += '\7';
  for (const ConstantStep &step : steps)
    text += step.block
                ? fmt::format("\6{}:{}:{}", step.axis, step.block, step.first)
                : fmt::format("\2{}{}{}\3", step.divide ? '/' : '*', step.axis, step.factor.key());
  return text;
}

formats::ComputedPlace ConstantTensor::place(formats::DType type) const {
  return {file, stamp, global, type, stored};
}

void ConstantTensor::cut(ArrayRef<int64_t> offsets, ArrayRef<int64_t> sizes) {
  for (size_t axis = 0; axis < shape.size(); ++axis) {
    first[axis] += offsets[axis];
    shape[axis] = sizes[axis];
  }
  for (ConstantStep &step : steps)
    if (!step.block)
      step.factor.cut(offsets[step.axis], sizes[step.axis]);
    else if (step.axis == 0)
      step.first = std::max<int64_t>(step.first - offsets[0], 0);
}

//===----------------------------------------------------------------------===//
// From the IR
//===----------------------------------------------------------------------===//

/// What a rank takes of a constant that ranks share.
static FailureOr<Part> matchAllSlice(Location loc, StringRef site, shard::AllSliceOp slice,
                                     int64_t rank) {
  auto source = cast<RankedTensorType>(slice.getInput().getType());
  auto part = cast<RankedTensorType>(slice.getResult().getType());
  const int64_t axis = slice.getSliceAxis().getSExtValue();
  bool isPart = source.hasStaticShape() && part.hasStaticShape() && source.getRank() <= 2 &&
                axis >= 0 && axis < source.getRank() && part.getDimSize(axis) > 0 &&
                rank < source.getDimSize(axis) / part.getDimSize(axis);
  for (int64_t other = 0; isPart && other < source.getRank(); ++other)
    isPart = other == axis || source.getDimSize(other) == part.getDimSize(other);
  if (!isPart)
    return emitError(loc) << "site '" << site << "': expected a part of a constant for rank "
                          << rank << ", found " << *slice.getOperation();
  SmallVector<int64_t, 2> offsets(source.getRank(), 0);
  offsets[axis] = rank * part.getDimSize(axis);
  return Part{slice.getInput(), std::move(offsets), llvm::to_vector<2>(part.getShape())};
}

FailureOr<Part> easyquant::equant::matchPart(Location loc, StringRef site, Value value,
                                             int64_t rank) {
  if (auto shared = value.getDefiningOp<shard::AllSliceOp>())
    return matchAllSlice(loc, site, shared, rank);
  auto slice = value.getDefiningOp<tensor::ExtractSliceOp>();
  if (!slice)
    return Part{value, {}, {}};
  RankedTensorType source = slice.getSourceType();
  ArrayRef<int64_t> offsets = slice.getStaticOffsets(), sizes = slice.getStaticSizes();
  bool isPart = source.hasStaticShape() && source.getRank() <= 2 &&
                slice.getType().getRank() == source.getRank() &&
                llvm::all_of(slice.getStaticStrides(), [](int64_t stride) { return stride == 1; });
  for (auto [offset, size, extent] : llvm::zip(offsets, sizes, source.getShape()))
    isPart = isPart && offset >= 0 && size > 0 && offset <= extent && size <= extent - offset;
  if (!isPart)
    return emitError(loc) << "site '" << site
                          << "': expected a part of a constant with static offsets and sizes "
                             "within it, strides of 1 and all its dimensions, found "
                          << *slice;
  return Part{slice.getSource(), llvm::to_vector<2>(offsets), llvm::to_vector<2>(sizes)};
}

SmallVector<Value> easyquant::equant::concatenated(Value value) {
  SmallVector<Value> leaves, worklist = {value};
  while (!worklist.empty()) {
    Value next = worklist.pop_back_val();
    if (auto concat = next.getDefiningOp<ConcatOp>())
      llvm::append_range(worklist, llvm::reverse(concat.getInputs()));
    else
      leaves.push_back(next);
  }
  return leaves;
}

GlobalOp ConstantMatcher::getExternGlobal(Value value) const {
  auto load = value.getDefiningOp<GlobalLoadConstOp>();
  auto global = load ? symbols.lookup<GlobalOp>(load.getGlobal().getLeafReference()) : GlobalOp();
  if (!global || !isa_and_nonnull<ml_program::ExternAttr>(global.getValueAttr()))
    return nullptr;
  return global;
}

/// Takes a part of what is scaled and rotated already.
static LogicalResult cut(Location loc, StringRef site, ConstantTensor &tensor,
                         ArrayRef<int64_t> offsets, ArrayRef<int64_t> sizes) {
  for (const ConstantStep &step : tensor.steps) {
    const int64_t offset = offsets[step.axis], size = sizes[step.axis];
    const StringRef kind = step.axis == 0 ? " rows" : " columns";
    if (step.block && (offset % step.block != 0 || size % step.block != 0))
      return emitError(loc) << "site '" << site << "': " << size << kind << " from " << offset
                            << " on are no whole blocks of " << step.block << kind
                            << ", in which equant.hadamard rotates them";
  }
  tensor.cut(offsets, sizes);
  return success();
}

FailureOr<ConstantPieces> ConstantMatcher::matchPieces(Location loc, StringRef site,
                                                       Value value) const {
  auto slice = value.getDefiningOp<AllSliceOp>();
  FailureOr<ConstantTensor> whole = match(loc, site, slice ? slice.getInput() : value);
  if (failed(whole))
    return failure();
  if (!slice)
    return ConstantPieces{{std::move(*whole)}, std::nullopt};
  if (rank >= slice.getRanks())
    return emitError(loc) << "site '" << site << "': expected a part of a constant for rank "
                          << rank << ", found " << *slice.getOperation();
  const auto pieces = slice.piecesOf(rank);
  // Rotated columns, and those that have factors, are in their places once they are computed.
  if (slice.getAxis() == 1)
    return ConstantPieces{{std::move(*whole)}, columnPieces(pieces)};
  ConstantPieces parts{SmallVector<ConstantTensor, 1>(pieces.size(), *whole), std::nullopt};
  for (auto [part, range] : llvm::zip_equal(parts.rows, pieces)) {
    SmallVector<int64_t, 2> offsets(part.shape.size(), 0), sizes = llvm::to_vector<2>(part.shape);
    std::tie(offsets[0], sizes[0]) = range;
    if (failed(cut(loc, site, part, offsets, sizes)))
      return failure();
  }
  return parts;
}

FailureOr<ConstantTensor> ConstantMatcher::match(Location loc, StringRef site, Value value,
                                                 int depth) const {
  bool isSlice = isa_and_present<tensor::ExtractSliceOp, shard::AllSliceOp>(value.getDefiningOp());
  auto first = value.getDefiningOp<FirstRankOp>();
  auto scale = value.getDefiningOp<ScaleOp>();
  auto hadamard = value.getDefiningOp<HadamardOp>();
  if ((isSlice || first || scale || hadamard) && depth == kMaxDepth)
    return emitError(loc) << "site '" << site << "': expected at most " << kMaxDepth
                          << " equant.scale, equant.hadamard and slices on a constant, found more";
  if (isSlice) {
    FailureOr<Part> part = matchPart(loc, site, value, rank);
    if (failed(part))
      return failure();
    FailureOr<ConstantTensor> tensor = match(loc, site, part->whole, depth + 1);
    if (failed(tensor))
      return failure();
    if (failed(cut(loc, site, *tensor, part->offsets, part->sizes)))
      return failure();
    return tensor;
  }
  if (first) {
    FailureOr<ConstantTensor> tensor = match(loc, site, first.getInput(), depth + 1);
    if (succeeded(tensor)) {
      tensor->isOfFirstRank = true;
      tensor->isZeros = rank != 0;
    }
    return tensor;
  }
  if (hadamard) {
    FailureOr<ConstantTensor> tensor = match(loc, site, hadamard.getInput(), depth + 1);
    if (succeeded(tensor))
      tensor->steps.push_back({.block = hadamard.getBlockAttr().getInt(),
                               .axis = hadamard.getAxisAttr().getInt(),
                               .first = hadamard.getFirstAttr().getInt()});
    return tensor;
  }
  if (scale) {
    FailureOr<ConstantTensor> tensor = match(loc, site, scale.getInput(), depth + 1);
    if (failed(tensor))
      return failure();
    FailureOr<ConstantTensor> factor = match(loc, site, scale.getFactor(), depth + 1);
    if (failed(factor))
      return failure();
    tensor->steps.push_back({.factor = std::move(*factor),
                             .axis = scale.getAxisAttr().getInt(),
                             .divide = scale.getDivide()});
    return tensor;
  }
  GlobalOp global = getExternGlobal(value);
  if (!global) {
    InFlightDiagnostic diagnostic = emitError(loc)
                                    << "site '" << site
                                    << "': expected a constant (a global with "
                                       "external contents, equant.scale, equant.hadamard or a part "
                                       "of one), "
                                       "found ";
    if (Operation *op = value.getDefiningOp())
      diagnostic << op->getName();
    else
      diagnostic << "a block argument";
    return diagnostic;
  }
  ConstantTensor tensor;
  tensor.global = global.getSymName().str();
  ArrayRef<int64_t> shape = cast<RankedTensorType>(value.getType()).getShape();
  tensor.stored.assign(shape.begin(), shape.end());
  tensor.first.assign(shape.size(), 0);
  tensor.shape = tensor.stored;
  if (auto file = global->getAttrOfType<StringAttr>(kFileAttr)) {
    tensor.file = file.str();
    if (auto stamp = global->getAttrOfType<StringAttr>(kStampAttr))
      tensor.stamp = stamp.str();
  }
  tensor.isStored = global->hasAttr(kStoredAttr);
  if (auto type = global->getAttrOfType<TypeAttr>(lm::kFileTypeAttr)) // verified
    tensor.fileType = type.getValue().isF16() ? formats::DType::F16 : formats::DType::BF16;
  return tensor;
}

FailureOr<std::string> easyquant::equant::getWorkFolder(ModuleOp module, StringRef work) {
  if (!work.empty())
    module->setAttr(kWorkAttr, StringAttr::get(module.getContext(), work));
  if (auto folder = module->getAttrOfType<StringAttr>(kWorkAttr))
    return folder.str();
  return emitError(module.getLoc())
         << "no folder for what methods compute: give the option work, or the module attribute "
         << kWorkAttr;
}

/// Beside the other globals, before the functions; in place of one of this name.
static GlobalOp declareConstant(ModuleOp module, StringRef name, RankedTensorType type) {
  OpBuilder builder(module.getContext());
  if (auto known = module.lookupSymbol<GlobalOp>(name))
    known.erase();
  auto globals = module.getOps<GlobalOp>();
  Operation *last = nullptr;
  for (GlobalOp global : globals)
    last = global;
  if (last)
    builder.setInsertionPointAfter(last);
  else
    builder.setInsertionPointToStart(module.getBody());
  return GlobalOp::create(builder, NameLoc::get(builder.getStringAttr(name)), name, type,
                          /*is_mutable=*/false,
                          ml_program::ExternAttr::get(module.getContext(), type),
                          builder.getStringAttr("private"));
}

GlobalOp easyquant::equant::declareComputed(ModuleOp module, StringRef name, RankedTensorType type,
                                            StringRef file, StringRef stamp) {
  Builder builder(module.getContext());
  GlobalOp global = declareConstant(module, name, type);
  global->setAttr(kFileAttr, builder.getStringAttr(file));
  global->setAttr(kStampAttr, builder.getStringAttr(stamp));
  return global;
}

GlobalOp easyquant::equant::declareStored(ModuleOp module, StringRef name, RankedTensorType type) {
  GlobalOp global = declareConstant(module, name, type);
  global->setAttr(kStoredAttr, UnitAttr::get(module.getContext()));
  return global;
}

Value easyquant::equant::loadGlobal(OpBuilder &builder, Location loc, GlobalOp global) {
  return GlobalLoadConstOp::create(builder, loc, global.getType(),
                                   FlatSymbolRefAttr::get(global.getSymNameAttr()));
}
