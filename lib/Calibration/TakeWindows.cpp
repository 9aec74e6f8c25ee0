//===- TakeWindows.cpp - So much text that every expert sees some ---------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "WalkStamp.h"

#include "easyquant/Calibration/Passes.h"
#include "easyquant/Dialect/Equant/Transforms/FoldScale.h"
#include "easyquant/Execution/ExpertRows.h"
#include "easyquant/Execution/ModelConstants.h"
#include "easyquant/Execution/SubgraphPass.h"
#include "easyquant/Formats/SealedFile.h"
#include "easyquant/Support/ProgressAction.h"
#include "easyquant/Weights/ConstantTensors.h"

#include <cstring>

namespace easyquant::calibration {
#define GEN_PASS_DEF_TAKEWINDOWS
#include "easyquant/Calibration/Passes.h.inc"
} // namespace easyquant::calibration

using namespace mlir;
using namespace easyquant;
using namespace easyquant::calibration;
namespace fs = std::filesystem;

namespace {

/// An entry names so many experts one by one, and has the number of more.
constexpr size_t kNamedExperts = 16;

/// What is known of a mixture of the model.
struct Watched {
  SmallVector<std::string> sites;
  int64_t experts;
  std::vector<int32_t> rows; ///< that chose each expert: samples x experts

  std::string tensor() const { return sites.front() + "/expert_rows"; }
  /// The experts that the first `samples` samples gave fewer than `wanted` rows.
  std::vector<int64_t> lacking(int64_t samples, int64_t wanted) const {
    std::vector<int64_t> found;
    for (int64_t expert = 0; expert < experts; ++expert) {
      int64_t seen = 0;
      for (int64_t i = 0; i < samples; ++i)
        seen += rows[i * experts + expert];
      if (seen < wanted)
        found.push_back(expert);
    }
    return found;
  }
};

struct TakeWindows : SubgraphPass<calibration::impl::TakeWindowsBase<TakeWindows>> {
  using SubgraphPass::SubgraphPass;
  LogicalResult run() override;

private:
  LogicalResult count(const CalibrationTokens &tokens, int64_t turn, const std::string &work,
                      std::vector<Watched> &mixtures);
  LogicalResult runTurn(LayerRunner &runner, Journal &journal, int64_t steps);
  LogicalResult read(const fs::path &path, int64_t samples, std::vector<Watched> &mixtures);
  void report(const CalibrationTokens &tokens, int64_t asked, ArrayRef<Watched> mixtures);
  LogicalResult fail(const Error &error) {
    return emitError(getOperation().getLoc()) << error.message;
  }
};

} // namespace

static std::vector<Watched> mixturesIn(ModuleOp module) {
  std::vector<Watched> found;
  for (auto function : module.getOps<func::FuncOp>())
    for (Mixture &mixture : mixturesOf(function)) {
      Watched &watched = found.emplace_back();
      watched.experts = lm::expertCount(mixture.front().getExperts());
      for (lm::LinearOp linear : mixture)
        watched.sites.push_back(linear.getSite().str());
    }
  return found;
}

/// The rows that chose the experts of a layer, of the samples of all ranks. Collective.
static Result<std::vector<FoundTensor>> gatherCounts(const Ranks &ranks, func::FuncOp layer,
                                                     ExpertCounts counts) {
  std::vector<FoundTensor> tensors;
  SmallVector<Mixture> mixtures = mixturesOf(layer);
  for (auto [mixture, own] : llvm::zip_equal(mixtures, counts)) {
    Result<std::vector<Bytes>> all = ranks.gather(bytesOf(own));
    if (!all)
      return Unexpected(all.error());
    std::vector<int32_t> rows;
    for (const Bytes &part : *all) {
      std::vector<int32_t> theirs;
      ByteReader reader(part);
      reader(theirs);
      llvm::append_range(rows, theirs);
    }
    const int64_t experts = lm::expertCount(mixture.front().getExperts());
    auto bytes = std::as_bytes(std::span(rows));
    tensors.push_back({{mixture.front().getSite().str() + "/expert_rows"},
                       formats::DType::I32,
                       {std::ssize(rows) / experts, experts},
                       {bytes.begin(), bytes.end()}});
  }
  return tensors;
}

