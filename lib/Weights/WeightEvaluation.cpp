//===- WeightEvaluation.cpp - Quantizing constants ------------------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "easyquant/Weights/WeightEvaluation.h"

#include "easyquant/Numerics/Packing.h"

#include <algorithm>
#include <atomic>
#include <limits>
#include <optional>

using namespace easyquant;
using namespace easyquant::equant;
using numerics::ErrorSums;
using numerics::QuantizedMatrix;
using numerics::WeightLayout;

namespace {

/// Floats that a thread reads at a time: enough for ModelSource to let go of pages it has read.
constexpr int64_t kReadFloats = int64_t(1) << 18;

/// Rows of a weight that are of one part: `count` of its constant, from row `row` on.
struct RowRange {
  size_t part = 0;
  int64_t row = 0, count = 0;
};

/// Rows first .. end - 1 of the weight, top to bottom.
std::vector<RowRange> rangesOf(const ConstantWeight &weight, int64_t first, int64_t end) {
  std::vector<RowRange> ranges;
  int64_t begin = 0;
  for (size_t part = 0; part < weight.parts.size(); ++part) {
    const WeightPart &of = weight.parts[part];
    const int64_t own = of.rows / of.blocks, all = of.weight.shape.front() / of.blocks;
    const int64_t last = std::min(end - begin, of.rows);
    for (int64_t row = std::max<int64_t>(first - begin, 0); row < last;) {
      const int64_t count = std::min(own - row % own, last - row);
      ranges.push_back({part, of.firstRow + row / own * all + row % own, count});
      row += count;
    }
    begin += of.rows;
  }
  return ranges;
}

/// Rows of a chunk are a multiple of this, and so of the blocks of every layout.
constexpr int64_t kBlockRows = 64;

/// One evaluation: chunks of rows, each computed by whichever thread comes first, each writing its
/// own place only.
class Evaluation {
public:
  Evaluation(const ConstantWeight &weight, llvm::ArrayRef<const WeightLayout *> layouts,
             const ConstantReader &reader)
      : weight(weight), scheme(weight.scheme.toNumerics()), layouts(layouts), reader(reader),
        chunkRows(std::max<int64_t>(1, kReadFloats / (kBlockRows * weight.columns)) * kBlockRows),
        chunks((weight.rows + chunkRows - 1) / chunkRows), failures(chunks), chunkErrors(chunks) {
    for (const WeightLayout *layout : layouts)
      result.packed.push_back(layout->allocate());
  }

  Result<EvaluatedWeight> run(llvm::ThreadPoolInterface &pool);

private:
  Result<void> chooseOuter();
  void work();
  Result<void> evaluateChunk(int64_t chunk, std::vector<float> &values);
  Result<QuantizedMatrix> quantizeRange(const RowRange &range, numerics::ConstMatrix rows,
                                        ErrorSums &error) const;
  Result<void> chooseParams(const RowRange &range, numerics::ConstMatrix rows,
                            numerics::QParams &params) const;

  const ConstantWeight &weight;
  const numerics::Scheme scheme;
  const llvm::ArrayRef<const WeightLayout *> layouts;
  const ConstantReader &reader;
  const int64_t chunkRows, chunks;
  std::vector<float> outer; ///< the outer scale of each part whose scales the rule chooses
  std::atomic<int64_t> next = 0;
  std::vector<std::optional<Error>> failures; ///< of each chunk
  /// The errors of each chunk, in the order of its ranges of rows.
  std::vector<std::vector<std::pair<size_t, ErrorSums>>> chunkErrors;
  EvaluatedWeight result;
};

/// The rows of what a method has computed for their part.
template <typename T>
Result<void> readComputed(const ConstantReader &reader, const ConstantTensor &tensor,
                          const RowRange &range, std::vector<T> &values, T least, T most) {
  values.resize(range.count * tensor.columns());
  if (auto done = reader.readRows(tensor, range.row, range.count, std::span<T>(values)); !done)
    return done;
  for (size_t i = 0; i < values.size(); ++i)
    if (values[i] < least || values[i] > most)
      return makeError(ErrorCode::Corrupt,
                       "{}: tensor '{}': row {}, column {} is {}, expected {} to {}{}",
                       tensor.isComputed() ? (reader.computed().folder() / tensor.file).string()
                                           : reader.source().path().string(),
                       tensor.global, tensor.first[0] + range.row + int64_t(i) / tensor.columns(),
                       tensor.first[1] + int64_t(i) % tensor.columns(), values[i], least, most,
                       tensor.isComputed() ? "; remove the file and compute it again" : "");
  return {};
}

/// Keeps `count` values from `first` on of each of `rows` rows of `width` values.
template <typename T>
void cutColumns(std::vector<T> &values, int64_t rows, int64_t width, int64_t first, int64_t count) {
  for (int64_t r = 0; r < rows; ++r)
    std::copy_n(values.data() + r * width + first, count, values.data() + r * count);
  values.resize(rows * count);
}

/// The columns of a part, which are whole groups.
void cutColumns(QuantizedMatrix &matrix, const WeightPart &part) {
  numerics::QParams &params = matrix.params;
  const int64_t group = matrix.scheme.groupSize, groups = params.groups;
  const int64_t first = group ? part.firstColumn / group : 0;
  params.groups = numerics::groupCount(part.columns, group);
  cutColumns(matrix.codes, matrix.rows, matrix.columns, part.firstColumn, part.columns);
  cutColumns(params.scales, params.rows, groups, first, params.groups);
  if (!params.zeroPoints.empty())
    cutColumns(params.zeroPoints, params.rows, groups, first, params.groups);
  if (!params.minima.empty())
    cutColumns(params.minima, params.rows, groups, first, params.groups);
  matrix.columns = part.columns;
}

} // namespace

