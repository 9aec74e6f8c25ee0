//===- BroadcastFile.cpp - Files for ranks that lack them -----------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "easyquant/Comm/BroadcastFile.h"

#include "easyquant/Support/Checksum.h"
#include "easyquant/Support/Folders.h"
#include "easyquant/Support/StagedFolder.h"
#include "easyquant/Support/WriteFile.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <filesystem>
#include <sys/stat.h>
#include <unistd.h>

namespace easyquant::comm {
namespace {

class OpenFile {
public:
  OpenFile() = default;
  OpenFile(const OpenFile &) = delete;
  OpenFile &operator=(const OpenFile &) = delete;
  ~OpenFile() { close(); }
  bool open(const std::string &path, int flags) {
    descriptor = ::open(path.c_str(), flags | O_CLOEXEC, 0666);
    return descriptor >= 0;
  }
  int close() { return descriptor < 0 ? 0 : ::close(std::exchange(descriptor, -1)); }
  bool isOpen() const { return descriptor >= 0; }
  int get() const { return descriptor; }

private:
  int descriptor = -1;
};

/// One file's way through one rank. A rank that cannot read or write goes on handing on, so that
/// the others get the file, or learn the reason.
class FileStage {
public:
  FileStage(Communicator &communicator, const std::string &source, const std::string &destination,
            int root, int64_t chunkBytes)
      : communicator(communicator), destination(destination), root(root), chunk(chunkBytes) {
    if (isRoot())
      openSource(source);
    else if (!destination.empty() && !file.open(temporary(), O_WRONLY | O_CREAT | O_TRUNC))
      note(destination, "cannot create");
  }
  ~FileStage() {
    if (!isRoot() && !destination.empty() && !committed)
      ::unlink(temporary().c_str());
  }

  Result<void> run() {
    if (Result<void> told = communicator.broadcast(std::span(&bytes, 1), root, "file"); !told)
      return told;
    const int64_t chunks = bytes < 0 ? 0 : (bytes + chunk - 1) / chunk;
    Result<void> passed = communicator.hasPointToPoint() ? ring(chunks) : star(chunks);
    if (!passed)
      return passed;
    return commit();
  }

private:
  static constexpr int64_t kDepth = 4; ///< chunks under way

  bool isRoot() const { return communicator.rank() == root; }
  std::string temporary() const { return temporaryNameOf(destination).string(); }
  int64_t sizeOf(int64_t index) const { return std::min(chunk, bytes - index * chunk); }
  std::span<std::byte> bufferOf(int64_t index) {
    auto &buffer = buffers[static_cast<size_t>(index % kDepth)];
    buffer.resize(static_cast<size_t>(chunk));
    return std::span(buffer).first(static_cast<size_t>(sizeOf(index)));
  }

  void note(const std::string &path, std::string_view what) {
    if (problem.empty())
      problem = fmt::format("{}: {}: {}", path, what, std::strerror(errno));
  }

  void openSource(const std::string &source) {
    struct stat status;
    if (!file.open(source, O_RDONLY | O_NONBLOCK) || ::fstat(file.get(), &status) != 0)
      note(source, "cannot open");
    else if (!S_ISREG(status.st_mode))
      problem = source + ": not a regular file";
    else
      bytes = status.st_size;
  }

  void read(std::span<std::byte> to) {
    size_t done = 0;
    while (done < to.size() && problem.empty()) {
      const ssize_t count = ::read(file.get(), to.data() + done, to.size() - done);
      if (count > 0)
        done += static_cast<size_t>(count);
      else if (count == 0)
        problem = "the file became shorter while it was read";
      else if (errno != EINTR)
        note("the file", "cannot read");
    }
  }

  /// Puts bytes that arrived, or were read, into the checksum and the own file.
  void take(std::span<const std::byte> from) {
    checksum.update(from.data(), from.size());
    while (!isRoot() && file.isOpen() && !from.empty() && problem.empty()) {
      const ssize_t count = ::write(file.get(), from.data(), from.size());
      if (count >= 0)
        from = from.subspan(static_cast<size_t>(count));
      else if (errno != EINTR)
        note(destination, "cannot write");
    }
  }

