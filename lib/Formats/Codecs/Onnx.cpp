//===- Onnx.cpp - Weights as ONNX has them --------------------------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The constants of a DequantizeLinear, in f32, whatever scales were rounded to:
//
//   weight_quantized    INT8, INT4, INT2 [K, N], or UINT8, FLOAT8E4M3FN [N, K] (OnnxWeight)
//   weight_scale        FLOAT [G, N], or [N] without groups
//   weight_zero_point   as codes, of asymmetric schemes and UINT8; its shape is that of scales
//
// Codes of 3 bits are INT4, those of 5 and 6 INT8 or UINT8.
//
//===----------------------------------------------------------------------===//

#include "easyquant/Formats/Codecs/OnnxWeight.h"

#include "CheckpointFormats.h"

#include <algorithm>

using namespace easyquant;
using namespace easyquant::formats;
using numerics::CodeFormat;
using numerics::Granularity;
using numerics::QuantizedMatrix;
using numerics::Scheme;
using numerics::WeightTensor;

static constexpr const char *kOnnx = "onnx";

//===----------------------------------------------------------------------===//
// How a weight lies
//===----------------------------------------------------------------------===//

OnnxWeight::OnnxWeight(const Scheme &scheme, int64_t rows, int64_t columns)
    : blockSize(scheme.groupSize) {
  if (scheme.codes == CodeFormat::F8E4M3FN)
    type = OnnxType::Float8E4M3FN;
  else if (scheme.bits <= 4)
    type = scheme.bits == 2 ? OnnxType::Int2 : OnnxType::Int4;
  isRows = bitsOf(type) == 8 && blockSize == 0;
  codes = isRows ? std::vector{rows, columns} : std::vector{columns, rows};
  scales =
      blockSize ? std::vector{numerics::groupCount(columns, blockSize), rows} : std::vector{rows};
  if (isRows && type == OnnxType::Int8)
    type = OnnxType::UInt8;
  axis = isRows || blockSize ? 0 : 1;
}

OnnxType formats::onnxInputType(const Scheme &input) {
  if (!input.isInteger())
    return OnnxType::Float8E4M3FN;
  // Zero points of scales that are computed would have to be, too.
  return input.dynamic ? OnnxType::Int8 : OnnxType::UInt8;
}

namespace {

class OnnxCodec final : public WeightCodec {
public:
  OnnxCodec(const Scheme &scheme, int64_t rows, int64_t columns)
      : WeightCodec(scheme, rows, columns), form(scheme, rows, columns) {}

  std::vector<CodecTensor> tensors() const override;
  /// Where a byte has codes of several rows, these are of one block, since blocks are packed apart.
  int64_t blockRows() const override {
    return rows % perByte() == 0 ? WeightCodec::blockRows() : rows;
  }
  void pack(int64_t firstRow, const QuantizedMatrix &block,
            numerics::PackedWeight &out) const override;

protected:
  void unpackRows(int64_t firstRow, const StoredParts &stored,
                  QuantizedMatrix &rows) const override;

private:
  int bits() const { return bitsOf(form.type); }
  int64_t perByte() const { return 8 / bits(); }
  /// Integers are two's complement, or offset. Codes of floats count from the lowest on, and are
  /// their bits.
  uint32_t bitsOfCode(int32_t code) const {
    const uint32_t field =
        scheme.isInteger() ? static_cast<uint32_t>(code + offsetOf(form.type)) : fieldOf(code);
    return field & ((1u << bits()) - 1);
  }
  int32_t codeOfBits(uint32_t field) const {
    if (!scheme.isInteger())
      return codeOf(field);
    if (form.type == OnnxType::UInt8)
      return static_cast<int32_t>(field) - offsetOf(form.type);
    return static_cast<int32_t>(field << (32 - bits())) >> (32 - bits());
  }
  void put(std::vector<uint8_t> &bytes, int64_t i, int32_t code) const {
    bytes[i / perByte()] |= static_cast<uint8_t>(bitsOfCode(code) << (i % perByte() * bits()));
  }
  int32_t get(const uint8_t *bytes, int64_t i) const {
    return codeOfBits(bytes[i / perByte()] >> (i % perByte() * bits()) & ((1u << bits()) - 1));
  }
  /// Where things are, counted in elements.
  int64_t codeAt(int64_t n, int64_t k) const {
    return form.isRows ? n * columns + k : k * rows + n;
  }
  int64_t paramAt(int64_t n, int64_t g) const { return g * rows + n; }

  const OnnxWeight form;
};

} // namespace

std::vector<CodecTensor> OnnxCodec::tensors() const {
  auto packed = [&](int64_t count) { return std::vector{(count + perByte() - 1) / perByte()}; };
  std::vector<CodecTensor> all = {
      {"weight_quantized", DType::U8, packed(rows * columns), WeightTensor::Codes},
      {"weight_scale", DType::F32, form.scales, WeightTensor::Scales}};
  if (!scheme.symmetric)
    all.push_back(
        {"weight_zero_point", DType::U8, packed(rows * groups()), WeightTensor::ZeroPoints});
  else if (form.type == OnnxType::UInt8)
    all.push_back({"weight_zero_point",
                   DType::U8,
                   {rows},
                   {},
                   std::vector<uint8_t>(rows, offsetOf(form.type))});
  return all;
}

