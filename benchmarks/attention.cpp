//===- attention.cpp - Attention and row operations over the roofs --------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// easyquant-attention-bench [--threads N] [--rounds N] [--isa avx2|avx512vnni] [--only caches]
//
// First, decoding behind 4096 tokens over caches of codes and of f16 in turn, and medians of their
// ratios within a round. Then
// one line a kernel and shape: what it reaches, the roof, their ratio, the median over rounds of
// roof, kernel, roof. Prefill counts the multiplications and additions that a causal mask leaves,
// against the FMA rate from registers. Decode and row operations count the bytes that must be read,
// against the bandwidth of reading memory; caches come cold, as from another layer, while rows are
// hot, as the kernel before left them.
//
//===----------------------------------------------------------------------===//

#include "../test/Codegen/CPU/KernelRunner.h"
#include "Roofs.h"

#include "llvm/ADT/StringRef.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <functional>
#include <memory>
#include <optional>
#include <random>
#include <vector>

using namespace easyquant;
using namespace easyquant::cpu;
using bench::Roof;
using Clock = std::chrono::steady_clock;

extern "C" void omp_set_num_threads(int);

namespace {

struct Options {
  int threads = 2, rounds = 7;
  bool cachesOnly = false;
  Target target;
};

constexpr size_t kColdBytes = size_t(256) << 20;

/// Seconds a call, over at least 20 ms.
double timeCalls(const std::function<void()> &call) {
  call();
  for (int64_t calls = 1;; calls *= 2) {
    auto begin = Clock::now();
    for (int64_t i = 0; i < calls; ++i)
      call();
    double seconds = std::chrono::duration<double>(Clock::now() - begin).count();
    if (seconds >= 0.02)
      return seconds / calls;
  }
}

double median(std::vector<double> values) {
  std::ranges::sort(values);
  return values[values.size() / 2];
}

void report(const std::string &name, const Options &options, Roof roof, double amount,
            const std::vector<float> &cold, const std::function<void()> &call) {
  auto measureRoof = [&] {
    return roof == Roof::Read
               ? bench::measureRead(cold.data(), cold.size() * sizeof(float), options.threads)
               : bench::measureOperations(roof, options.threads);
  };
  std::vector<double> times, roofs, ratios;
  double before = measureRoof();
  for (int round = 0; round < options.rounds; ++round) {
    times.push_back(timeCalls(call));
    double after = measureRoof();
    roofs.push_back((before + after) / 2);
    ratios.push_back(amount / times.back() / roofs.back());
    before = after;
  }
  std::printf("%-58s %9.1f us %7.1f %s of %7.1f  %5.1f %%\n", name.c_str(), median(times) * 1e6,
              amount / median(times) * 1e-9, roof == Roof::Read ? "GB/s " : "GOP/s",
              median(roofs) * 1e-9, median(ratios) * 100);
  std::fflush(stdout);
}

/// Pages of a sequence's cache one behind the other, as a session has them.
std::vector<int64_t> pagesInOrder(int64_t first, int64_t count, int64_t bytes) {
  std::vector<int64_t> pages(count);
  for (int64_t i = 0; i < count; ++i)
    pages[i] = first + i * bytes;
  return pages;
}

template <typename T>
void benchAttention(const Options &options, AttentionSpec spec, const std::vector<float> &cold) {
  spec.scale = 1 / std::sqrt(static_cast<double>(spec.headDim));
  spec.halfCache = sizeof(T) == 2;
  KernelRunner run(options.target, [&](mlir::ModuleOp module) {
    return getOrEmitAttention(module, spec, options.target);
  });
  int64_t qColumns = spec.heads * spec.headDim, kvColumns = spec.kvHeads * spec.headDim;
  for (auto [tokens, position] : {std::pair<int64_t, int64_t>{512, 0},
                                  {64, 0},
                                  {512, 1536},
                                  {1, 127},
                                  {1, 511},
                                  {1, 2047},
                                  {1, 8000}}) {
    CacheBytes bytesOf = cacheBytes(spec);
    int64_t count = (position + tokens + bytesOf.pageTokens - 1) / bytesOf.pageTokens;
    int64_t layers = tokens > 1 ? 1 : std::max<int64_t>(1, kColdBytes / (count * bytesOf.page));
    std::vector<int64_t> pages = pagesInOrder(0, count, layers * bytesOf.page);
    std::vector<T> cache(count * layers * bytesOf.page / sizeof(T));
    for (size_t i = 0; i < cache.size(); ++i)
      cache[i] = static_cast<T>(static_cast<float>(i * 7919 % 255) / 127.0f - 1.0f);
    std::vector<float> q(tokens * qColumns, 0.5f), kv(tokens * kvColumns, 0.25f), y(q.size());
    int64_t bytes = options.threads * scratchBytes(spec, options.target);
    std::vector<int8_t> scratch(bytes + 64);
    auto *aligned =
        reinterpret_cast<int8_t *>((reinterpret_cast<uintptr_t>(scratch.data()) + 63) / 64 * 64);
    MemRef<float, 2> qView(q.data(), {tokens, qColumns}), kvView(kv.data(), {tokens, kvColumns}),
        yView(y.data(), {tokens, qColumns});
    MemRef<int8_t, 1> scratchView(aligned, {bytes});
    MemRef<int8_t, 1> cacheView(reinterpret_cast<int8_t *>(cache.data()),
                                {static_cast<int64_t>(cache.size() * sizeof(T))});
    MemRef<int64_t, 1> pagesView(pages.data(), {count});
    int64_t layer = 0;
    auto call = [&, position = position] {
      layer = (layer + 1) % layers;
      int64_t threads = options.threads;
      run(qView, kvView, kvView, cacheView, pagesView, layer * bytesOf.page, position, yView,
          scratchView, threads);
    };
    double products = tokens * (position + (tokens + 1) / 2.0);
    std::string name =
        symbolName(spec) + " " + std::to_string(tokens) + " at " + std::to_string(position);
    if (tokens > 1)
      report(name, options, options.target.isa == Isa::AVX2 ? Roof::FmaAvx2 : Roof::Fma512,
             4.0 * products * qColumns, cold, call);
    else
      report(name, options, Roof::Read, 2.0 * sizeof(T) * (position + 1) * kvColumns, cold, call);
  }
}

/// A cache of many layers, and a call of the kernel of one after the other: one token behind 4096,
/// each at the next position, so that quantizing a block of keys is paid for.
class Decode {
public:
  Decode(const Options &options, AttentionSpec spec, std::optional<KVQuantization> kv)
      : options(options), spec(withCache(spec, kv)),
        run(options.target,
            [&](mlir::ModuleOp module) {
              return getOrEmitAttention(module, this->spec, options.target);
            }),
        ofLayer(cacheBytes(this->spec)), count(kCapacity / ofLayer.pageTokens),
        layers(std::max<int64_t>(1, kColdBytes / (ofLayer.window + count * ofLayer.page))),
        pages(pagesInOrder(layers * ofLayer.window, count, layers * ofLayer.page)),
        // As f16 0.065, so that scales are finite.
        cache(layers * (ofLayer.window + count * ofLayer.page), 0x2c),
        q(spec.heads * spec.headDim, 0.5f), kv(spec.kvHeads * spec.headDim, 0.25f), y(q.size()),
        scratch(options.threads * scratchBytes(this->spec, options.target) + 64) {}

