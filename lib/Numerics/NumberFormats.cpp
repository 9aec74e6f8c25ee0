//===- NumberFormats.cpp - What codes and scales are ----------------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "easyquant/Numerics/NumberFormats.h"

#include "Codec.h"

#include <bit>
#include <cmath>
#include <limits>
#include <map>
#include <memory>
#include <mutex>

namespace easyquant::numerics {

const char *toString(CodeFormat format) {
  if (const FloatFormat *floats = floatFormat(format))
    return floats->name;
  return format == CodeFormat::Table ? "table" : "integer";
}

const char *toString(ScaleFormat format) {
  static constexpr const char *names[] = {"f32", "f16", "bf16", "f8E4M3FN", "f8E8M0FNU", "ui6"};
  return names[static_cast<int>(format)];
}

//===- Codes --------------------------------------------------------------===//

template <typename Codec> static uint8_t encode(float x) {
  return static_cast<uint8_t>(Codec::encode(x));
}
template <typename Codec> static float decode(uint8_t bits) { return Codec::decode(bits); }
/// All bits but the sign are those of NaN.
static float decodeF8E4M3FN(uint8_t bits) {
  return (bits & 0x7f) == 0x7f ? std::numeric_limits<float>::quiet_NaN()
                               : F8E4M3FNCodec::decode(bits);
}

const FloatFormat *floatFormat(CodeFormat format) {
  static constexpr FloatFormat kF8E4M3FN = {
      "f8E4M3FN", 8, 3, 0x1p-6f, 448, encode<F8E4M3FNCodec>, decodeF8E4M3FN};
  static constexpr FloatFormat kF4E2M1FN = {"f4E2M1FN",           4, 1, 1, 6, encode<F4E2M1FNCodec>,
                                            decode<F4E2M1FNCodec>};
  return format == CodeFormat::F8E4M3FN   ? &kF8E4M3FN
         : format == CodeFormat::F4E2M1FN ? &kF4E2M1FN
                                          : nullptr;
}

float FloatFormat::largestStep() const {
  return std::exp2(static_cast<float>(std::ilogb(largest) - mantissaBits));
}

//===- Tables -------------------------------------------------------------===//

// bitsandbytes' create_normal_map (Dettmers et al., 2023, appendix E).
static constexpr float kNF4[] = {-1.0f,
                                 -0.6961928009986877f,
                                 -0.5250730514526367f,
                                 -0.39491748809814453f,
                                 -0.28444138169288635f,
                                 -0.18477343022823334f,
                                 -0.09105003625154495f,
                                 0.0f,
                                 0.07958029955625534f,
                                 0.16093020141124725f,
                                 0.24611230194568634f,
                                 0.33791524171829224f,
                                 0.44070982933044434f,
                                 0.5626170039176941f,
                                 0.7229568362236023f,
                                 1.0f};

/// See int8Unit.
static std::optional<float> int8UnitOf(std::span<const float> values) {
  const float largest = std::max(std::fabs(values.front()), std::fabs(values.back()));
  const int exponent = std::ilogb(largest) - 6;
  if (exponent < std::numeric_limits<float>::min_exponent)
    return std::nullopt;
  const float unit = std::ldexp(1.0f, exponent);
  const bool isInt8 = std::ranges::all_of(values, [&](float value) {
    const float steps = value / unit;
    return steps == std::nearbyint(steps) && std::fabs(steps) <= 127;
  });
  return isInt8 ? std::optional(unit) : std::nullopt;
}

Codebook::Codebook(std::vector<float> values) : table(std::move(values)), unit(int8UnitOf(table)) {}

Result<const Codebook *> Codebook::of(std::span<const float> values) {
  if (values.size() != 4 && values.size() != 8 && values.size() != 16)
    return makeError(ErrorCode::InvalidArgument, "table of {} values: expected 4, 8 or 16",
                     values.size());
  for (size_t i = 0; i < values.size(); ++i)
    if (!std::isfinite(values[i]) || (i > 0 && values[i] <= values[i - 1]))
      return makeError(ErrorCode::InvalidArgument,
                       "value {} of the table is {}: expected finite values, each larger than the "
                       "one before",
                       i, values[i]);
  static std::mutex mutex;
  static std::map<std::vector<float>, std::unique_ptr<Codebook>> known;
  std::lock_guard lock(mutex);
  std::vector<float> key(values.begin(), values.end());
  std::unique_ptr<Codebook> &entry = known[key];
  if (!entry)
    entry.reset(new Codebook(std::move(key)));
  return entry.get();
}

const Codebook *Codebook::nf4() {
  static const Codebook *table = *of(kNF4);
  return table;
}

const Codebook *Codebook::iq4nl() {
  static const Codebook *table = *of(kIQ4NL);
  return table;
}

template <size_t half> static const Codebook *symmetricTable(const double (&levels)[half]) {
  std::array<float, 2 * half> values;
  for (size_t i = 0; i < half; ++i) {
    values[half + i] = static_cast<float>(levels[i]);
    values[half - 1 - i] = -values[half + i];
  }
  return *Codebook::of(values);
}

const Codebook *Codebook::learned(int bits) {
  static const Codebook *tables[] = {
      symmetricTable({0.4528, 1.510}), symmetricTable({0.2451, 0.7560, 1.344, 2.152}),
      symmetricTable({0.1284, 0.3881, 0.6568, 0.9424, 1.256, 1.618, 2.069, 2.733})};
  return tables[bits - 2];
}

const Codebook *Codebook::learnedInt8(int bits) {
  std::vector<float> integers;
  for (float value : (*learned(bits)->inInt8())->values())
    integers.push_back(128 * value);
  return *of(integers);
}

std::span<const float> Codebook::values() const { return table; }

Result<const Codebook *> Codebook::inInt8() const {
  if (unit)
    return this;
  const double largest = std::max(std::fabs(table.front()), std::fabs(table.back()));
  std::vector<float> rounded;
  for (size_t i = 0; i < table.size(); ++i) {
    rounded.push_back(static_cast<float>(std::nearbyint(127 * (table[i] / largest)) / 128));
    if (i > 0 && rounded[i] == rounded[i - 1])
      return makeError(ErrorCode::InvalidArgument,
                       "values {} and {} of the table are both {} of 127 as int8: expected values "
                       "that are further apart; leave activations float (A16)",
                       table[i - 1], table[i], 128 * rounded[i]);
  }
  return of(rounded);
}

bool Codebook::hasZero() const { return std::ranges::find(table, 0.0f) != table.end(); }

int Codebook::bits() const { return std::countr_zero(table.size()); }

namespace {
/// Tables that have names, which are schemes' in IR and manifests.
struct NamedTable {
  std::string_view name;
  const Codebook *table;
  bool isToBeLearned = false;
};
} // namespace

static std::span<const NamedTable> namedTables() {
  static const NamedTable tables[] = {{"nf4", Codebook::nf4()},
                                      {"nf4_int8", *Codebook::nf4()->inInt8()},
                                      {"iq4_nl", Codebook::iq4nl()},
                                      {"learned2", Codebook::learned(2), true},
                                      {"learned3", Codebook::learned(3), true},
                                      {"learned4", Codebook::learned(4), true},
                                      {"learned2_int8", Codebook::learnedInt8(2), true},
                                      {"learned3_int8", Codebook::learnedInt8(3), true},
                                      {"learned4_int8", Codebook::learnedInt8(4), true}};
  return tables;
}

static const NamedTable *findTable(const Codebook *table) {
  auto found = std::ranges::find(namedTables(), table, &NamedTable::table);
  return found == namedTables().end() ? nullptr : &*found;
}

bool Codebook::isToBeLearned() const {
  const NamedTable *found = findTable(this);
  return found && found->isToBeLearned;
}

std::string_view Codebook::name() const {
  const NamedTable *found = findTable(this);
  return found ? found->name : "";
}

std::vector<std::string_view> Codebook::names() {
  std::vector<std::string_view> names;
  for (const NamedTable &named : namedTables())
    names.push_back(named.name);
  return names;
}

const Codebook *Codebook::named(std::string_view name) {
  auto found = std::ranges::find(namedTables(), name, &NamedTable::name);
  return found == namedTables().end() ? nullptr : found->table;
}

//===- Scales -------------------------------------------------------------===//

static float powerOfTwo(int32_t exponent) {
  return std::bit_cast<float>((exponent + 127) << 23); // -126 .. 127
}

float roundScale(float x, ScaleFormat format) {
  switch (format) {
  case ScaleFormat::F32:
    return x;
  case ScaleFormat::F16:
    return static_cast<float>(static_cast<_Float16>(x));
  case ScaleFormat::BF16: {
    uint32_t bits = std::bit_cast<uint32_t>(x);
    return std::bit_cast<float>((bits + 0x7fff + ((bits >> 16) & 1)) & 0xffff0000);
  }
  case ScaleFormat::F8E4M3FN:
    // A scale of 0 would make values of codes.
    return F8E4M3FNCodec::decode(std::max(F8E4M3FNCodec::encode(x), 1));
  case ScaleFormat::F8E8M0FNU:
    return powerOfTwo((std::bit_cast<int32_t>(x) >> 23) - 127);
  case ScaleFormat::UI6:
    return std::nearbyint(std::clamp(x * 64, 1.0f, 63.0f)) / 64;
  }
  return x;
}

float leastScale(ScaleFormat format) {
  return format == ScaleFormat::F16        ? 0x1p-14f
         : format == ScaleFormat::F8E4M3FN ? F8E4M3FNCodec::kStep
         : format == ScaleFormat::UI6      ? 0x1p-6f
                                           : 0x1p-126f;
}

bool isScale(float x, ScaleFormat format) { return std::isfinite(x) && x >= leastScale(format); }

uint32_t encodeScale(float scale, ScaleFormat format) {
  uint32_t bits = std::bit_cast<uint32_t>(scale);
  switch (format) {
  case ScaleFormat::F32:
    return bits;
  case ScaleFormat::F16:
    return std::bit_cast<uint16_t>(static_cast<_Float16>(scale));
  case ScaleFormat::BF16:
    return bits >> 16;
  case ScaleFormat::F8E4M3FN:
    return F8E4M3FNCodec::encode(scale);
  case ScaleFormat::F8E8M0FNU:
    return bits >> 23;
  case ScaleFormat::UI6:
    return static_cast<uint32_t>(scale * 64);
  }
  return 0;
}

float decodeScale(uint32_t bits, ScaleFormat format) {
  switch (format) {
  case ScaleFormat::F32:
    return std::bit_cast<float>(bits);
  case ScaleFormat::F16:
    return static_cast<float>(std::bit_cast<_Float16>(static_cast<uint16_t>(bits)));
  case ScaleFormat::BF16:
    return std::bit_cast<float>(bits << 16);
  case ScaleFormat::F8E4M3FN:
    return decodeF8E4M3FN(static_cast<uint8_t>(bits));
  case ScaleFormat::F8E8M0FNU:
    return bits == 0     ? 0x1p-127f
           : bits == 255 ? std::numeric_limits<float>::quiet_NaN()
                         : powerOfTwo(static_cast<int32_t>(bits) - 127);
  case ScaleFormat::UI6:
    return static_cast<float>(bits & 63) / 64;
  }
  return 0;
}

float superScale(float largest) {
  return std::max(roundScale(largest * 64 / 63, ScaleFormat::F16), leastScale(ScaleFormat::F16));
}

std::optional<float> superScaleOf(std::span<const float> scales) {
  const float largest = *std::ranges::max_element(scales);
  if (!(largest > 0) || !std::isfinite(largest))
    return std::nullopt;
  // Any f16 of which all of them are multiples gives the same scales back.
  for (int n = 63; n > 0; --n) {
    const float outer = largest / static_cast<float>(n) * 64;
    auto isProduct = [&](float scale) {
      return roundScale(scale / outer, ScaleFormat::UI6) * outer == scale;
    };
    if (isScale(outer, ScaleFormat::F16) && roundScale(outer, ScaleFormat::F16) == outer &&
        std::ranges::all_of(scales, isProduct))
      return outer;
  }
  return std::nullopt;
}

} // namespace easyquant::numerics
