//===- WeightFile.cpp - The artifact's weights ----------------------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "easyquant/Weights/WeightFile.h"

#include "easyquant/Formats/ShardedSafetensors.h"

#include <algorithm>
#include <bit>
#include <iterator>
#include <optional>

using namespace easyquant;
using namespace easyquant::equant;
using formats::DType;
using formats::ShardedSafetensorsWriter;

namespace {

/// Kernels read whole cache lines of packed weights.
constexpr int64_t kAlignment = 64;
/// Floats that are in memory at a time.
constexpr int64_t kPieceFloats = int64_t(1) << 20;

class WeightFile {
public:
  /// A writer may be null: that file is not asked for.
  WeightFile(const ConstantReader &reader, ShardedSafetensorsWriter *cpu,
             ShardedSafetensorsWriter *gpu, unsigned threads)
      : reader(reader), cpu(cpu), gpu(gpu), pool(llvm::hardware_concurrency(threads)) {}

  Result<void> write(const FileTensor &tensor, WrittenWeights &written);

private:
  Result<void> evaluateWeight(const FileTensor &tensor, WrittenWeights &written);
  Result<void> writePacked(const FileTensor &tensor, WrittenWeights &written);
  Result<void> writeFloat(const FileTensor &tensor);
  Result<void> writeRopeTable(const FileTensor &tensor);
  Result<void> writeHalves(const FileTensor &tensor);
  /// body(piece) for every few rows of the constant, top to bottom.
  Result<void> forRows(const FileTensor &tensor,
                       llvm::function_ref<Result<void>(const std::vector<float> &)> body);

  template <typename T>
  Result<void> append(ShardedSafetensorsWriter *file, const FileTensor &tensor,
                      const std::vector<T> &data) {
    if (!file || !tensor.isIn(file == gpu))
      return {};
    return file->write(tensor.name, std::as_bytes(std::span(data)));
  }
  /// Two packings of one thing.
  template <typename T>
  Result<void> append(const FileTensor &tensor, const std::vector<T> &forCpu,
                      const std::vector<T> &forGpu) {
    if (auto done = append(cpu, tensor, forCpu); !done)
      return done;
    return append(gpu, tensor, forGpu);
  }
  /// The zeros behind a tensor of the file for GPUs that is `count` floats long.
  Result<void> padForGPU(const FileTensor &tensor, int64_t count);

  const ConstantReader &reader;
  ShardedSafetensorsWriter *cpu, *gpu;
  llvm::DefaultThreadPool pool;
  /// Of the weight whose codes were written last, what has not been written yet.
  numerics::PackedWeight forCpu, forGpu;
};

} // namespace

static DType dtypeOfScales(numerics::ScaleFormat format) {
  switch (format) {
  case numerics::ScaleFormat::F32:
    return DType::F32;
  case numerics::ScaleFormat::F16:
    return DType::F16;
  case numerics::ScaleFormat::BF16:
    return DType::BF16;
  case numerics::ScaleFormat::F8E4M3FN:
  case numerics::ScaleFormat::F8E8M0FNU: // which readers of safetensors without ml_dtypes have no
                                         // type for
    return DType::U8;
  }
  llvm_unreachable("every format is named");
}

DType easyquant::equant::dtypeOf(const FileTensor &tensor) {
  switch (tensor.kind) {
  case FileTensor::Kind::Packed:
    switch (tensor.part) {
    case numerics::WeightTensor::Codes:
    case numerics::WeightTensor::ZeroPoints:
      return DType::U8;
    case numerics::WeightTensor::Scales:
      return dtypeOfScales(tensor.weight->scheme.toNumerics().scales);
    case numerics::WeightTensor::Sums:
      return DType::I32;
    case numerics::WeightTensor::Outer:
      return DType::F32;
    }
    llvm_unreachable("every tensor is named");
  case FileTensor::Kind::Halves:
    return DType::BF16;
  case FileTensor::Kind::Float:
  case FileTensor::Kind::RopeTable:
    return DType::F32;
  }
  llvm_unreachable("every kind is named");
}

/// Evaluates the weight, of which this is the first tensor, for all files.
Result<void> WeightFile::evaluateWeight(const FileTensor &tensor, WrittenWeights &written) {
  Result<numerics::PanelLayout> panels = panelLayoutOf(*tensor.weight);
  if (!panels)
    return Unexpected(panels.error());
  std::vector<const numerics::WeightLayout *> layouts;
  if (cpu)
    layouts.push_back(&*panels);
  std::optional<numerics::FragmentLayout> fragments;
  if (gpu) {
    Result<numerics::FragmentLayout> layout = fragmentLayoutOf(*tensor.weight);
    if (!layout)
      return Unexpected(layout.error());
    layouts.push_back(&fragments.emplace(*layout));
  }
  Result<EvaluatedWeight> evaluated = evaluate(*tensor.weight, layouts, reader, pool);
  if (!evaluated)
    return Unexpected(evaluated.error());
  written.errors[tensor.weight] = std::move(evaluated->errors);
  if (cpu)
    forCpu = std::move(evaluated->packed.front());
  if (gpu)
    forGpu = std::move(evaluated->packed.back());
  return {};
}

