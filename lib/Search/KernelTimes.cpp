//===- KernelTimes.cpp - What formats take of time ------------------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "KernelTimes.h"

#include "easyquant/Dialect/Equant/Analysis/RotatedValues.h"
#include "easyquant/Execution/LinearTimer.h"
#include "easyquant/Formats/InstructionSets.h"
#include "easyquant/Support/Checksum.h"

#include "llvm/ADT/DenseSet.h"

using namespace mlir;
using namespace easyquant;
using namespace easyquant::execution;
using namespace easyquant::methods;
using namespace easyquant::search;
using equant::Granularity;
using equant::PlanAttr;
using equant::QuantizableOpInterface;
using equant::SchemeAttr;
using formats::ComputedTensor;
using formats::DType;
using numerics::Milliseconds;
using numerics::Stage;

static constexpr char kTimes[] = "milliseconds";

bool search::canTimeKernels(const targets::Family &family, StringRef target) {
  // What a name stands for is of one processor.
  const std::vector<std::string> asked = family.targetsOf(target);
  return llvm::is_contained(formats::instructionSetsOf(formats::hostProcessor()),
                            asked.empty() ? target.str() : asked.front());
}

static const char *nameOf(Stage stage) { return stage == Stage::Decode ? "decode" : "prefill"; }

//===----------------------------------------------------------------------===//
// What sites become
//===----------------------------------------------------------------------===//

namespace {
struct Kernel {
  TimedLinear linear;
  bool isOfOneRow = false; ///< in a prefill, too

  int64_t rowsOf(Stage stage) const { return isOfOneRow ? 1 : numerics::rowsOf(stage); }
  std::string key() const;
};
} // namespace

std::string Kernel::key() const {
  std::string key;
  llvm::raw_string_ostream stream(key);
  stream << linear.weight << ' ' << linear.scheme << ' ' << linear.input
         << (linear.comesRotated ? " rotated" : "") << (isOfOneRow ? " one row" : "");
  return key;
}

static Kernel kernelOf(QuantizableOpInterface op, PlanAttr plan) {
  const SchemeAttr scheme = plan.getWeight();
  return {{cast<RankedTensorType>(op.getWeightOperand().get().getType()), scheme, plan.getInput(),
           equant::valuesOf(op).takes(scheme.getHadamard())},
          !op->getParentOfType<func::FuncOp>().isPrivate()}; // behind what picks rows
}

/// Will equant-fuse-shared-input make one linear of sites that read one activation?
static bool fuse(ArrayRef<PlannedSite> sites, ArrayRef<PlanAttr> plans) {
  auto hasBias = [](const PlannedSite &site) {
    auto linear = dyn_cast<lm::LinearOp>(PlannedSite(site).op.getOperation());
    return linear && linear.getBias();
  };
  const SchemeAttr scheme = plans.front().getWeight(), input = plans.front().getInput();
  return (scheme.getGranularity() == Granularity::Group ||
          scheme.getGranularity() == Granularity::Channel) &&
         !(input && input.isOnline()) &&
         llvm::all_of(llvm::zip_equal(sites, plans), [&](const auto &each) {
           const auto &[site, plan] = each;
           return plan.getWeight() == scheme && plan.getInput() == input &&
                  hasBias(site) == hasBias(sites.front());
         });
}

/// The kernels of sites that read one activation.
static SmallVector<Kernel> kernelsOf(ArrayRef<PlannedSite> sites, ArrayRef<PlanAttr> plans) {
  SmallVector<Kernel> kernels;
  for (auto [site, plan] : llvm::zip_equal(sites, plans))
    kernels.push_back(kernelOf(site.op, plan));
  if (!fuse(sites, plans))
    return kernels;
  int64_t rows = 0;
  for (const Kernel &kernel : kernels)
    rows += kernel.linear.weight.getDimSize(0);
  RankedTensorType &weight = kernels.front().linear.weight;
  weight = weight.clone({rows, weight.getDimSize(1)});
  kernels.resize(1);
  return kernels;
}

//===----------------------------------------------------------------------===//
// Times
//===----------------------------------------------------------------------===//

namespace {

/// Kernels in the order in which they are met.
class Kernels {
public:
  void add(ArrayRef<Kernel> more);
  Milliseconds at(ArrayRef<Kernel> some) const;

  LogicalResult measure(Location loc, LinearTimer &timer, ArrayRef<Stage> stages,
                        llvm::function_ref<void(int64_t done, int64_t all)> progress);
  /// The same for the same kernels on the same kind of machine.
  std::string stamp(const LinearTimer &timer, Stage stage) const;
  Result<void> read(const formats::ComputedConstants &work, Stage stage, const std::string &stamp);
  Result<void> write(const formats::ComputedConstants &work, Stage stage,
                     const std::string &stamp) const;
  static std::string file(const std::string &stamp) {
    return "search_times_" + stamp + ".safetensors";
  }

private:
  std::map<std::string, size_t> numbers;
  std::vector<Kernel> kernels;
  std::map<Stage, std::vector<float>> times; ///< of the stages that were measured
};

} // namespace

void Kernels::add(ArrayRef<Kernel> more) {
  for (const Kernel &kernel : more)
    if (numbers.try_emplace(kernel.key(), kernels.size()).second)
      kernels.push_back(kernel);
}

