//===- GenerateCode.cpp - What LLVM makes of generated kernels ------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "GenerateCode.h"

#include "easyquant/Support/Checksum.h"
#include "easyquant/Support/Folders.h"
#include "easyquant/Support/WriteFile.h"

#include "llvm/ADT/StringMap.h"
#include "llvm/Config/llvm-config.h"
#include "llvm/IR/LegacyPassManager.h"
#include "llvm/IR/Module.h"
#include "llvm/Passes/PassBuilder.h"
#include "llvm/Support/CachePruning.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/MemoryBuffer.h"
#include "llvm/Target/TargetMachine.h"

#include <mutex>

using namespace mlir;

namespace easyquant {

/// What is left to clean up. Addresses are hoisted and merged; the rest of LLVM's pipeline takes
/// two to four times as long, and the code is as fast (docs/benchmarks/compilation.md).
static constexpr llvm::StringLiteral kCleanUp =
    "ipsccp,deadargelim,cgscc(inline),"
    "function(early-cse,instcombine<no-verify-fixpoint>,simplifycfg,"
    "loop-simplify,lcssa,loop-mssa(loop-rotate,licm),"
    "gvn<>,instcombine<no-verify-fixpoint>,dse,simplifycfg),globaldce";

/// The kernels are already tiled, unrolled and vectorized. LLVM's own vectorizers and unrollers
/// would only cost time and undo register tiles.
static llvm::PipelineTuningOptions tuning() {
  llvm::PipelineTuningOptions tuning;
  tuning.LoopVectorization = false;
  tuning.SLPVectorization = false;
  tuning.LoopInterleaving = false;
  tuning.LoopUnrolling = false;
  return tuning;
}

static void optimize(llvm::Module &module, llvm::TargetMachine &machine, Passes passes) {
  llvm::LoopAnalysisManager lam;
  llvm::FunctionAnalysisManager fam;
  llvm::CGSCCAnalysisManager cgam;
  llvm::ModuleAnalysisManager mam;
  llvm::PassBuilder builder(&machine, tuning());
  builder.registerModuleAnalyses(mam);
  builder.registerCGSCCAnalyses(cgam);
  builder.registerFunctionAnalyses(fam);
  builder.registerLoopAnalyses(lam);
  builder.crossRegisterProxies(lam, fam, cgam, mam);
  llvm::ModulePassManager pipeline;
  if (passes == Passes::CleanUp)
    llvm::cantFail(builder.parsePassPipeline(pipeline, kCleanUp));
  else
    pipeline = builder.buildPerModuleDefaultPipeline(llvm::OptimizationLevel::O2);
  pipeline.run(module, mam);
}

FailureOr<Code> generateCode(Location loc, llvm::Module &module, llvm::TargetMachine &machine,
                             Passes passes, llvm::CodeGenFileType type) {
  optimize(module, machine, passes);
  Code code;
  llvm::raw_svector_ostream stream(code);
  llvm::legacy::PassManager codegen;
  if (machine.addPassesToEmitFile(codegen, stream, nullptr, type))
    return emitError(loc) << "this LLVM cannot write code for " << machine.getTargetTriple().str();
  codegen.run(module);
  return code;
}

static std::string checksumOf(StringRef bytes) {
  Checksum checksum;
  checksum.update(bytes.data(), bytes.size());
  return checksum.hex();
}

/// Which program generates code: one that is built again may generate other code of the same IR.
static std::string generator() {
  static int here;
  const std::string path = llvm::sys::fs::getMainExecutable(nullptr, &here);
  llvm::sys::fs::file_status status;
  if (llvm::sys::fs::status(path, status))
    return path;
  return fmt::format("{} {} {}", path, status.getSize(),
                     status.getLastModificationTime().time_since_epoch().count());
}

/// The checksum of everything that the code of a module depends on: the functions and constants in
/// it, what it is for, and who generates. What is reported of a model, in attributes of the module,
/// is none of these.
static std::string keyOf(Operation *module, const Twine &target) {
  constexpr int64_t all = std::numeric_limits<int64_t>::max(); // whatever the command line elides
  OpPrintingFlags flags;
  flags.elideLargeElementsAttrs(all).elideLargeResourceString(all);
  flags.useLocalScope(); // other threads work on the modules beside this one
  std::string text;
  llvm::raw_string_ostream stream(text);
  stream << generator() << ' ' << LLVM_VERSION_STRING << ' ' << target << '\n';
  for (Operation &op : module->getRegion(0).getOps()) {
    op.print(stream, flags);
    stream << '\n';
  }
  return checksumOf(text);
}

/// Code in the folder, by its key.
static FailureOr<Code> codeInFolder(Operation *module, StringRef folder, StringRef key,
                                    llvm::function_ref<FailureOr<Code>()> generate) {
  if (folder.empty())
    return generate();
  // A file is the checksum of the code, then the code. pruneCache knows its own by their names.
  const std::string file = (folder + "/llvmcache-" + key).str();
  if (auto kept = llvm::MemoryBuffer::getFile(file)) {
    StringRef bytes = (*kept)->getBuffer();
    if (bytes.consume_front(checksumOf(bytes.drop_front(std::min<size_t>(32, bytes.size())))))
      return Code(bytes.begin(), bytes.end());
  }
  FailureOr<Code> code = generate();
  if (failed(code))
    return failure();
  StringRef bytes(code->data(), code->size());
  Result<void> written = makeFolders(folder.str());
  if (written)
    written = writeFile(file, checksumOf(bytes) + bytes.str());
  if (!written)
    return module->emitError() << "EASYQUANT_CODE_CACHE: " << written.error().message;
  llvm::pruneCache(folder, llvm::CachePruningPolicy());
  return code;
}

FailureOr<Code> keptCode(Operation *module, const Twine &target, Keep keep,
                         llvm::function_ref<FailureOr<Code>()> generate) {
  StringRef folder = std::getenv("EASYQUANT_CODE_CACHE");
  if (keep == Keep::InFolder)
    return folder.empty() ? generate()
                          : codeInFolder(module, folder, keyOf(module, target), generate);
  static std::mutex mutex;
  static llvm::StringMap<Code> known;
  const std::string key = keyOf(module, target);
  {
    std::lock_guard lock(mutex);
    if (auto found = known.find(key); found != known.end())
      return found->second;
  }
  FailureOr<Code> code = codeInFolder(module, folder, key, generate);
  if (succeeded(code)) {
    std::lock_guard lock(mutex);
    known.try_emplace(key, *code);
  }
  return code;
}

} // namespace easyquant
