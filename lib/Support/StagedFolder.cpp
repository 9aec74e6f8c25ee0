//===- StagedFolder.cpp - A folder that appears whole or not at all -------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "easyquant/Support/StagedFolder.h"

#include "easyquant/Support/Folders.h"

#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <fcntl.h>
#include <mutex>
#include <set>
#include <thread>
#include <unistd.h>

namespace fs = std::filesystem;

namespace easyquant {

namespace {
/// The claims whose staged folders are to be removed when the process is asked to end.
struct Registry {
  std::mutex mutex;
  std::set<std::string> claims;
  std::function<void(int)> last; ///< before the process ends
};
} // namespace

/// What a claim holds: the folder under way; where a file system cannot exchange names, also the
/// one that it replaces.
static std::string stagingIn(const std::string &claim) { return claim + "/artifact"; }
static std::string replacedIn(const std::string &claim) { return claim + "/replaced"; }

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
  std::function<void(int)> last;
  {
    std::lock_guard lock(staged.mutex);
    last = staged.last;
  }
  if (last)
    last(number);
  // Not released again: a commit that has not begun must not begin any more, and no pass may make
  // its output folder anew once it is removed.
  staged.mutex.lock();
  makeNoMoreFolders();
  for (const std::string &claim : staged.claims) {
    std::string folder = stagingIn(claim);
    // Other threads may still add files until their folder is gone.
    std::error_code ignored;
    for (int attempt = 0; attempt < 100 && fs::exists(folder, ignored); ++attempt)
      fs::remove_all(folder, ignored);
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

void onTerminationSignal(std::function<void(int)> last) {
  std::lock_guard lock(registry().mutex);
  registry().last = std::move(last);
}

template <typename... Args>
static Unexpected failure(fmt::format_string<Args...> format, Args &&...args) {
  return makeError(ErrorCode::IO, format, std::forward<Args>(args)...);
}

static bool exists(const std::string &path) {
  std::error_code ignored;
  return fs::exists(path, ignored);
}

/// Flushes a file or folder to the disk.
static std::error_code flush(const std::string &path) {
  int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  std::error_code code;
  if (fd < 0 || ::fsync(fd) != 0)
    code = {errno, std::generic_category()};
  if (fd >= 0)
    ::close(fd);
  return code;
}

static std::string parentOf(const std::string &path) {
  std::string parent = fs::path(path).parent_path().string();
  return parent.empty() ? "." : parent;
}

/// The folder that `destination` means: what a symbolic link there points to, else itself.
static Result<std::string> resolve(const std::string &destination) {
  std::error_code code;
  if (!fs::is_symlink(destination, code))
    return destination;
  fs::path target = fs::canonical(destination, code);
  if (code)
    return failure("{}: is a symbolic link that leads nowhere ({}); expected a new name, or an "
                   "artifact to replace: remove the link or give another folder",
                   destination, code.message());
  return target.string();
}

/// Whether the destination may be written now.
static Result<void> check(const std::string &destination, const StagedFolder::Replace &replace) {
  auto refuse = [&](const std::string &why) {
    return makeError(ErrorCode::InvalidArgument, "{}{}", destination, why);
  };
  std::error_code ignored;
  if (!exists(destination))
    return {};
  if (!replace.allowed)
    return refuse(" exists; " + replace.remedy);
  if (!fs::is_directory(destination, ignored))
    return refuse(" is not a folder and will not be replaced");
  if (!exists(destination + "/" + replace.mark))
    return refuse(" holds no artifact and will not be replaced; remove it yourself");
  return {};
}

StagedFolder::StagedFolder(FolderClaim taken, std::string destination, Replace replace)
    : claim(std::move(taken)), destination(std::move(destination)),
      staging(stagingIn(claim.folder().native())), replace(std::move(replace)) {}

Result<StagedFolder> StagedFolder::make(FolderClaim claim, std::string destination,
                                        Replace replace) {
  const std::string folder = claim.folder().native();
  std::error_code code;
  // These are left by a process that was killed: the claim says that nobody works there any more.
  for (const std::string &left : {stagingIn(folder), replacedIn(folder)})
    if (fs::remove_all(left, code); code)
      return failure("{}: cannot be removed: {}", left, code.message());
  if (fs::create_directory(stagingIn(folder), code); code)
    return failure("{}: cannot be created: {}", stagingIn(folder), code.message());
  registry().claims.insert(folder);
  return StagedFolder(std::move(claim), std::move(destination), std::move(replace));
}

Result<StagedFolder> StagedFolder::create(std::string named, Replace replace) {
  named.erase(named.find_last_not_of('/') + 1);
  if (named.empty())
    return failure("the output folder has no name");
  Result<std::string> destination = resolve(named);
  if (!destination)
    return Unexpected(destination.error());
  if (Result<void> checked = check(*destination, replace); !checked)
    return Unexpected(checked.error());
  const std::string parent = parentOf(*destination);
  const bool hadParent = exists(parent);
  if (Result<void> made = makeFolders(parent); !made)
    return Unexpected(made.error());
  const std::string folder = *destination + ".partial";
  // Held until the claim is registered: a signal between the two would leave its folder.
  std::lock_guard lock(registry().mutex);
  Result<std::optional<FolderClaim>> claim = FolderClaim::take(folder);
  if (!claim)
    return Unexpected(claim.error());
  if (!*claim)
    return makeError(ErrorCode::InvalidArgument,
                     "{} is being written by {}; wait for it or give another folder", *destination,
                     FolderClaim::holderOf(folder));
  // Killed while it exchanged names in two steps: nothing was lost.
  std::error_code ignored;
  if (!exists(*destination))
    fs::rename(replacedIn(folder), *destination, ignored);
  // Who held the claim until now may have finished.
  if (Result<void> checked = check(*destination, replace); !checked)
    return Unexpected(checked.error());
  Result<StagedFolder> staged =
      make(std::move(**claim), std::move(*destination), std::move(replace));
  if (staged && !hadParent)
    staged->parent = parent;
  return staged;
}

Result<StagedFolder> StagedFolder::scratch() {
  std::lock_guard lock(registry().mutex); // as above
  for (int number = 1;; ++number) {
    Result<std::optional<FolderClaim>> claim =
        FolderClaim::take("easyquant-ir-" + std::to_string(number) + ".partial");
    if (!claim)
      return Unexpected(claim.error());
    if (*claim)
      return make(std::move(**claim), /*destination=*/"", {});
  }
}

StagedFolder::StagedFolder(StagedFolder &&other) noexcept
    : claim(std::move(other.claim)), destination(std::move(other.destination)),
      staging(std::exchange(other.staging, "")), parent(std::move(other.parent)),
      replace(std::move(other.replace)) {}

StagedFolder::~StagedFolder() {
  if (claim.folder().empty()) // moved from
    return;
  std::error_code ignored;
  if (!staging.empty())
    fs::remove_all(staging, ignored);
  // The claim goes before the lock does, for the same reason as in create().
  std::lock_guard lock(registry().mutex);
  registry().claims.erase(claim.folder().native());
  FolderClaim ended(std::move(claim));
}

static std::error_code renameWith(unsigned flags, const std::string &from, const std::string &to) {
  return ::renameat2(AT_FDCWD, from.c_str(), AT_FDCWD, to.c_str(), flags) == 0
             ? std::error_code()
             : std::error_code(errno, std::generic_category());
}

static std::error_code rename(const std::string &from, const std::string &to) {
  std::error_code code;
  fs::rename(from, to, code);
  return code;
}

static bool isUnknown(std::error_code code) {
  return code == std::errc::invalid_argument || code == std::errc::function_not_supported;
}

/// Gives the folder `from` the name `to`, which is free.
static std::error_code takeName(const std::string &from, const std::string &to) {
  std::error_code code = renameWith(RENAME_NOREPLACE, from, to);
  // A file system without the flag: there, too, a folder never takes the name of a file or of a
  // folder that is not empty.
  return isUnknown(code) ? rename(from, to) : code;
}

/// Gives `from` the name `to`; what had that name then has the name `from`.
static std::error_code swapNames(const std::string &from, const std::string &to,
                                 const std::string &aside) {
  std::error_code code = renameWith(RENAME_EXCHANGE, from, to);
  if (!isUnknown(code))
    return code;
  // A file system that cannot exchange: the old folder steps aside first.
  if ((code = rename(to, aside)))
    return code;
  if ((code = rename(from, to))) {
    rename(aside, to);
    return code;
  }
  return rename(aside, from);
}

Result<void> StagedFolder::flushFiles() {
  auto flushed = [&](const std::string &path) -> Result<void> {
    if (std::error_code code = flush(path))
      return failure("{}: cannot be flushed to the disk: {}", path, code.message());
    return {};
  };
  std::error_code code;
  for (fs::directory_iterator it(staging, code), end; it != end && !code; it.increment(code))
    if (Result<void> done = flushed(it->path().string()); !done)
      return done;
  if (code)
    return failure("{}: cannot be listed: {}", staging, code.message());
  return flushed(staging);
}

Result<void> StagedFolder::commit() {
  if (Result<void> done = flushFiles(); !done)
    return failure("{}; {}{}", done.error().message, destination,
                   replace.allowed && exists(destination) ? " stays as it was"
                                                          : " was not written");

  std::lock_guard lock(registry().mutex);
  if (Result<void> checked = check(destination, replace); !checked)
    return makeError(ErrorCode::InvalidArgument, "while this was written, another wrote there: {}",
                     checked.error().message);
  const bool exchanged = exists(destination);
  if (std::error_code code =
          exchanged ? swapNames(staging, destination, replacedIn(claim.folder().native()))
                    : takeName(staging, destination))
    return failure("{}: cannot be given its name: {}; {}", destination, code.message(),
                   exchanged ? "the artifact before it stays" : "nothing was written");
  const std::string before = std::exchange(staging, "");
  const std::string parent = parentOf(destination);
  if (std::error_code code = flush(parent))
    return failure(
        "{}: cannot be flushed to the disk: {}; {} is complete, but its name may be lost "
        "if the power fails now{}; check the disk, then run sync",
        parent, code.message(), destination,
        exchanged
            ? ", so the artifact before it is kept as " + before + " until the next compilation"
            : std::string());
  std::error_code ignored;
  if (exchanged)
    fs::remove_all(before, ignored);
  return {};
}

} // namespace easyquant
