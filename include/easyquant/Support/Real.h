//===- Real.h - Numbers of pass options, with all digits --------*- C++ -*-===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// A pass prints an option of type double with six digits. One of type Real is printed with as many
// as it takes to read the same number back, so that a printed pipeline does the same.
//
//===----------------------------------------------------------------------===//

#ifndef EASYQUANT_SUPPORT_REAL_H
#define EASYQUANT_SUPPORT_REAL_H

#include "llvm/Support/CommandLine.h"
#include "llvm/Support/raw_ostream.h"

#include <fmt/core.h>

namespace easyquant {

struct Real {
  double value = 0;

  Real() = default;
  Real(double value) : value(value) {}
  operator double() const { return value; }

  friend llvm::raw_ostream &operator<<(llvm::raw_ostream &os, const Real &real) {
    return os << fmt::format("{}", real.value);
  }
};

} // namespace easyquant

template <> class llvm::cl::parser<easyquant::Real> : public basic_parser<easyquant::Real> {
public:
  using basic_parser::basic_parser;

  bool parse(Option &option, StringRef argument, StringRef text, easyquant::Real &real) {
    return parser<double>(option).parse(option, argument, text, real.value);
  }
  StringRef getValueName() const override { return "number"; }
  void printOptionDiff(const Option &option, const easyquant::Real &, const OptVal &,
                       size_t width) const {
    printOptionNoValue(option, width);
  }
};

#endif // EASYQUANT_SUPPORT_REAL_H
