//===- Advance.cpp - Online scales move on --------------------------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// A thread has a site of the sequence that the launch is for. Arithmetic is that of
// numerics::advanceOnline, in its order.
//
//===----------------------------------------------------------------------===//

#include "KernelBuilder.h"

#include "easyquant/Numerics/OnlineScales.h"

#include <bit>
#include <limits>

using namespace mlir;

namespace easyquant::gpu {
namespace {

class SiteEmitter {
public:
  SiteEmitter(KernelBuilder &b, const AdvanceSpec &spec, const KernelArguments &arguments)
      : b(b), spec(spec), arguments(arguments) {}

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
  /// The first double of a site in one of the sequence's two slots.
  Value slot(int64_t which, Value site);
  /// The largest of -x and of x over the rows.
  Values extremaOf(Value site);
  /// The largest of the window, whose fields move on by one where it is an update.
  Value moveWindow(Value peak, Value isUpdate);

  KernelBuilder &b;
  const AdvanceSpec &spec;
  const KernelArguments &arguments;
  Value before, after; ///< of the site
};

} // namespace

Value SiteEmitter::slot(int64_t which, Value site) {
  Value place = b.load(b.advance(arguments["slots"], which, b.i64()), b.i64(), true);
  Value fields = b.mul(site, numerics::onlineFields(spec.window));
  return b.advance(b.advance(arguments["states"], place, b.i8()), fields, f64());
}

SiteEmitter::Values SiteEmitter::extremaOf(Value site) {
  Value none = b.constant(b.f32(), -std::numeric_limits<double>::infinity());
  return b.forLoop(0, arguments["rows"], 1, ValueRange{none, none}, [&](Value row, ValueRange so) {
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
  before = slot(0, site);
  after = slot(1, site);
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
  kernel.grid[0].factor = divideCeil(spec.sites, kSites);
  kernel.parameters = Parameters().readsRows("extrema").writes("states").constants("slots").rows();
  return getOrEmitKernel(module, kernel, [&](KernelBuilder &b, const KernelArguments &arguments) {
    Value site = b.add(b.mul(b.block(0), kSites), b.thread());
    b.ifThen(b.less(site, spec.sites), [&] { SiteEmitter(b, spec, arguments).emit(site); });
  });
}

} // namespace easyquant::gpu
