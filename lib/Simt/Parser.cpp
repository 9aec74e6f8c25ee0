//===- Parser.cpp - PTX text to its syntax tree ---------------------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Parser.h"

#include "Lexer.h"

#include <algorithm>
#include <bit>

using namespace easyquant;
using namespace easyquant::simt;
using ast::Operand;
using ast::Statement;
using ast::Variable;

namespace {

struct SyntaxError {
  uint32_t line;
  std::string message;
};

class Parser {
public:
  Parser(ast::Module &module, std::vector<Token> tokens)
      : module(module), tokens(std::move(tokens)) {}

  void parse();

private:
  const Token &peek(size_t ahead = 0) const {
    return tokens[std::min(position + ahead, tokens.size() - 1)];
  }
  const Token &next() { return tokens[position + 1 < tokens.size() ? position++ : position]; }
  bool accept(char c) { return peek().is(c) ? (next(), true) : false; }
  bool accept(std::string_view word) { return peek().is(word) ? (next(), true) : false; }

  template <typename... Args>
  [[noreturn]] void fail(fmt::format_string<Args...> format, Args &&...args) {
    throw SyntaxError{peek().line, fmt::format(format, std::forward<Args>(args)...)};
  }
  std::string found() const {
    return peek().kind == Token::End ? "the end of the file" : fmt::format("'{}'", peek().text);
  }
  void expect(char c) {
    if (!accept(c))
      fail("expected '{}', found {}", c, found());
  }
  std::string_view identifier(const char *what) {
    if (peek().kind != Token::Identifier)
      fail("expected {}, found {}", what, found());
    return next().text;
  }
  uint64_t integer(const char *what) {
    if (peek().kind != Token::Integer)
      fail("expected {}, found {}", what, found());
    return next().bits;
  }

  void skipBraces();
  void skipToSemicolon() {
    while (!peek().is(';') && peek().kind != Token::End)
      next();
    expect(';');
  }
  std::optional<Space> spaceOf(std::string_view word) const;
  uint32_t alignment();
  Variable variableHead(Space space);
  void variableTail(Variable &variable, bool parameter);
  std::vector<Variable> variables(Space space);
  std::vector<Variable> parameters();
  void initializer(Variable &variable);
  void initialValue(Variable &variable);
  uint64_t constantInteger();
  void function(bool isEntry);
  void tuning(ast::Function &function);
  void body(ast::Function &function);
  void statement(ast::Function &function);
  Operand operand();
  Operand simpleOperand();
  std::vector<Operand> operandsUntil(char end);

  /// Operands and initializers nest; nobody nests them deeply.
  struct Depth {
    explicit Depth(Parser &parser) : parser(parser) {
      if (++parser.depth > 64)
        parser.fail("brackets are nested too deeply");
    }
    ~Depth() { --parser.depth; }
    Parser &parser;
  };

