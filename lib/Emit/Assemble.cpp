//===- Assemble.cpp - PTX to machine code ---------------------------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "easyquant/Emit/Assemble.h"

#include "easyquant/Support/WriteFile.h"

#include "llvm/ADT/SmallString.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/MemoryBuffer.h"
#include "llvm/Support/Path.h"
#include "llvm/Support/Program.h"

#include <cstdlib>

using llvm::StringRef;

namespace easyquant::gpu {
namespace {

/// A folder that is gone with all its files when this is.
class ScratchFolder {
public:
  static Result<ScratchFolder> create() {
    llvm::SmallString<128> path;
    if (auto error = llvm::sys::fs::createUniqueDirectory("easyquant-gpu", path))
      return makeError(ErrorCode::IO, "no temporary folder can be made: {}", error.message());
    return ScratchFolder(std::string(path));
  }
  ScratchFolder(ScratchFolder &&other) : path(std::move(other.path)) { other.path.clear(); }
  ~ScratchFolder() {
    if (!path.empty())
      llvm::sys::fs::remove_directories(path);
  }
  std::string file(const std::string &name) const { return path + "/" + name; }

private:
  explicit ScratchFolder(std::string path) : path(std::move(path)) {}
  std::string path;
};

Result<std::string> readFile(const std::string &path) {
  auto buffer = llvm::MemoryBuffer::getFile(path);
  if (!buffer)
    return makeError(ErrorCode::IO, "{} cannot be read: {}", path, buffer.getError().message());
  return (*buffer)->getBuffer().str();
}

/// Runs a program; its output, or Unsupported with it where the program fails.
Result<std::string> runProgram(const std::string &program, std::vector<std::string> arguments,
                               const ScratchFolder &folder, const std::string &what) {
  std::string log = folder.file("log");
  std::vector<StringRef> words = {program};
  words.insert(words.end(), arguments.begin(), arguments.end());
  std::optional<StringRef> redirects[] = {StringRef(), StringRef(log), StringRef(log)};
  std::string message;
  int status = llvm::sys::ExecuteAndWait(program, words, std::nullopt, redirects, 0, 0, &message);
  std::string output;
  if (auto text = readFile(log))
    output = *text;
  if (status != 0)
    return makeError(ErrorCode::Unsupported, "{} could not {}: {}{}", program, what, message,
                     output);
  return output;
}

/// The number before `unit` in a line such as "Used 40 registers, 512 bytes smem".
int64_t numberBefore(StringRef line, StringRef unit) {
  size_t end = line.find(unit);
  if (end == StringRef::npos)
    return 0;
  StringRef digits = line.take_front(end).rtrim();
  digits = digits.take_back(digits.size() - digits.find_last_not_of("0123456789") - 1);
  int64_t number = 0;
  digits.getAsInteger(10, number);
  return number;
}

std::map<std::string, KernelResources> parseResources(StringRef log) {
  std::map<std::string, KernelResources> kernels;
  std::string current;
  llvm::SmallVector<StringRef> lines;
  log.split(lines, '\n');
  for (StringRef line : lines) {
    if (line.contains("Compiling entry function")) {
      current = line.split('\'').second.split('\'').first.str();
      kernels[current];
    }
    if (current.empty())
      continue;
    KernelResources &kernel = kernels[current];
    if (line.contains("bytes stack frame")) {
      kernel.stackBytes = numberBefore(line, " bytes stack frame");
      kernel.spillStoreBytes = numberBefore(line, " bytes spill stores");
      kernel.spillLoadBytes = numberBefore(line, " bytes spill loads");
    }
    if (line.contains("registers")) {
      kernel.registers = numberBefore(line, " registers");
      kernel.staticSharedBytes = numberBefore(line, " bytes smem");
    }
  }
  return kernels;
}

} // namespace

Result<Assembler> Assembler::find() {
  const char *chosen = std::getenv("EASYQUANT_CUDA_BIN");
  auto program = [&](const char *name) -> std::string {
    if (chosen) {
      std::string path = std::string(chosen) + "/" + name;
      return llvm::sys::fs::can_execute(path) ? path : "";
    }
    std::string packaged = std::string(EASYQUANT_CUDA_BIN) + "/" + name;
    if (llvm::sys::fs::can_execute(packaged))
      return packaged;
    auto onPath = llvm::sys::findProgramByName(name);
    return onPath ? *onPath : "";
  };
  Assembler assembler;
  assembler.ptxas = program("ptxas");
  assembler.fatbinary = program("fatbinary");
  if (assembler.ptxas.empty() || assembler.fatbinary.empty())
    return makeError(
        ErrorCode::NotFound,
        "no {} found{}{}: install the Python package nvidia-cuda-nvcc (scripts/setup.sh, or pip "
        "install '.[gpu]' in a checkout of EasyQuant) or name the folder of the CUDA programs in "
        "EASYQUANT_CUDA_BIN; without them there is PTX only",
        assembler.ptxas.empty() ? "ptxas" : "fatbinary", chosen ? " in EASYQUANT_CUDA_BIN=" : "",
        chosen ? chosen : "");
  return assembler;
}

Result<Cubin> Assembler::assemble(const std::string &ptx, const std::string &chip) const {
  auto folder = ScratchFolder::create();
  if (!folder)
    return Unexpected(folder.error());
  std::string source = folder->file("kernels.ptx"), target = folder->file("kernels.cubin");
  if (auto ok = writeFile(source, ptx); !ok)
    return Unexpected(ok.error());
  auto log = runProgram(ptxas, {"-arch=" + chip, "-O3", "-v", source, "-o", target}, *folder,
                        "assemble kernels for " + chip);
  if (!log)
    return Unexpected(log.error());
  auto code = readFile(target);
  if (!code)
    return Unexpected(code.error());
  return Cubin{chip, std::move(*code), parseResources(*log)};
}

Result<std::string> Assembler::makeFatbin(const std::vector<Cubin> &cubins, const std::string &ptx,
                                          const std::string &ptxChip) const {
  auto folder = ScratchFolder::create();
  if (!folder)
    return Unexpected(folder.error());
  std::string target = folder->file("kernels.fatbin");
  std::vector<std::string> arguments = {"-64", "--create=" + target};
  auto add = [&](const std::string &kind, const std::string &chip, const std::string &file,
                 const std::string &text) -> Result<void> {
    arguments.push_back("--image3=kind=" + kind + ",sm=" + chip.substr(sizeof("sm_") - 1) +
                        ",file=" + folder->file(file));
    return writeFile(folder->file(file), text);
  };
  for (const Cubin &cubin : cubins)
    if (auto ok = add("elf", cubin.chip, cubin.chip + ".cubin", cubin.code); !ok)
      return Unexpected(ok.error());
  if (!ptx.empty())
    if (auto ok = add("ptx", ptxChip, ptxChip + ".ptx", ptx); !ok)
      return Unexpected(ok.error());
  if (auto log = runProgram(fatbinary, arguments, *folder, "join the kernels of all chips"); !log)
    return Unexpected(log.error());
  return readFile(target);
}

} // namespace easyquant::gpu
