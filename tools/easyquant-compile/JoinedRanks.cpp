//===- JoinedRanks.cpp - easyquant-compile on several ranks ---------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "JoinedRanks.h"

#include "easyquant/Comm/Agreement.h"
#include "easyquant/Comm/BroadcastFile.h"
#include "easyquant/Comm/Open.h"
#include "easyquant/Numerics/Blas.h"
#include "easyquant/Support/Checksum.h"

#include <algorithm>
#include <csignal>
#include <filesystem>
#include <iostream>
#include <thread>

namespace fs = std::filesystem;

namespace easyquant {

using comm::Agreed;
using recipe::OptionInfo;
namespace option = recipe::option;

/// Set when the process is asked to end: who waits for others then says so.
static std::atomic<bool> interrupted = false, hasSpoken = false;

Result<JoinedRanks> JoinedRanks::find(const CommandLine &line) {
  JoinedRanks ranks;
  if (line.comm == CommKind::None)
    return ranks;
  Result<comm::Placement> found = comm::findPlacement();
  if (!found)
    return Unexpected(found.error());
  ranks.placement = *found;
  return ranks;
}

std::string JoinedRanks::ownFolder(const std::string &folder) const {
  return rank() == 0 ? folder : fmt::format("{}.rank{}", folder, rank());
}

/// What the command says, but for what may differ: paths of files that are compared by themselves,
/// and what results do not depend on.
static std::string textOf(const CommandLine &line) {
  const OptionInfo *own[] = {&option::recipe.info(),     &option::tokensFile.info(),
                             &option::workFolder.info(), &option::threads.info(),
                             &option::copyFiles.info(),  &option::force.info()};
  std::string text = line.search.empty() ? "" : "search"; // which compares its own options
  for (const OptionInfo &option : recipe::options())
    if (const recipe::OptionValue *value = line.options.find(option);
        value && std::ranges::find(own, &option) == std::end(own))
      text += fmt::format(" {}={}", option.name, recipe::exactText(*value));
  return text;
}

static std::string checksumOrNothing(const std::string &path) {
  Result<std::string> checksum = checksumOfFile(path);
  return checksum ? *checksum : "";
}

/// A file or folder of rank 0 for those that lack it; `path` becomes where it is here.
static Result<void> send(comm::Communicator &ranks, std::string &path, const std::string &here) {
  std::error_code ignored;
  std::vector<int64_t> kinds(static_cast<size_t>(ranks.size()));
  enum : int64_t { None, File, Folder };
  kinds[static_cast<size_t>(ranks.rank())] = fs::is_directory(path, ignored) ? Folder
                                             : fs::exists(path, ignored)     ? File
                                                                             : None;
  const bool isReceiver = kinds[static_cast<size_t>(ranks.rank())] == None;
  if (auto done = ranks.allGather(std::span(kinds)); !done)
    return done;
  // Where rank 0 has none it says so itself.
  if (kinds[0] == None || std::ranges::find(kinds, None) == kinds.end())
    return {};
  std::string destination;
  if (isReceiver)
    destination = here;
  auto sent = kinds[0] == Folder ? comm::broadcastFolder(ranks, path, destination)
                                 : comm::broadcastFile(ranks, path, destination);
  if (sent && isReceiver)
    path = here;
  return sent;
}

/// Says where this process was, unless who waits for others does, and lets them speak.
static void speakBeforeTheEnd(const comm::Placement &placement, int signal) {
  interrupted = true;
  for (int i = 0; i < 20 && !hasSpoken; ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  if (!hasSpoken)
    std::cerr << fmt::format("error: rank {} of {}: asked to end ({}) while it computed; what it "
                             "has finished is in its work folder, where the next run goes on\n",
                             placement.rank, placement.size, ::strsignal(signal))
              << std::flush;
}

Result<void> JoinedRanks::open(CommandLine &line) {
  onTerminationSignal(
      [placement = placement](int signal) { speakBeforeTheEnd(placement, signal); });
  comm::OpenOptions options;
  options.kind = line.comm == CommKind::MPI    ? comm::Kind::MPI
                 : line.comm == CommKind::NCCL ? comm::Kind::NCCL
                                               : comm::Kind::Auto;
  options.limits.timeout = std::chrono::milliseconds(static_cast<int64_t>(line.commTimeout * 1000));
  options.limits.interrupted = &interrupted;
  Result<std::unique_ptr<comm::Communicator>> opened = comm::openCommunicator(placement, options);
  if (!opened)
    return Unexpected(opened.error());
  joined = std::move(*opened);

  // Whether there is such a file is rank 0's to say: others may have been started without.
  std::string recipe = line.options[option::recipe], tokens = line.options[option::tokensFile];
  const std::string version = checksumOrNothing("/proc/self/exe"), command = textOf(line),
                    blas = numerics::blasKernels();
  const Agreed before[] = {Agreed::of("the version of EasyQuant (its easyquant-compile)", version),
                           Agreed::of("the options", command),
                           Agreed::of("the BLAS kernels", blas)};
  if (auto same = comm::agree(*joined, before); !same)
    return same;
  if (rank() != 0) {
    Result<StagedFolder> folder = StagedFolder::scratch();
    if (!folder)
      return Unexpected(folder.error());
    received.emplace(std::move(*folder));
  }
  auto here = [&](const char *name) { return received ? received->path() + "/" + name : ""; };
  if (auto sent = send(*joined, recipe, here("recipe.json")); !sent)
    return sent;
  if (auto sent = send(*joined, tokens, here("tokens.safetensors")); !sent)
    return sent;
  if (auto sent = send(*joined, line.model, here("model")); !sent)
    return sent;
  if (!recipe.empty())
    line.options.set(option::recipe, recipe);
  if (!tokens.empty())
    line.options.set(option::tokensFile, tokens);
  const std::string recipeHash = checksumOrNothing(recipe), tokensHash = checksumOrNothing(tokens);
  const Agreed files[] = {Agreed::of("the recipe", recipeHash),
                          Agreed::of("the calibration tokens", tokensHash)};
  return comm::agree(*joined, files);
}

Result<void> JoinedRanks::agreeOn(const formats::ModelSource &source) {
  if (!joined)
    return {};
  Result<std::string> hash = source.hash();
  if (!hash)
    return Unexpected(hash.error());
  const Agreed model[] = {Agreed::of("the model", *hash)};
  return comm::agree(*joined, model);
}

Result<void> JoinedRanks::close() { return joined ? joined->close() : Result<void>(); }

void JoinedRanks::fail(const std::string &error) {
  hasSpoken = true;
  if (!joined)
    return;
  if (!joined->failure())
    joined->abort({ErrorCode::IO, error});
  comm::letOthersSpeak();
}

} // namespace easyquant
