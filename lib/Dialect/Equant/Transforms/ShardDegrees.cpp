//===- ShardDegrees.cpp - What ranks can share ----------------------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "ShardDegrees.h"

#include "easyquant/Dialect/Equant/IR/TensorParallel.h"
#include "easyquant/Numerics/Packing.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "llvm/ADT/TypeSwitch.h"

#include <fmt/ranges.h>

#include <numeric>

using namespace mlir;
using namespace easyquant;
using namespace easyquant::equant;

namespace {

/// Something that ranks share in equal parts of whole units.
struct Extent {
  Location loc;
  std::string what; ///< "site 'a' has 576 input features in groups of 128"
  int64_t extent, unit = 1;

  bool isSharedBy(int64_t ranks) const { return ranks == 1 || extent % (ranks * unit) == 0; }
};

/// Follows activations that are a rank's own through the functions of a module.
class Analysis {
public:
  Analysis(ModuleOp module, int64_t degree) : module(module), degree(degree) {}

  LogicalResult follow();
  LogicalResult check() const;

  Sharing sharing;

private:
  LogicalResult follow(func::FuncOp function);
  LogicalResult follow(Operation *op);
  LogicalResult followCall(func::CallOp call);
  LogicalResult followCombine(lm::CombineOp op);
  LogicalResult failToShare(Operation *op) const;
  LogicalResult followLinear(Operation *op);
  template <typename AttentionLike> void followAttention(AttentionLike op);
  void followDelta(lm::GatedDeltaOp op);
  void followState(Operation *op, lm::RecurrentType state, uint64_t first);
  void findParts(func::FuncOp function);
  void setParts(Value activation, const ColumnParts &parts) {
    if (parts.size() > 1)
      sharing.parts[activation] = parts;
  }
  void add(Operation *op, const Twine &what, int64_t extent, int64_t unit = 1) {
    extents.push_back({op->getLoc(), what.str(), extent, unit});
  }

  ModuleOp module;
  int64_t degree, mostDegree = 1;
  llvm::DenseSet<Operation *> followed; ///< functions
  std::vector<Extent> extents;
};

} // namespace

ColumnParts Sharing::partsOf(Value activation) const {
  auto found = parts.find(activation);
  return found != parts.end() ? found->second : ColumnParts{lm::columns(activation)};
}

bool easyquant::equant::isByColumn(Operation *op) {
  return isa<lm::RopeOp, lm::HeadRmsNormOp, lm::RmsNormOp, lm::GluOp, lm::GeluOp, lm::Conv1dOp,
             HadamardOp>(op);
}

/// Value heads that come in turns with the key heads that they read: a rank has a part of each
/// turn.
static ColumnParts turnsOf(lm::GatedDeltaOp delta, Value activation) {
  const auto keyHeads = static_cast<int64_t>(delta.getKeyHeads()),
             valueHeads = static_cast<int64_t>(delta.getValueHeads());
  const int64_t turns = delta.getTiled() ? valueHeads / keyHeads : 1;
  return ColumnParts(static_cast<size_t>(turns), lm::columns(activation) / turns);
}

/// What is taken apart behind an op is apart before it, and heads that come in turns do so in all
/// that is computed of them.
void Analysis::findParts(func::FuncOp function) {
  auto isActivation = [](Value value) { return lm::isActivationType(value.getType()); };
  for (Operation &op : function.front()) {
    if (auto delta = dyn_cast<lm::GatedDeltaOp>(op))
      setParts(delta.getOutput(), turnsOf(delta, delta.getOutput()));
    else if (isByColumn(&op))
      for (Value operand : llvm::make_filter_range(op.getOperands(), isActivation))
        setParts(op.getResult(0), sharing.partsOf(operand));
  }
  for (Operation &op : llvm::reverse(function.front())) {
    if (auto delta = dyn_cast<lm::GatedDeltaOp>(op)) {
      for (Value operand : {delta.getValue(), delta.getDecay(), delta.getStrength()})
        setParts(operand, turnsOf(delta, operand));
    } else if (auto split = dyn_cast<lm::SplitOp>(op)) {
      ColumnParts parts;
      for (Value output : split.getOutputs())
        llvm::append_range(parts, sharing.partsOf(output));
      setParts(split.getInput(), parts);
    } else if (isByColumn(&op)) {
      for (Value operand : llvm::make_filter_range(op.getOperands(), isActivation))
        setParts(operand, sharing.partsOf(op.getResult(0)));
    }
  }
}

