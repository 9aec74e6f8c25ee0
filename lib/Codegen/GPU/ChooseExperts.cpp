//===- ChooseExperts.cpp - Which experts a row goes to --------------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// A warp chooses for a row. A choice is the greatest score behind the one before it, in the order
// of scores and, where they are equal, of experts: each lane looks through every 32nd expert, and
// the lanes compare what they found. Rows of scores are short and stay in the first-level cache.
//
//===----------------------------------------------------------------------===//

#include "KernelBuilder.h"
#include "ScalarMath.h"

#include "easyquant/Codegen/GPU/Experts.h"

#include "mlir/Dialect/LLVMIR/NVVMDialect.h"

#include <bit>
#include <limits>

using namespace mlir;

namespace easyquant::gpu {
namespace {

using arith::CmpFPredicate;

class ExpertChooser {
public:
  ExpertChooser(KernelBuilder &b, const ChooseExpertsSpec &spec, const KernelArguments &arguments)
      : b(b), spec(spec), arguments(arguments) {}

  void emit(Value row);

private:
  using Values = KernelBuilder::Values;
  static constexpr int64_t kLanes = 32;

  Value logit(Value expert) {
    return b.load(b.advance(logits, expert, b.f32()), b.f32(), /*constant=*/true);
  }
  /// What experts are chosen by; without a bias scores are in the order of logits.
  Value score(Value expert) {
    Value x = logit(expert);
    if (!spec.bias)
      return x;
    return b.addf(logisticOfCPUs(b, x), b.load(b.advance(arguments["bias"], expert, b.f32()),
                                               b.f32(), /*constant=*/true));
  }
  /// (score, expert) of the next choice; some expert that there is where scores are no numbers.
  Values next(ValueRange before);
  /// The sum over all experts of e^(logit - greatest).
  Value sumOfAll(Value greatest);
  /// What the lane's choices count, from their logits.
  Values weightsOf(ValueRange chosen);
  Value isChoice(int64_t slot) { return b.less(choiceOf(slot), spec.chosen); }
  /// The lane's choice in a slot.
  Value choiceOf(int64_t slot) { return b.add(lane, kLanes * slot); }
  int64_t slots() const { return divideCeil(spec.chosen, kLanes); }

