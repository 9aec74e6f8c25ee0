//===- MaskClusters.cpp - Logits of tokens in chosen clusters -------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Several blocks have the tokens of a row. Each finds the least score that is chosen, from scores
// that its threads keep in registers: the greatest one, then the greatest below it, and so on.
//
//===----------------------------------------------------------------------===//

#include "KernelBuilder.h"

#include "easyquant/Codegen/GPU/MaskClusters.h"

#include "mlir/Dialect/Arith/IR/Arith.h"

#include <limits>

using namespace mlir;

namespace easyquant::gpu {
namespace {

constexpr int64_t kThreads = 256, kWarps = kThreads / 32, kTokensOfThread = 16;
static_assert(MaskClustersSpec::kMostClusters % kThreads == 0);

class MaskEmitter {
public:
  MaskEmitter(KernelBuilder &b, const MaskClustersSpec &spec, const KernelArguments &arguments)
      : b(b), spec(spec), arguments(arguments),
        tops(b.sharedMemory(2 * kThreads * int64_t(sizeof(float)))) {}
  void emit();

private:
  Value constant(double value) { return b.constant(b.f32(), value); }
  /// The greatest of the block's values: those of warps go to one of two places in turns, so that
  /// nobody overwrites what another warp still reads. Every lane has a word of its own there, since
  /// a branch would part lanes in front of the barrier.
  Value greatestOf(Value x, Value turn);

  KernelBuilder &b;
  const MaskClustersSpec &spec;
  const KernelArguments &arguments;
  Value tops;
};

} // namespace

Value MaskEmitter::greatestOf(Value x, Value turn) {
  for (int64_t mask = 16; mask > 0; mask /= 2)
    x = b.maxf(x, b.shuffleXor(x, mask));
  Value places = b.advance(tops, b.mul(b.andi(turn, 1), kThreads), b.f32());
  b.store(x, b.advance(places, b.thread(), b.f32()));
  b.barrier();
  for (int64_t warp = 0; warp < kWarps; ++warp)
    x = b.maxf(x, b.load(b.advance(places, warp * 32, b.f32()), b.f32()));
  return x;
}

void MaskEmitter::emit() {
  constexpr double infinity = std::numeric_limits<double>::infinity();
  Value row = b.block(0);
  Value scores = b.rowOf(arguments["scores"], row, arguments["scores_stride"], b.f32());
  Value logits = b.rowOf(arguments["logits"], row, arguments["logits_stride"], b.f32());
  KernelBuilder::Values own;
  for (int64_t first = 0; first < spec.clusters; first += kThreads) {
    Value cluster = b.add(b.thread(), first);
    Value isThere = first + kThreads > spec.clusters ? b.less(cluster, spec.clusters) : Value();
    own.push_back(b.guarded(isThere, constant(-infinity),
                            [&] { return b.load(b.advance(scores, cluster, b.f32()), b.f32()); }));
  }
  Value least = b.forLoop(
      0, spec.chosen, 1, ValueRange{constant(infinity)}, [&](Value turn, ValueRange bound) {
        Value greatest = constant(-infinity);
        for (Value score : own) {
          Value isBelow = b.compare(arith::CmpFPredicate::OLT, score, bound[0]);
          greatest = b.maxf(b.select(isBelow, score, constant(-infinity)), greatest);
        }
        return KernelBuilder::Values{greatestOf(greatest, turn)};
      })[0];
  Value first = b.add(b.mul(b.block(1), kThreads * kTokensOfThread), b.thread());
  for (int64_t i = 0; i < kTokensOfThread; ++i) {
    Value token = b.add(first, i * kThreads);
    b.ifThen(b.less(token, spec.tokens), [&] {
      Value cluster = b.load(b.advance(arguments["clusters"], token, b.f32()), b.f32(), true);
      Value number = arith::FPToSIOp::create(b, b.i32(), cluster);
      Value score = b.load(b.advance(scores, number, b.f32()), b.f32());
      b.ifThen(b.compare(arith::CmpFPredicate::OLT, score, least), [&] {
        b.store(constant(std::numeric_limits<float>::lowest()), b.advance(logits, token, b.f32()));
      });
    });
  }
}

Description getOrEmit(mlir::gpu::GPUModuleOp module, const MaskClustersSpec &spec, const Chip &) {
  Description kernel;
  kernel.name = fmt::format("mask_clusters_{}of{}_{}", spec.chosen, spec.clusters, spec.tokens);
  kernel.threads = kThreads;
  kernel.grid[0].rowsPerBlock = 1;
  kernel.grid[1].factor = divideCeil(spec.tokens, kThreads * kTokensOfThread);
  kernel.parameters =
      Parameters().writesRows("logits").readsRows("scores").constants("clusters").rows();
  return getOrEmitKernel(module, kernel, [&](KernelBuilder &b, const KernelArguments &arguments) {
    MaskEmitter(b, spec, arguments).emit();
  });
}

} // namespace easyquant::gpu
