//===- LaunchBuilder.cpp - Builds the launches of a step ------------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "easyquant/KernelLibrary/LaunchBuilder.h"

#include "easyquant/Dialect/Equant/IR/TensorParallel.h"
#include "easyquant/Dialect/LM/Analysis/InPlace.h"
#include "easyquant/Formats/Manifest.h"
#include "easyquant/Formats/Step.h"
#include "easyquant/Support/AttributeJson.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"

using namespace mlir;
using namespace easyquant;
using RowsPart = equant::RowsType::Part;

static constexpr RowsPart kRowsParts[] = {RowsPart::Codes, RowsPart::Scales, RowsPart::Sums,
                                          RowsPart::ZeroPoints, RowsPart::Outer};

//===----------------------------------------------------------------------===//
// What is launched
//===----------------------------------------------------------------------===//

KernelOps::KernelOps(Operation *op) : whole(op) {
  if (auto fusion = dyn_cast<equant::FusionOp>(op))
    for (Operation &inner : fusion.getBody().front().without_terminator())
      ops.push_back(&inner);
  else
    ops.push_back(op);
}

/// The first op of the block that reads a result of `op`, past a collective among ranks; null if
/// there is none.
static Operation *firstReader(Operation *op) {
  Operation *first = nullptr;
  for (Operation *user : op->getUsers())
    if (Operation *reader = op->getBlock()->findAncestorOpInBlock(*user);
        reader && (!first || reader->isBeforeInBlock(first)))
      first = reader;
  return isa_and_present<shard::AllReduceOp>(first) ? firstReader(first) : first;
}

/// "a.q_proj+k_proj" where linears were fused.
static std::string join(ArrayAttr sites) {
  std::string joined;
  for (StringRef site : sites.getAsValueRange<StringAttr>())
    joined += joined.empty() ? site.str() : "+" + site.substr(site.rfind('.') + 1).str();
  return joined;
}

/// A linear is its sites, and what makes the codes and scales that a linear reads is for the first
/// one that does. An op that is no site has the name of its location, or else that of its kind,
/// "lm.add".
std::string easyquant::siteOf(Operation *op) {
  if (isa<equant::QuantizeRowsOp, equant::FakeQuantizeOp, equant::TokenAbsMaxOp, arith::TruncFOp,
          equant::FusionOp>(op)) {
    Operation *first = firstReader(op);
    return first && !isa<func::ReturnOp, equant::YieldOp>(first)
               ? siteOf(KernelOps(first).first())
               : op->getName().getStringRef().str();
  }
  if (auto linear = dyn_cast<equant::PackedLinearOp>(op))
    return join(linear.getSites());
  if (auto rescale = dyn_cast<equant::RescaleOp>(op))
    return join(rescale.getSites());
  if (auto quantizable = dyn_cast<equant::QuantizableOpInterface>(op))
    return quantizable.getSite().str();
  Location loc = op->getLoc();
  while (auto inlined = dyn_cast<CallSiteLoc>(loc))
    loc = inlined.getCallee();
  if (auto name = dyn_cast<NameLoc>(loc))
    return name.getName().str();
  return op->getName().getStringRef().str();
}

LogicalResult easyquant::checkOnline(equant::QuantizeRowsOp op, const KernelOps &kernel) {
  auto scale = kernel.find<equant::OnlineScaleOp>();
  auto track = kernel.find<equant::TrackOp>();
  if (!op.getOnline() && !scale && !track)
    return success();
  if (scale && track && op.getOnline() == scale.getScales() && track.getInput() == op.getInput() &&
      track.getState() == scale.getState() && track.getIndex() == scale.getIndex())
    return success();
  return op.emitOpError("expected an equant.online_scale and an equant.track of its input for one "
                        "site, in one kernel: run equant-online-scales and equant-fuse-kernels "
                        "first");
}

