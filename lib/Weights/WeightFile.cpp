//===- WeightFile.cpp - The artifact's weights ----------------------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "easyquant/Weights/WeightFile.h"

#include "easyquant/Formats/NarrowFloats.h"
#include "easyquant/Formats/ShardedSafetensors.h"
#include "easyquant/Numerics/FragmentPacking.h"
#include "easyquant/Weights/WeightLayouts.h"

#include <algorithm>
#include <iterator>

using namespace easyquant;
using namespace easyquant::equant;
using formats::ShardedSafetensorsWriter;

namespace {

/// Floats that are in memory at a time.
constexpr int64_t kPieceFloats = int64_t(1) << 20;

/// The file of one target, written tensor by tensor.
class WeightFile {
public:
  WeightFile(const TargetWeights &weights, ShardedSafetensorsWriter writer,
             const ConstantReader &reader)
      : weights(weights), writer(std::move(writer)), reader(reader) {}

  /// The weight whose tensors come next, or null behind the last tensor.
  const ConstantWeight *nextWeight() const { return isDone() ? nullptr : current().weight; }
  Result<void> writePacked(numerics::PackedWeight packed);
  /// Up to the next packed weight, or the end.
  Result<void> writeFloats();
  int64_t written() const { return static_cast<int64_t>(next); }
  Result<void> finish(TargetWeights &target);

  const TargetWeights &weights;

private:
  bool isDone() const { return next == weights.tensors.size(); }
  const FileTensor &current() const { return weights.tensors[next]; }
  Result<void> write(const FileTensor &tensor);
  Result<void> writeFloat(const FileTensor &tensor);
  Result<void> writeRopeTable(const FileTensor &tensor);
  Result<void> writeOrder(const FileTensor &tensor);
  Result<void> writeBF16(const FileTensor &tensor);
  /// body(piece) for every few rows of the constant, top to bottom.
  Result<void> forRows(const FileTensor &tensor,
                       llvm::function_ref<Result<void>(const std::vector<float> &)> body);

  template <typename T> Result<void> append(const FileTensor &tensor, const std::vector<T> &data) {
    return writer.write(tensor.name, std::as_bytes(std::span(data)));
  }
  /// The zeros behind `count` elements of the tensor.
  Result<void> pad(const FileTensor &tensor, int64_t count);

  ShardedSafetensorsWriter writer;
  const ConstantReader &reader;
  size_t next = 0; ///< tensor
};

} // namespace

Result<void> WeightFile::writePacked(numerics::PackedWeight packed) {
  for (const ConstantWeight *weight = nextWeight(); nextWeight() == weight; ++next) {
    std::vector<uint8_t> bytes = std::exchange(packed[current().part], {});
    bytes.resize(formats::tensorBytes(current().dtype, current().shape).value_or(bytes.size()));
    if (auto done = append(current(), bytes); !done)
      return done;
  }
  return {};
}

Result<void> WeightFile::writeFloats() {
  for (; !isDone() && !current().weight; ++next)
    if (auto done = write(current()); !done)
      return done;
  return {};
}

Result<void> WeightFile::pad(const FileTensor &tensor, int64_t count) {
  int64_t elements = 1;
  for (int64_t size : tensor.shape)
    elements *= size;
  return append(tensor, std::vector<std::byte>((elements - count) * dtypeBytes(tensor.dtype)));
}

Result<void>
WeightFile::forRows(const FileTensor &tensor,
                    llvm::function_ref<Result<void>(const std::vector<float> &)> body) {
  std::vector<float> piece;
  for (const ConstantTensor &part : tensor.constant->parts) {
    int64_t rows = part.shape.front(), columns = part.columns();
    int64_t step = std::clamp<int64_t>(kPieceFloats / columns, 1, rows);
    for (int64_t row = 0; row < rows; row += step) {
      int64_t count = std::min(step, rows - row);
      piece.resize(count * columns);
      if (auto done = reader.readRows(part, row, count, piece); !done)
        return makeError(done.error().code, "site '{}': {}", tensor.constant->site,
                         done.error().message);
      if (tensor.constant->columns)
        takeColumns(piece, count, columns, *tensor.constant->columns);
      if (auto done = body(piece); !done)
        return done;
    }
  }
  return {};
}

Result<void> WeightFile::writeFloat(const FileTensor &tensor) {
  int64_t written = 0;
  std::vector<uint16_t> halves;
  auto done = forRows(tensor, [&](const std::vector<float> &piece) {
    written += std::ssize(piece);
    if (tensor.dtype == formats::DType::F32)
      return append(tensor, piece);
    halves.resize(piece.size());
    std::ranges::transform(piece, halves.begin(),
                           tensor.dtype == formats::DType::F16 ? formats::toHalf
                                                               : formats::toBFloat);
    return append(tensor, halves);
  });
  return done ? pad(tensor, written) : done;
}

Result<void> WeightFile::writeBF16(const FileTensor &tensor) {
  std::vector<uint16_t> matrix;
  const int64_t rows = tensor.constant->type.getDimSize(0);
  const int64_t columns = tensor.constant->type.getDimSize(1);
  matrix.reserve(rows * columns);
  auto done = forRows(tensor, [&](const std::vector<float> &piece) -> Result<void> {
    std::transform(piece.begin(), piece.end(), std::back_inserter(matrix), formats::toBFloat);
    return {};
  });
  if (!done)
    return done;
  std::vector<uint8_t> packed(numerics::floatFragmentBytes(rows, columns));
  numerics::packFloatFragments(rows, columns, matrix.data(), packed.data());
  return append(tensor, packed);
}

