//===- AwqSearch.cpp - AWQ's scales and ranges in one layer ---------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "AwqSearch.h"

#include "SharedRows.h"

#include "easyquant/Dialect/Equant/Analysis/RotatedValues.h"
#include "easyquant/Numerics/Hadamard.h"

using namespace mlir;
using namespace easyquant;
using namespace easyquant::methods;
using equant::FoldPoint;
using equant::QuantizableOpInterface;
using numerics::ConstMatrix;
using numerics::Matrix;

/// Tokens of a sample that candidates are compared on, the first ones: attention looks back alone.
static constexpr int64_t kComparedTokens = 512;

static Operation *firstReader(const FoldPoint &point) {
  return QuantizableOpInterface(point.readers.front());
}

/// What candidates are computed from and compared on, but for the layer's input.
llvm::SetVector<Value> AwqSearch::searchedValues() {
  llvm::SetVector<Value> wanted;
  for (const FoldPoint *point : points) {
    wanted.insert(point->activation);
    Operation *reader = firstReader(*point);
    for (Value cut : {lastCut(layer, reader), nextCut(layer, reader)})
      if (cut != layer.getArgument(0))
        wanted.insert(cut);
  }
  return wanted;
}

LogicalResult AwqSearch::runLayer(HiddenStates &states, bool gather) {
  Value input = layer.getArgument(0), output = layer.front().getTerminator()->getOperand(0);
  llvm::SetVector<Value> wanted;
  if (gather) {
    wanted = searchedValues();
    for (const FoldPoint *point : points) {
      const int64_t n = point->columns();
      sums.insert({point->activation, SampleSum<numerics::MeanAbs>(ranks, runner.tokens(), [n] {
                     return numerics::MeanAbs(n);
                   })});
      squareSums.insert(
          {point->activation, SampleSum<numerics::Moments>(ranks, runner.tokens(),
                                                           [n] { return numerics::Moments(n); })});
    }
  }
  wanted.insert(output);
  Subgraph subgraph{{input}, llvm::to_vector(wanted)};
  FailureOr<CompiledSubgraph> program = runner.load(subgraph);
  if (failed(program))
    return failure();
  if (gather) {
    rows[input].columns = states.columns();
    for (Value value : wanted)
      rows[value].columns = lm::columns(value);
    for (auto &[value, found] : rows)
      found.samples.resize(kept);
  }

  const int64_t skipped = runner.tokens().skipped();
  auto keep = [&](Value value, int64_t sample, Matrix from) {
    const int64_t ofAll = runner.tokens().firstSample() + sample;
    if (gather && ofAll < kept)
      rows[value].samples[ofAll].assign(
          from.data, from.data + std::min(from.rows, kComparedTokens) * from.columns);
  };
  auto visit = [&](int64_t i, ArrayRef<Matrix> outputs) {
    Matrix in = states.sample(i);
    keep(input, i, in);
    Result<void> done;
    for (auto [value, out] : llvm::zip_equal(wanted, outputs)) {
      if (auto sum = sums.find(value); done && sum != sums.end())
        done = sum->second.of(i).update(out.middleRows(skipped, out.rows - skipped));
      if (auto sum = squareSums.find(value); done && sum != squareSums.end())
        done = sum->second.of(i).update(out.middleRows(skipped, out.rows - skipped));
      keep(value, i, out);
      if (value == output)
        std::copy_n(out.data, out.rows * out.columns, in.data);
    }
    return done;
  };
  if (failed(runner.run(layer.getLoc(), *program, layer.getSymName(), states, subgraph.outputs,
                        visit)))
    return failure();
  if (auto shared = shareActivations(); !shared)
    return emitError(layer.getLoc()) << shared.error().message;
  return success();
}

