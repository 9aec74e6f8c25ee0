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
  void add(Operation *op, const Twine &what, int64_t extent, int64_t unit = 1) {
    extents.push_back({op->getLoc(), what.str(), extent, unit});
  }

  ModuleOp module;
  int64_t degree, mostDegree = 1;
  llvm::DenseMap<Operation *, Split> &linears = sharing.linears;
  llvm::DenseSet<Value> &sharded = sharing.apart;
  llvm::DenseSet<Operation *> followed; ///< functions
  std::vector<Extent> extents;
};

} // namespace

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
  const int64_t n = lm::columns(op->getResult(0)), k = lm::columns(op->getOperand(0));
  auto features = [&](int64_t count, StringRef side) {
    return site + " has " + std::to_string(count) + " " + side.str() + " features";
  };
  if (isLogits(op->getResult(0))) {
    // Where it cannot be cut every rank computes all of it.
    linears[op] = n % degree == 0 ? Split::Vocabulary : Split::None;
    return success();
  }
  if (!sharded.contains(op->getOperand(0))) {
    if (isReadWhole(op->getResult(0)))
      return success();
    linears[op] = Split::Columns;
    sharded.insert(op->getResult(0));
    const int64_t unit = outputUnitOf(op);
    add(op,
        features(n, "output") +
            (unit > 1 ? " of experts in panels of " + std::to_string(unit) : ""),
        n, unit);
    return success();
  }
  linears[op] = Split::Rows;
  const int64_t unit =
      quantized ? unitOf(quantized) : plannedUnitOf(cast<QuantizableOpInterface>(op));
  add(op, features(k, "input") + (unit > 1 ? " in groups of " + std::to_string(unit) : ""), k,
      unit);
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
  sharded.insert(op.getOutput());
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
    const bool isOwn = sharded.contains(operand);
    if (isFirst && isOwn)
      sharded.insert(argument);
    else if (!isFirst && isOwn != sharded.contains(argument))
      return failToShare(call);
  }
  if (isFirst && failed(follow(callee)))
    return failure();
  for (auto [given, result] :
       llvm::zip_equal(callee.front().getTerminator()->getOperands(), call.getResults()))
    if (sharded.contains(given))
      sharded.insert(result);
  return success();
}

/// Terms of ranks are added where all of them are: choices of a row, and what all rows have.
LogicalResult Analysis::followCombine(lm::CombineOp op) {
  auto isTerm = [&](Value value) {
    Operation *linear = value.getDefiningOp();
    return linear && linears.lookup(linear) == Split::Rows;
  };
  if (llvm::any_of(op->getOperands(), [&](Value value) { return sharded.contains(value); }))
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
  auto isSharded = [&](Value value) { return sharded.contains(value); };
  if (llvm::none_of(op->getOperands(), isSharded))
    return success();
  return llvm::TypeSwitch<Operation *, LogicalResult>(op)
      .Case<lm::AttentionOp, equant::AttentionOp>([&](auto op) {
        followAttention(op);
        return success();
      })
      .Case<lm::RopeOp, lm::HeadRmsNormOp, lm::GluOp, lm::GeluOp>([&](Operation *op) {
        sharded.insert(op->getResult(0));
        return success();
      })
      .Case([&](HadamardOp hadamard) {
        const int64_t columns = lm::columns(hadamard.getInput()),
                      block = hadamard.getBlockAttr().getInt();
        sharded.insert(hadamard.getOutput());
        add(hadamard,
            "site '" + siteOf(*hadamard->getUsers().begin()) + "' has " + std::to_string(columns) +
                " input features that are rotated in blocks of " + std::to_string(block) +
                " (a lower hadamard-block makes these smaller)",
            columns, block);
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
      .Case([&](lm::SplitOp split) -> LogicalResult {
        Operation *linear = split.getInput().getDefiningOp();
        if (degree == 1)
          return success();
        return emitError(linear->getLoc())
               << "site '" << siteOf(linear)
               << "' is one weight for several projections, which ranks cannot share; legal "
                  "degrees of tensor parallelism: 1";
      })
      .Case([&](func::ReturnOp result) {
        // Keys and values that other layers read.
        return result->getParentOfType<func::FuncOp>().isPrivate() ? success()
                                                                   : failToShare(result);
      })
      .Default([&](Operation *op) { return failToShare(op); });
}

LogicalResult Analysis::follow(func::FuncOp function) {
  if (function.isExternal() || !followed.insert(function).second)
    return success();
  if (!llvm::hasSingleElement(function.getBody()))
    return function.emitOpError("expected a body of one block");
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
