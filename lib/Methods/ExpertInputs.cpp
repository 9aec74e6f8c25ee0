//===- ExpertInputs.cpp - What experts read of calibration text -----------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "ExpertInputs.h"

#include "easyquant/Dialect/Equant/Transforms/FoldScale.h"

using namespace mlir;
using namespace easyquant;
using namespace easyquant::methods;
using numerics::ConstMatrix;
using numerics::Gram;

/// A manifest names so many experts one by one, and has the number of more.
static constexpr size_t kNamedExperts = 16;

//===----------------------------------------------------------------------===//
// Rows
//===----------------------------------------------------------------------===//

ExpertInputs::ExpertInputs(lm::LinearOp linear, const CalibrationTokens &tokens)
    : tokens(tokens), experts(lm::expertCount(linear.getExperts())),
      columns(lm::columns(linear.getInput())), areTokens(gatheredTokens(linear)),
      shareColumns(readsTokens(linear)), samples(tokens.samples()) {
  source = areTokens ? gatheredTokens(linear).getInput()
                     : linear.getExperts().getDefiningOp<lm::RouteOp>().getLogits();
  for (Sample &sample : samples)
    sample.rowsOf.resize(experts);
}

void ExpertInputs::keep(int64_t sample, ConstMatrix tokenRows) {
  if (areTokens)
    samples[sample].values.assign(tokenRows.data,
                                  tokenRows.data + tokenRows.rows * tokenRows.columns);
}

void ExpertInputs::keep(int64_t sample, const ObservedRows &seen) {
  Sample &to = samples[sample];
  const int64_t before = std::ssize(to.values) / columns;
  for (int64_t expert = 0; expert < experts; ++expert)
    for (int32_t row = seen.offsets[expert]; row < seen.offsets[expert + 1]; ++row)
      to.rowsOf[expert].push_back(
          static_cast<int32_t>(areTokens ? seen.position + seen.order[row] : before + row));
  if (!areTokens)
    for (int64_t row = 0; row < seen.rows.rows; ++row)
      to.values.insert(to.values.end(), seen.rows.row(row), seen.rows.row(row) + columns);
}

Result<Gram> ExpertInputs::gramOfAll(const Ranks &ranks, unsigned threads) {
  SampleSum<Gram> sum(ranks, tokens, [this] { return Gram(columns); });
  for (auto [i, sample] : llvm::enumerate(samples)) {
    const ConstMatrix all(sample.values.data(), std::ssize(sample.values) / columns, columns);
    const int64_t skipped = areTokens ? std::min(tokens.skipped(), all.rows) : 0;
    if (auto done = sum.of(static_cast<int64_t>(i))
                        .update(all.middleRows(skipped, all.rows - skipped), threads);
        !done)
      return Unexpected(done.error());
  }
  return sum.finish();
}

Result<ExpertInputs::Hessian> ExpertInputs::hessianOf(int64_t expert, const Ranks &ranks,
                                                      unsigned threads) {
  SampleSum<Gram> sum(ranks, tokens, [this] { return Gram(columns); });
  std::vector<float> rows;
  for (auto [i, sample] : llvm::enumerate(samples)) {
    const std::vector<int32_t> &own = sample.rowsOf[expert];
    if (own.empty())
      continue;
    rows.clear();
    for (int32_t row : own)
      rows.insert(rows.end(), &sample.values[row * columns],
                  &sample.values[row * columns] + columns);
    if (auto done = sum.of(static_cast<int64_t>(i))
                        .update({rows.data(), std::ssize(own), columns}, threads);
        !done)
      return Unexpected(done.error());
  }
  Result<Gram> gram = sum.finish();
  if (!gram)
    return Unexpected(gram.error());
  Hessian hessian;
  hessian.rows = gram->tokens();
  hessian.values = std::move(*gram).takeHessian();
  if (hessian.rows >= columns)
    return hessian;
  if (shareColumns && ofAll.empty()) {
    Result<Gram> all = gramOfAll(ranks, threads);
    if (!all)
      return Unexpected(all.error());
    ofAll = std::move(*all).takeHessian();
  }
  numerics::fillUp(hessian.values, columns, hessian.rows, columns, ofAll);
  return hessian;
}

