//===- LaunchDialect.cpp - The launch dialect -----------------------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "easyquant/Dialect/Launch/IR/Launch.h"

#include "easyquant/Formats/Manifest.h"
#include "easyquant/Formats/Phase.h"
#include "easyquant/Support/AttributeJson.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/GPU/IR/GPUDialect.h"
#include "mlir/Dialect/LLVMIR/LLVMTypes.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/IR/Builders.h"
#include "mlir/IR/DialectImplementation.h"
#include "mlir/Interfaces/FunctionInterfaces.h"

using namespace mlir;
using namespace easyquant;
using namespace easyquant::launch;

#include "easyquant/Dialect/Launch/IR/LaunchDialect.cpp.inc"
#include "easyquant/Dialect/Launch/IR/LaunchEnums.cpp.inc"

#define GET_OP_CLASSES
#include "easyquant/Dialect/Launch/IR/LaunchOps.cpp.inc"

// An attribute's number is that of the enumeration of the same name in easyquant/Formats.
static constexpr bool areSame(std::span<const char *const> ours,
                              std::span<const char *const> theirs) {
  return std::ranges::equal(ours, theirs,
                            [](std::string_view a, std::string_view b) { return a == b; });
}
static_assert(areSame(KernelOp::kPhaseNames, formats::kPhaseNames));
static_assert(areSame(CollectiveOp::kCollectiveCallNames, formats::kCollectiveCallNames));
static_assert(areSame(CollectiveOp::kReductionNames, formats::kReductionNames));

void LaunchDialect::initialize() {
  addOperations<
#define GET_OP_LIST
#include "easyquant/Dialect/Launch/IR/LaunchOps.cpp.inc"
      >();
}

int64_t easyquant::launch::rowBytes(MemRefType type) {
  int64_t elements = 1;
  for (int64_t extent : type.getShape().drop_front())
    elements *= extent;
  return llvm::divideCeil(elements * type.getElementTypeBitWidth(), 8);
}

//===----------------------------------------------------------------------===//
// Attributes of steps, constants and kernels
//===----------------------------------------------------------------------===//

std::optional<formats::Cache> easyquant::launch::cacheOf(Attribute attribute) {
  if (!isa_and_present<DictionaryAttr>(attribute))
    return std::nullopt;
  Result<formats::Cache> cache = formats::readPart<formats::Cache>(toJson(attribute), kCacheAttr);
  if (!cache || std::max(cache->sizes.pageBytes, cache->sizes.windowBytes) > kMaxBytes)
    return std::nullopt;
  return *cache;
}

std::optional<int64_t> easyquant::launch::recurrentValuesOf(func::FuncOp step) {
  for (BlockArgument argument : step.getArguments()) {
    auto name = step.getArgAttrOfType<StringAttr>(argument.getArgNumber(), kArgumentAttr);
    auto memory = dyn_cast<MemRefType>(argument.getType());
    if (name && name == "recurrent" && memory && memory.getRank() == 2)
      return memory.getDimSize(1);
  }
  return std::nullopt;
}

LogicalResult LaunchDialect::verifyOperationAttribute(Operation *op, NamedAttribute attribute) {
  StringRef name = attribute.getName();
  Attribute value = attribute.getValue();
  auto require = [&](bool holds, const Twine &expected) -> LogicalResult {
    if (holds)
      return success();
    return op->emitOpError() << name << " is " << value << "; expected " << expected;
  };
  auto isInteger = [&](int64_t low, int64_t high) {
    auto number = dyn_cast<IntegerAttr>(value);
    return number && number.getType().isSignlessInteger(64) && number.getInt() >= low &&
           number.getInt() <= high;
  };
  if (llvm::is_contained(
          {kMaxRowsAttr, kCacheAttr, kArenaBytesAttr, kScratchBytesAttr, kCounterBytesAttr},
          name)) {
    auto step = dyn_cast<func::FuncOp>(op);
    if (!step || !llvm::hasSingleElement(step.getBody()))
      return op->emitOpError() << name << " is of steps; expected a func.func of one block";
  }
  if (name == kMaxRowsAttr)
    return require(isInteger(1, kMaxRows), "an i64 from 1 to " + Twine(kMaxRows));
  if (llvm::is_contained(
          {kArenaBytesAttr, kScratchBytesAttr, kCounterBytesAttr, kOffsetAttr, kSharedBytesAttr},
          name))
    return require(isInteger(0, kMaxBytes), "bytes, an i64 from 0 to " + Twine(kMaxBytes));
  if (name == kThreadsAttr)
    return require(isInteger(1, 1024), "the threads of a block, an i64 from 1 to 1024");
  if (name == kGridAttr) {
    auto grid = dyn_cast<DenseI64ArrayAttr>(value);
    return require(grid && grid.size() == 6 &&
                       llvm::all_of(grid.asArrayRef(), [](int64_t number) { return number >= 0; }),
                   "factor and rows of a block, three times");
  }
  if (name == kParametersAttr) {
    auto names = dyn_cast<ArrayAttr>(value);
    return require(names && llvm::all_of(names, llvm::IsaPred<StringAttr>), "names of parameters");
  }
  if (name == kWritesAttr)
    return require(isa<DenseI64ArrayAttr>(value), "numbers of parameters, an array of i64s");
  if (name == kTargetAttr)
    return require(isa<StringAttr>(value), "the name of a target");
  if (name == kCacheAttr)
    return require(cacheOf(value).has_value(), "a dictionary of sizes, scheme and type");
  return op->emitOpError() << "has an unknown attribute " << name;
}

