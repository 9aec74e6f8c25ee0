//===- LaunchList.cpp - Steps for GPUs as data ----------------------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "easyquant/Emit/LaunchList.h"

#include "easyquant/Dialect/Launch/IR/Launch.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/GPU/IR/GPUDialect.h"
#include "mlir/Dialect/LLVMIR/LLVMTypes.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/Utils/StaticValueUtils.h"
#include "mlir/IR/SymbolTable.h"
#include "llvm/ADT/StringMap.h"
#include "llvm/ADT/StringSwitch.h"
#include "llvm/ADT/TypeSwitch.h"

using namespace mlir;
using namespace easyquant;

namespace {

using Argument = formats::LaunchArgument;
using Kind = Argument::Kind;

class LaunchListBuilder {
public:
  explicit LaunchListBuilder(ModuleOp module) : module(module), symbols(module) {}

  LogicalResult add(func::FuncOp step, std::vector<formats::Launch> &launches);

  formats::LaunchList list;

private:
  FailureOr<size_t> kernelOf(launch::KernelOp op);
  LogicalResult addLaunch(launch::KernelOp op, std::vector<formats::Launch> &launches);
  LogicalResult addCollective(launch::CollectiveOp op, std::vector<formats::Launch> &launches);
  FailureOr<Argument> argumentOf(Operation *op, Value operand, bool isPointer);
  FailureOr<Argument> partOf(Operation *op, memref::SubViewOp part);
  int64_t numberOf(launch::PiecesOp op);
  Argument constant(TypedAttr value);
  /// What an argument of the step is, "tokens"; empty for all else.
  StringRef nameOf(Value operand);

  /// What a number of rows is so many times as many as, if it is that.
  static std::pair<Value, int64_t> multipleOf(Value count) {
    auto times = count.getDefiningOp<arith::MulIOp>();
    std::optional<int64_t> multiple =
        times ? getConstantIntValue(times.getRhs()) : std::optional<int64_t>();
    return multiple && *multiple > 0 ? std::pair(times.getLhs(), *multiple)
                                     : std::pair(count, int64_t(1));
  }
  /// Is it the number of rows whose logits are asked for, or so many for each of them?
  bool areLogitRows(Value count) {
    auto rows = multipleOf(count).first.getDefiningOp<memref::DimOp>();
    return rows && nameOf(rows.getSource()) == "logit_rows";
  }

  static Argument place(Kind kind, int64_t offset = 0) { return {kind, offset, 0}; }

  ModuleOp module;
  SymbolTable symbols;
  func::FuncOp step;
  llvm::StringMap<size_t> kernelIndex;
};

} // namespace

FailureOr<size_t> LaunchListBuilder::kernelOf(launch::KernelOp op) {
  StringRef name = op.getKernel().getLeafReference().getValue();
  auto [known, isNew] = kernelIndex.try_emplace(name, list.kernels.size());
  if (!isNew)
    return known->second;
  auto function =
      dyn_cast_or_null<mlir::gpu::GPUFuncOp>(SymbolTable::lookupSymbolIn(module, op.getKernel()));
  auto grid = function ? function->getAttrOfType<DenseI64ArrayAttr>(launch::kGridAttr) : nullptr;
  auto threads =
      function ? function->getAttrOfType<IntegerAttr>(launch::kThreadsAttr) : IntegerAttr();
  auto shared =
      function ? function->getAttrOfType<IntegerAttr>(launch::kSharedBytesAttr) : IntegerAttr();
  formats::LaunchKernel kernel;
  if (!grid || grid.size() != static_cast<int64_t>(2 * kernel.grid.size()) || !threads || !shared)
    return op.emitOpError("expected a kernel of a GPU with its grid, threads and shared memory");
  kernel.name = name.str();
  using Parameter = formats::LaunchKernel::Parameter;
  for (Type type : function.getArgumentTypes())
    kernel.parameters.push_back(isa<LLVM::LLVMPointerType>(type) ? Parameter::Pointer
                                : type.isF32()                   ? Parameter::F32
                                                                 : Parameter::I32);
  for (auto [i, extent] : llvm::enumerate(kernel.grid))
    extent = {grid[2 * i], grid[2 * i + 1]};
  kernel.threads = static_cast<uint32_t>(threads.getInt());
  kernel.sharedBytes = shared.getInt();
  list.kernels.push_back(std::move(kernel));
  return known->second;
}

