//===- LayerSites.cpp - The sites of a layer that methods work on ---------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "easyquant/Execution/LayerSites.h"

#include "easyquant/Support/Checksum.h"

#include "mlir/Dialect/MLProgram/IR/MLProgram.h"
#include "llvm/ADT/SmallPtrSet.h"
#include "llvm/Support/raw_ostream.h"

#include <tuple>

using namespace mlir;
using namespace easyquant;
using namespace easyquant::execution;
using equant::QuantizableOpInterface;

numerics::ScaleRule PlannedSite::rule() const {
  return equant::toNumerics(plan.getRule(), plan.getPercentile());
}

SmallVector<QuantizableOpInterface> easyquant::execution::opsOf(ArrayRef<PlannedSite> sites) {
  return llvm::map_to_vector(sites, [](const PlannedSite &site) { return site.op; });
}

static lm::RowsOp gatherOf(Value activation, lm::LinearOp experts) {
  auto rows = activation.getDefiningOp<lm::RowsOp>();
  return rows && rows.getRows() == lm::rowOrder(experts.getExperts()) ? rows : lm::RowsOp();
}

lm::RowsOp easyquant::execution::gatheredTokens(lm::LinearOp experts) {
  return gatherOf(experts.getInput(), experts);
}

bool easyquant::execution::readsTokens(lm::LinearOp experts) {
  Value value = experts.getInput();
  while (!gatherOf(value, experts)) {
    Operation *op = value.getDefiningOp();
    if (!op || isa<QuantizableOpInterface>(op) || !op->hasTrait<OpTrait::RowWise>() ||
        op->getNumOperands() == 0)
      return false;
    value = op->getOperand(0);
  }
  return true;
}

bool SiteGroup::names(StringRef method) const {
  return llvm::any_of(sites, [&](const PlannedSite &site) { return site.plan.names(method); });
}

SmallVector<SiteGroup> easyquant::execution::siteGroups(func::FuncOp layer) {
  llvm::MapVector<std::pair<Value, Value>, SiteGroup> groups;
  for (Operation &op : layer.front())
    if (auto site = dyn_cast<QuantizableOpInterface>(op))
      if (equant::PlanAttr plan = equant::getPlan(site)) {
        const PlannedSite planned{site, plan};
        const std::pair key(planned.activation(), planned.offsets());
        SiteGroup &group = groups[key];
        std::tie(group.activation, group.offsets) = key;
        group.sites.push_back(planned);
      }
  SmallVector<SiteGroup> result;
  for (auto &[key, group] : groups)
    result.push_back(std::move(group));
  return result;
}

llvm::SmallPtrSet<Operation *, 4> easyquant::execution::sitesMaking(ArrayRef<Value> values) {
  llvm::SmallPtrSet<Operation *, 4> found;
  SmallVector<Value> worklist = llvm::to_vector(values);
  while (!worklist.empty()) {
    Operation *op = worklist.pop_back_val().getDefiningOp();
    if (!op)
      continue;
    if (isa<QuantizableOpInterface>(op))
      found.insert(op);
    else
      llvm::append_range(worklist, op->getOperands());
  }
  return found;
}

Value easyquant::execution::lastCut(func::FuncOp layer, Operation *op) {
  Block &block = layer.front();
  Value input = block.getArgument(0), cut = input;
  for (Operation &candidate : block) {
    if (&candidate == op)
      break;
    if (candidate.getNumResults() != 1 || candidate.getResult(0).getType() != input.getType())
      continue;
    auto isSeen = [&](Value operand) {
      if (operand == candidate.getResult(0))
        return true;
      if (Operation *producer = operand.getDefiningOp(); producer && producer->getBlock() == &block)
        if (candidate.isBeforeInBlock(producer))
          return true;
      auto type = dyn_cast<RankedTensorType>(operand.getType());
      return operand != input && (type ? type.hasStaticShape() : isa<BlockArgument>(operand));
    };
    bool cuts = true;
    for (Operation *after = candidate.getNextNode(); after && cuts; after = after->getNextNode())
      cuts = llvm::all_of(after->getOperands(), isSeen);
    if (cuts)
      cut = candidate.getResult(0);
  }
  return cut;
}

Value easyquant::execution::nextCut(func::FuncOp layer, Operation *op) {
  Value before = lastCut(layer, op);
  for (Operation *next = op->getNextNode(); next; next = next->getNextNode())
    if (Value cut = lastCut(layer, next); cut != before)
      return cut;
  return layer.front().getTerminator()->getOperand(0);
}