static std::string siteOf(Operation *op) {
  if (auto linear = dyn_cast<lm::LinearOp>(op))
    return linear.getSite().str();
  auto sites = op->getAttrOfType<ArrayAttr>("sites");
  return sites ? cast<StringAttr>(sites[0]).str() : op->getName().getStringRef().str();
}

/// Whole groups stay together, whole super-groups of scales of two levels, and groups of inputs.
static int64_t unitOf(equant::LinearOp linear) {
  SchemeAttr input = linear.getInputSchemeAttr();
  const int64_t unit = linear.getWeight().getType().getColumnUnit();
  return input && input.getGroupSize() ? std::lcm(unit, input.getGroupSize()) : unit;
}

/// Before there are codes: groups of inputs that are planned.
static int64_t plannedUnitOf(QuantizableOpInterface linear) {
  PlanAttr plan = getPlan(linear);
  return plan && plan.getInput() ? std::max<int64_t>(plan.getInput().getTokenGroup(), 1) : 1;
}

/// Kernels read packed weights of experts in whole panels. Experts that are none stay float.
static int64_t outputUnitOf(Operation *linear) {
  const int64_t n = lm::columns(linear->getResult(0));
  auto quantized = dyn_cast<equant::LinearOp>(linear);
  auto plain = dyn_cast<lm::LinearOp>(linear);
  const bool hasExperts = quantized ? bool(quantized.getExperts()) : bool(plain.getExperts());
  const bool isPacked = quantized || getPlan(cast<QuantizableOpInterface>(linear));
  return hasExperts && isPacked && n % numerics::kPanelRows == 0 ? numerics::kPanelRows : 1;
}

/// Does it lead to what the model gives, past what is done to logits?
static bool isLogits(Value value) {
  return llvm::any_of(value.getUsers(), [](Operation *user) {
    if (isa<lm::SoftCapOp, lm::MultiplyOp>(user))
      return isLogits(user->getResult(0));
    return isa<func::ReturnOp>(user) && !user->getParentOfType<func::FuncOp>().isPrivate();
  });
}

/// Has every rank to know all columns of what a linear gives? Those are the logits of a router, the
/// gate of a shared expert, and what is added to, or gates, rows that ranks have whole.
static bool isReadWhole(Value value) {
  return llvm::any_of(value.getUses(), [](OpOperand &use) {
    Operation *user = use.getOwner();
    if (isa<lm::MultiplyOp, lm::RmsNormOp, lm::HeadRmsNormOp>(user))
      return isReadWhole(user->getResult(0));
    if (auto combine = dyn_cast<lm::CombineOp>(user))
      return combine.getShared().size() == 2 && combine.getShared()[1] == use.get();
    if (auto glu = dyn_cast<lm::GluOp>(user))
      return isa<BlockArgument>(glu.getGate() == use.get() ? glu.getUp() : glu.getGate());
    return isa<lm::RouteOp, lm::AddOp>(user);
  });
}

bool easyquant::equant::isSummedLater(Operation *linear) {
  Value output = linear->getResult(0);
  return !output.use_empty() && llvm::all_of(output.getUsers(), [&](Operation *user) {
    auto combine = dyn_cast<lm::CombineOp>(user);
    return combine && (combine.getInput() == output ||
                       (!combine.getShared().empty() && combine.getShared().front() == output));
  });
}

LogicalResult Analysis::followLinear(Operation *op) {
  const std::string site = "site '" + siteOf(op) + "'";
  auto quantized = dyn_cast<equant::LinearOp>(op);
  if (isa<equant::PackedLinearOp>(op) || (quantized && quantized.getSites().size() > 1))
    return op->emitOpError() << site << " is fused or packed; expected linears as they are before "
                             << "equant-fuse-shared-input";
  const int64_t n = lm::columns(op->getResult(0));
  auto addFeatures = [&](Value activation, StringRef side, int64_t unit, StringRef units) {
    const ColumnParts parts = sharing.partsOf(activation);
    std::string what =
        site + " has " + std::to_string(lm::columns(activation)) + " " + side.str() + " features";
    if (parts.size() > 1)
      what += fmt::format(" in parts of {}", fmt::join(parts, ", "));
    if (unit > 1)
      what += units.str() + std::to_string(unit);
    for (int64_t part : parts)
      add(op, what, part, unit);
  };
  if (isLogits(op->getResult(0))) {
    // Where it cannot be cut every rank computes all of it.
    sharing.linears[op] = n % degree == 0 ? Split::Vocabulary : Split::None;
    return success();
  }
  if (!sharing.sharded.contains(op->getOperand(0))) {
    if (isReadWhole(op->getResult(0)))
      return success();
    sharing.linears[op] = Split::Columns;
    sharing.sharded.insert(op->getResult(0));
    addFeatures(op->getResult(0), "output", outputUnitOf(op), " of experts in panels of ");
    return success();
  }
  sharing.linears[op] = Split::Rows;
  addFeatures(op->getOperand(0), "input",
              quantized ? unitOf(quantized) : plannedUnitOf(cast<QuantizableOpInterface>(op)),
              " in groups of ");
  return success();
}

