//===- Tokens.cpp - The text that a model is calibrated on ----------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "easyquant/Execution/Tokens.h"

#include "easyquant/Execution/Ranks.h"
#include "easyquant/Formats/SealedFile.h"
#include "easyquant/Support/Checksum.h"

#include <algorithm>
#include <charconv>
#include <cstring>
#include <numeric>

using namespace easyquant;
using namespace easyquant::execution;

static constexpr int32_t kPadding = -1;

Result<CalibrationTokens> CalibrationTokens::read(const std::filesystem::path &path,
                                                  int64_t vocabularySize) {
  Result<formats::SafetensorsFile> file = formats::SafetensorsFile::open(path);
  if (!file)
    return Unexpected(file.error());
  const formats::SafetensorsTensor *tensor = file->find("tokens");
  if (!tensor || tensor->dtype != formats::DType::I32 || tensor->shape.size() != 2)
    return makeError(ErrorCode::Corrupt,
                     "{}: expected a tensor \"tokens\" of I32 [samples, length]; write the file "
                     "with easyquant calibrate",
                     path.string());
  CalibrationTokens tokens;
  auto field = [&](const char *name) {
    auto it = file->metadata().find(name);
    return it == file->metadata().end() ? std::string() : it->second;
  };
  auto number = [&](const char *name, int64_t &value) -> Result<void> {
    const std::string text = field(name);
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (error == std::errc() && end == text.data() + text.size())
      return {};
    return makeError(ErrorCode::Corrupt,
                     "{}: its metadata say \"{}\" for \"{}\", expected a number", path.string(),
                     text, name);
  };
  std::string bos = field("bos");
  if (bos != "0" && bos != "1")
    return makeError(ErrorCode::Corrupt, "{}: its metadata say \"{}\" for \"bos\", expected 0 or 1",
                     path.string(), bos);
  tokens.bos = bos == "1";
  tokens.text = field("text_hash");
  tokens.tokenizer = field("tokenizer_hash");
  if (auto read = number("seed", tokens.seed); !read)
    return Unexpected(read.error());
  std::span<const std::byte> bytes = file->data(*tensor);
  tokens.ids.resize(bytes.size() / sizeof(int32_t));
  if (!bytes.empty())
    std::memcpy(tokens.ids.data(), bytes.data(), bytes.size());
  tokens.stride = tensor->shape[1];
  if (tokens.ids.empty())
    return makeError(ErrorCode::Corrupt, "{}: holds no tokens ({} samples of {})", path.string(),
                     tensor->shape[0], tensor->shape[1]);
  tokens.asked = tensor->shape[0];
  if (!field("samples").empty())
    if (auto read = number("samples", tokens.asked); !read)
      return Unexpected(read.error());
  if (tokens.asked < 1 || tokens.asked > tensor->shape[0])
    return makeError(
        ErrorCode::Corrupt,
        "{}: its metadata say \"{}\" for \"samples\", expected 1 to {}, which are there",
        path.string(), tokens.asked, tensor->shape[0]);

  for (int64_t i = 0; i < tensor->shape[0]; ++i) {
    std::span<const int32_t> row = std::span(tokens.ids).subspan(i * tokens.stride, tokens.stride);
    auto end = std::find(row.begin(), row.end(), kPadding);
    for (auto it = row.begin(); it != row.end(); ++it)
      if (it < end ? *it < 0 || *it >= vocabularySize : *it != kPadding)
        return makeError(ErrorCode::Corrupt, "{}: sample {}, token {} is {}, expected {}",
                         path.string(), i, it - row.begin(), *it,
                         it < end ? fmt::format("0 to {} (the model's vocabulary), or -1 behind "
                                                "the end of a sequence",
                                                vocabularySize - 1)
                                  : "nothing but -1 behind the end of a sequence");
    int64_t length = end - row.begin();
    if (length <= tokens.skipped())
      return makeError(ErrorCode::Corrupt, "{}: sample {} has no token{}", path.string(), i,
                       tokens.bos ? " but the one that begins texts" : "");
    tokens.lengths.push_back(length);
    tokens.longest = std::max(tokens.longest, length);
  }
  return tokens;
}

