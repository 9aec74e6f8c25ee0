//===- Attention.cpp - The launches of attention --------------------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "AttentionBlock.h"
#include "RowEmitter.h"

#include <bit>

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

RawTile::RawTile(const CodeCache &cache, const AttentionSpec &spec, int64_t tokens)
    : codes(tokens * cache.codeBytes), valueSlices(tokens * cache.slices * 4) {
  const int64_t groups = divideCeil(tokens, cache.kv.group);
  keySlices =
      cache.kv.keys == numerics::KeySlices::Token ? valueSlices : groups * 2 * spec.headDim * 2;
}

CacheBytes cacheBytes(const AttentionSpec &spec) {
  if (spec.kv)
    return CodeCache(spec).bytes;
  return {numerics::kPageTokens, spec.kvHeads * 2 * floatPageBytes(spec), 0};
}

//===- Tiles --------------------------------------------------------------===//

static AttentionTile tileOf(const AttentionSpec &spec, AttentionKernel::Form form) {
  constexpr int64_t kWarps = 4, kColumns = 256; // of a warp, at most
  const bool isWide = spec.headDim > kColumns;
  const int64_t columnWarps = isWide ? 4 : 1, warps = isWide ? 2 * kWarps : kWarps;
  const int64_t rows = 16 * warps / columnWarps;
  if (spec.headDim % (16 * columnWarps) != 0)
    return {16, 32, kWarps, false};
  if (form == AttentionKernel::Split) // every warp has the same queries, and a part of the tokens
    return {16, rows, warps, true, columnWarps};
  return {rows, spec.headDim <= 128 ? 64 : 32, warps, true, columnWarps};
}

int64_t firstTileToken(const AttentionSpec &spec, const AttentionTile &tile) {
  const int64_t sinks = spec.kv ? spec.kv->sinks % tile.tokens : 0;
  return sinks == 0 ? 0 : sinks - tile.tokens;
}

PartialPlace::PartialPlace(const AttentionSpec &spec)
    : values(divideCeil(2 * spec.heads, 4) * 4),
      stride(divideCeil(values + spec.heads * spec.headDim, 4) * 4) {}

AttentionShared::AttentionShared(const AttentionSpec &spec, const AttentionTile &tile, bool split) {
  auto place = [&](int64_t size) {
    int64_t at = bytes;
    bytes += alignTo16(size);
    return at;
  };
  if (tile.matrix) {
    // An odd number of 16 bytes: eight rows of ldmatrix are in eight different groups of banks.
    rowBytes = 2 * spec.headDim + 16;
    stageBytes = alignTo16(tile.tokens * rowBytes);
    const int64_t floats = spec.kv ? 1 : tile.stages;
    keys = place(floats * stageBytes);
    values = place(floats * stageBytes);
    if (spec.kv && tile.stages > 1) {
      stageBytes = alignTo16(RawTile(CodeCache(spec), spec, tile.tokens).bytes());
      coded = place(tile.stages * stageBytes);
    }
    const int64_t rowWarps = tile.warps / tile.columnWarps;
    if (!queriesInRegisters(spec))
      queries = place((split ? 1 : rowWarps) * spec.headDim / 16 * 512);
    if (split) {
      bytes = std::max(bytes, rowWarps * 16 * mergeStride(spec.headDim) * 4);
      merge = place(rowWarps * 16 * 8);
    }
    return;
  }
  // An odd number of words: every lane reads the row of its token. Keys make way for values.
  rowBytes = 4 * (spec.headDim | 1);
  keys = values = place(tile.tokens * rowBytes);
  queries = place(tile.queries * spec.headDim * 4);
  weights = place(tile.queries * tile.tokens * 4);
}