void LaunchBuilder::begin(const KernelOps &kernel) {
  b.setLoc(kernel.first()->getLoc());
  site = siteOf(isa<equant::OnlineScaleOp>(kernel.first()) ? kernel.whole : kernel.first());
  if (kernel.whole == kernel.first())
    return;
  Operation *yield = kernel.ops.back()->getBlock()->getTerminator();
  for (auto [inner, result] : llvm::zip_equal(yield->getOperands(), kernel.whole->getResults()))
    fused[inner] = result;
}

void LaunchBuilder::end(const KernelOps &kernel) {
  if (kernel.whole == kernel.first())
    return;
  Operation *yield = kernel.ops.back()->getBlock()->getTerminator();
  for (auto [inner, result] : llvm::zip_equal(yield->getOperands(), kernel.whole->getResults()))
    if (Value memory = memories.lookup(inner)) {
      memories[result] = memory;
      if (isa<equant::RowsType>(inner.getType()))
        for (RowsPart part : kRowsParts)
          rowParts[{result, static_cast<int>(part)}] = this->part(inner, part);
    }
}

void LaunchBuilder::launch(SymbolRefAttr kernel, ValueRange operands, Phase phase,
                           const Access &access, std::optional<RowRange> rows) {
  DenseI64ArrayAttr range;
  if (rows)
    range = b.getDenseI64ArrayAttr({rows->first, rows->second});
  launch::KernelOp::create(b, phase, kernel, operands, b.getStringAttr(site),
                           b.getDenseI64ArrayAttr(access.writes),
                           b.getDenseI64ArrayAttr(access.shares), access.meets, range);
}

void LaunchBuilder::launchHost(int64_t call, ValueRange operands, ValueRange results) {
  auto writes =
      llvm::to_vector(llvm::seq<int64_t>(operands.size(), operands.size() + results.size()));
  launch::HostOp::create(b, call, llvm::to_vector(llvm::concat<Value>(operands, results)),
                         b.getStringAttr(site), b.getDenseI64ArrayAttr(writes));
}

void LaunchBuilder::startCollective(Value memory, std::optional<launch::Reduction> reduction,
                                    Value result) {
  using launch::CollectiveCall;
  launch::ReductionAttr by;
  if (reduction)
    by = launch::ReductionAttr::get(context(), *reduction);
  underWay[result] = launch::CollectiveOp::create(
      b, collectives++, by ? CollectiveCall::AllReduce : CollectiveCall::AllGather, by, memory,
      site);
  rowCounts[memory] = rows(memory);
  memories[result] = memory;
}

void LaunchBuilder::await(Value result) {
  auto it = underWay.find(result);
  if (it == underWay.end())
    return;
  launch::CollectiveOp started = it->second;
  launch::WaitOp::create(b, started.getIdAttr(), started.getMemory(), started.getSiteAttr());
  underWay.erase(it);
}

void LaunchBuilder::awaitAll() {
  while (!underWay.empty())
    await(underWay.front().first);
}

//===----------------------------------------------------------------------===//
// The step and its arguments
//===----------------------------------------------------------------------===//

/// What holds a tensor, a cache or a batch.
MemRefType LaunchBuilder::memoryType(Type type) const {
  if (isa<lm::BatchType>(type))
    return MemRefType::get({ShapedType::kDynamic, EQ_SEQUENCE_FIELDS},
                           IntegerType::get(type.getContext(), 32));
  if (auto state = dyn_cast<lm::StateType>(type))
    return MemRefType::get({ShapedType::kDynamic, state.getSites() * state.getFields()},
                           Float64Type::get(type.getContext()));
  if (auto state = dyn_cast<lm::RecurrentType>(type))
    return MemRefType::get({ShapedType::kDynamic, state.getValues()},
                           Float32Type::get(type.getContext()));
  auto tensor = dyn_cast<RankedTensorType>(type);
  if (!tensor)
    return MemRefType::get({ShapedType::kDynamic}, IntegerType::get(type.getContext(), 8));
  SmallVector<int64_t> shape(tensor.getShape());
  Type element = tensor.getElementType();
  if (tensor.getRank() == 2 && tensor.isDynamicDim(0) && element.getIntOrFloatBitWidth() < 32)
    shape[1] = llvm::alignTo(shape[1], program.rowPadding);
  return MemRefType::get(shape, element);
}