Result<CalibrationTokens> CalibrationTokens::readOnAll(const Ranks &ranks,
                                                       const std::filesystem::path &path,
                                                       int64_t vocabularySize) {
  std::error_code ignored;
  if (auto shared = ranks.shareFile(path, std::filesystem::exists(path, ignored)); !shared)
    return Unexpected(shared.error());
  return read(path, vocabularySize);
}

Result<void> CalibrationTokens::write(const std::filesystem::path &path) const {
  const std::vector<int64_t> shape = {allSamples(), stride};
  const formats::ComputedTensor tensor = formats::ComputedTensor::integers("tokens", shape, ids);
  return formats::writeSealed(path, {&tensor, 1},
                              {{"bos", bos ? "1" : "0"},
                               {"seed", std::to_string(seed)},
                               {"samples", std::to_string(asked)},
                               {"text_hash", text},
                               {"tokenizer_hash", tokenizer}});
}

int64_t CalibrationTokens::samplesHolding(int64_t tokens) const {
  int64_t samples = 0;
  for (int64_t held = 0; held < tokens && samples < allSamples(); ++samples)
    held += lengths[samples];
  return samples;
}

void CalibrationTokens::keep(int64_t begin, int64_t count) {
  count = std::min(count, allSamples() - begin);
  assert(begin >= 0 && count > 0);
  lengths = std::vector(lengths.begin() + begin, lengths.begin() + begin + count);
  ids = std::vector(ids.begin() + begin * stride, ids.begin() + (begin + count) * stride);
  asked = count;
  longest = std::ranges::max(lengths);
}

void CalibrationTokens::split(int64_t length, int64_t most) {
  assert(length > skipped());
  const int64_t step = length - skipped(); // tokens of a piece that count
  std::vector<int32_t> pieces;
  std::vector<int64_t> sizes;
  for (int64_t turn = 0; turn * step < longest && std::ssize(sizes) < most; ++turn)
    for (int64_t i = 0; i < allSamples() && std::ssize(sizes) < most; ++i) {
      const std::span<const int32_t> all = sampleOfAll(i);
      const std::span<const int32_t> rest =
          all.subspan(std::min<int64_t>(skipped() + turn * step, std::ssize(all)));
      const int64_t count = std::min<int64_t>(step, std::ssize(rest));
      if (count < (turn == 0 ? 1 : (step + 1) / 2))
        continue;
      pieces.insert(pieces.end(), all.begin(), all.begin() + skipped());
      pieces.insert(pieces.end(), rest.begin(), rest.begin() + count);
      pieces.insert(pieces.end(), step - count, kPadding);
      sizes.push_back(skipped() + count);
    }
  ids = std::move(pieces);
  lengths = std::move(sizes);
  stride = length;
  asked = allSamples();
  longest = std::ranges::max(lengths);
}

/// Where share `i` of `shares` equal ones begins.
static int64_t beginOf(int64_t i, int64_t shares, int64_t samples) { return samples * i / shares; }

void CalibrationTokens::keepPart(int rank, int ranks) {
  first = beginOf(rank, ranks, allSamples());
  last = beginOf(rank + 1, ranks, allSamples());
}

int CalibrationTokens::shareOf(int64_t i, int shares) const {
  int share = 0;
  while (beginOf(share + 1, shares, allSamples()) <= i)
    ++share;
  return share;
}

int64_t CalibrationTokens::count() const {
  return std::accumulate(lengths.begin(), lengths.end(), int64_t(0));
}

formats::CalibrationStamp CalibrationTokens::stamp() const {
  formats::CalibrationStamp stamp;
  stamp.text = text;
  stamp.tokenizer = tokenizer;
  stamp.samples = allSamples();
  stamp.length = maxLength();
  stamp.seed = seed;
  stamp.bos = bos;
  return stamp;
}

std::string CalibrationTokens::hash() const {
  Checksum checksum;
  checksum.update(&stride, sizeof stride);
  checksum.update(ids.data(), ids.size() * sizeof(int32_t));
  return checksum.hex();
}
