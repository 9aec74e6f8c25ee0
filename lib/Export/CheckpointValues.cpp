//===- CheckpointValues.cpp - The bytes of a checkpoint -------------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "CheckpointValues.h"

#include "easyquant/Formats/Codecs/ConvertedCodes.h"
#include "easyquant/Formats/NarrowFloats.h"

using namespace easyquant;
using namespace easyquant::equant;

/// Floats that are in memory at a time.
static constexpr int64_t kPieceFloats = int64_t(1) << 20;

Result<void> easyquant::readFloats(const Checkpoint &checkpoint, const CheckpointTensor &tensor,
                                   const ConstantReader &reader, TakeBytes take) {
  const ConstantTensor &constant = *tensor.floats;
  const int64_t rows = constant.shape.front(), columns = constant.columns();
  const int64_t step = std::clamp<int64_t>(kPieceFloats / columns, 1, rows);
  const bool isHalf = checkpoint.floats == formats::DType::F16;
  std::vector<float> piece;
  std::vector<uint16_t> narrow;
  for (int64_t row = 0; row < rows; row += step) {
    piece.resize(std::min(step, rows - row) * columns);
    narrow.resize(piece.size());
    if (auto done = reader.readRows(constant, row, std::ssize(piece) / columns, piece); !done)
      return done;
    for (float &value : piece)
      value -= tensor.offset;
    std::transform(piece.begin(), piece.end(), narrow.begin(),
                   isHalf ? formats::toHalf : formats::toBFloat);
    // The largest numbers of f16 are 65504, and an infinity.
    auto infinite = std::find_if(narrow.begin(), narrow.end(), [&](uint16_t bits) {
      return (bits & 0x7fff) == (isHalf ? 0x7c00 : 0x7f80);
    });
    if (infinite != narrow.end())
      return makeError(ErrorCode::Unsupported,
                       "'{}': {} is beyond the range of {}, in which {} checkpoints have their "
                       "floats; with bf16 weights and --scale-type f32, compressed-tensors has "
                       "them in bf16",
                       tensor.name, piece[infinite - narrow.begin()], isHalf ? "f16" : "bf16",
                       checkpoint.format.name);
    if (auto done = take(std::as_bytes(std::span(narrow))); !done)
      return done;
  }
  return {};
}

Result<void> easyquant::readWeight(
    const StoredSite &site, const ConstantReader &reader, llvm::ThreadPoolInterface &pool,
    llvm::function_ref<Result<void>(const formats::CodecTensor &, std::span<uint8_t>)> take) {
  const formats::WeightCodec &codec = *site.stored.codec;
  const formats::ConvertingLayout converting(codec);
  const bool isSame = site.weight->scheme.toNumerics() == codec.scheme;
  const numerics::WeightLayout *layout =
      isSame ? static_cast<const numerics::WeightLayout *>(&codec) : &converting;
  Result<EvaluatedWeight> evaluated = evaluate(*site.weight, layout, reader, pool);
  if (!evaluated)
    return Unexpected(evaluated.error());
  for (const formats::CodecTensor &tensor : codec.tensors()) {
    Result<std::vector<uint8_t>> bytes = codec.take(tensor, evaluated->packed.front());
    if (!bytes)
      return makeError(bytes.error().code, "site '{}': {}", site.name(), bytes.error().message);
    if (auto done = take(tensor, *bytes); !done)
      return done;
  }
  return {};
}
