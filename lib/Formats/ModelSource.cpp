//===- ModelSource.cpp - A model on disk, whatever its container ----------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "easyquant/Formats/ModelSource.h"

#include "easyquant/Formats/DType.h"
#include "easyquant/Support/Checksum.h"

#include "Checkpoint.h"
#include "Text.h"
#include "easyquant/Formats/ModelTensors.h"

#include <algorithm>
#include <cmath>
#include <unordered_set>

using namespace easyquant;
using namespace easyquant::formats;
namespace fs = std::filesystem;

namespace {
/// A weight with the bytes behind it.
struct Weight {
  StoredTensor stored;
  /// The file holds K x N (Conv1D).
  bool transposed = false;
  /// If not 0: rows are to be looked up with ggufRow() and this head dimension.
  int64_t permutedHeadDim = 0;
};

constexpr size_t kHashPiece = size_t(16) << 20;
/// Stored rows of a transposed weight that are converted before they are scattered: 16 floats are a
/// cache line of the output.
constexpr int64_t kTransposeRows = 16;
} // namespace

struct ModelSource::Impl {
  Kind kind = Kind::HuggingFace;
  fs::path path;
  Checkpoint checkpoint;
  std::vector<ModelTensor> tensors;
  std::vector<Weight> weights; ///< of `tensors`
  std::unordered_map<std::string, size_t> indexByName;

  std::string where(const std::string &name) const {
    return path.string() + ": tensor " + quote(name);
  }

  Result<void> resolve();
  Result<void> addWeight(ExpectedTensor &tensor, const std::string &storedName);
  Result<void> convert(size_t index, int64_t firstRow, int64_t rows, std::span<float> out) const;
  Result<void> convertTransposed(const Weight &weight, int64_t firstRow, int64_t rows,
                                 int64_t columns, std::span<float> out) const;
};

int64_t ModelTensor::elements() const { return elementCount(shape).value_or(0); }

//===----------------------------------------------------------------------===//
// Opening
//===----------------------------------------------------------------------===//

Result<ModelSource> ModelSource::open(const fs::path &path) {
  std::error_code error;
  fs::file_status status = fs::status(path, error);
  if (!fs::exists(status))
    return makeError(ErrorCode::NotFound, "{}: no such file or folder", path.string());

  bool isFolder = fs::is_directory(status);
  if (!isFolder && path.extension() == ".safetensors")
    return makeError(
        ErrorCode::InvalidArgument,
        "{}: expected the folder with config.json that holds this file, or a GGUF file",
        path.string());
  auto impl = std::make_unique<Impl>();
  impl->kind = isFolder ? Kind::HuggingFace : Kind::GGUF;
  impl->path = path;
  Result<Checkpoint> checkpoint = isFolder ? openHuggingFace(path) : openGGUF(path);
  if (!checkpoint)
    return Unexpected(checkpoint.error());
  impl->checkpoint = std::move(*checkpoint);
  if (Result<void> resolved = impl->resolve(); !resolved)
    return Unexpected(resolved.error());
  return ModelSource(std::move(impl));
}

/// Finds the bytes of every weight that the configuration calls for, and refuses tensors that it
/// does not: a model whose biases were left out would run and be wrong.
Result<void> ModelSource::Impl::resolve() {
  std::unordered_set<std::string> used;
  for (ExpectedTensor &tensor : expectedTensors(checkpoint.config)) {
    std::string storedName = kind == Kind::GGUF ? tensor.ggufName : tensor.name;
    if (Result<void> added = addWeight(tensor, storedName); !added)
      return added;
    used.insert(std::move(storedName));
  }
  std::vector<std::string> unexpected;
  for (const auto &[name, stored] : checkpoint.tensors)
    if (!used.contains(name) &&
        !(kind == Kind::HuggingFace && isRedundant(checkpoint.config, name)))
      unexpected.push_back(name);
  if (unexpected.empty())
    return {};
  return makeError(ErrorCode::Unsupported,
                   "{}: tensor {} (one of {}) has no place in a {} model of this configuration",
                   path.string(), quote(*std::min_element(unexpected.begin(), unexpected.end())),
                   unexpected.size(), checkpoint.config.architecture->name);
}