Result<void> WeightFile::writePacked(const FileTensor &tensor, WrittenWeights &written) {
  if (tensor.part == numerics::WeightTensor::Codes)
    if (auto done = evaluateWeight(tensor, written); !done)
      return done;
  for (auto [file, packed, shape] :
       {std::tuple(cpu, &forCpu, &tensor.shape), std::tuple(gpu, &forGpu, &tensor.gpuShape)}) {
    if (!file || !tensor.isIn(file == gpu))
      continue;
    std::vector<uint8_t> bytes = std::exchange((*packed)[tensor.part], {});
    bytes.resize(formats::tensorBytes(dtypeOf(tensor), *shape).value_or(bytes.size()));
    if (auto done = append(file, tensor, bytes); !done)
      return done;
  }
  return {};
}

Result<void> WeightFile::padForGPU(const FileTensor &tensor, int64_t count) {
  int64_t elements = 1;
  for (int64_t size : tensor.gpuShape)
    elements *= size;
  return append(gpu, tensor, std::vector<float>(elements - count, 0.0f));
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
      if (auto done = body(piece); !done)
        return done;
    }
  }
  return {};
}

Result<void> WeightFile::writeFloat(const FileTensor &tensor) {
  int64_t written = 0;
  auto done = forRows(tensor, [&](const std::vector<float> &piece) {
    written += std::ssize(piece);
    return append(tensor, piece, piece);
  });
  if (!done || !gpu || !tensor.isIn(/*gpu=*/true))
    return done;
  return padForGPU(tensor, written);
}

