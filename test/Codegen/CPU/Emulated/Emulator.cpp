//===- Emulator.cpp - Calls kernels for other processors ------------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Emulator.h"

#include "llvm/Support/FileSystem.h"
#include "llvm/Support/Program.h"

#include <csignal>
#include <cstring>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

namespace easyquant::cpu::emulated {

// Debian's libc6-arm64-cross and libstdc++6-arm64-cross.
static constexpr const char *kLibraries = "/usr/aarch64-linux-gnu";

static std::string built(const char *file) {
  const char *folder = std::getenv("EASYQUANT_BUILD_AARCH64");
  return std::string(folder ? folder : EASYQUANT_BUILD_AARCH64) + "/" + file;
}

std::string Emulator::missing() {
  if (!llvm::sys::findProgramByName("qemu-aarch64"))
    return "no qemu-aarch64 (Debian's qemu-user)";
  if (!llvm::sys::fs::exists(kLibraries))
    return std::string("no ") + kLibraries + " (Debian's g++-aarch64-linux-gnu)";
  for (const std::string &path : {built("unittests/KernelHost"), built("lib/libomp.so.5")})
    if (!llvm::sys::fs::exists(path))
      return "no " + path + " (scripts/test.sh makes it with Debian's g++-aarch64-linux-gnu)";
  return {};
}

Emulator::Emulator(const Target &target, const std::string &library) {
  const std::string search = "LD_LIBRARY_PATH=" + std::string(kLibraries) + "/lib:" + built("lib");
  std::vector<std::string> command = {"qemu-aarch64",
                                      "-cpu",
                                      target.isa == Isa::NeonDot ? "cortex-a76" : "max",
                                      "-L",
                                      kLibraries,
                                      "-E",
                                      search,
                                      built("unittests/KernelHost"),
                                      library};
  std::vector<char *> arguments;
  for (std::string &word : command)
    arguments.push_back(word.data());
  arguments.push_back(nullptr);

  // Only this end is to keep the pipe open, whatever other processes are started.
  int in[2], out[2];
  if (pipe2(in, O_CLOEXEC) || pipe2(out, O_CLOEXEC)) {
    ADD_FAILURE() << "no pipes";
    return;
  }
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, in[0], STDIN_FILENO);
  posix_spawn_file_actions_adddup2(&actions, out[1], STDOUT_FILENO);
  const int error =
      posix_spawnp(&process, arguments[0], &actions, nullptr, arguments.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  close(in[0]);
  close(out[1]);
  calls = fdopen(in[1], "wb");
  answers = fdopen(out[0], "rb");
  EXPECT_EQ(error, 0) << "qemu-aarch64 does not start";
  // A host that has ended is told by the answer that is missing.
  std::signal(SIGPIPE, SIG_IGN);
}

Emulator::~Emulator() {
  if (calls)
    std::fclose(calls);
  if (answers)
    std::fclose(answers);
  int status = 0;
  if (process > 0 && waitpid(process, &status, 0) == process) {
    EXPECT_FALSE(WIFSIGNALED(status)) << "the kernel ended by signal " << WTERMSIG(status);
    EXPECT_TRUE(WIFSIGNALED(status) || WEXITSTATUS(status) == 0) << WEXITSTATUS(status);
  }
}

/// Whole pages of what the arguments lie in, each once.
static std::vector<Region> regionsOf(const std::vector<Passed> &arguments) {
  std::vector<Region> sorted, regions;
  for (const Passed &passed : arguments)
    if (passed.begin < passed.end) {
      const uint64_t begin = passed.begin / kPage * kPage;
      sorted.push_back({begin, (passed.end - begin + kPage - 1) / kPage * kPage});
    }
  llvm::sort(sorted, [](const Region &a, const Region &b) { return a.address < b.address; });
  for (const Region &region : sorted) {
    if (regions.empty() || regions.back().address + regions.back().bytes < region.address)
      regions.push_back(region);
    else
      regions.back().bytes =
          std::max(regions.back().bytes, region.address + region.bytes - regions.back().address);
  }
  return regions;
}

void Emulator::call(const std::string &symbol, const std::vector<Passed> &arguments) {
  ASSERT_TRUE(calls && answers);
  const std::vector<Region> regions = regionsOf(arguments);
  // Pages have neighbours that are this process's own: only bytes that the kernel changes come
  // back.
  uint64_t total = 0;
  for (const Region &region : regions)
    total += region.bytes;
  std::vector<char> before(total), after(total);
  char *at = before.data();
  for (const Region &region : regions) {
    std::memcpy(at, reinterpret_cast<const void *>(region.address), region.bytes);
    at += region.bytes;
  }

  auto send = [&](const void *from, size_t bytes) { std::fwrite(from, 1, bytes, calls); };
  Call call = {symbol.size(), regions.size(), arguments.size()};
  send(&call, sizeof(call));
  send(symbol.data(), symbol.size());
  at = before.data();
  for (const Region &region : regions) {
    send(&region, sizeof(region));
    send(at, region.bytes);
    at += region.bytes;
  }
  for (const Passed &passed : arguments) {
    send(&passed.argument, sizeof(passed.argument));
    if (passed.descriptor)
      send(passed.descriptor, passed.argument.value);
  }
  std::fflush(calls);

  uint64_t done = 0;
  ASSERT_TRUE(std::fread(&done, sizeof(done), 1, answers) == 1 && done == kDone)
      << symbol << " did not come back from the emulator";
  ASSERT_EQ(std::fread(after.data(), 1, total, answers), total) << symbol;
  size_t place = 0;
  for (const Region &region : regions)
    for (uint64_t i = 0; i < region.bytes; ++i, ++place)
      if (after[place] != before[place])
        reinterpret_cast<char *>(region.address)[i] = after[place];
}

} // namespace easyquant::cpu::emulated
