//===- gpu_kernels_main.cpp - The options of easyquant-gpu-kernel-bench ---===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "gpu_kernels.h"

#include "easyquant/Support/Version.h"

#include "llvm/Config/llvm-config.h"

#include <CLI/CLI.hpp>

using namespace easyquant::bench;

int main(int argc, char **argv) {
  GPUKernelOptions options;
  CLI::App app("Compiles the kernels that benchmarks/gpu_kernels.py measures.",
               "easyquant-gpu-kernel-bench");
  app.set_version_flag("--version",
                       easyquant::versionOf("easyquant-gpu-kernel-bench", LLVM_VERSION_STRING));
  app.option_defaults()->always_capture_default();
  app.add_option("--chip", options.chip, "The GPU: sm_80, sm_90a, ...")->required();
  app.add_option("--out", options.out, "Folder to write")->required();
  app.add_option("--families", options.families, "Kernels, separated by commas")
      ->delimiter(',')
      ->check(CLI::IsMember(allKernelFamilies()));
  app.add_option("--shapes", options.shapes, "Weights, NxK, separated by commas")->delimiter(',');
  app.add_option("--rows", options.rows, "Rows of the activations, separated by commas")
      ->delimiter(',')
      ->check(CLI::Range(1, 65536));
  app.add_option("--jobs", options.jobs, "Layers compiled at a time")->check(CLI::Range(1, 256));
  app.add_flag("--ptx-only", options.ptxOnly, "No machine code: the driver assembles");
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError &error) {
    return app.exit(error) ? 1 : 0;
  }
  if (auto done = prepareGPUKernels(options); !done) {
    fmt::print(stderr, "error: {}\n", done.error().message);
    return 1;
  }
  return 0;
}