Result<void> AwqSearch::shareActivations() {
  for (auto &[value, sum] : sums) {
    Result<numerics::MeanAbs> mean = sum.finish();
    if (!mean)
      return Unexpected(mean.error());
    means[value] = mean->means();
  }
  for (auto &[value, sum] : squareSums) {
    Result<numerics::Moments> moments = sum.finish();
    if (!moments)
      return Unexpected(moments.error());
    meanSquares[value] = moments->meanSquares();
  }
  for (auto &[value, found] : rows)
    for (int64_t i = 0; i < kept; ++i) {
      const int64_t tokens = std::ssize(runner.tokens().sampleOfAll(i));
      found.samples[i].resize(std::min(tokens, kComparedTokens) * found.columns);
      if (auto done = ranks.broadcast(found.samples[i], runner.tokens().shareOf(i, ranks.size()));
          !done)
        return done;
    }
  return {};
}

/// Gives the program the weights that `scales` make.
Result<void> AwqSearch::quantizeScaled(CompiledSubgraph &program,
                                       std::vector<std::pair<PlannedSite, WeightValues>> &weights,
                                       std::span<const float> scales,
                                       std::span<const float> meanSquares) {
  for (auto &[site, weight] : weights)
    for (const SubgraphWeight &place : program.weights()) {
      if (place.value != site.weight())
        continue;
      numerics::ScaleRule rule = site.rule();
      rule.weights = meanSquares;
      rule.coarse = true;
      auto done = numerics::fakeQuantizeScaled(weight.view(), scales, site.scheme(), rule, threads,
                                               program.weight(place.global));
      if (!done)
        return makeError(done.error().code, "site '{}': {}", site.name(), done.error().message);
    }
  return {};
}

/// The mean squared error of what the program puts out, over the samples kept.
Result<double> AwqSearch::outputError(CompiledSubgraph &program, const Subgraph &subgraph) {
  Value output = subgraph.outputs.front();
  std::vector<float> made(runner.tokens().maxLength() * lm::columns(output));
  const int64_t skipped = runner.tokens().skipped();
  double sum = 0, count = 0;
  for (int64_t i = 0; i < kept; ++i) {
    SmallVector<ConstMatrix> inputs;
    for (Value value : subgraph.inputs)
      inputs.push_back(rows.find(value)->second.sample(i));
    Matrix expected = rows.find(output)->second.sample(i);
    Matrix found(made.data(), expected.rows, expected.columns);
    if (auto done = program.run(inputs, {found}); !done)
      return Unexpected(done.error());
    for (int64_t r = skipped; r < found.rows; ++r)
      for (int64_t c = 0; c < found.columns; ++c) {
        double difference = static_cast<double>(found(r, c)) - expected(r, c);
        sum += difference * difference;
      }
    count += static_cast<double>((found.rows - skipped) * found.columns);
  }
  return sum / std::max(count, 1.0);
}

using LossOfScales = std::function<Result<double>(std::span<const float> scales)>;

/// searchAwqScales; each rank tries some of the candidates, and all see every loss.
static Result<numerics::AwqScaleResult>
searchOnAll(const Ranks &ranks, std::span<const float> meanAbs, const LossOfScales &loss) {
  if (ranks.size() == 1)
    return numerics::searchAwqScales(meanAbs, loss);
  // In the order in which the search asks: the identity, then the ratios.
  std::vector<double> losses(numerics::kAwqGrid + 1);
  Bytes own;
  for (int i = ranks.rank(); i < std::ssize(losses); i += ranks.size()) {
    Result<double> found = loss(
        i == 0 ? std::vector<float>(meanAbs.size(), 1.0f)
               : numerics::awqScales(meanAbs, static_cast<double>(i - 1) / numerics::kAwqGrid));
    if (!found)
      return Unexpected(found.error());
    llvm::append_range(own, std::as_bytes(std::span(&*found, 1)));
  }
  Result<std::vector<Bytes>> all = ranks.gather(std::move(own));
  if (!all)
    return Unexpected(all.error());
  for (int i = 0; i < std::ssize(losses); ++i)
    std::memcpy(&losses[i], (*all)[i % ranks.size()].data() + i / ranks.size() * sizeof(double),
                sizeof(double));
  return numerics::searchAwqScales(
      meanAbs, [next = losses.begin()](std::span<const float>) mutable -> Result<double> {
        return *next++;
      });
}