LogicalResult LaunchDialect::verifyRegionArgAttribute(Operation *op, unsigned, unsigned argument,
                                                      NamedAttribute attribute) {
  if (attribute.getName() == kArgumentAttr && isa<StringAttr>(attribute.getValue()))
    return success();
  return op->emitOpError() << "argument " << argument << " has " << attribute.getName().getValue()
                           << " = " << attribute.getValue() << "; expected " << kArgumentAttr
                           << ", the name of what is given";
}

//===----------------------------------------------------------------------===//
// Memory
//===----------------------------------------------------------------------===//

/// Memory of numbers, of as many bytes as can be addressed at most.
static bool isMemory(Type type) {
  auto memory = dyn_cast<MemRefType>(type);
  if (!memory || !memory.getElementType().isIntOrFloat())
    return false;
  int64_t elements = kMaxBytes / memory.getElementTypeBitWidth();
  for (int64_t extent : memory.getShape())
    if (!ShapedType::isDynamic(extent) && extent > 0)
      elements /= extent;
  return elements > 0;
}

LogicalResult BufferOp::verify() {
  auto type = dyn_cast<MemRefType>(getMemory().getType());
  if (!isMemory(type) || type.getRank() == 0 || !type.isDynamicDim(0) ||
      type.getNumDynamicDims() != 1 || !type.getLayout().isIdentity())
    return emitOpError("expected a memref of any number of rows, contiguous, found ")
           << getMemory().getType();
  if (getOffset() && !(*this)->getParentOp()->hasAttr(kMaxRowsAttr))
    return emitOpError("has a place in a function without ") << kMaxRowsAttr;
  return success();
}

LogicalResult CountersOp::verify() {
  if (getMemory().getType().hasStaticShape() && isMemory(getMemory().getType()))
    return success();
  return emitOpError("expected a number of counters, found ") << getMemory().getType();
}

//===----------------------------------------------------------------------===//
// What launches do
//===----------------------------------------------------------------------===//

namespace {
/// What the program's caller keeps, and ranks exchange: nothing of it is memory of the step.
struct Outside : SideEffects::Resource::Base<Outside> {
  StringRef getName() final { return "outside of the step"; }
};
} // namespace

using Effects = SmallVectorImpl<MemoryEffects::EffectInstance>;

static void addEffects(OpOperand &operand, bool isWritten, Effects &effects) {
  if (!isa<MemRefType>(operand.get().getType()))
    return;
  effects.emplace_back(MemoryEffects::Read::get(), &operand);
  if (isWritten)
    effects.emplace_back(MemoryEffects::Write::get(), &operand);
}

void KernelOp::getEffects(Effects &effects) {
  for (auto [i, operand] : llvm::enumerate(getArgumentsMutable()))
    addEffects(operand, isWritten(i), effects);
}

void HostOp::getEffects(Effects &effects) {
  for (auto [i, operand] : llvm::enumerate(getArgumentsMutable()))
    addEffects(operand, isWritten(i), effects);
  effects.emplace_back(MemoryEffects::Write::get(), Outside::get());
}

void CollectiveOp::getEffects(Effects &effects) {
  addEffects(getMemoryMutable(), /*isWritten=*/true, effects);
  effects.emplace_back(MemoryEffects::Write::get(), Outside::get());
}

void WaitOp::getEffects(Effects &effects) {
  addEffects(getMemoryMutable(), /*isWritten=*/true, effects);
  effects.emplace_back(MemoryEffects::Write::get(), Outside::get());
}