Milliseconds Kernels::at(ArrayRef<Kernel> some) const {
  Milliseconds sum;
  for (const Kernel &kernel : some)
    for (const auto &[stage, known] : times)
      sum[stage] += known[numbers.at(kernel.key())];
  return sum;
}

LogicalResult Kernels::measure(Location loc, LinearTimer &timer, ArrayRef<Stage> stages,
                               llvm::function_ref<void(int64_t done, int64_t all)> progress) {
  for (auto [i, kernel] : llvm::enumerate(kernels)) {
    progress(static_cast<int64_t>(i), std::ssize(kernels));
    auto rows = llvm::map_to_vector(stages, [&](Stage stage) { return kernel.rowsOf(stage); });
    FailureOr<SmallVector<double>> found = timer.millisecondsOf(loc, kernel.linear, rows);
    if (failed(found))
      return failure();
    for (auto [stage, taken] : llvm::zip_equal(stages, *found))
      times[stage].push_back(static_cast<float>(taken));
  }
  progress(std::ssize(kernels), std::ssize(kernels));
  return success();
}

std::string Kernels::stamp(const LinearTimer &timer, Stage stage) const {
  Checksum checksum;
  auto add = [&](const std::string &text) { checksum.update(text.data(), text.size()); };
  add(fmt::format("2 {} {} threads={}\n", nameOf(stage), timer.isa(), timer.threads()));
  for (const auto &[key, number] : numbers)
    add(fmt::format("{} {}\n", number, key));
  return checksum.hex();
}

Result<void> Kernels::read(const formats::ComputedConstants &work, Stage stage,
                           const std::string &stamp) {
  std::vector<float> &known = times[stage];
  known.resize(kernels.size());
  return work.readRows({file(stamp), stamp, kTimes, DType::F32, {std::ssize(known)}}, 0,
                       std::ssize(known), std::span<float>(known));
}

Result<void> Kernels::write(const formats::ComputedConstants &work, Stage stage,
                            const std::string &stamp) const {
  const std::vector<float> &known = times.at(stage);
  const std::vector<ComputedTensor> tensors = {
      ComputedTensor::floats(kTimes, {std::ssize(known)}, known)};
  return work.write(file(stamp), stamp, tensors);
}

LogicalResult easyquant::search::measureKernelTimes(
    ModuleOp module, SearchSpace &space, ArrayRef<Stage> stages, unsigned threads,
    const MethodRun *run, llvm::function_ref<void(int64_t done, int64_t all)> progress) {
  auto fail = [&](const Error &error) { return emitError(module.getLoc()) << error.message; };
  for (const SearchGroup &group : space.groups)
    if (group.areExperts())
      return emitError(group.sites.front().loc())
             << "how long the experts of '" << group.name()
             << "' take depends on what a text chooses, and is not measured: give bits or bytes as "
                "the budget, and no milliseconds";
  auto forCandidates = [&](auto visit) {
    for (SearchGroup &group : space.groups)
      for (FormatCandidate &candidate : group.candidates)
        visit(candidate, kernelsOf(group.sites, candidate.plans));
  };
  llvm::DenseSet<Value> searched;
  for (const SearchGroup &group : space.groups)
    for (const PlannedSite &site : group.sites)
      searched.insert(site.weight());
  auto forOthers = [&](auto visit) {
    module.walk([&](QuantizableOpInterface op) {
      if (PlanAttr plan = equant::getPlan(op);
          plan && !searched.contains(op.getWeightOperand().get()))
        visit(kernelOf(op, plan));
    });
  };

  Kernels kernels;
  forCandidates([&](const FormatCandidate &, ArrayRef<Kernel> own) { kernels.add(own); });
  forOthers([&](const Kernel &kernel) { kernels.add(kernel); });
  Result<LinearTimer> timer = LinearTimer::create(threads);
  if (!timer)
    return fail(timer.error());
  auto isKnown = [&](Stage stage) {
    const std::string stamp = kernels.stamp(*timer, stage);
    return run && run->has(Kernels::file(stamp), stamp);
  };
  SmallVector<Stage> open;
  llvm::copy_if(stages, std::back_inserter(open), [&](Stage stage) { return !isKnown(stage); });
  if (!open.empty() && (!run || run->ranks().rank() == 0) &&
      failed(kernels.measure(module.getLoc(), *timer, open, progress)))
    return failure();
  for (Stage stage : stages) {
    if (!run)
      break;
    const std::string stamp = kernels.stamp(*timer, stage);
    if (llvm::is_contained(open, stage) && run->ranks().rank() == 0)
      if (auto done = kernels.write(run->work(), stage, stamp); !done)
        return fail(done.error());
    if (!isKnown(stage))
      return fail({ErrorCode::IO, "the times of kernels did not come from rank 0"});
    if (auto done = kernels.read(run->work(), stage, stamp); !done)
      return fail(done.error());
  }
  forCandidates([&](FormatCandidate &candidate, ArrayRef<Kernel> own) {
    candidate.milliseconds += kernels.at(own);
  });
  forOthers([&](const Kernel &kernel) { space.fixedMilliseconds += kernels.at(kernel); });
  return success();
}
