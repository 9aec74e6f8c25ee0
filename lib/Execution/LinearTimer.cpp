//===- LinearTimer.cpp - How long a linear's kernel takes -----------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "easyquant/Execution/LinearTimer.h"

#include "HostProgram.h"

#include "easyquant/Dialect/Equant/Analysis/StoredBytes.h"
#include "easyquant/Dialect/Launch/IR/Launch.h"
#include "easyquant/Execution/CompiledSubgraph.h"
#include "easyquant/Runtime/Program.h"
#include "easyquant/Support/Threads.h"
#include "easyquant/Target/CPU/CPUTarget.h"
#include "easyquant/Target/Target.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/MLProgram/IR/MLProgram.h"
#include "mlir/IR/Builders.h"
#include "mlir/IR/OwningOpRef.h"

#include <algorithm>
#include <chrono>
#include <limits>

using namespace mlir;
using namespace easyquant;
using namespace easyquant::execution;

/// More than caches hold.
static constexpr int64_t kOtherBytes = 64 << 20;
static constexpr int kCalls = 15;

Result<LinearTimer> LinearTimer::create(unsigned threads) {
  LinearTimer timer;
  Result<std::string> isa = HostProgram::chooseIsa("", "kernels");
  if (!isa)
    return Unexpected(isa.error());
  timer.instructions = *isa;
  Result<int32_t> count = chooseThreads(threads);
  if (!count)
    return Unexpected(count.error());
  timer.threadCount = static_cast<unsigned>(*count);
  Result<Buffer> memory = allocateMemory(kOtherBytes);
  if (!memory)
    return Unexpected(memory.error());
  timer.other = std::move(*memory);
  return timer;
}

void LinearTimer::emptyCaches() {
  for (int64_t &word : std::span(other.data<int64_t>(), kOtherBytes / sizeof(int64_t)))
    ++word; // written, so that nobody optimizes it away
}

namespace {
/// A module of one linear, on constants that lie one after the other.
struct LinearModule {
  OwningOpRef<ModuleOp> module;
  int64_t weightBytes = 0;
};
} // namespace

static LinearModule buildLinear(Location loc, RankedTensorType weight, equant::SchemeAttr scheme,
                                equant::SchemeAttr input) {
  OpBuilder builder(loc.getContext());
  LinearModule result{ModuleOp::create(loc)};
  const int64_t rows = weight.getDimSize(0), columns = weight.getDimSize(1);
  equant::LayoutAttr layout =
      (*targets::findFamily(cpu::kFamily))->layoutFor(scheme, targets::Readers::of(input));
  const bool isAsymmetric = input && !input.getSymmetric();

  auto type = equant::WeightType::get(rows, columns, scheme, layout,
                                      /*sums=*/input && input.readsWeightSums());
  SmallVector<int64_t> offsets;
  for (const auto &[part, tensor] : type.getParts()) {
    offsets.push_back(result.weightBytes);
    const int64_t bits = tensor.getNumElements() * tensor.getElementTypeBitWidth();
    result.weightBytes += launch::alignUp((bits + 7) / 8);
  }
  builder.setInsertionPointToEnd(result.module->getBody());
  auto global = ml_program::GlobalOp::create(
      builder, loc, "w", type, /*is_mutable=*/false,
      ml_program::ExternAttr::get(builder.getContext(), type), builder.getStringAttr("private"));
  global->setAttr(equant::kOffsetAttr, builder.getDenseI64ArrayAttr(offsets));
  auto activation = [&](int64_t channels) {
    return RankedTensorType::get({ShapedType::kDynamic, channels}, builder.getF32Type());
  };
  auto function = func::FuncOp::create(
      builder, loc, "forward", builder.getFunctionType({activation(columns)}, {activation(rows)}));
  builder.setInsertionPointToStart(function.addEntryBlock());
  Value loaded = ml_program::GlobalLoadConstOp::create(
      builder, loc, type, FlatSymbolRefAttr::get(global.getSymNameAttr()));
  const bool isStatic = input && input.isCalibrated();
  auto linear = equant::PackedLinearOp::create(
      builder, loc, activation(rows), function.getArgument(0), loaded, /*bias=*/Value(),
      /*online=*/Value(), builder.getStrArrayAttr({"timed"}), input,
      isStatic ? builder.getF32FloatAttr(1) : FloatAttr(),
      isStatic && isAsymmetric ? builder.getI32IntegerAttr(0) : IntegerAttr());
  func::ReturnOp::create(builder, loc, linear.getOutput());
  return result;
}

FailureOr<double> LinearTimer::millisecondsOf(Location loc, RankedTensorType weight,
                                              equant::SchemeAttr scheme, equant::SchemeAttr input) {
  LinearModule built = buildLinear(loc, weight, scheme, input);
  auto program = HostProgram::compile(*built.module, instructions, /*maxRows=*/1);
  if (failed(program))
    return failure();
  auto fail = [&](const Error &error) { return emitError(loc) << error.message; };
  const int64_t rows = weight.getDimSize(0), columns = weight.getDimSize(1);
  Result<Buffer> weights = allocateMemory(built.weightBytes),
                 arena = allocateMemory((*program)->arenaBytes +
                                        threadCount * (*program)->arenaBytesPerThread);
  if (!weights || !arena)
    return fail(weights ? arena.error() : weights.error());
  // Pages that nothing was written to share one of zeros. These bytes are small numbers as codes,
  // and as scales of any type.
  std::fill_n(weights->data<uint8_t>(), weights->size(), uint8_t(0x11));

  std::vector<float> x(columns, 0.5f), y(rows);
  auto weightView = memRef1D(weights->data<int8_t>(), weights->size());
  auto arenaView = memRef1D(arena->data<int8_t>(), arena->size());
  auto cache = memRef1D(static_cast<int8_t *>(nullptr), 0);
  auto pages = memRef1D(static_cast<int64_t *>(nullptr), 0);
  MemRef<float, 2> in{x.data(), x.data(), 0, {1, columns}, {columns, 1}},
      out{y.data(), y.data(), 0, {1, rows}, {rows, 1}};
  SmallVector<uintptr_t> arguments;
  for (const void *view :
       std::initializer_list<const void *>{&weightView, &arenaView, &cache, &pages, &in})
    arguments.push_back(reinterpret_cast<uintptr_t>(view));
  arguments.push_back(threadCount);
  arguments.push_back(reinterpret_cast<uintptr_t>(&out));

  double least = std::numeric_limits<double>::infinity();
  for (int call = 0; call <= kCalls; ++call) {
    emptyCaches();
    const auto begin = std::chrono::steady_clock::now();
    if (auto done = (*program)->call(arguments, static_cast<int32_t>(threadCount)); !done)
      return fail(done.error());
    const std::chrono::duration<double, std::milli> taken =
        std::chrono::steady_clock::now() - begin;
    if (call > 0) // the first one starts threads
      least = std::min(least, taken.count());
  }
  return least;
}
