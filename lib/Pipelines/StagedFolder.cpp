//===- StagedFolder.cpp - A folder that appears whole or not at all -------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "easyquant/Pipelines/StagedFolder.h"

#include "easyquant/Support/Folders.h"

#include "llvm/Support/FileSystem.h"
#include "llvm/Support/Path.h"

#include <cerrno>
#include <csignal>
#include <cstdio>
#include <fcntl.h>
#include <mutex>
#include <set>
#include <thread>
#include <unistd.h>

namespace sys = llvm::sys;

namespace easyquant {

namespace {
/// The folders to be removed when the process is asked to end.
struct Registry {
  std::mutex mutex;
  std::set<std::string> folders;
};
} // namespace

static Registry &registry() {
  static auto *instance = new Registry; // never destroyed: the watching thread may outlive main
  return *instance;
}

/// Where the handler writes the number of a signal, and the watching thread reads it. Not a blocked
/// signal and sigwait: libraries start threads before main (OpenBLAS does), which block nothing.
static int signalPipe[2] = {-1, -1};

static void onSignal(int number) {
  auto byte = static_cast<unsigned char>(number);
  [[maybe_unused]] ssize_t written = ::write(signalPipe[1], &byte, 1);
}

/// Waits for a signal, cleans up and ends the process by that signal.
static void watch() {
  unsigned char number = 0;
  while (::read(signalPipe[0], &number, 1) != 1)
    if (errno != EINTR)
      return;
  Registry &staged = registry();
  // Not released again: a commit that has not begun must not begin any more, and no pass may make
  // its output folder anew once it is removed.
  staged.mutex.lock();
  makeNoMoreFolders();
  for (const std::string &folder : staged.folders)
    // Other threads may still add files until their folder is gone.
    for (int attempt = 0; attempt < 100 && sys::fs::exists(folder); ++attempt)
      sys::fs::remove_directories(folder);
  std::signal(number, SIG_DFL);
  std::raise(number);
}

void removeStagedFoldersOnSignal() {
  if (::pipe2(signalPipe, O_CLOEXEC) != 0)
    return; // signals then end the process at once, and a temporary folder may stay
  for (int number : {SIGINT, SIGTERM, SIGHUP}) {
    struct sigaction action = {};
    // A signal that the parent chose to ignore (nohup) stays ignored.
    if (sigaction(number, nullptr, &action) != 0 || action.sa_handler == SIG_IGN)
      continue;
    action.sa_handler = onSignal;
    action.sa_flags = SA_RESTART;
    sigaction(number, &action, nullptr);
  }
  std::thread(watch).detach();
}

static llvm::Error fileError(llvm::StringRef path, std::error_code code) {
  return llvm::createFileError(path, code);
}

/// Flushes a file or folder to the disk.
static llvm::Error flush(llvm::StringRef path) {
  int fd = ::open(path.str().c_str(), O_RDONLY | O_CLOEXEC);
  int status = fd < 0 ? -1 : ::fsync(fd);
  llvm::Error error = status == 0
                          ? llvm::Error::success()
                          : fileError(path, std::error_code(errno, std::generic_category()));
  if (fd >= 0)
    ::close(fd);
  return error;
}

static std::string parentOf(llvm::StringRef path) {
  llvm::StringRef parent = sys::path::parent_path(path);
  return parent.empty() ? "." : parent.str();
}

llvm::Expected<StagedFolder> StagedFolder::create(llvm::StringRef destination, bool replace) {
  destination = destination.rtrim('/');
  if (destination.empty())
    return llvm::createStringError("the output folder has no name");
  if (sys::fs::exists(destination)) {
    if (!replace)
      return llvm::createStringError(destination + " exists; give another folder or --force");
    if (!sys::fs::is_directory(destination))
      return llvm::createStringError(destination + " is not a folder and will not be replaced");
    if (!sys::fs::exists(destination + "/manifest.json"))
      return llvm::createStringError(
          destination + " holds no artifact and will not be replaced; remove it yourself");
  }
  if (std::error_code code = sys::fs::create_directories(parentOf(destination)))
    return fileError(parentOf(destination), code);
  llvm::SmallString<128> staging;
  sys::fs::createUniquePath(destination + ".partial-%%%%%%%%", staging, /*MakeAbsolute=*/false);
  std::lock_guard lock(registry().mutex);
  if (std::error_code code =
          sys::fs::create_directory(staging, /*IgnoreExisting=*/false, sys::fs::all_all))
    return fileError(staging, code);
  registry().folders.insert(staging.str().str());
  return StagedFolder(destination.str(), staging.str().str());
}

StagedFolder::StagedFolder(StagedFolder &&other)
    : destination(std::move(other.destination)), staging(std::move(other.staging)) {
  other.staging.clear();
}

StagedFolder::~StagedFolder() {
  if (staging.empty())
    return;
  sys::fs::remove_directories(staging);
  std::lock_guard lock(registry().mutex);
  registry().folders.erase(staging);
}

/// Gives `from` the name `to`; what had that name then has the name `from`.
static std::error_code swapNames(const std::string &from, const std::string &to) {
  if (::renameat2(AT_FDCWD, from.c_str(), AT_FDCWD, to.c_str(), RENAME_EXCHANGE) == 0)
    return {};
  if (errno != EINVAL && errno != ENOSYS)
    return {errno, std::generic_category()};
  // A file system that cannot exchange: the old folder steps aside first.
  std::string aside = from + ".replaced";
  if (std::error_code code = sys::fs::rename(to, aside))
    return code;
  if (std::error_code code = sys::fs::rename(from, to)) {
    sys::fs::rename(aside, to);
    return code;
  }
  return sys::fs::rename(aside, from);
}

llvm::Error StagedFolder::commit() {
  std::error_code code;
  for (sys::fs::directory_iterator it(staging, code), end; it != end && !code; it.increment(code))
    if (llvm::Error error = flush(it->path()))
      return error;
  if (code)
    return fileError(staging, code);
  if (llvm::Error error = flush(staging))
    return error;

  std::lock_guard lock(registry().mutex);
  bool replace = sys::fs::exists(destination);
  if ((code = replace ? swapNames(staging, destination) : sys::fs::rename(staging, destination)))
    return fileError(destination, code);
  if (replace)
    sys::fs::remove_directories(staging);
  registry().folders.erase(staging);
  staging.clear();
  return flush(parentOf(destination));
}

} // namespace easyquant