  ast::Module &module;
  std::vector<Token> tokens;
  size_t position = 0;
  unsigned depth = 0;
};

std::optional<Space> Parser::spaceOf(std::string_view word) const {
  static constexpr std::pair<std::string_view, Space> spaces[] = {
      {".reg", Space::Register}, {".param", Space::Param},   {".global", Space::Global},
      {".const", Space::Const},  {".shared", Space::Shared}, {".local", Space::Local}};
  for (const auto &[name, space] : spaces)
    if (word == name)
      return space;
  return std::nullopt;
}

void Parser::skipBraces() {
  expect('{');
  for (int depth = 1; depth; next()) {
    if (peek().kind == Token::End)
      fail("a '{{' is not closed");
    depth += peek().is('{') - peek().is('}');
  }
}

void Parser::parse() {
  bool isExtern = false;
  while (peek().kind != Token::End) {
    const Token &token = peek();
    if (accept(".version")) {
      module.version = next().text;
    } else if (accept(".target")) {
      module.target = identifier("a target such as sm_80");
      while (accept(','))
        identifier("a target option");
    } else if (accept(".address_size")) {
      if (integer("32 or 64") != 64)
        fail("only .address_size 64 is simulated");
    } else if (accept(".extern") || accept(".visible") || accept(".weak") || accept(".common")) {
      isExtern = token.text == ".extern";
      continue;
    } else if (accept(".file")) {
      integer("a file number");
      while (peek().kind == Token::String || peek().is(',') || peek().kind == Token::Integer)
        next();
    } else if (accept(".section")) {
      next();
      skipBraces();
    } else if (accept(".pragma") || accept(".alias") || accept(".loc")) {
      if (token.text == ".alias")
        fail(".alias is not simulated");
      skipToSemicolon();
    } else if (accept(".entry")) {
      function(true);
    } else if (accept(".func")) {
      function(false);
    } else if (auto space = spaceOf(token.text)) {
      next();
      for (Variable &variable : variables(*space)) {
        variable.isExtern = isExtern;
        module.variables.push_back(std::move(variable));
      }
      expect(';');
    } else if (!accept(';')) {
      fail("expected a directive such as .global, .func or .entry, found {}", found());
    }
    isExtern = false;
  }
}

/// After `.align`.
uint32_t Parser::alignment() {
  const uint64_t align = integer("an alignment");
  if (!std::has_single_bit(align) || align > 4096)
    fail(".align takes a power of two up to 4096");
  return static_cast<uint32_t>(align);
}

/// `.align 4 .v2 .b32`, after the space.
Variable Parser::variableHead(Space space) {
  Variable variable{};
  variable.space = space;
  bool typed = false;
  while (peek().kind == Token::Identifier && peek().text[0] == '.') {
    std::string_view word = next().text;
    if (word == ".align") {
      variable.align = alignment();
    } else if (word == ".v2" || word == ".v4" || word == ".v8") {
      variable.vector = word[2] - '0';
    } else if (word == ".ptr") {
      variable.isPointer = true;
      if (peek().kind == Token::Identifier && spaceOf(peek().text))
        next();
      if (accept(".align"))
        variable.pointeeAlign = alignment();
    } else if (word == ".attribute") {
      expect('(');
      while (!accept(')'))
        next();
    } else if (auto type = parseType(word.substr(1))) {
      variable.type = *type;
      typed = true;
    } else {
      fail("'{}' is no type or attribute of a variable", word);
    }
  }
  if (!typed)
    fail("expected a type such as .b32, found {}", found());
  return variable;
}

/// `name<4>`, `name[2][3] = {...}`.
void Parser::variableTail(Variable &variable, bool parameter) {
  variable.line = peek().line;
  variable.name = identifier("a name");
  if (accept('<')) {
    uint64_t range = integer("a number of registers");
    if (range > 1u << 20)
      fail("{} registers are more than the simulator takes", range);
    variable.range = range;
    if (!range)
      variable.range = 0, variable.elements = 0;
    expect('>');
  }
  while (accept('[')) {
    variable.isArray = true;
    if (accept(']')) {
      variable.elements = 0;
      continue;
    }
    uint64_t size = constantInteger();
    if (size > 1ull << 32 || variable.elements > (1ull << 36) / std::max<uint64_t>(size, 1))
      fail("the array '{}' is too large", variable.name);
    variable.elements *= size;
    expect(']');
  }
  if (!parameter && accept('='))
    initializer(variable);
}

std::vector<Variable> Parser::variables(Space space) {
  std::vector<Variable> result;
  Variable head = variableHead(space);
  do {
    Variable variable = head;
    variableTail(variable, false);
    result.push_back(std::move(variable));
  } while (accept(','));
  return result;
}

uint64_t Parser::constantInteger() {
  bool negative = accept('-');
  uint64_t value = integer("an integer");
  return negative ? -value : value;
}

void Parser::initialValue(Variable &variable) {
  using Kind = ast::InitialValue;
  const Token &token = peek();
  if (token.kind == Token::Integer || token.is('-')) {
    bool negative = accept('-');
    const Token &number = next();
    if (number.kind == Token::Float32 || number.kind == Token::Float64)
      fail("a hexadecimal float has no sign");
    variable.initializer.push_back({Kind::Integer, negative ? -number.bits : number.bits});
  } else if (token.kind == Token::Float32 || token.kind == Token::Float64) {
    variable.initializer.push_back(
        {token.kind == Token::Float32 ? Kind::Float32 : Kind::Float64, next().bits});
  } else {
    ast::InitialValue value{Kind::Symbol};
    value.symbol = identifier("a number or a variable");
    if (peek().is('(')) {
      if (value.symbol != "generic")
        fail("only generic(...) and plain names are taken as addresses in initializers");
      next();
      value.generic = true;
      value.symbol = identifier("a variable");
      expect(')');
    }
    if (accept('+'))
      value.offset = integer("an offset");
    else if (accept('-'))
      value.offset = -static_cast<int64_t>(integer("an offset"));
    variable.initializer.push_back(value);
  }
}

void Parser::initializer(Variable &variable) {
  Depth guard(*this);
  if (!accept('{'))
    return initialValue(variable);
  while (!accept('}')) {
    if (peek().is('{'))
      initializer(variable); // rows of a matrix; nvcc writes them full
    else
      initialValue(variable);
    if (!peek().is('}'))
      expect(',');
  }
}

std::vector<Variable> Parser::parameters() {
  std::vector<Variable> result;
  expect('(');
  while (!accept(')')) {
    std::string_view word = identifier("'.param' or '.reg'");
    auto space = spaceOf(word);
    if (!space || (*space != Space::Param && *space != Space::Register))
      fail("a parameter is .param or .reg, found '{}'", word);
    Variable variable = variableHead(*space);
    variableTail(variable, true);
    result.push_back(variable);
    if (!peek().is(')'))
      expect(',');
  }
  return result;
}

void Parser::tuning(ast::Function &function) {
  while (peek().kind == Token::Identifier && peek().text[0] == '.') {
    std::string_view word = next().text;
    std::array<uint32_t, 3> numbers = {1, 1, 1};
    size_t count = 0;
    while (peek().kind == Token::Integer || peek().is(',')) {
      if (peek().kind == Token::Integer && count < 3)
        numbers[count++] = peek().bits;
      next();
    }
    if (word == ".maxntid")
      function.maxThreads = numbers;
    else if (word == ".reqntid")
      function.requiredThreads = numbers;
    else if (word == ".pragma")
      skipToSemicolon();
    else if (word == ".explicitcluster" || word == ".reqnctapercluster")
      fail("thread block clusters ({}) are not simulated", word);
    else if (word != ".minnctapersm" && word != ".maxnreg" && word != ".noreturn" &&
             word != ".maxnctapersm" && word != ".maxclusterrank" && word != ".unique" &&
             word != ".abi_preserve" && word != ".abi_preserve_control")
      fail("unknown directive '{}' of a function", word);
  }
}

void Parser::function(bool isEntry) {
  auto result = std::make_unique<ast::Function>();
  result->isEntry = isEntry;
  result->line = peek().line;
  while (accept(".attribute")) {
    expect('(');
    while (!accept(')'))
      next();
  }
  if (!isEntry && peek().is('('))
    result->results = parameters();
  result->name = identifier("the name of a function");
  if (peek().is('('))
    result->parameters = parameters();
  tuning(*result);
  if (!accept(';'))
    body(*result);
  ast::Function *&known = module.functionByName[result->name];
  if (known && known->hasBody) {
    if (result->hasBody)
      fail("function '{}' is defined twice", result->name);
    return;
  }
  known = result.get();
  module.functions.push_back(std::move(result));
}

void Parser::body(ast::Function &function) {
  expect('{');
  function.hasBody = true;
  for (int depth = 1; depth;) {
    if (peek().kind == Token::End)
      fail("the body of '{}' is not closed", function.name);
    uint32_t line = peek().line;
    if (accept('{')) {
      ++depth;
      function.body.push_back({Statement::ScopeBegin, line});
    } else if (accept('}')) {
      if (--depth)
        function.body.push_back({Statement::ScopeEnd, line});
    } else {
      statement(function);
    }
  }
}

void Parser::statement(ast::Function &function) {
  uint32_t line = peek().line;
  if (accept(';'))
    return;
  if (peek().kind == Token::Identifier && peek().text[0] == '.') {
    std::string_view word = peek().text;
    if (auto space = spaceOf(word)) {
      next();
      for (Variable &variable : variables(*space)) {
        function.body.push_back({.kind = Statement::Declaration,
                                 .line = line,
                                 .name = variable.name,
                                 .variable = static_cast<uint32_t>(function.variables.size())});
        function.variables.push_back(std::move(variable));
      }
      expect(';');
    } else if (word == ".loc") {
      next();
      // Numbers and names up to the end of the line; it has no semicolon.
      while (peek().line == line && peek().kind != Token::End)
        next();
    } else if (word == ".pragma") {
      skipToSemicolon();
    } else {
      fail("unknown directive '{}'", word);
    }
    return;
  }
  if (peek().kind == Token::Identifier && peek(1).is(':')) {
    Statement label{Statement::Label, line, next().text};
    next();
    if (accept(".branchtargets")) {
      label.kind = Statement::Targets;
      label.operands = operandsUntil(';');
    } else if (peek().is(".callprototype") || peek().is(".calltargets")) {
      skipToSemicolon();
      return;
    }
    function.body.push_back(std::move(label));
    return;
  }
  Statement instruction{Statement::Instruction, line};
  if (accept('@')) {
    instruction.guardNegated = accept('!');
    instruction.guard = identifier("a predicate");
  }
  instruction.line = peek().line;
  instruction.name = identifier("an instruction");
  instruction.operands = operandsUntil(';');
  function.body.push_back(std::move(instruction));
}

std::vector<Operand> Parser::operandsUntil(char end) {
  std::vector<Operand> result;
  while (!accept(end)) {
    result.push_back(operand());
    if (!peek().is(end))
      expect(',');
  }
  return result;
}

Operand Parser::operand() {
  Operand first = simpleOperand();
  if (!accept('|'))
    return first;
  Operand pair;
  pair.kind = Operand::Pair;
  pair.line = first.line;
  pair.items.push_back(std::move(first));
  pair.items.push_back(simpleOperand());
  return pair;
}

Operand Parser::simpleOperand() {
  Operand result;
  result.line = peek().line;
  Depth guard(*this);
  if (accept('{')) {
    result.kind = Operand::Vector;
    result.items = operandsUntil('}');
  } else if (accept('(')) {
    result.kind = Operand::List;
    result.items = operandsUntil(')');
  } else if (accept('[')) {
    result.kind = Operand::Address;
    result.items = operandsUntil(']');
    if (result.items.empty())
      fail("an address is empty");
    result.offset = result.items[0].offset;
  } else if (accept('!')) {
    result = simpleOperand();
    result.negated = true;
  } else if (accept('-')) {
    const Token &number = next();
    if (number.kind != Token::Integer && number.kind != Token::Float64)
      fail("expected a number after '-'");
    result.kind = number.kind == Token::Integer ? Operand::Integer : Operand::Float64;
    result.bits = number.kind == Token::Integer ? -number.bits : number.bits ^ 1ull << 63;
  } else if (auto kind = peek().kind;
             kind == Token::Integer || kind == Token::Float32 || kind == Token::Float64) {
    result.kind = kind == Token::Integer   ? Operand::Integer
                  : kind == Token::Float32 ? Operand::Float32
                                           : Operand::Float64;
    result.bits = next().bits;
  } else {
    result.name = identifier("an operand");
    if (result.name == "_")
      result.kind = Operand::Sink;
    while (peek().is('+') || peek().is('-')) {
      bool minus = next().is('-');
      minus ^= accept('-');
      int64_t offset = static_cast<int64_t>(integer("an offset"));
      result.offset += minus ? -offset : offset;
    }
  }
  return result;
}

} // namespace

