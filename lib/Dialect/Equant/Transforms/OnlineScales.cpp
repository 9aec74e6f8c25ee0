//===- OnlineScales.cpp - Scales that are state of a sequence -------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "easyquant/Numerics/OnlineScales.h"
#include "easyquant/Dialect/Equant/Analysis/RecipePlans.h"
#include "easyquant/Dialect/Equant/IR/Equant.h"
#include "easyquant/Dialect/Equant/Transforms/Passes.h"
#include "easyquant/Dialect/LM/Analysis/Calls.h"
#include "easyquant/Recipe/PassOptions.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/Builders.h"
#include "mlir/IR/SymbolTable.h"
#include "llvm/ADT/MapVector.h"

namespace easyquant::equant {
#define GEN_PASS_DEF_ONLINESCALES
#include "easyquant/Dialect/Equant/Transforms/Passes.h.inc"
} // namespace easyquant::equant

using namespace mlir;
using namespace easyquant;
using namespace easyquant::equant;
namespace option = easyquant::recipe::option;

static constexpr StringLiteral kForward = "forward";

namespace {

struct OnlineScales : equant::impl::OnlineScalesBase<OnlineScales> {
  using OnlineScalesBase::OnlineScalesBase;

  void runOnOperation() override {
    places.clear();
    states.clear();
    starts.clear();
    if (failed(run()))
      signalPassFailure();
  }

private:
  LogicalResult run();
  LogicalResult findWindow();
  /// Numbers the sites of a function, and takes per token what is behind lm.rows.
  void place(func::FuncOp function);
  /// The state of a function's caller, an argument of its own.
  FailureOr<Value> stateOf(func::FuncOp function);
  FailureOr<Value> batchOf(func::FuncOp function);
  LogicalResult keep(equant::LinearOp linear, int64_t index);
  void describe();

  int64_t window = 0; ///< 0: no window
  lm::StateType stateType;
  /// Linears by the number of their site.
  SmallVector<std::pair<equant::LinearOp, int64_t>> places;
  SmallVector<Attribute> starts; ///< f64, by site
  llvm::DenseMap<Operation *, Value> states;
};

} // namespace

/// The recipe gives the window: the state of all sites is of one kind.
LogicalResult OnlineScales::findWindow() {
  SmallVector<StringRef> kinds;
  auto note = [&](DictionaryAttr request) {
    auto kind = request.getAs<StringAttr>(option::activations.info().key);
    if (kind && kind.getValue().starts_with("online") && !llvm::is_contained(kinds, kind))
      kinds.push_back(kind);
  };
  if (auto recipe = getOperation()->getAttrOfType<DictionaryAttr>(kRecipeAttr)) {
    note(recipe);
    if (auto sites = recipe.getAs<ArrayAttr>("sites"))
      for (auto site : sites.getAsRange<DictionaryAttr>())
        note(site);
  }
  if (kinds.size() > 1)
    return getOperation().emitError()
           << "the recipe has activations online-ema and online-window; expected one of them for "
              "all sites with online scales";
  window = !kinds.empty() && kinds.front() == "online-window" ? onlineWindow : int64_t(0);
  return success();
}

void OnlineScales::place(func::FuncOp function) {
  llvm::DenseSet<Value> someRows;
  llvm::DenseMap<std::pair<Value, Attribute>, int64_t> known;
  function.walk([&](Operation *op) {
    bool isOfSomeRows = isa<lm::RowsOp>(op) || llvm::any_of(op->getOperands(), [&](Value operand) {
                          return someRows.contains(operand);
                        });
    if (isOfSomeRows)
      someRows.insert(op->result_begin(), op->result_end());
    auto linear = dyn_cast<equant::LinearOp>(op);
    if (!linear || !linear.getInputScheme() || !linear.getInputScheme()->isOnline() ||
        linear.getOnline())
      return;
    if (isOfSomeRows) {
      linear.setInputSchemeAttr(SchemeAttr::perToken(&getContext(), 8));
      linear.removeInputScaleAttr();
      return;
    }
    FloatAttr start = linear.getInputScaleAttr();
    auto [it, isNew] = known.try_emplace({linear.getInput(), start}, starts.size());
    if (isNew)
      starts.push_back(Builder(&getContext()).getF64FloatAttr(start.getValueAsDouble()));
    places.push_back({linear, it->second});
  });
}