  KernelBuilder &b;
  const ChooseExpertsSpec &spec;
  const KernelArguments &arguments;
  Value logits, lane;
};

} // namespace

ExpertChooser::Values ExpertChooser::next(ValueRange before) {
  Value none = b.i32(-1), least = b.constant(b.f32(), -std::numeric_limits<double>::infinity());
  Values best = b.forLoop(
      lane, spec.experts, kLanes, ValueRange{least, none}, [&](Value expert, ValueRange best) {
        Value own = score(expert);
        Value isBehind = b.either(
            b.compare(CmpFPredicate::OLT, own, before[0]),
            b.both(b.compare(CmpFPredicate::OEQ, own, before[0]), b.less(before[1], expert)));
        Value isBetter = b.either(b.compare(CmpFPredicate::OGT, own, best[0]), b.less(best[1], 0));
        Value takes = b.both(isBehind, isBetter);
        return Values{b.select(takes, own, best[0]), b.select(takes, expert, best[1])};
      });
  for (int64_t mask = 1; mask < kLanes; mask *= 2) {
    Value other = b.shuffleXor(best[0], mask), expert = b.shuffleXor(best[1], mask);
    Value isFirst = b.both(b.compare(CmpFPredicate::OEQ, other, best[0]), b.less(expert, best[1]));
    Value isBetter = b.either(b.less(best[1], 0),
                              b.either(b.compare(CmpFPredicate::OGT, other, best[0]), isFirst));
    Value takes = b.both(b.less(-1, expert), isBetter);
    best = {b.select(takes, other, best[0]), b.select(takes, expert, best[1])};
  }
  best[1] = b.max(best[1], 0);
  return best;
}

Value ExpertChooser::sumOfAll(Value greatest) {
  Values sum =
      b.forLoop(lane, spec.experts, kLanes, b.zero(b.f32()), [&](Value expert, ValueRange sum) {
        Value part = exp(b, b.subf(logit(expert), greatest));
        return Values{b.addf(sum[0], part)};
      });
  return b.warpSum(sum[0]);
}

ExpertChooser::Values ExpertChooser::weightsOf(ValueRange chosen) {
  Values parts;
  Value greatest, sum, zero = b.zero(b.f32());
  if (!spec.sigmoid) // the first choice
    greatest = NVVM::ShflOp::create(b, b.f32(), b.i32(-1), chosen[0], b.i32(0), b.i32(31),
                                    NVVM::ShflKind::idx, UnitAttr());
  for (auto [slot, x] : llvm::enumerate(chosen)) {
    Value part = spec.sigmoid ? logistic(b, x) : exp(b, b.subf(x, greatest));
    parts.push_back(b.select(isChoice(static_cast<int64_t>(slot)), part, zero));
    sum = sum ? b.addf(sum, parts.back()) : parts.back();
  }
  if (!spec.sigmoid)
    sum = spec.renormalize ? b.warpSum(sum) : sumOfAll(greatest);
  else if (spec.renormalize)
    sum = b.addf(b.warpSum(sum), b.constant(b.f32(), 1e-20));
  else
    sum = nullptr;
  for (Value &part : parts) {
    if (sum)
      part = b.divf(part, sum);
    if (spec.scale != 1.0)
      part = b.mulf(part, b.constant(b.f32(), spec.scale));
  }
  return parts;
}

void ExpertChooser::emit(Value row) {
  lane = b.rem(b.thread(), kLanes);
  logits = b.rowOf(arguments["logits"], row, arguments["logits_stride"], b.f32());
  // Carried: (score, expert) of the choice before, then the lane's logits and experts.
  Values carried = {b.constant(b.f32(), std::numeric_limits<double>::infinity()), b.i32(-1)};
  carried.append(slots(), b.zero(b.f32()));
  carried.append(slots(), b.i32(0));
  carried = b.forLoop(0, spec.chosen, 1, carried, [&](Value choice, ValueRange before) {
    Values results = next(before.take_front(2));
    Value chosen = spec.bias ? logit(results[1]) : results[0], expert = results[1];
    for (auto [values, value] :
         {std::pair(before.slice(2, slots()), chosen), {before.drop_front(2 + slots()), expert}})
      for (auto [slot, old] : llvm::enumerate(values))
        results.push_back(
            b.select(b.equal(choice, choiceOf(static_cast<int64_t>(slot))), value, old));
    return results;
  });
  Values weights = weightsOf(ValueRange(carried).slice(2, slots()));
  for (int64_t slot = 0; slot < slots(); ++slot)
    b.ifThen(isChoice(slot), [&] {
      Value expert = carried[2 + slots() + slot], weight = weights[slot];
      if (spec.factors)
        weight = b.mulf(weight, b.load(b.advance(arguments["factors"], expert, b.f32()), b.f32(),
                                       /*constant=*/true));
      auto place = [&](StringRef name, Type type) {
        return b.advance(b.rowOf(arguments[name], row, spec.chosen, type), choiceOf(slot), type);
      };
      b.store(expert, place("places", b.i32()));
      b.store(weight, place("weights", b.f32()));
    });
}

static std::string symbolName(const ChooseExpertsSpec &spec) {
  std::string name = fmt::format("choose_experts_{}_of_{}", spec.chosen, spec.experts);
  name += spec.sigmoid ? "_sigmoid" : "";
  name += spec.bias ? "_bias" : "";
  name += spec.renormalize ? "_renormalized" : "";
  name += spec.factors ? "_factors" : "";
  if (spec.scale != 1.0)
    name += fmt::format("_by{:x}", std::bit_cast<uint32_t>(static_cast<float>(spec.scale)));
  return name;
}

Description getOrEmit(mlir::gpu::GPUModuleOp module, const ChooseExpertsSpec &spec, const Chip &) {
  constexpr int64_t kRows = 4; // of a block, a warp each
  Description kernel;
  kernel.name = symbolName(spec);
  kernel.threads = 32 * kRows;
  kernel.grid[0].rowsPerBlock = kRows;
  kernel.parameters = Parameters()
                          .readsRows("logits")
                          .constants("bias", spec.bias)
                          .constants("factors", spec.factors)
                          .writes("places")
                          .writes("weights")
                          .rows();
  return getOrEmitKernel(module, kernel, [&](KernelBuilder &b, const KernelArguments &arguments) {
    Value row = b.add(b.mul(b.block(0), kRows), b.warp());
    b.ifThen(b.less(row, arguments["rows"]), [&] { ExpertChooser(b, spec, arguments).emit(row); });
  });
}

} // namespace easyquant::gpu
