//===- WeightEvaluation.cpp - Quantizing constants ------------------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "WeightEvaluation.h"

#include <algorithm>
#include <atomic>
#include <limits>
#include <optional>

using namespace easyquant;
using namespace easyquant::equant;
using numerics::ErrorSums;
using numerics::PanelLayout;
using numerics::QuantizedMatrix;

namespace {

/// Floats that a thread reads at a time: enough for ModelSource to let go of pages it has read.
constexpr int64_t kReadFloats = int64_t(1) << 18;

/// Rows first .. first + count - 1 of a weight, all of one part.
struct Fragment {
  size_t part = 0;
  int64_t rowInPart = 0, first = 0, count = 0;
};

/// The fragments of rows first .. end - 1, top to bottom.
std::vector<Fragment> fragmentsOf(const ConstantWeight &weight, int64_t first, int64_t end) {
  std::vector<Fragment> fragments;
  int64_t begin = 0;
  for (size_t part = 0; part < weight.parts.size(); ++part) {
    int64_t from = std::max(first, begin), to = std::min(end, begin + weight.parts[part].rows);
    if (from < to)
      fragments.push_back({part, from - begin, from, to - from});
    begin += weight.parts[part].rows;
  }
  return fragments;
}

/// One evaluation: chunks of panels, each computed by whichever thread comes first, each writing
/// its own place only.
class Evaluation {
public:
  Evaluation(const ConstantWeight &weight, const PanelLayout &layout, const ConstantReader &reader)
      : weight(weight), layout(layout), reader(reader),
        chunkPanels(std::max<int64_t>(
            1, kReadFloats / (numerics::kPanelRows * std::max<int64_t>(1, layout.columns)))),
        chunks((layout.panels() + chunkPanels - 1) / chunkPanels), failures(chunks),
        panelErrors(layout.panels()) {
    result.codes.resize(layout.codeBytes());
    result.scales.resize(layout.scaleCount());
    if (!layout.scheme.symmetric)
      result.zeroPoints.resize(layout.scaleCount() + layout.panels() % 2 * layout.panelScales());
    result.sums.resize(weight.needsSums ? layout.scaleCount() : 0);
  }

  Result<EvaluatedWeight> run(llvm::ThreadPoolInterface &pool);

private:
  void work();
  Result<void> evaluateChunk(int64_t chunk, std::vector<float> &rows);
  Result<void> evaluatePanel(int64_t panel, numerics::ConstMatrix rows);
  Result<void> quantizeFragment(const Fragment &fragment, numerics::ConstMatrix rows,
                                QuantizedMatrix &quantized) const;

  const ConstantWeight &weight;
  const PanelLayout &layout;
  const ConstantReader &reader;
  const int64_t chunkPanels, chunks;
  std::atomic<int64_t> next = 0;
  std::vector<std::optional<Error>> failures; ///< of each chunk
  /// Of each panel, in the order of its fragments.
  std::vector<std::vector<std::pair<size_t, ErrorSums>>> panelErrors;
  EvaluatedWeight result;
};

/// The rows of a fragment of what a method has computed for its part.
template <typename T>
Result<std::vector<T>> readComputed(const ConstantReader &reader, const ConstantTensor &tensor,
                                    formats::DType type, const Fragment &fragment, T least,
                                    T most) {
  std::vector<T> values(fragment.count * tensor.columns());
  if (auto done = reader.computed().readRows(tensor.place(type), fragment.rowInPart, fragment.count,
                                             values);
      !done)
    return Unexpected(done.error());
  for (size_t i = 0; i < values.size(); ++i)
    if (values[i] < least || values[i] > most)
      return makeError(ErrorCode::Corrupt,
                       "{}: tensor '{}': row {}, column {} is {}, expected {} to {}; remove the "
                       "file and compute it again",
                       (reader.computed().folder() / tensor.file).string(), tensor.global,
                       fragment.rowInPart + int64_t(i) / tensor.columns(),
                       int64_t(i) % tensor.columns(), values[i], least, most);
  return values;
}

} // namespace

