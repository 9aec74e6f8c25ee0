//===- Gptq.cpp - Round weights with GPTQ, layer by layer -----------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// A layer is run piecewise. With x its input and c = x + o_proj(...) the place where it can be cut,
// what q, k and v read is computed from x, what o reads again from x, what gate and up read from x
// together with c, what down reads from c, and the layer's output from c: less than twice the work
// of one pass, and never more than two hidden states of all samples in memory. What experts read is
// there besides while they are rounded (ExpertInputs.h).
//
//===----------------------------------------------------------------------===//

#include "ExpertInputs.h"
#include "GptqByLoss.h"
#include "SharedRows.h"

#include "easyquant/Execution/SubgraphPass.h"
#include "easyquant/Methods/MethodRun.h"

#include "easyquant/Dialect/Equant/Analysis/NothingToDo.h"
#include "easyquant/Dialect/Equant/Analysis/RecipePlans.h"
#include "easyquant/Execution/SampleSum.h"
#include "easyquant/Methods/Passes.h"
#include "easyquant/Methods/RoundedSites.h"
#include "easyquant/Numerics/Gradients.h"
#include "easyquant/Numerics/Statistics.h"
#include "easyquant/Support/ProgressAction.h"

#include "mlir/Dialect/MLProgram/IR/MLProgram.h"

namespace easyquant::methods {
#define GEN_PASS_DEF_GPTQ
#include "easyquant/Methods/Passes.h.inc"
} // namespace easyquant::methods

using namespace mlir;
using namespace easyquant;
using namespace easyquant::methods;
using numerics::ConstMatrix;
using numerics::Matrix;

namespace {

constexpr llvm::StringLiteral kGptq = "gptq";

struct Gptq : SubgraphPass<methods::impl::GptqBase<Gptq>> {
  using SubgraphPass::SubgraphPass;
  LogicalResult run() override;
};

/// The attention of a layer whose keys or values linears make, and which these are.
struct AttentionReader {
  lm::AttentionOp attention;
  llvm::SmallPtrSet<Operation *, 4> sites;
};

/// Rounds the sites of one layer after the other.
class LayerRounder {
public:
  LayerRounder(MethodRun &run, HiddenStates &states, HiddenStates &middle,
               const numerics::GptqOptions &options, bool byAttention)
      : runner(run.runner()), ranks(run.ranks()), work(run.work()), states(states), middle(middle),
        options(options), byAttention(byAttention) {}

  /// Takes `states` through the layer. Without `codes` it finds them, else it uses them.
  /// `rows`: those that chose experts whose codes are found.
  LogicalResult runLayer(func::FuncOp layer, QuantizedWeights &codes, ExpertRows &rows,
                         bool areKnown);

private:
  LogicalResult advance(func::FuncOp layer, ArrayRef<Value> outputs, Value cut,
                        const QuantizedWeights &codes, SampleVisitor visit,
                        ArrayRef<ChoiceRows> observed = {}, RowsObserver observer = nullptr);
  LogicalResult roundGroup(func::FuncOp layer, const SiteGroup &group, QuantizedWeights &codes);
  LogicalResult roundSites(ArrayRef<PlannedSite> sites, SampleSum<numerics::Gram> &sum,
                           QuantizedWeights &codes);
  LogicalResult roundExperts(func::FuncOp layer, const SiteGroup &group, QuantizedWeights &codes,
                             ExpertRows &rows);
  FailureOr<numerics::QuantizedMatrix> roundMatrix(const PlannedSite &site, ConstMatrix weight,
                                                   const numerics::GptqFactor &factor,
                                                   const std::string &part = "");

  LayerRunner &runner;
  const Ranks &ranks;
  const formats::ComputedConstants &work;
  HiddenStates &states, &middle;
  const numerics::GptqOptions &options;
  bool byAttention; ///< do tokens weigh in the Hessians of k and v what attention gives them?
  Value base;       ///< what is in `states` or, behind a cut, in `middle`
};

} // namespace

