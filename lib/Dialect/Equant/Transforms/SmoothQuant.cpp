//===- SmoothQuant.cpp - Move outliers from activations to weights --------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The formula, and why alpha is 1/2 by default, are in easyquant/Numerics/SmoothQuant.h. FoldScale
// decides where factors go. A function's activations are taken from the last to the first. So the
// factors that divide the rows of a weight (down_proj into up_proj) are known before the largest
// magnitude of its columns is taken for the activation that it reads.
//
//===----------------------------------------------------------------------===//

#include "easyquant/Numerics/SmoothQuant.h"
#include "easyquant/Dialect/Equant/Analysis/NothingToDo.h"
#include "easyquant/Dialect/Equant/Analysis/RecipePlans.h"
#include "easyquant/Dialect/Equant/Transforms/FoldScale.h"
#include "easyquant/Dialect/Equant/Transforms/Passes.h"
#include "easyquant/Formats/StatisticsFile.h"
#include "easyquant/Numerics/Statistics.h"
#include "easyquant/Recipe/PassOptions.h"
#include "easyquant/Support/Checksum.h"
#include "easyquant/Support/ProgressAction.h"
#include "easyquant/Weights/ConstantTensors.h"

#include "mlir/Interfaces/FunctionInterfaces.h"
#include "llvm/ADT/MapVector.h"
#include "llvm/Support/FormatVariadic.h"

#include <map>
#include <numeric>

namespace easyquant::equant {
#define GEN_PASS_DEF_SMOOTHQUANT
#include "easyquant/Dialect/Equant/Transforms/Passes.h.inc"
} // namespace easyquant::equant

using namespace mlir;
using namespace easyquant;
using namespace easyquant::equant;

namespace {

constexpr StringLiteral kMethod = "smoothquant";
/// Floats of a weight that are in memory at a time.
constexpr int64_t kChunkFloats = int64_t(1) << 20;

struct SmoothQuant : recipe::WithOptionValues<equant::impl::SmoothQuantBase<SmoothQuant>> {
  using WithOptionValues::WithOptionValues;
  void runOnOperation() override;
};

/// What becomes of one point.
struct Smoothing {
  std::vector<float> factors;
  float alpha = 0;
};

/// A statistic of what experts read, or tokens: values of each, one behind the other.
struct ActivationStatistic {
  std::vector<float> values;
  std::vector<int64_t> tokens; ///< that each has read; 1 where there are no experts
};

/// The factors of one function.
class Smoother {
public:
  /// No alpha: the best one of each point. Sites may have alphas of their own.
  Smoother(const ConstantMatcher &matcher, const ConstantReader &reader,
           const formats::StatisticsFile &statistics, std::optional<double> alpha)
      : matcher(matcher), reader(reader), statistics(statistics), alpha(alpha) {}

  /// Points of the function that get factors, in program order.
  LogicalResult compute(ArrayRef<FoldPoint *> points);
  /// Everything that the factors follow from.
  FailureOr<std::string> stamp(ArrayRef<FoldPoint *> points, StringRef statisticsHash) const;
  const Smoothing &of(const FoldPoint *point) const { return found.find(point)->second; }

private:
  LogicalResult compute(const FoldPoint &point);
  FailureOr<std::optional<double>> alphaOf(const FoldPoint &point) const;
  FailureOr<Smoothing> search(const FoldPoint &point, ArrayRef<float> activation,
                              ArrayRef<float> weight);
  /// Visits the rows of a weight in order, divided if they will be.
  LogicalResult visitRows(QuantizableOpInterface op,
                          llvm::function_ref<Result<void>(numerics::ConstMatrix)> visit);
  FailureOr<ActivationStatistic> find(const FoldPoint &point, StringRef statistic,
                                      int64_t rows) const;
  FailureOr<std::vector<float>> peaksOf(const FoldPoint &point) const;
  FailureOr<std::vector<float>> meanSquaresOf(const FoldPoint &point) const;

  const ConstantMatcher &matcher;
  const ConstantReader &reader;
  const formats::StatisticsFile &statistics;
  std::optional<double> alpha;
  std::map<const FoldPoint *, Smoothing> found;
  /// The divisors of linears whose rows will be divided.
  llvm::DenseMap<Operation *, const std::vector<float> *> divisors;
};

} // namespace

static std::string nameOf(const FoldPoint &point) {
  return (point.sites().front() + ".smooth_scale").str();
}
static std::string alphaName(const FoldPoint &point) {
  return (point.sites().front() + ".smooth_alpha").str();
}