/// To the nearest bf16, ties to even; the value is finite.
static uint16_t toBFloat(float value) {
  auto bits = std::bit_cast<uint32_t>(value);
  return static_cast<uint16_t>((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

Result<void> WeightFile::writeHalves(const FileTensor &tensor) {
  std::vector<uint16_t> matrix;
  matrix.reserve(tensor.shape[0] * tensor.shape[1]);
  auto done = forRows(tensor, [&](const std::vector<float> &piece) -> Result<void> {
    std::transform(piece.begin(), piece.end(), std::back_inserter(matrix), toBFloat);
    return {};
  });
  if (!done)
    return done;
  std::vector<uint8_t> packed(numerics::floatFragmentBytes(tensor.shape[0], tensor.shape[1]));
  numerics::packFloatFragments(tensor.shape[0], tensor.shape[1], matrix.data(), packed.data());
  return append(gpu, tensor, packed);
}

Result<void> WeightFile::writeRopeTable(const FileTensor &tensor) {
  const numerics::RopeParams &params = *tensor.constant->rope;
  const int64_t positions = tensor.shape[0], step = kPieceFloats / params.headDim;
  for (int64_t first = 0; first < positions; first += step) {
    auto piece = numerics::ropeTable(params, std::min(step, positions - first), first);
    if (!piece)
      return makeError(piece.error().code, "'{}': {}", tensor.name, piece.error().message);
    if (auto done = append(tensor, *piece, *piece); !done)
      return done;
  }
  return gpu ? padForGPU(tensor, positions * params.headDim) : Result<void>();
}

Result<void> WeightFile::write(const FileTensor &tensor, WrittenWeights &written) {
  switch (tensor.kind) {
  case FileTensor::Kind::Packed:
    return writePacked(tensor, written);
  case FileTensor::Kind::Float:
    return writeFloat(tensor);
  case FileTensor::Kind::RopeTable:
    return writeRopeTable(tensor);
  case FileTensor::Kind::Halves:
    return writeHalves(tensor);
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

Result<numerics::PanelLayout> easyquant::equant::panelLayoutOf(const ConstantWeight &weight) {
  if (weight.layout.getRows() != numerics::kPanelRows || weight.layout.getDepth() != 4)
    return makeError(ErrorCode::Unsupported,
                     "panels of {} rows and depth {}: only {} rows of depth 4 are packed",
                     weight.layout.getRows(), weight.layout.getDepth(), numerics::kPanelRows);
  Result<numerics::PanelLayout> layout =
      numerics::panelLayout(weight.scheme.toNumerics(), weight.rows, weight.columns);
  if (layout)
    layout->withSums = weight.needsSums;
  return layout;
}

numerics::FragmentOrder easyquant::equant::fragmentOrderOf(const ConstantWeight &weight) {
  // Embeddings take either; of 3 bits there is but one.
  bool isHalves = weight.floatReader || (weight.scheme.getBits() == 3 && !weight.integerReader);
  return isHalves ? numerics::FragmentOrder::Halves : numerics::FragmentOrder::Bytes;
}

Result<numerics::FragmentLayout> easyquant::equant::fragmentLayoutOf(const ConstantWeight &weight) {
  if (weight.integerReader && weight.floatReader)
    return makeError(
        ErrorCode::Unsupported,
        "linears on int8 and on float activations share this weight, which GPU kernels "
        "read in different orders; give both the same activations");
  Result<numerics::FragmentLayout> layout = numerics::fragmentLayout(
      weight.scheme.toNumerics(), fragmentOrderOf(weight), weight.rows, weight.columns);
  if (layout)
    layout->withSums = weight.needsSums;
  return layout;
}

/// Whatever cannot be packed is refused before a byte is written.
static Result<void> checkLayouts(WeightFiles files, const std::vector<FileTensor> &tensors) {
  for (const FileTensor &tensor : tensors) {
    if (!tensor.weight)
      continue;
    const std::string &site = tensor.weight->parts.front().site;
    if (auto layout = panelLayoutOf(*tensor.weight); !layout)
      return makeError(layout.error().code, "site '{}': {}", site, layout.error().message);
    if (!files.gpu)
      continue;
    if (auto layout = fragmentLayoutOf(*tensor.weight); !layout)
      return makeError(layout.error().code, "site '{}': {}; compile it with --target cpu", site,
                       layout.error().message);
  }
  return {};
}

static Result<ShardedSafetensorsWriter> createFile(const std::filesystem::path &folder,
                                                   std::string_view stem, int64_t maxShardBytes,
                                                   const std::vector<FileTensor> &tensors,
                                                   bool gpu) {
  std::vector<formats::SafetensorsWriter::Tensor> declared;
  for (const FileTensor &tensor : tensors)
    if (tensor.isIn(gpu))
      declared.push_back({tensor.name, std::string(formats::dtypeName(dtypeOf(tensor))),
                          gpu ? tensor.gpuShape : tensor.shape});
  return ShardedSafetensorsWriter::create(folder, stem, std::move(declared), maxShardBytes);
}

Result<WrittenWeights> easyquant::equant::writeWeights(const std::filesystem::path &folder,
                                                       int64_t maxShardBytes, WeightFiles files,
                                                       const std::vector<FileTensor> &tensors,
                                                       const ConstantReader &reader,
                                                       unsigned threads,
                                                       llvm::function_ref<void(int64_t)> progress) {
  if (auto done = checkLayouts(files, tensors); !done)
    return Unexpected(done.error());
  std::optional<ShardedSafetensorsWriter> cpu, gpu;
  for (auto [writer, asked, stem] :
       {std::tuple(&cpu, files.cpu, "weights"), std::tuple(&gpu, files.gpu, "weights.gpu")}) {
    if (!asked)
      continue;
    auto created = createFile(folder, stem, maxShardBytes, tensors, writer == &gpu);
    if (!created)
      return Unexpected(created.error());
    *writer = std::move(*created);
  }
  WrittenWeights written;
  int64_t nextCpu = 0, nextGpu = 0;
  WeightFile file(reader, cpu ? &*cpu : nullptr, gpu ? &*gpu : nullptr, threads);
  for (const auto &[index, tensor] : llvm::enumerate(tensors)) {
    if (auto done = file.write(tensor, written); !done)
      return Unexpected(done.error());
    progress(index + 1);
  }
  for (const FileTensor &tensor : tensors) {
    // The writers know the tensors of their own files, in this order.
    if (cpu)
      written.offsets.push_back(tensor.isIn(/*gpu=*/false) ? cpu->offsets()[nextCpu++] : -1);
    if (gpu)
      written.gpuOffsets.push_back(tensor.isIn(/*gpu=*/true) ? gpu->offsets()[nextGpu++] : -1);
    if (gpu && tensor.isIn(/*gpu=*/true))
      written.gpuBytes = written.gpuOffsets.back() +
                         formats::tensorBytes(dtypeOf(tensor), tensor.gpuShape).value_or(0);
  }
  for (auto *writer : {&cpu, &gpu})
    if (*writer)
      if (auto done = (*writer)->finish(); !done)
        return Unexpected(done.error());
  return written;
}