Result<void> ModelSource::Impl::addWeight(ExpectedTensor &tensor, const std::string &storedName) {
  auto found = checkpoint.tensors.find(storedName);
  if (found == checkpoint.tensors.end())
    return makeError(ErrorCode::NotFound, "{} is missing; expected shape {}", where(storedName),
                     shapeText(tensor.shape));
  Weight weight;
  weight.stored = found->second;
  weight.transposed = tensor.isConv1D && kind == Kind::HuggingFace;
  std::vector<int64_t> shape = tensor.shape;
  if (weight.transposed)
    std::reverse(shape.begin(), shape.end());
  if (weight.stored.shape != shape)
    return makeError(ErrorCode::Corrupt, "{}: expected shape {}, found {}", where(storedName),
                     shapeText(shape), shapeText(weight.stored.shape));
  if (!weight.stored.type)
    return makeError(
        ErrorCode::Unsupported, "{}: weights of type {} are not supported; expected {}",
        where(storedName), weight.stored.typeName,
        kind == Kind::GGUF ? "F32, F16, BF16, Q8_0, Q4_0, Q4_1, Q5_0, Q5_1, Q2_K, Q3_K, "
                             "Q4_K, Q5_K, Q6_K, Q8_K, IQ4_NL or IQ4_XS"
                           : "F32, F16 or BF16");
  // Rows are converted one by one, and a row of a vector is one element.
  if (shape.size() == 1 && weight.stored.type->blockElements != 1)
    return makeError(ErrorCode::Unsupported,
                     "{}: a vector of type {} is not supported; expected F32, "
                     "F16 or BF16",
                     where(storedName), weight.stored.typeName);
  if (tensor.ropeHeads != 0 && kind == Kind::GGUF)
    weight.permutedHeadDim = tensor.shape.front() / tensor.ropeHeads;

  indexByName.emplace(tensor.name, tensors.size());
  tensors.push_back({std::move(tensor.name), std::move(tensor.shape), weight.stored.typeName});
  weights.push_back(std::move(weight));
  return {};
}

//===----------------------------------------------------------------------===//
// Reading
//===----------------------------------------------------------------------===//

/// Rows of a K x N matrix in the file, as rows of its N x K transpose.
Result<void> ModelSource::Impl::convertTransposed(const Weight &weight, int64_t firstRow,
                                                  int64_t rows, int64_t columns,
                                                  std::span<float> out) const {
  const int64_t elementBytes = weight.stored.type->blockBytes;
  const int64_t storedRow = weight.stored.shape[1] * elementBytes;
  std::vector<float> buffer(static_cast<size_t>(kTransposeRows * rows));
  for (int64_t k = 0; k < columns; k += kTransposeRows) {
    const int64_t count = std::min(kTransposeRows, columns - k);
    for (int64_t i = 0; i < count; ++i)
      if (Result<void> done =
              dequantize(weight.stored.type->type,
                         weight.stored.data.subspan((k + i) * storedRow + firstRow * elementBytes,
                                                    rows * elementBytes),
                         std::span(buffer).subspan(i * rows, rows));
          !done)
        return done;
    for (int64_t row = 0; row < rows; ++row)
      for (int64_t i = 0; i < count; ++i)
        out[row * columns + k + i] = buffer[i * rows + row];
  }
  return {};
}

Result<void> ModelSource::Impl::convert(size_t index, int64_t firstRow, int64_t rows,
                                        std::span<float> out) const {
  const ModelTensor &tensor = tensors[index];
  const Weight &weight = weights[index];
  const int64_t columns = tensor.elements() / tensor.shape.front();
  if (weight.transposed)
    return convertTransposed(weight, firstRow, rows, columns, out);

  const GGMLTypeInfo &type = *weight.stored.type;
  const int64_t rowBytes = columns / type.blockElements * type.blockBytes;
  if (weight.permutedHeadDim == 0)
    return dequantize(type.type, weight.stored.data.subspan(firstRow * rowBytes, rows * rowBytes),
                      out);
  for (int64_t row = 0; row < rows; ++row) {
    const int64_t stored = ggufRow(firstRow + row, weight.permutedHeadDim);
    if (Result<void> done =
            dequantize(type.type, weight.stored.data.subspan(stored * rowBytes, rowBytes),
                       out.subspan(row * columns, columns));
        !done)
      return done;
  }
  return {};
}

Result<void> ModelSource::read(std::string_view name, std::span<float> out) const {
  const ModelTensor *tensor = find(name);
  return readRows(name, 0, tensor ? tensor->shape.front() : 0, out);
}

