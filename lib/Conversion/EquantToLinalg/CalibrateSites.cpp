//===- CalibrateSites.cpp - Static ranges of sites of linalg --------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "LinalgSite.h"

#include "easyquant/Conversion/EquantToLinalg/CompiledModule.h"
#include "easyquant/Conversion/EquantToLinalg/EquantToLinalg.h"

#include "easyquant/Formats/Npy.h"
#include "easyquant/Formats/Safetensors.h"
#include "easyquant/Numerics/ScaleRules.h"
#include "easyquant/Numerics/SiteStatistics.h"
#include "easyquant/Recipe/OptionValues.h"
#include "easyquant/Support/OneLine.h"

#include <fmt/ranges.h>

namespace easyquant {
#define GEN_PASS_DEF_CALIBRATESITES
#include "easyquant/Conversion/EquantToLinalg/Passes.h.inc"
} // namespace easyquant

using namespace mlir;
using namespace easyquant;
using namespace easyquant::equant;
using formats::DType;

//===----------------------------------------------------------------------===//
// Inputs
//===----------------------------------------------------------------------===//

/// The elements that files have for a type of the function; none where they have none.
static std::optional<DType> dtypeOf(Type element) {
  if (element.isF32())
    return DType::F32;
  if (element.isF64())
    return DType::F64;
  if (element.isF16())
    return DType::F16;
  if (element.isBF16())
    return DType::BF16;
  auto integer = dyn_cast<IntegerType>(element);
  switch (integer ? integer.getWidth() : 0) {
  case 1:
    return DType::Bool;
  case 8:
    return integer.isUnsigned() ? DType::U8 : DType::I8;
  case 16:
    return DType::I16;
  case 32:
    return DType::I32;
  case 64:
    return DType::I64;
  default:
    return {};
  }
}

/// An argument of a type that has been checked, from what a file has. `where` is for messages.
static Result<ModuleArgument> toArgument(Type type, DType dtype, ArrayRef<int64_t> shape,
                                         std::span<const std::byte> bytes,
                                         const std::string &where) {
  auto tensor = cast<RankedTensorType>(type);
  const DType expected = *dtypeOf(tensor.getElementType());
  const bool fits =
      tensor.getRank() == std::ssize(shape) &&
      llvm::all_of(llvm::zip_equal(tensor.getShape(), shape), [](auto pair) {
        return ShapedType::isDynamic(std::get<0>(pair)) || std::get<0>(pair) == std::get<1>(pair);
      });
  if (dtype != expected || !fits || llvm::is_contained(shape, 0)) {
    std::string wanted;
    llvm::raw_string_ostream(wanted) << type;
    return makeError(ErrorCode::InvalidArgument,
                     "{}: {} of shape [{}] for an argument of {}; expected {} of that shape, with "
                     "elements",
                     where, formats::dtypeName(dtype), fmt::join(shape, ", "), wanted,
                     formats::dtypeName(expected));
  }
  const auto *data = reinterpret_cast<const char *>(bytes.data());
  return ModuleArgument{llvm::to_vector(shape), {data, data + bytes.size()}};
}

static Result<std::vector<ModuleArgument>> readNpy(FunctionType function, const std::string &path) {
  auto file = MappedFile::open(path);
  if (!file)
    return Unexpected(file.error());
  auto header = formats::parseNpyHeader(file->bytes(), path);
  if (!header)
    return Unexpected(header.error());
  if (function.getNumInputs() != 1)
    return makeError(ErrorCode::InvalidArgument,
                     "{}: a .npy file is one argument, and the function has {}; expected a "
                     ".safetensors file with the tensors 0, 1, ...",
                     path, function.getNumInputs());
  auto argument = toArgument(function.getInput(0), header->dtype, header->shape,
                             file->bytes().subspan(header->dataOffset), path);
  if (!argument)
    return Unexpected(argument.error());
  return std::vector<ModuleArgument>{std::move(*argument)};
}

