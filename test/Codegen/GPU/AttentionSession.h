//===- AttentionSession.h - Sessions of simulated attention -----*- C++ -*-===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef EASYQUANT_TEST_CODEGEN_GPU_ATTENTIONSESSION_H
#define EASYQUANT_TEST_CODEGEN_GPU_ATTENTIONSESSION_H

#include "SimtRunner.h"

#include "easyquant/Codegen/GPU/Attention.h"

#include <optional>
#include <random>

namespace easyquant::gpu {

inline constexpr int64_t kPositions = 512; // of the rotation table

/// Device memory for the caches of some sequences in a model of three layers, of which the kernels
/// have the second one: windows, then pages with gaps between them.
struct Pool {
  static constexpr int64_t kGap = 192, kWindows = 2;
  Pool(const AttentionSpec &spec, int64_t count)
      : bytes(cacheBytes(spec)), count(count),
        cache(device, kGap + kWindows * 3 * bytes.window + count * stride(), "cache") {}
  int64_t stride() const { return 3 * bytes.page + kGap; }
  int64_t window(int64_t number) const { return kGap + number * 3 * bytes.window; }
  int64_t page(int64_t number) const { return window(kWindows) + number * stride(); }

  simt::Device device;
  CacheBytes bytes;
  int64_t count;
  DeviceBuffer<uint8_t> cache;
};

enum class Pages { InOrder, Shuffled };

/// What takes queries and keys to the basis of codes, if they have one; those of the tests have no
/// positions.
std::optional<HeadsSpec> basisOf(const AttentionSpec &spec);

/// One layer of a session: its cache in device memory, and all keys and values as the host knows
/// them.
class Session {
public:
  /// Every call takes the kernel of `form`, whatever its number of tokens. Where the step's tokens
  /// are to be there already, another layer appends them.
  Session(KernelLibrary &library, const AttentionSpec &spec, AttentionKernel::Form form,
          int64_t tokens, simt::Checks checks = simt::Checks::All, Pages order = Pages::Shuffled);

  /// A session that begins like this one: the first `shared` pages are those of both, of the others
  /// and of the window it has a copy.
  Session fork(int64_t shared);

  int64_t position() const { return std::ssize(keys) / columns(); }

  /// Appends `rows` random tokens; their attention must be that of the reference.
  void call(int64_t rows);

  /// Forgets all tokens from `position` on.
  void goBack(int64_t to);

  /// Codes and slices in device memory are those of Numerics, to the bit.
  void checkCodes();

  simt::Statistics statistics; ///< of the last call's attention
  std::vector<float> results;  ///< of all calls

private:
  Session(KernelLibrary &library, const AttentionSpec &spec, AttentionKernel::Form form,
          simt::Checks checks, std::shared_ptr<Pool> memory, int64_t number);

  /// The second layer's part of what lies at byte 0 of the cache.
  Argument ofLayer(int64_t layerBytes) const {
    return Argument(pool->cache.address() + static_cast<uint64_t>(layerBytes));
  }
  /// The same of windows, number 0 of which lies behind a gap.
  Argument windows() const {
    return Argument(pool->cache.address() +
                    static_cast<uint64_t>(pool->window(0) + pool->bytes.window));
  }
  eq_sequence ownRows(int64_t rows, int64_t position, int64_t firstRow = 0) const {
    eq_sequence sequence = sequenceOf(rows, position, firstRow);
    sequence.window = static_cast<int32_t>(number);
    return sequence;
  }
  int64_t columns() const { return spec.kvHeads * spec.headDim; }
  numerics::ConstMatrix matrix(const std::vector<float> &x) const {
    return {x.data(), std::ssize(x) / columns(), columns(), columns()};
  }

  std::vector<float> run(const std::vector<float> &qkv, int64_t rows, int64_t before,
                         int64_t stride, int64_t yStride);
  void compare(const std::vector<float> &qkv, int64_t stride, int64_t rows, int64_t before,
               const std::vector<float> &y, int64_t yStride);

  KernelLibrary &library;
  AttentionSpec spec;
  AttentionLaunches launches;
  AttentionKernel kernel;
  simt::Checks checks;
  std::shared_ptr<Pool> pool;
  int64_t number;                     ///< of its window
  std::vector<int64_t> table, others; ///< its pages; as many that nobody has
  std::vector<float> sinkLogits;      ///< if there are any
  DeviceBuffer<float> rotations, sinks;
  std::vector<float> keys, values;
  std::mt19937 random{7};
  std::normal_distribution<float> normal;
};

AttentionSpec specOf(int64_t heads, int64_t kvHeads, int64_t headDim, int64_t window = 0);
/// With a cache of codes; `rotatedLater`: it keeps keys before their rotation.
AttentionSpec codesOf(AttentionSpec spec, numerics::KVScheme scheme, bool rotatedLater = false);

inline constexpr AttentionKernel::Form kForms[] = {AttentionKernel::Split,
                                                   AttentionKernel::Blocked};

/// Sessions of all specs and forms make calls of so many rows. On a chip with few multiprocessors
/// there are few blocks to simulate.
void checkAll(const std::vector<AttentionSpec> &specs, const std::vector<int64_t> &calls,
              int64_t tokens, ChipId chip = ChipId::SM80);

} // namespace easyquant::gpu

#endif // EASYQUANT_TEST_CODEGEN_GPU_ATTENTIONSESSION_H
