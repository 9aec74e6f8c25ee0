//===- easyquant-run.cpp - Runs an artifact on token ids ----------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "PrefillProgress.h"

#include "easyquant/Comm/Open.h"
#include "easyquant/Runtime/easyquant.h"
#include "easyquant/Support/Json.h"
#include "easyquant/Support/OutOfMemory.h"
#include "easyquant/Support/Version.h"
#include "easyquant/Support/WriteFile.h"

#include <CLI/CLI.hpp>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <iostream>
#include <memory>
#include <stdexcept>

using easyquant::Json;

static void check(eq_error *error) {
  std::unique_ptr<eq_error, decltype(&eq_error_free)> owner(error, eq_error_free);
  if (error)
    throw std::runtime_error(eq_error_get_message(error));
}

/// Writes to standard output what must not get lost.
static void print(const std::string &text) {
  errno = 0;
  if (!(std::cout << text << std::flush))
    throw std::runtime_error(std::string("standard output: cannot write: ") + std::strerror(errno));
}

struct Options {
  std::string artifact, isa = "auto", device = "auto", simtChip, comm = "auto", json;
  double commTimeout = 600;
  bool simtChecks = false;
  std::vector<int32_t> tokens;
  int64_t maxNewTokens = 16;
  eq_session_options session = {0, 0, 0, 0};
  bool ignoreEos = false;
};

/// The tokens that end a text, of a manifest that the runtime has checked.
static std::vector<int32_t> endTokens(const char *manifest) {
  const auto root = Json::parseObject(manifest, "manifest").value();
  std::vector<int32_t> ends;
  const Json &ids = *root.find("model")->find("eos_token_ids");
  for (size_t i = 0; i < ids.size(); ++i)
    ends.push_back(static_cast<int32_t>(*ids[i].integer()));
  return ends;
}

/// Prints the generated ids as they come.
static void run(const Options &options) {
  eq_model *rawModel = nullptr;
  const eq_model_options modelOptions = {options.isa.c_str(), 0, options.device.c_str(),
                                         options.simtChip.c_str(), options.simtChecks};
  check(eq_model_load_on_ranks(options.artifact.c_str(), &modelOptions, options.comm.c_str(),
                               options.commTimeout, &rawModel));
  std::unique_ptr<eq_model, decltype(&eq_model_free)> model(rawModel, eq_model_free);
  if (eq_model_rank(rawModel) > 0)
    return check(eq_model_follow(rawModel, options.session.threads));
  eq_session *rawSession = nullptr;
  check(eq_session_create(rawModel, &options.session, &rawSession));
  std::unique_ptr<eq_session, decltype(&eq_session_free)> session(rawSession, eq_session_free);

  const std::vector<int32_t> ends = endTokens(eq_model_manifest(rawModel));
  int64_t vocab = eq_model_vocab_size(rawModel);

  {
    PrefillProgress progress(rawSession);
    check(eq_session_prefill(rawSession, options.tokens.data(), options.tokens.size()));
  }
  std::vector<int32_t> generated;
  bool ended = false;
  while (std::ssize(generated) < options.maxNewTokens && !ended) {
    if (!generated.empty())
      check(eq_session_decode(rawSession, generated.back()));
    const float *logits = eq_session_logits(rawSession);
    auto token = static_cast<int32_t>(std::max_element(logits, logits + vocab) - logits);
    print((generated.empty() ? "" : ",") + std::to_string(token));
    generated.push_back(token);
    ended = !options.ignoreEos && std::find(ends.begin(), ends.end(), token) != ends.end();
  }
  print("\n");
  if (options.json.empty())
    return;
  const float *logits = eq_session_logits(rawSession);
  const Json result = Json::Object{{"prompt", options.tokens},
                                   {"generated", generated},
                                   {"stopped", ended ? "eos" : "length"},
                                   {"isa", eq_model_isa(rawModel)},
                                   {"device", eq_model_device(rawModel)},
                                   {"device_name", eq_model_device_name(rawModel)},
                                   {"logits", std::vector<float>(logits, logits + vocab)}};
  if (auto written = easyquant::writeFile(options.json, result.text() + "\n"); !written)
    throw std::runtime_error(written.error().message);
}

/// Prints the error. Other ranks may know more: they get the time to say it.
static int fail(const std::exception &error) {
  std::cerr << "error: " << error.what() << '\n';
  if (auto placement = easyquant::comm::findPlacement(); placement && placement->size > 1)
    easyquant::comm::letOthersSpeak();
  return 1;
}

static int start(int argc, char **argv) {
  Options options;
  CLI::App app("Runs a compiled model on token ids and prints the ids that follow greedily.",
               "easyquant-run");
  app.footer("Example:\n  easyquant-run smollm2.eq --tokens 1,2,3 --max-new-tokens 16");
  app.set_version_flag("--version", easyquant::versionOf("easyquant-run"));
  app.option_defaults()->always_capture_default();
  app.add_option("ARTIFACT", options.artifact, "Folder that `easyquant compile` wrote")->required();
  app.add_option("--tokens", options.tokens, "Prompt: token ids, separated by commas")
      ->delimiter(',')
      ->allow_extra_args(false)
      ->required();
  app.add_option("--max-new-tokens", options.maxNewTokens, "Ids to generate")
      ->check(CLI::NonNegativeNumber);
  app.add_option("--threads", options.session.threads, "Threads, at most 8 a CPU (0: one a CPU)");
  app.add_option("--isa", options.isa, "Instruction set of the artifact: auto, or its name");
  app.add_option("--device", options.device,
                 "auto, cpu, cuda (an NVIDIA GPU) or simt (a simulated one)");
  app.add_option("--simt-chip", options.simtChip,
                 "GPU to simulate (default: the artifact's first)");
  app.add_flag("--simt-checks", options.simtChecks,
               "Let the simulator look for mistakes of kernels");
  app.add_option("--comm", options.comm,
                 "What joins the ranks that mpirun, srun or torchrun started: auto, mpi or nccl");
  app.add_option("--comm-timeout", options.commTimeout,
                 "Seconds that a rank waits for the others before it gives up")
      ->check(CLI::Range(0.1, 1e6));
  app.add_option("--context", options.session.context, "Longest context (0: the model's)");
  app.add_option("--json", options.json, "Write ids and the last logits to this file");
  app.add_flag("--ignore-eos", options.ignoreEos, "Go on after an end-of-sequence token");
  try {
    app.parse(argc, argv);
    easyquant::setInput(options.artifact);
    run(options);
    return 0;
  } catch (const CLI::Success &help) {
    return app.exit(help);
  } catch (const std::bad_alloc &) {
    throw;
  } catch (const std::exception &error) {
    return fail(error);
  }
}

int main(int argc, char **argv) {
  // A file that grows beyond the process's limit is an error of that write, not of this program.
  std::signal(SIGXFSZ, SIG_IGN);
  return easyquant::runTool([&] { return start(argc, argv); });
}