/// One after another, each where any kernel can read it.
Argument LaunchListBuilder::constant(TypedAttr value) {
  constexpr size_t alignment = 16;
  Argument argument = place(Kind::Constants, static_cast<int64_t>(list.constants.size()));
  uint32_t bits;
  if (auto number = dyn_cast<FloatAttr>(value))
    bits = llvm::bit_cast<uint32_t>(static_cast<float>(number.getValueAsDouble()));
  else
    bits = static_cast<uint32_t>(cast<IntegerAttr>(value).getInt());
  for (int shift = 0; shift < 32; shift += 8)
    list.constants.push_back(static_cast<std::byte>(bits >> shift));
  list.constants.resize(llvm::alignTo(list.constants.size(), alignment));
  return argument;
}

/// Some columns of rows.
FailureOr<Argument> LaunchListBuilder::partOf(Operation *op, memref::SubViewOp part) {
  FailureOr<Argument> argument = argumentOf(op, part.getSource(), /*isPointer=*/true);
  if (failed(argument))
    return failure();
  if (part.isDynamicOffset(0) || part.getStaticOffset(0) != 0 || part.isDynamicOffset(1))
    return op->emitOpError("expected columns of all rows as a part of memory");
  auto type = cast<MemRefType>(part.getSource().getType());
  argument->offset += part.getStaticOffset(1) * type.getElementTypeBitWidth() / 8;
  return argument;
}

/// The number of the cut that a step's pieces are listed by.
int64_t LaunchListBuilder::numberOf(launch::PiecesOp op) {
  const formats::PieceCut cut = {.minRows = static_cast<int64_t>(op.getMinRows()),
                                 .maxRows = static_cast<int64_t>(op.getMaxRows()),
                                 .rows = static_cast<int64_t>(op.getRows()),
                                 .tokens = static_cast<int64_t>(op.getTokens()),
                                 .origin = op.getOriginAttr().getInt(),
                                 .window = static_cast<int64_t>(op.getWindow())};
  auto known = llvm::find(list.pieces, cut);
  if (known == list.pieces.end())
    known = list.pieces.insert(known, cut);
  return known - list.pieces.begin();
}

StringRef LaunchListBuilder::nameOf(Value operand) {
  auto argument = dyn_cast<BlockArgument>(operand);
  auto name =
      argument ? step.getArgAttrOfType<StringAttr>(argument.getArgNumber(), launch::kArgumentAttr)
               : StringAttr();
  return name ? name.getValue() : StringRef();
}

