//===- Assemble.h - PTX to machine code -------------------------*- C++ -*-===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// NVIDIA's assembler and fatbinary are programs of their own, from PyPI (pyproject.toml, extra
// `gpu`). Where they are missing, kernels can still be had as PTX, which a driver assembles.
//
//===----------------------------------------------------------------------===//

#ifndef EASYQUANT_EMIT_ASSEMBLE_H
#define EASYQUANT_EMIT_ASSEMBLE_H

#include "easyquant/Support/Result.h"

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace easyquant::gpu {

/// What ptxas says about a kernel.
struct KernelResources {
  int64_t registers = 0; ///< of a thread
  int64_t staticSharedBytes = 0;
  int64_t stackBytes = 0, spillStoreBytes = 0, spillLoadBytes = 0;
};

struct Cubin {
  std::string chip; ///< "sm_80"
  std::string code;
  std::map<std::string, KernelResources> kernels;
};

/// The programs, found in the folder $EASYQUANT_CUDA_BIN, else beside the Python that EasyQuant was
/// built with, else on the PATH.
class Assembler {
public:
  /// NotFound if one of them is nowhere, saying how to get them.
  static Result<Assembler> find();

  /// Unsupported with the text of ptxas when it refuses.
  Result<Cubin> assemble(const std::string &ptx, const std::string &chip) const;
  /// One fatbin of machine code for several chips, and of PTX (may be empty) for later ones: PTX of
  /// chip `ptxChip`, which should be one without a letter behind its number.
  Result<std::string> makeFatbin(const std::vector<Cubin> &cubins, const std::string &ptx,
                                 const std::string &ptxChip) const;

private:
  std::string ptxas, fatbinary;
};

} // namespace easyquant::gpu

#endif // EASYQUANT_EMIT_ASSEMBLE_H
