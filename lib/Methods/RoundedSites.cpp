//===- RoundedSites.cpp - Codes and scales that methods computed ----------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "easyquant/Methods/RoundedSites.h"

#include "mlir/Dialect/MLProgram/IR/MLProgram.h"

#include <deque>

using namespace mlir;
using namespace easyquant;
using namespace easyquant::methods;
using formats::ComputedConstants;
using formats::ComputedTensor;
using formats::DType;
using numerics::QuantizedMatrix;

static std::string codesName(const PlannedSite &site) {
  return formats::partName(site.name(), numerics::WeightTensor::Codes);
}
static std::string scaleName(const PlannedSite &site) {
  return formats::partName(site.name(), numerics::WeightTensor::Scales);
}
static std::string outerName(const PlannedSite &site) {
  return formats::partName(site.name(), numerics::WeightTensor::Outer);
}
static std::string zeroName(const PlannedSite &site) {
  return formats::partName(site.name(), numerics::WeightTensor::ZeroPoints);
}
static std::string minimumName(const PlannedSite &site) {
  return formats::partName(site.name(), numerics::WeightTensor::Minima);
}
static std::string expertRowsName(const PlannedSite &site) { return site.name() + ".expert_rows"; }

SmallVector<PlannedSite> easyquant::methods::sitesNaming(func::FuncOp layer, StringRef method) {
  SmallVector<PlannedSite> sites;
  for (const SiteGroup &group : siteGroups(layer))
    for (const PlannedSite &site : group.sites)
      if (site.plan.names(method))
        sites.push_back(site);
  return sites;
}

//===----------------------------------------------------------------------===//
// The file
//===----------------------------------------------------------------------===//

/// The tensors borrow from `params` and `outers`.
static void append(std::vector<ComputedTensor> &tensors, const PlannedSite &site,
                   const numerics::QParams &params, std::deque<std::vector<float>> &outers) {
  std::vector<int64_t> shape = {params.rows, params.groups};
  tensors.push_back(ComputedTensor::floats(scaleName(site), shape, params.scales));
  if (site.scheme().hasZeroPoints())
    tensors.push_back(ComputedTensor::integers(zeroName(site), shape, params.zeroPoints));
  if (site.scheme().minima)
    tensors.push_back(ComputedTensor::floats(minimumName(site), shape, params.minima));
  if (!site.scheme().outer)
    return;
  std::vector<float> &outer = outers.emplace_back(params.rows);
  for (int64_t row = 0; row < params.rows; ++row)
    outer[row] = params.outerOf(row);
  tensors.push_back(ComputedTensor::floats(outerName(site), {params.rows, 1}, outer));
}

static void appendExpertRows(std::vector<ComputedTensor> &tensors, const PlannedSite &site,
                             const ExpertRows &rows) {
  if (const auto *found = rows.find(site.weight()); found != rows.end())
    tensors.push_back(
        ComputedTensor::integers(expertRowsName(site), {site.experts()}, found->second));
}

Result<std::vector<int32_t>> easyquant::methods::readExpertRows(const ComputedConstants &work,
                                                                StringRef file, StringRef stamp,
                                                                const PlannedSite &site) {
  std::vector<int32_t> rows(site.experts());
  auto done =
      work.readRows({file.str(), stamp.str(), expertRowsName(site), DType::I32, {site.experts()}},
                    0, site.experts(), std::span(rows));
  if (!done)
    return Unexpected(done.error());
  return rows;
}

Result<void> easyquant::methods::writeRounded(const ComputedConstants &work, StringRef file,
                                              StringRef stamp, ArrayRef<PlannedSite> sites,
                                              const QuantizedWeights &codes,
                                              const ExpertRows &rows) {
  std::vector<ComputedTensor> tensors;
  std::deque<std::vector<float>> outers;
  for (const PlannedSite &site : sites) {
    const QuantizedMatrix &q = codes.find(site.weight())->second;
    tensors.push_back(ComputedTensor::codes(codesName(site), {q.rows, q.columns}, q.codes));
    append(tensors, site, q.params, outers);
    appendExpertRows(tensors, site, rows);
  }
  return work.write(file, stamp, tensors);
}