  Result<Request> message(Call call, int64_t index, int peer) {
    const auto buffer = bufferOf(index);
    return communicator.start({.call = call,
                               .data = buffer.data(),
                               .count = static_cast<int64_t>(buffer.size()),
                               .peer = peer,
                               .site = "file"});
  }

  Result<void> ring(int64_t chunks) {
    const int size = communicator.size(), next = (communicator.rank() + 1) % size,
              before = (communicator.rank() + size - 1) % size;
    const bool first = isRoot(), last = next == root;
    std::array<Request, kDepth> receives, sends;
    const auto receive = [&](int64_t index) -> Result<void> {
      if (first || index >= chunks)
        return {};
      Result<Request> started = message(Call::Receive, index, before);
      if (!started)
        return Unexpected(started.error());
      receives[static_cast<size_t>(index % kDepth)] = *started;
      return {};
    };
    // Two receives ahead; the sends of the two chunks before may still be under way.
    constexpr int64_t kAhead = kDepth / 2;
    for (int64_t index = 0; index < kAhead; ++index)
      if (Result<void> started = receive(index); !started)
        return started;
    for (int64_t index = 0; index < chunks; ++index) {
      const auto slot = static_cast<size_t>(index % kDepth);
      if (first) {
        if (index >= kDepth && !last)
          if (Result<void> sent = communicator.wait(sends[slot]); !sent)
            return sent;
        read(bufferOf(index));
      } else if (Result<void> received = communicator.wait(receives[slot]); !received) {
        return received;
      }
      if (!last) {
        Result<Request> started = message(Call::Send, index, next);
        if (!started)
          return Unexpected(started.error());
        sends[slot] = *started;
      }
      take(bufferOf(index));
      // The buffer of the next receive is free once what it held has been handed on.
      const int64_t freed = index + kAhead - kDepth;
      if (!first && !last && freed >= 0)
        if (Result<void> sent = communicator.wait(sends[static_cast<size_t>(freed % kDepth)]);
            !sent)
          return sent;
      if (Result<void> started = receive(index + kAhead); !started)
        return started;
    }
    for (int64_t index = std::max<int64_t>(0, chunks - kDepth); index < chunks && !last; ++index)
      if (Result<void> sent = communicator.wait(sends[static_cast<size_t>(index % kDepth)]); !sent)
        return sent;
    return {};
  }

  Result<void> star(int64_t chunks) {
    for (int64_t index = 0; index < chunks; ++index) {
      const auto buffer = bufferOf(index);
      if (isRoot())
        read(buffer);
      if (Result<void> told = communicator.broadcast(buffer, root, "file"); !told)
        return told;
      take(buffer);
    }
    return {};
  }

