//===- WeighLogits.cpp - Weights of rows, block by block ------------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// A warp has two blocks of logits, a lane two logits of each, 32 apart: sums by halving, as
// LogitBlocks has them.
//
//===----------------------------------------------------------------------===//

#include "LogitOps.h"

#include "easyquant/Codegen/GPU/Choose.h"

using namespace mlir;

namespace easyquant::gpu {

static constexpr int64_t kWarps = 8, kBlocksOfWarp = 2;

static void emitBlock(KernelBuilder &b, const KernelArguments &arguments, const ChoiceOfRow &choice,
                      Value block, Value least, int64_t vocabulary) {
  Value lane = b.rem(b.thread(), 32);
  Value row = b.rowOf(arguments["kept"], choice.slot, formats::keptLogits(vocabulary), b.f32());
  const LogitPair pair(b, row, block, lane, vocabulary);
  Value sum =
      b.warpSum(b.addf(choice.weight(b, pair.x[0], least), choice.weight(b, pair.x[1], least)));
  Value greatest = b.maxf(pair.x[0], pair.x[1]);
  for (int64_t mask = 16; mask > 0; mask /= 2)
    greatest = b.maxf(greatest, b.shuffleXor(greatest, mask));
  b.ifThen(b.equal(lane, 0), [&] {
    for (auto [name, value] : {std::pair("tops", greatest), std::pair("sums", sum)}) {
      Value of = b.rowOf(arguments[name], b.block(0), blocksOfLogits(vocabulary), b.f32());
      b.store(value, b.advance(of, block, b.f32()));
    }
  });
}

Description getOrEmit(mlir::gpu::GPUModuleOp module, const WeighLogitsSpec &spec, const Chip &) {
  const int64_t blocks = blocksOfLogits(spec.vocabulary);
  Description kernel;
  kernel.name = fmt::format("weigh_logits_{}", spec.vocabulary);
  kernel.threads = 32 * kWarps;
  kernel.grid[0].rowsPerBlock = 1;
  kernel.grid[1].factor = divideCeil(blocks, kWarps * kBlocksOfWarp);
  kernel.parameters = Parameters()
                          .reads("kept")
                          .reads("greatest")
                          .reads("choices")
                          .reads("settings")
                          .writes("tops")
                          .writes("sums")
                          .rows();
  return getOrEmitKernel(module, kernel, [&](KernelBuilder &b, const KernelArguments &arguments) {
    const ChoiceOfRow choice(b, arguments, b.block(0));
    // Where few tokens stay, min_p is asked of them alone.
    Value least =
        b.select(choice.isWhole, choice.least, b.constant(b.f32(), formats::kLeastExponent));
    Value first = b.mul(b.add(b.mul(b.block(1), kWarps), b.warp()), kBlocksOfWarp);
    for (int64_t i = 0; i < kBlocksOfWarp; ++i) {
      Value block = b.add(first, i);
      b.ifThen(b.less(block, blocks),
               [&] { emitBlock(b, arguments, choice, block, least, spec.vocabulary); });
    }
  });
}

} // namespace easyquant::gpu