Result<void> easyquant::methods::writeScales(const ComputedConstants &work, StringRef file,
                                             StringRef stamp, ArrayRef<PlannedSite> sites,
                                             ArrayRef<numerics::QParams> params,
                                             const ExpertRows &rows) {
  std::vector<ComputedTensor> tensors;
  std::deque<std::vector<float>> outers;
  for (auto [site, found] : llvm::zip_equal(sites, params)) {
    append(tensors, site, found, outers);
    appendExpertRows(tensors, site, rows);
  }
  return work.write(file, stamp, tensors);
}

/// Scales, zero points or minima and, `withCodes`, codes; without, zeros take their place.
static Result<QuantizedMatrix> read(const ComputedConstants &work, StringRef file, StringRef stamp,
                                    const PlannedSite &site, bool withCodes) {
  auto type = cast<RankedTensorType>(site.weight().getType());
  QuantizedMatrix q{site.scheme(), type.getDimSize(0), type.getDimSize(1), {}, {}};
  q.params.rows = numerics::scaleRows(q.scheme, q.rows);
  q.params.groups = numerics::groupCount(q.columns, q.scheme.groupSize);
  q.codes.resize(q.rows * q.columns);
  q.params.scales.resize(q.params.rows * q.params.groups);
  auto read = [&](std::string name, DType dtype, int64_t rows, int64_t columns, auto &out) {
    return work.readRows({file.str(), stamp.str(), std::move(name), dtype, {rows, columns}}, 0,
                         rows, std::span(out));
  };
  Result<void> done;
  if (withCodes)
    done = read(codesName(site), DType::I8, q.rows, q.columns, q.codes);
  if (done)
    done = read(scaleName(site), DType::F32, q.params.rows, q.params.groups, q.params.scales);
  if (done && q.scheme.hasZeroPoints()) {
    q.params.zeroPoints.resize(q.params.scales.size());
    done = read(zeroName(site), DType::I32, q.params.rows, q.params.groups, q.params.zeroPoints);
  }
  if (done && q.scheme.minima) {
    q.params.minima.resize(q.params.scales.size());
    done = read(minimumName(site), DType::F32, q.params.rows, q.params.groups, q.params.minima);
  }
  if (done && q.scheme.outer) {
    q.params.outer.resize(q.rows);
    done = read(outerName(site), DType::F32, q.rows, 1, q.params.outer);
  }
  if (!done)
    return Unexpected(done.error());
  return q;
}

Result<QuantizedMatrix> easyquant::methods::readRounded(const ComputedConstants &work,
                                                        StringRef file, StringRef stamp,
                                                        const PlannedSite &site) {
  return read(work, file, stamp, site, /*withCodes=*/true);
}

FailureOr<QuantizedMatrix> easyquant::methods::roundAsPlanned(const ComputedConstants &work,
                                                              const ModelConstants &constants,
                                                              const PlannedSite &site) {
  auto orFail = [&](Result<QuantizedMatrix> result) -> FailureOr<QuantizedMatrix> {
    if (!result)
      return emitError(site.loc()) << result.error().message;
    return std::move(*result);
  };
  auto readNamed = [&](FlatSymbolRefAttr name, bool withCodes) -> FailureOr<QuantizedMatrix> {
    auto global = SymbolTable::lookupNearestSymbolFrom<ml_program::GlobalOp>(
        equant::QuantizableOpInterface(site.op), name.getAttr());
    auto attribute = [&](StringRef key) {
      return global ? global->getAttrOfType<StringAttr>(key) : StringAttr();
    };
    StringAttr file = attribute(equant::kFileAttr), stamp = attribute(equant::kStampAttr);
    if (!file || !stamp)
      return emitError(site.loc()) << "site '" << site.name() << "': its plan names @"
                                   << name.getValue() << ", which is no computed tensor";
    return orFail(read(work, file, stamp, site, withCodes));
  };
  if (site.plan.getCodes())
    return readNamed(site.plan.getCodes(), /*withCodes=*/true);
  FailureOr<WeightValues> weight = readWeight(constants, site);
  if (failed(weight))
    return failure();
  if (!site.plan.getScale())
    return orFail(roundToNearest(site, weight->view()));
  FailureOr<QuantizedMatrix> rounded = readNamed(site.plan.getScale(), /*withCodes=*/false);
  if (failed(rounded))
    return failure();
  if (auto done =
          numerics::quantize(weight->view(), rounded->scheme, rounded->params, rounded->codes);
      !done)
    return emitError(site.loc()) << "site '" << site.name() << "': " << done.error().message;
  return rounded;
}

