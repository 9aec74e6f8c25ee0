//===- CommandLine.cpp - The options of easyquant-compile -----------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// CLI11, not llvm::cl: libLLVM.so has registered its own --threads and others already.
//
//===----------------------------------------------------------------------===//

#include "CommandLine.h"

#include "DescribeOptions.h"
#include "ListTargets.h"

#include "easyquant/Support/Version.h"

#include "llvm/Config/llvm-config.h"
#include "llvm/Support/raw_ostream.h"

#include <CLI/CLI.hpp>

namespace easyquant {

using recipe::Kind;
using recipe::OptionInfo;
using recipe::OptionValues;

static constexpr const char *description = R"(EasyQuant: compile a model to an artifact.

MODEL is a Hugging Face folder or a GGUF file. OUT becomes a folder of code, weights and a manifest,
which easyquant-run runs on CPUs like this machine's, or on what --target names; it appears when it
is whole.
With --export, OUT becomes a checkpoint in a format of vLLM, transformers and others.)";

static constexpr const char *examples = R"(Examples:
  easyquant-compile MODEL -o OUT --scheme W8A8
  easyquant-compile model.gguf -o OUT --scheme W4A8 --group-size 64 --ignore 're:.*down_proj'
  easyquant-compile MODEL -o OUT --export gptq --scheme W4A16 --group-size 64)";

/// `--name` and, of a switch with a default, `--no-name`; the last one wins.
static CLI::Option *addSwitch(CLI::App &app, const OptionInfo &option, const std::string &names,
                              OptionValues &values, const std::string &help) {
  return app.add_flag_function(
                names, [&](int64_t count) { values.set(option, count > 0); }, help)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);
}

/// An option of the table.
static CLI::Option *add(CLI::App &app, const OptionInfo &option, OptionValues &values) {
  std::string name = "--" + std::string(option.flag), help = helpOf(option);
  auto addOf = [&]<typename T>(T) {
    return app.add_option_function<T>(
        name, [&](const T &value) { values.set(option, value); }, help);
  };
  switch (option.kind) {
  case Kind::Switch:
    if (!option.ownDefault.empty())
      name += ",!--no-" + std::string(option.flag);
    return addSwitch(app, option, name, values, help);
  case Kind::Integer:
    return addOf(int64_t());
  case Kind::Number:
    return addOf(double());
  case Kind::Text:
  case Kind::TextOrNumber:
  case Kind::Choice:
    return addOf(std::string());
  case Kind::List: {
    CLI::Option *added =
        addOf(std::vector<std::string>())->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
    return option.joint.empty() ? added->expected(1) : added->delimiter(option.joint.front());
  }
  }
  return nullptr;
}

CommandLine CommandLine::parse(int argc, char **argv) {
  CommandLine line;
  CLI::App app(description, "easyquant-compile");
  app.footer(examples);
  app.set_version_flag("--version", versionOf("easyquant-compile", LLVM_VERSION_STRING));
  app.option_defaults()->multi_option_policy(CLI::MultiOptionPolicy::Throw);

  app.add_flag_callback(
      "--describe-options",
      [] {
        describeOptions();
        throw CLI::Success();
      },
      "Print the table of methods and options as JSON, and stop");
  app.add_flag_callback(
      "--list-targets",
      [] {
        listTargets();
        throw CLI::Success();
      },
      "Print what can be compiled for, and which schemes run there, and stop");
  app.add_option("model", line.model,
                 "Hugging Face folder or GGUF file; of --dry-run a config.json, too")
      ->required()
      ->type_name("MODEL");
  app.add_option("-o", line.output, "Folder to write")->type_name("OUT");
  std::vector<CLI::Option *> planned;
  CLI::Option *recipe = nullptr;
  for (const OptionInfo &option : recipe::options()) {
    if (option.flag.empty())
      continue;
    CLI::Option *added = add(app, option, line.options)->group(std::string(option.group));
    if (option.kind != Kind::Switch)
      added->type_name(std::string(option.value));
    if (&option == &recipe::option::recipe.info())
      recipe = added;
    else if (option.planned)
      planned.push_back(added);
  }
  // A recipe says all of what is planned.
  for (CLI::Option *option : planned)
    option->excludes(recipe);
  app.add_option("--pipeline", line.pipeline,
                 "Run these passes on the imported model instead, and stop: nothing is compiled")
      ->group("Look, and stop")
      ->type_name("PASSES");
  app.add_option("--search", line.search,
                 "Plan and transform as asked, search formats with these options of "
                 "equant-search-bitwidths, and stop: nothing is compiled")
      ->group("Look, and stop")
      ->type_name("OPTIONS");
  app.add_option(
         "--comm", line.comm,
         "What joins the ranks that mpirun, srun or torchrun started: auto, mpi, nccl; none: "
         "each works alone (default: auto)")
      ->transform(
          CLI::CheckedTransformer(std::map<std::string, CommKind>{{"auto", CommKind::Auto},
                                                                  {"mpi", CommKind::MPI},
                                                                  {"nccl", CommKind::NCCL},
                                                                  {"none", CommKind::None}}))
      ->group("Ranks")
      ->type_name("KIND");
  app.add_option("--comm-timeout", line.commTimeout,
                 "Seconds that a rank waits for the others before it gives up (default: 600)")
      ->check(CLI::Range(0.1, 1e6))
      ->group("Ranks")
      ->type_name("SECONDS");
  app.add_option("--progress", line.progress, "Progress on standard error: none, text, json")
      ->transform(CLI::CheckedTransformer(
          std::map<std::string, ProgressFormat>{{"none", ProgressFormat::None},
                                                {"text", ProgressFormat::Text},
                                                {"json", ProgressFormat::JSON}}))
      ->type_name("FORMAT");

  try {
    app.parse(argc, argv);
  } catch (const CLI::Success &help) {
    std::exit(app.exit(help));
  } catch (const CLI::ParseError &error) {
    llvm::errs() << "error: " << error.what() << "; see easyquant-compile --help\n";
    std::exit(1);
  }
  return line;
}

} // namespace easyquant