template <typename AttentionLike> void Analysis::followAttention(AttentionLike op) {
  const std::string layer = "layer " + std::to_string(op.getLayer()) + " has ";
  const auto heads = static_cast<int64_t>(op.getNumHeads());
  const auto kvHeads = static_cast<int64_t>(op.getNumKvHeads());
  // Rather than of the linears that make them, one speaks of heads.
  extents.insert(extents.begin(),
                 {{op->getLoc(), layer + std::to_string(heads) + " heads", heads},
                  {op->getLoc(), layer + std::to_string(kvHeads) + " key-value heads", kvHeads}});
  mostDegree = std::max(mostDegree, kvHeads);
  sharing.sharded.insert(op.getOutput());
}

static std::string placeOf(Operation *op) {
  auto name = dyn_cast<NameLoc>(op->getLoc());
  return name ? "'" + name.getName().str() + "'" : op->getName().getStringRef().str();
}

/// Value heads stay with their key head.
void Analysis::followDelta(lm::GatedDeltaOp op) {
  const auto keyHeads = static_cast<int64_t>(op.getKeyHeads());
  extents.insert(
      extents.begin(),
      {op->getLoc(), placeOf(op) + " has " + std::to_string(keyHeads) + " key heads", keyHeads});
  mostDegree = std::max(mostDegree, keyHeads);
  sharing.sharded.insert(op.getOutput());
}

/// What each layer keeps of a sequence begins at the same place of every rank's state.
void Analysis::followState(Operation *op, lm::RecurrentType state, uint64_t first) {
  add(op,
      placeOf(op) + " keeps a part of a recurrent state of " + std::to_string(state.getValues()) +
          " numbers",
      state.getValues());
  add(op, placeOf(op) + " keeps a recurrent state from number " + std::to_string(first) + " on",
      static_cast<int64_t>(first));
}

LogicalResult Analysis::failToShare(Operation *op) const {
  if (degree == 1)
    return success();
  return op->emitOpError("reads columns that ranks would have apart: tensor parallelism knows no "
                         "way to share it");
}

/// The layer is followed by what its only call gives it.
LogicalResult Analysis::followCall(func::CallOp call) {
  auto callee = module.lookupSymbol<func::FuncOp>(call.getCallee());
  if (!callee || callee.isExternal())
    return success();
  const bool isFirst = !followed.contains(callee);
  for (auto [operand, argument] : llvm::zip_equal(call.getOperands(), callee.getArguments())) {
    const bool isOwn = sharing.sharded.contains(operand);
    if (isFirst && isOwn)
      sharing.sharded.insert(argument);
    else if (!isFirst && isOwn != sharing.sharded.contains(argument))
      return failToShare(call);
  }
  if (isFirst && failed(follow(callee)))
    return failure();
  for (auto [given, result] :
       llvm::zip_equal(callee.front().getTerminator()->getOperands(), call.getResults()))
    if (sharing.sharded.contains(given))
      sharing.sharded.insert(result);
  return success();
}

/// Terms of ranks are added where all of them are: choices of a row, and what all rows have.
LogicalResult Analysis::followCombine(lm::CombineOp op) {
  auto isTerm = [&](Value value) {
    Operation *linear = value.getDefiningOp();
    return linear && sharing.linears.lookup(linear) == Split::Rows;
  };
  if (llvm::any_of(op->getOperands(), [&](Value value) { return sharing.sharded.contains(value); }))
    return failToShare(op);
  const bool isApart = isTerm(op.getInput());
  return op.getShared().empty() || isTerm(op.getShared().front()) == isApart ? success()
                                                                             : failToShare(op);
}

