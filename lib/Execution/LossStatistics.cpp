//===- LossStatistics.cpp - Hessians of the loss, of all and held out -----===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "easyquant/Execution/LossStatistics.h"

#include "easyquant/Execution/SampleSum.h"
#include "easyquant/Numerics/Hadamard.h"

using namespace mlir;
using namespace easyquant;
using namespace easyquant::execution;
using equant::QuantizableOpInterface;
using formats::StatisticsFile;

/// One sample in so many is held out.
static constexpr int64_t kHeldOutShare = 4;

int64_t easyquant::execution::heldOutSamples(int64_t samples) {
  return samples < 2 ? 0 : std::max<int64_t>(1, samples / kHeldOutShare);
}

/// What is left of means over all tokens without those over some.
static std::vector<float> without(const std::vector<float> &all, int64_t tokens,
                                  const std::vector<float> &some, int64_t ofSome) {
  const double rest = static_cast<double>(std::max<int64_t>(tokens - ofSome, 1));
  std::vector<float> left(all.size());
  for (size_t i = 0; i < all.size(); ++i)
    left[i] = static_cast<float>(
        (static_cast<double>(all[i]) * tokens - static_cast<double>(some[i]) * ofSome) / rest);
  return left;
}

HessianPair SiteLoss::used() const {
  if (heldOut.tokens == 0)
    return all;
  return {all.tokens - heldOut.tokens,
          without(all.inputs, all.tokens, heldOut.inputs, heldOut.tokens),
          without(all.outputs, all.tokens, heldOut.outputs, heldOut.tokens)};
}

//===----------------------------------------------------------------------===//
// Gathered
//===----------------------------------------------------------------------===//

/// Errors: Corrupt, naming site, sample, token and channel.
static Result<void> checkGradients(const LayerRunner &runner, QuantizableOpInterface site,
                                   int64_t sample, numerics::ConstMatrix gradient) {
  return runner.checkFinite(
      fmt::format("the gradient of the loss at the output of site '{}'", site.getSite().str()),
      sample, gradient);
}

FailureOr<std::vector<SiteLoss>>
easyquant::execution::gatherLoss(LossGradients &gradients, const Ranks &ranks,
                                 const LayerRunner &runner, ArrayRef<QuantizableOpInterface> sites,
                                 const LossRequest &request, unsigned threads) {
  func::FuncOp layer = runner.layers()[gradients.next()];
  const CalibrationTokens &tokens = runner.tokens();
  SmallVector<Value> weights = llvm::map_to_vector(
      sites, [](QuantizableOpInterface op) { return op.getWeightOperand().get(); });
  const int64_t heldOut = request.heldOut ? heldOutSamples(tokens.allSamples()) : 0;
  auto nothing = [&] { return LossHessians(sites, request.rows); };
  SampleSum<LossHessians> used(ranks, tokens, nothing), kept(ranks, tokens, nothing);
  auto visit = [&](int64_t sample, ArrayRef<TrainedLayer::Rows> rows) -> Result<void> {
    for (auto [site, row] : llvm::reverse(llvm::zip_equal(sites, rows)))
      if (auto finite = checkGradients(runner, site, sample, row.gradient); !finite)
        return finite;
    const bool isHeldOut = tokens.firstSample() + sample >= tokens.allSamples() - heldOut;
    return (isHeldOut ? kept : used).of(sample).add(rows, threads);
  };
  if (failed(gradients.backward(weights, visit)))
    return failure();
  auto fail = [&](const Error &error) { return emitError(layer.getLoc()) << error.message; };
  Result<LossHessians> all = used.finish();
  if (!all)
    return fail(all.error());
  std::vector<SiteLoss> found(sites.size());
  if (heldOut > 0) {
    Result<LossHessians> last = kept.finish();
    if (!last)
      return fail(last.error());
    all->merge(*last);
    for (size_t i = 0; i < sites.size(); ++i) {
      Result<HessianPair> pair = last->take(i);
      if (!pair)
        return fail(pair.error());
      found[i].heldOut = std::move(*pair);
    }
  }
  for (size_t i = 0; i < sites.size(); ++i) {
    Result<HessianPair> pair = all->take(i);
    if (!pair)
      return fail(pair.error());
    found[i].all = std::move(*pair);
  }
  return found;
}

//===----------------------------------------------------------------------===//
// In a file
//===----------------------------------------------------------------------===//

static int64_t triangleOf(int64_t size) { return size * (size + 1) / 2; }

