//===- FuzzIR.cpp - Hostile modules ---------------------------------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Damages good modules and takes them through every pass and conversion. Each must end in success
// or in a diagnostic: no crash, no abort, no hang, no memory by a size that was not checked. LLVM's
// assertions are off in the distribution's packages, so nothing but verifiers stands between IR and
// the passes.
//
//   FuzzIR TESTS [--seconds N] [--seed N] [--count N] [--only PASS]
//   FuzzIR TESTS --cleanups
//   FuzzIR --list-passes
//
// TESTS is this project's folder test; with --only, every pipeline has that pass. --cleanups
// compares good models instead (CompareCleanups.h).
//
// Mutants run in child processes of bounded memory and time. One that ends otherwise is written to
// fuzz-ir-SEED.mlir beside this program, and `--seed SEED --count 1` runs it again. A folder that
// is removed in the end holds what passes read and write.
//
//===----------------------------------------------------------------------===//

#include "CompareCleanups.h"
#include "FuzzSeeds.h"
#include "MutateIR.h"

#include "easyquant/Pipelines/RegisterPasses.h"

#include "mlir/InitAllPasses.h"
#include "mlir/Parser/Parser.h"
#include "mlir/Pass/PassManager.h"
#include "mlir/Pass/PassRegistry.h"
#include "llvm/Support/Regex.h"
#include "llvm/Support/Signals.h"

#include <chrono>
#include <csignal>
#include <cstdio>
#include <fcntl.h>
#include <fstream>
#include <numeric>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

using namespace mlir;
using namespace easyquant::test;
namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

