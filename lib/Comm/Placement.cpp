//===- Placement.cpp - Which rank a process is ----------------------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "easyquant/Comm/Placement.h"

#include <charconv>
#include <cstdlib>
#include <optional>
#include <string_view>

namespace easyquant::comm {

std::string_view nameOf(Launcher launcher) {
  constexpr std::string_view names[] = {"no launcher", "mpirun", "srun", "RANK and WORLD_SIZE"};
  return names[static_cast<int>(launcher)];
}

namespace {
/// The variables of one launcher.
struct Names {
  Launcher launcher;
  const char *rank, *size, *localRank;
};
constexpr Names kMPIRun = {Launcher::MPIRun, "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE",
                           "OMPI_COMM_WORLD_LOCAL_RANK"};
constexpr Names kSRun = {Launcher::SRun, "SLURM_PROCID", "SLURM_NTASKS", "SLURM_LOCALID"};
constexpr Names kVariables = {Launcher::Variables, "RANK", "WORLD_SIZE", "LOCAL_RANK"};
} // namespace

static Result<int> numberOf(const char *name, std::string_view text, int least, int most) {
  int value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || value < least || value > most)
    return makeError(
        ErrorCode::InvalidArgument,
        "{}: found \"{}\", expected a number in {}..{}; correct it, or start the ranks "
        "with mpirun, srun or torchrun, which set it",
        name, text, least, most);
  return value;
}

/// None where none of the launcher's two variables is set.
static Result<std::optional<Placement>> readPlacement(const ReadVariable &read,
                                                      const Names &names) {
  const char *rank = read(names.rank), *size = read(names.size), *local = read(names.localRank);
  if (!rank && !size)
    return std::nullopt;
  if (!rank || !size)
    return makeError(ErrorCode::InvalidArgument,
                     "{} is set, but {} is not; set both, or unset both to run as one rank",
                     rank ? names.rank : names.size, rank ? names.size : names.rank);
  constexpr int kMostRanks = 1 << 20;
  Placement placement;
  placement.launcher = names.launcher;
  Result<int> ranks = numberOf(names.size, size, 1, kMostRanks);
  if (!ranks)
    return Unexpected(ranks.error());
  Result<int> own = numberOf(names.rank, rank, 0, *ranks - 1);
  if (!own)
    return Unexpected(own.error());
  placement.size = *ranks;
  placement.rank = *own;
  if (local) {
    Result<int> localRank = numberOf(names.localRank, local, 0, *ranks - 1);
    if (!localRank)
      return Unexpected(localRank.error());
    placement.localRank = *localRank;
  } else if (*ranks > 1) {
    return makeError(ErrorCode::InvalidArgument,
                     "{} and {} are set, but {} is not; set it to the rank's number among those of "
                     "its machine, which chooses its GPU",
                     names.rank, names.size, names.localRank);
  }
  return placement;
}

static Unexpected contradiction(const Placement &one, const Placement &other) {
  return makeError(ErrorCode::InvalidArgument,
                   "{} says that this is rank {} of {}, but {} that it is rank {} of {}; start the "
                   "ranks with one launcher, and unset the variables of the other",
                   nameOf(one.launcher), one.rank, one.size, nameOf(other.launcher), other.rank,
                   other.size);
}

static bool agree(const Placement &one, const Placement &other) {
  return one.rank == other.rank && one.size == other.size;
}

Result<Placement> findPlacement(const ReadVariable &read) {
  Result<std::optional<Placement>> mpi = readPlacement(read, kMPIRun);
  if (!mpi)
    return Unexpected(mpi.error());
  Result<std::optional<Placement>> variables = readPlacement(read, kVariables);
  if (!variables)
    return Unexpected(variables.error());
  // Batch scripts and the daemons that mpirun starts have srun's variables, too: they count for
  // tasks of srun alone, and only where nothing else started this process.
  Result<std::optional<Placement>> slurm = std::optional<Placement>();
  if (read("SLURM_STEP_ID") && !*mpi) {
    slurm = readPlacement(read, kSRun);
    if (!slurm)
      return Unexpected(slurm.error());
  }
  if (*mpi && *variables && !agree(**mpi, **variables))
    return contradiction(**mpi, **variables);
  // One srun task a machine may start torchrun there.
  if (*slurm && *variables && !agree(**slurm, **variables) && !read("TORCHELASTIC_RUN_ID"))
    return contradiction(**slurm, **variables);

  Placement placement;
  if (*mpi)
    placement = **mpi;
  else if (*slurm && (!*variables || agree(**slurm, **variables)))
    placement = **slurm;
  else if (*variables)
    placement = **variables;

  if (const char *address = read("MASTER_ADDR"))
    placement.masterAddress = address;
  if (const char *port = read("MASTER_PORT")) {
    Result<int> number = numberOf("MASTER_PORT", port, 1, 65534);
    if (!number)
      return Unexpected(number.error());
    // There torchrun's own store listens.
    const char *store = read("TORCHELASTIC_USE_AGENT_STORE");
    placement.masterPort = *number + (store && std::string_view(store) == "True" ? 1 : 0);
  }
  return placement;
}

Result<Placement> findPlacement() {
  return findPlacement([](const char *name) { return std::getenv(name); });
}

Result<int> deviceOf(const Placement &placement, int devices) {
  if (placement.localRank < devices)
    return placement.localRank;
  return makeError(
      ErrorCode::OutOfRange,
      "rank {} of {} is number {} of its machine, which has {} GPU{}; start at most one "
      "rank a GPU there, or make more GPUs visible (CUDA_VISIBLE_DEVICES)",
      placement.rank, placement.size, placement.localRank + 1, devices, devices == 1 ? "" : "s");
}

} // namespace easyquant::comm