LaunchBuilder::LaunchBuilder(LaunchModule &program, func::FuncOp source, StringRef name)
    : program(program), b(source.getLoc(), source.getContext()) {
  auto argumentType = [&](Type type) -> Type {
    MemRefType memory = memoryType(type);
    if (!program.stridedArguments || memory.getRank() != 2 ||
        isa<lm::BatchType, lm::StateType, lm::RecurrentType>(type))
      return memory;
    auto layout =
        StridedLayoutAttr::get(type.getContext(), ShapedType::kDynamic, {ShapedType::kDynamic, 1});
    return MemRefType::get(memory.getShape(), memory.getElementType(), layout);
  };
  SmallVector<Type> types;
  for (Type type : llvm::concat<const Type>(source.getArgumentTypes(), source.getResultTypes()))
    types.push_back(argumentType(type));
  b.setInsertionPoint(source);
  stepOp = func::FuncOp::create(b, name, b.getFunctionType(types, {}));
  stepOp->setAttr(launch::kMaxRowsAttr, b.getI64IntegerAttr(program.maxRows));
  Block *body = stepOp.addEntryBlock();
  b.setInsertionPointToStart(body);
  func::ReturnOp::create(b);
  b.setInsertionPoint(body->getTerminator());
  for (auto [value, argument] : llvm::zip(source.getArguments(), body->getArguments())) {
    memories[value] = argument;
    auto tensor = dyn_cast<RankedTensorType>(value.getType());
    if (tensor && tensor.getRank() > 0 && tensor.isDynamicDim(0))
      rowCounts[argument] = memref::DimOp::create(b, argument, 0);
    auto setName = [&, argument = argument](StringRef name) {
      stepOp.setArgAttr(argument.getArgNumber(), launch::kArgumentAttr, b.getStringAttr(name));
    };
    if (tensor && tensor.getRank() == 1 && tensor.isDynamicDim(0))
      setName("tokens");
    else if (lm::isActivationType(value.getType()))
      setName("hidden");
    else if (isa<lm::KVCacheType>(value.getType()))
      setName("cache");
    else if (isa<lm::StateType>(value.getType()))
      setName("state");
    else if (isa<lm::RecurrentType>(value.getType()))
      setName("recurrent");
    else if (isa<lm::BatchType>(value.getType()))
      setName("sequences");
  }
  Operation *terminator = source.front().getTerminator();
  for (auto [value, argument] : llvm::zip(
           terminator->getOperands(), body->getArguments().drop_front(source.getNumArguments()))) {
    const bool isFirst = argument.getArgNumber() == source.getNumArguments();
    stepOp.setArgAttr(argument.getArgNumber(), launch::kArgumentAttr,
                      b.getStringAttr(isFirst ? "logits" : "next_hidden"));
    outputs.try_emplace(value, argument);
  }
}

Value LaunchBuilder::argument(StringRef name) {
  Value &argument = arguments[name];
  if (argument)
    return argument;
  unsigned number = stepOp.getNumArguments();
  Type type = MemRefType::get({ShapedType::kDynamic}, b.getI64Type());
  if (name == "row_places")
    type = MemRefType::get({ShapedType::kDynamic, formats::kRowPlaceFields}, b.getI32Type());
  if (name == "rank")
    type = b.getIndexType();
  if (failed(stepOp.insertArgument(number, type, {}, stepOp.getLoc())))
    return nullptr;
  stepOp.setArgAttr(number, launch::kArgumentAttr, b.getStringAttr(name));
  return argument = stepOp.getArgument(number);
}

void LaunchBuilder::setName(Value value, StringRef name) {
  if (auto argument = dyn_cast<BlockArgument>((*this)[value]))
    stepOp.setArgAttr(argument.getArgNumber(), launch::kArgumentAttr, b.getStringAttr(name));
}

