//===- Lexer.cpp - Tokens of PTX text -------------------------------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Lexer.h"

#include <bit>
#include <charconv>
#include <cstdlib>
#include <string>

using namespace easyquant;
using namespace easyquant::simt;

static bool isIdentifierStart(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' || c == '$' || c == '%' ||
         c == '.';
}
static bool isDigit(char c) { return c >= '0' && c <= '9'; }
static bool isIdentifierPart(char c) { return isIdentifierStart(c) || isDigit(c); }

/// The end of the number that begins at `begin`.
static size_t endOfNumber(std::string_view text, size_t begin) {
  size_t i = begin;
  bool hex = text.substr(begin, 2) == "0x" || text.substr(begin, 2) == "0X";
  while (i < text.size()) {
    char c = text[i];
    bool exponentSign = (c == '+' || c == '-') && !hex && i > begin &&
                        (text[i - 1] == 'e' || text[i - 1] == 'E') &&
                        text[begin] != '0'; // in 0f3E... an e is a digit
    if (!isDigit(c) && !(c >= 'a' && c <= 'z') && !(c >= 'A' && c <= 'Z') && c != '.' &&
        !exponentSign)
      break;
    ++i;
  }
  return i;
}

static bool parseNumber(std::string_view text, Token &token) {
  auto whole = [&](std::string_view digits, int base) {
    auto [end, error] =
        std::from_chars(digits.data(), digits.data() + digits.size(), token.bits, base);
    return error == std::errc() && end == digits.data() + digits.size() && !digits.empty();
  };
  if (text.size() > 1 && text[0] == '0') {
    char kind = text[1] | 0x20;
    if (kind == 'f' || kind == 'd') {
      token.kind = kind == 'f' ? Token::Float32 : Token::Float64;
      return text.size() == (kind == 'f' ? 10 : 18) && whole(text.substr(2), 16);
    }
  }
  token.kind = Token::Integer;
  if (text.back() == 'U' || text.back() == 'u')
    text.remove_suffix(1);
  if (text.size() > 2 && text[0] == '0' && (text[1] | 0x20) == 'x')
    return whole(text.substr(2), 16);
  if (text.size() > 2 && text[0] == '0' && (text[1] | 0x20) == 'b')
    return whole(text.substr(2), 2);
  if (text.find_first_of(".eE") != std::string_view::npos) {
    token.kind = Token::Float64;
    std::string copy(text);
    char *end = nullptr;
    token.bits = std::bit_cast<uint64_t>(std::strtod(copy.c_str(), &end));
    return end == copy.c_str() + copy.size();
  }
  return text.size() > 1 && text[0] == '0' ? whole(text.substr(1), 8) : whole(text, 10);
}

Result<std::vector<Token>> simt::tokenize(std::string_view text, std::string_view name) {
  std::vector<Token> tokens;
  uint32_t line = 1;
  size_t i = 0;
  while (i < text.size()) {
    char c = text[i];
    if (c == '\n') {
      ++line, ++i;
    } else if (c == ' ' || c == '\t' || c == '\r' || c == '\0') {
      ++i;
    } else if (text.substr(i, 2) == "//") {
      i = std::min(text.find('\n', i), text.size());
    } else if (text.substr(i, 2) == "/*") {
      size_t end = text.find("*/", i + 2);
      if (end == std::string_view::npos)
        return makeError(ErrorCode::Corrupt, "{}:{}: this comment has no end", name, line);
      for (; i < end + 2; ++i)
        line += text[i] == '\n';
    } else if (c == '"') {
      size_t end = text.find('"', i + 1);
      if (end == std::string_view::npos || text.substr(i, end - i).find('\n') != std::string::npos)
        return makeError(ErrorCode::Corrupt, "{}:{}: this string has no end: {}", name, line,
                         lineOf(text, line));
      tokens.push_back({Token::String, text.substr(i + 1, end - i - 1), line});
      i = end + 1;
    } else if (isDigit(c)) {
      size_t end = endOfNumber(text, i);
      Token token{Token::Integer, text.substr(i, end - i), line};
      if (!parseNumber(token.text, token))
        return makeError(ErrorCode::Corrupt, "{}:{}: '{}' is no number of PTX: {}", name, line,
                         token.text, lineOf(text, line));
      tokens.push_back(token);
      i = end;
    } else if (isIdentifierStart(c)) {
      size_t end = i + 1;
      while (end < text.size()) {
        if (text.substr(end, 2) == "::")
          end += 2;
        else if (isIdentifierPart(text[end]) && (c != '.' || text[end] != '.'))
          ++end; // `.reg.b32` are two directives; an opcode keeps its modifiers
        else
          break;
      }
      tokens.push_back({Token::Identifier, text.substr(i, end - i), line});
      i = end;
    } else if (std::string_view("{}[]()<>,;:=+-|!@*~&^").find(c) != std::string_view::npos) {
      tokens.push_back({Token::Punctuation, text.substr(i, 1), line});
      ++i;
    } else {
      return makeError(ErrorCode::Corrupt, "{}:{}: character {:#04x} cannot stand here: {}", name,
                       line, static_cast<unsigned char>(c), lineOf(text, line));
    }
  }
  tokens.push_back({Token::End, text.substr(text.size()), line});
  return tokens;
}

std::string_view simt::lineOf(std::string_view text, uint32_t line) {
  size_t begin = 0;
  for (uint32_t i = 1; i < line && begin < text.size(); ++i)
    begin = std::min(text.find('\n', begin), text.size() - 1) + 1;
  std::string_view result = text.substr(begin, text.find('\n', begin) - begin);
  size_t first = result.find_first_not_of(" \t\r");
  if (first == std::string_view::npos)
    return {};
  return result.substr(first, result.find_last_not_of(" \t\r") - first + 1);
}