  /// Gives the file its name if all ranks have it whole; else all get the first problem.
  Result<void> commit() {
    std::array<char, 32> digest{};
    std::ranges::copy(checksum.hex(), digest.begin());
    const std::array<char, 32> own = digest;
    if (Result<void> told = communicator.broadcast(std::span<char>(digest), root, "file"); !told)
      return told;
    if (problem.empty() && own != digest)
      problem = fmt::format("{}: found checksum {}, expected {} as on rank {}; check the network",
                            destination, std::string_view(own.data(), own.size()),
                            std::string_view(digest.data(), digest.size()), root);
    if (!isRoot() && file.isOpen() && problem.empty()) {
      if (::fsync(file.get()) != 0 || file.close() != 0)
        note(destination, "cannot write");
      else if (::rename(temporary().c_str(), destination.c_str()) != 0)
        note(destination, "cannot give it its name");
      else
        committed = true;
    }
    Result<void> all = shareProblem(communicator, problem);
    if (!all && committed)
      ::unlink(destination.c_str());
    return all;
  }

public:
  /// The first rank's problem, on every rank.
  static Result<void> shareProblem(Communicator &communicator, const std::string &problem) {
    constexpr size_t kLongest = 512;
    const auto size = static_cast<size_t>(communicator.size());
    std::vector<char> texts(kLongest * size, '\0');
    std::ranges::copy(problem.substr(0, kLongest - 1),
                      texts.begin() +
                          static_cast<ptrdiff_t>(kLongest * size_t(communicator.rank())));
    if (Result<void> told = communicator.allGather(std::span(texts), {}, "file"); !told)
      return told;
    for (size_t rank = 0; rank < size; ++rank)
      if (const char *text = texts.data() + kLongest * rank; *text)
        return makeError(ErrorCode::IO, "rank {} of {}: {}{}", communicator.rank(), size,
                         rank == size_t(communicator.rank()) ? "" : fmt::format("rank {}: ", rank),
                         text);
    return {};
  }

private:
  Checksum checksum;
  Communicator &communicator;
  const std::string destination;
  const int root;
  const int64_t chunk;
  int64_t bytes = -1; ///< -1: the root has none
  std::string problem;
  std::array<std::vector<std::byte>, kDepth> buffers;
  OpenFile file;
  bool committed = false;
};

/// Relative names of the regular files, one a line.
Result<std::string> listFiles(const std::string &folder) {
  std::vector<std::string> names;
  std::error_code error;
  for (std::filesystem::recursive_directory_iterator it(folder, error), end; !error && it != end;
       it.increment(error))
    if (it->is_regular_file(error))
      names.push_back(std::filesystem::relative(it->path(), folder).string());
  if (error)
    return makeError(ErrorCode::IO, "{}: cannot list it: {}", folder, error.message());
  std::ranges::sort(names);
  std::string text;
  for (const std::string &name : names)
    text += name + '\n';
  return text;
}

} // namespace

Result<void> broadcastFile(Communicator &communicator, const std::string &source,
                           const std::string &destination, int root, int64_t chunkBytes) {
  return FileStage(communicator, source, destination, root, chunkBytes).run();
}

Result<void> broadcastFolder(Communicator &communicator, const std::string &source,
                             const std::string &destination, int64_t chunkBytes) {
  const bool writes = communicator.rank() != 0 && !destination.empty();
  std::string problem, names;
  std::optional<StagedFolder> staged;
  if (communicator.rank() == 0) {
    if (Result<std::string> listed = listFiles(source))
      names = *listed;
    else
      problem = listed.error().message;
  } else if (writes) {
    Result<StagedFolder> made = StagedFolder::create(
        destination,
        {.allowed = false, .mark = {}, .remedy = "give the rank another folder, or remove it"});
    if (made)
      staged.emplace(std::move(*made));
    else
      problem = made.error().message;
  }
  if (Result<void> ready = FileStage::shareProblem(communicator, problem); !ready)
    return ready;
  auto length = static_cast<int64_t>(names.size());
  if (Result<void> told = communicator.broadcast(std::span(&length, 1), 0, "files"); !told)
    return told;
  names.resize(static_cast<size_t>(length));
  if (Result<void> told = communicator.broadcast(std::span(names), 0, "files"); !told)
    return told;
  for (size_t begin = 0; begin < names.size();) {
    const size_t end = names.find('\n', begin);
    const std::string name = names.substr(begin, end - begin);
    begin = end + 1;
    const std::string path = writes ? staged->path() + "/" + name : std::string();
    if (writes)
      if (Result<void> made = makeFolders(std::filesystem::path(path).parent_path()); !made)
        problem = made.error().message;
    if (Result<void> sent =
            broadcastFile(communicator, source + "/" + name, path, /*root=*/0, chunkBytes);
        !sent)
      return sent;
  }
  if (writes && problem.empty())
    if (Result<void> committed = staged->commit(); !committed)
      problem = committed.error().message;
  return FileStage::shareProblem(communicator, problem);
}

} // namespace easyquant::comm