//===----------------------------------------------------------------------===//
// Launches and what they launch
//===----------------------------------------------------------------------===//

template <typename OpT>
static LogicalResult verifyMemory(OpT op, ArrayRef<int64_t> numbers, StringRef verb) {
  for (int64_t operand : numbers)
    if (operand < 0 || operand >= static_cast<int64_t>(op.getArguments().size()) ||
        !isa<MemRefType>(op.getArguments()[operand].getType()))
      return op.emitOpError("of site '")
             << op.getSite() << "' " << verb << " operand " << operand << ", which is no memory";
  return success();
}

template <typename OpT> static LogicalResult verifyOperands(OpT op) {
  for (auto [i, type] : llvm::enumerate(op.getArguments().getTypes()))
    if (isa<BaseMemRefType>(type) && !isMemory(type))
      return op.emitOpError("of site '") << op.getSite() << "' has operand " << i << " of " << type
                                         << "; expected memory of integers or floats";
  return verifyMemory(op, op.getWrites(), "writes");
}

LogicalResult HostOp::verify() {
  for (auto [i, type] : llvm::enumerate(getArguments().getTypes()))
    if (auto memory = cast<BaseMemRefType>(type);
        !memory.hasRank() || memory.getRank() < 1 || memory.getRank() > 2)
      return emitOpError("of site '") << getSite() << "' has operand " << i << " of " << type
                                      << "; expected a vector or a matrix";
  return verifyOperands(*this);
}

LogicalResult KernelOp::verify() {
  if (auto rows = getRows(); rows && ((*rows)[0] < 1 || (*rows)[1] < 0))
    return emitOpError("expected rows from 1 on, and 0 for no limit");
  if (failed(verifyOperands(*this)))
    return failure();
  return verifyMemory(*this, getShares(), "shares");
}

/// Does a kernel on a CPU take an operand that has its type, or memory of a type that says more?
static bool takesOnCPU(Type parameter, Type operand) {
  auto to = dyn_cast<MemRefType>(parameter), from = dyn_cast<MemRefType>(operand);
  if (!to || !from || to == from)
    return parameter == operand;
  SmallVector<int64_t> toStrides, fromStrides;
  int64_t toOffset, fromOffset;
  if (!memref::CastOp::areCastCompatible(operand, parameter) ||
      failed(to.getStridesAndOffset(toStrides, toOffset)) ||
      failed(from.getStridesAndOffset(fromStrides, fromOffset)))
    return false;
  auto isOpenOrSame = [](auto pair) {
    auto [to, from] = pair;
    return ShapedType::isDynamic(to) || to == from;
  };
  return llvm::all_of(llvm::zip_equal(to.getShape(), from.getShape()), isOpenOrSame) &&
         llvm::all_of(llvm::zip_equal(toStrides, fromStrides), isOpenOrSame) &&
         isOpenOrSame(std::tuple(toOffset, fromOffset));
}

/// Does a kernel on a GPU? A number that it has a pointer to is kept where the launch list says.
static bool takesOnGPU(Type parameter, Type operand) {
  if (isa<LLVM::LLVMPointerType>(parameter))
    return isa<MemRefType>(operand) || operand.isF32() || operand.isSignlessInteger(32);
  if (parameter.isSignlessInteger(32))
    return operand.isIndex() || operand == parameter;
  return parameter.isF32() && operand == parameter;
}

/// state, thread, threads: Codegen/CPU/Team.h.
static bool isTeam(ArrayRef<Type> types) {
  return types.size() == 3 && isa<LLVM::LLVMPointerType>(types[0]) && types[1].isIndex() &&
         types[2].isIndex();
}

