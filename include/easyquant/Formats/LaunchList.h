//===- LaunchList.h - A model as a list of launches -------------*- C++ -*-===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// On a GPU the host's part of a model is data: which kernels are launched, in which order, with
// which arguments. A step is over the rows of one sequence or of many, one behind the other, and
// every launch is for all of them: what a kernel has to know of a sequence it reads from tables
// (GpuStep.h). So launches depend on the step by its numbers of rows alone, and a decode step of as
// many rows can be captured once and replayed. The compiler writes the list as program.gpu.json
// (docs/Architecture.md). The runtime reads and checks it: kernels, arguments and memory fit
// together, and every place lies inside its memory.
//
//===----------------------------------------------------------------------===//

#ifndef EASYQUANT_FORMATS_LAUNCHLIST_H
#define EASYQUANT_FORMATS_LAUNCHLIST_H

#include "easyquant/Formats/Cache.h"
#include "easyquant/Formats/Collective.h"
#include "easyquant/Formats/GpuStep.h"
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
    Weights,         ///< offset into the data of the weights for GPUs
    Arena,           ///< offset into it
    Cache,           ///< offset into it: a layer's part of a page, or of a window, at byte 0
    Sequences,       ///< the eq_sequences of the step
    RowPlaces,       ///< a RowPlace for each row of the step
    Pages,           ///< int64s: the bytes of the cache where pages of sequences begin, those of a
                     ///< sequence from number first_page on
    Pieces,          ///< the pieces of a step by cut number `offset` of LaunchList::pieces
    Partials,        ///< places for partial sums, of LaunchList::partialBytes each
    PartialCounters, ///< LaunchList::partialCounters int32s of each place, zero between launches
    State,           ///< offset into memory that is zero when the pool of sequences is made
    States,          ///< what sequences keep, as the manifest's `online` says, slot by slot
    RowStates,       ///< int64s: for each row of the step the byte where its sequence's state is
    Recurrent,       ///< what layers keep of sequences, as `recurrent_values` says, slot by slot
    Constants,       ///< offset into LaunchList::constants
    Tokens,          ///< int32s: the token of each row of the step
    LogitRows,       ///< int32s: the rows of the step whose logits are asked for
    Logits, ///< their logits, one behind the other; in an all_gather this rank's columns, behind
            ///< those of the ranks before it
    Hidden, ///< in a step of the head that drafts: the state behind the token before each row's
    NextHidden, ///< with such a head: what each row of the step leaves, hidden_size floats
    Rows,       ///< i32: rows of the launch, times its multiple
    Rank,       ///< i32: the number of this rank
    Integer,    ///< i32: `integer`
  };
  Kind kind = Kind::Integer;
  int64_t offset = 0;
  int64_t integer = 0;

  bool operator==(const LaunchArgument &) const = default;
};

/// Dense rows of f32 that a launch writes: for each of its rows so many.
struct LaunchResult {
  size_t argument = 0; ///< the launch's: a place in the arena, or the logits
  int64_t columns = 0;
  bool operator==(const LaunchResult &) const = default;
};

/// A launch of a kernel, or an exchange of ranks, in place on the memory of its one argument.
struct Launch {
  /// What a launch is over.
  enum class Over {
    Rows,      ///< all rows of the step
    LogitRows, ///< those whose logits are asked for
    Pieces     ///< the pieces that it takes: it happens where there are any
  };
  std::string site;
  Phase phase = Phase::Other;
  size_t kernel = 0; ///< of LaunchList::kernels
  Over over = Over::Rows;
  int64_t minRows = 1; ///< it happens for so many of them and more,
  int64_t maxRows = 0; ///< and up to so many; 0: any number
  std::vector<LaunchArgument> arguments;
  std::optional<size_t> collective = {}; ///< of LaunchList::collectives, in place of a kernel
  int64_t multiple = 1; ///< its rows are so many times as many: one for each choice of an expert
  std::optional<LaunchResult> result = {}; ///< where it has any

  bool happensFor(int64_t rows) const {
    return rows >= minRows && (maxRows == 0 || rows <= maxRows);
  }
  bool operator==(const Launch &) const = default;
};

/// The kernels that keep rows of logits and choose tokens of them, by their numbers. The runtime
/// makes their arguments, which Codegen/GPU/Choose.h names. They are launched behind a step, and
/// not as a part of it.
struct ChoosingKernels {
  size_t keep = 0, change = 0, weigh = 0, choose = 0;
  bool operator==(const ChoosingKernels &) const = default;
};

/// Steps of the head that drafts. Its launches take the tables of a step, and in place of a
/// recurrent state the hidden states of the tokens before.
struct DraftingLaunches {
  /// The kernel that brings these together, of LaunchList::kernels, whose arguments the runtime
  /// makes: GatherSpec of Codegen/GPU/Embedding.h.
  size_t gather = 0;
  /// Rows append nothing, and see what the cache has before them: their sequences are at the
  /// position before that of the row, which rotates.
  bool fixedPosition = false;
  std::vector<Launch> launches;
  bool operator==(const DraftingLaunches &) const = default;
};

/// The program of one chip.
struct LaunchList {
  int64_t maxRows = 0; ///< of one step, all sequences together
  int64_t arenaBytes = 0, stateBytes = 0;
  int64_t partialBytes = 0;    ///< of a place for partial sums
  int64_t partialCounters = 0; ///< int32s of it
  CacheSizes cache;
  std::vector<PieceCut> pieces;
  std::vector<std::byte> constants;
  std::vector<LaunchKernel> kernels;
  std::vector<Collective> collectives; ///< of a model that ranks share
  std::vector<Launch> launches;
  std::vector<Launch> restore; ///< before a step in which a sequence has gone back
  /// None where ranks share the model, each of which makes some columns of the logits.
  std::optional<ChoosingKernels> choosing;
  std::optional<DraftingLaunches> drafting; ///< where there is a head that drafts
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