/// Scales, and zero points or minima, of rows of one part, by the rule or as computed.
Result<void> Evaluation::chooseParams(const RowRange &range, numerics::ConstMatrix rows,
                                      numerics::QParams &params) const {
  const WeightPart &part = weight.parts[range.part];
  if (!part.scale) {
    auto chosen =
        numerics::chooseQParams(rows, scheme, weight.rule, scheme.outer ? outer[range.part] : 1);
    if (!chosen)
      return Unexpected(chosen.error());
    params = std::move(*chosen);
    return {};
  }
  params.rows = rows.rows;
  params.groups = numerics::groupCount(rows.columns, scheme.groupSize);
  // Scales that a file has may be negative, or 0.
  using Limits = std::numeric_limits<float>;
  auto readScales = [&](const ConstantTensor &tensor, std::vector<float> &scales) {
    return readComputed(reader, tensor, range, scales,
                        tensor.isStored || scheme.hasSignedScales() ? Limits::lowest()
                                                                    : Limits::min(),
                        Limits::max());
  };
  if (auto done = readScales(*part.scale, params.scales); !done)
    return done;
  if (part.outer)
    if (auto done = readScales(*part.outer, params.outer); !done)
      return done;
  if (part.minimum)
    if (auto done = readComputed(reader, *part.minimum, range, params.minima, Limits::lowest(),
                                 Limits::max());
        !done)
      return done;
  // Files have the integers of super-blocks.
  if (scheme.superBlocks)
    return numerics::checkScales(params, scheme);
  if (!part.zeroPoint)
    return {};
  const numerics::CodeRange codes = numerics::codeRange(scheme);
  return readComputed(reader, *part.zeroPoint, range, params.zeroPoints, codes.min, codes.max);
}

/// Rows of one part, by the rule or as computed.
Result<QuantizedMatrix> Evaluation::quantizeRange(const RowRange &range, numerics::ConstMatrix rows,
                                                  ErrorSums &error) const {
  const WeightPart &part = weight.parts[range.part];
  if (!part.scale && !part.codes && part.hasAllColumns() &&
      weight.rule.kind == numerics::ScaleRuleKind::AbsMax && numerics::canQuantizeAbsMax(scheme))
    return numerics::quantizeAbsMax(rows, scheme, range.row, error);
  QuantizedMatrix quantized{scheme, rows.rows, rows.columns, {}, {}};
  if (auto done = chooseParams(range, rows, quantized.params); !done)
    return Unexpected(done.error());
  if (part.codes) {
    const numerics::CodeRange limits = numerics::codeRange(scheme);
    if (auto done = readComputed(reader, *part.codes, range, quantized.codes,
                                 static_cast<int8_t>(limits.min), static_cast<int8_t>(limits.max));
        !done)
      return Unexpected(done.error());
  } else {
    quantized.codes.resize(rows.rows * rows.columns);
    if (auto done = numerics::quantize(rows, scheme, quantized.params, quantized.codes); !done)
      return Unexpected(done.error());
  }
  if (!part.hasAllColumns())
    cutColumns(quantized, part);
  if (!part.hasFloats)
    return quantized;
  std::vector<float> back(rows.rows * part.columns);
  numerics::dequantize(quantized, {back.data(), rows.rows, part.columns});
  for (int64_t r = 0; r < rows.rows; ++r)
    error.add(rows.row(r) + part.firstColumn, back.data() + r * part.columns, part.columns);
  return quantized;
}

