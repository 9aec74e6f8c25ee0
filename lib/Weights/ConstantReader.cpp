//===- ConstantReader.cpp - Constant expressions, computed ----------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "easyquant/Weights/ConstantTensors.h"

#include "easyquant/Numerics/Hadamard.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>

using namespace mlir;
using namespace easyquant;
using namespace easyquant::equant;
using ml_program::GlobalOp;

FailureOr<ConstantReader> ConstantReader::open(ModuleOp module) {
  auto path = module->getAttrOfType<StringAttr>(lm::kSourceAttr);
  if (!path)
    return emitError(module.getLoc()) << "module has no " << lm::kSourceAttr
                                      << ", the path of the model that its globals name tensors of";
  auto assistant = module->getAttrOfType<StringAttr>(lm::kAssistantAttr);
  Result<formats::ModelSource> source =
      formats::ModelSource::open(path.str(), assistant ? assistant.str() : "");
  if (!source)
    return emitError(module.getLoc()) << source.error().message;
  auto work = module->getAttrOfType<StringAttr>(kWorkAttr);
  return ConstantReader(std::move(*source), formats::ComputedConstants(work ? work.str() : ""));
}

/// The shape of a tensor of the model, or of a part of one that it has in codes.
static std::optional<std::vector<int64_t>> shapeIn(const formats::ModelSource &source,
                                                   StringRef name) {
  if (const formats::ModelTensor *tensor = source.find(std::string_view(name)))
    return tensor->shape;
  return source.partShape(std::string_view(name));
}

Result<void> ConstantReader::check(const ConstantTensor &tensor, formats::DType type) const {
  for (const ConstantStep &step : tensor.steps)
    if (auto done = step.block ? Result<void>() : check(step.factor); !done)
      return done;
  if (tensor.isComputed() && work.folder().empty())
    return makeError(
        ErrorCode::NotFound,
        "the computed tensor '{}' is in file '{}' of a folder that the module does not "
        "name: it has no {}",
        tensor.global, tensor.file, std::string(kWorkAttr));
  if (tensor.isComputed())
    return work.check(tensor.place(type));
  const auto shape = shapeIn(model, tensor.global);
  if (!shape)
    return makeError(ErrorCode::NotFound, "{}: has no tensor '{}'", model.path().string(),
                     tensor.global);
  if (*shape != tensor.stored)
    return makeError(ErrorCode::Corrupt, "global '{}' is {}, but in {} its shape is {}",
                     tensor.global, fmt::join(tensor.stored, "x"), model.path().string(),
                     fmt::join(*shape, "x"));
  return {};
}

/// Applies the rotations from step `at` on, one of each axis at most, and goes behind them.
static Result<void> rotate(const ConstantTensor &tensor, size_t &at, int64_t firstRow,
                           std::span<float> values) {
  int64_t blocks[] = {1, 1}, first = 0;
  for (; at < tensor.steps.size(); ++at) {
    const ConstantStep &step = tensor.steps[at];
    if (!step.block || blocks[step.axis] != 1)
      break;
    blocks[step.axis] = step.block;
    if (step.axis == 0)
      first = std::max<int64_t>(step.first - firstRow, 0);
  }
  const int64_t columns = tensor.columns();
  numerics::rotateConstant(values, columns, blocks[0], blocks[1], first);
  auto bad = std::ranges::find_if_not(values, [](float x) { return std::isfinite(x); });
  if (bad == values.end())
    return {};
  return makeError(ErrorCode::Corrupt,
                   "tensor '{}': row {} is too large to be rotated in blocks of {} {}; leave the "
                   "site in the plain basis",
                   tensor.global, firstRow + (bad - values.begin()) / columns,
                   std::max(blocks[0], blocks[1]), blocks[1] == 1 ? "rows" : "columns");
}

