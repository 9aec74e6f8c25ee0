//===- Blas.h - Which matrix products results depend on ---------*- C++ -*-===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef EASYQUANT_NUMERICS_BLAS_H
#define EASYQUANT_NUMERICS_BLAS_H

#include <string>

namespace easyquant::numerics {

/// The version of the BLAS and the kernels that it has chosen for this machine: others add in
/// another order.
std::string blasKernels();

} // namespace easyquant::numerics

#endif // EASYQUANT_NUMERICS_BLAS_H
