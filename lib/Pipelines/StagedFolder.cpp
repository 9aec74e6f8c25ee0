//===- StagedFolder.cpp - A folder that appears whole or not at all -------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "easyquant/Pipelines/StagedFolder.h"

#include "easyquant/Support/Folders.h"

#include "llvm/ADT/Twine.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/Path.h"

#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <fcntl.h>
#include <mutex>
#include <set>
#include <thread>
#include <unistd.h>

namespace sys = llvm::sys;

namespace easyquant {

namespace {
/// The claims whose staged folders are to be removed when the process is asked to end.
struct Registry {
  std::mutex mutex;
  std::set<std::string> claims;
};
} // namespace

/// What a claim holds: the folder under way; where a file system cannot exchange names, also the
/// one that it replaces.
static std::string stagingIn(llvm::StringRef claim) { return (claim + "/artifact").str(); }
static std::string replacedIn(llvm::StringRef claim) { return (claim + "/replaced").str(); }

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
  for (const std::string &claim : staged.claims) {
    std::string folder = stagingIn(claim);
    // Other threads may still add files until their folder is gone.
    for (int attempt = 0; attempt < 100 && sys::fs::exists(folder); ++attempt)
      sys::fs::remove_directories(folder);
    FolderClaim::remove(claim);
  }
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

static llvm::Error failure(const llvm::Twine &message) { return llvm::createStringError(message); }

/// Flushes a file or folder to the disk.
static std::error_code flush(llvm::StringRef path) {
  int fd = ::open(path.str().c_str(), O_RDONLY | O_CLOEXEC);
  std::error_code code;
  if (fd < 0 || ::fsync(fd) != 0)
    code = {errno, std::generic_category()};
  if (fd >= 0)
    ::close(fd);
  return code;
}

static std::string parentOf(llvm::StringRef path) {
  llvm::StringRef parent = sys::path::parent_path(path);
  return parent.empty() ? "." : parent.str();
}

/// The folder that `destination` means: what a symbolic link there points to, else itself.
static llvm::Expected<std::string> resolve(llvm::StringRef destination) {
  if (!sys::fs::is_symlink_file(destination))
    return destination.str();
  llvm::SmallString<128> target;
  if (std::error_code code = sys::fs::real_path(destination, target))
    return failure(destination + ": is a symbolic link that leads nowhere (" + code.message() +
                   "); expected a new name, or an artifact to replace: remove the link or give "
                   "another folder");
  return target.str().str();
}

/// Whether the destination may be written now.
static llvm::Error check(llvm::StringRef destination, bool replace) {
  if (!sys::fs::exists(destination))
    return llvm::Error::success();
  if (!replace)
    return failure(destination + " exists; give another folder or --force");
  if (!sys::fs::is_directory(destination))
    return failure(destination + " is not a folder and will not be replaced");
  if (!sys::fs::exists(destination + "/manifest.json"))
    return failure(destination + " holds no artifact and will not be replaced; remove it yourself");
  return llvm::Error::success();
}

StagedFolder::StagedFolder(FolderClaim taken, std::string destination, bool replace)
    : claim(std::move(taken)), destination(std::move(destination)),
      staging(stagingIn(claim.folder().native())), replace(replace) {}

llvm::Expected<StagedFolder> StagedFolder::make(FolderClaim claim, std::string destination,
                                                bool replace) {
  const std::string &folder = claim.folder().native();
  // Of a process that was killed: the claim says that nobody works there any more.
  for (const std::string &left : {stagingIn(folder), replacedIn(folder)})
    if (std::error_code code = sys::fs::remove_directories(left, /*IgnoreErrors=*/false))
      return failure(left + ": cannot be removed: " + code.message());
  std::lock_guard lock(registry().mutex);
  StagedFolder staged(std::move(claim), std::move(destination), replace);
  if (std::error_code code =
          sys::fs::create_directory(staged.staging, /*IgnoreExisting=*/false, sys::fs::all_all)) {
    std::string path = std::exchange(staged.staging, "");
    return failure(path + ": cannot be created: " + code.message());
  }
  registry().claims.insert(staged.claim.folder().native());
  return staged;
}

llvm::Expected<StagedFolder> StagedFolder::create(llvm::StringRef named, bool replace) {
  named = named.rtrim('/');
  if (named.empty())
    return failure("the output folder has no name");
  llvm::Expected<std::string> destination = resolve(named);
  if (!destination)
    return destination.takeError();
  if (llvm::Error error = check(*destination, replace))
    return error;
  std::string parent = parentOf(*destination);
  if (std::error_code code = sys::fs::create_directories(parent))
    return failure(parent + ": cannot be created: " + code.message());
  const std::string folder = *destination + ".partial";
  Result<std::optional<FolderClaim>> claim = FolderClaim::take(folder);
  if (!claim)
    return failure(claim.error().message);
  if (!*claim)
    return failure(*destination + " is being written by " + FolderClaim::holderOf(folder) +
                   "; wait for it or give another folder");
  // Killed while it exchanged names in two steps: nothing was lost.
  if (!sys::fs::exists(*destination))
    sys::fs::rename(replacedIn(folder), *destination);
  // Who held the claim until now may have finished.
  if (llvm::Error error = check(*destination, replace))
    return error;
  return make(std::move(**claim), std::move(*destination), replace);
}

llvm::Expected<StagedFolder> StagedFolder::scratch() {
  for (int number = 1;; ++number) {
    Result<std::optional<FolderClaim>> claim =
        FolderClaim::take("easyquant-ir-" + std::to_string(number) + ".partial");
    if (!claim)
      return failure(claim.error().message);
    if (*claim)
      return make(std::move(**claim), /*destination=*/"", /*replace=*/false);
  }
}

StagedFolder::StagedFolder(StagedFolder &&other)
    : claim(std::move(other.claim)), destination(std::move(other.destination)),
      staging(std::exchange(other.staging, "")), replace(other.replace) {}

StagedFolder::~StagedFolder() {
  if (claim.folder().empty()) // moved from
    return;
  if (!staging.empty())
    sys::fs::remove_directories(staging);
  std::lock_guard lock(registry().mutex);
  registry().claims.erase(claim.folder().native());
}

static std::error_code renameWith(unsigned flags, const std::string &from, const std::string &to) {
  return ::renameat2(AT_FDCWD, from.c_str(), AT_FDCWD, to.c_str(), flags) == 0
             ? std::error_code()
             : std::error_code(errno, std::generic_category());
}

static bool isUnknown(std::error_code code) {
  return code == std::errc::invalid_argument || code == std::errc::function_not_supported;
}

/// Gives the folder `from` the name `to`, which is free.
static std::error_code takeName(const std::string &from, const std::string &to) {
  std::error_code code = renameWith(RENAME_NOREPLACE, from, to);
  // A file system without the flag: there, too, a folder never takes the name of a file or of a
  // folder that is not empty.
  return isUnknown(code) ? sys::fs::rename(from, to) : code;
}

/// Gives `from` the name `to`; what had that name then has the name `from`.
static std::error_code swapNames(const std::string &from, const std::string &to,
                                 const std::string &aside) {
  std::error_code code = renameWith(RENAME_EXCHANGE, from, to);
  if (!isUnknown(code))
    return code;
  // A file system that cannot exchange: the old folder steps aside first.
  if ((code = sys::fs::rename(to, aside)))
    return code;
  if ((code = sys::fs::rename(from, to))) {
    sys::fs::rename(aside, to);
    return code;
  }
  return sys::fs::rename(aside, from);
}

llvm::Error StagedFolder::flushFiles() {
  auto flushed = [&](llvm::StringRef path) {
    std::error_code code = flush(path);
    return code ? failure(path + ": cannot be flushed to the disk: " + code.message())
                : llvm::Error::success();
  };
  std::error_code code;
  for (sys::fs::directory_iterator it(staging, code), end; it != end && !code; it.increment(code))
    if (llvm::Error error = flushed(it->path()))
      return error;
  if (code)
    return failure(staging + ": cannot be listed: " + code.message());
  return flushed(staging);
}

llvm::Error StagedFolder::commit() {
  if (llvm::Error error = flushFiles())
    return failure(
        llvm::toString(std::move(error)) + "; " + destination +
        (replace && sys::fs::exists(destination) ? " stays as it was" : " was not written"));

  std::lock_guard lock(registry().mutex);
  if (llvm::Error error = check(destination, replace))
    return failure("while this was compiled, another wrote there: " +
                   llvm::toString(std::move(error)));
  const bool exchanged = sys::fs::exists(destination);
  if (std::error_code code =
          exchanged ? swapNames(staging, destination, replacedIn(claim.folder().native()))
                    : takeName(staging, destination))
    return failure(destination + ": cannot be given its name: " + code.message() + "; " +
                   (exchanged ? "the artifact before it stays" : "nothing was written"));
  const std::string before = std::exchange(staging, "");
  const std::string parent = parentOf(destination);
  if (std::error_code code = flush(parent))
    return failure(parent + ": cannot be flushed to the disk: " + code.message() + "; " +
                   destination + " is complete, but its name may be lost if the power fails now" +
                   (exchanged ? ", so the artifact before it is kept as " + before +
                                    " until the next compilation"
                              : std::string()) +
                   "; check the disk, then run sync");
  if (exchanged)
    sys::fs::remove_directories(before);
  return llvm::Error::success();
}

} // namespace easyquant
