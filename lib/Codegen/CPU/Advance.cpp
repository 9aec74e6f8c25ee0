//===- Advance.cpp - The state of online scales ---------------------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Sites are shared among threads; a thread does its sites of every sequence, whose rows it goes
// through in their order.
//
//===----------------------------------------------------------------------===//

#include "KernelBuilder.h"
#include "Sequences.h"

#include "easyquant/Numerics/OnlineScales.h"

#include "mlir/Dialect/Math/IR/Math.h"
#include "llvm/Support/FormatVariadic.h"

#include <limits>

using namespace mlir;

namespace easyquant::cpu {

static int64_t fieldsOf(const AdvanceSpec &spec) { return numerics::onlineFields(spec.window); }

std::string symbolName(const AdvanceSpec &spec) {
  return llvm::formatv("advance_{0}_window{1}_decay{2:x-}", spec.sites, spec.window,
                       llvm::bit_cast<uint64_t>(spec.decay));
}

namespace {

/// Emits what is done for one site of one sequence.
class SiteEmitter {
public:
  SiteEmitter(KernelBuilder &b, const AdvanceSpec &spec, const KernelArguments &in)
      : b(b), spec(spec), extrema(in["extrema"]), state(in["state"]) {}

  void emit(const Sequence &sequence, Value site);

private:
  Type f64() { return b.getF64Type(); }
  Value magnitude(Value x) { return math::AbsFOp::create(b, arith::ExtFOp::create(b, f64(), x)); }
  /// The largest of the window, whose fields move on by one where it is an update.
  Value emitWindow(const Sequence &sequence, Value first, Value peak, Value isUpdate);

  KernelBuilder &b;
  const AdvanceSpec &spec;
  Value extrema, state;
};

} // namespace

Value SiteEmitter::emitWindow(const Sequence &sequence, Value first, Value peak, Value isUpdate) {
  auto at = [&](Index field) { return b.add(b.add(first, 2), field); };
  Value oldest = b.load(state, {sequence.slot, at(0)});
  b.store(b.select(isUpdate, peak, oldest), state, {sequence.nextSlot, at(0)});
  auto carried =
      b.forLoop(1, spec.window, 1, ValueRange{peak, oldest}, [&](Value field, ValueRange carried) {
        Value kept = b.load(state, {sequence.slot, at(field)});
        b.store(b.select(isUpdate, carried[1], kept), state, {sequence.nextSlot, at(field)});
        return KernelBuilder::Values{b.larger(carried[1], carried[0]), kept};
      });
  return carried[0];
}

void SiteEmitter::emit(const Sequence &sequence, Value site) {
  using Predicate = arith::CmpFPredicate;
  constexpr double infinity = std::numeric_limits<double>::infinity();
  Value none = b.constant(b.f32(), -infinity), most = b.constant(b.f32(), infinity);
  Value column = b.mul(site, 2);
  auto range =
      b.forLoop(0, sequence.rows, 1, ValueRange{none, none}, [&](Value row, ValueRange carried) {
        Value at = b.add(sequence.firstRow, row);
        return KernelBuilder::Values{b.larger(b.load(extrema, {at, column}), carried[0]),
                                     b.larger(b.load(extrema, {at, b.add(column, 1)}), carried[1])};
      });
  Value low = b.negate(range[0]), high = range[1];
  Value isFinite =
      b.both(b.compare(Predicate::OLT, range[0], most), b.compare(Predicate::OLT, high, most));
  Value isUpdate = b.both(isFinite, b.compare(Predicate::OLT, low, high));

  Value peak = b.larger(b.constant(f64(), numerics::kOnlineFloor), magnitude(low));
  peak = b.larger(peak, magnitude(high));
  Value first = b.mul(site, fieldsOf(spec));
  if (spec.window > 0)
    peak = emitWindow(sequence, first, peak, isUpdate);
  Value before = b.load(state, {sequence.slot, first});
  Value scaleBefore = b.load(state, {sequence.slot, b.add(first, 1)});
  Value difference = arith::SubFOp::create(b, before, peak);
  Value after = math::FmaOp::create(b, b.constant(f64(), spec.decay), difference, peak);
  Value quotient = arith::DivFOp::create(b, after, b.constant(f64(), numerics::kOnlineCodes));
  Value scale =
      arith::ExtFOp::create(b, f64(), arith::TruncFOp::create(b, b.f32(), quotient).getResult());
  b.store(b.select(isUpdate, after, before), state, {sequence.nextSlot, first});
  b.store(b.select(isUpdate, scale, scaleBefore), state, {sequence.nextSlot, b.add(first, 1)});
}

Description describe(const AdvanceSpec &spec, MLIRContext *context) {
  Describer d(context, symbolName(spec), Describer::Over::Other);
  d.reads("extrema", d.rows(2 * spec.sites));
  d.writes("state", d.memory({ShapedType::kDynamic, spec.sites * fieldsOf(spec)}, d.getF64Type()));
  d.reads("sequences", sequencesType(d));
  return std::move(d.kernel);
}

func::FuncOp getOrEmitAdvance(ModuleOp module, const AdvanceSpec &spec, const Target &target) {
  return getOrEmitKernel(module, describe(spec, module.getContext()), target,
                         [&](KernelBuilder &b, const KernelArguments &in, const Team &team) {
                           auto [begin, end] = shareOf(b, spec.sites, team);
                           SiteEmitter emitter(b, spec, in);
                           Value from = begin, to = end;
                           forSequences(b, in["sequences"], [&](const Sequence &sequence) {
                             b.forLoop(from, to, 1,
                                       [&](Value site) { emitter.emit(sequence, site); });
                           });
                         });
}

} // namespace easyquant::cpu