static std::vector<float> packed(const std::vector<float> &matrix) {
  const auto size =
      static_cast<int64_t>(std::llround(std::sqrt(static_cast<double>(matrix.size()))));
  std::vector<float> triangle;
  triangle.reserve(triangleOf(size));
  for (int64_t i = 0; i < size; ++i)
    triangle.insert(triangle.end(), matrix.begin() + i * size, matrix.begin() + i * size + i + 1);
  return triangle;
}

static std::vector<float> unpacked(const std::vector<float> &triangle, int64_t size) {
  std::vector<float> matrix(size * size);
  auto next = triangle.begin();
  for (int64_t i = 0; i < size; ++i)
    for (int64_t j = 0; j <= i; ++j)
      matrix[i * size + j] = matrix[j * size + i] = *next++;
  return matrix;
}

std::vector<LossTensor> easyquant::execution::tensorsOf(StringRef site, SiteLoss loss) {
  std::vector<LossTensor> tensors;
  auto add = [&](StringRef name, auto values) {
    tensors.push_back({(site + "/" + name).str(), std::move(values)});
  };
  for (auto [prefix, pair] : {std::pair("loss", &loss.all), {"held_out", &loss.heldOut}}) {
    if (pair->tokens == 0)
      continue;
    add(std::string(prefix) + "_inputs", packed(pair->inputs));
    add(std::string(prefix) + "_outputs", packed(pair->outputs));
  }
  add("loss_tokens", std::vector<int64_t>{loss.all.tokens, loss.heldOut.tokens});
  return tensors;
}

FailureOr<LossStatistics> LossStatistics::open(ModuleOp module, const ModelConstants &constants,
                                               const CalibrationTokens &tokens, StringRef path) {
  auto fail = [&](const Error &error) { return emitError(module.getLoc()) << error.message; };
  Result<StatisticsFile> file = StatisticsFile::open(path.str());
  if (!file)
    return fail(file.error());
  Result<std::string> model = constants.source().hash();
  if (!model)
    return fail(model.error());
  if (auto same = file->checkModel(*model); !same)
    return fail(same.error());
  if (auto same = file->checkText(tokens.stamp(), tokens.hash()); !same)
    return fail(same.error());
  return LossStatistics(std::move(*file));
}

Result<SiteLoss> LossStatistics::read(StringRef site, int64_t rows, int64_t columns,
                                      const LossRequest &request) const {
  const std::string name = site.str() + "/";
  if (!file.has(name + "loss_inputs"))
    return makeError(ErrorCode::NotFound,
                     "{}: has no \"{}loss_inputs\"; expected what easyquant calibrate "
                     "--statistic {} writes of this model",
                     file.path().string(), name, kLossStatistic.str());
  SiteLoss loss;
  const int64_t two = 2;
  Result<std::vector<int64_t>> counts = file.integers(name + "loss_tokens", {&two, 1});
  if (!counts)
    return Unexpected(counts.error());
  auto matrix = [&](const std::string &what, int64_t size) -> Result<std::vector<float>> {
    const int64_t shape = triangleOf(size);
    Result<std::vector<float>> triangle = file.floats(name + what, {&shape, 1});
    if (!triangle)
      return triangle;
    return unpacked(*triangle, size);
  };
  for (auto [prefix, pair, tokens] :
       {std::tuple("loss", &loss.all, (*counts)[0]), {"held_out", &loss.heldOut, (*counts)[1]}}) {
    if (pair == &loss.heldOut && (!request.heldOut || tokens == 0))
      break;
    if (tokens <= 0)
      return makeError(ErrorCode::Corrupt,
                       "{}: tensor \"{}loss_tokens\": found {}, expected 1 or "
                       "more: calibrate again",
                       file.path().string(), name, tokens);
    pair->tokens = tokens;
    Result<std::vector<float>> inputs = matrix(std::string(prefix) + "_inputs", columns);
    if (!inputs)
      return Unexpected(inputs.error());
    pair->inputs = std::move(*inputs);
    if (!request.rows)
      continue;
    Result<std::vector<float>> outputs = matrix(std::string(prefix) + "_outputs", rows);
    if (!outputs)
      return Unexpected(outputs.error());
    pair->outputs = std::move(*outputs);
  }
  return loss;
}

//===----------------------------------------------------------------------===//
// In another basis
//===----------------------------------------------------------------------===//

