//===- SortChoices.cpp - Choices of experts in the order of experts -------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// A counting sort by one block, whose warps have equal runs of the choices, one behind the other.
// Each counts those of every expert in its run; sums over warps and experts say where those of an
// expert begin in each run; then each warp goes through its run again. Among 32 choices the lanes
// with one expert know each other (match.any) and take places in the order of lanes. So places
// depend on choices alone, and no word is added to by two threads at a time.
//
// Last, warps make lists of items of the counts, one warp a list.
//
//===----------------------------------------------------------------------===//

#include "KernelBuilder.h"

#include "easyquant/Codegen/GPU/Experts.h"

#include "mlir/Dialect/LLVMIR/NVVMDialect.h"

using namespace mlir;

namespace easyquant::gpu {
namespace {

class ChoiceSorter {
public:
  ChoiceSorter(KernelBuilder &b, const SortChoicesSpec &spec, int64_t warps,
               const KernelArguments &arguments)
      : b(b), spec(spec), warps(warps), arguments(arguments) {}

  void emit();

  /// Counts of each warp, and where those of each expert begin.
  static int64_t sharedBytes(const SortChoicesSpec &spec, int64_t warps) {
    return (warps + 1) * spec.experts * 4;
  }

private:
  using Values = KernelBuilder::Values;
  static constexpr int64_t kLanes = 32;

  Value count(Int warp, Value expert) {
    return b.advance(shared, b.add(b.mul(warp, spec.experts), expert), b.i32());
  }
  /// Behind the counts of all warps.
  Value begin(Value expert) { return count(warps, expert); }
  Value load(Value pointer) { return b.load(pointer, b.i32()); }
  Value placeOf(Value choice) { return b.advance(arguments["places"], choice, b.i32()); }

  /// body(choice, expert, rank) for the choices of the warp's run: among the 32 of a turn `rank`
  /// with this expert are in front of this one. Counts of the warp are brought up to date behind
  /// each turn.
  void forChoices(llvm::function_ref<void(Value choice, Value expert, Value rank)> body);
  /// The sum of `value` of the lanes below this one, and of all lanes.
  std::pair<Value, Value> sumsBelow(Value value);
  /// Experts by 32; body(expert, isThere, carried): what is carried to the next.
  void forExperts(llvm::function_ref<Value(Value expert, Value isThere, Value carried)> body,
                  llvm::function_ref<void(Value)> end);
  void listItems(int64_t list);

