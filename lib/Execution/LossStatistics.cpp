//===- LossStatistics.cpp - Hessians of the loss, of all and held out -----===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "easyquant/Execution/LossStatistics.h"

#include "LossSums.h"

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

int64_t easyquant::execution::expertsOf(QuantizableOpInterface site) {
  auto linear = dyn_cast<lm::LinearOp>(site.getOperation());
  return linear && linear.getExperts() ? lm::expertCount(linear.getExperts()) : 0;
}

LogicalResult easyquant::execution::failUnreached(QuantizableOpInterface site) {
  return emitError(site.getLoc())
         << "site '" << site.getSite()
         << "': the loss of the calibration text does not depend on it: found no gradient but 0. "
            "Calibrate on longer samples, or leave this site out (--ignore)";
}

/// The weight of a site, or of one expert of it.
static LossWeight weightOf(QuantizableOpInterface site) {
  auto type = cast<RankedTensorType>(site.getWeightOperand().get().getType());
  const int64_t experts = std::max<int64_t>(expertsOf(site), 1);
  return {fmt::format("site '{}'", site.getSite().str()), type.getDimSize(0) / experts,
          type.getDimSize(1)};
}

/// Errors: Corrupt, naming site, sample, token and channel.
static Result<void> checkGradients(const LayerRunner &runner, QuantizableOpInterface site,
                                   int64_t sample, const TrainedLayer::Rows &rows) {
  return runner.checkFinite(
      fmt::format("the gradient of the loss at the output of site '{}'", site.getSite().str()),
      sample, rows.gradient, rows.order);
}