//===----------------------------------------------------------------------===//
// Memory
//===----------------------------------------------------------------------===//

Value LaunchBuilder::operator[](Value value) {
  if (Value memory = memories.lookup(value))
    return memory;
  auto constant = value.getDefiningOp<arith::ConstantOp>();
  return constant ? memories[value] = b.clone(*constant)->getResult(0) : nullptr;
}

ml_program::GlobalOp LaunchBuilder::globalOf(Value value) const {
  auto load = value.getDefiningOp<ml_program::GlobalLoadConstOp>();
  return load ? program.symbols.lookup<ml_program::GlobalOp>(load.getGlobal().getLeafReference())
              : ml_program::GlobalOp();
}

static LogicalResult emitNoPlace(Value value, ml_program::GlobalOp global) {
  return emitError(value.getLoc())
         << "constant " << (global ? "@" + global.getSymName().str() : "operand")
         << " has no place in the weights for this target: run equant-materialize-weights first";
}

FailureOr<Value> LaunchBuilder::weight(Value value, StringRef offsetAttribute) {
  if (Value memory = memories.lookup(value))
    return memory;
  ml_program::GlobalOp global = globalOf(value);
  auto offset = globalAttribute<IntegerAttr>(value, offsetAttribute);
  auto type = dyn_cast<RankedTensorType>(value.getType());
  if (!offset || !type)
    return emitNoPlace(value, global);
  StringRef kind = offsetAttribute == equant::kOffsetAttr ? "" : offsetAttribute.rsplit('.').second;
  std::string name = global.getSymName().str();
  return constant(value, kind.empty() ? name : name + "." + kind.str(), type, offset.getInt());
}

FailureOr<Value> LaunchBuilder::weight(Value value, numerics::WeightTensor part) {
  ml_program::GlobalOp global = globalOf(value);
  auto offsets = globalAttribute<DenseI64ArrayAttr>(value, equant::kOffsetAttr);
  if (!offsets)
    return emitNoPlace(value, global);
  for (auto [known, offset] :
       llvm::zip(cast<equant::WeightType>(value.getType()).getParts(), offsets.asArrayRef())) {
    if (known.first != part)
      continue;
    std::string name = (global.getSymName() + equant::suffixOf(part)).str();
    while (part != numerics::WeightTensor::Codes && program.symbols.lookup(name))
      name += '_';
    return constant(value, name, known.second, offset);
  }
  return Value();
}

/// The memory of a constant, by its place in the weights.
Value LaunchBuilder::constant(Value value, StringRef name, RankedTensorType type, int64_t offset) {
  StringAttr symbol = b.getStringAttr(name);
  Value &memory = weights[{value, symbol}];
  if (memory)
    return memory;
  // Kernels decode formats that memory knows no loads of from integers of their width.
  Type element = type.getElementType();
  if (isa<FloatType>(element) && !element.isF32() && !element.isF16())
    element = b.getIntegerType(element.getIntOrFloatBitWidth());
  WeightGlobal &place = program.weights[symbol];
  place = {MemRefType::get(type.getShape(), element), offset};
  return memory = memref::GetGlobalOp::create(b, place.type, name);
}

Value LaunchBuilder::fusionResult(Value value) const {
  auto it = fused.find(value);
  return it == fused.end() ? value : it->second;
}

Value LaunchBuilder::result(Value value, Value rows) {
  // A rank's columns lie where the columns of all are gathered.
  Value whole = fusionResult(value);
  auto gather = whole.hasOneUse() ? dyn_cast<shard::AllGatherOp>(*whole.user_begin()) : nullptr;
  const int64_t ranks = equant::degreeOf(program.module);
  if (gather && lm::isActivationType(value.getType()) &&
      gather.getResult().getType() == lm::activationType(context(), ranks * lm::columns(value))) {
    Value memory = result(gather.getResult(), rows);
    return memories[value] = columnsOfRank(memory, ranks);
  }
  Value memory = outputs.lookup(whole);
  if (!memory)
    return memories[value] = buffer(value.getType(), rows);
  rowCounts[memory] = rows;
  return memories[value] = memory;
}