LogicalResult Smoother::visitRows(QuantizableOpInterface op,
                                  llvm::function_ref<Result<void>(numerics::ConstMatrix)> visit) {
  FailureOr<ConstantTensor> weight =
      matcher.match(op.getLoc(), op.getSite(), op.getWeightOperand().get());
  if (failed(weight))
    return failure();
  auto fail = [&](const Error &error) {
    return emitError(op.getLoc()) << "site '" << op.getSite() << "': " << error.message;
  };
  if (auto there = reader.check(*weight); !there)
    return fail(there.error());
  const std::vector<float> *rowDivisors = divisors.lookup(op);
  int64_t rows = weight->shape[0], columns = weight->shape[1];
  int64_t step = std::max<int64_t>(1, kChunkFloats / columns);
  std::vector<float> values(std::min(step, rows) * columns);
  for (int64_t first = 0; first < rows; first += step) {
    int64_t count = std::min(step, rows - first);
    std::span<float> chunk(values.data(), count * columns);
    if (auto done = reader.readRows(*weight, first, count, chunk); !done)
      return fail(done.error());
    for (int64_t i = 0; rowDivisors && i < count; ++i)
      for (float &value : chunk.subspan(i * columns, columns))
        value /= (*rowDivisors)[first + i];
    if (auto done = visit({values.data(), count, columns}); !done)
      return fail(done.error());
  }
  return success();
}

/// A statistic of the activation, rows x columns, for each of as many experts as its site has, 1
/// where tokens are read: that of any reader will do, but of tokens rather than of experts.
FailureOr<ActivationStatistic> Smoother::find(const FoldPoint &point, StringRef statistic,
                                              int64_t rows) const {
  auto experts = [](QuantizableOpInterface op) {
    auto linear = dyn_cast<lm::LinearOp>(op.getOperation());
    return linear && linear.getExperts() ? lm::expertCount(linear.getExperts()) : 0;
  };
  QuantizableOpInterface chosen;
  for (QuantizableOpInterface op : point.readers)
    if (statistics.has((op.getSite() + "/" + statistic).str()) &&
        (!chosen || (experts(chosen) > 0 && experts(op) == 0)))
      chosen = op;
  if (!chosen) // which the file says
    chosen = point.readers.front();
  std::vector<int64_t> shape = {point.columns()};
  if (rows > 1)
    shape.insert(shape.begin(), rows);
  const int64_t count = experts(chosen);
  if (count > 0)
    shape.insert(shape.begin(), count);
  const std::string site = chosen.getSite().str();
  auto values = statistics.floats(fmt::format("{}/{}", site, statistic.str()), shape);
  if (!values)
    return emitError(chosen.getLoc()) << "site '" << site << "': " << values.error().message;
  ActivationStatistic found{std::move(*values), {1}};
  if (count > 0) {
    auto tokens = statistics.integers(site + "/tokens", {&count, 1});
    if (!tokens)
      return emitError(chosen.getLoc()) << "site '" << site << "': " << tokens.error().message;
    found.tokens = std::move(*tokens);
  }
  return found;
}

FailureOr<std::vector<float>> Smoother::peaksOf(const FoldPoint &point) const {
  FailureOr<ActivationStatistic> peaks = find(point, "absmax", 1);
  if (failed(peaks))
    return failure();
  std::vector<float> all(point.columns());
  for (size_t at = 0; at < peaks->values.size(); ++at)
    all[at % all.size()] = std::max(all[at % all.size()], peaks->values[at]);
  return all;
}

/// E[x^2] of the rows that are read, from means and variances.
FailureOr<std::vector<float>> Smoother::meanSquaresOf(const FoldPoint &point) const {
  FailureOr<ActivationStatistic> moments = find(point, "moments", 2);
  if (failed(moments))
    return failure();
  const int64_t columns = point.columns();
  const double rows = std::accumulate(moments->tokens.begin(), moments->tokens.end(), 0.0);
  std::vector<float> all(columns);
  for (auto [expert, tokens] : llvm::enumerate(moments->tokens))
    for (int64_t j = 0; tokens > 0 && j < columns; ++j) {
      const float *own = moments->values.data() + 2 * static_cast<int64_t>(expert) * columns;
      all[j] += static_cast<float>(tokens / rows) * (own[j] * own[j] + own[columns + j]);
    }
  return all;
}