void OnnxCodec::pack(int64_t firstRow, const QuantizedMatrix &block,
                     numerics::PackedWeight &out) const {
  for (int64_t r = 0; r < block.rows; ++r) {
    const int64_t n = firstRow + r;
    for (int64_t k = 0; k < columns; ++k)
      put(out[WeightTensor::Codes], codeAt(n, k), block.codes[r * columns + k]);
    for (int64_t g = 0; g < groups(); ++g) {
      const int64_t index = paramIndex(block.params, r, g), at = paramAt(n, g);
      storeScale(out[WeightTensor::Scales].data(), at, block.params.scales[index],
                 numerics::ScaleFormat::F32);
      if (!scheme.symmetric)
        put(out[WeightTensor::ZeroPoints], at, zeroPointOf(scheme, block.params, index));
    }
  }
}

void OnnxCodec::unpackRows(int64_t firstRow, const StoredParts &stored,
                           QuantizedMatrix &block) const {
  for (int64_t r = 0; r < block.rows; ++r) {
    const int64_t n = firstRow + r;
    for (int64_t k = 0; k < columns; ++k)
      block.codes[r * columns + k] =
          static_cast<int8_t>(get(stored[WeightTensor::Codes], codeAt(n, k)));
    for (int64_t g = 0; g < groups(); ++g) {
      const int64_t at = paramAt(n, g);
      block.params.scales[r * groups() + g] =
          numerics::loadScale(stored[WeightTensor::Scales], at, numerics::ScaleFormat::F32);
      if (!scheme.symmetric)
        block.params.zeroPoints[r * groups() + g] = get(stored[WeightTensor::ZeroPoints], at);
    }
  }
}

/// The scheme as it is stored: f32 scales with none above them.
static Scheme withProductsOfScales(Scheme scheme) {
  scheme.scales = numerics::ScaleFormat::F32;
  scheme.outer = false;
  return scheme;
}

Result<std::unique_ptr<WeightCodec>> formats::onnxCodec(const Scheme &scheme, int64_t rows,
                                                        int64_t columns) {
  if (auto ok = checkStoredWeight(kOnnx, scheme, rows, columns); !ok)
    return Unexpected(ok.error());
  if (scheme.isInteger() || (scheme.codes == CodeFormat::F8E4M3FN && scheme.groupSize == 0))
    return std::make_unique<OnnxCodec>(withProductsOfScales(scheme), rows, columns);
  return makeError(ErrorCode::Unsupported,
                   "{} holds integers, and FP8 with a scale a row, found {}; take an integer "
                   "scheme: ONNX Runtime has no kernels for FP4, nor ONNX tables of values",
                   kOnnx, numerics::toString(scheme));
}

//===----------------------------------------------------------------------===//
// The format
//===----------------------------------------------------------------------===//

namespace {

class OnnxFormat final : public CheckpointFormat {
public:
  OnnxFormat() : CheckpointFormat(kOnnx, /*isHalf=*/false) {}

  Result<std::unique_ptr<WeightCodec>> codecFor(const QuantizedSite &site) const override {
    if (site.input)
      if (auto ok = checkInput(*site.input, site.columns); !ok)
        return Unexpected(ok.error());
    return onnxCodec(site.weight, site.rows, site.columns);
  }
  bool holdsHead() const override { return true; }
  bool isGraph() const override { return true; }

private:
  /// Activations that QuantizeLinear makes.
  static Result<void> checkInput(const Scheme &input, int64_t columns) {
    auto fail = [&](const char *what) {
      return makeError(ErrorCode::Unsupported,
                       "{} holds activations in int8 or FP8 with a static scale, or one a token, "
                       "found {}; take {}",
                       kOnnx, numerics::toString(input), what);
    };
    if (input.sinks)
      return fail("--sinks none");
    if (!input.isInteger() && input.codes != CodeFormat::F8E4M3FN)
      return fail("--activations float, or another scheme");
    if (input.dynamic && !input.symmetric)
      return fail("activations without zero points");
    if (input.groupSize != 0 && columns % input.groupSize != 0)
      return fail("groups that divide the columns, or none");
    return {};
  }
};

} // namespace

const CheckpointFormat *formats::onnxFormat() {
  static const OnnxFormat format;
  return &format;
}

//===----------------------------------------------------------------------===//
// Versions of operators
//===----------------------------------------------------------------------===//

int64_t formats::leastOpset(const QuantizedSite &site) {
  const OnnxWeight form(site.weight, site.rows, site.columns);
  if (form.type == OnnxType::Int2)
    return 25;
  if (form.type == OnnxType::Int4 || form.blockSize != 0 || (site.input && site.input->dynamic))
    return 21; // of scales that are computed, zero points have no shape before output_dtype
  const bool isFP8 =
      form.type == OnnxType::Float8E4M3FN || (site.input && !site.input->isInteger());
  return isFP8 ? 19 : kFirstOpset;
}

Result<void> formats::checkOpset(int64_t opset) {
  if (opset >= kFirstOpset && opset <= kLastOpset)
    return {};
  return makeError(ErrorCode::InvalidArgument, "opset {}: expected one of {} to {}", opset,
                   kFirstOpset, kLastOpset);
}

Result<void> formats::checkOpset(std::optional<int64_t> opset, const QuantizedSite &site) {
  const int64_t least = leastOpset(site);
  if (!opset || *opset >= least)
    return {};
  return makeError(
      ErrorCode::Unsupported,
      "opset {} has no operators for weights as {}{}; take --opset {}, or leave it out", *opset,
      numerics::toString(site.weight),
      site.input ? " beside activations as " + numerics::toString(*site.input) : "", least);
}
