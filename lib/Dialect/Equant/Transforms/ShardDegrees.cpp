//===- ShardDegrees.cpp - What ranks can share ----------------------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "ShardDegrees.h"

#include "easyquant/Dialect/Equant/IR/TensorParallel.h"

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
  explicit Analysis(int64_t degree) : degree(degree) {}

  LogicalResult follow(func::FuncOp function);
  LogicalResult check(ModuleOp module) const;

  ShardedLinears linears;

private:
  LogicalResult follow(Operation *op);
  LogicalResult followLinear(Operation *op);
  template <typename AttentionLike> void followAttention(AttentionLike op);
  void add(Operation *op, const Twine &what, int64_t extent, int64_t unit = 1) {
    extents.push_back({op->getLoc(), what.str(), extent, unit});
  }

  int64_t degree, mostDegree = 1;
  llvm::DenseSet<Value> sharded; ///< columns of these are a rank's own
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
  if (llvm::any_of(op->getUsers(), llvm::IsaPred<func::ReturnOp>)) {
    // Where it cannot be cut every rank computes all of it.
    linears[op] = n % degree == 0 ? Split::Vocabulary : Split::None;
    return success();
  }
  if (!sharded.contains(op->getOperand(0))) {
    linears[op] = Split::Columns;
    sharded.insert(op->getResult(0));
    add(op, features(n, "output"), n);
    return success();
  }
  bool hasBias = quantized ? bool(quantized.getBias()) : bool(cast<lm::LinearOp>(op).getBias());
  if (hasBias && degree > 1)
    return op->emitOpError() << site << " has a bias behind a sum over ranks, for which there is "
                             << "no kernel yet; compile it for one rank";
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

LogicalResult Analysis::follow(Operation *op) {
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
      .Default([&](Operation *op) -> LogicalResult {
        if (degree == 1)
          return success();
        return op->emitOpError("reads columns that ranks would have apart: tensor parallelism "
                               "knows no way to share it");
      });
}

LogicalResult Analysis::follow(func::FuncOp function) {
  if (!llvm::hasSingleElement(function.getBody()))
    return function.emitOpError("expected a body of one block");
  for (Operation &op : function.front())
    if (failed(follow(&op)))
      return failure();
  return success();
}

LogicalResult Analysis::check(ModuleOp module) const {
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

FailureOr<ShardedLinears> easyquant::equant::checkDegree(ModuleOp module, int64_t degree) {
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
  WalkResult routed = module.walk([&](lm::RouteOp route) -> WalkResult {
    if (degree == 1)
      return WalkResult::advance();
    return emitError(route.getLoc())
           << "a mixture of experts is not shared out among ranks yet; compile it for one rank";
  });
  if (routed.wasInterrupted())
    return failure();
  // No test has shared out such a cache.
  WalkResult unlike = module.walk([&](Operation *op) -> WalkResult {
    if (degree == 1 || !isa<lm::AttentionOp, AttentionOp>(op) ||
        cast<lm::KVCacheType>(op->getOperand(3).getType()).isUniform())
      return WalkResult::advance();
    return emitError(op->getLoc())
           << "layers whose heads differ in number or size are not shared out among ranks yet; "
              "compile the model for one rank";
  });
  if (unlike.wasInterrupted())
    return failure();
  for (auto layer : module.getOps<func::FuncOp>())
    if (degree > 1 && layer.isPrivate() &&
        llvm::count_if(layer.getArgumentTypes(), lm::isActivationType) > 1)
      return emitError(layer.getLoc())
             << "layers that read keys and values of others, or embeddings of their own, are not "
                "shared out among ranks yet; compile the model for one rank";
  Analysis analysis(degree);
  for (auto function : module.getOps<func::FuncOp>())
    if (!function.isExternal() && failed(analysis.follow(function)))
      return failure();
  if (failed(analysis.check(module)))
    return failure();
  return std::move(analysis.linears);
}