LogicalResult easyquant::execution::checkSitesAreInLayers(ModuleOp module,
                                                          ArrayRef<func::FuncOp> layers,
                                                          StringRef method) {
  llvm::SmallPtrSet<Operation *, 32> functions;
  for (func::FuncOp layer : layers)
    functions.insert(layer);
  WalkResult walk = module.walk([&](QuantizableOpInterface op) {
    equant::PlanAttr plan = equant::getPlan(op);
    if (!plan || !plan.names(method) || functions.contains(op->getParentOp()))
      return WalkResult::advance();
    emitError(op.getLoc()) << "site '" << op.getSite() << "' is in none of the model's layers, and "
                           << method << " works on these; take " << method << " out of its rule";
    return WalkResult::interrupt();
  });
  return failure(walk.wasInterrupted());
}

FailureOr<WeightValues> easyquant::execution::readWeight(const ModelConstants &constants,
                                                         const PlannedSite &site) {
  auto type = cast<RankedTensorType>(site.weight().getType());
  WeightValues weight;
  weight.rows = type.getDimSize(0);
  weight.columns = type.getDimSize(1);
  weight.values.resize(type.getNumElements());
  if (failed(constants.read(site.weight(), site.name(), weight.values)))
    return failure();
  return weight;
}

Result<numerics::QuantizedMatrix> easyquant::execution::roundToNearest(const PlannedSite &site,
                                                                       numerics::ConstMatrix rows) {
  auto rounded = numerics::quantize(rows, site.scheme(), site.rule());
  if (!rounded && rounded.error().code == ErrorCode::OutOfRange && site.plan.mayWidenScales())
    rounded = numerics::quantize(rows, numerics::withWideScales(site.scheme()), site.rule());
  if (!rounded)
    return makeError(rounded.error().code, "site '{}': {}", site.name(), rounded.error().message);
  return rounded;
}

LogicalResult easyquant::execution::load(CompiledSubgraph &program, const ModelConstants &constants,
                                         const QuantizedWeights &quantized) {
  if (failed(program.load(constants)))
    return failure();
  for (const SubgraphWeight &weight : program.weights())
    if (auto found = quantized.find(weight.value); found != quantized.end())
      numerics::dequantize(found->second, program.weight(weight.global));
  return success();
}

//===----------------------------------------------------------------------===//
// Stamps
//===----------------------------------------------------------------------===//

static std::string hashOf(StringRef text) {
  return checksumOf(std::as_bytes(std::span(text.data(), text.size())));
}

std::string easyquant::execution::layerStamp(func::FuncOp layer, StringRef before) {
  std::string text;
  llvm::raw_string_ostream os(text);
  os << before << '\n';
  layer->print(os);
  SymbolTable symbols(layer->getParentOfType<ModuleOp>());
  auto add = [&](StringAttr name) {
    os << '\n';
    if (Operation *global = symbols.lookup(name))
      global->print(os);
  };
  layer.walk([&](Operation *op) {
    if (auto load = dyn_cast<ml_program::GlobalLoadConstOp>(op))
      add(load.getGlobal().getLeafReference());
    auto site = dyn_cast<QuantizableOpInterface>(op);
    if (equant::PlanAttr plan = site ? equant::getPlan(site) : nullptr)
      for (FlatSymbolRefAttr named :
           {plan.getCodes(), plan.getScale(), plan.getZeroPoint(), plan.getMinimum()})
        if (named)
          add(named.getAttr());
  });
  return hashOf(text);
}

void easyquant::execution::recordCalibration(ModuleOp module, const CalibrationTokens &tokens) {
  Builder b(module.getContext());
  NamedAttrList entries;
  for (const auto &[name, value] : tokens.stamp().toMetadata())
    if (name != "model_hash" && name != "format" && name != "format_version")
      entries.set(name, b.getStringAttr(value));
  module->setAttr(equant::kCalibrationAttr, entries.getDictionary(module.getContext()));
}

FailureOr<std::string> easyquant::execution::methodStamp(const LayerRunner &runner, ModuleOp module,
                                                         StringRef method) {
  Result<std::string> model = runner.constants().source().hash();
  if (!model)
    return emitError(module.getLoc()) << model.error().message;
  return hashOf((method + "\n" + *model + "\n" + runner.tokens().hash() + "\n" +
                 Twine(runner.tokens().skipped()))
                    .str());
}