Value LaunchBuilder::buffer(Type type, Value rows) {
  auto multiple = multiples.find(rows);
  Value memory = launch::BufferOp::create(
      b, memoryType(type), rows, IntegerAttr(),
      b.getI64IntegerAttr(multiple == multiples.end() ? 1 : multiple->second));
  rowCounts[memory] = rows;
  return memory;
}

Value LaunchBuilder::timesRows(Value rows, int64_t multiple) {
  Value more = arith::MulIOp::create(b, rows, index(multiple));
  multiples[more] = multiple;
  return more;
}

Value LaunchBuilder::result(Value value, RowsPart part, Value rows) {
  RankedTensorType type = cast<equant::RowsType>(value.getType()).getPart(part);
  if (!type)
    return {};
  Value memory = buffer(type, rows);
  if (part == RowsPart::Codes)
    memories[value] = memory;
  return rowParts[{value, static_cast<int>(part)}] = memory;
}

Value LaunchBuilder::overwrite(Value result, Value operand) {
  Value memory = (*this)[operand];
  return memories[result] = memory;
}

Value LaunchBuilder::linearResult(const KernelOps &kernel, Value rows) {
  Value output = kernel.first()->getResult(0);
  auto add = kernel.next<lm::AddOp>();
  if (!add)
    return result(output, rows);
  return overwrite(add.getOutput(), add.getLhs() == output ? add.getRhs() : add.getLhs());
}

FailureOr<Value> LaunchBuilder::inPlace(Value result, Value operand, const Copy &copy) {
  Operation *op = fusionResult(result).getDefiningOp();
  if (lm::mayOverwrite(op, operand))
    return overwrite(result, operand);
  Value from = (*this)[operand], fresh = this->result(result, rows(from));
  if (failed(copy(*this, from, fresh)))
    return failure();
  return fresh;
}

Value LaunchBuilder::columns(Value memory, OpFoldResult first, int64_t count) {
  auto at = [&](int64_t value) -> OpFoldResult { return b.getIndexAttr(value); };
  Value view = memref::SubViewOp::create(b, memory, {at(0), first}, {rows(memory), at(count)},
                                         {at(1), at(1)});
  rowCounts[view] = rows(memory);
  return view;
}

Value LaunchBuilder::extrema(Value state, Value rows) {
  int64_t sites = cast<lm::StateType>(state.getType()).getSites();
  auto type = MemRefType::get({ShapedType::kDynamic, 2 * sites}, b.getF32Type());
  if (!extremaBuffer && rows) {
    extremaBuffer = launch::BufferOp::create(b, type, rows, IntegerAttr(), b.getI64IntegerAttr(1));
    rowCounts[extremaBuffer] = rows;
  }
  if (!extremaBuffer || extremaBuffer.getType() != type)
    return nullptr;
  return extremaBuffer;
}

Value LaunchBuilder::columnsOfRank(Value memory, int64_t ranks) {
  int64_t count = cast<MemRefType>(memory.getType()).getDimSize(1) / ranks;
  Value first = arith::MulIOp::create(b, argument("rank"), index(count));
  if (!program.stridedArguments) {
    Value offset = arith::MulIOp::create(b, first, rows(memory));
    auto layout = StridedLayoutAttr::get(context(), ShapedType::kDynamic, {count, 1});
    auto type = MemRefType::get({ShapedType::kDynamic, count},
                                cast<MemRefType>(memory.getType()).getElementType(), layout);
    Value part = memref::ReinterpretCastOp::create(
        b, type, memory, ValueRange{offset}, ValueRange{rows(memory)}, ValueRange(),
        ArrayRef<int64_t>{ShapedType::kDynamic}, ArrayRef<int64_t>{ShapedType::kDynamic, count},
        ArrayRef<int64_t>{count, 1});
    rowCounts[part] = rows(memory);
    return part;
  }
  return columns(memory, first, count);
}