Result<void> ConstantReader::scale(const ConstantStep &step, const ConstantTensor &tensor,
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

/// read(row, rows, values) reads whole rows of the global, from which the columns of the part are
/// taken.
template <typename T, typename Read>
static Result<void> readPart(const ConstantTensor &tensor, int64_t firstRow, int64_t rows,
                             std::span<T> out, Read read) {
  const int64_t columns = tensor.columns();
  int64_t stored = 1;
  for (size_t axis = 1; axis < tensor.stored.size(); ++axis)
    stored *= tensor.stored[axis];
  firstRow += tensor.first.front();
  if (stored == columns)
    return read(firstRow, rows, out);
  const int64_t firstColumn = tensor.first[1];
  std::vector<T> whole(rows * stored);
  if (Result<void> done = read(firstRow, rows, std::span<T>(whole)); !done)
    return done;
  for (int64_t r = 0; r < rows; ++r)
    std::copy_n(whole.data() + r * stored + firstColumn, columns, out.data() + r * columns);
  return {};
}

Result<void> ConstantReader::readRows(const ConstantTensor &tensor, int64_t firstRow, int64_t rows,
                                      std::span<float> out) const {
  const int64_t block = tensor.rowBlock(), columns = tensor.columns();
  const int64_t first = firstRow / block * block;
  const int64_t count = (firstRow + rows + block - 1) / block * block - first;
  if (count == rows)
    return readBlocks(tensor, firstRow, rows, out);
  std::vector<float> whole(count * columns);
  if (Result<void> done = readBlocks(tensor, first, count, whole); !done)
    return done;
  std::copy_n(whole.data() + (firstRow - first) * columns, rows * columns, out.data());
  return {};
}

/// The rows are whole blocks of those that are rotated together.
Result<void> ConstantReader::readBlocks(const ConstantTensor &tensor, int64_t firstRow,
                                        int64_t rows, std::span<float> out) const {
  if (tensor.isZeros) {
    std::ranges::fill(out, 0.0f);
    return {};
  }
  Result<void> done =
      readPart(tensor, firstRow, rows, out, [&](int64_t row, int64_t count, std::span<float> into) {
        return tensor.isComputed()
                   ? work.readRows(tensor.place(formats::DType::F32), row, count, into)
                   : model.readRows(tensor.global, row, count, into);
      });
  for (size_t at = 0; done && at < tensor.steps.size();) {
    const ConstantStep &step = tensor.steps[at];
    if (step.block) {
      done = rotate(tensor, at, firstRow, out);
      continue;
    }
    done = scale(step, tensor, firstRow, rows, out);
    ++at;
  }
  return done;
}

Result<void> ConstantReader::readRows(const ConstantTensor &tensor, int64_t firstRow, int64_t rows,
                                      std::span<int8_t> out) const {
  return readPart(tensor, firstRow, rows, out, [&](int64_t row, int64_t count, auto into) {
    return tensor.isComputed() ? work.readRows(tensor.place(formats::DType::I8), row, count, into)
                               : model.readRows(tensor.global, row, count, into);
  });
}

Result<void> ConstantReader::readRows(const ConstantTensor &tensor, int64_t firstRow, int64_t rows,
                                      std::span<int32_t> out) const {
  return readPart(tensor, firstRow, rows, out, [&](int64_t row, int64_t count, auto into) {
    return tensor.isComputed() ? work.readRows(tensor.place(formats::DType::I32), row, count, into)
                               : model.readRows(tensor.global, row, count, into);
  });
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
                          .stored = {type.getShape().begin(), type.getShape().end()},
                          .first = {},
                          .shape = {},
                          .steps = {}};
    if (auto there = reader.computed().check(tensor.place(*stored)); !there)
      return emitError(global.getLoc()) << there.error().message;
    return success();
  }
  const auto shape = shapeIn(source, name);
  if (!shape)
    return emitError(global.getLoc())
           << source.path().string() << ": has no tensor '" << name << "'";
  if (!type || type.getShape() != ArrayRef<int64_t>(*shape)) {
    InFlightDiagnostic diagnostic = emitError(global.getLoc())
                                    << "global '" << name << "' is " << global.getType()
                                    << ", but in " << source.path().string() << " its shape is ";
    llvm::interleave(*shape, diagnostic, "x");
    return diagnostic;
  }
  return success();
}

/// What was asked of `file`.
static bool acceptIntact(Location loc, const Result<bool> &found,
                         const std::filesystem::path &file) {
  if (found)
    return *found;
  emitRemark(loc) << found.error().message << "; it is removed and computed again";
  std::error_code ignored;
  std::filesystem::remove(file, ignored);
  return false;
}

bool equant::isIntact(Location loc, const std::filesystem::path &file,
                      const formats::FileMetadata &metadata) {
  return acceptIntact(loc, formats::isSealed(file, metadata), file);
}

bool equant::isIntact(Location loc, const formats::ComputedConstants &work, StringRef file,
                      StringRef stamp) {
  return acceptIntact(loc, work.has(file, stamp), work.folder() / file.str());
}
