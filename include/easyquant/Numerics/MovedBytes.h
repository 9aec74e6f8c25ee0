//===- MovedBytes.h - Memory traffic of a quantized linear ------*- C++ -*-===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Bytes that y = x W^T, M tokens of K features in and N out, moves between kernels, counted from
// shapes: every array that a kernel reads or writes once, without padding, caches left out of
// account. W stands for the stored weight: codes, scales in their format, an f32 where these are
// scaled, and zero points of as many bits.
//
//      int8 activations     fused                          separate
//        what makes x       writes codes and scales        writes floats
//        quantize           -                              reads floats, writes codes and scales
//        product            reads codes, scales and W,     reads codes of both, writes int32, one
//                           writes floats                  for each group of an output
//        dequantize         -                              reads int32, scales and zero points,
//                                                          writes floats
//
//      float activations    fused                          separate
//        what makes x       writes floats                  writes floats
//        dequantize         -                              reads W, writes N x K floats
//        product            reads floats and W,            reads floats of both,
//                           writes floats                  writes floats
//
//===----------------------------------------------------------------------===//

#ifndef EASYQUANT_NUMERICS_MOVEDBYTES_H
#define EASYQUANT_NUMERICS_MOVEDBYTES_H

#include "easyquant/Numerics/Scheme.h"

namespace easyquant::numerics {

struct MovedBytes {
  int64_t fused = 0, separate = 0;
};

/// The bytes for a weight of `outputs` x `inputs` and `tokens` tokens. `int8Inputs`: activations
/// are codes.
MovedBytes movedBytes(int64_t outputs, int64_t inputs, const Scheme &weight, bool int8Inputs,
                      int64_t tokens);

} // namespace easyquant::numerics

#endif // EASYQUANT_NUMERICS_MOVEDBYTES_H
