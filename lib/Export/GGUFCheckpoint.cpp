//===- GGUFCheckpoint.cpp - A quantized model as a GGUF file --------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "GGUFCheckpoint.h"

#include "CheckpointValues.h"

#include "easyquant/Formats/Codecs/GGMLBlocks.h"
#include "easyquant/Formats/GGUFWriter.h"

#include <cmath>
#include <map>

using namespace easyquant;
using namespace easyquant::equant;
using formats::ExpectedTensor;
using formats::GGMLType;
using formats::GGUFFile;
using formats::GGUFMetadata;
using formats::GGUFWriter;
using formats::ModelConfig;

namespace {

bool isInOrder(const ExpectedTensor &tensor) {
  return tensor.ggufRows.isSame() && tensor.ggufColumns.isSame();
}

/// The version of ggml's blocks.
constexpr uint32_t kQuantizationVersion = 2;

class GGUFExport {
public:
  GGUFExport(const Checkpoint &checkpoint, const ConstantReader &reader)
      : checkpoint(checkpoint), reader(reader), config(reader.source().config()),
        expected(formats::expectedTensors(config)) {}

  Result<void> write(const GGUFPaths &paths, llvm::ThreadPoolInterface &pool,
                     llvm::function_ref<void(int64_t)> progress);

private:
  Result<void> findRopeDivisors();
  Result<void> addVocabulary(GGUFMetadata &metadata, std::filesystem::path path) const;
  std::vector<GGUFWriter::Tensor> declarations() const;
  Result<void> writeTensor(size_t index, llvm::ThreadPoolInterface &pool);
  Result<void> writeFloats(size_t index);
  Result<void> checkColumns(llvm::ArrayRef<GGUFWriter::Tensor> tensors) const;
  Result<void> append(size_t index, std::span<const std::byte> rows);

  const Checkpoint &checkpoint;
  const ConstantReader &reader;
  const ModelConfig &config;
  const std::vector<ExpectedTensor> expected; ///< as those of the checkpoint, one for one
  /// Tensors of divisors of frequencies, by their names.
  std::vector<std::pair<const char *, std::vector<float>>> ropeDivisors;
  std::optional<GGUFWriter> file;
};

} // namespace

/// Vectors, whatever GGUF says of their shape, and convolutions, which llama.cpp computes in f32.
static bool isF32(const ExpectedTensor &tensor) {
  return tensor.shape.size() == 1 || tensor.isVectorInGGUF || tensor.isDepthwise;
}

Result<void> GGUFExport::findRopeDivisors() {
  if (!config.architecture->isRotary())
    return {};
  // llama.cpp asks for it where some rotate in proportion.
  if (config.rope.scaling == numerics::RopeScaling::Llama3 ||
      config.architecture->proportionalPart != 0.0) {
    auto divisors = numerics::ropeDivisors(config.rope);
    if (!divisors)
      return Unexpected(divisors.error());
    ropeDivisors.emplace_back(formats::kGGUFRopeFactors, std::move(*divisors));
  } else if (config.rope.scaling == numerics::RopeScaling::LongRope) {
    ropeDivisors.emplace_back(formats::kGGUFShortRopeFactors, config.rope.divisors);
    ropeDivisors.emplace_back(formats::kGGUFLongRopeFactors, config.longDivisors);
  }
  return {};
}

Result<void> GGUFExport::addVocabulary(GGUFMetadata &metadata, std::filesystem::path path) const {
  if (path.empty() && reader.source().kind() == formats::ModelSource::Kind::GGUF)
    path = reader.source().path();
  if (path.empty())
    return makeError(
        ErrorCode::InvalidArgument,
        "a GGUF file has a tokenizer: option vocabulary names no GGUF file that has it; "
        "`easyquant export` makes one of tokenizer.json");
  Result<GGUFFile> vocabulary = GGUFFile::open(path);
  if (!vocabulary)
    return Unexpected(vocabulary.error());
  const formats::GGUFValue *tokens = vocabulary->metadata("tokenizer.ggml.tokens");
  const formats::GGUFArray *array = tokens ? tokens->asArray() : nullptr;
  if (!array || static_cast<int64_t>(array->count) != config.vocabSize)
    return makeError(ErrorCode::InvalidArgument,
                     "{}: metadata \"tokenizer.ggml.tokens\": expected the {} tokens of the model, "
                     "found {}",
                     path.string(), config.vocabSize,
                     array ? std::to_string(array->count) : std::string("none"));
  for (const auto &[key, value] : vocabulary->contents().metadata)
    if (llvm::StringRef(key).starts_with("tokenizer."))
      metadata.add(key, value);
  return {};
}