FailureOr<Value> OnlineScales::stateOf(func::FuncOp function) {
  if (Value known = states.lookup(function))
    return known;
  unsigned number = function.getNumArguments();
  if (failed(function.insertArgument(number, stateType, {}, function.getLoc())))
    return failure();
  Value state = states[function] = function.getArgument(number);
  if (function.getSymName() == kForward)
    return state;
  auto uses = SymbolTable::getSymbolUses(function, getOperation());
  auto call = uses && llvm::hasSingleElement(*uses)
                  ? dyn_cast<func::CallOp>(uses->begin()->getUser())
                  : func::CallOp();
  if (!call || !function.isPrivate())
    return function.emitOpError("has online scales, which belong to one place of a step; expected "
                                "a private function that is called once");
  FailureOr<Value> callers = stateOf(call->getParentOfType<func::FuncOp>());
  if (failed(callers))
    return failure();
  call.getOperandsMutable().append(*callers);
  return state;
}

FailureOr<Value> OnlineScales::batchOf(func::FuncOp function) {
  for (BlockArgument argument : function.getArguments())
    if (isa<lm::BatchType>(argument.getType()))
      return Value(argument);
  return function.emitOpError("has online scales, which are those of a row's sequence, but takes "
                              "no !lm.batch");
}

LogicalResult OnlineScales::keep(equant::LinearOp linear, int64_t index) {
  auto function = linear->getParentOfType<func::FuncOp>();
  FailureOr<Value> state = stateOf(function);
  if (failed(state))
    return failure();
  FailureOr<Value> batch = batchOf(function);
  if (failed(batch))
    return failure();
  OpBuilder b(linear);
  Location loc = linear.getLoc();
  // Linears that share a place read it before the first of them.
  for (Operation *user : linear.getInput().getUsers())
    if (auto track = dyn_cast<TrackOp>(user);
        track && static_cast<int64_t>(track.getIndex()) == index) {
      linear.getOnlineMutable().assign(track->getNextNode()->getResult(0));
      linear.removeInputScaleAttr();
      return success();
    }
  TrackOp::create(b, loc, linear.getInput(), *state, index);
  auto rows = RankedTensorType::get({ShapedType::kDynamic}, b.getF32Type());
  auto scale = OnlineScaleOp::create(b, loc, rows, *state, *batch, index);
  linear.getOnlineMutable().assign(scale);
  linear.removeInputScaleAttr();
  return success();
}

void OnlineScales::describe() {
  ModuleOp module = getOperation();
  Builder b(&getContext());
  module->setAttr(kOnlineAttr,
                  b.getDictionaryAttr({b.getNamedAttr("decay", b.getF64FloatAttr(onlineDecay)),
                                       b.getNamedAttr("window", b.getI64IntegerAttr(window)),
                                       b.getNamedAttr("tokens", b.getI64IntegerAttr(onlineTokens)),
                                       b.getNamedAttr("start", b.getArrayAttr(starts))}));
  recipe::OptionValues recorded;
  recorded.set(option::onlineDecay, double(onlineDecay));
  if (window > 0)
    recorded.set(option::onlineWindow, int64_t(onlineWindow));
  recorded.set(option::onlineTokens, int64_t(onlineTokens));
  recordOptions(module, recorded);
}

LogicalResult OnlineScales::run() {
  ModuleOp module = getOperation();
  for (auto function : module.getOps<func::FuncOp>())
    place(function);
  if (starts.empty())
    return success();
  if (!(onlineDecay >= 0 && onlineDecay < 1))
    return module.emitError() << "online-decay must be at least 0 and less than 1, found "
                              << double(onlineDecay);
  if (onlineTokens < 1 || onlineWindow < 1 ||
      numerics::onlineFields(onlineWindow) > lm::kMaxStateFields)
    return module.emitError() << "online-tokens must be positive and online-window 1 to "
                              << lm::kMaxStateFields - numerics::onlineFields(0) << ", found "
                              << onlineTokens.getValue() << " and " << onlineWindow.getValue();
  auto forward = module.lookupSymbol<func::FuncOp>(kForward);
  if (static_cast<int64_t>(starts.size()) > lm::kMaxStateSites || !forward)
    return module.emitError() << "online scales need a step @" << kForward << " of at most "
                              << lm::kMaxStateSites << " sites with them, found "
                              << (forward ? "" : "none and ") << starts.size() << " sites";
  if (failed(lm::verifyCalls(module)) || failed(findWindow()))
    return failure();
  stateType = lm::StateType::get(&getContext(), static_cast<int64_t>(starts.size()),
                                 numerics::onlineFields(window));
  for (auto [linear, index] : places)
    if (failed(keep(linear, index)))
      return failure();
  FailureOr<Value> state = stateOf(forward), batch = batchOf(forward);
  if (failed(state) || failed(batch))
    return failure();
  OpBuilder b(forward.front().getTerminator());
  AdvanceOp::create(b, forward.getLoc(), *state, *batch, b.getF64FloatAttr(onlineDecay),
                    b.getI64IntegerAttr(window));
  describe();
  return success();
}