/// As many stages as shared memory has room for, beside other blocks of a multiprocessor.
static void addStages(AttentionTile &tile, const AttentionSpec &spec, bool split, int64_t blocks,
                      const Chip &chip) {
  constexpr int64_t kMostStages = 3;
  if (!tile.matrix || (spec.kv && !RawTile::fits(spec, tile.tokens)))
    return;
  const int64_t most = chip.sharedBytesOf(blocks);
  while (tile.stages < kMostStages) {
    ++tile.stages;
    int64_t bytes = AttentionShared(spec, tile, split).bytes;
    if (spec.codes)
      bytes = std::max(bytes, bytesForCodes(spec, tile));
    if (bytes > most) {
      --tile.stages;
      return;
    }
  }
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
  if (spec.bound > 0)
    name += fmt::format("_bound{:x}", std::bit_cast<uint32_t>(static_cast<float>(spec.bound)));
  if (spec.sinkLogits)
    name += "_sinklogits";
  if (spec.kv)
    name += "_" + schemeName(spec);
  if (spec.keyPositions > 0)
    name += fmt::format("_rope{}", spec.keyPositions);
  if (spec.keyPositions > 0 && spec.rotated() != spec.headDim)
    name += fmt::format("_first{}", spec.rotated());
  if (spec.codes)
    name += "_" + describe(*spec.codes).name;
  return name;
}

/// The layer's part of the cache, and what tells a sequence's part of that.
static Parameters &addCache(Parameters &parameters, const AttentionSpec &spec, bool written) {
  const bool isQuantized = spec.kv.has_value();
  written ? parameters.writes("cache") : parameters.reads("cache");
  parameters.constants("pages");
  written ? parameters.writes("windows", isQuantized) : parameters.reads("windows", isQuantized);
  return parameters.number("window_bytes", isQuantized).constants("sequences");
}

/// What a kernel takes that brings keys and values to the cache.
static std::vector<Parameter> appendParameters(const AttentionSpec &spec) {
  Parameters parameters;
  addCache(parameters.readsRows("k").readsRows("v"), spec, /*written=*/true);
  return parameters.constants("row_places").rows();
}

/// Writes float rows to a float cache.
static Description describeAppend(const AttentionSpec &spec) {
  Description description;
  description.name = "kv_append_" + cacheName(spec);
  description.parameters = appendParameters(spec);
  description.grid[0].rowsPerBlock = 1;
  description.threads = kCacheThreads;
  return description;
}

/// Makes codes of what leaves the float window behind a row, in whose place later rows go.
static Description describeQuantize(const AttentionSpec &spec) {
  Description description;
  description.name = "kv_quantize_" + cacheName(spec);
  description.parameters = appendParameters(spec);
  description.grid[0].rowsPerBlock = 1;
  description.grid[1].factor = spec.kvHeads;
  description.grid[2].factor = 1 + spec.kv->residual / spec.kv->group;
  description.threads = kCacheThreads;
  return description;
}

/// Blocks of a multiprocessor.
static int64_t blocksOf(const AttentionSpec &spec) { return spec.headDim <= 128 ? 2 : 1; }

static Description describeAttend(const AttentionSpec &spec, const AttentionKernel &kernel,
                                  const Chip &chip) {
  Description description;
  const bool isCut = kernel.cut.tokens > 0;
  description.name = symbolName(spec);
  description.name += isCut ? fmt::format("_split{}", kernel.cut.tokens) : "_blocked";
  description.name += fmt::format("_{}", nameOf(spec.output));
  Parameters parameters;
  parameters.readsRows("q").readsRows("k", spec.kv.has_value()).readsRows("v", spec.kv.has_value());
  addCache(parameters, spec, /*written=*/false);
  description.parameters = parameters.constants("table", spec.keyPositions > 0)
                               .constants("sink_logits", spec.sinkLogits)
                               .constants("pieces")
                               .writes("partials", isCut)
                               .writes("partial_counters", isCut)
                               .writesRows(spec.codes ? "x" : "y")
                               .writes("row_counters", spec.codes.has_value())
                               .list;
  if (spec.codes)
    description.parameters = addCodes(parameters, *spec.codes).list;
  // All of a grid's blocks are resident: they take turns with the pieces of a step.
  description.blocksPerSM = blocksOf(spec);
  description.grid[0].factor = description.blocksPerSM * chip.multiprocessors;
  description.threads = static_cast<uint32_t>(kernel.tile.threads());
  description.sharedBytes =
      AttentionShared(spec, kernel.tile, kernel.form == AttentionKernel::Split).bytes;
  if (spec.codes)
    description.sharedBytes = std::max(description.sharedBytes, bytesForCodes(spec, kernel.tile));
  return description;
}

