//===- PlacementTest.cpp - Which rank a process is ------------------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "easyquant/Comm/Placement.h"

#include "../Support/TestFiles.h"
#include "easyquant/Comm/Open.h"

#include <gtest/gtest.h>

#include <map>

using namespace easyquant;
using namespace easyquant::comm;

using Variables = std::map<std::string, std::string>;

static Result<Placement> placementIn(const Variables &variables) {
  return findPlacement([&](const char *name) {
    const auto it = variables.find(name);
    return it == variables.end() ? nullptr : it->second.c_str();
  });
}

static const Variables kMpirun = {{"OMPI_COMM_WORLD_RANK", "1"},
                                  {"OMPI_COMM_WORLD_SIZE", "4"},
                                  {"OMPI_COMM_WORLD_LOCAL_RANK", "1"}};
static const Variables kSrun = {
    {"SLURM_STEP_ID", "0"}, {"SLURM_PROCID", "2"}, {"SLURM_NTASKS", "4"}, {"SLURM_LOCALID", "0"}};
static const Variables kTorchrun = {{"RANK", "3"},
                                    {"WORLD_SIZE", "8"},
                                    {"LOCAL_RANK", "1"},
                                    {"MASTER_ADDR", "node0"},
                                    {"MASTER_PORT", "29500"}};

static Variables with(Variables variables, const Variables &more) {
  for (const auto &[name, value] : more)
    variables[name] = value;
  return variables;
}

static void expectPlacement(const Variables &variables, Launcher launcher, int rank, int size,
                            int localRank) {
  const auto placement = placementIn(variables);
  ASSERT_VALUE(placement);
  EXPECT_EQ(nameOf(placement->launcher), nameOf(launcher));
  EXPECT_EQ(placement->rank, rank);
  EXPECT_EQ(placement->size, size);
  EXPECT_EQ(placement->localRank, localRank);
}

TEST(Placement, IsWhatTheLauncherSays) {
  expectPlacement({}, Launcher::None, 0, 1, 0);
  expectPlacement(kMpirun, Launcher::MPIRun, 1, 4, 1);
  expectPlacement(kSrun, Launcher::SRun, 2, 4, 0);
  expectPlacement(kTorchrun, Launcher::Variables, 3, 8, 1);
  EXPECT_EQ(placementIn(kTorchrun)->masterAddress, "node0");
  EXPECT_EQ(placementIn(kTorchrun)->masterPort, 29500);
}

TEST(Placement, TheInnermostLauncherCounts) {
  // A batch script has srun's variables without being a task of it.
  expectPlacement({{"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "4"}, {"SLURM_LOCALID", "0"}},
                  Launcher::None, 0, 1, 0);
  expectPlacement(with(kSrun, kMpirun), Launcher::MPIRun, 1, 4, 1);
  expectPlacement(with(with(kSrun, kTorchrun), {{"TORCHELASTIC_RUN_ID", "none"}}),
                  Launcher::Variables, 3, 8, 1);
  expectPlacement(with(kMpirun, {{"RANK", "1"}, {"WORLD_SIZE", "4"}, {"LOCAL_RANK", "1"}}),
                  Launcher::MPIRun, 1, 4, 1);
}

TEST(Placement, TorchrunsOwnStoreKeepsItsPort) {
  EXPECT_EQ(placementIn(with(kTorchrun, {{"TORCHELASTIC_USE_AGENT_STORE", "True"}}))->masterPort,
            29501);
}

TEST(Placement, SaysWhatIsWrong) {
  EXPECT_ERROR(placementIn({{"RANK", "1"}}), ErrorCode::InvalidArgument,
               "RANK is set, but WORLD_SIZE is not");
  EXPECT_ERROR(placementIn({{"WORLD_SIZE", "2"}}), ErrorCode::InvalidArgument, "RANK is not");
  EXPECT_ERROR(placementIn({{"RANK", "0"}, {"WORLD_SIZE", "2"}}), ErrorCode::InvalidArgument,
               "LOCAL_RANK is not");
  EXPECT_ERROR(placementIn(with(kTorchrun, {{"RANK", "8"}})), ErrorCode::InvalidArgument,
               "RANK: found \"8\", expected a number in 0..7");
  EXPECT_ERROR(placementIn(with(kTorchrun, {{"MASTER_PORT", "http"}})), ErrorCode::InvalidArgument,
               "MASTER_PORT: found \"http\"");
  EXPECT_ERROR(placementIn(with(kMpirun, kTorchrun)), ErrorCode::InvalidArgument,
               "mpirun says that this is rank 1 of 4", "rank 3 of 8", "unset");
  EXPECT_ERROR(placementIn(with(kSrun, kTorchrun)), ErrorCode::InvalidArgument, "srun says");
}

TEST(Placement, AGpuALocalRank) {
  Placement placement = *placementIn(kTorchrun);
  EXPECT_EQ(*deviceOf(placement, 2), 1);
  EXPECT_ERROR(deviceOf(placement, 1), ErrorCode::OutOfRange,
               "rank 3 of 8 is number 2 of its machine, which has 1 GPU;");
}

TEST(Open, OneRankNeedsNothing) {
  auto communicator = openCommunicator(Placement(), {});
  ASSERT_VALUE(communicator);
  EXPECT_EQ((*communicator)->size(), 1);
  ASSERT_VALUE((*communicator)->close());
}

TEST(Open, MpiNeedsItsLauncherAndNcclAPlaceToMeet) {
  Placement placement = *placementIn(kTorchrun);
  EXPECT_ERROR(openCommunicator(placement, {}), ErrorCode::Unsupported, "rank 3 of 8",
               "MPI needs its own launcher", "mpirun");
  placement.masterAddress.clear();
  EXPECT_ERROR(openCommunicator(placement, {.onDevice = true}), ErrorCode::NotFound,
               "MASTER_ADDR is not set");
}