  KernelBuilder &b;
  const SortChoicesSpec &spec;
  const int64_t warps;
  const KernelArguments &arguments;
  Value shared, warp, lane;
};

} // namespace

void ChoiceSorter::forChoices(llvm::function_ref<void(Value, Value, Value)> body) {
  Value all = b.mul(arguments["rows"], spec.chosen);
  // Runs of whole turns.
  Value turns = b.div(b.add(all, warps * kLanes - 1), warps * kLanes);
  Value first = b.mul(warp, b.mul(turns, kLanes));
  Value below = b.sub(b.shl(b.i32(1), lane), 1);
  b.forLoop(0, turns, 1, [&](Value turn) {
    Value choice = b.add(b.add(first, b.mul(turn, kLanes)), lane);
    Value isThere = b.less(choice, all);
    Value expert = b.guarded(isThere, b.i32(-1), [&] { return load(placeOf(choice)); });
    Value alike = b.intrinsic("llvm.nvvm.match.any.sync.i32", b.i32(), {b.i32(-1), expert});
    auto bits = [&](Value mask) { return b.intrinsic("llvm.ctpop.i32", b.i32(), {mask}); };
    Value rank = bits(b.andi(alike, below));
    b.ifThen(isThere, [&] { body(choice, expert, rank); });
    b.warpBarrier();
    b.ifThen(b.both(isThere, b.equal(rank, 0)),
             [&] { b.store(b.add(load(count(warp, expert)), bits(alike)), count(warp, expert)); });
    b.warpBarrier();
  });
}

std::pair<Value, Value> ChoiceSorter::sumsBelow(Value value) {
  Value sum = value;
  for (int64_t distance = 1; distance < kLanes; distance *= 2) {
    Value other = NVVM::ShflOp::create(b, b.i32(), b.i32(-1), sum, b.i32(distance), b.i32(0),
                                       NVVM::ShflKind::up, UnitAttr());
    sum = b.add(sum, b.select(b.less(lane, distance), b.i32(0), other));
  }
  Value all = NVVM::ShflOp::create(b, b.i32(), b.i32(-1), sum, b.i32(kLanes - 1), b.i32(31),
                                   NVVM::ShflKind::idx, UnitAttr());
  return {b.sub(sum, value), all};
}

void ChoiceSorter::forExperts(llvm::function_ref<Value(Value, Value, Value)> body,
                              llvm::function_ref<void(Value)> end) {
  Values carried = b.forLoop(
      0, divideCeil(spec.experts, kLanes), 1, b.i32(0), [&](Value turn, ValueRange carried) {
        Value expert = b.add(b.mul(turn, kLanes), lane);
        return Values{body(expert, b.less(expert, spec.experts), carried[0])};
      });
  end(carried[0]);
}

void ChoiceSorter::listItems(int64_t list) {
  const int64_t most = kItemRows[list];
  auto item = [&](Value row) {
    Value first = b.rowOf(arguments["items"], row, kItemStride, b.i32());
    return b.advance(first, kItemFields * list, b.i32());
  };
  Value zero = b.i32(0);
  forExperts(
      [&](Value expert, Value isThere, Value before) {
        // The last warp has counted up to the end of the expert's choices of all warps.
        Value rows = b.guarded(isThere, zero, [&] { return load(count(warps - 1, expert)); });
        Value first = b.guarded(isThere, zero, [&] { return load(begin(expert)); });
        Value items = b.div(b.add(rows, most - 1), most);
        auto [below, all] = sumsBelow(items);
        Value row = b.add(b.add(before, below), 1);
        b.forLoop(0, items, 1, [&](Value i) {
          Value done = b.mul(i, most);
          b.store(b.join({expert, b.add(first, done), b.min(b.sub(rows, done), most), zero}),
                  item(b.add(row, i)));
        });
        return b.add(before, all);
      },
      [&](Value items) {
        b.ifThen(b.equal(lane, 0), [&] { b.store(b.join({items, zero, zero, zero}), item(zero)); });
      });
}

void ChoiceSorter::emit() {
  shared = b.sharedMemory(sharedBytes(spec, warps));
  warp = b.warp();
  lane = b.rem(b.thread(), kLanes);
  const int64_t threads = warps * kLanes;
  Value zero = b.i32(0);
  b.forLoop(b.thread(), warps * spec.experts, threads,
            [&](Value word) { b.store(zero, b.advance(shared, word, b.i32())); });
  b.barrier();
  forChoices([](Value, Value, Value) {});
  b.barrier();
  // Counts become what the warps before have of the expert.
  b.forLoop(b.thread(), spec.experts, threads, [&](Value expert) {
    Values sum = b.forLoop(0, warps, 1, zero, [&](Value of, ValueRange before) {
      Value own = load(count(of, expert));
      b.store(before[0], count(of, expert));
      return Values{b.add(before[0], own)};
    });
    b.store(sum[0], begin(expert));
  });
  b.barrier();
  b.ifThen(b.equal(warp, 0), [&] {
    forExperts(
        [&](Value expert, Value isThere, Value before) {
          Value rows = b.guarded(isThere, zero, [&] { return load(begin(expert)); });
          auto [below, all] = sumsBelow(rows);
          Value first = b.add(before, below);
          b.warpBarrier(); // all have read
          b.ifThen(isThere, [&] { b.store(first, begin(expert)); });
          return b.add(before, all);
        },
        [](Value) {});
  });
  b.barrier();
  forChoices([&](Value choice, Value expert, Value rank) {
    Value place = b.add(b.add(load(begin(expert)), load(count(warp, expert))), rank);
    b.store(place, placeOf(choice));
    b.store(b.div(choice, spec.chosen), b.advance(arguments["order"], place, b.i32()));
  });
  b.barrier();
  for (int64_t list = 0; list < std::ssize(kItemRows); ++list)
    b.ifThen(b.equal(warp, list % warps), [&] { listItems(list); });
}

Description getOrEmit(mlir::gpu::GPUModuleOp module, const SortChoicesSpec &spec, const Chip &) {
  constexpr int64_t kMostBytes = 48 * 1024;
  int64_t warps = spec.few ? kFewChoices / 32 : 32;
  while (warps > 1 && ChoiceSorter::sharedBytes(spec, warps) > kMostBytes)
    warps /= 2;
  Description kernel;
  kernel.name =
      fmt::format("sort_choices_{}_of_{}{}", spec.chosen, spec.experts, spec.few ? "_few" : "");
  kernel.threads = static_cast<uint32_t>(32 * warps);
  kernel.parameters = Parameters().writes("places").writes("order").writes("items").rows();
  return getOrEmitKernel(module, kernel, [&](KernelBuilder &b, const KernelArguments &arguments) {
    ChoiceSorter(b, spec, warps, arguments).emit();
  });
}

} // namespace easyquant::gpu