LogicalResult Analysis::follow(Operation *op) {
  if (auto call = dyn_cast<func::CallOp>(op))
    return followCall(call);
  if (auto combine = dyn_cast<lm::CombineOp>(op))
    return followCombine(combine);
  if (isa<equant::LinearOp, equant::PackedLinearOp, lm::LinearOp>(op))
    return followLinear(op);
  auto isSharded = [&](Value value) { return sharing.sharded.contains(value); };
  if (llvm::none_of(op->getOperands(), isSharded)) {
    if (degree > 1 && isa<lm::Conv1dOp, lm::GatedDeltaOp>(op))
      return op->emitOpError("keeps a state of columns that all ranks have: tensor parallelism "
                             "knows no way to share it");
    return success();
  }
  return llvm::TypeSwitch<Operation *, LogicalResult>(op)
      .Case<lm::AttentionOp, equant::AttentionOp>([&](auto op) {
        followAttention(op);
        return success();
      })
      .Case([&](lm::GatedDeltaOp delta) {
        followDelta(delta);
        followState(delta, delta.getState().getType(), delta.getFirst());
        return success();
      })
      .Case([&](HadamardOp hadamard) {
        const int64_t block = hadamard.getBlockAttr().getInt();
        sharing.sharded.insert(hadamard.getOutput());
        for (int64_t columns : sharing.partsOf(hadamard.getInput()))
          add(hadamard,
              "site '" + siteOf(*hadamard->getUsers().begin()) + "' has " +
                  std::to_string(columns) + " input features that are rotated in blocks of " +
                  std::to_string(block) + " (a lower hadamard-block makes these smaller)",
              columns, block);
        return success();
      })
      .Case([&](lm::SplitOp split) {
        sharing.sharded.insert_range(split.getOutputs());
        return success();
      })
      .Case([&](GatherColumnsOp gather) -> LogicalResult {
        if (degree == 1)
          return success();
        return emitError(gather.getLoc())
               << "site '" << siteOf(*gather->getUsers().begin())
               << "' reads columns in the order of its groups (act-order without static groups), "
                  "which ranks would have apart; compile it for one rank, or give a scheme that "
                  "quantizes anew";
      })
      .Case([&](func::ReturnOp result) {
        // Keys and values that other layers read.
        return result->getParentOfType<func::FuncOp>().isPrivate() ? success()
                                                                   : failToShare(result);
      })
      .Default([&](Operation *op) -> LogicalResult {
        if (auto convolution = dyn_cast<lm::Conv1dOp>(op))
          followState(op, convolution.getState().getType(), convolution.getFirst());
        if (isByColumn(op)) {
          sharing.sharded.insert(op->getResult(0));
          return success();
        }
        return failToShare(op);
      });
}

LogicalResult Analysis::follow(func::FuncOp function) {
  if (function.isExternal() || !followed.insert(function).second)
    return success();
  if (!llvm::hasSingleElement(function.getBody()))
    return function.emitOpError("expected a body of one block");
  findParts(function);
  for (Operation &op : function.front())
    if (failed(follow(&op)))
      return failure();
  return success();
}

/// Layers are followed where they are called.
LogicalResult Analysis::follow() {
  for (bool isPrivate : {false, true})
    for (auto function : module.getOps<func::FuncOp>())
      if (function.isPrivate() == isPrivate && failed(follow(function)))
        return failure();
  return success();
}

LogicalResult Analysis::check() const {
  auto bad = llvm::find_if(extents, [&](const Extent &e) { return !e.isSharedBy(degree); });
  if (bad == extents.end())
    return success();
  InFlightDiagnostic error = emitError(bad->loc) << bad->what << ", which " << degree
                                                 << " ranks cannot share; legal degrees of tensor "
                                                    "parallelism: ";
  SmallVector<int64_t> legal;
  for (int64_t ranks = 1; ranks <= mostDegree; ++ranks)
    if (llvm::all_of(extents, [&](const Extent &extent) { return extent.isSharedBy(ranks); }))
      legal.push_back(ranks);
  llvm::interleaveComma(legal, error);
  return error;
}

FailureOr<Sharing> easyquant::equant::checkDegree(ModuleOp module, int64_t degree) {
  if (degree < 1 || degree > kMaxRanks)
    return module.emitError() << "degree of tensor parallelism is " << degree << "; expected 1 to "
                              << kMaxRanks;
  // What follows from the range of whole rows: each rank would see its columns alone.
  WalkResult apart =
      module.walk(
          [&](LinearOp linear) -> WalkResult {
            SchemeAttr input = linear.getInputSchemeAttr();
            if (degree == 1 || !input || !input.getSinks() || input.hasSinksAroundZero())
              return WalkResult::advance();
            return linear.emitError()
                   << "site '" << siteOf(linear)
                   << "' has sinks apart in a range that is not around 0, which ranks do not find "
                      "together; take symmetric activations or --sinks none";
          });
  if (apart.wasInterrupted())
    return failure();
  Analysis analysis(module, degree);
  if (failed(analysis.follow()) || failed(analysis.check()))
    return failure();
  return std::move(analysis.sharing);
}