Result<void> WeightFile::writeRopeTable(const FileTensor &tensor) {
  const numerics::RopeParams &params = *tensor.constant->rope;
  const int64_t positions = tensor.constant->type.getDimSize(0), step = kPieceFloats / params.dims;
  for (int64_t first = 0; first < positions; first += step) {
    auto piece = numerics::ropeTable(params, std::min(step, positions - first), first);
    if (!piece)
      return makeError(piece.error().code, "'{}': {}", tensor.name, piece.error().message);
    if (auto done = append(tensor, *piece); !done)
      return done;
  }
  return pad(tensor, positions * params.dims);
}

/// Kernels read rows at these places.
Result<void> WeightFile::writeOrder(const FileTensor &tensor) {
  const ConstantTensor &part = tensor.constant->parts.front();
  std::vector<int32_t> order(part.shape.front());
  if (auto done = reader.readRows(part, 0, std::ssize(order), std::span(order)); !done)
    return done;
  for (int32_t column : order)
    if (column < 0 || column >= std::ssize(order))
      return makeError(ErrorCode::Corrupt, "'{}' names column {} of {}", part.global, column,
                       order.size());
  if (auto done = append(tensor, order); !done)
    return done;
  return pad(tensor, std::ssize(order));
}

Result<void> WeightFile::write(const FileTensor &tensor) {
  switch (tensor.kind) {
  case FileTensor::Kind::Packed:
    break; // by writePacked
  case FileTensor::Kind::Float:
    return writeFloat(tensor);
  case FileTensor::Kind::RopeTable:
    return writeRopeTable(tensor);
  case FileTensor::Kind::Order:
    return writeOrder(tensor);
  case FileTensor::Kind::BF16:
    return writeBF16(tensor);
  }
  llvm_unreachable("every kind is named");
}

Result<void> WeightFile::finish(TargetWeights &target) {
  target.offsets.assign(writer.offsets().begin(), writer.offsets().end());
  if (!target.offsets.empty())
    target.bytes =
        target.offsets.back() +
        formats::tensorBytes(target.tensors.back().dtype, target.tensors.back().shape).value_or(0);
  return writer.finish();
}

/// Whatever cannot be packed is refused before a byte is written.
static Result<void> checkLayouts(const TargetWeights &target) {
  for (const ConstantWeight &weight : target.weights.packed())
    if (auto packer = packerFor(weight, target.form); !packer)
      return makeError(packer.error().code, "site '{}': {}{}", weight.parts.front().site,
                       packer.error().message,
                       targets::otherFamily(target.form, weight.rows, weight.columns, weight.scheme,
                                            /*input=*/{}));
  return {};
}

static Result<ShardedSafetensorsWriter> createFile(const std::filesystem::path &folder,
                                                   int64_t maxShardBytes,
                                                   const TargetWeights &target) {
  std::vector<formats::SafetensorsWriter::Tensor> declared;
  for (const FileTensor &tensor : target.tensors)
    declared.push_back({tensor.name, std::string(formats::dtypeName(tensor.dtype)), tensor.shape});
  return ShardedSafetensorsWriter::create(folder, target.stem, std::move(declared), maxShardBytes);
}

/// Evaluates the next weight of the first of the files that has one, for all whose next it is.
static Result<bool> writeNextWeight(std::deque<WeightFile> &files,
                                    std::deque<TargetWeights> &targets,
                                    const ConstantReader &reader, llvm::ThreadPoolInterface &pool) {
  const ConstantWeight *weight = nullptr;
  std::vector<size_t> readers;
  std::vector<std::unique_ptr<numerics::WeightLayout>> packers;
  for (auto [index, file] : llvm::enumerate(files)) {
    const ConstantWeight *other = file.nextWeight();
    if (!other || (weight && other->key() != weight->key()))
      continue;
    weight = weight ? weight : other;
    auto packer = packerFor(*other, file.weights.form);
    if (!packer)
      return Unexpected(packer.error());
    readers.push_back(index);
    packers.push_back(std::move(*packer));
  }
  if (!weight)
    return false;
  auto layouts = llvm::map_to_vector(
      packers, [](const auto &packer) -> const numerics::WeightLayout * { return packer.get(); });
  Result<EvaluatedWeight> evaluated = evaluate(*weight, layouts, reader, pool);
  if (!evaluated)
    return Unexpected(evaluated.error());
  for (auto [index, packed] : llvm::zip_equal(readers, evaluated->packed)) {
    targets[index].errors[files[index].nextWeight()] = evaluated->errors;
    if (auto done = files[index].writePacked(std::move(packed)); !done)
      return Unexpected(done.error());
  }
  return true;
}

Result<void> easyquant::equant::writeWeights(const std::filesystem::path &folder,
                                             int64_t maxShardBytes,
                                             std::deque<TargetWeights> &targets,
                                             const ConstantReader &reader, unsigned threads,
                                             llvm::function_ref<void(int64_t)> progress) {
  for (const TargetWeights &target : targets)
    if (auto done = checkLayouts(target); !done)
      return done;
  std::deque<WeightFile> files;
  for (const TargetWeights &target : targets) {
    auto writer = createFile(folder, maxShardBytes, target);
    if (!writer)
      return Unexpected(writer.error());
    files.emplace_back(target, std::move(*writer), reader);
  }
  llvm::DefaultThreadPool pool(llvm::hardware_concurrency(threads));
  for (bool isMore = true; isMore;) {
    for (WeightFile &file : files)
      if (auto done = file.writeFloats(); !done)
        return done;
    Result<bool> next = writeNextWeight(files, targets, reader, pool);
    if (!next)
      return Unexpected(next.error());
    isMore = *next;
    int64_t written = 0;
    for (const WeightFile &file : files)
      written += file.written();
    progress(written);
  }
  for (auto [file, target] : llvm::zip_equal(files, targets))
    if (auto done = file.finish(target); !done)
      return done;
  return {};
}
