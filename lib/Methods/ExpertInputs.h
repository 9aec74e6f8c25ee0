//===- ExpertInputs.h - What experts read of calibration text ---*- C++ -*-===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// A linear of experts reads a row for each choice of a token, and statistics are those of each
// expert. A Hessian an expert is far more than memory holds. So the rows are kept, those of tokens
// once though several experts read them, and Hessians are made one at a time.
//
// An expert that few rows chose has statistics that say little: with fewer rows than columns a
// Hessian is singular, and errors would go wherever the text did not look. They are filled up:
//
//      S = (n S_own + (m - n) S_other) / m        of n < m rows
//
// S_other is of the rows of all experts where these read the same columns, those of tokens. What an
// expert made itself (the input of down_proj) has columns of its own: there S_other treats all
// columns alike, as ranges from weights alone do. An expert that no row chose has S_other.
//
// Private to lib/Methods.
//
//===----------------------------------------------------------------------===//

#ifndef EASYQUANT_LIB_METHODS_EXPERTINPUTS_H
#define EASYQUANT_LIB_METHODS_EXPERTINPUTS_H

#include "easyquant/Execution/SampleSum.h"
#include "easyquant/Methods/RoundedSites.h"
#include "easyquant/Numerics/Statistics.h"

namespace easyquant::methods {

using namespace execution;

/// The rows that a mean of squares of each column needs; a Hessian of K columns needs K.
inline constexpr int64_t kRowsOfMeans = 128;

/// The rows of the samples of this rank that the experts of one linear read.
class ExpertInputs {
public:
  ExpertInputs(lm::LinearOp experts, const CalibrationTokens &tokens);

  /// An activation of tokens, whose rows `keep` wants of each sample behind what is observed.
  mlir::Value tokenActivation() const { return source; }
  void keep(int64_t sample, numerics::ConstMatrix tokenRows);
  void keep(int64_t sample, const ObservedRows &seen);

  struct Hessian {
    std::vector<float> values; ///< K x K
    int64_t rows = 0;          ///< that chose the expert
  };
  /// The Hessian of an expert, over the samples of all ranks, filled up. Collective. Errors: those
  /// of Gram and Ranks.
  Result<Hessian> hessianOf(int64_t expert, const Ranks &ranks, unsigned threads);

private:
  struct Sample {
    std::vector<float> values;                ///< rows of tokens, or of choices
    std::vector<std::vector<int32_t>> rowsOf; ///< of each expert, in `values`
  };
  Result<numerics::Gram> gramOfAll(const Ranks &ranks, unsigned threads);

  const CalibrationTokens &tokens;
  mlir::Value source;
  int64_t experts, columns;
  bool areTokens;    ///< what is kept
  bool shareColumns; ///< do all experts?
  std::vector<Sample> samples;
  std::vector<float> ofAll; ///< the Hessian of all rows, when it has been asked for
};

/// Puts the parameters of the rows of one expert behind those of the experts before it.
void appendRows(numerics::QParams &all, const numerics::QParams &part, int64_t rows,
                const numerics::Scheme &scheme);
/// The same of their codes and parameters.
void appendRows(numerics::QuantizedMatrix &all, const numerics::QuantizedMatrix &part);

/// What becomes of experts that few rows chose.
enum class SparseOutcome {
  FilledUp, ///< statistics, by those of others
  Untrained ///< their weights, which are rounded to nearest
};

/// Says of which experts that is so: one remark for all sites of a pass, and an entry of
/// `equant.transforms` for each site.
class SparseExperts {
public:
  SparseExperts(llvm::StringRef method, SparseOutcome outcome) : method(method), outcome(outcome) {}
  /// Reads how many rows chose each expert from the file of a layer; fails with a diagnostic.
  mlir::LogicalResult add(const formats::ComputedConstants &work, llvm::StringRef file,
                          llvm::StringRef stamp, llvm::ArrayRef<PlannedSite> sites,
                          llvm::function_ref<int64_t(const PlannedSite &)> enough);
  void report(mlir::ModuleOp module) const;

private:
  struct Site {
    PlannedSite site;
    int64_t enough;
    std::vector<int64_t> experts; ///< with fewer rows
  };
  std::string reasonOf(const Site &site) const;

  llvm::StringRef method;
  SparseOutcome outcome;
  std::vector<Site> sparse;
};

} // namespace easyquant::methods

#endif // EASYQUANT_LIB_METHODS_EXPERTINPUTS_H
