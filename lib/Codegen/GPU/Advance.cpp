//===- Advance.cpp - Online scales move on --------------------------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// A thread has a site of one sequence, whose first row its block has; blocks of other rows have
// nothing to do. Arithmetic is that of numerics::advanceOnline, in its order.
//
//===----------------------------------------------------------------------===//

#include "StepTables.h"

#include "easyquant/Numerics/OnlineScales.h"

#include <bit>
#include <limits>

using namespace mlir;

namespace easyquant::gpu {
namespace {

class SiteEmitter {
public:
  SiteEmitter(KernelBuilder &b, const AdvanceSpec &spec, const KernelArguments &arguments,
              const StepSequence &sequence)
      : b(b), spec(spec), arguments(arguments), sequence(sequence) {}

  void emit(Value site);

private:
  using Values = KernelBuilder::Values;
  using Predicate = arith::CmpFPredicate;
  Type f64() { return b.getF64Type(); }
  Value number(double value) { return b.constant(f64(), value); }
  Value less(Value x, Value y) { return b.compare(Predicate::OLT, x, y); }
  Value larger(Value x, Value y) { return b.select(less(y, x), x, y); }
  Value magnitude(Value x) {
    return b.intrinsic("llvm.fabs.f64", f64(), {arith::ExtFOp::create(b, f64(), x)});
  }
  Value read(Int field) { return b.load(b.advance(before, field, f64()), f64(), true); }
  void write(Value value, Int field) { b.store(value, b.advance(after, field, f64())); }
  /// The first double of a site in a slot.
  Value place(Value slot, Value site);
  /// The largest of -x and of x over the rows.
  Values extremaOf(Value site);
  /// The largest of the window, whose fields move on by one where it is an update.
  Value moveWindow(Value peak, Value isUpdate);

  KernelBuilder &b;
  const AdvanceSpec &spec;
  const KernelArguments &arguments;
  const StepSequence &sequence;
  Value before, after; ///< of the site
};

} // namespace

Value SiteEmitter::place(Value slot, Value site) {
  const int64_t fields = numerics::onlineFields(spec.window);
  return b.advance(b.rowOf(arguments["states"], slot, spec.sites * fields, f64()),
                   b.mul(site, fields), f64());
}

SiteEmitter::Values SiteEmitter::extremaOf(Value site) {
  Value none = b.constant(b.f32(), -std::numeric_limits<double>::infinity());
  Value end = b.add(sequence.firstRow, sequence.rows);
  return b.forLoop(
      sequence.firstRow, end, 1, ValueRange{none, none}, [&](Value row, ValueRange so) {
        Value of = b.rowOf(arguments["extrema"], row, arguments["extrema_stride"], b.f32());
        Value first = b.advance(of, b.mul(site, 2), b.f32());
        return Values{larger(b.load(first, b.f32(), true), so[0]),
                      larger(b.load(b.advance(first, 1, b.f32()), b.f32(), true), so[1])};
      });
}

Value SiteEmitter::moveWindow(Value peak, Value isUpdate) {
  Value oldest = read(2);
  write(b.select(isUpdate, peak, oldest), 2);
  return b
      .forLoop(3, 2 + spec.window, 1, ValueRange{peak, oldest},
               [&](Value field, ValueRange carried) {
                 Value kept = read(field);
                 write(b.select(isUpdate, carried[1], kept), field);
                 return Values{larger(carried[1], carried[0]), kept};
               })
      .front();
}

void SiteEmitter::emit(Value site) {
  before = place(sequence.slot, site);
  after = place(sequence.nextSlot, site);
  Values ends = extremaOf(site);
  Value infinity = b.constant(b.f32(), std::numeric_limits<double>::infinity());
  Value low = b.negate(ends[0]);
  Value isUpdate = b.both(b.both(less(ends[0], infinity), less(ends[1], infinity)), // finite
                          less(low, ends[1]));
  Value peak = larger(number(numerics::kOnlineFloor), magnitude(ends[0]));
  peak = larger(peak, magnitude(ends[1]));
  if (spec.window > 0)
    peak = moveWindow(peak, isUpdate);
  Value p = read(0), difference = arith::SubFOp::create(b, p, peak);
  Value next = b.intrinsic("llvm.fma.f64", f64(), {number(spec.decay), difference, peak});
  Value quotient = arith::DivFOp::create(b, next, number(numerics::kOnlineCodes));
  Value narrow = arith::TruncFOp::create(b, b.f32(), quotient);
  Value scale = arith::ExtFOp::create(b, f64(), narrow);
  write(b.select(isUpdate, next, p), 0);
  write(b.select(isUpdate, scale, read(1)), 1);
}

Description getOrEmit(mlir::gpu::GPUModuleOp module, const AdvanceSpec &spec, const Chip &) {
  constexpr int64_t kSites = 128; // of a block
  Description kernel;
  kernel.name = fmt::format("advance_{}_window{}_decay{:x}", spec.sites, spec.window,
                            std::bit_cast<uint64_t>(spec.decay));
  kernel.threads = kSites;
  kernel.grid[0].rowsPerBlock = 1;
  kernel.grid[1].factor = divideCeil(spec.sites, kSites);
  kernel.parameters = Parameters()
                          .readsRows("extrema")
                          .writes("states")
                          .constants("sequences")
                          .constants("row_places")
                          .rows();
  return getOrEmitKernel(module, kernel, [&](KernelBuilder &b, const KernelArguments &arguments) {
    Value site = b.add(b.mul(b.block(1), kSites), b.thread()), row = b.block(0);
    const StepSequence sequence(b, arguments, PlaceOfRow(b, arguments, row).sequence);
    b.ifThen(b.both(b.equal(row, sequence.firstRow), b.less(site, spec.sites)),
             [&] { SiteEmitter(b, spec, arguments, sequence).emit(site); });
  });
}

} // namespace easyquant::gpu