/// The options of a site: its own, over those of the pass.
static numerics::GptqOptions optionsOf(const PlannedSite &site, numerics::GptqOptions options) {
  options.actOrder = site.plan.optionOr(recipe::option::actOrder, options.actOrder);
  options.staticGroups = site.plan.optionOr(recipe::option::staticGroups, options.staticGroups);
  options.damping = site.plan.optionOr(recipe::option::damping, options.damping);
  return options;
}

/// Do all sites that read the same input ask for the same factor of its Hessian?
static LogicalResult checkOptions(const SiteGroup &group, const numerics::GptqOptions &options) {
  const PlannedSite *first = nullptr;
  numerics::GptqOptions common;
  for (const PlannedSite &site : group.sites) {
    if (!site.plan.names(kGptq))
      continue;
    if (site.offsets() && site.scheme().granularity == numerics::Granularity::Tensor)
      return emitError(site.loc()) << "site '" << site.name()
                                   << "' has one scale for all experts, and gptq rounds each by "
                                      "itself: give its rows scales of their own";
    if (site.offsets() && !lm::rowOrder(site.offsets()))
      return emitError(site.loc()) << "site '" << site.name()
                                   << "' cannot be observed: no lm.route gives the rows of its "
                                      "experts";
    numerics::GptqOptions own = optionsOf(site, options);
    if (!first) {
      first = &site;
      common = own;
    } else if (own.actOrder != common.actOrder || own.damping != common.damping) {
      return emitError(site.loc())
             << "sites '" << first->name() << "' and '" << site.name()
             << "' read the same activations, but ask for act_order " << common.actOrder << " and "
             << own.actOrder << ", damping " << common.damping << " and " << own.damping
             << ": give both the same";
    }
  }
  return success();
}

FailureOr<numerics::GptqFactor> easyquant::methods::factorFor(const PlannedSite &site,
                                                              ConstMatrix hessian,
                                                              const numerics::GptqOptions &options,
                                                              const std::string &part) {
  auto factor = numerics::factorHessian(hessian, options);
  if (!factor)
    return emitError(site.loc()) << part << "site '" << site.name()
                                 << "': " << factor.error().message;
  if (factor->damping > options.damping || factor->inDouble)
    emitRemark(site.loc()) << part << "site '" << site.name() << "': damping " << factor->damping
                           << (factor->inDouble ? " in double precision" : "")
                           << " was needed to make the Hessian positive definite";
  return std::move(*factor);
}

/// Runs the layer from the base to `outputs`, and moves the base to `cut` if that is another value.
LogicalResult LayerRounder::advance(func::FuncOp layer, ArrayRef<Value> outputs, Value cut,
                                    const QuantizedWeights &codes, SampleVisitor visit,
                                    ArrayRef<ChoiceRows> observed, RowsObserver observer) {
  Subgraph subgraph{{base}, llvm::to_vector(outputs)};
  subgraph.observed = llvm::to_vector(observed);
  const bool moves = cut != base && cut != outputs.front();
  if (moves)
    subgraph.outputs.push_back(cut);
  FailureOr<CompiledSubgraph> program = runner.compiler().compile(subgraph);
  if (failed(program) || failed(load(*program, runner.constants(), codes)))
    return failure();
  HiddenStates &from = base == layer.getArgument(0) ? states : middle;
  auto advanced = runner.run(
      layer.getLoc(), *program, layer.getSymName(), from, subgraph.outputs,
      [&](int64_t i, ArrayRef<Matrix> made) {
        if (moves)
          std::copy_n(made.back().data, made.back().rows * made.back().columns,
                      middle.sample(i).data);
        return visit(i, made.take_front(outputs.size()));
      },
      observer);
  if (failed(advanced))
    return failure();
  if (moves)
    base = cut;
  return success();
}

/// The attention that sites of the group make keys or values for; empty if none of them names the
/// method.
static AttentionReader attentionBehind(func::FuncOp layer, const SiteGroup &group) {
  for (lm::AttentionOp attention : layer.getOps<lm::AttentionOp>()) {
    auto makers = sitesMaking({attention.getKey(), attention.getValue()});
    if (llvm::any_of(group.sites, [&](const PlannedSite &site) {
          return site.plan.names(kGptq) && makers.contains(site.op);
        }))
      return {attention, std::move(makers)};
  }
  return {};
}