//===----------------------------------------------------------------------===//
// The IR
//===----------------------------------------------------------------------===//

/// The plan with scales of the type that holds what was computed: where f16 was the type by default
/// and did not, the method took f32.
static FailureOr<equant::PlanAttr> planOf(const ComputedConstants &work, StringRef file,
                                          StringRef stamp, const PlannedSite &site) {
  if (!site.plan.mayWidenScales())
    return site.plan;
  Result<QuantizedMatrix> computed = read(work, file, stamp, site, /*withCodes=*/false);
  if (!computed)
    return emitError(site.loc()) << computed.error().message;
  bool areHeld = llvm::all_of(computed->params.scales, [](float scale) {
    return scale == numerics::roundScale(scale, numerics::ScaleFormat::F16) &&
           numerics::isScale(scale, numerics::ScaleFormat::F16);
  });
  if (areHeld)
    return site.plan;
  emitRemark(site.loc()) << "site '" << site.name()
                         << "': its scales are f32: f16 does not hold them with all their bits";
  return site.plan.withWideScales();
}

static LogicalResult declare(ModuleOp module, const ComputedConstants &work, StringRef file,
                             StringRef stamp, ArrayRef<PlannedSite> sites, bool withCodes) {
  Builder builder(module.getContext());
  for (PlannedSite site : sites) {
    FailureOr<equant::PlanAttr> plan = planOf(work, file, stamp, site);
    if (failed(plan))
      return failure();
    equant::SchemeAttr scheme = plan->getWeight();
    ArrayRef<int64_t> shape = cast<RankedTensorType>(site.weight().getType()).getShape();
    SmallVector<int64_t, 2> params = scheme.getScaleShape(shape);
    auto declared = [&](const std::string &name, ArrayRef<int64_t> shape, Type element) {
      auto global =
          equant::declareComputed(module, name, RankedTensorType::get(shape, element), file, stamp);
      return FlatSymbolRefAttr::get(global.getSymNameAttr());
    };
    equant::PlannedParts parts;
    if (withCodes)
      parts.codes = declared(codesName(site), shape, scheme.getCode());
    parts.scale = declared(scaleName(site), params, scheme.getScale());
    if (scheme.hasZeroPoints())
      parts.zeroPoint = declared(zeroName(site), params, builder.getI32Type());
    if (scheme.getMinima())
      parts.minimum = declared(minimumName(site), params, scheme.getScale());
    if (scheme.getOuter())
      parts.outer = declared(outerName(site), {shape[0], 1}, builder.getF32Type());
    site.op->setAttr(equant::kPlanAttr, plan->withResults(parts));
  }
  return success();
}

LogicalResult easyquant::methods::declareRounded(ModuleOp module, const ComputedConstants &work,
                                                 StringRef file, StringRef stamp,
                                                 ArrayRef<PlannedSite> sites) {
  return declare(module, work, file, stamp, sites, /*withCodes=*/true);
}

LogicalResult easyquant::methods::declareScales(ModuleOp module, const ComputedConstants &work,
                                                StringRef file, StringRef stamp,
                                                ArrayRef<PlannedSite> sites) {
  return declare(module, work, file, stamp, sites, /*withCodes=*/false);
}