/// Where rows or columns of a weight are multiplied by `factors`, what meets them is divided.
static void scale(std::vector<float> &hessian, const std::vector<float> &factors, bool divides) {
  const size_t size = factors.size();
  for (size_t at = 0; at < hessian.size(); ++at) {
    const double both = static_cast<double>(factors[at / size]) * factors[at % size];
    hessian[at] = static_cast<float>(divides ? hessian[at] * both : hessian[at] / both);
  }
}

/// R H R, R acting on blocks from `first` on.
static void rotate(std::vector<float> &hessian, int64_t size, int64_t block, int64_t first) {
  for (int side = 0; side < 2; ++side) {
    numerics::rotateConstant(hessian, size, block, /*columnBlock=*/1, first);
    for (int64_t i = 0; i < size; ++i)
      for (int64_t j = 0; j < i; ++j)
        std::swap(hessian[i * size + j], hessian[j * size + i]);
  }
}

FailureOr<SiteLoss> LossStatistics::of(const ModelConstants &constants, QuantizableOpInterface site,
                                       const LossRequest &request) const {
  Value weight = site.getWeightOperand().get();
  auto type = cast<RankedTensorType>(weight.getType());
  const int64_t rows = type.getDimSize(0), columns = type.getDimSize(1);
  Result<SiteLoss> loss = read(site.getSite(), rows, columns, request);
  if (!loss)
    return emitError(site.getLoc()) << "site '" << site.getSite() << "': " << loss.error().message;
  SmallVector<Operation *> steps;
  for (Operation *op = weight.getDefiningOp(); op && op->getNumOperands() > 0;
       op = op->getOperand(0).getDefiningOp())
    steps.push_back(op);
  for (Operation *step : llvm::reverse(steps)) {
    auto take = [&](bool ofColumns, auto change) {
      for (HessianPair *pair : {&loss->all, &loss->heldOut})
        if (std::vector<float> &hessian = ofColumns ? pair->inputs : pair->outputs;
            !hessian.empty())
          change(hessian, ofColumns ? columns : rows);
    };
    if (auto scaled = dyn_cast<equant::ScaleOp>(step)) {
      std::vector<float> factors(
          cast<RankedTensorType>(scaled.getFactor().getType()).getNumElements());
      if (failed(constants.read(scaled.getFactor(), site.getSite(), factors)))
        return failure();
      take(scaled.getAxisAttr().getInt() == 1, [&](std::vector<float> &hessian, int64_t) {
        scale(hessian, factors, scaled.getDivide());
      });
    } else if (auto rotated = dyn_cast<equant::HadamardOp>(step)) {
      take(rotated.getAxisAttr().getInt() == 1, [&](std::vector<float> &hessian, int64_t size) {
        rotate(hessian, size, rotated.getBlockAttr().getInt(), rotated.getFirstAttr().getInt());
      });
    } else {
      return emitError(site.getLoc())
             << "site '" << site.getSite() << "': its weight is made by " << step->getName()
             << ", and statistics are of the model as it is; leave --statistics out";
    }
  }
  return std::move(*loss);
}

FailureOr<std::vector<SiteLoss>> LossStatistics::of(const ModelConstants &constants,
                                                    ArrayRef<QuantizableOpInterface> sites,
                                                    const LossRequest &request) const {
  std::vector<SiteLoss> losses;
  for (QuantizableOpInterface site : sites) {
    FailureOr<SiteLoss> loss = of(constants, site, request);
    if (failed(loss))
      return failure();
    losses.push_back(std::move(*loss));
  }
  return losses;
}

//===----------------------------------------------------------------------===//
// Either
//===----------------------------------------------------------------------===//

FailureOr<LossSource> LossSource::open(LayerRunner &runner, const Ranks &ranks, StringRef file,
                                       unsigned threads) {
  LossSource source(runner, ranks, threads);
  if (file.empty()) {
    FailureOr<LossGradients> gradients = LossGradients::create(runner, threads);
    if (failed(gradients))
      return failure();
    source.gradients.emplace(std::move(*gradients));
    return source;
  }
  auto module = runner.layers().front()->getParentOfType<ModuleOp>();
  FailureOr<LossStatistics> statistics =
      LossStatistics::open(module, runner.constants(), runner.tokens(), file);
  if (failed(statistics))
    return failure();
  source.file.emplace(std::move(*statistics));
  return source;
}

FailureOr<std::vector<SiteLoss>> LossSource::of(ArrayRef<QuantizableOpInterface> sites,
                                                const LossRequest &request) {
  return file ? file->of(runner->constants(), sites, request)
              : gatherLoss(*gradients, ranks, *runner, sites, request, threads);
}