LogicalResult LayerRounder::roundGroup(func::FuncOp layer, const SiteGroup &group,
                                       QuantizedWeights &codes) {
  const int64_t skipped = runner.tokens().skipped();
  const int64_t columns = lm::columns(group.activation);
  auto nothing = [columns] { return numerics::Gram(columns); };
  SampleSum<numerics::Gram> plain(ranks, runner.tokens(), nothing),
      attended(ranks, runner.tokens(), nothing);
  SmallVector<Value> outputs = {group.activation};
  AttentionReader reader;
  if (byAttention)
    reader = attentionBehind(layer, group);
  numerics::reference::AttentionParams params;
  std::vector<float> sinkLogits;
  if (reader.attention) {
    llvm::append_values(outputs, reader.attention.getQuery(), reader.attention.getKey());
    params = attentionParams(reader.attention);
    if (Value logits = reader.attention.getSinkLogits()) {
      sinkLogits.resize(static_cast<size_t>(params.heads));
      if (failed(runner.constants().read(logits, "sink_logits", sinkLogits)))
        return failure();
      params.sinkLogits = sinkLogits;
    }
  }
  std::vector<float> received;
  auto gather = [&](int64_t sample, ArrayRef<Matrix> made) -> Result<void> {
    const Matrix rows = made[0];
    auto done =
        plain.of(sample).update(rows.middleRows(skipped, rows.rows - skipped), options.threads);
    if (!done || !reader.attention)
      return done;
    // The token that begins texts counts, too: it is the one that most attention goes to.
    received.resize(rows.rows);
    numerics::receivedAttention(params, made[1], made[2], received, options.threads);
    return attended.of(sample).update(rows, received, options.threads);
  };
  if (failed(advance(layer, outputs, lastCut(layer, group.sites.front().op), codes, gather)))
    return failure();
  for (auto [sum, isAttended] : {std::pair(&plain, false), std::pair(&attended, true)}) {
    SmallVector<PlannedSite> sites;
    for (const PlannedSite &site : group.sites)
      if (site.plan.names(kGptq) && reader.sites.contains(site.op) == isAttended)
        sites.push_back(site);
    if (!sites.empty() && failed(roundSites(sites, *sum, codes)))
      return failure();
  }
  return success();
}

/// Rounds sites of a group that share a Hessian.
LogicalResult LayerRounder::roundSites(ArrayRef<PlannedSite> sites, SampleSum<numerics::Gram> &sum,
                                       QuantizedWeights &codes) {
  Result<numerics::Gram> gram = sum.finish();
  if (!gram)
    return emitError(sites.front().loc()) << gram.error().message;
  const int64_t columns = lm::columns(sites.front().activation());
  std::vector<float> hessian = std::move(*gram).takeHessian();
  FailureOr<numerics::GptqFactor> factor =
      factorFor(sites.front(), ConstMatrix(hessian.data(), columns, columns),
                optionsOf(sites.front(), options));
  if (failed(factor))
    return failure();
  std::vector<float>().swap(hessian);
  for (const PlannedSite &site : sites) {
    FailureOr<WeightValues> weight = readWeight(runner.constants(), site);
    if (failed(weight))
      return failure();
    FailureOr<numerics::QuantizedMatrix> rounded = roundMatrix(site, weight->view(), *factor);
    if (failed(rounded))
      return failure();
    codes[site.weight()] = std::move(*rounded);
  }
  return success();
}

