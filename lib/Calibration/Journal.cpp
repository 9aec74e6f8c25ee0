//===- Journal.cpp - What a calibration that was ended has done -----------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "easyquant/Calibration/Journal.h"

#include "easyquant/Support/Folders.h"
#include "easyquant/Weights/ConstantTensors.h"

#include <cstring>

using namespace easyquant;
using namespace easyquant::calibration;
using equant::isIntact;
using formats::ComputedTensor;
using formats::SafetensorsFile;
using numerics::Matrix;
namespace fs = std::filesystem;

Stamp Journal::stampOf(int64_t step) const {
  Stamp full = stamp;
  full["step"] = std::to_string(step);
  return full;
}

fs::path Journal::stepFile(int64_t step) const {
  return folder / fmt::format("step_{}.safetensors", step);
}

fs::path Journal::statesFile(int64_t step) const {
  return folder / fmt::format("hidden_states_{}.safetensors", step);
}

Stamp Journal::statesStampOf(int64_t step) const {
  Stamp full = stampOf(step);
  full["samples_here"] = samples;
  return full;
}

bool Journal::hasStates(int64_t step) const {
  return step == 0 || isIntact(loc, statesFile(step), statesStampOf(step));
}

Result<Journal> Journal::open(mlir::Location loc, const fs::path &folder, Stamp stamp,
                              const std::string &samples, const Ranks &ranks) {
  if (Result<void> made = makeFolders(folder); !made)
    return Unexpected(made.error());
  Journal journal(loc);
  journal.folder = folder;
  journal.stamp = std::move(stamp);
  journal.samples = samples;
  journal.isAlone = ranks.size() == 1;
  int64_t steps = 0;
  while (isIntact(loc, journal.stepFile(steps), journal.stampOf(steps)))
    ++steps;
  // The states behind the last step may be missing: they are written after its file.
  while (!journal.hasStates(steps))
    --steps;
  Result<int64_t> common = ranks.least(steps);
  if (!common)
    return Unexpected(common.error());
  Result<bool> canGoOn = ranks.all(journal.hasStates(*common));
  if (!canGoOn)
    return Unexpected(canGoOn.error());
  journal.begin = *canGoOn ? *common : 0;
  return journal;
}

Result<void> Journal::readStates(HiddenStates &states) const {
  Result<SafetensorsFile> file = formats::openSealed(statesFile(begin));
  if (!file)
    return Unexpected(file.error());
  Matrix all = states.all();
  const formats::SafetensorsTensor *tensor = file->find("hidden_states");
  if (!tensor || tensor->dtype != formats::DType::F32 ||
      tensor->shape != std::vector<int64_t>{all.rows, all.columns})
    return makeError(ErrorCode::Corrupt,
                     "{}: expected \"hidden_states\", F32 [{}, {}]; remove the file",
                     statesFile(begin).string(), all.rows, all.columns);
  std::span<const std::byte> bytes = file->data(*tensor);
  std::memcpy(all.data, bytes.data(), bytes.size());
  return {};
}

Result<void> Journal::record(int64_t step, const std::vector<FoundTensor> &found,
                             const HiddenStates &states) {
  std::vector<ComputedTensor> tensors;
  for (const FoundTensor &tensor : found)
    for (const std::string &name : tensor.names)
      tensors.push_back({name, tensor.dtype, tensor.shape, tensor.bytes});
  if (auto done = formats::writeSealed(stepFile(step), tensors, stampOf(step)); !done)
    return done;
  Matrix all = states.all();
  const ComputedTensor after = ComputedTensor::floats("hidden_states", {all.rows, all.columns},
                                                      std::span(all.data, all.rows * all.columns));
  if (auto done = formats::writeSealed(statesFile(step + 1), {&after, 1}, statesStampOf(step + 1));
      !done)
    return done;
  std::error_code ignored;
  fs::remove(statesFile(isAlone ? step : step - 1), ignored);
  return {};
}

Result<void> Journal::merge(int64_t steps, const fs::path &path, const Stamp &metadata) const {
  std::vector<SafetensorsFile> files;
  std::vector<ComputedTensor> tensors;
  for (int64_t step = 0; step < steps; ++step) {
    Result<SafetensorsFile> file = formats::openSealed(stepFile(step));
    if (!file)
      return Unexpected(file.error());
    for (const formats::SafetensorsTensor &tensor : file->tensors())
      tensors.push_back({tensor.name, tensor.dtype, tensor.shape, file->data(tensor)});
    files.push_back(std::move(*file));
  }
  return formats::writeSealed(path, tensors, metadata);
}

void Journal::remove(int64_t steps) const {
  std::error_code ignored;
  for (int64_t i = 0; i < steps; ++i) {
    fs::remove(stepFile(i), ignored);
    fs::remove(statesFile(i + 1), ignored);
  }
}