LogicalResult KernelOp::verifySymbolUses(SymbolTableCollection &symbols) {
  auto error = [&] { return emitOpError("of site '") << getSite() << "' "; };
  Operation *callee = symbols.lookupNearestSymbolFrom(*this, getKernelAttr());
  auto function = dyn_cast_if_present<FunctionOpInterface>(callee);
  const bool isOnGPU = function && isa<mlir::gpu::GPUModuleOp>(function->getParentOp());
  if (!isOnGPU && !isa_and_present<func::FuncOp>(callee)) {
    InFlightDiagnostic problem = error() << "launches " << getKernelAttr()
                                         << "; expected a func.func or a gpu.func, found ";
    return callee ? problem << callee->getName() : problem << "nothing of that name";
  }
  ArrayRef<Type> parameters = function.getArgumentTypes();
  if (!isOnGPU) {
    if (!isTeam(parameters.take_back(3)) || function.getNumResults() != 0)
      return error() << "launches " << getKernelAttr()
                     << "; expected a function that takes a team of threads last, !llvm.ptr, "
                        "index, index, and returns nothing, found "
                     << function.getFunctionType();
    parameters = parameters.drop_back(3);
  }
  if (parameters.size() != getArguments().size())
    return error() << "gives " << getKernelAttr() << " " << getArguments().size()
                   << " operands; expected " << parameters.size();
  auto names = function->getAttrOfType<ArrayAttr>(kParametersAttr);
  auto nameOf = [&](int64_t operand) {
    return names && operand < static_cast<int64_t>(names.size())
               ? " '" + cast<StringAttr>(names[operand]).str() + "'"
               : std::string();
  };
  for (auto [i, parameter, operand] : llvm::enumerate(parameters, getArguments().getTypes()))
    if (!(isOnGPU ? takesOnGPU : takesOnCPU)(parameter, operand))
      return error() << "gives " << getKernelAttr() << " operand " << i << nameOf(i) << " of "
                     << operand << "; expected " << parameter;
  auto writes = function->getAttrOfType<DenseI64ArrayAttr>(kWritesAttr);
  for (int64_t i = 0, end = getArguments().size(); writes && i < end; ++i)
    if (const bool isWrite = llvm::is_contained(writes.asArrayRef(), i); isWrite != isWritten(i))
      return error() << (isWritten(i) ? "says that it writes" : "does not say that it writes")
                     << " operand " << i << nameOf(i) << ", which " << getKernelAttr()
                     << (isWrite ? " writes" : " only reads");
  return success();
}

//===----------------------------------------------------------------------===//
// Collectives
//===----------------------------------------------------------------------===//

/// How many launches of a kind in the block have the number and the memory.
template <typename OpT, typename Condition>
static int64_t countPartners(IntegerAttr id, Value memory, Condition isThere) {
  return llvm::count_if(memory.getUsers(), [&](Operation *user) {
    auto partner = dyn_cast<OpT>(user);
    return partner && partner.getIdAttr() == id && isThere(user);
  });
}

LogicalResult easyquant::launch::addCollective(CollectiveOp op,
                                               std::vector<formats::Collective> &collectives) {
  if (op.getId() != collectives.size())
    return op.emitOpError("of site '")
           << op.getSite() << "' is number " << op.getId() << "; expected " << collectives.size();
  auto type = cast<MemRefType>(op.getMemory().getType());
  formats::Collective &collective = collectives.emplace_back();
  collective.call = static_cast<formats::CollectiveCall>(op.getCall());
  if (auto reduction = op.getReduction())
    collective.reduction = static_cast<formats::Reduction>(*reduction);
  collective.type = type.getElementType().isF32() ? "f32" : "i32";
  collective.columns = type.getRank() == 2 ? type.getDimSize(1) : 1;
  collective.site = op.getSite().str();
  return success();
}

LogicalResult CollectiveOp::verify() {
  auto type = dyn_cast<MemRefType>(getMemory().getType());
  if (!type || type.getRank() < 1 || type.getRank() > 2 || !type.isDynamicDim(0) ||
      type.getNumDynamicDims() != 1 ||
      !(type.getElementType().isF32() || type.getElementType().isSignlessInteger(32)))
    return emitOpError("of site '")
           << getSite() << "' expected rows of f32 or i32, found " << getMemory().getType();
  const bool isReduce = getCall() == CollectiveCall::AllReduce;
  if (isReduce != getReduction().has_value() || (!isReduce && type.getRank() != 2))
    return emitOpError("of site '")
           << getSite() << "' expected an all_reduce by sum, max or min, or an all_gather of "
           << "columns, found " << stringifyCollectiveCall(getCall()) << " of " << type;
  auto isBehind = [&](Operation *wait) {
    return wait->getBlock() == (*this)->getBlock() && (*this)->isBeforeInBlock(wait);
  };
  if (countPartners<WaitOp>(getIdAttr(), getMemory(), isBehind) != 1)
    return emitOpError("of site '")
           << getSite() << "' starts number " << getId()
           << "; expected one launch.wait for it on this memory, behind it";
  return success();
}

LogicalResult WaitOp::verify() {
  auto isBefore = [&](Operation *start) {
    return start->getBlock() == (*this)->getBlock() && start->isBeforeInBlock(*this);
  };
  if (countPartners<CollectiveOp>(getIdAttr(), getMemory(), isBefore) != 1)
    return emitOpError("of site '")
           << getSite() << "' waits for number " << getId()
           << "; expected one launch.collective that starts it on this memory, before it";
  return success();
}