FailureOr<LayerLoss> easyquant::execution::gatherLoss(LossGradients &gradients, const Ranks &ranks,
                                                      const LayerRunner &runner,
                                                      ArrayRef<QuantizableOpInterface> sites,
                                                      const LossRequest &request,
                                                      unsigned threads) {
  func::FuncOp layer = runner.layers()[gradients.next()];
  const CalibrationTokens &tokens = runner.tokens();
  SmallVector<Value> weights;
  SmallVector<size_t> numberOf; // of each site, among those of its kind
  std::vector<LossWeight> plain, ofExperts;
  for (QuantizableOpInterface site : sites) {
    weights.push_back(site.getWeightOperand().get());
    std::vector<LossWeight> &kind = expertsOf(site) > 0 ? ofExperts : plain;
    numberOf.push_back(kind.size());
    kind.push_back(weightOf(site));
  }
  const LossSamples samples{ranks, &tokens, request.rows,
                            request.heldOut ? heldOutSamples(tokens.allSamples()) : 0};
  LossSums sums(samples, std::move(plain));
  auto experts = std::make_shared<ExpertLoss>(samples, std::move(ofExperts));
  auto visit = [&](int64_t sample, ArrayRef<TrainedLayer::Rows> rows) -> Result<void> {
    for (auto [site, row] : llvm::reverse(llvm::zip_equal(sites, rows)))
      if (auto finite = checkGradients(runner, site, sample, row); !finite)
        return finite;
    SmallVector<TrainedLayer::Rows> plain, ofExperts;
    for (auto [site, row] : llvm::zip_equal(sites, rows))
      (expertsOf(site) > 0 ? ofExperts : plain).push_back(row);
    experts->keep(ofExperts);
    return sums.add(sample, plain, threads);
  };
  if (failed(gradients.backward(weights, visit)))
    return failure();
  Result<std::vector<SiteLoss>> found = sums.finish();
  if (!found)
    return emitError(layer.getLoc()) << found.error().message;
  LayerLoss losses;
  losses.sites.resize(sites.size());
  for (auto [i, op] : llvm::enumerate(sites)) {
    QuantizableOpInterface site = op;
    if (expertsOf(site) > 0)
      continue;
    losses.sites[i] = std::move((*found)[numberOf[i]]);
    if (!losses.sites[i].all.isReached() ||
        (samples.heldOut > 0 && !losses.sites[i].heldOut.isReached()))
      return failUnreached(site);
  }
  losses.ofExpert = [experts, numberOf, loc = layer.getLoc(),
                     threads](size_t site, int64_t expert) -> FailureOr<SiteLoss> {
    Result<SiteLoss> loss = experts->of(numberOf[site], expert, threads);
    if (!loss)
      return emitError(loc) << loss.error().message;
    return std::move(*loss);
  };
  return losses;
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

/// Puts those of a site, or of its next expert, behind what is there.
static void append(std::vector<LossTensor> &tensors, StringRef site, int64_t experts,
                   SiteLoss loss) {
  auto add = [&](StringRef name, auto values) {
    const std::string full = (site + "/" + name).str();
    auto found =
        llvm::find_if(tensors, [&](const LossTensor &tensor) { return tensor.name == full; });
    if (found == tensors.end()) {
      std::vector<int64_t> shape = {std::ssize(values)};
      if (experts > 0)
        shape.insert(shape.begin(), experts);
      values.reserve(values.size() * std::max<int64_t>(experts, 1));
      tensors.push_back({full, std::move(shape), std::move(values)});
    } else {
      llvm::append_range(std::get<decltype(values)>(found->values), values);
    }
  };
  for (auto [prefix, pair] : {std::pair("loss", &loss.all), {"held_out", &loss.heldOut}}) {
    if (pair->inputs.empty())
      continue;
    add(std::string(prefix) + "_inputs", packed(pair->inputs));
    add(std::string(prefix) + "_outputs", packed(pair->outputs));
  }
  add("loss_tokens", std::vector<int64_t>{loss.all.tokens, loss.heldOut.tokens});
}

FailureOr<std::vector<LossTensor>>
easyquant::execution::tensorsOf(QuantizableOpInterface site, size_t number, LayerLoss &losses) {
  const int64_t experts = expertsOf(site);
  std::vector<LossTensor> tensors;
  if (experts == 0) {
    append(tensors, site.getSite(), experts, std::move(losses.sites[number]));
    return tensors;
  }
  bool isReached = false;
  for (int64_t expert = 0; expert < experts; ++expert) {
    FailureOr<SiteLoss> loss = losses.ofExpert(number, expert);
    if (failed(loss))
      return failure();
    isReached |= loss->all.isReached();
    append(tensors, site.getSite(), experts, std::move(*loss));
  }
  if (!isReached)
    return failUnreached(site);
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
                                      std::optional<Part> part, const LossRequest &request) const {
  const std::string name = site.str() + "/";
  if (!file.has(name + "loss_inputs"))
    return makeError(ErrorCode::NotFound,
                     "{}: has no \"{}loss_inputs\"; expected what easyquant calibrate "
                     "--statistic {} writes of this model",
                     file.path().string(), name, kLossStatistic.str());
  SiteLoss loss;
  auto shapeOf = [&](int64_t size) {
    return part ? SmallVector<int64_t>{part->experts, size} : SmallVector<int64_t>{size};
  };
  const SmallVector<int64_t> two = shapeOf(2);
  Result<std::vector<int64_t>> counts =
      file.integers(name + "loss_tokens", {two.data(), two.size()});
  if (!counts)
    return Unexpected(counts.error());
  auto matrix = [&](const std::string &what, int64_t size) -> Result<std::vector<float>> {
    const SmallVector<int64_t> shape = shapeOf(triangleOf(size));
    const std::span<const int64_t> view(shape.data(), shape.size());
    Result<std::vector<float>> triangle =
        part ? file.floats(name + what, view, part->expert) : file.floats(name + what, view);
    if (!triangle)
      return triangle;
    return unpacked(*triangle, size);
  };
  // No row may have chosen an expert.
  const int64_t first = part ? 2 * part->expert : 0, least = part ? 0 : 1;
  for (auto [prefix, pair, tokens] : {std::tuple("loss", &loss.all, (*counts)[first]),
                                      {"held_out", &loss.heldOut, (*counts)[first + 1]}}) {
    const std::string inputsName = std::string(prefix) + "_inputs";
    if (pair == &loss.heldOut && (!request.heldOut || !file.has(name + inputsName)))
      break;
    if (tokens < least)
      return makeError(ErrorCode::Corrupt,
                       "{}: tensor \"{}loss_tokens\": found {}, expected {} or "
                       "more: calibrate again",
                       file.path().string(), name, tokens, least);
    pair->tokens = tokens;
    Result<std::vector<float>> inputs = matrix(inputsName, columns);
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
static void scale(std::vector<float> &hessian, std::span<const float> factors, bool divides) {
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
                                       const LossRequest &request,
                                       std::optional<int64_t> expert) const {
  const LossWeight weight = weightOf(site);
  std::optional<Part> part;
  if (expert)
    part = {*expert, expertsOf(site)};
  Result<SiteLoss> loss = read(site.getSite(), weight.rows, weight.columns, part, request);
  if (!loss)
    return emitError(site.getLoc()) << weight.name << ": " << loss.error().message;
  SmallVector<Operation *> steps;
  for (Operation *op = site.getWeightOperand().get().getDefiningOp();
       op && op->getNumOperands() > 0; op = op->getOperand(0).getDefiningOp())
    steps.push_back(op);
  for (Operation *step : llvm::reverse(steps)) {
    auto take = [&](bool ofColumns, auto change) {
      for (HessianPair *pair : {&loss->all, &loss->heldOut})
        if (std::vector<float> &hessian = ofColumns ? pair->inputs : pair->outputs;
            !hessian.empty())
          change(hessian, ofColumns ? weight.columns : weight.rows);
    };
    auto scaled = dyn_cast<equant::ScaleOp>(step);
    auto rotated = dyn_cast<equant::HadamardOp>(step);
    const bool ofColumns = scaled ? scaled.getAxisAttr().getInt() == 1
                                  : rotated && rotated.getAxisAttr().getInt() == 1;
    if (scaled) {
      std::vector<float> factors(
          cast<RankedTensorType>(scaled.getFactor().getType()).getNumElements());
      if (failed(constants.read(scaled.getFactor(), site.getSite(), factors)))
        return failure();
      // The rows of all experts have factors, one expert's behind the other's.
      std::span<const float> own = factors;
      if (expert && !ofColumns)
        own = own.subspan(*expert * weight.rows, weight.rows);
      take(ofColumns,
           [&](std::vector<float> &hessian, int64_t) { scale(hessian, own, scaled.getDivide()); });
    } else if (rotated && (ofColumns || !expert)) {
      take(ofColumns, [&](std::vector<float> &hessian, int64_t size) {
        rotate(hessian, size, rotated.getBlockAttr().getInt(), rotated.getFirstAttr().getInt());
      });
    } else {
      return emitError(site.getLoc())
             << weight.name << ": its weight is made by " << step->getName()
             << ", and statistics are of the model as it is; leave --statistics out";
    }
  }
  return std::move(*loss);
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

FailureOr<LayerLoss> LossSource::of(ArrayRef<QuantizableOpInterface> sites,
                                    const LossRequest &request) {
  if (!file)
    return gatherLoss(*gradients, ranks, *runner, sites, request, threads);
  LayerLoss losses;
  for (QuantizableOpInterface site : sites) {
    SiteLoss &own = losses.sites.emplace_back();
    if (expertsOf(site) > 0)
      continue;
    FailureOr<SiteLoss> loss = file->of(runner->constants(), site, request);
    if (failed(loss))
      return failure();
    own = std::move(*loss);
  }
  losses.ofExpert = [this, request, ops = llvm::to_vector(sites)](size_t site, int64_t expert) {
    return file->of(runner->constants(), ops[site], request, expert);
  };
  return losses;
}