/// Takes the samples of a turn through the layers, as far as there are experts.
LogicalResult TakeWindows::runTurn(LayerRunner &runner, Journal &journal, int64_t steps) {
  const int64_t samples = runner.tokens().samples(), total = steps * samples;
  int64_t done = journal.next() * samples;
  ProgressAction::report(&getContext(), "calibrate", done, total);
  FailureOr<HiddenStates> states = journal.next() == 0 ? runner.embed() : runner.allocate();
  if (failed(states))
    return failure();
  if (journal.next() != 0)
    if (auto read = journal.readStates(*states); !read)
      return fail(read.error());
  runner.onSample = [&] {
    ProgressAction::report(&getContext(), "calibrate", std::min(++done, total - 1), total);
  };
  for (int64_t step = journal.next(); step < steps; ++step) {
    func::FuncOp layer = runner.layers()[step];
    FailureOr<ExpertCounts> counts = runCounting(runner, layer, *states);
    if (failed(counts))
      return failure();
    auto found = gatherCounts(Ranks::of(&getContext()), layer, std::move(*counts));
    if (!found)
      return fail(found.error());
    if (auto kept = journal.record(step, *found, *states); !kept)
      return fail(kept.error());
  }
  ProgressAction::report(&getContext(), "calibrate", total, total);
  return success();
}

/// Reads what a turn has counted, behind what the turns before have.
LogicalResult TakeWindows::read(const fs::path &path, int64_t samples,
                                std::vector<Watched> &mixtures) {
  Result<formats::SafetensorsFile> file = formats::openSealed(path);
  if (!file)
    return fail(file.error());
  for (Watched &mixture : mixtures) {
    const formats::SafetensorsTensor *tensor = file->find(mixture.tensor());
    if (!tensor || tensor->dtype != formats::DType::I32 ||
        tensor->shape != std::vector<int64_t>{samples, mixture.experts})
      return emitError(getOperation().getLoc())
             << path.string() << ": expected \"" << mixture.tensor() << "\", I32 [" << samples
             << ", " << mixture.experts << "]; remove the file";
    std::span<const std::byte> bytes = file->data(*tensor);
    const size_t before = mixture.rows.size();
    mixture.rows.resize(before + bytes.size() / sizeof(int32_t));
    std::memcpy(mixture.rows.data() + before, bytes.data(), bytes.size());
  }
  return success();
}

/// Counts on the samples of one turn, unless an earlier run has. Collective.
LogicalResult TakeWindows::count(const CalibrationTokens &tokens, int64_t turn,
                                 const std::string &work, std::vector<Watched> &mixtures) {
  ModuleOp module = getOperation();
  const Ranks ranks = Ranks::of(&getContext());
  EngineOptions options;
  options.threads = threads;
  FailureOr<LayerRunner> runner = LayerRunner::create(module, tokens, options);
  if (failed(runner))
    return failure();
  FailureOr<Stamp> stamp = walkStamp(module, *runner, ranks);
  if (failed(stamp))
    return failure();
  (*stamp)["statistics"] = "expert rows 1";
  const fs::path path = fs::path(work) / fmt::format("expert_rows_{}.safetensors", turn);
  FailureOr<std::optional<Journal>> journal =
      openJournal(module, *runner, ranks, path, work, *stamp);
  if (failed(journal))
    return failure();
  if (*journal) {
    auto steps = static_cast<int64_t>(runner->layers().size());
    while (steps > 0 && mixturesOf(runner->layers()[steps - 1]).empty())
      --steps;
    if (failed(runTurn(*runner, **journal, steps)))
      return failure();
    if (auto written = (*journal)->merge(steps, path, *stamp); !written)
      return fail(written.error());
    (*journal)->remove(steps);
  }
  return read(path, tokens.allSamples(), mixtures);
}

/// The least number of samples, from `least` on, that gives every expert so many rows; nothing
/// where all that were counted do not.
static std::optional<int64_t> samplesFor(ArrayRef<Watched> mixtures, int64_t least, int64_t counted,
                                         int64_t wanted) {
  for (int64_t samples = least; samples <= counted; ++samples)
    if (llvm::all_of(mixtures, [&](const Watched &mixture) {
          return mixture.lacking(samples, wanted).empty();
        }))
      return samples;
  return std::nullopt;
}