FailureOr<Argument> LaunchListBuilder::argumentOf(Operation *op, Value operand, bool isPointer) {
  if (auto argument = dyn_cast<BlockArgument>(operand)) {
    if (auto kind = llvm::StringSwitch<std::optional<Kind>>(nameOf(operand))
                        .Case("tokens", Kind::Tokens)
                        .Case("logit_rows", Kind::LogitRows)
                        .Case("logits", Kind::Logits)
                        .Case("hidden", Kind::Hidden)
                        .Case("next_hidden", Kind::NextHidden)
                        .Case("sequences", Kind::Sequences)
                        .Case("row_places", Kind::RowPlaces)
                        .Case("pages", Kind::Pages)
                        .Case("rank", Kind::Rank)
                        .Case("state", Kind::States)
                        .Case("row_states", Kind::RowStates)
                        .Case("recurrent", Kind::Recurrent)
                        .Default(std::nullopt);
        kind && (*kind != Kind::Hidden || step.getName() == launch::kDraft))
      return place(*kind); // what is before its rows, a head that drafts alone reads
    return op->emitOpError("reads argument ") << argument.getArgNumber() << " of the step, "
                                              << argument.getType() << ", which nobody can give it";
  }
  return llvm::TypeSwitch<Operation *, FailureOr<Argument>>(operand.getDefiningOp())
      .Case([&](launch::BufferOp buffer) -> FailureOr<Argument> {
        if (!buffer.getOffset())
          return buffer.emitOpError("has no place: run launch-place-buffers first");
        return place(Kind::Arena, static_cast<int64_t>(*buffer.getOffset()));
      })
      .Case([&](launch::ScratchOp) {
        return place(Kind::Arena,
                     step->getAttrOfType<IntegerAttr>(launch::kArenaBytesAttr).getInt());
      })
      .Case([&](launch::CountersOp) { return place(Kind::State); })
      .Case([&](launch::PiecesOp pieces) { return place(Kind::Pieces, numberOf(pieces)); })
      .Case([&](launch::PartialsOp partials) {
        list.partialBytes = std::max(list.partialBytes, static_cast<int64_t>(partials.getBytes()));
        return place(Kind::Partials);
      })
      .Case([&](launch::PartialCountersOp counters) {
        list.partialCounters =
            std::max(list.partialCounters, static_cast<int64_t>(counters.getCount()));
        return place(Kind::PartialCounters);
      })
      .Case([&](launch::CacheOp cache) {
        return place(Kind::Cache, static_cast<int64_t>(cache.getOffset()));
      })
      .Case([&](memref::GetGlobalOp load) {
        auto global = symbols.lookup<memref::GlobalOp>(load.getName());
        return place(Kind::Weights,
                     global->getAttrOfType<IntegerAttr>(launch::kOffsetAttr).getInt());
      })
      .Case([&](memref::SubViewOp part) { return partOf(op, part); })
      // The part of the logits that a rank has. The runtime knows where it is.
      .Case([&](memref::ReinterpretCastOp part) -> FailureOr<Argument> {
        if (nameOf(part.getSource()) != "logits")
          return op->emitOpError("takes a rank's part of what are not the logits");
        return place(Kind::Logits);
      })
      .Case([&](memref::DimOp) { return place(Kind::Rows); })
      .Case([&](arith::MulIOp times) -> FailureOr<Argument> {
        if (multipleOf(operand).first.getDefiningOp<memref::DimOp>())
          return place(Kind::Rows);
        return op->emitOpError("takes a product, which is no number of rows");
      })
      .Case([&](arith::ConstantOp number) -> FailureOr<Argument> {
        if (isPointer)
          return constant(number.getValue());
        int64_t value = cast<IntegerAttr>(number.getValue()).getInt();
        if (value > std::numeric_limits<int32_t>::max())
          return op->emitOpError("passes ") << value << ", which is no i32";
        Argument argument;
        argument.integer = value;
        return argument;
      })
      .Default([&](Operation *defining) {
        return op->emitOpError("takes what ") << defining->getName() << " makes";
      });
}

LogicalResult LaunchListBuilder::addLaunch(launch::KernelOp op,
                                           std::vector<formats::Launch> &launches) {
  FailureOr<size_t> kernel = kernelOf(op);
  if (failed(kernel))
    return failure();
  formats::Launch launch;
  launch.site = op.getSite().str();
  launch.phase = static_cast<formats::Phase>(op.getPhase());
  launch.kernel = *kernel;
  if (auto rows = op.getRows())
    std::tie(launch.minRows, launch.maxRows) = std::pair((*rows)[0], (*rows)[1]);
  const auto &parameters = list.kernels[*kernel].parameters;
  for (auto [operand, parameter] : llvm::zip_equal(op.getArguments(), parameters)) {
    bool isPointer = parameter == formats::LaunchKernel::Parameter::Pointer;
    FailureOr<Argument> argument = argumentOf(op, operand, isPointer);
    if (failed(argument))
      return failure();
    if (argument->kind == Kind::Pieces)
      launch.over = formats::Launch::Over::Pieces;
    if (areLogitRows(operand))
      launch.over = formats::Launch::Over::LogitRows;
    if (argument->kind == Kind::Rows)
      launch.multiple = multipleOf(operand).second;
    // Other floats are padded, by what nobody writes.
    auto memory = dyn_cast<MemRefType>(operand.getType());
    const size_t number = launch.arguments.size();
    if (!launch.result && memory && memory.getRank() == 2 && memory.getElementType().isF32() &&
        (operand.getDefiningOp<launch::BufferOp>() || argument->kind == Kind::Logits) &&
        op.isWritten(static_cast<int64_t>(number)))
      launch.result = {number, memory.getDimSize(1)};
    launch.arguments.push_back(*argument);
  }
  launches.push_back(std::move(launch));
  return success();
}

