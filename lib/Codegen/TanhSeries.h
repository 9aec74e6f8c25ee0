//===- TanhSeries.h - tanh where it is nearly linear ------------*- C++ -*-===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef EASYQUANT_LIB_CODEGEN_TANHSERIES_H
#define EASYQUANT_LIB_CODEGEN_TANHSERIES_H

namespace easyquant {

/// tanh(u) / u in powers of u^2, for |u| < kTanhSeriesEnd; what is left out is below 2^-29 of it.
inline constexpr double kTanhSeries[] = {1.0, -1.0 / 3, 2.0 / 15, -17.0 / 315};
inline constexpr double kTanhSeriesEnd = 0.125;

} // namespace easyquant

#endif // EASYQUANT_LIB_CODEGEN_TANHSERIES_H