/// Rounds the weight of a site, or of one expert of it; ranks share its rows.
FailureOr<numerics::QuantizedMatrix> LayerRounder::roundMatrix(const PlannedSite &site,
                                                               ConstMatrix weight,
                                                               const numerics::GptqFactor &factor,
                                                               const std::string &part) {
  numerics::GptqOptions own = optionsOf(site, options);
  own.part = ranks.rank();
  own.parts = ranks.size();
  auto rounded = roundOnAll<numerics::GptqResult>(
      ranks, site.scheme(), site.plan.mayWidenScales(), [&](const numerics::Scheme &scheme) {
        return numerics::gptq(weight, factor, scheme, site.rule(), own);
      });
  if (!rounded)
    return emitError(site.loc()) << part << "site '" << site.name()
                                 << "': " << rounded.error().message;
  auto rowsOf = [&](int rank) { return numerics::gptqRows(weight.rows, rank, own.parts); };
  if (auto done = gatherRows(ranks, rounded->weight, rowsOf); !done)
    return emitError(site.loc()) << done.error().message;
  return std::move(rounded->weight);
}

/// Rounds the weights of one expert after the other, each by the Hessian of the rows that chose it.
LogicalResult LayerRounder::roundExperts(func::FuncOp layer, const SiteGroup &group,
                                         QuantizedWeights &codes, ExpertRows &rows) {
  const lm::LinearOp linear = group.sites.front().linear();
  ExpertInputs inputs(linear, runner.tokens());
  auto keepTokens = [&](int64_t sample, ArrayRef<Matrix> made) -> Result<void> {
    inputs.keep(sample, made.front());
    return {};
  };
  auto keepChoices = [&](const Observation &, int64_t sample,
                         const ObservedRows &seen) -> Result<void> {
    inputs.keep(sample, seen);
    return {};
  };
  if (failed(advance(layer, inputs.tokenActivation(), lastCut(layer, linear), codes, keepTokens,
                     ChoiceRows::inputOf(linear), keepChoices)))
    return failure();
  SmallVector<PlannedSite> sites;
  llvm::copy_if(group.sites, std::back_inserter(sites),
                [](const PlannedSite &site) { return site.plan.names(kGptq); });
  const int64_t columns = lm::columns(group.activation), experts = lm::expertCount(group.offsets);
  for (const PlannedSite &site : sites)
    codes[site.weight()] = numerics::QuantizedMatrix{site.scheme(), 0, columns, {}, {}};
  std::vector<float> weight;
  for (int64_t expert = 0; expert < experts; ++expert) {
    const std::string part = fmt::format("expert {} of ", expert);
    Result<ExpertInputs::Hessian> hessian = inputs.hessianOf(expert, ranks, options.threads);
    if (!hessian)
      return emitError(sites.front().loc())
             << part << "site '" << sites.front().name() << "': " << hessian.error().message;
    FailureOr<numerics::GptqFactor> factor =
        factorFor(sites.front(), ConstMatrix(hessian->values.data(), columns, columns),
                  optionsOf(sites.front(), options), part);
    if (failed(factor))
      return failure();
    for (const PlannedSite &site : sites) {
      const int64_t outputs = site.rowsOfExpert();
      weight.resize(outputs * columns);
      if (failed(runner.constants().readRows(site.weight(), site.name(), expert * outputs, weight)))
        return failure();
      FailureOr<numerics::QuantizedMatrix> rounded =
          roundMatrix(site, ConstMatrix(weight.data(), outputs, columns), *factor, part);
      if (failed(rounded))
        return failure();
      appendRows(codes[site.weight()], *rounded);
      rows[site.weight()].push_back(static_cast<int32_t>(hessian->rows));
    }
  }
  return success();
}

LogicalResult LayerRounder::runLayer(func::FuncOp layer, QuantizedWeights &codes, ExpertRows &rows,
                                     bool areKnown) {
  base = layer.getArgument(0);
  for (const SiteGroup &group : siteGroups(layer)) {
    if (!areKnown && group.names(kGptq) &&
        failed(group.offsets ? roundExperts(layer, group, codes, rows)
                             : roundGroup(layer, group, codes)))
      return failure();
    for (const PlannedSite &site : group.sites) {
      if (site.plan.names(kGptq))
        continue;
      auto rounded = roundAsPlanned(work, runner.constants(), site);
      if (failed(rounded))
        return failure();
      codes[site.weight()] = std::move(*rounded);
    }
  }
  Value output = layer.front().getTerminator()->getOperand(0);
  auto keep = [&](int64_t sample, ArrayRef<Matrix> made) -> Result<void> {
    std::copy_n(made[0].data, made[0].rows * made[0].columns, states.sample(sample).data);
    return {};
  };
  return advance(layer, output, base, codes, keep);
}