Result<std::unique_ptr<ast::Module>> simt::parseModule(std::string text, std::string name) {
  auto module = std::make_unique<ast::Module>();
  module->name = std::move(name);
  module->text = std::move(text);
  std::string_view rest = module->text;
  while (!rest.empty()) {
    size_t end = std::min(rest.find('\n'), rest.size());
    module->lines.push_back(lineOf(rest.substr(0, end), 1));
    rest.remove_prefix(std::min(end + 1, rest.size()));
  }
  auto tokens = tokenize(module->text, module->name);
  if (!tokens)
    return Unexpected(tokens.error());
  try {
    Parser(*module, std::move(*tokens)).parse();
  } catch (const SyntaxError &error) {
    return makeError(ErrorCode::Corrupt, "{}:{}: {}\n  {}", module->name, error.line, error.message,
                     lineOf(module->text, error.line));
  }
  if (module->version.empty() || module->target.empty())
    return makeError(
        ErrorCode::Corrupt,
        "{}: no .version and .target, so this is no PTX file (a cubin or fatbin has to "
        "be made of its PTX again)",
        module->name);
  return module;
}

std::optional<Type> simt::parseType(std::string_view name) {
  auto found = std::ranges::find(kTypes, name, &TypeInfo::name);
  return found == std::end(kTypes) ? std::nullopt
                                   : std::optional(static_cast<Type>(found - std::begin(kTypes)));
}
