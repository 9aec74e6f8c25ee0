//===- easyquant-tblgen.cpp - The table of options as C++ -----------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Writes the rows of easyquant/Recipe/Options.td: as data, as typed keys, and as macros for those
// who do something with each of them. easyquant/Recipe/Options.h says what the fields mean.
//
//===----------------------------------------------------------------------===//

#include "easyquant/Support/Version.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringSet.h"
#include "llvm/Support/FormatVariadic.h"
#include "llvm/TableGen/Error.h"
#include "llvm/TableGen/TableGenBackend.h"

using namespace llvm;

/// In the order of the file.
static std::vector<const Record *> rowsOf(const RecordKeeper &records, StringRef className) {
  std::vector<const Record *> rows = records.getAllDerivedDefinitions(className).vec();
  llvm::sort(rows, LessRecordByID());
  return rows;
}

static std::string literal(StringRef text) {
  std::string escaped;
  raw_string_ostream(escaped).write_escaped(text);
  return "\"" + escaped + "\"";
}

/// Writes `{"a", "b", true}`.
static void emitRow(const Record &record, raw_ostream &os, ArrayRef<StringRef> texts,
                    ArrayRef<StringRef> bits) {
  for (StringRef field : texts)
    os << literal(record.getValueAsString(field)) << ", ";
  for (StringRef field : bits)
    os << (record.getValueAsBit(field) ? "true" : "false") << ", ";
}

/// A section of the output that its readers choose.
static void emitSection(raw_ostream &os, StringRef macro, function_ref<void()> emitBody) {
  os << "#ifdef " << macro << "\n";
  emitBody();
  os << "#undef " << macro << "\n#endif // " << macro << "\n\n";
}

static void checkRows(ArrayRef<const Record *> options, ArrayRef<const Record *> methods) {
  StringSet<> names, flags, keys, owners;
  for (const Record *method : methods)
    owners.insert(method->getValueAsString("name"));
  auto once = [](StringSet<> &known, const Record *record, const std::string &name) {
    if (!known.insert(name).second)
      PrintFatalError(record, "'" + name + "' is the name of another row, too");
  };
  for (const Record *option : options) {
    once(names, option, option->getValueAsString("cppName").str());
    if (StringRef flag = option->getValueAsString("flag"); !flag.empty())
      once(flags, option, flag.str());
    if (StringRef key = option->getValueAsString("key"); !key.empty())
      once(keys, option, (option->getValueAsString("section") + "." + key).str());
    StringRef owner = option->getValueAsString("owner");
    if (!owner.empty() && owner != "static" && owner != "online" && !owners.contains(owner))
      PrintFatalError(option, "there is no method '" + owner + "' that could read it");
  }
}

static bool emitTable(raw_ostream &os, const RecordKeeper &records) {
  std::vector<const Record *> options = rowsOf(records, "OptionRow");
  std::vector<const Record *> methods = rowsOf(records, "Method");
  checkRows(options, methods);
  emitSourceFileHeader("The table of methods and options", os, records);

  emitSection(os, "GET_OPTION_ROWS", [&] {
    for (const Record *option : options) {
      auto choices = option->getValueAsListOfStrings("choices");
      if (choices.empty())
        continue;
      os << "constexpr std::string_view " << option->getName() << "Choices[] = {";
      interleaveComma(choices, os, [&](StringRef choice) { os << literal(choice); });
      os << "};\n";
    }
    os << "constexpr OptionInfo kOptions[] = {\n";
    for (const Record *option : options) {
      os << "  {Kind::" << option->getValueAsDef("kind")->getValueAsString("name") << ", ";
      emitRow(*option, os,
              {"cppName", "key", "section", "flag", "noun", "value", "group", "owner", "joint",
               "help", "ownDefault", "defaultWords", "least", "most"},
              {"exclusive", "planned", "perSite", "internal"});
      os << (option->getValueAsListOfStrings("choices").empty() ? "{}"
                                                                : option->getName() + "Choices")
         << "},\n";
    }
    os << "};\nconstexpr MethodInfo kMethods[] = {\n";
    for (const Record *method : methods) {
      os << "  {Stage::" << method->getValueAsDef("stage")->getValueAsString("name") << ", ";
      emitRow(*method, os, {"name", "title", "statistics"}, {});
      os << "},\n";
    }
    os << "};\n";
  });
  emitSection(os, "GET_OPTION_KEYS", [&] {
    for (auto [row, option] : enumerate(options))
      os << formatv("inline constexpr Key<{0}> {1}{{{2}};\n",
                    option->getValueAsDef("kind")->getValueAsString("heldType"),
                    option->getValueAsString("cppName"), row);
  });
  emitSection(os, "EASYQUANT_OPTION", [&] {
    for (const Record *option : options)
      os << "EASYQUANT_OPTION(" << option->getValueAsString("cppName") << ")\n";
  });
  emitSection(os, "EASYQUANT_METHOD", [&] {
    for (const Record *method : methods)
      os << formatv("EASYQUANT_METHOD({0}, {1}, {2})\n", literal(method->getValueAsString("name")),
                    method->getValueAsString("passNamespace"), method->getValueAsString("pass"));
  });
  return false;
}

int main(int argc, char **argv) {
  cl::SetVersionPrinter([](raw_ostream &os) {
    os << easyquant::versionOf("easyquant-tblgen", LLVM_VERSION_STRING) << '\n';
  });
  cl::ParseCommandLineOptions(argc, argv);
  return TableGenMain(argv[0], TableGenMainFn(emitTable));
}
