//===- WeightEvaluation.cpp - Quantizing constants ------------------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "WeightEvaluation.h"

#include <algorithm>
#include <atomic>
#include <optional>

using namespace easyquant;
using namespace easyquant::equant;
using numerics::ErrorSums;
using numerics::PanelLayout;

namespace {

/// Floats that a thread reads at a time: enough for ModelSource to let go of pages it has read.
constexpr int64_t kChunkFloats = int64_t(1) << 18;

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
  Evaluation(const ConstantWeight &weight, const PanelLayout &layout,
             const formats::ModelSource &source)
      : weight(weight), layout(layout), source(source),
        chunkPanels(std::max<int64_t>(
            1, kChunkFloats / (numerics::kPanelRows * std::max<int64_t>(1, layout.columns)))),
        chunks((layout.panels() + chunkPanels - 1) / chunkPanels), failures(chunks),
        panelErrors(layout.panels()) {
    result.codes.resize(layout.codeBytes());
    result.scales.resize(layout.scaleCount());
  }

  Result<EvaluatedWeight> run(llvm::ThreadPoolInterface &pool);

private:
  void work();
  Result<void> evaluateChunk(int64_t chunk, std::vector<float> &rows);
  Result<void> evaluatePanel(int64_t panel, numerics::ConstMatrix rows);

  const ConstantWeight &weight;
  const PanelLayout &layout;
  const formats::ModelSource &source;
  const int64_t chunkPanels, chunks;
  std::atomic<int64_t> next = 0;
  std::vector<std::optional<Error>> failures; ///< of each chunk
  /// Of each panel, in the order of its fragments.
  std::vector<std::vector<std::pair<size_t, ErrorSums>>> panelErrors;
  EvaluatedWeight result;
};

} // namespace

Result<void> Evaluation::evaluatePanel(int64_t panel, numerics::ConstMatrix rows) {
  PanelLayout alone = layout;
  alone.rows = rows.rows;
  uint8_t *codes = result.codes.data() + panel * layout.panelBytes();
  float *scales = result.scales.data() + panel * layout.panelScales();
  int64_t first = panel * numerics::kPanelRows;
  std::vector<Fragment> fragments = fragmentsOf(weight, first, first + rows.rows);
  ErrorSums sums;
  if (auto done = numerics::quantizePanelAbsMax(alone, rows, 0, codes, scales, sums); !done)
    return done;
  if (fragments.size() == 1) {
    panelErrors[panel].emplace_back(fragments.front().part, sums);
    return {};
  }
  // Rows of several sites share the panel: once more, for the error of each.
  std::vector<uint8_t> unusedCodes(layout.panelBytes());
  std::vector<float> unusedScales(layout.panelScales());
  for (const Fragment &fragment : fragments) {
    sums = {};
    alone.rows = fragment.count;
    auto part = rows.middleRows(fragment.first - first, fragment.count);
    if (auto done = numerics::quantizePanelAbsMax(alone, part, 0, unusedCodes.data(),
                                                  unusedScales.data(), sums);
        !done)
      return done;
    panelErrors[panel].emplace_back(fragment.part, sums);
  }
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
    if (auto done = source.readRows(part.global, fragment.rowInPart, fragment.count, place); !done)
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

Result<EvaluatedWeight> easyquant::equant::evaluate(const ConstantWeight &weight,
                                                    const PanelLayout &layout,
                                                    const formats::ModelSource &source,
                                                    llvm::ThreadPoolInterface &pool) {
  return Evaluation(weight, layout, source).run(pool);
}