Result<void> ModelSource::readRows(std::string_view name, int64_t firstRow, int64_t rows,
                                   std::span<float> out) const {
  auto found = impl->indexByName.find(std::string(name));
  if (found == impl->indexByName.end())
    return makeError(ErrorCode::NotFound, "{}: tensor {} is not part of the model",
                     impl->path.string(), quote(name));
  const ModelTensor &tensor = impl->tensors[found->second];
  const int64_t columns = tensor.elements() / tensor.shape.front();
  if (firstRow < 0 || rows < 0 || firstRow > tensor.shape.front() - rows)
    return makeError(ErrorCode::InvalidArgument, "{}: {} rows from row {}: there are only {}",
                     impl->where(tensor.name), rows, firstRow, tensor.shape.front());
  if (out.size() != static_cast<size_t>(rows * columns))
    return makeError(ErrorCode::InvalidArgument, "{}: a buffer of {} floats for {} rows of {}",
                     impl->where(tensor.name), out.size(), rows, columns);
  if (Result<void> done = impl->convert(found->second, firstRow, rows, out); !done)
    return done;

  const StoredTensor &stored = impl->weights[found->second].stored;
  if (out.size_bytes() >= MappedFile::kReleaseBytes)
    stored.file->release(stored.data);
  auto bad =
      std::find_if(out.begin(), out.end(), [](float value) { return !std::isfinite(value); });
  if (bad != out.end())
    return makeError(ErrorCode::Corrupt,
                     "{}: the value in row {}, column {} is {}; the weights are damaged",
                     impl->where(tensor.name), firstRow + (bad - out.begin()) / columns,
                     (bad - out.begin()) % columns, *bad);
  return {};
}

void ModelSource::release(std::string_view name) const {
  if (auto found = impl->indexByName.find(std::string(name)); found != impl->indexByName.end()) {
    const StoredTensor &stored = impl->weights[found->second].stored;
    stored.file->release(stored.data);
  }
}

//===----------------------------------------------------------------------===//
// What the source says of itself
//===----------------------------------------------------------------------===//

ModelSource::ModelSource(std::unique_ptr<Impl> impl) : impl(std::move(impl)) {}
ModelSource::ModelSource(ModelSource &&) noexcept = default;
ModelSource &ModelSource::operator=(ModelSource &&) noexcept = default;
ModelSource::~ModelSource() = default;

ModelSource::Kind ModelSource::kind() const { return impl->kind; }
std::string_view ModelSource::kindName() const {
  return impl->kind == Kind::HuggingFace ? "huggingface" : "gguf";
}
const fs::path &ModelSource::path() const { return impl->path; }
const ModelConfig &ModelSource::config() const { return impl->checkpoint.config; }
std::span<const ModelTensor> ModelSource::tensors() const { return impl->tensors; }

std::string ModelSource::name() const {
  if (impl->kind == Kind::GGUF)
    return impl->path.stem().string();
  // "folder/", "." and ".." have names only after normalization.
  std::error_code ignored;
  fs::path full = fs::weakly_canonical(impl->path, ignored);
  if (!full.has_filename())
    full = full.parent_path();
  // A download of Hugging Face's is models--ORGANIZATION--NAME/snapshots/REVISION.
  const std::string download = full.parent_path().parent_path().filename().string();
  if (full.parent_path().filename() == "snapshots" && download.starts_with("models--"))
    return download.substr(download.rfind("--") + 2);
  return full.filename().string();
}

const ModelTensor *ModelSource::find(std::string_view name) const {
  auto found = impl->indexByName.find(std::string(name));
  return found == impl->indexByName.end() ? nullptr : &impl->tensors[found->second];
}

int64_t ModelSource::parameters() const {
  int64_t total = 0;
  for (const ModelTensor &tensor : impl->tensors)
    total += tensor.elements();
  return total;
}

std::map<std::string, int64_t> ModelSource::storedTypes() const {
  std::map<std::string, int64_t> counts;
  for (const ModelTensor &tensor : impl->tensors)
    ++counts[tensor.storedType];
  return counts;
}

Result<std::string> ModelSource::hash() const {
  Checksum checksum;
  for (const MappedFile *file : impl->checkpoint.files) {
    std::span<const std::byte> rest = file->bytes();
    while (!rest.empty()) {
      std::span<const std::byte> piece = rest.first(std::min(rest.size(), kHashPiece));
      checksum.update(piece.data(), piece.size());
      file->release(piece);
      rest = rest.subspan(piece.size());
    }
  }
  return checksum.hex();
}
