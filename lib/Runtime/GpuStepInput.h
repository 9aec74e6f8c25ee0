//===- GpuStepInput.h - What the kernels of a step are told -----*- C++ -*-===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The tables of a step (Formats/GpuStep.h) in device memory: whose each row is, the tokens, the
// rows whose logits are asked for, the sequences; apart from them each sequence's pages, and the
// pieces of attention. The places depend on the numbers of rows alone, as long as nothing has to
// grow, so that a recorded step finds them again. Each is a multiple of 16 bytes, as kernels may
// take it. Private to the runtime.
//
//===----------------------------------------------------------------------===//

#ifndef EASYQUANT_LIB_RUNTIME_GPUSTEPINPUT_H
#define EASYQUANT_LIB_RUNTIME_GPUSTEPINPUT_H

#include "Executor.h"

#include "easyquant/Formats/GpuStep.h"

#include <vector>

namespace easyquant::runtime {

/// Pieces of a cut by tokens where each sequence has a token, and no two the same pages.
inline int64_t usualPieces(const formats::PieceCut &cut, const formats::CacheSizes &cache,
                           const PoolSize &pool) {
  return pool.pages * cache.pageTokens / cut.tokens + 2 * pool.sequences;
}

class GpuStepInput {
public:
  /// Rows that fill up a step are a sequence whose tokens nobody reads, from position 0 on. They
  /// fit into its one page.
  struct Nobody {
    int64_t page = 0; ///< byte of the cache
    int64_t window = 0;
    int64_t slot = 0, nextSlot = 0;
  };
  /// For steps of the program, and as many sequences and pages as the pool has. `keepsState`: a
  /// sequence has slots, of which online scales take `slotBytes` bytes.
  Result<void> allocate(const std::shared_ptr<Device> &device, const LaunchList &program,
                        const PoolSize &pool, bool keepsState, int64_t slotBytes,
                        const Nobody &nobody);
  int64_t bytes() const { return input.size() + pages.size() + pieces.size(); }

  /// Lists a step, and behind its rows so many of nobody, with logits. A sequence may be in it
  /// several times, one behind the other, where it has a recurrent state and the cache is float.
  /// The arguments may be gone when this returns. `seesBefore`: rows, one of each sequence, see the
  /// tokens before their position (DraftingLaunches::fixedPosition).
  void describe(std::span<const SequenceStep> sequences, std::span<const int32_t> logitRows,
                int64_t rowsOfNobody, bool seesBefore = false);
  /// Rows of the step, with those of nobody.
  int64_t rows() const { return table.back().first_row + table.back().rows; }
  /// Pieces of the step by a cut, and the places for partial sums that those of any cut need.
  int64_t pieceCount(size_t cut) const { return std::ssize(lists[cut]); }
  int64_t partialPlaces() const { return places; }
  /// Whether a larger place for pieces had to be found: recorded steps know the one before.
  Result<bool> makeRoom(const std::shared_ptr<Device> &device);
  /// Brings the step to the device that was described, whose sequences are given once more. The
  /// queue is to be waited for before the next step is described.
  Result<void> upload(Queue &queue, std::span<const SequenceStep> sequences);

  // Addresses, of the step that was described.
  uint64_t sequences() const { return input.address() + sequencesOffset; }
  uint64_t rowPlaces() const { return input.address(); }
  uint64_t rowStates() const { return input.address() + rowStatesOffset; }
  uint64_t tokens() const { return input.address() + tokensOffset; }
  uint64_t logitRows() const { return input.address() + logitRowsOffset; }
  uint64_t pageTables() const { return pages.address(); }
  uint64_t piecesOf(size_t cut) const {
    return pieces.address() + cut * static_cast<uint64_t>(roomForPieces) * sizeof(formats::Piece);
  }

private:
  void dropStatesOnTheWay();
  void listPieces(int64_t sequences);
  Result<void> allocatePieces(const std::shared_ptr<Device> &device, int64_t room);
  Result<void> uploadPages(Queue &queue, std::span<const SequenceStep> sequences);

  std::vector<formats::PieceCut> cuts;
  bool keepsState = false;
  int64_t slotBytes = 0;
  int64_t pageTokens = 1, pagesOfSequence = 0;
  DeviceMemory input, pages, pieces;
  int64_t roomForPieces = 0; ///< of a cut, one of which is for their number
  uint64_t rowStatesOffset = 0, tokensOffset = 0, logitRowsOffset = 0, sequencesOffset = 0;
  /// What is on the device, or on its way there.
  std::vector<std::byte> staging;
  std::vector<eq_sequence> table;
  std::vector<std::vector<formats::Piece>> lists; ///< by cut
  std::vector<formats::Piece> stagedPieces;
  std::vector<std::vector<int64_t>> tables; ///< of pages, by sequence of the step
  Nobody nobody;
  bool hasPageOfNobody = false; ///< behind all tables
  int64_t places = 0;
};

} // namespace easyquant::runtime

#endif // EASYQUANT_LIB_RUNTIME_GPUSTEPINPUT_H