std::vector<GGUFWriter::Tensor> GGUFExport::declarations() const {
  std::vector<GGUFWriter::Tensor> declared;
  for (const auto &[tensor, like] : llvm::zip_equal(checkpoint.tensors, expected)) {
    GGMLType type = isF32(like) ? GGMLType::F32 : GGMLType::F16;
    if (tensor.site)
      type = formats::ggmlTypeOf(tensor.site->stored.site.weight)->type;
    declared.push_back({like.ggufName, type, like.ggufShape()});
  }
  for (const auto &[name, divisors] : ropeDivisors)
    declared.push_back({name, GGMLType::F32, {std::ssize(divisors)}});
  return declared;
}

/// llama.cpp's name of a type as that of a file (llama_ftype of llama.h).
static uint32_t fileTypeOf(GGMLType type) {
  switch (type) {
  case GGMLType::F32:
    return 0;
  case GGMLType::F16:
    return 1;
  case GGMLType::Q4_0:
    return 2;
  case GGMLType::Q4_1:
    return 3;
  case GGMLType::Q8_0:
    return 7;
  case GGMLType::Q5_0:
    return 8;
  case GGMLType::Q5_1:
    return 9;
  case GGMLType::Q2_K:
    return 10;
  case GGMLType::Q3_K:
    return 11; // S: no site has more bits
  case GGMLType::Q4_K:
    return 14;
  case GGMLType::Q5_K:
    return 16;
  case GGMLType::Q6_K:
    return 18;
  case GGMLType::IQ4_NL:
    return 25;
  case GGMLType::IQ4_XS:
    return 30;
  case GGMLType::MXFP4:
    return 38;
  case GGMLType::NVFP4:
    return 39;
  default:
    return 1024; // "guessed"
  }
}

/// The type that most weights have: readers such as OpenVINO's choose their types of numbers by it.
static uint32_t fileType(llvm::ArrayRef<GGUFWriter::Tensor> tensors) {
  std::map<GGMLType, int64_t> weights;
  for (const GGUFWriter::Tensor &tensor : tensors)
    weights[tensor.type] += llvm::product_of(tensor.shape);
  return fileTypeOf(llvm::max_element(weights, llvm::less_second())->first);
}

/// `rows` are all of the tensor, in the order of the model.
Result<void> GGUFExport::append(size_t index, std::span<const std::byte> rows) {
  const ExpectedTensor &tensor = expected[index];
  if (isInOrder(tensor))
    return file->write(tensor.ggufName, rows);
  const auto rowBytes = static_cast<int64_t>(rows.size()) / tensor.shape.front();
  const formats::RowOrder &columns = tensor.ggufColumns;
  const int64_t pieces = columns.isSame() ? 1 : tensor.shape[1] / columns.unit;
  const int64_t bytes = rowBytes / pieces;
  std::vector<std::byte> permuted(rows.size());
  for (int64_t row = 0; row < tensor.shape.front(); ++row)
    for (int64_t piece = 0; piece < pieces; ++piece)
      std::copy_n(rows.begin() + row * rowBytes + piece * bytes, bytes,
                  permuted.begin() + tensor.ggufRows.stored(row) * rowBytes +
                      columns.stored(piece * columns.unit) / columns.unit * bytes);
  return file->write(tensor.ggufName, permuted);
}