/// Says how many samples were taken, and which experts have still seen too few rows of them.
void TakeWindows::report(const CalibrationTokens &tokens, int64_t asked,
                         ArrayRef<Watched> mixtures) {
  ModuleOp module = getOperation();
  Builder b(module.getContext());
  const int64_t taken = tokens.allSamples();
  size_t all = 0, places = 0;
  std::string first;
  for (const Watched &mixture : mixtures) {
    const std::vector<int64_t> experts = mixture.lacking(taken, expertTokens);
    if (experts.empty())
      continue;
    all += experts.size();
    NamedAttrList entry;
    entry.set("method", b.getStringAttr("expert-tokens"));
    entry.set("sites", b.getStrArrayAttr(llvm::to_vector_of<StringRef>(mixture.sites)));
    entry.set("expert_count", b.getI64IntegerAttr(static_cast<int64_t>(experts.size())));
    if (experts.size() <= kNamedExperts)
      entry.set("experts", b.getI64ArrayAttr(experts));
    entry.set("skipped",
              b.getStringAttr(fmt::format("more text for these experts: {} windows gave them "
                                          "fewer than the {} tokens that were asked for, and "
                                          "there are no more",
                                          taken, expertTokens.getValue())));
    equant::recordTransform(module, std::move(entry));
    if (places++ > 0)
      continue;
    std::string names;
    for (int64_t expert : ArrayRef(experts).take_front(kNamedExperts))
      names += (names.empty() ? "" : ", ") + std::to_string(expert);
    first =
        fmt::format("{} of {} experts of site '{}' ({}{})", experts.size(), mixture.experts,
                    mixture.sites.front(), names, experts.size() > kNamedExperts ? ", ..." : "");
  }
  InFlightDiagnostic remark = emitRemark(module.getLoc());
  remark << "expert-tokens: " << taken << " windows of calibration text were taken, " << asked
         << " were asked for";
  if (places == 0)
    remark << "; every expert has seen " << expertTokens.getValue() << " tokens";
  else
    remark << "; there are no more, and " << first;
  if (places > 1)
    remark << ", and " << all << " experts of " << places << " layers in all,";
  if (places > 0)
    remark << " have seen fewer than " << expertTokens.getValue()
           << " tokens: give a longer text, or more --nsamples";
}

LogicalResult TakeWindows::run() {
  ModuleOp module = getOperation();
  const Ranks ranks = Ranks::of(&getContext());
  if (tokensFile.empty() || expertTokens < 1)
    return emitError(module.getLoc())
           << getArgument()
           << " needs tokens=FILE, of calibration tokens, and expert-tokens of at least 1";
  std::vector<Watched> mixtures = mixturesIn(module);
  if (mixtures.empty())
    return emitError(module.getLoc()) << "expert-tokens is for mixtures of experts, and this model "
                                         "has none: leave it out";
  FailureOr<ModelConstants> constants = ModelConstants::open(module);
  FailureOr<std::string> work = equant::getWorkFolder(module, workFolder);
  if (failed(constants) || failed(work))
    return failure();
  Result<CalibrationTokens> tokens = CalibrationTokens::readOnAll(
      ranks, tokensFile.getValue(), constants->source().config().vocabSize);
  if (!tokens)
    return fail(tokens.error());
  const int64_t all = tokens->allSamples(), asked = tokens->askedSamples();
  std::optional<int64_t> enough;
  for (int64_t turn = 0, begin = 0, end = asked; begin < all && !enough; ++turn) {
    CalibrationTokens part = *tokens;
    part.keep(begin, end - begin);
    part.keepPart(ranks.rank(), ranks.size());
    if (failed(count(part, turn, *work, mixtures)))
      return failure();
    enough = samplesFor(mixtures, std::max(asked, begin), end, expertTokens);
    begin = std::exchange(end, std::min(2 * end, all));
  }
  tokens->keep(0, enough.value_or(all));
  if (auto written = tokens->write(fs::path(*work) / kWindowsFile.str()); !written)
    return fail(written.error());
  report(*tokens, asked, mixtures);
  return success();
}
