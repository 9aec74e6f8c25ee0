//===- easyquant-simt.cpp - Runs a PTX kernel on the host -----------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Arguments.h"

#include "easyquant/Support/OutOfMemory.h"
#include "easyquant/Support/Version.h"

#include <CLI/CLI.hpp>

#include <fstream>
#include <iostream>
#include <sstream>

using namespace easyquant;
using namespace easyquant::simt;

struct Options {
  std::string file, kernel, json, checks = "all";
  std::vector<uint32_t> grid = {1, 1, 1}, block = {1, 1, 1};
  uint32_t shared = 0;
  uint64_t maxInstructions = 2'000'000'000;
  std::vector<std::string> arguments;
};

static Result<void> writeJson(const Options &options, const LaunchReport &report) {
  Json::Array findings;
  for (const Finding &f : report.findings)
    findings.push_back(Json::Object{{"kind", nameOf(f.kind)},
                                    {"line", f.line},
                                    {"block", Json::Array(f.block.begin(), f.block.end())},
                                    {"thread", Json::Array(f.thread.begin(), f.thread.end())},
                                    {"count", f.count},
                                    {"message", f.message}});
  Json::Object json = report.statistics.toJson();
  json["kernel"] = options.kernel;
  json["completed"] = report.completed;
  json["findings"] = std::move(findings);
  if (!(std::ofstream(options.json) << Json(std::move(json)).document() << std::flush))
    return makeError(ErrorCode::IO, "{}: cannot be written", options.json);
  return {};
}

/// The number of findings.
static Result<size_t> run(const Options &options) {
  std::ifstream file(options.file, std::ios::binary);
  std::stringstream text;
  if (!file || !(text << file.rdbuf()))
    return makeError(ErrorCode::NotFound, "{}: cannot be read", options.file);
  auto module = Module::parse(text.str(), options.file);
  if (!module)
    return Unexpected(module.error());
  Device device;
  CommandLineArguments arguments(device);
  for (const std::string &argument : options.arguments)
    if (auto added = arguments.add(argument); !added)
      return Unexpected(added.error());
  if (const KernelInfo *kernel = (*module)->find(options.kernel))
    if (auto fits = arguments.check(*kernel); !fits)
      return Unexpected(fits.error());
  LaunchOptions launchOptions;
  std::copy_n(options.grid.begin(), options.grid.size(), launchOptions.grid.begin());
  std::copy_n(options.block.begin(), options.block.size(), launchOptions.block.begin());
  launchOptions.dynamicSharedBytes = options.shared;
  launchOptions.checks = options.checks == "all" ? Checks::All : Checks::None;
  launchOptions.memoryStatistics = options.checks == "all" || !options.json.empty();
  launchOptions.maxInstructions = options.maxInstructions;
  auto report = launch(device, *module, options.kernel, launchOptions, arguments.values);
  if (!report)
    return Unexpected(report.error());
  auto missing = arguments.writeBack();
  if (!missing)
    return Unexpected(missing.error());
  if (!options.json.empty())
    if (auto written = writeJson(options, *report); !written)
      return Unexpected(written.error());
  for (const Finding &finding : report->findings)
    std::cerr << finding.message
              << (finding.count > 1 ? fmt::format(" ({} times)", finding.count) : "") << '\n';
  const Statistics &s = report->statistics;
  std::cout << fmt::format(
      "{}: {} threads, {} warp instructions, {} findings{}{}\n", options.kernel, s.threads,
      s.warpInstructions, report->findings.size(), report->completed ? "" : "; ended early",
      *missing ? fmt::format("; {} bytes of outputs never written", *missing) : "");
  return report->findings.size();
}

static int start(int argc, char **argv) {
  Options options;
  CLI::App app("Runs one kernel of a PTX file on the host, on numpy files, with checks that a GPU "
               "does not make.\n"
               "Exit status 1: a check found something, or an error.",
               "easyquant-simt");
  app.footer(
      "Example, y = a * x + y for 1000 elements in 4 blocks:\n"
      "  nvcc -ptx -arch=sm_80 saxpy.cu\n"
      "  easyquant-simt saxpy.ptx --kernel saxpy --grid 4 --block 256 \\\n"
      "      --arg in:x.npy --arg inout:y.npy --arg f32:0.5 --arg i32:1000 --json statistics.json");
  app.set_version_flag("--version", versionOf("easyquant-simt"));
  app.option_defaults()->always_capture_default();
  app.add_option("FILE", options.file, "PTX text")->required();
  app.add_option("--kernel", options.kernel, "Name of the .entry")->required();
  app.add_option("--grid", options.grid, "Blocks: X[,Y[,Z]]")
      ->delimiter(',')
      ->expected(1, 3)
      ->allow_extra_args(false);
  app.add_option("--block", options.block, "Threads a block: X[,Y[,Z]]")
      ->delimiter(',')
      ->expected(1, 3)
      ->allow_extra_args(false);
  app.add_option("--shared", options.shared, "Bytes of dynamic shared memory a block");
  app.add_option(
         "--arg", options.arguments,
         "Next argument of the kernel: in:FILE.npy, inout:FILE.npy, out:FILE.npy:TYPE:SHAPE,\n"
         "scratch:TYPE:SHAPE, value:FILE.npy (a struct by its bytes) or TYPE:NUMBER")
      ->allow_extra_args(false);
  app.add_option("--json", options.json, "Write statistics and findings to this file");
  app.add_option(
         "--check", options.checks,
         "all: races, uninitialised reads, copies read before their wait, divergent barriers;\n"
         "none: only bounds, alignment and traps")
      ->check(CLI::IsMember({"none", "all"}));
  app.add_option("--max-instructions", options.maxInstructions,
                 "End a launch after so many warp instructions (0: never)");
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError &error) {
    return app.exit(error) ? 1 : 0;
  }
  setInput(options.file);
  auto findings = run(options);
  if (findings)
    return *findings ? 1 : 0;
  std::cerr << "error: " << findings.error().message << '\n';
  return 1;
}

int main(int argc, char **argv) {
  return runTool([&] { return start(argc, argv); });
}