/// Codes and scales of rows of one part, by the rule or as computed.
Result<void> Evaluation::quantizeFragment(const Fragment &fragment, numerics::ConstMatrix rows,
                                          QuantizedMatrix &quantized) const {
  const WeightPart &part = weight.parts[fragment.part];
  const numerics::CodeRange range = numerics::codeRange(layout.scheme);
  quantized = {layout.scheme, rows.rows, rows.columns, {}, {}};
  if (part.scale) {
    quantized.params.rows = rows.rows;
    quantized.params.groups = layout.groups();
    auto scales =
        readComputed<float>(reader, *part.scale, formats::DType::F32, fragment,
                            std::numeric_limits<float>::min(), std::numeric_limits<float>::max());
    if (!scales)
      return Unexpected(scales.error());
    quantized.params.scales = std::move(*scales);
  } else {
    auto params = numerics::chooseQParams(rows, layout.scheme, weight.rule);
    if (!params)
      return Unexpected(params.error());
    quantized.params = std::move(*params);
  }
  if (part.zeroPoint) {
    auto zeroPoints = readComputed<int32_t>(reader, *part.zeroPoint, formats::DType::I32, fragment,
                                            range.min, range.max);
    if (!zeroPoints)
      return Unexpected(zeroPoints.error());
    quantized.params.zeroPoints = std::move(*zeroPoints);
  }
  if (part.codes) {
    auto codes =
        readComputed<int8_t>(reader, *part.codes, formats::DType::I8, fragment,
                             static_cast<int8_t>(range.min), static_cast<int8_t>(range.max));
    if (!codes)
      return Unexpected(codes.error());
    quantized.codes = std::move(*codes);
    return {};
  }
  quantized.codes.resize(rows.rows * rows.columns);
  return numerics::quantize(rows, layout.scheme, quantized.params, quantized.codes);
}

Result<void> Evaluation::evaluatePanel(int64_t panel, numerics::ConstMatrix rows) {
  PanelLayout alone = layout;
  alone.rows = rows.rows;
  uint8_t *codes = result.codes.data() + panel * layout.panelBytes();
  float *scales = result.scales.data() + panel * layout.panelScales();
  int64_t first = panel * numerics::kPanelRows;
  std::vector<Fragment> fragments = fragmentsOf(weight, first, first + rows.rows);
  const WeightPart &only = weight.parts[fragments.front().part];
  if (fragments.size() == 1 && !only.scale && !only.codes && !weight.needsSums &&
      weight.rule.kind == numerics::ScaleRuleKind::AbsMax) {
    // Round to nearest in one pass over the rows.
    ErrorSums sums;
    if (auto done = numerics::quantizePanelAbsMax(alone, rows, 0, codes, scales, sums); !done)
      return done;
    panelErrors[panel].emplace_back(fragments.front().part, sums);
    return {};
  }

  QuantizedMatrix whole{layout.scheme, rows.rows, rows.columns, {}, {}};
  whole.params.rows = rows.rows;
  whole.params.groups = layout.groups();
  std::vector<float> back;
  for (const Fragment &fragment : fragments) {
    auto part = rows.middleRows(fragment.first - first, fragment.count);
    QuantizedMatrix quantized;
    if (auto done = quantizeFragment(fragment, part, quantized); !done)
      return makeError(done.error().code, "site '{}': {}", weight.parts[fragment.part].site,
                       done.error().message);
    back.resize(fragment.count * rows.columns);
    numerics::dequantize(quantized, {back.data(), fragment.count, rows.columns});
    ErrorSums sums;
    for (int64_t r = 0; r < fragment.count; ++r)
      sums.add(part.row(r), back.data() + r * rows.columns, rows.columns);
    panelErrors[panel].emplace_back(fragment.part, sums);
    auto append = [](auto &to, const auto &from) { to.insert(to.end(), from.begin(), from.end()); };
    append(whole.codes, quantized.codes);
    append(whole.params.scales, quantized.params.scales);
    append(whole.params.zeroPoints, quantized.params.zeroPoints);
  }
  numerics::packPanel(alone, 0, whole.codes.data(), codes);
  numerics::packPanelScales(alone, 0, whole.params, scales);
  if (!result.zeroPoints.empty())
    numerics::packPanelZeroPoints(alone, 0, whole.params,
                                  result.zeroPoints.data() + panel * layout.panelScales());
  if (!result.sums.empty())
    numerics::packPanelSums(alone, 0, whole.codes.data(), whole.params,
                            result.sums.data() + panel * layout.panelScales());
  return {};
}