static Result<std::vector<ModuleArgument>> readSafetensors(FunctionType function,
                                                           const std::string &path) {
  auto file = formats::SafetensorsFile::open(path);
  if (!file)
    return Unexpected(file.error());
  std::vector<ModuleArgument> arguments;
  for (auto [index, type] : llvm::enumerate(function.getInputs())) {
    const std::string name = std::to_string(index);
    const formats::SafetensorsTensor *tensor = file->find(name);
    if (!tensor)
      return makeError(ErrorCode::NotFound,
                       "{}: there is no tensor '{}'; expected one for each of the {} arguments of "
                       "the function, named by its number",
                       path, name, function.getNumInputs());
    auto argument = toArgument(type, tensor->dtype, tensor->shape, file->data(*tensor),
                               path + ": tensor '" + name + "'");
    if (!argument)
      return Unexpected(argument.error());
    arguments.push_back(std::move(*argument));
  }
  return arguments;
}

static Result<std::vector<ModuleArgument>> readArguments(FunctionType function,
                                                         const std::string &path) {
  if (StringRef(path).ends_with(".npy"))
    return readNpy(function, path);
  if (StringRef(path).ends_with(".safetensors"))
    return readSafetensors(function, path);
  return makeError(ErrorCode::InvalidArgument,
                   "option inputs: '{}' is neither a .npy nor a .safetensors file", oneLine(path));
}

//===----------------------------------------------------------------------===//
// The pass
//===----------------------------------------------------------------------===//

namespace {
/// What the activations of a site were: all of them, and one run after the other.
struct Seen {
  numerics::Histogram histogram;
  numerics::Ema averages;
};

struct CalibrateSites : easyquant::impl::CalibrateSitesBase<CalibrateSites> {
  using CalibrateSitesBase::CalibrateSitesBase;

  void getDependentDialects(DialectRegistry &registry) const override {
    CompiledModule::getDependentDialects(registry);
  }
  LogicalResult initialize(MLIRContext *context) override;
  void runOnOperation() override {
    if (failed(run()))
      signalPassFailure();
  }

private:
  InFlightDiagnostic fail() { return emitError(getOperation().getLoc()); }
  LogicalResult run();
  FailureOr<func::FuncOp> findFunction();
  LogicalResult observe(func::FuncOp function, MutableArrayRef<std::unique_ptr<Seen>> seen);
  Result<numerics::SliceParams> choose(const Seen &seen) const;
};
} // namespace

LogicalResult CalibrateSites::initialize(MLIRContext *context) {
  if (auto known = checkValue(recipe::option::observer.info(), observer.getValue()); !known)
    return emitError(UnknownLoc::get(context)) << known.error().message;
  if (auto known =
          checkValue(recipe::option::observerPercentile.info(), double(observerPercentile));
      !known)
    return emitError(UnknownLoc::get(context)) << known.error().message;
  return success();
}

FailureOr<func::FuncOp> CalibrateSites::findFunction() {
  SmallVector<func::FuncOp> found;
  for (auto candidate : getOperation().getOps<func::FuncOp>())
    if (!candidate.isExternal() &&
        (function.empty() ? candidate.isPublic() : candidate.getName() == function.getValue()))
      found.push_back(candidate);
  if (found.size() != 1) {
    if (!function.empty())
      return fail() << "option function: the module has no function '" << function
                    << "' with a body";
    return fail() << "the module has " << found.size()
                  << " public functions; expected one, or the option function=NAME";
  }
  for (Type type : found.front().getArgumentTypes()) {
    auto tensor = dyn_cast<RankedTensorType>(type);
    if (!tensor || !dtypeOf(tensor.getElementType()))
      return found.front().emitError()
             << "takes " << type
             << "; expected tensors of floats, integers or booleans, which files have";
  }
  return found.front();
}