/// Columns go to other places in whole blocks.
Result<void> GGUFExport::checkColumns(llvm::ArrayRef<GGUFWriter::Tensor> tensors) const {
  for (const auto &[declared, like] : llvm::zip(tensors, expected)) {
    const auto *type = formats::ggmlTypeInfo(static_cast<uint32_t>(declared.type));
    if (!like.ggufColumns.isSame() && like.ggufColumns.unit % type->blockElements != 0)
      return makeError(ErrorCode::Unsupported,
                       "'{}': GGUF has the heads of its columns in another order, and heads of {} "
                       "are no whole blocks of {}, which are of {}; take a scheme of smaller "
                       "blocks, or leave the site float",
                       like.name, like.ggufColumns.unit, type->name, type->blockElements);
  }
  return {};
}

/// In f32, as vectors are.
Result<void> GGUFExport::writeFloats(size_t index) {
  const ConstantTensor &constant = *checkpoint.tensors[index].floats;
  std::vector<float> values(static_cast<size_t>(llvm::product_of(constant.shape)));
  if (auto done = reader.readRows(constant, 0, constant.shape.front(), values); !done)
    return done;
  if (expected[index].isLogarithm)
    for (float &value : values)
      value = static_cast<float>(-std::exp(static_cast<double>(value)));
  return append(index, std::as_bytes(std::span(values)));
}

Result<void> GGUFExport::writeTensor(size_t index, llvm::ThreadPoolInterface &pool) {
  const CheckpointTensor &tensor = checkpoint.tensors[index];
  if (tensor.site)
    return readWeight(*tensor.site, reader, pool, [&](const auto &, std::span<uint8_t> bytes) {
      return append(index, std::as_bytes(bytes));
    });
  if (isF32(expected[index]))
    return writeFloats(index);
  if (isInOrder(expected[index]))
    return readFloats(checkpoint, tensor, reader, [&](std::span<const std::byte> bytes) {
      return file->write(expected[index].ggufName, bytes);
    });
  // Rows or columns change places: all of them are there.
  std::vector<std::byte> whole;
  auto keep = [&](std::span<const std::byte> bytes) -> Result<void> {
    whole.insert(whole.end(), bytes.begin(), bytes.end());
    return {};
  };
  if (auto done = readFloats(checkpoint, tensor, reader, keep); !done)
    return done;
  return append(index, whole);
}

Result<void> GGUFExport::write(const GGUFPaths &paths, llvm::ThreadPoolInterface &pool,
                               llvm::function_ref<void(int64_t)> progress) {
  GGUFMetadata metadata;
  if (auto done = formats::addModelConfig(metadata, config); !done)
    return done;
  metadata.add("general.name", std::string_view(reader.source().name()));
  metadata.add("general.quantization_version", kQuantizationVersion);
  if (auto done = addVocabulary(metadata, paths.vocabulary); !done)
    return done;
  if (auto done = findRopeDivisors(); !done)
    return done;
  const std::vector<GGUFWriter::Tensor> tensors = declarations();
  if (auto done = checkColumns(tensors); !done)
    return done;
  metadata.add("general.file_type", fileType(tensors));
  Result<GGUFWriter> writer = GGUFWriter::create(paths.file, metadata, tensors);
  if (!writer)
    return Unexpected(writer.error());
  file.emplace(std::move(*writer));
  for (size_t i = 0; i < expected.size(); ++i) {
    if (auto done = writeTensor(i, pool); !done)
      return done;
    progress(static_cast<int64_t>(i) + 1);
  }
  for (const auto &[name, divisors] : ropeDivisors)
    if (auto done = file->write(name, std::as_bytes(std::span(divisors))); !done)
      return done;
  return file->finish();
}

Result<void> easyquant::writeGGUF(const Checkpoint &checkpoint, const ConstantReader &reader,
                                  const GGUFPaths &paths, unsigned threads,
                                  llvm::function_ref<void(int64_t)> progress) {
  llvm::DefaultThreadPool pool(llvm::hardware_concurrency(threads));
  return GGUFExport(checkpoint, reader).write(paths, pool, progress);
}
