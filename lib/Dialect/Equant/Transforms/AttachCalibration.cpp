//===- AttachCalibration.cpp - Statistics back in the IR ------------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "easyquant/Dialect/Equant/Transforms/Passes.h"
#include "easyquant/Formats/ModelSource.h"
#include "easyquant/Formats/StatisticsFile.h"

#include "mlir/IR/Builders.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace easyquant::equant {
#define GEN_PASS_DEF_ATTACHCALIBRATION
#include "easyquant/Dialect/Equant/Transforms/Passes.h.inc"
} // namespace easyquant::equant

using namespace mlir;
using namespace easyquant;
using namespace easyquant::equant;
using formats::StatisticsFile;

namespace {

struct AttachCalibration : equant::impl::AttachCalibrationBase<AttachCalibration> {
  using AttachCalibrationBase::AttachCalibrationBase;

  void runOnOperation() override {
    if (auto done = attach(); !done) {
      emitError(getOperation().getLoc()) << done.error().message;
      signalPassFailure();
    }
  }

private:
  Result<void> attach();
  Result<DictionaryAttr> summarize(const StatisticsFile &file, QuantizableOpInterface op);
};

} // namespace

/// The numbers of the whole tensor, of those statistics that have any.
Result<DictionaryAttr> AttachCalibration::summarize(const StatisticsFile &file,
                                                    QuantizableOpInterface op) {
  StringRef site = op.getSite();
  const int64_t channels = lm::columns(op.getActivationOperand().get());
  Builder b(&getContext());
  NamedAttrList numbers;
  auto set = [&](StringRef name, double value) {
    numbers.set(name, b.getF32FloatAttr(static_cast<float>(value)));
  };
  // A statistic, if it was gathered.
  auto read = [&](StringRef statistic, std::vector<int64_t> shape, auto use) -> Result<void> {
    std::string name = (site + "/" + statistic).str();
    if (!file.has(name))
      return {};
    Result<std::vector<float>> values = file.floats(name, shape);
    if (!values)
      return Unexpected(values.error());
    use(std::span<const float>(*values));
    return {};
  };
  auto mean = [](std::span<const float> values) {
    return std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
  };

  Result<std::vector<int64_t>> tokens =
      file.integers((site + "/tokens").str(), std::vector<int64_t>{1});
  if (!tokens)
    return Unexpected(tokens.error());
  numbers.set("tokens", b.getI64IntegerAttr(tokens->front()));
  Result<void> done = read("absmax", {channels}, [&](std::span<const float> values) {
    set("absmax", *std::max_element(values.begin(), values.end()));
  });
  if (done)
    done = read("minmax", {2, channels}, [&](std::span<const float> values) {
      set("min", *std::min_element(values.begin(), values.begin() + channels));
      set("max", *std::max_element(values.begin() + channels, values.end()));
    });
  if (done)
    done = read("mean_abs", {channels},
                [&](std::span<const float> values) { set("mean_abs", mean(values)); });
  if (done)
    done = read("moments", {2, channels}, [&](std::span<const float> values) {
      // The law of total variance, over the channels.
      std::span<const float> means = values.first(channels), variances = values.last(channels);
      double all = mean(means), between = 0;
      for (float m : means)
        between += (m - all) * (m - all);
      set("mean", all);
      set("deviation", std::sqrt(mean(variances) + between / static_cast<double>(channels)));
    });
  if (done)
    done = read("ema", {2}, [&](std::span<const float> values) {
      set("ema_absmax", values[0]);
      set("ema_mean", values[1]);
    });
  if (!done)
    return Unexpected(done.error());
  return numbers.getDictionary(&getContext());
}

Result<void> AttachCalibration::attach() {
  ModuleOp module = getOperation();
  auto known = module->getAttrOfType<StringAttr>(kStatisticsAttr);
  std::string path = !statistics.empty() ? statistics.getValue() : known ? known.str() : "";
  if (path.empty())
    return makeError(ErrorCode::InvalidArgument,
                     "no statistics file: give the option statistics, or run equant-calibrate "
                     "before");
  Result<StatisticsFile> file = StatisticsFile::open(path);
  if (!file)
    return Unexpected(file.error());
  auto sourcePath = module->getAttrOfType<StringAttr>(lm::kSourceAttr);
  if (!sourcePath)
    return makeError(ErrorCode::InvalidArgument,
                     "module has no {}, the path of the model that the statistics are checked "
                     "against",
                     lm::kSourceAttr.str());
  Result<formats::ModelSource> source = formats::ModelSource::open(sourcePath.str());
  if (!source)
    return Unexpected(source.error());
  Result<std::string> hash = source->hash();
  if (!hash)
    return Unexpected(hash.error());
  if (auto same = file->checkModel(*hash); !same)
    return same;

  SmallVector<std::pair<QuantizableOpInterface, DictionaryAttr>> observed;
  SmallVector<ObserveOp> observers;
  Result<void> done;
  module.walk([&](Operation *op) {
    if (auto observer = dyn_cast<ObserveOp>(op))
      observers.push_back(observer);
    auto site = dyn_cast<QuantizableOpInterface>(op);
    if (!site || !done || !file->has((site.getSite() + "/tokens").str()))
      return;
    if (Result<DictionaryAttr> numbers = summarize(*file, site); numbers)
      observed.push_back({site, *numbers});
    else
      done = Unexpected(numbers.error());
  });
  if (!done)
    return done;
  if (observed.empty())
    return makeError(ErrorCode::InvalidArgument, "{}: has statistics of none of the model's sites",
                     path);
  for (auto [op, numbers] : observed)
    op->setAttr(kObservedAttr, numbers);
  for (ObserveOp observer : observers)
    observer.erase();
  module->setAttr(kStatisticsAttr, StringAttr::get(&getContext(), path));
  return {};
}