FailureOr<Smoothing> Smoother::search(const FoldPoint &point, ArrayRef<float> activation,
                                      ArrayRef<float> weight) {
  QuantizableOpInterface first = point.readers.front();
  FailureOr<std::vector<float>> meanSquares = meanSquaresOf(point);
  if (failed(meanSquares))
    return failure();
  PlanAttr plan = getPlan(first);
  for (QuantizableOpInterface op : point.readers)
    if (!plan)
      plan = getPlan(op);
  const numerics::Scheme scheme = plan.getWeight().toNumerics();
  numerics::SmoothedCodes codes;
  codes.maxWeight = numerics::codeRange(scheme).max;
  codes.groupSize = scheme.groupSize;
  codes.maxActivation = plan.getInput() ? numerics::codeRange(plan.getInput().toNumerics()).max : 0;
  auto search = numerics::SmoothingSearch::create(activation, *meanSquares, weight, codes);
  if (!search)
    return emitError(first.getLoc())
           << "site '" << first.getSite() << "': " << search.error().message;
  for (QuantizableOpInterface op : point.readers)
    if (failed(visitRows(op, [&](numerics::ConstMatrix rows) -> Result<void> {
          search->update(rows);
          return {};
        })))
      return failure();
  return Smoothing{search->best().factors, static_cast<float>(search->best().alpha)};
}

/// The alpha of the sites that read the activation, which all of them share.
FailureOr<std::optional<double>> Smoother::alphaOf(const FoldPoint &point) const {
  QuantizableOpInterface asking;
  Attribute own;
  for (QuantizableOpInterface op : point.readers) {
    PlanAttr plan = getPlan(op);
    if (!plan || !plan.names(kMethod))
      continue;
    Attribute here = plan.option(recipe::option::alpha.info().key);
    if (asking && here != own) {
      auto text = [](Attribute value) {
        return value ? llvm::formatv("alpha {0}", value).str() : std::string("the default alpha");
      };
      return emitError(op.getLoc()) << "sites '" << asking.getSite() << "' and '" << op.getSite()
                                    << "' read the same activations, but one asks for " << text(own)
                                    << ", the other for " << text(here) << ": give both the same";
    }
    asking = op;
    own = here;
  }
  if (!own)
    return alpha;
  auto number = dyn_cast<FloatAttr>(own);
  return number ? std::optional(number.getValueAsDouble()) : std::nullopt;
}

LogicalResult Smoother::compute(const FoldPoint &point) {
  QuantizableOpInterface first = point.readers.front();
  FailureOr<std::vector<float>> activation = peaksOf(point);
  FailureOr<std::optional<double>> wanted = alphaOf(point);
  if (failed(activation) || failed(wanted))
    return failure();
  numerics::AbsMax weight(point.columns());
  for (QuantizableOpInterface op : point.readers)
    if (failed(visitRows(op, [&](numerics::ConstMatrix rows) { return weight.update(rows); })))
      return failure();
  if (!*wanted) {
    FailureOr<Smoothing> best = search(point, *activation, weight.channels());
    if (failed(best))
      return failure();
    found[&point] = std::move(*best);
    return success();
  }
  auto factors = numerics::smoothingFactors(*activation, weight.channels(), **wanted);
  if (!factors)
    return emitError(first.getLoc())
           << "site '" << first.getSite() << "': " << factors.error().message;
  found[&point] = {std::move(*factors), static_cast<float>(**wanted)};
  return success();
}

LogicalResult Smoother::compute(ArrayRef<FoldPoint *> points) {
  for (FoldPoint *point : llvm::reverse(points)) {
    if (failed(compute(*point)))
      return failure();
    divisors[point->producer] = &found.find(point)->second.factors;
  }
  return success();
}

FailureOr<std::string> Smoother::stamp(ArrayRef<FoldPoint *> points,
                                       StringRef statisticsHash) const {
  std::string text = fmt::format("smoothquant 3, model {}, statistics {}", statistics.stamp().model,
                                 statisticsHash.str());
  for (const FoldPoint *point : points) {
    FailureOr<std::optional<double>> wanted = alphaOf(*point);
    if (failed(wanted))
      return failure();
    text += "\n" + (*wanted ? fmt::format("{}", **wanted) : std::string(recipe::kSearch));
    for (QuantizableOpInterface op : point->readers) {
      FailureOr<ConstantTensor> weight =
          matcher.match(op.getLoc(), op.getSite(), op.getWeightOperand().get());
      if (failed(weight))
        return failure();
      text += "\n" + op.getSite().str() + " " + weight->key();
    }
  }
  return "smoothquant " + checksumOf(std::as_bytes(std::span(text)));
}