Result<void> Evaluation::evaluateChunk(int64_t chunk, std::vector<float> &rows) {
  int64_t firstPanel = chunk * chunkPanels;
  int64_t endPanel = std::min(firstPanel + chunkPanels, layout.panels());
  int64_t firstRow = firstPanel * numerics::kPanelRows;
  int64_t endRow = std::min(endPanel * numerics::kPanelRows, layout.rows);
  int64_t columns = layout.columns;
  rows.resize((endRow - firstRow) * columns);
  for (const Fragment &fragment : fragmentsOf(weight, firstRow, endRow)) {
    std::span<float> place(rows.data() + (fragment.first - firstRow) * columns,
                           fragment.count * columns);
    const WeightPart &part = weight.parts[fragment.part];
    if (auto done = reader.readRows(part.weight, fragment.rowInPart, fragment.count, place); !done)
      return makeError(done.error().code, "site '{}': {}", part.site, done.error().message);
  }
  numerics::ConstMatrix matrix(rows.data(), endRow - firstRow, columns);
  for (int64_t panel = firstPanel; panel < endPanel; ++panel) {
    int64_t row = panel * numerics::kPanelRows - firstRow;
    if (auto done = evaluatePanel(panel, matrix.middleRows(row, layout.panelRows(panel))); !done)
      return done;
  }
  return {};
}

void Evaluation::work() {
  std::vector<float> rows;
  for (int64_t chunk; (chunk = next++) < chunks;)
    if (auto done = evaluateChunk(chunk, rows); !done)
      failures[chunk] = done.error();
}

Result<EvaluatedWeight> Evaluation::run(llvm::ThreadPoolInterface &pool) {
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
  for (const auto &errors : panelErrors)
    for (const auto &[part, sums] : errors)
      result.errors[part].add(sums);
  return std::move(result);
}

Result<PanelLayout> easyquant::equant::panelLayoutOf(const ConstantWeight &weight) {
  if (weight.layout.getRows() != numerics::kPanelRows || weight.layout.getDepth() != 4)
    return makeError(ErrorCode::Unsupported,
                     "panels of {} rows and depth {}: only {} rows of depth 4 are packed",
                     weight.layout.getRows(), weight.layout.getDepth(), numerics::kPanelRows);
  return numerics::panelLayout(weight.scheme.toNumerics(), weight.rows, weight.columns);
}

Result<void> easyquant::equant::checkTensors(const ConstantWeight &weight,
                                             const ConstantReader &reader) {
  for (const WeightPart &part : weight.parts) {
    Result<void> done = reader.check(part.weight);
    if (done && part.scale)
      done = reader.check(*part.scale);
    if (done && part.zeroPoint)
      done = reader.computed().check(part.zeroPoint->place(formats::DType::I32));
    if (done && part.codes)
      done = reader.computed().check(part.codes->place(formats::DType::I8));
    if (!done)
      return makeError(done.error().code, "site '{}': {}", part.site, done.error().message);
  }
  return {};
}

Result<EvaluatedWeight> easyquant::equant::evaluate(const ConstantWeight &weight,
                                                    const PanelLayout &layout,
                                                    const ConstantReader &reader,
                                                    llvm::ThreadPoolInterface &pool) {
  return Evaluation(weight, layout, reader).run(pool);
}
