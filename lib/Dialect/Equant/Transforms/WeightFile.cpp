//===- WeightFile.cpp - The artifact's weights ----------------------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "WeightFile.h"

#include "easyquant/Formats/DType.h"
#include "easyquant/Formats/ShardedSafetensors.h"

#include <algorithm>

using namespace easyquant;
using namespace easyquant::equant;
using formats::DType;
using formats::ShardedSafetensorsWriter;

namespace {

/// Kernels read whole cache lines of packed weights.
constexpr int64_t kAlignment = 64;
/// Floats that are in memory at a time.
constexpr int64_t kPieceFloats = int64_t(1) << 20;

DType dtypeOf(const FileTensor &tensor) {
  switch (tensor.kind) {
  case FileTensor::Kind::Codes:
    return DType::U8;
  case FileTensor::Kind::ZeroPoints:
    return DType::I8;
  case FileTensor::Kind::Sums:
    return DType::I32;
  case FileTensor::Kind::Scales:
  case FileTensor::Kind::Float:
  case FileTensor::Kind::RopeTable:
    return DType::F32;
  }
  llvm_unreachable("every kind is named");
}

class WeightFile {
public:
  WeightFile(const ConstantReader &reader, ShardedSafetensorsWriter &writer, unsigned threads)
      : reader(reader), writer(writer), pool(llvm::hardware_concurrency(threads)) {}

  Result<void> write(const FileTensor &tensor, WrittenWeights &written);

private:
  Result<void> writeCodes(const FileTensor &tensor, WrittenWeights &written);
  Result<void> writeFloat(const FileTensor &tensor);
  Result<void> writeRopeTable(const FileTensor &tensor);

  template <typename T> Result<void> append(const FileTensor &tensor, const std::vector<T> &data) {
    return writer.write(tensor.name, std::as_bytes(std::span(data)));
  }

  const ConstantReader &reader;
  ShardedSafetensorsWriter &writer;
  llvm::DefaultThreadPool pool;
  EvaluatedWeight last; ///< the weight whose codes were written last, without them
};

} // namespace

Result<void> WeightFile::writeCodes(const FileTensor &tensor, WrittenWeights &written) {
  Result<numerics::PanelLayout> layout = panelLayoutOf(*tensor.weight);
  if (!layout)
    return Unexpected(layout.error());
  Result<EvaluatedWeight> evaluated = evaluate(*tensor.weight, *layout, reader, pool);
  if (!evaluated)
    return Unexpected(evaluated.error());
  written.errors[tensor.weight] = std::move(evaluated->errors);
  last = std::move(*evaluated);
  return append(tensor, std::exchange(last.codes, {}));
}

Result<void> WeightFile::writeFloat(const FileTensor &tensor) {
  std::vector<float> piece;
  for (const ConstantTensor &part : tensor.value) {
    int64_t rows = part.shape.front(), columns = part.columns();
    int64_t step = std::clamp<int64_t>(kPieceFloats / columns, 1, rows);
    for (int64_t row = 0; row < rows; row += step) {
      int64_t count = std::min(step, rows - row);
      piece.resize(count * columns);
      if (auto done = reader.readRows(part, row, count, piece); !done)
        return makeError(done.error().code, "site '{}': {}", tensor.site, done.error().message);
      if (auto done = append(tensor, piece); !done)
        return done;
    }
  }
  return {};
}

Result<void> WeightFile::writeRopeTable(const FileTensor &tensor) {
  Result<std::vector<float>> table = numerics::ropeTable(tensor.rope, tensor.shape[0]);
  if (!table)
    return makeError(table.error().code, "'{}': {}", tensor.name, table.error().message);
  return append(tensor, *table);
}

Result<void> WeightFile::write(const FileTensor &tensor, WrittenWeights &written) {
  switch (tensor.kind) {
  case FileTensor::Kind::Codes:
    return writeCodes(tensor, written);
  case FileTensor::Kind::Scales:
    return append(tensor, std::exchange(last.scales, {}));
  case FileTensor::Kind::ZeroPoints:
    return append(tensor, std::exchange(last.zeroPoints, {}));
  case FileTensor::Kind::Sums:
    return append(tensor, std::exchange(last.sums, {}));
  case FileTensor::Kind::Float:
    return writeFloat(tensor);
  case FileTensor::Kind::RopeTable:
    return writeRopeTable(tensor);
  }
  llvm_unreachable("every kind is named");
}

void easyquant::equant::sortForAlignment(std::vector<FileTensor> &tensors) {
  std::vector<FileTensor> aligned, others;
  for (size_t begin = 0, end; begin < tensors.size(); begin = end) {
    // The tensors of a weight stay together.
    bool isAligned = true;
    for (end = begin; end == begin || (end < tensors.size() && tensors[end].weight &&
                                       tensors[end].weight == tensors[begin].weight);
         ++end)
      isAligned &= formats::tensorBytes(dtypeOf(tensors[end]), tensors[end].shape).value_or(0) %
                       kAlignment ==
                   0;
    auto &part = isAligned ? aligned : others;
    std::move(tensors.begin() + begin, tensors.begin() + end, std::back_inserter(part));
  }
  std::move(others.begin(), others.end(), std::back_inserter(aligned));
  tensors = std::move(aligned);
}

Result<WrittenWeights> easyquant::equant::writeWeights(const std::filesystem::path &folder,
                                                       int64_t maxShardBytes,
                                                       const std::vector<FileTensor> &tensors,
                                                       const ConstantReader &reader,
                                                       unsigned threads,
                                                       llvm::function_ref<void(int64_t)> progress) {
  // Whatever cannot be packed is refused before a byte is written.
  std::vector<formats::SafetensorsWriter::Tensor> declared;
  for (const FileTensor &tensor : tensors) {
    declared.push_back(
        {tensor.name, std::string(formats::dtypeName(dtypeOf(tensor))), tensor.shape});
    if (!tensor.weight)
      continue;
    if (auto layout = panelLayoutOf(*tensor.weight); !layout)
      return makeError(layout.error().code, "site '{}': {}", tensor.weight->parts.front().site,
                       layout.error().message);
  }
  Result<ShardedSafetensorsWriter> writer =
      ShardedSafetensorsWriter::create(folder, "weights", std::move(declared), maxShardBytes);
  if (!writer)
    return Unexpected(writer.error());
  WrittenWeights written;
  WeightFile file(reader, *writer, threads);
  for (const auto &[index, tensor] : llvm::enumerate(tensors)) {
    if (auto done = file.write(tensor, written); !done)
      return Unexpected(done.error());
    progress(index + 1);
  }
  written.offsets.assign(writer->offsets().begin(), writer->offsets().end());
  if (auto done = writer->finish(); !done)
    return Unexpected(done.error());
  return written;
}
