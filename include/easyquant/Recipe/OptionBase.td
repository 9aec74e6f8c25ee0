//===- OptionBase.td - What a row of the options' table has -*- tablegen -*-===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef EASYQUANT_RECIPE_OPTIONBASE
#define EASYQUANT_RECIPE_OPTIONBASE

include "mlir/Pass/PassBase.td"

/// What a value is: for those who read the table, in a pass, and as held by OptionValues.
class OptionKind<string enumerator, string type, string held, string none, string word> {
  string name = enumerator;
  string passType = type;
  string heldType = held;
  string unset = none; ///< of a pass whose option has no default of its own
  string placeholder = word;
}
def Switch       : OptionKind<"Switch", "bool", "bool", "false", "">;
def Integer      : OptionKind<"Integer", "int64_t", "int64_t", "-1", "N">;
def Count        : OptionKind<"Integer", "unsigned", "int64_t", "0", "N">;
def Number       : OptionKind<"Number", "::easyquant::Real", "double", "0", "X">;
def Text         : OptionKind<"Text", "std::string", "std::string", "", "TEXT">;
def TextOrNumber : OptionKind<"TextOrNumber", "std::string", "std::string", "", "X">;
def Choice       : OptionKind<"Choice", "std::string", "std::string", "", "NAME">;
def List         : OptionKind<"List", "std::string", "std::vector<std::string>", "", "TEXT">;

/// What recipes and command lines say of an option. `text` begins in lower case and ends without a full stop.
class OptionRow<OptionKind optionKind, string argument, string defaultText, string text> {
  OptionKind kind = optionKind;
  string help = text;
  string ownDefault = defaultText; ///< of the pass; empty: none, or one that depends on other options
  string defaultWords = "";        ///< what command lines say instead
  list<string> choices = [];
  string joint = "";               ///< several names may be given with this between them
  string key = !subst("-", "_", argument); ///< in recipes; empty: they have it not
  string section = "";             ///< the object of a recipe that the key is in
  string flag = argument;          ///< of command lines; empty: none
  string noun = !subst("-", " ", argument); ///< in messages
  string value = optionKind.placeholder; ///< what help calls it
  string group = "";               ///< heading of the help
  string owner = "";               ///< the method that reads it, or `static`, `online`: such activations do
  string least = "";               ///< smallest value
  string most = "";
  bit exclusive = 0;               ///< greater than `least`, not equal to it
  bit planned = 0;                 ///< read where plans are made; a recipe says it, instead of the command line
  bit perSite = 0;                 ///< a rule of a recipe may say it for its sites
  bit internal = 0;                ///< of easyquant-compile alone
}

/// An option of passes, recipes and command lines, as passes have it in their lists.
class TableOption<string cppName, OptionKind optionKind, string argument, string defaultText, string text>
    : Option<cppName, argument, optionKind.passType, "", "">, OptionRow<optionKind, argument, defaultText, text> {
  string literal = !if(!empty(defaultText), optionKind.unset, defaultText);
  let defaultValue = !if(!eq(optionKind.passType, "std::string"), "\"" # literal # "\"", literal);
  let description = help # !if(!empty(choices), "", ": " # !interleave(choices, ", ")) #
                    !cond(!not(!empty(ownDefault)): " (default: " # ownDefault # ")",
                          !not(!empty(defaultWords)): "; by default " # defaultWords,
                          true: "");
}

/// The same of a list of texts.
class TableListOption<string cppName, string argument, string text>
    : ListOption<cppName, argument, "std::string", "">, OptionRow<List, argument, "", text> {
  let description = help # !if(!empty(choices), "", ": " # !interleave(choices, ", ")) #
                    !if(!empty(defaultWords), "", "; by default " # defaultWords);
}

/// Stages of a method: what is done before what.
class MethodStage<string enumerator> {
  string name = enumerator;
}
def Base      : MethodStage<"Base">;      ///< fixes the kind of codes and scales, and plans
def Transform : MethodStage<"Transform">; ///< changes weights before they are rounded
def Rounding  : MethodStage<"Rounding">;  ///< chooses codes

/// A method: its name, how it is written, and its pass.
class Method<string methodName, string written, MethodStage methodStage, string cppNamespace, string passClass> {
  string name = methodName;
  string title = written;
  MethodStage stage = methodStage;
  string passNamespace = cppNamespace;
  string pass = passClass;
  string statistics = ""; ///< what its pass reads of the file; empty: a base, or it runs the model itself
}

#endif // EASYQUANT_RECIPE_OPTIONBASE