/// Runs a copy of the module in which each site hands out what it reads.
LogicalResult CalibrateSites::observe(func::FuncOp function,
                                      MutableArrayRef<std::unique_ptr<Seen>> seen) {
  OwningOpRef<ModuleOp> copy = getOperation().clone();
  int64_t number = 0;
  copy->walk([&](QuantizableOpInterface op) {
    OpBuilder builder(op);
    CompiledModule::addObserver(builder, op.getLoc(), *copy, number++,
                                op.getActivationOperand().get());
  });
  copy->walk([](Operation *op) {
    for (StringRef name : {kSiteAttr, kInputScaleAttr, kInputZeroPointAttr})
      op->removeAttr(name);
  });
  dropModelAttributes(*copy);
  FailureOr<CompiledModule> program = CompiledModule::compile(*copy, function.getName());
  if (failed(program))
    return fail() << "the module cannot be run here, so that no ranges can be observed; give each "
                     "site its "
                  << kInputScaleAttr << ", or take dynamic activations";
  SmallVector<StringRef> names;
  getOperation().walk([&](QuantizableOpInterface op) { names.push_back(op.getSite()); });
  for (const std::string &path : inputs) {
    auto arguments = readArguments(function.getFunctionType(), path);
    if (!arguments)
      return fail() << arguments.error().message;
    std::string problem;
    auto done = program->run(*arguments, [&](int64_t site, std::span<const float> values) {
      std::unique_ptr<Seen> &of = seen[site];
      if (!of)
        of = std::make_unique<Seen>();
      const numerics::ConstMatrix row(values.data(), 1, std::ssize(values));
      Result<void> counted = of->histogram.update(row);
      if (counted)
        counted = of->averages.update(row);
      if (!counted && problem.empty())
        problem = "site '" + names[site].str() + "': its activations: " + counted.error().message;
    });
    if (!done || !problem.empty())
      return fail() << path << ": " << (problem.empty() ? done.error().message : problem);
  }
  return success();
}

Result<numerics::SliceParams> CalibrateSites::choose(const Seen &seen) const {
  const numerics::Scheme scheme{
      .bits = 8, .symmetric = !zeroPoints, .granularity = numerics::Granularity::Tensor};
  const numerics::RangeObserver &how = *numerics::findRangeObserver(observer.getValue());
  if (how.statistic == "ema")
    return seen.averages.params(scheme);
  if (!how.isOfChannels)
    return numerics::chooseQParams(
        seen.histogram, scheme,
        {.kind = *numerics::scaleRuleKind(how.name), .percentile = double(observerPercentile)});
  float low = seen.histogram.min(), high = seen.histogram.max();
  if (how.name == "absmax") {
    high = std::max(-low, high);
    low = -high;
  }
  return numerics::paramsOfRange(low, high, scheme);
}

LogicalResult CalibrateSites::run() {
  if (inputs.empty())
    return fail() << "option inputs is missing: files of arguments that the module is run on";
  SmallVector<QuantizableOpInterface> sites;
  getOperation().walk([&](QuantizableOpInterface op) { sites.push_back(op); });
  for (QuantizableOpInterface op : sites)
    if (std::string reason = op.whyNoLinear(); !reason.empty())
      return op->emitError() << "site '" << op.getSite() << "': " << reason;
  if (sites.empty()) {
    emitWarning(getOperation().getLoc())
        << getArgument() << ": nothing to do: no op has a name; run equant-name-sites before";
    return success();
  }
  FailureOr<func::FuncOp> function = findFunction();
  if (failed(function))
    return failure();
  for (const std::string &path : inputs) // compiling takes longer than looking at all of them
    if (auto arguments = readArguments(function->getFunctionType(), path); !arguments)
      return fail() << arguments.error().message;
  SmallVector<std::unique_ptr<Seen>> seen(sites.size());
  if (failed(observe(*function, seen)))
    return failure();
  Builder b(&getContext());
  for (auto [op, of] : llvm::zip_equal(sites, seen)) {
    if (!of)
      return op->emitError() << "site '" << op.getSite()
                             << "' was not reached by any input of function '"
                             << function->getName() << "'; leave " << kSiteAttr
                             << " out, or call another function";
    Result<numerics::SliceParams> params = choose(*of);
    if (!params)
      return op->emitError() << "site '" << op.getSite() << "': " << params.error().message;
    op->setAttr(kInputScaleAttr, b.getF32FloatAttr(params->scale));
    if (zeroPoints)
      op->setAttr(kInputZeroPointAttr, b.getI32IntegerAttr(params->zeroPoint));
  }
  return success();
}