/// Puts the rows of `from` below those of `to`.
static void append(QuantizedMatrix &to, QuantizedMatrix from) {
  // Parts have outer scales of their own.
  if (from.params.outer.size() == 1)
    from.params.outer.resize(from.rows, from.params.outer.front());
  if (to.rows == 0) {
    to = std::move(from);
    return;
  }
  auto join = [](auto &a, const auto &b) { a.insert(a.end(), b.begin(), b.end()); };
  to.rows += from.rows;
  to.params.rows += from.params.rows;
  join(to.codes, from.codes);
  join(to.params.scales, from.params.scales);
  join(to.params.zeroPoints, from.params.zeroPoints);
  join(to.params.minima, from.params.minima);
  join(to.params.outer, from.params.outer);
}

Result<void> Evaluation::evaluateChunk(int64_t chunk, std::vector<float> &values) {
  const int64_t firstRow = chunk * chunkRows;
  const int64_t endRow = std::min(firstRow + chunkRows, weight.rows);
  QuantizedMatrix block;
  for (const RowRange &range : rangesOf(weight, firstRow, endRow)) {
    const WeightPart &part = weight.parts[range.part];
    const int64_t columns = part.weight.columns();
    auto named = [&](const Error &error) {
      return makeError(error.code, "site '{}': {}", part.site, error.message);
    };
    values.resize(range.count * columns);
    if (part.hasFloats)
      if (auto done =
              reader.readRows(part.weight, range.row, range.count, std::span<float>(values));
          !done)
        return named(done.error());
    ErrorSums error;
    auto quantized =
        quantizeRange(range, numerics::ConstMatrix(values.data(), range.count, columns), error);
    if (!quantized)
      return named(quantized.error());
    chunkErrors[chunk].emplace_back(range.part, error);
    append(block, std::move(*quantized));
  }
  for (auto [layout, packed] : llvm::zip_equal(layouts, result.packed))
    layout->pack(firstRow, block, packed);
  return {};
}

/// Outer scales are of whole tensors, so that these are read before anything is packed.
Result<void> Evaluation::chooseOuter() {
  std::vector<float> values;
  for (const WeightPart &part : weight.parts) {
    const int64_t rows = part.weight.shape.front(), columns = part.weight.columns();
    const int64_t step = std::clamp<int64_t>(kReadFloats / columns, 1, rows);
    float absMax = 0;
    for (int64_t row = 0; row < rows && !part.scale; row += step) {
      const int64_t count = std::min(step, rows - row);
      values.resize(count * columns);
      if (auto done = reader.readRows(part.weight, row, count, std::span<float>(values)); !done)
        return makeError(done.error().code, "site '{}': {}", part.site, done.error().message);
      absMax = std::max(absMax, numerics::absMaxOf({values.data(), count, columns}));
    }
    outer.push_back(numerics::outerScale(absMax, scheme));
  }
  return {};
}

void Evaluation::work() {
  std::vector<float> values;
  for (int64_t chunk; (chunk = next++) < chunks;)
    if (auto done = evaluateChunk(chunk, values); !done)
      failures[chunk] = done.error();
}

Result<EvaluatedWeight> Evaluation::run(llvm::ThreadPoolInterface &pool) {
  if (scheme.outer)
    if (auto done = chooseOuter(); !done)
      return Unexpected(done.error());
  int64_t workers = std::min<int64_t>(pool.getMaxConcurrency(), chunks);
  for (int64_t i = 1; i < workers; ++i)
    pool.async([this] { work(); });
  work();
  pool.wait();
  // The first failure in the order of rows, not of time.
  for (const std::optional<Error> &failure : failures)
    if (failure)
      return Unexpected(*failure);
  result.errors.resize(weight.parts.size());
  for (const auto &errors : chunkErrors)
    for (const auto &[part, sums] : errors)
      result.errors[part].add(sums);
  return std::move(result);
}

Result<void> easyquant::equant::checkTensors(const ConstantWeight &weight,
                                             const ConstantReader &reader) {
  for (const WeightPart &part : weight.parts) {
    Result<void> done;
    if (part.hasFloats)
      done = reader.check(part.weight);
    if (done && part.scale)
      done = reader.check(*part.scale);
    if (done && part.zeroPoint)
      done = reader.check(*part.zeroPoint, formats::DType::I32);
    if (done && part.minimum)
      done = reader.check(*part.minimum);
    if (done && part.outer)
      done = reader.check(*part.outer);
    if (done && part.codes)
      done = reader.check(*part.codes, formats::DType::I8);
    if (!done)
      return makeError(done.error().code, "site '{}': {}", part.site, done.error().message);
  }
  return {};
}

Result<EvaluatedWeight> easyquant::equant::evaluate(const ConstantWeight &weight,
                                                    llvm::ArrayRef<const WeightLayout *> layouts,
                                                    const ConstantReader &reader,
                                                    llvm::ThreadPoolInterface &pool) {
  return Evaluation(weight, layouts, reader).run(pool);
}