static AttentionKernel kernelOf(const AttentionSpec &spec, AttentionKernel::Form form,
                                const Chip &chip) {
  // A token, and what --draft-tokens guesses behind it by default: they are attended to alike.
  constexpr int64_t kSplitRows = 9, kPieceTokens = 256;
  AttentionKernel kernel;
  kernel.form = form;
  kernel.tile = tileOf(spec, form);
  addStages(kernel.tile, spec, form == AttentionKernel::Split, blocksOf(spec), chip);
  const QueryCut queries(spec, kernel.tile);
  kernel.cut.rows = queries.tokens;
  kernel.cut.window = spec.window;
  kernel.cut.origin = firstTileToken(spec, kernel.tile);
  if (form == AttentionKernel::Split) {
    kernel.cut.maxRows = kSplitRows;
    kernel.cut.tokens = kPieceTokens;
    kernel.partialBytes = PartialPlace(spec).bytes();
    kernel.partialCounters = spec.kvHeads * queries.chunks;
  } else {
    kernel.cut.minRows = kSplitRows + 1;
  }
  kernel.launch = describeAttend(spec, kernel, chip);
  return kernel;
}

Result<AttentionLaunches> attentionLaunches(const AttentionSpec &spec, const Chip &chip) {
  if (spec.headDim > kMostHeadDim)
    return makeError(ErrorCode::Unsupported,
                     "no GPU kernel for attention with heads of {} dimensions; expected at most {}",
                     spec.headDim, kMostHeadDim);
  AttentionLaunches launches;
  if (!spec.kv && !spec.appended)
    launches.before.push_back(describeAppend(spec));
  for (auto form : {AttentionKernel::Split, AttentionKernel::Blocked})
    launches.kernels.push_back(kernelOf(spec, form, chip));
  // Only now: what a step pushes out of the window, it still sees in float.
  if (spec.kv)
    launches.behind = {describeQuantize(spec)};
  return launches;
}

void getOrEmit(mlir::gpu::GPUModuleOp module, const AttentionSpec &spec,
               const AttentionLaunches &launches) {
  auto fill = [&](const Description &launch, auto emit) {
    getOrEmitKernel(module, launch, [&](KernelBuilder &b, const KernelArguments &arguments) {
      emit(b, spec, arguments);
    });
  };
  for (const Description &launch : launches.before)
    fill(launch, emitAppend);
  for (const AttentionKernel &kernel : launches.kernels)
    getOrEmitKernel(module, kernel.launch, [&](KernelBuilder &b, const KernelArguments &arguments) {
      emitAttention(b, spec, kernel, arguments);
    });
  for (const Description &launch : launches.behind)
    fill(launch, emitQuantize);
}

Description getOrEmitRestore(mlir::gpu::GPUModuleOp module, const AttentionSpec &spec) {
  Parameters parameters;
  Description kernel;
  kernel.name = "kv_restore_" + cacheName(spec);
  kernel.parameters = addCache(parameters, spec, /*written=*/true).constants("row_places").list;
  kernel.grid[0] = {spec.kv->residual, 1};
  kernel.grid[1].factor = spec.kvHeads;
  kernel.threads = kCacheThreads;
  return getOrEmitKernel(module, kernel, [&](KernelBuilder &b, const KernelArguments &arguments) {
    emitRestore(b, spec, arguments);
  });
}

} // namespace easyquant::gpu