void SmoothQuant::runOnOperation() {
  ModuleOp module = getOperation();
  auto fail = [&](const Twine &message) {
    emitError(module.getLoc()) << message;
    signalPassFailure();
  };
  // Points that are asked for, by the function that they are in.
  SmallVector<FoldPoint> points = findFoldPoints(module);
  llvm::MapVector<Operation *, SmallVector<FoldPoint *>> functions;
  bool isPlanned = false;
  for (FoldPoint &point : points) {
    auto isAsked = [](QuantizableOpInterface op) {
      PlanAttr plan = getPlan(op);
      return plan && plan.names(kMethod);
    };
    if (!llvm::any_of(point.readers, isAsked))
      continue;
    isPlanned = true;
    if (!point.producer)
      recordTransform(module, kMethod, point);
    else
      functions[point.readers.front()->getParentOfType<FunctionOpInterface>()].push_back(&point);
  }
  if (!isPlanned) {
    if (failed(reportNotPlanned(module, getArgument(), kMethod, requireSites)))
      signalPassFailure();
    return;
  }
  std::optional<double> wanted;
  if (double number = 0; !alpha.getValue().empty() && !StringRef(alpha).getAsDouble(number))
    wanted = number;
  else if (auto ok = checkValue(recipe::option::alpha.info(), alpha.getValue()); !ok)
    return fail(ok.error().message);
  recordOptions(module, optionValues(), kMethod);
  if (functions.empty())
    return;

  auto gathered = module->getAttrOfType<StringAttr>(kStatisticsAttr);
  std::string path = !statistics.empty() ? statistics.getValue() : gathered ? gathered.str() : "";
  if (path.empty())
    return fail("SmoothQuant needs the largest magnitude of each channel: run equant-calibrate "
                "before, or give statistics=FILE");
  FailureOr<std::string> work = getWorkFolder(module, workFolder);
  FailureOr<ConstantReader> reader = ConstantReader::open(module);
  if (failed(work) || failed(reader))
    return signalPassFailure();
  Result<formats::StatisticsFile> file = formats::StatisticsFile::open(path);
  if (!file)
    return fail(file.error().message);
  Result<std::string> hash = reader->source().hash(), fileHash = checksumOfFile(path);
  if (!hash || !fileHash)
    return fail((hash ? fileHash : hash).error().message);
  if (auto same = file->checkModel(*hash); !same)
    return fail(same.error().message);

  ConstantMatcher matcher(module);
  int64_t done = 0;
  for (auto &[function, asked] : functions) {
    std::string fileName =
        ("smooth_" + cast<FunctionOpInterface>(function).getName() + ".safetensors").str();
    Smoother smoother(matcher, *reader, *file, wanted);
    FailureOr<std::string> stamp = smoother.stamp(asked, *fileHash);
    if (failed(stamp))
      return signalPassFailure();
    if (!isIntact(function->getLoc(), reader->computed(), fileName, *stamp)) {
      if (failed(smoother.compute(asked)))
        return signalPassFailure();
      std::vector<formats::ComputedTensor> tensors;
      for (const FoldPoint *point : asked) {
        const Smoothing &smoothing = smoother.of(point);
        tensors.push_back(
            formats::ComputedTensor::floats(nameOf(*point), {point->columns()}, smoothing.factors));
        tensors.push_back(formats::ComputedTensor::floats(alphaName(*point), {1},
                                                          std::span(&smoothing.alpha, 1)));
      }
      if (auto written = reader->computed().write(fileName, *stamp, tensors); !written)
        return fail(written.error().message);
    }
    for (const FoldPoint *point : asked) {
      float used = 0;
      if (auto read = reader->computed().readRows(
              {fileName, *stamp, alphaName(*point), formats::DType::F32, {1}}, 0, 1,
              std::span(&used, 1));
          !read)
        return fail(read.error().message);
      NamedAttrList details;
      // A float32 would be printed with the digits of its rounding.
      details.set("alpha", Builder(&getContext()).getF64FloatAttr(std::round(used * 1e6) / 1e6));
      recordTransform(module, kMethod, *point, details);
      auto type = RankedTensorType::get({point->columns()}, Float32Type::get(&getContext()));
      foldScale(*point, declareComputed(module, nameOf(*point), type, fileName, *stamp));
    }
    ProgressAction::report(&getContext(), "smooth", ++done, functions.size());
  }
}