  void operator()() {
    layer = (layer + 1) % layers;
    step = (step + 1) % 128;
    int64_t position = kPosition + step, threads = options.threads;
    int64_t qColumns = spec.heads * spec.headDim, kvColumns = spec.kvHeads * spec.headDim;
    MemRef<float, 2> qView(q.data(), {1, qColumns}), kvView(kv.data(), {1, kvColumns}),
        yView(y.data(), {1, qColumns});
    auto *aligned =
        reinterpret_cast<int8_t *>((reinterpret_cast<uintptr_t>(scratch.data()) + 63) / 64 * 64);
    MemRef<int8_t, 1> scratchView(aligned, {static_cast<int64_t>(scratch.size()) - 64});
    MemRef<int8_t, 1> bytes(cache.data(), {std::ssize(cache)});
    MemRef<int64_t, 1> table(pages.data(), {count});
    if (!spec.kv)
      run(qView, kvView, kvView, bytes, table, layer * ofLayer.page, position, yView, scratchView,
          threads);
    else
      run(qView, kvView, kvView, bytes, table, layer * ofLayer.page, layer * ofLayer.window,
          position, position, yView, scratchView, threads);
  }

  /// Bytes that one token reads.
  double bytes() const {
    return static_cast<double>(ofLayer.window + kPosition / ofLayer.pageTokens * ofLayer.page);
  }

private:
  static constexpr int64_t kPosition = 4096, kCapacity = 4096 + 128;
  static AttentionSpec withCache(AttentionSpec spec, std::optional<KVQuantization> kv) {
    spec.scale = 1 / std::sqrt(static_cast<double>(spec.headDim));
    spec.halfCache = true;
    spec.kv = kv;
    return spec;
  }