//===----------------------------------------------------------------------===//
// The pass
//===----------------------------------------------------------------------===//

LogicalResult Gptq::run() {
  ModuleOp module = getOperation();
  if (!isPlanned(module, kGptq))
    return equant::reportNotPlanned(module, getArgument(), kGptq, requireSites);
  const bool isByLoss = StringRef(hessian).starts_with("loss");
  if (!isByLoss && !lossStatistics.empty())
    return emitError(module.getLoc())
           << "equant-gptq: statistics=" << lossStatistics
           << " is for hessian=loss and loss-both, found hessian=" << hessian;
  // Hessians that a file gives in another basis differ in their last bits.
  FailureOr<MethodRun> opened =
      MethodRun::open(module, {.method = kGptq,
                               .revision = lossStatistics.empty() ? "4" : "4 from a file",
                               .options = optionValues(),
                               .sharesSamples = true});
  if (failed(opened))
    return failure();
  MethodRun &run = *opened;
  const numerics::GptqOptions options{
      .actOrder = actOrder, .staticGroups = staticGroups, .damping = damping, .threads = threads};
  // Impossible requests are refused before hours of work.
  for (int64_t i = 0; i < run.layerCount(); ++i)
    for (const SiteGroup &group : siteGroups(run.layer(i)))
      if (failed(checkOptions(group, options)))
        return failure();
  auto isDone = [&](int64_t i) { return sitesNaming(run.layer(i), kGptq).empty() || run.has(i); };

  if (isByLoss) {
    auto own = [&](const PlannedSite &site) { return optionsOf(site, options); };
    if (failed(roundByLoss(run, own, hessian == "loss-both", lossStatistics)))
      return failure();
  } else if (int64_t missing = run.layersToRun(isDone)) {
    FailureOr<HiddenStates> states = run.runner().embed(), middle = run.runner().allocate();
    if (failed(states) || failed(middle))
      return failure();
    LayerRounder rounder(run, *states, *middle, options, hessian == "sinks");
    for (int64_t i = 0; i < missing; ++i) {
      ProgressAction::report(&getContext(), kGptq, i, run.layerCount());
      SmallVector<PlannedSite> sites = sitesNaming(run.layer(i), kGptq);
      QuantizedWeights codes;
      ExpertRows rows;
      const bool isKnown = isDone(i);
      for (const PlannedSite &site : sites) {
        if (!isKnown)
          break;
        auto known = readRounded(run.work(), run.file(i), run.stamp(i), site);
        if (!known)
          return run.fail(known.error());
        codes[site.weight()] = std::move(*known);
      }
      if (failed(rounder.runLayer(run.layer(i), codes, rows, isKnown)))
        return failure();
      if (isKnown)
        continue;
      if (auto done = writeRounded(run.work(), run.file(i), run.stamp(i), sites, codes, rows);
          !done)
        return run.fail(done.error());
    }
  }
  ProgressAction::report(&getContext(), kGptq, run.layerCount(), run.layerCount());
  SparseExperts sparse(kGptq, SparseOutcome::FilledUp);
  for (int64_t i = 0; i < run.layerCount(); ++i) {
    SmallVector<PlannedSite> sites = sitesNaming(run.layer(i), kGptq);
    // Rows of a weight have a Hessian, too, where errors go from one to the other.
    auto enough = [&](const PlannedSite &site) {
      const int64_t columns = lm::columns(site.activation());
      return hessian == "loss-both" ? std::max(columns, site.rowsOfExpert()) : columns;
    };
    if (failed(declareRounded(module, run.work(), run.file(i), run.stamp(i), sites)) ||
        failed(sparse.add(run.work(), run.file(i), run.stamp(i), sites, enough)))
      return failure();
  }
  sparse.report(module);
  return success();
}
