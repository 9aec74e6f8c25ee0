//===- Blas.h - The BLAS that results and times depend on -------*- C++ -*-===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef EASYQUANT_NUMERICS_BLAS_H
#define EASYQUANT_NUMERICS_BLAS_H

#include <string>
#include <string_view>

namespace easyquant::numerics {

/// The version of the BLAS and the kernels that it has chosen for this machine: others add in
/// another order.
std::string blasKernels();

/// OPENBLAS_CORETYPE for a CPU with these instructions where OpenBLAS has chosen the kernels of
/// `chosen`; empty where these fit, or are no worse than what is known to fit.
std::string_view fittingBlasCore(std::string_view chosen, bool hasAvx2, bool hasAvx512);

/// To be called before all else in main. OpenBLAS knows the CPUs of the day that it was built, and
/// takes kernels of 2004 (SSE3) on others, which makes methods that learn half as fast. It chooses
/// while it is loaded, and OPENBLAS_CORETYPE decides. So the program begins again, once, with that
/// variable, where the kernels do not fit and the variable is not set; else this returns.
void restartWithFittingBlas(char **argv);

} // namespace easyquant::numerics

#endif // EASYQUANT_NUMERICS_BLAS_H
