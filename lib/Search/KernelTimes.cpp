//===- KernelTimes.cpp - What formats take to decode ----------------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Sites that fuse are timed one by one: the bytes that a token reads are the same.
//
//===----------------------------------------------------------------------===//

#include "KernelTimes.h"

#include "easyquant/Execution/LinearTimer.h"
#include "easyquant/Support/Checksum.h"

#include "llvm/ADT/DenseSet.h"

using namespace mlir;
using namespace easyquant;
using namespace easyquant::execution;
using namespace easyquant::methods;
using namespace easyquant::search;
using equant::PlanAttr;
using equant::QuantizableOpInterface;
using equant::SchemeAttr;
using formats::ComputedTensor;
using formats::DType;

static constexpr char kTimes[] = "milliseconds";

namespace {

/// Kernels by what they compute, in the order in which they are met.
class Kernels {
public:
  void add(Value weight, PlanAttr plan);
  double at(Value weight, PlanAttr plan) const { return times[numbers.at(keyOf(weight, plan))]; }

  LogicalResult measure(Location loc, LinearTimer &timer,
                        llvm::function_ref<void(int64_t done, int64_t all)> progress);
  /// The same for the same kernels on the same kind of machine.
  std::string stamp(const LinearTimer &timer) const;
  Result<void> read(const formats::ComputedConstants &work, const std::string &stamp);
  Result<void> write(const formats::ComputedConstants &work, const std::string &stamp) const;
  static std::string file(const std::string &stamp) {
    return "search_times_" + stamp + ".safetensors";
  }

private:
  struct Kernel {
    RankedTensorType weight;
    SchemeAttr scheme, input; ///< null: float activations
  };
  static std::string keyOf(Value weight, PlanAttr plan);

  std::map<std::string, size_t> numbers;
  std::vector<Kernel> kernels;
  std::vector<float> times;
};

} // namespace

std::string Kernels::keyOf(Value weight, PlanAttr plan) {
  std::string key;
  llvm::raw_string_ostream stream(key);
  stream << weight.getType() << ' ' << plan.getWeight() << ' ' << plan.getInput();
  return key;
}

void Kernels::add(Value weight, PlanAttr plan) {
  if (!numbers.try_emplace(keyOf(weight, plan), kernels.size()).second)
    return;
  kernels.push_back({cast<RankedTensorType>(weight.getType()), plan.getWeight(), plan.getInput()});
  times.push_back(0);
}

LogicalResult Kernels::measure(Location loc, LinearTimer &timer,
                               llvm::function_ref<void(int64_t done, int64_t all)> progress) {
  for (auto [i, kernel] : llvm::enumerate(kernels)) {
    progress(static_cast<int64_t>(i), std::ssize(kernels));
    FailureOr<double> found = timer.millisecondsOf(loc, kernel.weight, kernel.scheme, kernel.input);
    if (failed(found))
      return failure();
    times[i] = static_cast<float>(*found);
  }
  progress(std::ssize(kernels), std::ssize(kernels));
  return success();
}

std::string Kernels::stamp(const LinearTimer &timer) const {
  Checksum checksum;
  auto add = [&](const std::string &text) { checksum.update(text.data(), text.size()); };
  add(fmt::format("1 {} threads={}\n", timer.isa(), timer.threads()));
  for (const auto &[key, number] : numbers)
    add(fmt::format("{} {}\n", number, key));
  return checksum.hex();
}

Result<void> Kernels::read(const formats::ComputedConstants &work, const std::string &stamp) {
  return work.readRows({file(stamp), stamp, kTimes, DType::F32, {std::ssize(times)}}, 0,
                       std::ssize(times), std::span<float>(times));
}

Result<void> Kernels::write(const formats::ComputedConstants &work,
                            const std::string &stamp) const {
  const std::vector<ComputedTensor> tensors = {
      ComputedTensor::floats(kTimes, {std::ssize(times)}, times)};
  return work.write(file(stamp), stamp, tensors);
}

LogicalResult easyquant::search::measureKernelTimes(
    ModuleOp module, SearchSpace &space, unsigned threads, const MethodRun *run,
    llvm::function_ref<void(int64_t done, int64_t all)> progress) {
  auto fail = [&](const Error &error) { return emitError(module.getLoc()) << error.message; };
  auto forCandidates = [&](auto visit) {
    for (SearchGroup &group : space.groups)
      for (FormatCandidate &candidate : group.candidates)
        for (auto [site, plan] : llvm::zip_equal(group.sites, candidate.plans))
          visit(candidate, site.weight(), plan);
  };
  llvm::DenseSet<Value> searched;
  for (const SearchGroup &group : space.groups)
    for (const PlannedSite &site : group.sites)
      searched.insert(site.weight());
  auto forOthers = [&](auto visit) {
    module.walk([&](QuantizableOpInterface op) {
      Value weight = op.getWeightOperand().get();
      if (PlanAttr plan = equant::getPlan(op); plan && !searched.contains(weight))
        visit(weight, plan);
    });
  };

  Kernels kernels;
  forCandidates(
      [&](const FormatCandidate &, Value weight, PlanAttr plan) { kernels.add(weight, plan); });
  forOthers([&](Value weight, PlanAttr plan) { kernels.add(weight, plan); });
  Result<LinearTimer> timer = LinearTimer::create(threads);
  if (!timer)
    return fail(timer.error());
  const std::string stamp = kernels.stamp(*timer);
  auto isKnown = [&] { return run && run->has(Kernels::file(stamp), stamp); };
  if (!isKnown()) {
    if ((!run || run->ranks().rank() == 0) &&
        failed(kernels.measure(module.getLoc(), *timer, progress)))
      return failure();
    if (run && run->ranks().rank() == 0)
      if (auto done = kernels.write(run->work(), stamp); !done)
        return fail(done.error());
    if (run && !isKnown())
      return fail({ErrorCode::IO, "the times of kernels did not come from rank 0"});
  }
  if (run)
    if (auto done = kernels.read(run->work(), stamp); !done)
      return fail(done.error());
  forCandidates([&](FormatCandidate &candidate, Value weight, PlanAttr plan) {
    candidate.milliseconds += kernels.at(weight, plan);
  });
  forOthers(
      [&](Value weight, PlanAttr plan) { space.fixedMilliseconds += kernels.at(weight, plan); });
  return success();
}
