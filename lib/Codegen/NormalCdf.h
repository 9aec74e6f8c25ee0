//===- NormalCdf.h - The polynomial behind GELU -----------------*- C++ -*-===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef EASYQUANT_LIB_CODEGEN_NORMALCDF_H
#define EASYQUANT_LIB_CODEGEN_NORMALCDF_H

namespace easyquant {

/// The lower tail Phi(-|x|) = e^(-x^2/2) t q(t), t = 1 / (1 + 0.35 |x|): what is left after the
/// exponential is smooth. q by rising powers of t; relative error on |x| <= 14: 3.2e-8. Fitted for
/// the least largest relative error (Lawson's iteratively reweighted least squares on Chebyshev
/// nodes, in double precision).
inline constexpr double kNormalTail[] = {0x1.1df1d4p-3,  0x1.1e6fe6p-3,  0x1.ead5e0p-4,
                                         0x1.b02920p-4,  -0x1.7aa154p-6, 0x1.45fd0ap-3,
                                         -0x1.05d9eep-2, 0x1.26da9cp-3,  -0x1.dd86dap-6};
inline constexpr double kNormalTailShrink = 0.35;

} // namespace easyquant

#endif // EASYQUANT_LIB_CODEGEN_NORMALCDF_H
