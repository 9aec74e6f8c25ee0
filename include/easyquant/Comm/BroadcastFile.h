//===- BroadcastFile.h - Files for ranks that lack them ---------*- C++ -*-===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// A pipelined ring: the root reads a file in chunks, and each rank hands a chunk on to the next
// rank while it receives the next chunk. So P ranks take hardly longer than two, and no link
// carries the file twice. Where a communicator has no sends (NCCL's host memory) chunks are
// broadcast from the root.
//
//===----------------------------------------------------------------------===//

#ifndef EASYQUANT_COMM_BROADCASTFILE_H
#define EASYQUANT_COMM_BROADCASTFILE_H

#include "easyquant/Comm/Communicator.h"

namespace easyquant::comm {

/// Rank `root` reads the file `source`; each other rank writes it to `destination`, whole or not at
/// all, or only hands it on where `destination` is empty. Checksums are compared. Collective.
/// Errors, on every rank: IO and NotFound (a rank that cannot read or write, named), Corrupt (a
/// checksum), those of the communicator.
Result<void> broadcastFile(Communicator &communicator, const std::string &source,
                           const std::string &destination, int root = 0,
                           int64_t chunkBytes = int64_t(1) << 20);

/// All regular files of rank 0's folder, in order of their names. `destination` appears whole,
/// where nothing may be yet; a rank with an empty one hands the files on.
Result<void> broadcastFolder(Communicator &communicator, const std::string &source,
                             const std::string &destination, int64_t chunkBytes = int64_t(1) << 20);

} // namespace easyquant::comm

#endif // EASYQUANT_COMM_BROADCASTFILE_H