namespace {

constexpr int kSecondsPerMutant = 20; // of the processor's time
constexpr uint64_t kMutantsPerChild = 100;
constexpr size_t kMaxText = size_t(4) << 20;
/// Address space of a child: what the compiler itself takes, and room for a small model.
constexpr rlim_t kMemory = rlim_t(4) << 30;

constexpr rlim_t kMaxFile = rlim_t(64) << 20;

/// What a child says of itself, in memory that it shares with its parent.
struct Report {
  uint64_t seed, runs, parsed, succeeded;
  bool making;       ///< a mutant, which is then none
  char problem[256]; ///< found by the child itself
  char pipeline[1024];
  char text[kMaxText];
};
Report *report;

void note(char *place, size_t size, StringRef text) {
  size = std::min(size - 1, text.size());
  std::memcpy(place, text.data(), size);
  place[size] = '\0';
}

[[noreturn]] void fail(const Twine &problem) {
  note(report->problem, sizeof report->problem, problem.str());
  std::_Exit(1);
}

void checkMessage(StringRef message) {
  if (message.empty())
    fail("a diagnostic without a message");
  if (message.starts_with("expected 1 operand type")) // MLIR's, where its plural has a zero byte
    return;
  // Words of the module are quoted, and it may hold anything but these.
  for (unsigned char c : message)
    if ((c < 0x20 && c != '\n' && c != '\t') || c == 0x7f)
      fail("a control character in the diagnostic: " + message);
}

const Pipeline &choosePipeline(Random &random) {
  static const int total =
      std::accumulate(pipelines().begin(), pipelines().end(), 0,
                      [](int sum, const Pipeline &pipeline) { return sum + pipeline.weight; });
  int at = static_cast<int>(random.below(total));
  for (const Pipeline &pipeline : pipelines())
    if ((at -= pipeline.weight) < 0)
      return pipeline;
  llvm_unreachable("the weights have a sum");
}

/// Of --only.
StringRef onlyPass;

std::string makePipeline(Random &random) {
  std::string text = choosePipeline(random).text;
  while (!StringRef(text).contains(onlyPass))
    text = choosePipeline(random).text;
  if (random.oneIn(3))
    text += std::string(",") + choosePipeline(random).text;
  if (random.oneIn(4))
    mutateNumber(text, random);
  return text;
}

OwningOpRef<ModuleOp> parseNoted(MLIRContext &context, const std::string &text) {
  note(report->text, sizeof report->text, text);
  return parseSourceString<ModuleOp>(text, &context);
}

/// What MLIR's own parser and verifiers do not take well: the number of a result, by which memory
/// is allocated (%x#2147483648); a dimension of linalg.transpose and linalg.broadcast that is no
/// number; more attributions of a gpu.func than it has arguments.
bool isForMLIR(StringRef text) {
  static llvm::Regex patterns[] = {llvm::Regex("%[A-Za-z0-9_]+[#:][0-9]{5}"),
                                   llvm::Regex("(permutation|dimensions) = \\[[^]]*[^] 0-9,]"),
                                   llvm::Regex("workgroup_attributions = [^0]")};
  return llvm::any_of(patterns, [&](llvm::Regex &pattern) { return pattern.match(text); });
}

std::string makeMutant(MLIRContext &context, ArrayRef<std::string> seeds, Random &random) {
  std::string text = random.pick(seeds);
  size_t count = random.below(4); // of which 0 is for a damaged pipeline
  for (size_t i = 0; i < count; ++i) {
    if (random.oneIn(3)) {
      std::string damaged = text;
      mutateText(damaged, random);
      if (!isForMLIR(damaged))
        text = std::move(damaged);
      continue;
    }
    auto module = parseNoted(context, text);
    if (!module)
      break;
    // MLIR may crash on what is no longer IR and no text could have made; that is not asked here.
    report->making = true;
    mutateModule(*module, random);
    std::string damaged;
    llvm::raw_string_ostream os(damaged);
    module->print(os, OpPrintingFlags().printGenericOpForm());
    if (!isForMLIR(damaged))
      text = std::move(damaged);
    report->making = false;
  }
  return text;
}

void runMutant(MLIRContext &context, ArrayRef<std::string> seeds, uint64_t seed) {
  Random random(seed);
  note(report->pipeline, sizeof report->pipeline, "");
  bool quiet = true, refused = false;
  ScopedDiagnosticHandler handler(&context, [&](Diagnostic &diagnostic) {
    if (quiet)
      return success();
    refused |= diagnostic.getSeverity() == DiagnosticSeverity::Error;
    checkMessage(diagnostic.str());
    return success();
  });
  std::string text = makeMutant(context, seeds, random), pipeline = makePipeline(random);
  note(report->pipeline, sizeof report->pipeline, pipeline);
  // Escaped control characters come out of messages as they are.
  quiet = text.find("\\0") != std::string::npos || text.find("\\1") != std::string::npos ||
          text.find("\\7") != std::string::npos;
  ++report->runs;
  auto module = parseNoted(context, text);
  if (!module)
    return;
  ++report->parsed;
  PassManager pm(&context);
  if (failed(parsePassPipeline(pipeline, pm, llvm::nulls())))
    return;
  if (random.oneIn(4)) {
    pipeline = interleave(pm, kCleanups);
    note(report->pipeline, sizeof report->pipeline, pipeline);
    pm.clear();
    if (failed(parsePassPipeline(pipeline, pm)))
      fail("a pipeline that does not read what it prints");
  }
  bool succeeded = mlir::succeeded(pm.run(*module));
  report->succeeded += succeeded;
  if (!succeeded && !refused && !quiet)
    fail("a pass failed and said nothing");
}

/// Runs mutants from `seed` on until it has done as many as a child should.
[[noreturn]] void runChild(ArrayRef<std::string> seeds, uint64_t seed, uint64_t end,
                           const char *output) {
  int null = ::open("/dev/null", O_WRONLY),
      file = ::open(output, O_CREAT | O_TRUNC | O_WRONLY, 0644);
  ::dup2(null, STDOUT_FILENO);
  ::dup2(file, STDERR_FILENO);
#if !__has_feature(address_sanitizer) // which reserves far more
  rlimit memory{kMemory, kMemory};
  ::setrlimit(RLIMIT_AS, &memory);
#endif
  rlimit noCore{0, 0}, smallFiles{kMaxFile, kMaxFile};
  ::setrlimit(RLIMIT_CORE, &noCore);
  ::setrlimit(RLIMIT_FSIZE, &smallFiles);
  std::signal(SIGXFSZ, SIG_IGN); // so that writing is what fails
  llvm::sys::PrintStackTraceOnErrorSignal("FuzzIR");
  std::unique_ptr<MLIRContext> context = makeContext();
  for (; seed < end; ++seed) {
    report->seed = seed;
    itimerval limit{{0, 0}, {kSecondsPerMutant, 0}};
    ::setitimer(ITIMER_PROF, &limit, nullptr);
    runMutant(*context, seeds, seed);
  }
  std::_Exit(0);
}

/// How a child ended, or nothing where it did well.
std::string describeEnd(int status) {
  if (report->problem[0] != '\0')
    return report->problem;
  if (WIFSIGNALED(status) && WTERMSIG(status) == SIGPROF)
    return "takes more than " + std::to_string(kSecondsPerMutant) + " s";
  if (WIFSIGNALED(status))
    return std::string("signal ") + ::strsignal(WTERMSIG(status));
  if (WEXITSTATUS(status) != 0)
    return "exit status " + std::to_string(WEXITSTATUS(status));
  return "";
}

void saveMutant(const fs::path &folder, const std::string &problem, const char *output) {
  fs::path path = folder / ("fuzz-ir-" + std::to_string(report->seed) + ".mlir");
  std::ofstream(path) << "// " << problem << "\n// --pass-pipeline='builtin.module("
                      << report->pipeline << ")'\n"
                      << report->text;
  std::ifstream said(output);
  std::string words{std::istreambuf_iterator<char>(said), {}};
  llvm::errs() << "FuzzIR: seed " << report->seed << ": " << problem << "\n  pipeline "
               << report->pipeline << "\n  module " << path.string() << "\n"
               << StringRef(words).take_back(4000) << StringRef(report->text).take_front(8000)
               << "\n";
}

bool parseNumber(StringRef text, uint64_t &value) { return !text.getAsInteger(10, value); }

} // namespace