FailureOr<std::vector<float>> AwqSearch::searchScales(const FoldPoint &point) {
  Operation *reader = firstReader(point);
  Value base = lastCut(layer, reader);
  Subgraph subgraph{{point.activation}, {nextCut(layer, reader)}};
  if (base != point.activation)
    subgraph.inputs.push_back(base); // the residual
  FailureOr<CompiledSubgraph> program = runner.load(subgraph);
  if (failed(program))
    return failure();
  std::vector<std::pair<PlannedSite, WeightValues>> weights;
  for (QuantizableOpInterface op : point.readers)
    if (PlannedSite site{op, equant::getPlan(op)}; site.plan) {
      FailureOr<WeightValues> weight = readWeight(runner.constants(), site);
      if (failed(weight))
        return failure();
      weights.emplace_back(site, std::move(*weight));
    }

  const std::vector<float> &squares = meanSquares.find(point.activation)->second;
  auto loss = [&](std::span<const float> scales) -> Result<double> {
    if (auto done = quantizeScaled(*program, weights, scales, squares); !done)
      return Unexpected(done.error());
    return outputError(*program, subgraph);
  };
  const std::vector<float> &meanAbs = means.find(point.activation)->second;
  auto found = searchOnAll(ranks, meanAbs, loss);
  if (!found)
    return emitError(reader->getLoc())
           << "site '" << point.sites().front() << "': " << found.error().message;
  return std::move(found->scales);
}

FailureOr<numerics::AwqClipResult> AwqSearch::searchClip(const PlannedSite &site,
                                                         ArrayRef<float> factors) {
  FailureOr<WeightValues> weight = readWeight(runner.constants(), site);
  if (failed(weight))
    return failure();
  KeptRows &activation = rows.find(site.activation())->second;
  const int64_t skipped = runner.tokens().skipped();
  std::vector<float> inputs;
  for (int64_t i = 0; i < kept; ++i) {
    Matrix sample = activation.sample(i);
    for (int64_t r = skipped; r < sample.rows; ++r)
      for (int64_t c = 0; c < sample.columns; ++c)
        inputs.push_back(factors.empty() ? sample(r, c) : sample(r, c) / factors[c]);
  }
  // equant-rotate is still to come.
  const equant::RowBlocks rowBlocks = equant::rowBlocksOf(site.op);
  const int64_t columnBlock = site.scheme().hadamard;
  numerics::rotateConstant(weight->values, weight->columns, std::max<int64_t>(rowBlocks.block, 1),
                           std::max<int64_t>(columnBlock, 1), rowBlocks.first);
  if (columnBlock)
    numerics::rotateActivation(inputs, columnBlock);
  ConstMatrix view(inputs.data(), static_cast<int64_t>(inputs.size()) / weight->columns,
                   weight->columns);
  // An outer scale is that of all rows.
  auto rowsOf = [&](int rank) {
    return site.scheme().outer ? numerics::RowRange{0, weight->rows}
                               : numerics::awqClipRows(weight->rows, rank, ranks.size());
  };
  const numerics::RowRange own = rowsOf(ranks.rank());
  const bool refines = site.rule().kind == numerics::ScaleRuleKind::HessianDiagonal;
  auto found = roundOnAll<numerics::AwqClipResult>(
      ranks, site.scheme(), site.plan.mayWidenScales(), [&](const numerics::Scheme &scheme) {
        return numerics::searchAwqClip(weight->view().middleRows(own.first, own.count), view,
                                       scheme, refines, threads);
      });
  if (!found)
    return emitError(site.loc()) << "site '" << site.name() << "': " << found.error().message;
  if (auto done = gatherRows(ranks, found->params, site.scheme(), weight->rows, rowsOf); !done)
    return emitError(site.loc()) << done.error().message;
  return std::move(*found);
}
