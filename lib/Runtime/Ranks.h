//===- Ranks.h - Ranks that compute a model together ------------*- C++ -*-===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Rank 0 is used like any model: it reads, samples and prints. Whatever its executors do it tells
// the other ranks first, which follow it with executors of their own. So sequences, pages and
// tokens are those of rank 0, and no rank can disagree about them.
//
//===----------------------------------------------------------------------===//

#ifndef EASYQUANT_LIB_RUNTIME_RANKS_H
#define EASYQUANT_LIB_RUNTIME_RANKS_H

#include "Executor.h"

#include "easyquant/Comm/Communicator.h"

#include <functional>
#include <mutex>

namespace easyquant::runtime {

/// The ranks of one model. Destroyed on rank 0, it lets the others go.
class Ranks {
public:
  explicit Ranks(std::shared_ptr<comm::Communicator> communicator)
      : communicator(std::move(communicator)) {}
  ~Ranks();

  int rank() const { return communicator->rank(); }
  int size() const { return communicator->size(); }
  comm::Communicator &comm() const { return *communicator; }

  /// Do all ranks load this artifact, and are they as many as it was compiled for? Collective.
  /// Errors: InvalidArgument, those of the communicator.
  Result<void> agreeOn(const std::string &folder, const Manifest &manifest,
                       const std::string &text) const;

  /// An executor of rank 0 that the others follow. It belongs to the model that has this.
  Result<std::unique_ptr<Executor>> lead(std::unique_ptr<Executor> executor, const PoolSize &pool);
  using CreateExecutor = std::function<Result<std::unique_ptr<Executor>>(const PoolSize &)>;
  /// On the other ranks: does what rank 0 does, until it is done with the model.
  Result<void> follow(int64_t vocabulary, const CreateExecutor &create);

private:
  friend class LeadingExecutor;
  using Message = std::vector<int64_t>;
  Result<void> tell(const Message &message);
  Result<Message> hear();

  std::shared_ptr<comm::Communicator> communicator;
  std::mutex mutex; ///< one executor at a time
  int64_t executors = 0;
};

} // namespace easyquant::runtime

#endif // EASYQUANT_LIB_RUNTIME_RANKS_H
