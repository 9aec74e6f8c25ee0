//===- IntegerGemm.cpp - int8 activations times packed weights ------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// mma.sync m16n8k32 on signed bytes, on the ring of GemmRing.h: weights come into registers by one
// 16-byte load a lane and block.
//
// Weights of fewer bits than eight are unpacked in registers to bytes that are 2^(8 - b) times the
// code (the field moved to the top of its byte, the rest masked): a shift and a mask make four
// signed bytes, which subtracting an offset would not. Sums are then exact multiples of 2^(8 - b).
//
// With scales per group, integer accumulators live for one group and are added to float ones with
// the group's scales, which were fetched when the group began.
//
//===----------------------------------------------------------------------===//

#include "GemmRing.h"
#include "LinearEpilogue.h"
#include "LinearKernels.h"
#include "UnpackedWeights.h"

using namespace mlir;

namespace easyquant::gpu {
namespace {

class IntegerGemm {
public:
  IntegerGemm(KernelBuilder &b, const LinearSpec &spec, const GemmTile &tile,
              const KernelArguments &arguments)
      : b(b), spec(spec), ring(b, {spec.n, spec.k, spec.bits, spec.groupSize, spec.groups(), 1},
                               tile, arguments["codes"], paddedColumns(spec.k),
                               paddedColumns(spec.k), arguments["w"], arguments["rows"]),
        epilogue(b, spec, arguments, 2, 8 - spec.bits) {}

  void emit();

private:
  using Values = KernelBuilder::Values;
  using Columns = SmallVector<LinearEpilogue::ColumnTerms>;

  Values multiplySlab(Value stage, Values accumulators);
  /// The two registers of each 8-column tile of a block row.
  SmallVector<std::array<Value, 2>> loadWeights(Value stage, int64_t blockRow, int64_t step);
  Columns columnsOf(Value group);
  Values addGroup(Value group, ArrayRef<Value> accumulators, ArrayRef<Value> sums,
                  const Columns &columns);
  Values multiplyAll();

  KernelBuilder &b;
  const LinearSpec &spec;
  GemmRing ring;
  LinearEpilogue epilogue;
  SmallVector<Value> rowZeros; ///< zero points of the thread's rows
};

} // namespace

SmallVector<std::array<Value, 2>> IntegerGemm::loadWeights(Value stage, int64_t blockRow,
                                                           int64_t step) {
  Value pointer = ring.weightBlock(stage, blockRow, step, b.mul(ring.lane, 16));
  Value words = b.load(pointer, b.vec(4, b.i32()));
  return unpackBytes(b, spec.bits, b.elements(words));
}

IntegerGemm::Values IntegerGemm::multiplySlab(Value stage, Values accumulators) {
  for (int64_t step = 0; step < ring.steps(); ++step) {
    SmallVector<Values> a;
    for (int64_t i = 0; i < ring.mTiles(); ++i)
      a.push_back(ring.loadActivations(stage, i, step));
    SmallVector<std::array<Value, 2>> w;
    for (int64_t block = 0; block < ring.blocksDown(); ++block)
      llvm::append_range(w, loadWeights(stage, block, step));
    for (int64_t i = 0; i < ring.mTiles(); ++i)
      for (int64_t j = 0; j < ring.nTiles(); ++j) {
        int64_t at = ring.at(i, j, 0);
        Values d = b.multiplyBytes(a[i], w[j], ArrayRef(accumulators).slice(at, 4));
        llvm::copy(d, accumulators.begin() + at);
      }
  }
  return accumulators;
}

IntegerGemm::Columns IntegerGemm::columnsOf(Value group) {
  Columns columns;
  for (int64_t j = 0; j < ring.nTiles(); ++j)
    columns.push_back(epilogue.columnTerms(group, ring.paddedColumn(ring.columnOf(j), 2)));
  return columns;
}

IntegerGemm::Values IntegerGemm::addGroup(Value group, ArrayRef<Value> accumulators,
                                          ArrayRef<Value> sums, const Columns &columns) {
  Values results(sums.begin(), sums.end());
  results.resize(accumulators.size());
  for (int64_t i = 0; i < ring.mTiles(); ++i)
    for (int64_t half = 0; half < 2; ++half) {
      Value m = ring.rowOf(i, half);
      Value rowSum = epilogue.rowSum(m, group, b.less(m, ring.rows));
      Value rowZero = rowZeros.empty() ? Value() : rowZeros[2 * i + half];
      for (int64_t j = 0; j < ring.nTiles(); ++j) {
        int64_t first = ring.at(i, j, 2 * half);
        Values t = epilogue.addGroup(accumulators.slice(first, 2), columns[j], rowSum, rowZero,
                                     sums.empty() ? sums : sums.slice(first, 2));
        llvm::copy(t, results.begin() + first);
      }
    }
  return results;
}

/// The sums of all groups, scaled.
IntegerGemm::Values IntegerGemm::multiplyAll() {
  constexpr int64_t kState = GemmRing::kState;
  const Values zeros(ring.registers(), b.i32(0));
  auto multiply = [&](Value stage, Values accumulators) {
    return multiplySlab(stage, std::move(accumulators));
  };
  Values carried = ring.begin();
  if (spec.groups() == 1) {
    llvm::append_range(carried, zeros);
    carried = ring.multiply(ring.slabs(), carried, multiply);
    return addGroup(b.i32(0), ArrayRef(carried).drop_front(kState), {}, columnsOf(b.i32(0)));
  }
  carried.append(ring.registers(), b.zero(b.f32()));
  carried = b.forLoop(0, spec.groups(), 1, carried, [&](Value group, ValueRange carried) {
    Columns columns = columnsOf(group);
    Values inner(carried.take_front(kState));
    llvm::append_range(inner, zeros);
    inner = ring.multiply(ring.slabsOfGroup(), inner, multiply);
    Values results(ArrayRef(inner).take_front(kState));
    llvm::append_range(results, addGroup(group, ArrayRef(inner).drop_front(kState),
                                         Values(carried.drop_front(kState)), columns));
    return results;
  });
  return Values(ArrayRef(carried).drop_front(kState));
}

void IntegerGemm::emit() {
  if (spec.inputZeroPoints)
    for (int64_t i = 0; i < ring.mTiles(); ++i)
      for (int64_t half = 0; half < 2; ++half) {
        Value m = ring.rowOf(i, half);
        rowZeros.push_back(epilogue.rowZero(m, b.less(m, ring.rows)));
      }
  Values sums = multiplyAll();
  ring.end();
  epilogue.writer.columnsAreWhole = ring.columnsAreWhole();
  ring.forRows([&](int64_t i, int64_t half, Value m) {
    Value scale = epilogue.rowScale(m, Value());
    for (int64_t j = 0; j < ring.nTiles(); ++j)
      epilogue.write(m, ring.columnOf(j), scale, ArrayRef(sums).slice(ring.at(i, j, 2 * half), 2));
  });
}

void emitMatrixLinear(KernelBuilder &b, const LinearSpec &spec, const GemmTile &tile,
                      const KernelArguments &arguments) {
  IntegerGemm(b, spec, tile, arguments).emit();
}

} // namespace easyquant::gpu