//===----------------------------------------------------------------------===//
// Results
//===----------------------------------------------------------------------===//

void methods::appendRows(numerics::QParams &all, const numerics::QParams &part, int64_t rows,
                         const numerics::Scheme &scheme) {
  all.rows += part.rows;
  all.groups = part.groups;
  llvm::append_range(all.scales, part.scales);
  llvm::append_range(all.zeroPoints, part.zeroPoints);
  llvm::append_range(all.minima, part.minima);
  if (scheme.outer)
    for (int64_t row = 0; row < rows; ++row)
      all.outer.push_back(part.outerOf(row));
}

void methods::appendRows(numerics::QuantizedMatrix &all, const numerics::QuantizedMatrix &part) {
  // Scales of f16 are scales of f32, too.
  if (part.scheme.scales == numerics::ScaleFormat::F32)
    all.scheme = part.scheme;
  all.rows += part.rows;
  llvm::append_range(all.codes, part.codes);
  appendRows(all.params, part.params, part.rows, all.scheme);
}

LogicalResult SparseExperts::add(const formats::ComputedConstants &work, StringRef file,
                                 StringRef stamp, ArrayRef<PlannedSite> sites,
                                 llvm::function_ref<int64_t(const PlannedSite &)> enough) {
  for (const PlannedSite &site : sites) {
    if (!site.offsets())
      continue;
    Result<std::vector<int32_t>> rows = readExpertRows(work, file, stamp, site);
    if (!rows)
      return emitError(site.loc()) << rows.error().message;
    Site found{site, enough(site), {}};
    for (auto [expert, count] : llvm::enumerate(*rows))
      if (count < found.enough)
        found.experts.push_back(static_cast<int64_t>(expert));
    if (!found.experts.empty())
      sparse.push_back(std::move(found));
  }
  return success();
}

std::string SparseExperts::reasonOf(const Site &site) const {
  if (outcome == SparseOutcome::Untrained)
    return "training of these experts: no row of the sequences that it takes chose them, and they "
           "are rounded to nearest";
  return fmt::format("statistics of these experts alone: fewer than {} rows of calibration text "
                     "chose them, and theirs are filled up {}",
                     site.enough,
                     readsTokens(site.site.linear()) ? "with those of the rows of all experts"
                                                     : "as if all columns were alike");
}

void SparseExperts::report(ModuleOp module) const {
  if (sparse.empty())
    return;
  Builder b(module.getContext());
  size_t all = 0;
  for (const Site &found : sparse) {
    const std::vector<int64_t> &experts = found.experts;
    all += experts.size();
    NamedAttrList entry;
    entry.set("method", b.getStringAttr(method));
    entry.set("sites", b.getStrArrayAttr({found.site.name()}));
    entry.set("expert_count", b.getI64IntegerAttr(static_cast<int64_t>(experts.size())));
    if (experts.size() <= kNamedExperts)
      entry.set("experts", b.getI64ArrayAttr(experts));
    entry.set("skipped", b.getStringAttr(reasonOf(found)));
    equant::recordTransform(module, std::move(entry));
  }
  const Site &first = sparse.front();
  std::string names;
  for (int64_t expert : ArrayRef(first.experts).take_front(kNamedExperts))
    names += (names.empty() ? "" : ", ") + std::to_string(expert);
  InFlightDiagnostic remark = emitRemark(module.getLoc());
  remark << method << ": " << first.experts.size() << " of "
         << lm::expertCount(first.site.offsets()) << " experts of site '" << first.site.name()
         << "' (" << names << (first.experts.size() > kNamedExperts ? ", ..." : "") << ")";
  if (sparse.size() > 1)
    remark << ", and " << all - first.experts.size() << " of " << sparse.size() - 1
           << " more sites,";
  if (outcome == SparseOutcome::Untrained) {
    remark << " were chosen by no row of the sequences that are trained on: they are rounded to "
              "nearest; more text gives them rows";
    return;
  }
  remark << " were chosen by fewer than " << first.enough
         << (sparse.size() > 1 ? " rows of calibration text or what theirs need"
                               : " rows of calibration text")
         << ": their statistics are filled up with what other experts read, or as if all columns "
            "were alike; more text gives them their own";
}
