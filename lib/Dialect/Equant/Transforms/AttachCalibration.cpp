//===- AttachCalibration.cpp - Statistics back in the IR ------------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "easyquant/Dialect/Equant/Transforms/Passes.h"
#include "easyquant/Formats/ModelSource.h"
#include "easyquant/Formats/StatisticsFile.h"

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
};

} // namespace

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

  SmallVector<ObserveOp> observers;
  bool isOfModel = false;
  Result<void> fits; ///< as many experts as the model has
  module.walk([&](Operation *op) {
    if (auto observer = dyn_cast<ObserveOp>(op))
      observers.push_back(observer);
    else if (auto site = dyn_cast<QuantizableOpInterface>(op)) {
      const std::string tokens = (site.getSite() + "/tokens").str();
      isOfModel |= file->has(tokens);
      auto linear = dyn_cast<lm::LinearOp>(op);
      if (fits && linear && linear.getExperts() && file->has(tokens)) {
        const int64_t experts = lm::expertCount(linear.getExperts());
        if (auto counts = file->integers(tokens, {&experts, 1}); !counts)
          fits = Unexpected(counts.error());
      }
    }
  });
  if (!fits)
    return makeError(fits.error().code,
                     "{}: statistics of another number of experts; calibrate "
                     "this model",
                     fits.error().message);
  if (!isOfModel)
    return makeError(ErrorCode::InvalidArgument, "{}: has statistics of none of the model's sites",
                     path);
  for (ObserveOp observer : observers)
    observer.erase();
  module->setAttr(kStatisticsAttr, StringAttr::get(&getContext(), path));
  return {};
}