/// One queue does a step in its order: behind its start a collective is done for all that follows.
LogicalResult LaunchListBuilder::addCollective(launch::CollectiveOp op,
                                               std::vector<formats::Launch> &launches) {
  if (failed(launch::addCollective(op, list.collectives)))
    return failure();
  FailureOr<Argument> memory = argumentOf(op, op.getMemory(), /*isPointer=*/true);
  if (failed(memory))
    return failure();
  formats::Launch launch;
  launch.site = op.getSite().str();
  launch.phase = formats::Phase::Comm;
  launch.collective = op.getId();
  auto buffer = op.getMemory().getDefiningOp<launch::BufferOp>();
  if (memory->kind == Kind::Logits || (buffer && areLogitRows(buffer.getRows())))
    launch.over = formats::Launch::Over::LogitRows;
  launch.arguments.push_back(*memory);
  launches.push_back(std::move(launch));
  return success();
}

LogicalResult LaunchListBuilder::add(func::FuncOp function,
                                     std::vector<formats::Launch> &launches) {
  step = function;
  for (Operation &op : function.front()) {
    if (auto kernel = dyn_cast<launch::KernelOp>(op))
      if (failed(addLaunch(kernel, launches)))
        return failure();
    if (auto collective = dyn_cast<launch::CollectiveOp>(op))
      if (failed(addCollective(collective, launches)))
        return failure();
  }
  return success();
}

/// Steps take turns with it.
static void takeMemory(formats::LaunchList &list, func::FuncOp step) {
  auto bytes = [&](StringRef name) { return step->getAttrOfType<IntegerAttr>(name).getInt(); };
  list.arenaBytes =
      std::max(list.arenaBytes, bytes(launch::kArenaBytesAttr) + bytes(launch::kScratchBytesAttr));
  list.stateBytes = std::max(list.stateBytes, bytes(launch::kCounterBytesAttr));
}

FailureOr<formats::LaunchList> easyquant::gpu::toLaunchList(ModuleOp module) {
  LaunchListBuilder builder(module);
  auto forward = module.lookupSymbol<func::FuncOp>(launch::kForward);
  if (!forward || !forward->hasAttr(launch::kArenaBytesAttr))
    return module.emitError("expected a step @forward whose buffers are placed");
  formats::LaunchList &list = builder.list;
  list.maxRows = forward->getAttrOfType<IntegerAttr>(launch::kMaxRowsAttr).getInt();
  takeMemory(list, forward);
  if (auto cache = launch::cacheOf(forward->getAttr(launch::kCacheAttr)))
    list.cache = cache->sizes;
  if (failed(builder.add(forward, list.launches)))
    return failure();
  if (auto restore = module.lookupSymbol<func::FuncOp>(launch::kRestore))
    if (failed(builder.add(restore, list.restore)))
      return failure();
  if (auto draft = module.lookupSymbol<func::FuncOp>(launch::kDraft)) {
    takeMemory(list, draft);
    if (failed(builder.add(draft, list.drafting.emplace().launches)))
      return failure();
  }
  return list;
}
