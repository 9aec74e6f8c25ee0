//===- LaunchList.h - A model as a list of launches -------------*- C++ -*-===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// On a GPU the host's part of a model is data: which kernels are launched, in which order, with
// which arguments. A step is over the rows of one sequence or of many, one behind the other. What
// takes a position is launched once for each of them, a run of such launches for one sequence after
// the other; all else is launched once for all rows. Nothing depends on a step but these numbers of
// rows, so that a decode step of as many sequences can be captured once and replayed. The compiler
// writes the list as program.gpu.json (docs/Architecture.md). The runtime reads and checks it:
// kernels, arguments and memory fit together, and every place lies inside its memory.
//
//===----------------------------------------------------------------------===//

#ifndef EASYQUANT_FORMATS_LAUNCHLIST_H
#define EASYQUANT_FORMATS_LAUNCHLIST_H

#include "easyquant/Formats/Cache.h"
#include "easyquant/Formats/Collective.h"
#include "easyquant/Formats/Phase.h"
#include "easyquant/Support/Result.h"

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace easyquant::formats {

/// A kernel as its caller sees it.
struct LaunchKernel {
  enum class Parameter { Pointer, I32, F32 };
  /// A grid dimension: factor * ceil(rows / rowsPerBlock), or just factor where rowsPerBlock is 0.
  struct Extent {
    int64_t factor = 1, rowsPerBlock = 0;
    uint32_t of(int64_t rows) const {
      int64_t blocks = rowsPerBlock == 0 ? 1 : (rows + rowsPerBlock - 1) / rowsPerBlock;
      return static_cast<uint32_t>(factor * blocks);
    }
    bool operator==(const Extent &) const = default;
  };
  std::string name;
  std::vector<Parameter> parameters;
  std::array<Extent, 3> grid;
  uint32_t threads = 0;    ///< of a block, in x
  int64_t sharedBytes = 0; ///< dynamic shared memory

  std::array<uint32_t, 3> gridFor(int64_t rows) const {
    return {grid[0].of(rows), grid[1].of(rows), grid[2].of(rows)};
  }
  bool operator==(const LaunchKernel &) const = default;
};

/// Where an argument comes from.
struct LaunchArgument {
  enum class Kind {
    Weights,   ///< offset into the data of the weights for GPUs
    Arena,     ///< offset + rowBytes * the first row of the launch
    Cache,     ///< offset into it: a layer's part of a page, or of a window, at byte 0
    Pages,     ///< int64s: the byte of the cache where each page of the sequence begins
    Window,    ///< one int64: the byte of the cache where its window begins
    State,     ///< offset into memory that is zero when the pool of sequences is made
    States,    ///< what sequences keep, as the manifest's `online` says, slot by slot
    RowStates, ///< int64s: for each row of the step the byte where its sequence's state is
    Slots,     ///< two int64s: the bytes where the sequence's state is read and written
    Constants, ///< offset into LaunchList::constants
    Tokens,    ///< int32s: the token of each row of the step
    Position,  ///< one int32: the position of the first row of the sequence
    Held,      ///< one int32: tokens that the cache has seen of it, before it went back, if it did
    LogitRows, ///< int32s: the rows of the step whose logits are asked for
    Logits,    ///< their logits, one behind the other; in an all_gather this rank's columns, behind
               ///< those of the ranks before it
    Rows,      ///< i32: rows of the launch
    Rank,      ///< i32: the number of this rank
    Integer,   ///< i32: `integer`
  };
  Kind kind = Kind::Integer;
  int64_t offset = 0;
  int64_t rowBytes = 0; ///< of launches for each sequence: distance of the rows of an operand
  int64_t integer = 0;

  /// Does it belong to a sequence? Only a launch for each sequence has such arguments.
  bool isOfSequence() const {
    return kind == Kind::Pages || kind == Kind::Window || kind == Kind::Position ||
           kind == Kind::Held || kind == Kind::Slots || rowBytes != 0;
  }
  bool operator==(const LaunchArgument &) const = default;
};

/// A launch of a kernel, or an exchange of ranks, in place on the memory of its one argument.
struct Launch {
  /// Which rows a launch is over.
  enum class Over {
    Rows,      ///< all of the step
    LogitRows, ///< those whose logits are asked for
    Sequence   ///< those of one sequence: it happens for each, in their order
  };
  std::string site;
  Phase phase = Phase::Other;
  size_t kernel = 0; ///< of LaunchList::kernels
  Over over = Over::Rows;
  int64_t minRows = 1; ///< it happens for so many rows of its own and more,
  int64_t maxRows = 0; ///< and up to so many; 0: any number
  std::vector<LaunchArgument> arguments;
  std::optional<size_t> collective = {}; ///< of LaunchList::collectives, in place of a kernel

  bool happensFor(int64_t rows) const {
    return rows >= minRows && (maxRows == 0 || rows <= maxRows);
  }
  bool operator==(const Launch &) const = default;
};

/// The program of one chip.
struct LaunchList {
  int64_t maxRows = 0; ///< of one step, all sequences together
  int64_t arenaBytes = 0, stateBytes = 0;
  CacheSizes cache;
  std::vector<std::byte> constants;
  std::vector<LaunchKernel> kernels;
  std::vector<Collective> collectives; ///< of a model that ranks share
  std::vector<Launch> launches;
  std::vector<Launch> restore; ///< before the step, for each sequence that has gone back
  bool operator==(const LaunchList &) const = default;
};

/// The program of `chip` in `text`; `path` is what messages call the document. Errors: Corrupt,
/// Unsupported (another format version), NotFound (no such chip).
Result<LaunchList> parseLaunchList(std::string_view text, std::string_view path,
                                   const std::string &chip, int64_t weightsBytes);

/// The document with the programs of these chips.
std::string launchListText(const std::map<std::string, LaunchList> &chips);

} // namespace easyquant::formats

#endif // EASYQUANT_FORMATS_LAUNCHLIST_H