extern "C" const char *__asan_default_options() {
  // The distribution's LLVM is not instrumented, and its allocators are used from both sides.
  return "allow_user_poisoning=0:detect_leaks=0:max_allocation_size_mb=1024:hard_rss_limit_mb=4096";
}

int main(int argc, char **argv) {
  uint64_t seconds = 2, seed = 0, count = ~uint64_t(0) >> 1;
  StringRef tests = argc > 1 ? argv[1] : "";
  if (tests == "--list-passes") {
    for (const std::string &pass : passesInPipelines())
      std::puts(pass.c_str());
    return 0;
  }
  const bool compares = argc == 3 && StringRef(argv[2]) == "--cleanups";
  bool understood = compares || (argc > 1 && argc % 2 == 0);
  for (int i = 2; i + 1 < argc; i += 2) {
    StringRef option = argv[i];
    if (option == "--only") {
      onlyPass = argv[i + 1];
      understood &= llvm::is_contained(passesInPipelines(), onlyPass);
      continue;
    }
    uint64_t *value = option == "--seconds" ? &seconds
                      : option == "--seed"  ? &seed
                      : option == "--count" ? &count
                                            : nullptr;
    understood &= value && parseNumber(argv[i + 1], *value);
  }
  if (!understood) {
    llvm::errs() << "usage: FuzzIR TESTS [--seconds N] [--seed N] [--count N] [--only PASS] | "
                    "TESTS --cleanups | --list-passes\n";
    return 1;
  }

  ::setenv("OPENBLAS_NUM_THREADS", "1", 1);
  ::setenv("OMP_NUM_THREADS", "1", 1);
  registerAllPasses();
  easyquant::registerPasses();
  const fs::path testFolder = fs::absolute(tests.str());
  const fs::path folder = fs::absolute(argv[0]).parent_path();
  std::string work = (fs::temp_directory_path() / "easyquant-fuzz-XXXXXX").string();
  if (!::mkdtemp(work.data())) {
    llvm::errs() << "FuzzIR: no temporary folder can be made\n";
    return 1;
  }
  fs::current_path(work);
  if (compares) {
    const bool same = compareWithCleanups(testFolder);
    fs::current_path(folder);
    fs::remove_all(work);
    return same ? 0 : 1;
  }
  report = static_cast<Report *>(
      ::mmap(nullptr, sizeof(Report), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));

  // What compiles starts threads, which no child would inherit: the seeds come from a child, too.
  if (::fork() == 0) {
    std::ofstream file("seeds", std::ios::binary);
    for (const std::string &text : makeSeeds(testFolder))
      file << text << '\0';
    file.close();
    std::_Exit(0);
  }
  int status = 0;
  ::wait(&status);
  std::ifstream file("seeds", std::ios::binary);
  std::vector<std::string> seeds;
  for (std::string text; std::getline(file, text, '\0');)
    seeds.push_back(text);
  bool good = status == 0 && !seeds.empty();

  auto end = Clock::now() + std::chrono::seconds(seconds);
  const uint64_t last = seed + count;
  uint64_t found = 0;
  while (good && seed < last && Clock::now() < end) {
    report->problem[0] = '\0';
    uint64_t next = std::min(seed + kMutantsPerChild, last);
    if (::fork() == 0)
      runChild(seeds, seed, next, "output");
    ::wait(&status);
    std::string problem = describeEnd(status);
    if (!problem.empty())
      next = report->seed + 1;
    if (!problem.empty() && !std::exchange(report->making, false)) {
      saveMutant(folder, problem, "output");
      ++found;
    }
    seed = next;
  }
  fs::current_path(folder);
  fs::remove_all(work);
  std::printf("%zu seeds, %llu mutants, %llu parsed, %llu went through, %llu did not end well\n",
              seeds.size(), static_cast<unsigned long long>(report->runs),
              static_cast<unsigned long long>(report->parsed),
              static_cast<unsigned long long>(report->succeeded),
              static_cast<unsigned long long>(found));
  return good && found == 0 ? 0 : 1;
}
