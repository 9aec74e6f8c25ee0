//===- ConstantTensors.cpp - Constant expressions -------------------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "easyquant/Weights/ConstantTensors.h"

#include "mlir/IR/Builders.h"

#include <fmt/format.h>

#include <cmath>

using namespace mlir;
using namespace easyquant;
using namespace easyquant::equant;
using ml_program::GlobalLoadConstOp;
using ml_program::GlobalOp;

int64_t ConstantTensor::columns() const {
  int64_t columns = 1;
  for (size_t i = 1; i < shape.size(); ++i)
    columns *= shape[i];
  return columns;
}

std::string ConstantTensor::key() const {
  // Symbols hold no control characters (they are names of tensors).
  std::string text = global + '\1' + file + '\1' + stamp;
  for (const ScaleStep &step : steps)
    text += fmt::format("\2{}{}{}\3", step.divide ? '/' : '*', step.axis, step.factor.key());
  return text;
}

formats::ComputedPlace ConstantTensor::place(formats::DType type) const {
  return {file, stamp, global, type, shape};
}

//===----------------------------------------------------------------------===//
// From the IR
//===----------------------------------------------------------------------===//

SmallVector<Value> easyquant::equant::concatenated(Value value) {
  SmallVector<Value> leaves, worklist = {value};
  while (!worklist.empty()) {
    Value next = worklist.pop_back_val();
    if (auto concat = next.getDefiningOp<ConcatOp>())
      llvm::append_range(worklist, llvm::reverse(concat.getInputs()));
    else
      leaves.push_back(next);
  }
  return leaves;
}

GlobalOp ConstantMatcher::getExternGlobal(Value value) const {
  auto load = value.getDefiningOp<GlobalLoadConstOp>();
  auto global = load ? symbols.lookup<GlobalOp>(load.getGlobal().getLeafReference()) : GlobalOp();
  if (!global || !isa_and_nonnull<ml_program::ExternAttr>(global.getValueAttr()))
    return nullptr;
  return global;
}

FailureOr<ConstantTensor> ConstantMatcher::match(Location loc, StringRef site, Value value,
                                                 int scales) const {
  if (auto scale = value.getDefiningOp<ScaleOp>()) {
    if (scales == kMaxScales)
      return emitError(loc) << "site '" << site << "': expected at most " << kMaxScales
                            << " equant.scale on a constant, found more";
    FailureOr<ConstantTensor> tensor = match(loc, site, scale.getInput(), scales + 1);
    if (failed(tensor))
      return failure();
    FailureOr<ConstantTensor> factor = match(loc, site, scale.getFactor(), scales + 1);
    if (failed(factor))
      return failure();
    tensor->steps.push_back({std::move(*factor), scale.getAxisAttr().getInt(), scale.getDivide()});
    return tensor;
  }
  GlobalOp global = getExternGlobal(value);
  if (!global) {
    InFlightDiagnostic diagnostic = emitError(loc) << "site '" << site
                                                   << "': expected a constant (a global with "
                                                      "external contents, or equant.scale of one), "
                                                      "found ";
    if (Operation *op = value.getDefiningOp())
      diagnostic << op->getName();
    else
      diagnostic << "a block argument";
    return diagnostic;
  }
  ConstantTensor tensor;
  tensor.global = global.getSymName().str();
  ArrayRef<int64_t> shape = cast<RankedTensorType>(value.getType()).getShape();
  tensor.shape.assign(shape.begin(), shape.end());
  if (auto file = global->getAttrOfType<StringAttr>(kFileAttr)) {
    tensor.file = file.str();
    if (auto stamp = global->getAttrOfType<StringAttr>(kStampAttr))
      tensor.stamp = stamp.str();
  }
  return tensor;
}

FailureOr<std::string> easyquant::equant::getWorkFolder(ModuleOp module, StringRef work) {
  if (!work.empty())
    module->setAttr(kWorkAttr, StringAttr::get(module.getContext(), work));
  if (auto folder = module->getAttrOfType<StringAttr>(kWorkAttr))
    return folder.str();
  return emitError(module.getLoc())
         << "no folder for what methods compute: give the option work, or the module attribute "
         << kWorkAttr;
}

GlobalOp easyquant::equant::declareComputed(ModuleOp module, StringRef name, RankedTensorType type,
                                            StringRef file, StringRef stamp) {
  OpBuilder builder(module.getContext());
  if (auto known = module.lookupSymbol<GlobalOp>(name))
    known.erase();
  // Beside the other globals, before the functions.
  auto globals = module.getOps<GlobalOp>();
  Operation *last = nullptr;
  for (GlobalOp global : globals)
    last = global;
  if (last)
    builder.setInsertionPointAfter(last);
  else
    builder.setInsertionPointToStart(module.getBody());
  auto global =
      GlobalOp::create(builder, NameLoc::get(builder.getStringAttr(name)), name, type,
                       /*is_mutable=*/false, ml_program::ExternAttr::get(module.getContext(), type),
                       builder.getStringAttr("private"));
  global->setAttr(kFileAttr, builder.getStringAttr(file));
  global->setAttr(kStampAttr, builder.getStringAttr(stamp));
  return global;
}

Value easyquant::equant::loadGlobal(OpBuilder &builder, Location loc, GlobalOp global) {
  return GlobalLoadConstOp::create(builder, loc, global.getType(),
                                   FlatSymbolRefAttr::get(global.getSymNameAttr()));
}

//===----------------------------------------------------------------------===//
// Reading
//===----------------------------------------------------------------------===//