Value LaunchBuilder::scratch(int64_t bytes, bool perThread) {
  auto type = MemRefType::get({ShapedType::kDynamic}, b.getI8Type());
  return launch::ScratchOp::create(b, type, launch::alignUp(bytes), perThread);
}

Value LaunchBuilder::counters(int64_t count) {
  return launch::CountersOp::create(b, MemRefType::get({count}, b.getI32Type()));
}

Value LaunchBuilder::pieces(const formats::PieceCut &cut) {
  auto type = MemRefType::get({ShapedType::kDynamic, formats::kPieceFields}, b.getI32Type());
  return launch::PiecesOp::create(b, type, cut.minRows, cut.maxRows, cut.rows, cut.tokens,
                                  cut.origin, cut.window);
}

Value LaunchBuilder::partials(int64_t bytes) {
  return launch::PartialsOp::create(b, MemRefType::get({ShapedType::kDynamic}, b.getI8Type()),
                                    bytes);
}

Value LaunchBuilder::partialCounters(int64_t count) {
  return launch::PartialCountersOp::create(
      b, MemRefType::get({ShapedType::kDynamic}, b.getI32Type()), count);
}

//===----------------------------------------------------------------------===//
// The cache
//===----------------------------------------------------------------------===//

FailureOr<LaunchBuilder::CachePlace> LaunchBuilder::layOutCache(Operation *attention,
                                                                SizesOfHeads sizesOf,
                                                                bool rotatesKeys, bool slide) {
  const auto isCache = [](Value operand) { return isa<lm::KVCacheType>(operand.getType()); };
  const auto type =
      cast<lm::KVCacheType>((*llvm::find_if(attention->getOperands(), isCache)).getType());
  const int64_t layer = attention->getAttrOfType<IntegerAttr>("layer").getInt();
  CachePlace place;
  formats::CacheSizes sizes;
  for (int64_t index = 0; index < type.getLayers(); ++index) {
    const int64_t window = slide ? type.windowOf(index) : 0;
    if (window > 0 && !sizes.sliding)
      sizes.sliding.emplace();
    int64_t &pageBytes = window > 0 ? sizes.sliding->pageBytes : sizes.pageBytes;
    if (index == layer)
      place = {pageBytes, sizes.windowBytes, /*windows=*/0, window > 0};
    const formats::CacheSizes part = sizesOf(type.kvHeadsOf(index), type.headDimOf(index));
    if (part.windowBytes > launch::kMaxBytes - sizes.windowBytes ||
        part.pageBytes > launch::kMaxBytes - pageBytes)
      return attention->emitOpError("needs pages of ")
             << part.pageBytes << " bytes a layer and a window of " << part.windowBytes << ", for "
             << type.getLayers() << " layers; at most " << launch::kMaxBytes << " can be addressed";
    sizes.pageTokens = part.pageTokens;
    if (window > 0)
      sizes.sliding->window = std::max(sizes.sliding->window, window);
    pageBytes += part.pageBytes;
    sizes.windowBytes += part.windowBytes;
  }
  place.windows = sizes.windowBytes;
  formats::Cache all = {sizes, std::nullopt, program.cacheType};
  if (auto codes = attention->getAttrOfType<equant::KVSchemeAttr>("kv_scheme"))
    all.scheme = {codes.getCode().getWidth(),
                  codes.getGroup(),
                  codes.getResidual(),
                  codes.getSinks(),
                  codes.getHadamard() ? "hadamard"
                  : rotatesKeys       ? "pre-rope"
                                      : "post-rope",
                  equant::stringifyGranularity(codes.getKeys()).str()};
  Attribute cache = toAttribute(context(), formats::partJson(all));
  Attribute known = stepOp->getAttr(launch::kCacheAttr);
  if (known && known != cache)
    return attention->emitOpError("has a cache unlike that of the first layer; all layers need the "
                                  "same KV scheme and place of keys");
  stepOp->setAttr(launch::kCacheAttr, cache);
  return place;
}
