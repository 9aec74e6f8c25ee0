//===- Attention.cpp - The launches of attention --------------------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "AttentionBlock.h"

#include <bit>
#include <limits>

using namespace mlir;

namespace easyquant::gpu {

static int64_t alignTo16(int64_t bytes) { return divideCeil(bytes, 16) * 16; }

//===- The cache ----------------------------------------------------------===//

CodeCache::CodeCache(const AttentionSpec &spec)
    : kv(*spec.kv), floatRows(kv.sinks + kv.residual), codeBytes(spec.headDim * kv.bits / 8),
      width(std::min(kv.group, spec.headDim)), slices(numerics::kvSlices(kv, spec.headDim)),
      pageTokens(numerics::pageTokens(kv.group)) {
  constexpr int64_t kAlignment = 64;
  auto align = [](int64_t bytes) { return divideCeil(bytes, kAlignment) * kAlignment; };
  const int64_t tokenSlices = pageTokens * slices * 4;
  const int64_t channelSlices = pageTokens / kv.group * 2 * spec.headDim * 2;
  valueCodes = pageTokens * codeBytes;
  valueSlices = 2 * valueCodes;
  keySlices = valueSlices + tokenSlices;
  headBytes =
      align(keySlices + (kv.keys == numerics::KeySlices::Token ? tokenSlices : channelSlices));
  floatValues = align(spec.kvHeads * floatRows * spec.headDim * 2);
  bytes = {pageTokens, spec.kvHeads * headBytes, 2 * floatValues};
}

CacheBytes cacheBytes(const AttentionSpec &spec) {
  if (spec.kv)
    return CodeCache(spec).bytes;
  return {numerics::kPageTokens, spec.kvHeads * 2 * floatPageBytes(spec), 0};
}

//===- Tiles --------------------------------------------------------------===//

/// Stretches that the tokens are cut into, so that each multiprocessor has two blocks at M = 1: a
/// power of two.
static int64_t splitsOf(const AttentionSpec &spec, const AttentionTile &tile, const Chip &chip) {
  constexpr int64_t kMost = 64;
  int64_t blocks = spec.ranks * spec.kvHeads * QueryCut(spec, tile).chunks;
  int64_t splits = 1;
  while (splits < kMost && splits * blocks < 2 * chip.multiprocessors)
    splits *= 2;
  return splits;
}

static AttentionTile tileOf(const AttentionSpec &spec, AttentionKernel::Form form) {
  constexpr int64_t kWarps = 4;
  bool matrix = spec.headDim % 16 == 0 && spec.headDim <= 256;
  if (!matrix)
    return {16, 32, kWarps, false};
  if (form == AttentionKernel::Split) // every warp has the same queries, and a part of the tokens
    return {16, 16 * kWarps, kWarps, true};
  return {16 * kWarps, spec.headDim <= 128 ? 64 : 32, kWarps, true};
}

AttentionShared::AttentionShared(const AttentionSpec &spec, const AttentionTile &tile, bool split) {
  auto place = [&](int64_t size) {
    int64_t at = bytes;
    bytes += alignTo16(size);
    return at;
  };
  if (tile.matrix) {
    // An odd number of 16 bytes: eight rows of ldmatrix are in eight different groups of banks.
    rowBytes = 2 * spec.headDim + 16;
    keys = place(tile.tokens * rowBytes);
    values = place(tile.tokens * rowBytes);
    if (!queriesInRegisters(spec))
      queries = place((split ? 1 : tile.warps) * spec.headDim / 16 * 512);
    if (split) {
      bytes = std::max(bytes, tile.warps * 16 * mergeStride(spec.headDim) * 4);
      merge = place(tile.warps * 16 * 8);
    }
    return;
  }
  // An odd number of words: every lane reads the row of its token. Keys make way for values.
  rowBytes = 4 * (spec.headDim | 1);
  keys = values = place(tile.tokens * rowBytes);
  queries = place(tile.queries * spec.headDim * 4);
  weights = place(tile.queries * tile.tokens * 4);
}

//===- Launches -----------------------------------------------------------===//

static std::string schemeName(const AttentionSpec &spec) {
  const numerics::KVScheme &kv = *spec.kv;
  return fmt::format("kv{}_group{}_residual{}_sinks{}{}", kv.bits, kv.group, kv.residual, kv.sinks,
                     kv.keys == numerics::KeySlices::Token ? "_token" : "");
}
static std::string cacheName(const AttentionSpec &spec) {
  std::string name = fmt::format("{}x{}", spec.kvHeads, spec.headDim);
  return spec.kv ? name + "_" + schemeName(spec) : name;
}

static std::string symbolName(const AttentionSpec &spec) {
  std::string name =
      fmt::format("attention_{}of{}x{}_scale{:x}", spec.heads, spec.kvHeads, spec.headDim,
                  std::bit_cast<uint32_t>(static_cast<float>(spec.scale)));
  if (spec.window > 0)
    name += fmt::format("_window{}", spec.window);
  if (spec.kv)
    name += "_" + schemeName(spec);
  if (spec.keyPositions > 0)
    name += fmt::format("_rope{}", spec.keyPositions);
  if (spec.keyPositions > 0 && spec.rotated() != spec.headDim)
    name += fmt::format("_first{}", spec.rotated());
  return name;
}

/// The layer's part of the cache.
static Parameters &addCache(Parameters &parameters, const AttentionSpec &spec, bool written) {
  const bool isQuantized = spec.kv.has_value();
  if (!written)
    return parameters.reads("cache")
        .constants("pages")
        .reads("windows", isQuantized)
        .constants("window", isQuantized);
  return parameters.writes("cache")
      .constants("pages")
      .writes("windows", isQuantized)
      .constants("window", isQuantized);
}

/// What a kernel takes that brings keys and values to the cache.
static std::vector<Parameter> appendParameters(const AttentionSpec &spec) {
  Parameters parameters;
  addCache(parameters.readsRows("k").readsRows("v"), spec, /*written=*/true);
  return parameters.constants("position").rows();
}

/// Writes float rows, to a float cache or to the window of a cache of codes.
static Description describeAppend(const AttentionSpec &spec) {
  Description description;
  description.name = (spec.kv ? "kv_window_" : "kv_append_") + cacheName(spec);
  description.parameters = appendParameters(spec);
  description.grid[0].rowsPerBlock = 1;
  description.threads = kCacheThreads;
  return description;
}

/// Makes codes of what leaves the float window: a block has a group of tokens of one head, of keys
/// or values.
static Description describeQuantize(const AttentionSpec &spec) {
  Description description;
  description.name = "kv_quantize_" + cacheName(spec);
  description.parameters = appendParameters(spec);
  description.grid[0] = {spec.kv->residual / spec.kv->group, spec.kv->residual};
  description.grid[1].factor = spec.kvHeads;
  description.grid[2].factor = 2;
  description.threads = kCacheThreads;
  return description;
}

static Description describeAttend(const AttentionSpec &spec, const AttentionKernel &kernel) {
  Description description;
  bool final = kernel.splits == 1;
  description.name = symbolName(spec);
  description.name +=
      kernel.form == AttentionKernel::Split ? fmt::format("_split{}", kernel.splits) : "_blocked";
  if (final)
    description.name += fmt::format("_{}", nameOf(spec.output));
  Parameters parameters;
  parameters.readsRows("q").readsRows("k", spec.kv.has_value()).readsRows("v", spec.kv.has_value());
  addCache(parameters, spec, /*written=*/false);
  parameters.constants("table", spec.keyPositions > 0).constants("position");
  description.parameters = parameters.writesRows("y", final).writes("scratch", !final).rows();
  QueryCut cut(spec, kernel.tile);
  description.grid[0] = {cut.chunks, cut.tokens};
  description.grid[1].factor = spec.kvHeads;
  description.grid[2].factor = kernel.splits;
  description.threads = static_cast<uint32_t>(kernel.tile.threads());
  description.sharedBytes =
      AttentionShared(spec, kernel.tile, kernel.form == AttentionKernel::Split).bytes;
  // With a whole tile of scores in registers, four blocks of narrow heads would be one too many.
  bool blocked = kernel.form == AttentionKernel::Blocked;
  description.blocksPerSM = spec.headDim <= 64 ? (blocked ? 3 : 4) : spec.headDim <= 128 ? 2 : 1;
  return description;
}

static Description describeCombine(const AttentionSpec &spec, int64_t splits) {
  Description description;
  description.name = fmt::format("attention_combine_{}x{}_split{}_{}", spec.heads, spec.headDim,
                                 splits, nameOf(spec.output));
  description.parameters = Parameters().reads("scratch").writesRows("y").rows();
  description.grid[0].rowsPerBlock = 1;
  description.grid[1].factor = spec.heads;
  description.threads = 128;
  description.blocksPerSM = 8; // registers for the loads of several stretches at once
  return description;
}

Result<std::vector<AttentionKernel>> attentionKernels(const AttentionSpec &spec, const Chip &chip) {
  constexpr int64_t kSplitRows = 8, kAny = std::numeric_limits<int64_t>::max();
  if (spec.headDim > kMostHeadDim)
    return makeError(ErrorCode::Unsupported,
                     "no GPU kernel for attention with heads of {} dimensions; expected at most {}",
                     spec.headDim, kMostHeadDim);
  if (spec.bound > 0)
    return makeError(ErrorCode::Unsupported,
                     "no GPU kernel for attention whose products are held within {} by a soft cap",
                     spec.bound);
  std::vector<AttentionKernel> kernels;
  for (auto form : {AttentionKernel::Split, AttentionKernel::Blocked}) {
    AttentionKernel kernel;
    kernel.form = form;
    kernel.tile = tileOf(spec, form);
    kernel.maxRows = kAny;
    if (form == AttentionKernel::Split) {
      kernel.maxRows = kSplitRows;
      kernel.splits = splitsOf(spec, kernel.tile, chip);
    }
    if (!spec.kv && !spec.appended)
      kernel.launches.push_back(describeAppend(spec));
    kernel.launches.push_back(describeAttend(spec, kernel));
    if (kernel.splits > 1) {
      // Sums of the values, and of each the maximum and the sum of weights.
      kernel.scratchBytesPerRow = spec.heads * kernel.splits * (spec.headDim + 2) * 4;
      kernel.launches.push_back(describeCombine(spec, kernel.splits));
    }
    if (spec.kv) {
      // Only now: what a call pushes out of the window, it still sees in float.
      kernel.launches.push_back(describeQuantize(spec));
      kernel.launches.push_back(describeAppend(spec));
    }
    kernels.push_back(kernel);
  }
  return kernels;
}

/// A launch is what its name begins with.
static void emitLaunch(KernelBuilder &b, const AttentionSpec &spec, const AttentionKernel &kernel,
                       StringRef name, const KernelArguments &arguments) {
  if (name.starts_with("kv_append_") || name.starts_with("kv_window_"))
    return emitAppend(b, spec, arguments);
  if (name.starts_with("kv_quantize_"))
    return emitQuantize(b, spec, arguments);
  if (name.starts_with("attention_combine_"))
    return emitCombine(b, spec, kernel.splits, arguments);
  if (kernel.tile.matrix)
    return emitMatrixAttention(b, spec, kernel, arguments);
  emitScalarAttention(b, spec, kernel, arguments);
}

std::vector<Description> getOrEmit(mlir::gpu::GPUModuleOp module, const AttentionSpec &spec,
                                   const AttentionKernel &kernel) {
  for (const Description &launch : kernel.launches)
    getOrEmitKernel(module, launch, [&](KernelBuilder &b, const KernelArguments &arguments) {
      emitLaunch(b, spec, kernel, launch.name, arguments);
    });
  return kernel.launches;
}

Description getOrEmitRestore(mlir::gpu::GPUModuleOp module, const AttentionSpec &spec) {
  Parameters parameters;
  addCache(parameters, spec, /*written=*/true).constants("position").constants("held");
  Description kernel;
  kernel.name = "kv_restore_" + cacheName(spec);
  kernel.parameters = parameters.list;
  kernel.grid[0].factor = spec.kv->residual;
  kernel.grid[1].factor = spec.kvHeads;
  kernel.threads = kCacheThreads;
  return getOrEmitKernel(module, kernel, [&](KernelBuilder &b, const KernelArguments &arguments) {
    emitRestore(b, spec, arguments);
  });
}

} // namespace easyquant::gpu