FailureOr<ConstantReader> ConstantReader::open(ModuleOp module) {
  auto path = module->getAttrOfType<StringAttr>(lm::kSourceAttr);
  if (!path)
    return emitError(module.getLoc()) << "module has no " << lm::kSourceAttr
                                      << ", the path of the model that its globals name tensors of";
  Result<formats::ModelSource> source = formats::ModelSource::open(path.str());
  if (!source)
    return emitError(module.getLoc()) << source.error().message;
  auto work = module->getAttrOfType<StringAttr>(kWorkAttr);
  return ConstantReader(std::move(*source), formats::ComputedConstants(work ? work.str() : ""));
}

Result<void> ConstantReader::check(const ConstantTensor &tensor) const {
  for (const ScaleStep &step : tensor.steps)
    if (auto done = check(step.factor); !done)
      return done;
  if (tensor.isComputed() && work.folder().empty())
    return makeError(
        ErrorCode::NotFound,
        "the computed tensor '{}' is in file '{}' of a folder that the module does not "
        "name: it has no {}",
        tensor.global, tensor.file, std::string(kWorkAttr));
  if (tensor.isComputed())
    return work.check(tensor.place(formats::DType::F32));
  const formats::ModelTensor *stored = model.find(tensor.global);
  if (!stored)
    return makeError(ErrorCode::NotFound, "{}: has no tensor '{}'", model.path().string(),
                     tensor.global);
  if (stored->shape != tensor.shape)
    return makeError(ErrorCode::Corrupt, "global '{}' is {}, but in {} its shape is {}",
                     tensor.global, fmt::join(tensor.shape, "x"), model.path().string(),
                     fmt::join(stored->shape, "x"));
  return {};
}

Result<void> ConstantReader::apply(const ScaleStep &step, const ConstantTensor &tensor,
                                   int64_t firstRow, int64_t rows, std::span<float> values) const {
  int64_t columns = tensor.columns();
  bool byRow = step.axis == 0;
  std::vector<float> factor(byRow ? rows : columns);
  if (auto done = readRows(step.factor, byRow ? firstRow : 0, factor.size(), factor); !done)
    return done;
  for (int64_t i = 0; i < rows; ++i) {
    float *row = values.data() + i * columns;
    for (int64_t j = 0; j < columns; ++j) {
      float by = factor[byRow ? i : j];
      row[j] = step.divide ? row[j] / by : row[j] * by;
    }
    for (int64_t j = 0; j < columns; ++j)
      if (!std::isfinite(row[j]))
        return makeError(
            ErrorCode::Corrupt,
            "tensor '{}': row {}, column {} is {} after it was {} by {}, element {} of "
            "'{}'; compute the factors again, or leave the method out for this site",
            tensor.global, firstRow + i, j, row[j], step.divide ? "divided" : "multiplied",
            factor[byRow ? i : j], byRow ? firstRow + i : j, step.factor.global);
  }
  return {};
}

Result<void> ConstantReader::readRows(const ConstantTensor &tensor, int64_t firstRow, int64_t rows,
                                      std::span<float> out) const {
  Result<void> done = tensor.isComputed()
                          ? work.readRows(tensor.place(formats::DType::F32), firstRow, rows, out)
                          : model.readRows(tensor.global, firstRow, rows, out);
  if (!done)
    return done;
  for (const ScaleStep &step : tensor.steps)
    if (auto applied = apply(step, tensor, firstRow, rows, out); !applied)
      return applied;
  return {};
}

static std::optional<formats::DType> storedType(Type element) {
  if (isScaleType(element)) // with all digits, whatever they are rounded to
    return formats::DType::F32;
  if (isCodeType(element))
    return formats::DType::I8;
  return element.isSignlessInteger(32) ? std::optional(formats::DType::I32) : std::nullopt;
}

LogicalResult easyquant::equant::checkGlobal(GlobalOp global, const ConstantReader &reader) {
  if (global->hasAttr(lm::kRopeTableAttr)) // computed; the dialect has checked it
    return success();
  StringRef name = global.getSymName();
  const formats::ModelSource &source = reader.source();
  auto type = dyn_cast<RankedTensorType>(global.getType());
  if (auto file = global->getAttrOfType<StringAttr>(kFileAttr)) {
    auto stored = type ? storedType(type.getElementType()) : std::nullopt;
    if (!stored)
      return emitError(global.getLoc())
             << "global '" << name << "' in file '" << file.getValue()
             << "' must be a tensor of scales, i32 or codes, found " << global.getType();
    auto stamp = global->getAttrOfType<StringAttr>(kStampAttr);
    ConstantTensor tensor{.global = name.str(),
                          .file = file.str(),
                          .stamp = stamp ? stamp.str() : "",
                          .shape = {type.getShape().begin(), type.getShape().end()},
                          .steps = {}};
    if (auto there = reader.computed().check(tensor.place(*stored)); !there)
      return emitError(global.getLoc()) << there.error().message;
    return success();
  }
  const formats::ModelTensor *stored = source.find(std::string_view(name));
  if (!stored)
    return emitError(global.getLoc())
           << source.path().string() << ": has no tensor '" << name << "'";
  if (!type || type.getShape() != ArrayRef<int64_t>(stored->shape)) {
    InFlightDiagnostic diagnostic = emitError(global.getLoc())
                                    << "global '" << name << "' is " << global.getType()
                                    << ", but in " << source.path().string() << " its shape is ";
    llvm::interleave(stored->shape, diagnostic, "x");
    return diagnostic;
  }
  return success();
}