  const Options &options;
  AttentionSpec spec;
  KernelRunner run;
  CacheBytes ofLayer;
  int64_t count, layers; ///< of pages
  std::vector<int64_t> pages;
  std::vector<int8_t> cache;
  std::vector<float> q, kv, y;
  std::vector<int8_t> scratch;
  int64_t layer = 0, step = 0;
};

/// Decoding behind 4096 tokens over caches of codes and of f16, in turn.
void benchCaches(const Options &options, AttentionSpec spec) {
  std::vector<std::unique_ptr<Decode>> caches;
  std::vector<std::string> names = {"f16"};
  caches.push_back(std::make_unique<Decode>(options, spec, std::nullopt));
  for (int bits : {8, 4, 2}) {
    KVQuantization kv;
    kv.bits = bits;
    caches.push_back(std::make_unique<Decode>(options, spec, kv));
    names.push_back("int" + std::to_string(bits));
  }
  std::vector<std::vector<double>> times(caches.size()), speedups(caches.size());
  for (int round = 0; round < options.rounds; ++round)
    for (size_t i = 0; i < caches.size(); ++i) {
      times[i].push_back(timeCalls([&] { (*caches[i])(); }));
      speedups[i].push_back(times[0].back() / times[i].back());
    }
  for (size_t i = 0; i < caches.size(); ++i)
    std::printf("decode at 4096, %2lld heads of %3lld (%lld kv), %-5s %9.1f us %7.2f GB/s of "
                "cache, %5.2f times as fast as f16\n",
                static_cast<long long>(spec.heads), static_cast<long long>(spec.headDim),
                static_cast<long long>(spec.kvHeads), names[i].c_str(), median(times[i]) * 1e6,
                caches[i]->bytes() / median(times[i]) * 1e-9, median(speedups[i]));
  std::fflush(stdout);
}

void benchRowOp(const Options &options, const RowSpec &spec, int64_t rows,
                const std::vector<float> &cold) {
  KernelRunner run(options.target, [&](mlir::ModuleOp module) {
    return getOrEmitRowOp(module, spec, options.target);
  });
  int64_t columns = spec.columns, padded = paddedColumns(columns);
  int64_t groups = groupCount(columns, spec.groupSize);
  std::vector<float> a(rows * columns), weight(columns, 0.5f), scales(rows);
  for (size_t i = 0; i < a.size(); ++i)
    a[i] = static_cast<float>(i * 7919 % 255) / 64.0f - 2.0f;
  std::vector<int8_t> codes(rows * padded);
  std::vector<int32_t> sums(rows * groups);
  MemRef<float, 2> x(a.data(), {rows, columns});
  MemRef<float, 1> w(weight.data(), {columns}), scalesView(scales.data(), {rows});
  MemRef<int8_t, 2> codesView(codes.data(), {rows, padded});
  MemRef<int32_t, 2> sumsView(sums.data(), {rows, groups});
  int64_t threads = options.threads;
  int inputs = 1;
  std::function<void()> call = [&] { run(x, codesView, scalesView, sumsView, threads); };
  if (spec.op == RowOp::RmsNorm) {
    call = [&] { run(x, w, codesView, scalesView, sumsView, threads); };
  } else if (spec.op == RowOp::LayerNorm) {
    call = [&] { run(x, w, w, codesView, scalesView, sumsView, threads); };
  } else if (spec.op == RowOp::SiluMul) {
    call = [&] { run(x, x, codesView, scalesView, sumsView, threads); };
    inputs = 2;
  }
  report(symbolName(spec) + " x " + std::to_string(rows), options, Roof::Read,
         4.0 * inputs * rows * columns, cold, call);
}

std::optional<Options> parse(int argc, char **argv) {
  Options options;
  options.target.isa = cpuRuns({Isa::AVX512VNNI}) ? Isa::AVX512VNNI : Isa::AVX2;
  for (int i = 1; i < argc; i += 2) {
    llvm::StringRef key = argv[i];
    if (i + 1 == argc)
      return std::nullopt;
    llvm::StringRef value = argv[i + 1];
    if (key == "--threads" && !value.getAsInteger(10, options.threads) && options.threads > 0)
      continue;
    if (key == "--rounds" && !value.getAsInteger(10, options.rounds) && options.rounds > 0)
      continue;
    if (key == "--only" && value == "caches") {
      options.cachesOnly = true;
      continue;
    }
    if (key != "--isa" || (value != "avx2" && value != "avx512vnni"))
      return std::nullopt;
    options.target.isa = value == "avx2" ? Isa::AVX2 : Isa::AVX512VNNI;
  }
  return cpuRuns(options.target) ? std::optional(options) : std::nullopt;
}

} // namespace

int main(int argc, char **argv) {
  std::optional<Options> options = parse(argc, argv);
  if (!options) {
    std::fprintf(
        stderr, "usage: easyquant-attention-bench [--threads N] [--rounds N] "
                "[--isa avx2|avx512vnni] [--only caches]; an instruction set that this CPU runs\n");
    return 1;
  }
  omp_set_num_threads(options->threads);
  std::printf("%s, %s, %d threads\n", bench::cpuModel().c_str(),
              options->target.name().str().c_str(), options->threads);
  benchCaches(*options, {9, 3, 64});
  benchCaches(*options, {32, 8, 128});
  benchCaches(*options, {12, 12, 64});
  if (options->cachesOnly)
    return 0;
  std::vector<float> cold(kColdBytes / sizeof(float), 1.0f);
  for (int64_t columns : {576, 1536})
    for (RowOp op :
         {RowOp::Quantize, RowOp::RmsNorm, RowOp::LayerNorm, RowOp::SiluMul, RowOp::GeluTanh})
      benchRowOp(*options, {op, columns, 1e-5, RowQuantization::Dynamic}, 512, cold);
  benchAttention<float>(*options, {9, 3, 64}, cold);
  benchAttention<_Float16>(*options, {9, 3, 64}, cold);
  benchAttention<float>(*options, {12, 12, 64}, cold);
  benchAttention<_Float16>(*options, {32, 8, 128}, cold);
  return 0;
}
