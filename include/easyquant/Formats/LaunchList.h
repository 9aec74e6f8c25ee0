//===- GpuProgram.h - A model as a list of launches -------------*- C++ -*-===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// program.gpu.json of an artifact (docs/Architecture.md), read and checked: whatever it says of
// kernels, arguments and memory fits together, and every place lies in the memory that it is in.
//
//===----------------------------------------------------------------------===//

#ifndef EASYQUANT_RUNTIME_GPUPROGRAM_H
#define EASYQUANT_RUNTIME_GPUPROGRAM_H

#include "easyquant/Support/Result.h"

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace easyquant::runtime {

/// What time is spent on. Load: to the device; Comm: among devices; Sync: waiting, and back from
/// the device. Programs for CPUs give the numbers in their marks.
enum class Phase { Load, Quantize, Gemm, Attention, Comm, Sync, Other };
constexpr size_t kPhases = 7;
const char *nameOf(Phase phase); ///< "load", ...

/// A kernel as whoever launches it sees it.
struct GpuKernel {
  enum class Parameter { Pointer, I32, F32 };
  /// A grid dimension: factor * ceil(rows / rowsPerBlock), or just factor where rowsPerBlock is 0.
  struct Extent {
    int64_t factor = 1, rowsPerBlock = 0;
  };
  std::string name;
  std::vector<Parameter> parameters;
  std::array<Extent, 3> grid;
  uint32_t threads = 0;     ///< of a block
  uint32_t sharedBytes = 0; ///< dynamic shared memory

  std::array<uint32_t, 3> gridFor(int64_t rows) const;
};

/// Where an argument comes from.
struct GpuArgument {
  enum class Kind {
    Weights,   ///< offset
    Arena,     ///< offset + step * rows before the first logit
    Cache,     ///< offset + step * capacity
    State,     ///< offset into memory that is zero when a session begins
    Constants, ///< offset
    Tokens,
    Position, ///< one int32: tokens before this call
    Held,     ///< one int32: tokens that were held before the session went back
    Logits,
    Rows,     ///< i32: rows of the launch
    Capacity, ///< i32: tokens
    Integer,  ///< i32
  };
  Kind kind = Kind::Integer;
  int64_t offset = 0, step = 0;
  int32_t integer = 0;
};

struct GpuLaunch {
  std::string site;
  Phase phase = Phase::Other;
  size_t kernel = 0;
  bool lastRows = false;            ///< over the rows whose logits are asked for
  int64_t minRows = 1, maxRows = 0; ///< happens for so many rows; maxRows 0: and any more
  std::vector<GpuArgument> arguments;

  bool happensFor(int64_t rows) const {
    return rows >= minRows && (maxRows == 0 || rows <= maxRows);
  }
};

/// The program of one chip.
struct GpuProgram {
  int64_t maxRows = 0;
  int64_t arenaBytes = 0, stateBytes = 0;
  int64_t cacheBytes = 0, cacheBytesPerToken = 0;
  std::vector<std::byte> constants;
  std::vector<GpuKernel> kernels;
  std::vector<GpuLaunch> launches;
  std::vector<GpuLaunch> restore; ///< before the next call, when a session has gone back
};

/// The program of `chip` in `text`; `path` is what messages call the document. Errors: Corrupt,
/// Unsupported (another format version), NotFound (no such chip).
Result<GpuProgram> parseGpuProgram(std::string_view text, std::string_view path,
                                   const std::string &chip, int64_t weightsBytes);

} // namespace easyquant::runtime

#endif // EASYQUANT_RUNTIME_GPUPROGRAM_H
