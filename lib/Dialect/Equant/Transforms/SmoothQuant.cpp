//===- SmoothQuant.cpp - Move outliers from activations to weights --------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The formula, and why alpha is 1/2 by default, are in easyquant/Numerics/SmoothQuant.h. Where
// factors go is FoldScale's business. Of a function's activations the last is taken first: what
// divides the rows of a weight (down_proj into up_proj) is known before the largest magnitude of
// its columns is taken for the activation that it reads.
//
//===----------------------------------------------------------------------===//

#include "easyquant/Numerics/SmoothQuant.h"
#include "easyquant/Dialect/Equant/Analysis/ConstantTensors.h"
#include "easyquant/Dialect/Equant/Transforms/FoldScale.h"
#include "easyquant/Dialect/Equant/Transforms/Passes.h"
#include "easyquant/Formats/StatisticsFile.h"
#include "easyquant/Numerics/Statistics.h"
#include "easyquant/Support/Checksum.h"
#include "easyquant/Support/ProgressAction.h"

#include "mlir/Interfaces/FunctionInterfaces.h"
#include "llvm/ADT/MapVector.h"

#include <map>

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

struct SmoothQuant : equant::impl::SmoothQuantBase<SmoothQuant> {
  using SmoothQuantBase::SmoothQuantBase;
  void runOnOperation() override;
};

/// The factors of one function.
class Smoother {
public:
  Smoother(const ConstantMatcher &matcher, const ConstantReader &reader,
           const formats::StatisticsFile &statistics, double alpha)
      : matcher(matcher), reader(reader), statistics(statistics), alpha(alpha) {}

  /// Points of the function that get factors, in program order.
  LogicalResult compute(ArrayRef<FoldPoint *> points);
  /// Everything that the factors follow from.
  FailureOr<std::string> stamp(ArrayRef<FoldPoint *> points, StringRef statisticsHash) const;
  ArrayRef<float> factors(const FoldPoint *point) const { return found.find(point)->second; }

private:
  LogicalResult compute(const FoldPoint &point);
  /// Takes the columns of a weight into account, its rows divided if they will be.
  LogicalResult update(numerics::AbsMax &absMax, QuantizableOpInterface op);

  const ConstantMatcher &matcher;
  const ConstantReader &reader;
  const formats::StatisticsFile &statistics;
  double alpha;
  std::map<const FoldPoint *, std::vector<float>> found;
  /// Of linears whose rows will be divided.
  llvm::DenseMap<Operation *, const std::vector<float> *> divisors;
};

} // namespace

static std::string nameOf(StringRef site) { return (site + ".smooth_scale").str(); }

LogicalResult Smoother::update(numerics::AbsMax &absMax, QuantizableOpInterface op) {
  FailureOr<ConstantTensor> weight =
      matcher.match(op.getLoc(), op.getSite(), op.getWeightOperand().get());
  if (failed(weight))
    return failure();
  auto fail = [&](const Error &error) {
    return emitError(op.getLoc()) << "site '" << op.getSite() << "': " << error.message;
  };
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
    if (auto done = absMax.update({values.data(), count, columns}); !done)
      return fail(done.error());
  }
  return success();
}

LogicalResult Smoother::compute(const FoldPoint &point) {
  QuantizableOpInterface first = point.readers.front();
  auto fail = [&](const Error &error) {
    return emitError(first.getLoc()) << "site '" << first.getSite() << "': " << error.message;
  };
  // All readers see the same activation: the statistics of any of them will do.
  std::string name = (first.getSite() + "/absmax").str();
  for (StringRef site : point.sites())
    if (std::string other = (site + "/absmax").str(); statistics.has(other)) {
      name = other;
      break;
    }
  int64_t columns = point.columns();
  auto activation = statistics.floats(name, std::span(&columns, 1));
  if (!activation)
    return fail(activation.error());
  numerics::AbsMax weight(columns);
  for (QuantizableOpInterface op : point.readers)
    if (failed(update(weight, op)))
      return failure();
  auto factors = numerics::smoothingFactors(*activation, weight.channels(), alpha);
  if (!factors)
    return fail(factors.error());
  found[&point] = std::move(*factors);
  return success();
}

LogicalResult Smoother::compute(ArrayRef<FoldPoint *> points) {
  for (FoldPoint *point : llvm::reverse(points)) {
    if (failed(compute(*point)))
      return failure();
    divisors[point->producer] = &found.find(point)->second;
  }
  return success();
}

FailureOr<std::string> Smoother::stamp(ArrayRef<FoldPoint *> points,
                                       StringRef statisticsHash) const {
  std::string text = fmt::format("smoothquant 1, alpha {}, model {}, statistics {}", alpha,
                                 statistics.stamp().model, statisticsHash.str());
  for (const FoldPoint *point : points)
    for (QuantizableOpInterface op : point->readers) {
      FailureOr<ConstantTensor> weight =
          matcher.match(op.getLoc(), op.getSite(), op.getWeightOperand().get());
      if (failed(weight))
        return failure();
      text += "\n" + op.getSite().str() + " " + weight->key();
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
  for (FoldPoint &point : points) {
    auto isAsked = [](QuantizableOpInterface op) {
      PlanAttr plan = getPlan(op);
      return plan && plan.names(kMethod);
    };
    if (!llvm::any_of(point.readers, isAsked))
      continue;
    recordTransform(module, kMethod, point);
    if (point.producer)
      functions[point.readers.front()->getParentOfType<FunctionOpInterface>()].push_back(&point);
  }
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
    Smoother smoother(matcher, *reader, *file, alpha);
    FailureOr<std::string> stamp = smoother.stamp(asked, *fileHash);
    if (failed(stamp))
      return signalPassFailure();
    if (!reader->computed().has(fileName, *stamp)) {
      if (failed(smoother.compute(asked)))
        return signalPassFailure();
      std::vector<formats::ComputedTensor> tensors;
      for (const FoldPoint *point : asked)
        tensors.push_back(formats::ComputedTensor::floats(
            nameOf(point->sites().front()), {point->columns()}, smoother.factors(point)));
      if (auto written = reader->computed().write(fileName, *stamp, tensors); !written)
        return fail(written.error().message);
    }
    for (const FoldPoint *point : asked) {
      auto type = RankedTensorType::get({point->columns()}, Float32Type::get(&getContext()));
      foldScale(*point,
                declareComputed(module, nameOf(point->sites().front()), type, fileName, *stamp));
    }
    ProgressAction::report(&getContext(), "smooth", ++done, functions.size());
  }
}
